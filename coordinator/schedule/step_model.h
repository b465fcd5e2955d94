/* coordinator/schedule/step_model.h - how long a step will take, by those that were measured, and how much of a prompt
 * it may feed to take no longer than that.
 *
 * The time is taken to be a + b * prompt tokens + c * pairs + d * rows + e * keys, none of them negative, fitted to the
 * measured steps of late by least squares of the relative error. Steps that feed prompts and those that do not are
 * forgotten apart, so that many of one kind do not displace the other's. A margin follows the errors, so that few of
 * the steps that were bounded take longer than foretold. Pure. */
#ifndef SCHEDULE_STEP_MODEL_H
#define SCHEDULE_STEP_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define STEP_TERMS 5

/* Things that a step does. */
struct step_work {
    double tokens; /* of prompts */
    double pairs;  /* of such a token and one that it sees */
    double rows;   /* tokens of sequences that decode, drafts among them */
    double keys;   /* tokens that these see */
};

/* Zeroed: nothing is known. */
struct step_model {
    struct step_sums {
        double product[STEP_TERMS][STEP_TERMS], time[STEP_TERMS];
    } sums[2];               /* of steps without and with prompts */
    double cost[STEP_TERMS]; /* s: of a prompt token, a pair, a row, a key, a step */
    double margin;           /* times of bounded steps are below margin times the cost; 0: as 1 */
    uint64_t n_with_prompts; /* steps that were measured */
};

/* A step took so long. bounded: its prompt tokens were chosen by step_model_fit, so its error counts for the margin. */
void step_model_add(struct step_model *m, const struct step_work *work, bool bounded, double seconds);

/* The expected time, margin included. */
double step_model_seconds(const struct step_model *m, const struct step_work *work);

/* The work of n tokens of a prompt, behind `pos` tokens, added to what there is. */
struct step_work step_work_with(const struct step_work *work, int pos, int n);

/* The number of n tokens of a prompt, behind `pos` tokens, with which a step of this work takes `seconds` at most. */
int step_model_fit(const struct step_model *m, const struct step_work *work, int pos, int n, double seconds);

#endif
