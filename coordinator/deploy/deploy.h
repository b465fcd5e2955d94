/* coordinator/deploy/deploy.h - decides which of many models are loaded and evicted, by their bytes and use. The owner
 * reports events (a request asks, leaves or is done; a load has ended) and then calls deploy_next() until it returns no
 * more decisions. Rules:
 * - All requests for one model wait for the same load. Models are loaded one at a time, in the order in which their
 *   first requests arrived; no load overtakes another.
 * - Room is counted in bytes, and in units of KV memory, before anything is read. A model that cannot fit beside the
 *   pinned ones is refused, and nothing is evicted for it. Victims are the least recently used among those that are
 *   idle and not pinned, and only when together they make enough room.
 * - A model that a request uses or waits for is never a victim. If busy models take all the room and the first model in
 *   line has waited `patience`, the models that have been loaded longest yield: a request for one of them waits in line
 *   from then on like all others, and the model is unloaded when its last request is done. So no request starves.
 * - A model that was just loaded stays for `residence` times as long as its load took, at most `patience`, before it
 *   makes way for another one, idle or busy: else two models that do not fit beside each other would be loaded for
 *   each request.
 * - A load does not begin if all requests that waited for it have left.
 * - After a failed load, requests get its error for `hold` seconds; the next request after that causes another attempt.
 *
 * A pure module: no I/O, no clock; times are the caller's, in seconds on a clock that does not go back. One thread. */
#ifndef DEPLOY_DEPLOY_H
#define DEPLOY_DEPLOY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum deploy_state {
    DEPLOY_KNOWN,     /* not loaded, no request waits */
    DEPLOY_WAITING,   /* requests wait; its turn has not come */
    DEPLOY_LOADING,   /* being opened and sized, awaiting room, or being read */
    DEPLOY_READY,     /* requests run */
    DEPLOY_UNLOADING, /* its memory is being freed */
    DEPLOY_FAILED,    /* the last load failed; as DEPLOY_KNOWN after a while */
    N_DEPLOY_STATES
};

/* "known", "waiting", ... as clients see it. */
const char *deploy_state_name(enum deploy_state state);

struct deploy_setup {
    int n_models;
    int n_slots;       /* limit of models loaded at once */
    int64_t memory;    /* bytes that they may take together on the rank that holds most */
    double keep_alive; /* s after which an idle model that is not pinned is unloaded; 0: never */
    double patience;   /* s that the first in line waits before busy models yield */
    double hold;       /* s for which a failed load is the answer */
    double residence;  /* a model stays for this multiple of its load time before it makes way; 0: no minimum */
    int units;         /* of KV memory: bounds the minimum needs of all loaded models */
};

struct deployment {
    enum deploy_state state;
    enum deploy_phase {             /* phases of DEPLOY_LOADING */
                        PHASE_OPEN, /* headers are being read, the size is unknown */
                        PHASE_ROOM, /* sized; room is being made */
                        PHASE_READ  /* memory is taken */
    } phase;
    int64_t bytes; /* of the current load, from PHASE_ROOM on, or of the last one; 0: never sized */
    int units;     /* likewise: units of KV memory that it needs at least */
    bool pinned;
    bool leaving;   /* READY or LOADING: to be unloaded as soon as it is idle; new requests wait for the next load */
    int n_users;    /* admitted requests that have not ended */
    int n_waiters;  /* requests that wait for it */
    bool wanted;    /* to be loaded without a waiting request: pinned at start, or by an operator */
    bool in_line;   /* `order` and `waiting_since` are set */
    uint64_t order; /* of the request that waits longest, or that waited when the load began */
    double waiting_since, reading_since, loaded_at, last_used, failed_at;
    int slot; /* the slot, if LOADING from PHASE_READ on, READY or UNLOADING; else -1 */
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

/* A request asks for model i. DEPLOY_ENTER: it is loaded, and the request is a user of it from now on; DEPLOY_WAIT: the
 * request is a waiter; DEPLOY_REFUSE: the last load failed a moment ago. */
enum deploy_answer { DEPLOY_ENTER, DEPLOY_WAIT, DEPLOY_REFUSE };
enum deploy_answer deploy_ask(struct deploy *d, int i, double now);

/* Is it ready, so that its waiters may enter? To be checked after deploy_loaded and deploy_pin. */
bool deploy_admits(const struct deploy *d, int i);
/* A waiter of such a model becomes a user. */
void deploy_enter(struct deploy *d, int i, double now);
/* A waiter leaves, or was refused. */
void deploy_leave(struct deploy *d, int i);
/* A user is done. */
void deploy_done(struct deploy *d, int i, double now);

/* Operators' commands. Load it without a waiting request. Unload it when its users are done: false if it is pinned or
 * not loaded. */
void deploy_want(struct deploy *d, int i, double now);
bool deploy_unload(struct deploy *d, int i);
void deploy_pin(struct deploy *d, int i, bool pinned);

/* The next thing to do. */
enum deploy_act {
    DEPLOY_NOTHING,
    DEPLOY_OPEN,    /* read the model's headers, then deploy_sized or deploy_failed */
    DEPLOY_ABANDON, /* no request waits any more: close the opened model. Already done when this is returned */
    DEPLOY_REFUSED, /* it can never fit: refuse its waiters, each with deploy_leave. Already done, too */
    DEPLOY_LOAD,    /* into its slot, then deploy_loaded or deploy_failed */
    DEPLOY_UNLOAD   /* out of its slot, then deploy_unloaded */
};
struct deploy_decision {
    enum deploy_act act;
    int model;
};
struct deploy_decision deploy_next(struct deploy *d, double now);

/* Reports of the outcome of a decision. */
void deploy_sized(struct deploy *d, int i, int64_t bytes, int units);
void deploy_loaded(struct deploy *d, int i, double now);
void deploy_failed(struct deploy *d, int i, double now); /* DEPLOY_OPEN or DEPLOY_LOAD; waiters leave by deploy_leave */
void deploy_unloaded(struct deploy *d, int i);

/* The effort of loading model i here, after those that wait: the less, the better. */
enum deploy_ease {
    DEPLOY_FREE,   /* none: there is room */
    DEPLOY_EVICTS, /* idle models go */
    DEPLOY_BUSY,   /* models that are in use have to yield */
    DEPLOY_NEVER   /* it does not fit beside pinned models */
};
/* *cost ranks tables of equal effort: for DEPLOY_FREE the bytes in use, for DEPLOY_EVICTS the time of the last victim's
 * last use. */
enum deploy_ease deploy_ease(const struct deploy *d, int i, double *cost);
/* Model i is sized and is to be read next: is there room for it now? */
bool deploy_fits(const struct deploy *d, int i);
/* Models that wait or are being loaded. */
int deploy_line(const struct deploy *d);
/* Has the last load of model i failed a moment ago? */
bool deploy_failed_lately(const struct deploy *d, int i, double now);

/* For tables of the same models on other ranks: requests for model i wait in another table from now on, with their time
 * of waiting; the caller closes the model opened here, of which nothing has been read. */
void deploy_hand_over(struct deploy *from, struct deploy *to, int i, double now);
/* An operator's load is withdrawn, and no request waits: the model is not loaded, or unloaded as soon as it is. */
void deploy_forgo(struct deploy *d, int i);

/* The most bytes and units that a model may have: all except those of other pinned models. */
int64_t deploy_room(const struct deploy *d, int i);
int deploy_room_units(const struct deploy *d, int i);

/* The time at which deploy_next may return a new decision without an event; INFINITY: never. */
double deploy_due(const struct deploy *d);

#endif
