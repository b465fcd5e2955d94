/* commands/models/serve_models.c - see serve_models.h. */
#include "commands/models/serve_models.h"
#include "commands/models/many.h"
#include "commands/serve.h"

#define PATIENCE 5.0 /* s that the first in line waits before busy models yield */
#define HOLD     5.0 /* s that a failure is the answer */
#define STAY     2.0 /* times as long as its load took that a model stays before it makes way for another one */

struct serving {
    const struct serve_options *o;
    int n_ranks;
    struct server server;
};

/* Clients hear from now on that nothing is there yet. */
static int open_server(void *context, const struct models_setup *models, struct err *e)
{
    struct serving *v = context;
    const struct server_setup setup = {.o = v->o,
                                       .name = v->o->models.dir,
                                       .models = *models,
                                       .n_ranks = v->n_ranks,
                                       .n_replicas = models->n_sets,
                                       .end_seconds = service_end_seconds(&v->o->service)};
    return server_open(&v->server, &setup, e);
}

static int close_server(void *context, struct err *e)
{
    (void)e;
    return server_close(&((struct serving *)context)->server);
}

int serve_models(struct world *w, const struct serve_options *o, struct err *e)
{
    struct serving v = {.o = o, .n_ranks = w->n_ranks};
    const struct fleet_setup setup = {.service = &o->service,
                                      .models = &o->models,
                                      .pin = o->pin,
                                      .keep_alive = o->keep_alive,
                                      .patience = PATIENCE,
                                      .hold = HOLD,
                                      .residence = STAY,
                                      .front = {.context = &v,
                                                .open = open_server,
                                                .close = close_server,
                                                .models = &v.server.models,
                                                .replicas = &v.server.replicas}};
    if (w->rank == 0 && many_check(&o->service, &o->models, w, e) == 0)
        (void)serve_check(o, e);
    return many_run(w, &setup, e);
}
