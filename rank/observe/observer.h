/* rank/observe/observer.h - observers of a rank's steps: the watch (deadlines), the meter (times), the profile
 * (phases). The engine has one list of observers; the engine, its communicator and the loop report events to all of
 * them, in the order in which they were added. An observer implements the hooks that it needs. Adding and removing
 * happens between steps. */
#ifndef RANK_OBSERVE_OBSERVER_H
#define RANK_OBSERVE_OBSERVER_H

#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* The activity of the rank. */
enum rank_activity {
    RANK_OUTSIDE,       /* not in the loop: loading, for instance */
    RANK_COORDINATES,   /* rank 0, between two steps: it may wait for work */
    RANK_AWAITS_PLAN,   /* the next plan is being broadcast */
    RANK_WORKS,         /* on its own part of a step */
    RANK_IN_COLLECTIVE, /* with the other CPU ranks */
    RANK_AWAITS_DEVICE  /* which may itself wait for other devices */
};

enum collective { COLLECTIVE_NONE, COLLECTIVE_PLAN, COLLECTIVE_ALL_REDUCE, COLLECTIVE_ALL_GATHER };

/* The kind of a step. Decode: every sequence feeds one token and gets one. Prefill: any other step that has tokens. */
enum step_kind { STEP_EMPTY, STEP_PREFILL, STEP_DECODE, N_STEP_KINDS };

struct observed_step {
    const struct plan *plan;
    int flight; /* its number among the engine's flights */
    enum step_kind kind;
    bool graph; /* it is launched as one recorded graph, so its collectives are not reported individually */
};

struct observer;

struct observer_hooks {
    void (*activity)(struct observer *o, enum rank_activity activity);
    /* A collective begins; the next activity ends it. */
    void (*collective)(struct observer *o, enum collective kind);

    /* Events of the loop: step number `step` begins, with this activity; rank 0 is about to broadcast a plan, in which
     * the observer may request figures (plan->report); a step's tokens are known; all ranks are between two steps
     * (last: and the loop ends; collective); rank 0 is idle (local). */
    void (*next_step)(struct observer *o, enum rank_activity activity, uint64_t step);
    void (*plan)(struct observer *o, struct plan *plan);
    void (*tokens)(struct observer *o, const struct step_result *result);
    void (*between_steps)(struct observer *o, bool last);
    void (*idle)(struct observer *o);

    /* Events of the engine: a step is about to be enqueued; its operations begin and end (also while a graph is
     * recorded); it is enqueued; its late masks have arrived, before the device needed them or after (waited); the
     * device has finished it. */
    void (*submit)(struct observer *o, const struct observed_step *step);
    void (*operations)(struct observer *o, bool begin);
    void (*submitted)(struct observer *o);
    void (*chosen)(struct observer *o, bool waited);
    void (*finished)(struct observer *o, int flight);
};

/* Embedded as the first member of an observer's own struct. */
struct observer {
    const struct observer_hooks *hooks;
    struct observer *next;
};

struct observers {
    struct observer *first; /* borrowed, linked by next */
};

void observers_add(struct observers *list, struct observer *o);
/* Does nothing for an observer that is not in the list. */
void observers_remove(struct observers *list, const struct observer *o);

/* observers_tell(list, activity, RANK_WORKS): call a hook of every observer that has it; list may be NULL. */
#define observers_tell(list, hook, ...)                                                              \
    do {                                                                                             \
        for (struct observer *o_ = (list) != NULL ? (list)->first : NULL; o_ != NULL; o_ = o_->next) \
            if (o_->hooks->hook != NULL)                                                             \
                o_->hooks->hook(o_ __VA_OPT__(, ) __VA_ARGS__);                                      \
    } while (0)

#endif
