/* commands/models/switch_report.h - the figures of `bench --model-switch`, as a table and as JSON. Rank 0. */
#ifndef MODELS_SWITCH_REPORT_H
#define MODELS_SWITCH_REPORT_H

#include "commands/bench/spread.h"
#include "commands/models/beside.h"
#include "plan/load_phases.h"

#include <stdio.h>

/* A switch and its parts, in their order; those of the load are enum load_phase from SWITCH_OPEN on. */
enum switch_part {
    SWITCH_ALL,    /* from the request to the first token */
    SWITCH_UNLOAD, /* the other model frees its memory */
    SWITCH_OPEN,
    SWITCH_TOKEN = SWITCH_OPEN + N_LOAD_PHASES, /* the prompt, and a token */
    N_SWITCH_PARTS
};

struct switch_figures {
    int repetitions, warmups;
    int n[2]; /* switches to each */
    double seconds[2][N_SWITCH_PARTS][SPREAD_MOST];
};

struct switch_about {
    const char *name[2]; /* of the models */
    const char *device;
    int n_ranks, n_prompt;
    const char *beside_name; /* NULL: no model ran meanwhile */
    int batch;               /* of its sequences */
    const struct beside *beside;
};

void switch_figures_add(struct switch_figures *f, int to, const double part[N_SWITCH_PARTS]);

/* One switch, one line for each of its parts. Without a first token SWITCH_ALL is 0. */
void switch_report_one(FILE *f, const char *name, const double part[N_SWITCH_PARTS]);

void switch_report_table(const struct switch_figures *f, const struct switch_about *about);
void switch_report_json(const struct switch_figures *f, const struct switch_about *about);

#endif
