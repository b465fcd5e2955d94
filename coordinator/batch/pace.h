/* coordinator/batch/pace.h - estimates the duration of a request from finished ones, to decide which requests still fit
 * before the job's end. Pure; times in seconds. The estimate is the 95th percentile of recent requests for each of its
 * parts: the time to the first token (in proportion for longer prompts), the time per further token, and the share of
 * max_tokens that was used. A request that takes longer is cut at the job's end and runs again in the next job; only
 * its time is lost. */
#ifndef BATCH_PACE_H
#define BATCH_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_RECENT 256 /* number of recent requests that count */

/* The figures of a finished request. */
struct pace_sample {
    double prefill; /* from its first step to its first token */
    double decode;  /* from there to its last token */
    int64_t n_prompt, n_output, max_tokens;
};

struct pace {
    double prefill[PACE_RECENT], prompt[PACE_RECENT], per_token[PACE_RECENT], share[PACE_RECENT]; /* rings */
    uint64_t n_prefill, n_per_token; /* number of values in the first, second and fourth ring, and in the third */
    double step;                     /* recent mean time of a step; 0: unknown */
    double decode_step;              /* the shortest step without prompts; 0: unknown */
    uint64_t n_steps;                /* of the last pace_steps */
    double step_seconds;
    struct pace_estimate {
        double prefill, prompt, per_token, share;
    } estimate;
    bool stale; /* the estimate does not hold the newest samples */
};

void pace_open(struct pace *p);

void pace_learn(struct pace *p, const struct pace_sample *s);

/* The number of steps since the start, and their time; decode: the newest ones fed no prompts. Until requests have
 * finished, the shortest such step stands for the time per token. Before the first such step nothing is known: steps
 * with prompts take much longer, and a run that started nothing because of them would never make progress. */
void pace_steps(struct pace *p, uint64_t n_steps, double step_seconds, bool decode);

/* The share of their max_tokens that outputs are expected to use; 1 while little is known. */
double pace_share(struct pace *p);

/* Seconds from the start of a request to its last token; 0 while nothing is known. */
double pace_need(struct pace *p, int64_t n_prompt, int64_t max_tokens);

#endif
