/* plan/load_phases.h - where the time goes in which one of several models is loaded, on rank 0. */
#ifndef PLAN_LOAD_PHASES_H
#define PLAN_LOAD_PHASES_H

enum load_phase {
    LOAD_PHASE_OPEN,   /* headers, tokenizer, template */
    LOAD_PHASE_BEGIN,  /* between steps of others: sharing the headers */
    LOAD_PHASE_MEMORY, /* beside steps of others, as the next two: taking memory for weights and for steps */
    LOAD_PHASE_READ,   /* waiting for files */
    LOAD_PHASE_UPLOAD, /* placing weights, waiting for the device to have them */
    LOAD_PHASE_COMMIT, /* between steps of others, as the next two: connecting the ranks */
    LOAD_PHASE_CHOOSE, /* running decode steps in both ways, at a model's first load */
    LOAD_PHASE_RECORD, /* recording decode steps: then, and when a batch size comes for the second time */
    LOAD_PHASE_WARMUP, /* beside steps of others: what the model's folder asks for before it counts as loaded */
    N_LOAD_PHASES
};

struct load_phases {
    double seconds[N_LOAD_PHASES];
};

/* "open", "begin", ... */
const char *load_phase_name(enum load_phase phase);

#endif
