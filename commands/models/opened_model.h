/* commands/models/opened_model.h - a model of the folder that is opened: its headers and texts, and how it will be
 * loaded. */
#ifndef MODELS_OPENED_MODEL_H
#define MODELS_OPENED_MODEL_H

#include "commands/models/shelf.h"
#include "commands/start/start.h"
#include "coordinator/server/serve_options.h"

struct opened_model {
    struct shelved *lasting; /* tokenizer, template; owned */
    struct model_config config;
    struct checkpoint checkpoint; /* until it is fetched */
    struct instance_setup setup;
};

/* The model of this name; what does not change is from the shelf, if it is there. *bytes: that it takes on the rank that
 * holds most. Any thread. */
struct opened_model *opened_model_open(const struct serve_options *o, const char *name, struct shelf *shelf,
                                       const struct ops *ops, int n_ranks, int64_t *bytes, struct err *e);
/* Tokenizer and template go to the shelf. */
void opened_model_close(struct opened_model *m, struct shelf *shelf);

#endif
