/* plan/load_phases.h - the phases of loading one of several models, as timed on rank 0. */
#ifndef PLAN_LOAD_PHASES_H
#define PLAN_LOAD_PHASES_H

enum load_phase {
    LOAD_PHASE_OPEN,   /* headers, tokenizer, template */
    LOAD_PHASE_BEGIN,  /* other models wait: sharing the headers */
    LOAD_PHASE_MEMORY, /* other models run, as in the next two: allocating memory for weights and for steps */
    LOAD_PHASE_READ,   /* waiting for files */
    LOAD_PHASE_UPLOAD, /* placing weights, waiting for the copies to the device */
    LOAD_PHASE_COMMIT, /* other models wait, as in the next two: connecting the ranks */
    LOAD_PHASE_CHOOSE, /* running decode steps in both ways, at a model's first load */
    LOAD_PHASE_RECORD, /* recording decode steps: then, and when a batch size comes for the second time */
    LOAD_PHASE_WARMUP, /* other models run: requests of config.pbtxt, which precede "loaded" */
    N_LOAD_PHASES
};

struct load_phases {
    double seconds[N_LOAD_PHASES];
};

/* "open", "begin", ... */
const char *load_phase_name(enum load_phase phase);

#endif
