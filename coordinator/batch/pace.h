/* coordinator/batch/pace.h - how long a request takes, learned from those that have finished: with it is judged what
 * still fits before the job's end. Pure; times in seconds.
 *
 * The estimate is what 19 of 20 recent requests did not exceed, for each part of it: the time to the first token
 * (longer prompts in proportion), the time of a further token, and the share of max_tokens that was used. A request
 * that takes longer all the same is cut at the job's end and runs again in the next one: nothing is lost but its
 * time. */
#ifndef BATCH_PACE_H
#define BATCH_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_RECENT 256 /* requests that are looked back upon */

/* The figures of a finished request. */
struct pace_sample {
    double prefill; /* from its first step to its first token */
    double decode;  /* from there to its last token */
    int64_t n_prompt, n_output, max_tokens;
};

struct pace {
    double prefill[PACE_RECENT], prompt[PACE_RECENT], per_token[PACE_RECENT], share[PACE_RECENT]; /* rings */
    uint64_t n_prefill, n_per_token; /* numbers of values in the first two and the fourth, and in the third */
    double step;                     /* mean time of a step of late; 0: not known */
    double decode_step;              /* the shortest of those that fed no prompts; 0: not known */
    uint64_t n_steps;                /* of the last pace_steps */
    double step_seconds;
    struct pace_estimate {
        double prefill, prompt, per_token, share;
    } estimate;
    bool stale; /* the estimate does not hold the newest samples */
};

void pace_open(struct pace *p);

void pace_learn(struct pace *p, const struct pace_sample *s);

/* The number of steps since the start, and their time; decode: the newest fed no prompts. A further token takes at
 * least such a step, which counts until requests have finished. Before there was one nothing is known: prompts are fed
 * in steps that take much longer, and a run that begins nothing for that reason would never get anywhere. */
void pace_steps(struct pace *p, uint64_t n_steps, double step_seconds, bool decode);

/* The share of their max_tokens that outputs are expected to use; 1 while little is known. */
double pace_share(struct pace *p);

/* Seconds from the start of a request to its last token; 0 while nothing is known. */
double pace_need(struct pace *p, int64_t n_prompt, int64_t max_tokens);

#endif
