/* rank/measure/profile.c - see profile.h. */
#include "rank/measure/profile.h"
#include "base/clock.h"
#include "rank/step/graphs.h"

#include <stdlib.h>
#include <string.h>

/* Clocks per step: no operation needs more than one, and layer.c and step.c have no more operations than this, those of
 * a layer for each piece of the rows. */
#define LAYER_STAMPS (24 * COMM_PIECES)
#define STEP_STAMPS  24

const char *profile_phase_name(enum profile_phase phase)
{
    static const char *const name[N_PHASES] = {"matrix products", "attention", "all-reduce",
                                               "all-gather",      "sampling",  "norms and the rest"};
    return name[phase];
}

static void stamp_phase(struct profile *p, unsigned phase)
{
    struct queue *q = p->engine->q;
    struct profile_trace *t = &p->trace[p->flight][p->kind[p->flight]];
    if (t->n == p->max_stamps) {
        ERR(&q->err, ERR_INTERNAL, "a step changes its phase more than %d times", p->max_stamps);
        return;
    }
    t->phase[t->n] = (unsigned char)phase;
    if (p->inner->async != NULL)
        p->inner->async->stamp(q, p->flight, t->n);
    else
        p->at[p->flight][t->n] = seconds_now();
    t->n++;
}

/* The operation that follows belongs to this phase. */
static struct profile *enter(struct queue *q, enum profile_phase phase)
{
    struct profile *p = q->observer;
    const struct profile_trace *t = &p->trace[p->flight][p->kind[p->flight]];
    if (t->n == 0 || t->phase[t->n - 1] != (unsigned char)phase)
        stamp_phase(p, phase);
    return p;
}

