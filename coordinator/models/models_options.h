/* coordinator/models/models_options.h - options of `serve` and `batch` with several models. */
#ifndef MODELS_MODELS_OPTIONS_H
#define MODELS_MODELS_OPTIONS_H

#include "base/opt_table.h"

#include <stdint.h>

#define MODELS_MOST 64 /* most models loaded at once; plans have numbers for this many */

/* Strings are borrowed from argv or the environment. */
struct models_options {
    const char *dir;            /* their folder; NULL: there is one model, --model */
    int64_t memory, max_loaded; /* bytes of a rank; -1: most of the free memory. Models */
    const char *cache;          /* the folder in which archives are unpacked; NULL: none */
    int64_t cache_bytes;        /* -1: most of the free space there */
    const char *replicas;       /* NAME=N,NAME=N: sets of ranks that may have a model at once; NULL: one each */
    int64_t host_cache;         /* bytes of each host's memory for files of unloaded models; 0: none */
};

extern const struct opt_rows models_rows;

/* Models that may be loaded at once. */
int models_options_most(const struct models_options *o);

/* Refuses options that have no effect with one model, or that need another option. */
int models_options_check(const struct models_options *o, struct err *e);

#endif
