/* commands/models/batch_models.c - see batch_models.h. */
#include "commands/models/batch_models.h"
#include "commands/batch.h"
#include "commands/models/many.h"

#include <math.h>

struct batching {
    struct batch_run *b;
    const struct batch_options *o;
    int n_ranks;
};

static int open_batch(void *context, const struct models_setup *models, struct err *e)
{
    struct batching *v = context;
    return batch_open_many(v->b, v->o, models, v->n_ranks, e);
}

static int start_batch(void *context, struct err *e)
{
    return runner_start(&((struct batching *)context)->b->runner, e);
}

static int close_batch(void *context, struct err *e)
{
    return batch_close(((struct batching *)context)->b, e);
}

/* A model that is wanted stays until no line wants it any more; one that cannot be loaded is not tried again. */
int batch_models(struct world *w, struct batch_run *b, const struct batch_options *o, struct err *e)
{
    struct batching v = {b, o, w->n_ranks};
    const struct fleet_setup setup = {.service = &b->o.service,
                                      .models = &o->models,
                                      .patience = INFINITY,
                                      .hold = INFINITY,
                                      .identify = batch_identify,
                                      .front = {.context = &v,
                                                .open = open_batch,
                                                .start = start_batch,
                                                .close = close_batch,
                                                .models = &b->runner.models,
                                                .replicas = &b->runner.replicas}};
    b->o = *o;
    if (w->rank == 0)
        (void)many_check(&o->service, &o->models, w, e);
    return many_run(w, &setup, e);
}
