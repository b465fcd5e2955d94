/* commands/models/beside.h - a model that runs while others are loaded and unloaded, in `bench --model-switch A,B
 * --beside C`: sequences that get one token each in every step, request after request, and the times between these
 * steps, by concurrent activity. Rank 0. */
#ifndef MODELS_BESIDE_H
#define MODELS_BESIDE_H

#include "commands/bench/durations.h"
#include "commands/bench/traffic.h"
#include "plan/load_phases.h"

/* Events between two of its steps; of several the last one counts. */
enum meanwhile {
    MEANWHILE_NOTHING, /* it had the device for itself */
    MEANWHILE_TOKEN,   /* steps of the other model */
    MEANWHILE_READ,    /* a model was opened or read, or its memory freed, on threads beside the steps */
    MEANWHILE_UNLOAD,  /* changes between two steps */
    MEANWHILE_BEGIN,
    MEANWHILE_COMMIT,
    N_MEANWHILE
};

/* "alone", "token", "read", ... */
const char *meanwhile_name(enum meanwhile what);

struct beside {
    struct traffic traffic;
    bool running;
    enum meanwhile went_on;                /* since its newest step */
    double newest;                         /* when that was; negative: its tokens are not timed */
    struct durations between[N_MEANWHILE]; /* zeroed: nothing was measured yet */
};

/* The model is loaded, traffic.source is set. Runs `batch` requests of n_prompt tokens at a time. */
int beside_start(struct beside *b, int batch, int n_prompt, const struct limits *l, int vocab, struct err *e);
void beside_close(struct beside *b); /* safe on a zeroed struct */

/* Its next step, which may have no sequences; and a step's results. */
int beside_plan(struct beside *b, struct plan *p, struct err *e);
int beside_accept(struct beside *b, const struct step_result *result, struct err *e);

/* Notes a concurrent activity. */
void beside_note(struct beside *b, enum meanwhile what);

/* Whether the model has had no step since a change of the models. */
static inline bool beside_waits(const struct beside *b)
{
    return b->running && b->went_on > MEANWHILE_READ;
}

/* Discards the times measured so far: those of a first switch. */
void beside_forget(struct beside *b);

/* *all = the times of the activities from `first` to `last`. */
void beside_add_up(const struct beside *b, enum meanwhile first, enum meanwhile last, struct durations *all);

#endif
