/* coordinator/schedule/step_model.h - predicts the time of a step from measured ones, and the number of prompt tokens
 * that it may feed within a given time. The model is a + b * prompt tokens + c * pairs + d * rows + e * keys, with
 * nonnegative coefficients, fitted to recent steps by least squares of the relative error. Steps with and without
 * prompts decay separately, so that many of one kind do not displace the other. A margin follows the errors, so that
 * few bounded steps take longer than predicted. Pure. */
#ifndef SCHEDULE_STEP_MODEL_H
#define SCHEDULE_STEP_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define STEP_TERMS 5

/* The work of a step. */
struct step_work {
    double tokens; /* of prompts */
    double pairs;  /* pairs of such a token and one that it sees */
    double rows;   /* tokens of decoding sequences, including drafts */
    double keys;   /* keys that these see */
};

/* Zeroed: no measurements. */
struct step_model {
    struct step_sums {
        double product[STEP_TERMS][STEP_TERMS], time[STEP_TERMS];
    } sums[2];               /* of steps without and with prompts */
    double cost[STEP_TERMS]; /* s: of a prompt token, a pair, a row, a key, a step */
    double margin;           /* times of bounded steps are below margin times the cost; 0: as 1 */
    uint64_t n_with_prompts; /* steps that were measured */
};

/* Records the time of a step. bounded: step_model_fit chose its prompt tokens, so its error counts for the margin. */
void step_model_add(struct step_model *m, const struct step_work *work, bool bounded, double seconds);

/* The expected time, margin included. */
double step_model_seconds(const struct step_model *m, const struct step_work *work);

/* Adds the work of n tokens of a prompt, after `pos` tokens. */
struct step_work step_work_with(const struct step_work *work, int pos, int n);

/* The number of n tokens of a prompt, after `pos` tokens, that keep a step of this work within `seconds`. */
int step_model_fit(const struct step_model *m, const struct step_work *work, int pos, int n, double seconds);

#endif
