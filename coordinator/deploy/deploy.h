/* coordinator/deploy/deploy.h - which of many models are loaded: asked for, counted in bytes, loaded, evicted.
 *
 * The owner tells what happens (someone asks, leaves, has been served; a load has ended) and asks deploy_next() what to
 * do until it has nothing more to say. Rules:
 * - Many who ask for one model wait for one load. Models are loaded one at a time, in the order of those who have
 *   waited longest; nobody overtakes.
 * - Room is counted in bytes, and in units of KV memory, before anything is read. A model that cannot fit beside the
 *   pinned ones is refused, and nothing is evicted for it. Victims are the least recently used among those that are
 *   idle and not pinned, and only when together they make enough room.
 * - A model that somebody uses or waits for is never a victim. If busy models take all the room and the first in line
 *   has waited `patience`, the models longest loaded yield: a request for one of them waits in line from then on like
 *   all others, and the model is unloaded when its last request is done. So nobody starves.
 * - A model that was just loaded stays for `residence` times as long as its load took, at most `patience`, before it
 *   makes way for another one, idle or busy: else two models that do not fit beside each other would be loaded for
 *   each request.
 * - Who leaves while waiting costs nothing: a load that nobody waits for any more is not begun.
 * - A load that failed is the answer for `hold` seconds; then the next one who asks has it tried again.
 *
 * A pure module: no I/O, no clock; times are the caller's, in seconds on a clock that does not go back. One thread. */
#ifndef DEPLOY_DEPLOY_H
#define DEPLOY_DEPLOY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum deploy_state {
    DEPLOY_KNOWN,     /* not loaded, nobody waits */
    DEPLOY_WAITING,   /* somebody waits; its turn has not come */
    DEPLOY_LOADING,   /* being opened and sized, awaiting room, or being read */
    DEPLOY_READY,     /* requests run */
    DEPLOY_UNLOADING, /* its memory is being given back */
    DEPLOY_FAILED,    /* the last load failed; as DEPLOY_KNOWN after a while */
    N_DEPLOY_STATES
};

/* "known", "waiting", ... as clients see it. */
const char *deploy_state_name(enum deploy_state state);

struct deploy_setup {
    int n_models;
    int n_slots;       /* models that are loaded at once, at most */
    int64_t memory;    /* bytes that they may take together, on the rank that holds most */
    double keep_alive; /* s; an idle model that is not pinned is unloaded after this time; 0: never for that */
    double patience;   /* s that the first in line waits before busy models yield */
    double hold;       /* s that a failure is the answer */
    double residence;  /* times as long as its load took a model stays before it makes way; 0: as short as may be */
    int units;         /* of KV memory, for as many as all that are loaded need at least */
};

struct deployment {
    enum deploy_state state;
    enum deploy_phase {             /* of DEPLOY_LOADING */
                        PHASE_OPEN, /* headers are being read, the size is not known */
                        PHASE_ROOM, /* sized; room is being made */
                        PHASE_READ  /* memory is taken */
    } phase;
    int64_t bytes; /* of a load: known from PHASE_ROOM on, and of the last one otherwise; 0: never sized */
    int units;     /* likewise: of KV memory that it needs at least */
    bool pinned;
    bool leaving;   /* READY, or LOADING: unloaded as soon as it is idle; who asks waits for the next load */
    int n_users;    /* requests that were let in and have not ended */
    int n_waiters;  /* requests that wait for it */
    bool wanted;    /* to be loaded though nobody waits: pinned at start, or by an operator */
    bool in_line;   /* `order` and `waiting_since` are set */
    uint64_t order; /* of the one who waits longest, or was waiting when the load began */
    double waiting_since, reading_since, loaded_at, last_used, failed_at;
    int slot; /* LOADING from PHASE_READ on, READY, UNLOADING: which one; else -1 */
};

struct deploy {
    struct deploy_setup setup;
    struct deployment *model; /* [setup.n_models] */
    bool *slot_taken;         /* [setup.n_slots] */
    int loading;              /* the model in DEPLOY_LOADING, -1: none */
    int n_resident;           /* that hold a slot */
    int64_t used;             /* bytes of these */
    int used_units;           /* at least */
    uint64_t n_asked;         /* orders given out */
    double decided;           /* when deploy_next was asked last */
    uint64_t n_loads, n_unloads;
};

