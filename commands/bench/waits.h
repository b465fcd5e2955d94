/* commands/bench/waits.h - waiting times of requests and durations of steps: recording, lines of a table, JSON. Rank
 * 0. */
#ifndef BENCH_WAITS_H
#define BENCH_WAITS_H

#include "commands/bench/durations.h"

#include <jansson.h>

/* Waiting times of requests that are all queued at once: to the first token, and between results with tokens; tokens of
 * one step count as one. */
struct waits {
    struct durations first_token, between_tokens;
};

/* Rank 0's view of steps, from the results of the preceding one, or the plan if that came later, to their own
 * results. */
enum step_load { STEPS_DECODE, STEPS_WITH_PROMPTS, N_STEP_LOADS };

struct step_times {
    struct durations of[N_STEP_LOADS];
};

/* The lines with data. */
void waits_print(const struct waits *w);
void step_times_print(const struct step_times *t);

/* {"n", "mean", "median", "p90", "p99", "highest"} in milliseconds; null: there is none. */
json_t *waits_json(const struct durations *h);

/* {"decode": .., "with_prompts": ..} */
json_t *step_times_json(const struct step_times *t);

#endif
