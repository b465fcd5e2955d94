/* commands/models/opened_model.h - a model of the folder that is opened: its headers and texts, and how it will be
 * loaded. */
#ifndef MODELS_OPENED_MODEL_H
#define MODELS_OPENED_MODEL_H

#include "commands/models/discover.h"
#include "commands/start/start.h"
#include "commands/texts.h"
#include "coordinator/server/serve_options.h"

struct opened_model {
    struct texts texts;
    char
        archive[DISCOVER_NAME_BYTES + 8]; /* its other name, NAME.tar.gz, as callers of multi-model endpoints have it */
    struct model_config config;
    struct checkpoint checkpoint; /* until it is fetched */
    struct instance_setup setup;
};

/* The model of this name; *bytes: that it takes on the rank that holds most. Any thread. */
struct opened_model *opened_model_open(const struct serve_options *o, const char *name, const struct ops *ops,
                                       int n_ranks, int64_t *bytes, struct err *e);
void opened_model_close(struct opened_model *m);

#endif