int deploy_open(struct deploy *d, const struct deploy_setup *setup, struct err *e);
void deploy_close(struct deploy *d);

/* Somebody wants model i. DEPLOY_ENTER: it is loaded, and the one who asked a user of it from now on; DEPLOY_WAIT: the
 * one is a waiter; DEPLOY_REFUSE: the last load failed a moment ago. */
enum deploy_answer { DEPLOY_ENTER, DEPLOY_WAIT, DEPLOY_REFUSE };
enum deploy_answer deploy_ask(struct deploy *d, int i, double now);

/* Is it ready, and may who waits for it enter? So after deploy_loaded and deploy_pin. */
bool deploy_admits(const struct deploy *d, int i);
/* A waiter of such a model becomes a user. */
void deploy_enter(struct deploy *d, int i, double now);
/* A waiter leaves, or was refused. */
void deploy_leave(struct deploy *d, int i);
/* A user is done. */
void deploy_done(struct deploy *d, int i, double now);

/* An operator's wishes. Load it though nobody waits. Unload it when its users are done: false if it is pinned or not
 * loaded. */
void deploy_want(struct deploy *d, int i, double now);
bool deploy_unload(struct deploy *d, int i);
void deploy_pin(struct deploy *d, int i, bool pinned);

/* The next thing to do. */
enum deploy_act {
    DEPLOY_NOTHING,
    DEPLOY_OPEN,    /* read the model's headers, then deploy_sized or deploy_failed */
    DEPLOY_ABANDON, /* nobody waits any more: close what was opened. It is done when this is returned */
    DEPLOY_REFUSED, /* it is larger than all there is: answer those who wait, each with deploy_leave. Done, too */
    DEPLOY_LOAD,    /* into its slot, then deploy_loaded or deploy_failed */
    DEPLOY_UNLOAD   /* out of its slot, then deploy_unloaded */
};
struct deploy_decision {
    enum deploy_act act;
    int model;
};
struct deploy_decision deploy_next(struct deploy *d, double now);

/* Reports of how a decision has ended. */
void deploy_sized(struct deploy *d, int i, int64_t bytes, int units);
void deploy_loaded(struct deploy *d, int i, double now);
void deploy_failed(struct deploy *d, int i, double now); /* DEPLOY_OPEN or DEPLOY_LOAD; waiters leave by deploy_leave */
void deploy_unloaded(struct deploy *d, int i);

/* The effort of loading model i here, behind what waits in line: the less, the better. */
enum deploy_ease {
    DEPLOY_FREE,   /* nothing: there is room */
    DEPLOY_EVICTS, /* idle models go */
    DEPLOY_BUSY,   /* models that are in use have to yield */
    DEPLOY_NEVER   /* it does not fit beside pinned models */
};
/* *cost tells tables apart that are equally easy: of DEPLOY_FREE the bytes in use, of DEPLOY_EVICTS when the last one
 * to go was used last. */
enum deploy_ease deploy_ease(const struct deploy *d, int i, double *cost);
/* Model i is sized and is to be read next: is there room for it now? */
bool deploy_fits(const struct deploy *d, int i);
/* Models that wait or are being loaded. */
int deploy_line(const struct deploy *d);
/* Has the last load of model i failed a moment ago? */
bool deploy_failed_lately(const struct deploy *d, int i, double now);

/* For tables of the same models on other ranks. Requests that wait for model i or want it do so in another table
 * from now on, for as long as before; what was opened for it here is to be closed. Nothing of it has been read here. */
void deploy_hand_over(struct deploy *from, struct deploy *to, int i, double now);
/* An operator wants it no more, and nobody waits: it is not loaded, or goes as soon as it is. */
void deploy_forgo(struct deploy *d, int i);

/* Bytes, and units, that a model may have at most: all but those of the pinned others. */
int64_t deploy_room(const struct deploy *d, int i);
int deploy_room_units(const struct deploy *d, int i);

/* When deploy_next may say something new though nothing has happened, by the clock; INFINITY: never. */
double deploy_due(const struct deploy *d);

#endif
