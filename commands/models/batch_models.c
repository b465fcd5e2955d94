/* commands/models/batch_models.c - see batch_models.h. */
#include "commands/models/batch_models.h"
#include "commands/batch.h"
#include "commands/models/many.h"

#include <math.h>

struct batching {
    struct batch_run *b;
    struct runner_setup setup;
};

static int open_batch(void *context, const struct models_setup *models, struct err *e)
{
    struct batching *v = context;
    v->setup.models = *models;
    v->setup.n_replicas = models->n_sets;
    return runner_open(&v->b->runner, &v->setup, e);
}

static int start_batch(void *context, struct err *e)
{
    return runner_start(&((struct batching *)context)->b->runner, e);
}

static int close_batch(void *context, struct err *e)
{
    return batch_close(((struct batching *)context)->b, e);
}

/* A requested model stays loaded until no line needs it any more; one that fails to load is not tried again. */
int batch_models(struct world *w, struct batch_run *b, const struct batch_options *o, struct err *e)
{
    struct batching v = {.b = b};
    const struct fleet_setup setup = {.service = &b->o.service,
                                      .models = &b->o.models,
                                      .patience = INFINITY,
                                      .hold = INFINITY,
                                      .identify = batch_identify,
                                      .front = {.context = &v,
                                                .open = open_batch,
                                                .start = start_batch,
                                                .close = close_batch,
                                                .models = &b->runner.models,
                                                .replicas = &b->runner.replicas}};
    if (w->rank == 0 && many_check(&o->service, &o->models, w, e) == 0)
        (void)batch_prepare_many(b, o, &v.setup, e);
    v.setup.n_ranks = w->n_ranks;
    return many_run(w, &setup, e);
}