/* Wrappers: profiled_<name> of every operation of a step, and of the collectives. */
#define STEP(phase, name, parameters, arguments)        \
    static void profiled_##name parameters              \
    {                                                   \
        enter(q, PHASE_##phase)->inner->name arguments; \
    }
#define OPTIONAL(phase, name, parameters, arguments)           \
    static bool profiled_##name parameters                     \
    {                                                          \
        return enter(q, PHASE_##phase)->inner->name arguments; \
    }
#include "kernels/op_list.h"

#define COLLECTIVE(phase, name, parameters, arguments)       \
    static void profiled_##name parameters                   \
    {                                                        \
        enter(q, PHASE_##phase)->inner_comm->name arguments; \
    }
/* clang-format off */
COLLECTIVE(ALL_REDUCE, all_reduce, (struct comm *c, struct queue *q, void *data, size_t n), (c, q, data, n))
COLLECTIVE(ALL_REDUCE, all_reduce_floats, (struct comm *c, struct queue *q, float *data, size_t n), (c, q, data, n))
COLLECTIVE(ALL_REDUCE, all_reduce_largest, (struct comm *c, struct queue *q, float *data, size_t n), (c, q, data, n))
COLLECTIVE(ALL_REDUCE, begin_sum, (struct comm *c, struct queue *q, int piece, void *data, size_t n),
           (c, q, piece, data, n))
COLLECTIVE(ALL_REDUCE, end_sum, (struct comm *c, struct queue *q, int piece), (c, q, piece))
COLLECTIVE(ALL_GATHER, all_gather, (struct comm *c, struct queue *q, void *out, const void *in, const size_t *n),
           (c, q, out, in, n))
COLLECTIVE(ALL_GATHER, all_gather_columns, (struct comm *c, struct queue *q, void *out, const void *in,
           const int *begin, int n_rows), (c, q, out, in, begin, n_rows))
/* clang-format on */

static void wrap(struct profile *p)
{
    p->ops = *p->inner;
#define STEP(phase, name, parameters, arguments)     p->ops.name = profiled_##name;
#define OPTIONAL(phase, name, parameters, arguments) p->ops.name = profiled_##name;
#include "kernels/op_list.h"
    p->comm_ops = *p->inner_comm;
    p->comm_ops.all_reduce = profiled_all_reduce;
    p->comm_ops.all_reduce_floats = profiled_all_reduce_floats;
    p->comm_ops.all_reduce_largest = profiled_all_reduce_largest;
    p->comm_ops.begin_sum = profiled_begin_sum;
    p->comm_ops.end_sum = profiled_end_sum;
    p->comm_ops.all_gather = profiled_all_gather;
    p->comm_ops.all_gather_columns = profiled_all_gather_columns;
}

static void begin_step(struct observer *o, const struct observed_step *step)
{
    struct profile *p = (struct profile *)o;
    p->flight = step->flight;
    p->kind[step->flight] = step->kind;
}

static void bound_operations(struct observer *o, bool begin)
{
    struct profile *p = (struct profile *)o;
    if (begin)
        p->trace[p->flight][p->kind[p->flight]].n = 0;
    else
        stamp_phase(p, N_PHASES);
}

static void take_step(struct observer *o, int flight)
{
    struct profile *p = (struct profile *)o;
    if (p->kind[flight] == STEP_EMPTY)
        return;
    const struct profile_trace *t = &p->trace[flight][p->kind[flight]];
    struct profile_sums *sums = &p->sums[p->kind[flight]];
    if (p->inner->async != NULL)
        p->inner->async->read_stamps(p->engine->q, flight, t->n, p->between);
    for (int i = 0; p->inner->async == NULL && i + 1 < t->n; i++)
        p->between[i] = p->at[flight][i + 1] - p->at[flight][i];
    for (int i = 0; i + 1 < t->n; i++)
        sums->seconds[t->phase[i]] += p->between[i];
    sums->n_steps++;
}

static const struct observer_hooks hooks = {
    .submit = begin_step, .operations = bound_operations, .finished = take_step};

int profile_open(struct profile *p, struct engine *g, struct err *e)
{
    memset(p, 0, sizeof *p);
    p->engine = g;
    p->inner = g->ops;
    p->inner_comm = g->comm.ops;
    p->max_stamps = LAYER_STAMPS * g->network->config.n_layers + STEP_STAMPS;
    size_t n = (size_t)p->max_stamps;
    p->between = err_calloc(e, n, sizeof *p->between, "profile");
    for (int f = 0; f < ENGINE_FLIGHTS; f++) {
        p->at[f] = err_calloc(e, n, sizeof *p->at[f], "profile");
        for (int k = 0; k < N_STEP_KINDS; k++)
            p->trace[f][k].phase = err_calloc(e, n, 1, "profile");
    }
    if (p->inner->async != NULL && p->inner->async->open_stamps(g->q, p->max_stamps) != 0)
        ERR(e, g->q->err.code, "profile: %s", g->q->err.text);
    wrap(p);
    g->ops = &p->ops;
    g->comm.ops = &p->comm_ops;
    g->q->observer = p;
    g->profiled = true;
    p->observer.hooks = &hooks;
    observers_add(&g->observers, &p->observer);
    return e->code == ERR_NONE ? 0 : -1;
}

void profile_close(struct profile *p)
{
    struct engine *g = p->engine;
    if (g == NULL)
        return;
    observers_remove(&g->observers, &p->observer);
    g->profiled = false;
    g->q->observer = NULL;
    g->comm.ops = p->inner_comm;
    g->ops = p->inner;
    graphs_drop_profiled(g);
    if (p->inner->async != NULL)
        p->inner->async->close_stamps(g->q);
    free(p->between);
    for (int f = 0; f < ENGINE_FLIGHTS; f++) {
        free(p->at[f]);
        for (int k = 0; k < N_STEP_KINDS; k++)
            free(p->trace[f][k].phase);
    }
    memset(p, 0, sizeof *p);
}

void profile_reset(struct profile *p)
{
    memset(p->sums, 0, sizeof p->sums);
}
