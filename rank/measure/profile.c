/* rank/measure/profile.c - see profile.h. */
#include "rank/measure/profile.h"
#include "base/clock.h"
#include "rank/step/graphs.h"

#include <stdlib.h>
#include <string.h>

/* Clocks of a step: no operation needs more than one, and layer.c and step.c have no more operations than these. */
#define LAYER_STAMPS 16
#define STEP_STAMPS  24

const char *profile_phase_name(enum profile_phase phase)
{
    static const char *const name[N_PHASES] = {"matrix products", "attention", "all-reduce",
                                               "all-gather",      "sampling",  "norms and the rest"};
    return name[phase];
}

static void stamp(struct profile *p, unsigned phase)
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
        stamp(p, phase);
    return p;
}

#define WRAP(phase, name, parameters, arguments) \
    static void name parameters                  \
    {                                            \
        enter(q, phase)->inner->name arguments;  \
    }
#define WRAP_COMM(phase, name, parameters, arguments) \
    static void name parameters                       \
    {                                                 \
        enter(q, phase)->inner_comm->name arguments;  \
    }

/* clang-format off */
WRAP(PHASE_OTHER, feed, (struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot,
     const int32_t *pos, const struct sampler *s, int n_tokens), (q, token, planned, slot, pos, s, n_tokens))
WRAP(PHASE_OTHER, embed, (struct queue *q, void *out, const int32_t *token, const struct weight *table, int first_id,
     int n_tokens), (q, out, token, table, first_id, n_tokens))
WRAP(PHASE_OTHER, add_position, (struct queue *q, void *x, const struct weight *table, const int32_t *pos, int offset,
     int n_tokens), (q, x, table, pos, offset, n_tokens))
WRAP(PHASE_OTHER, add, (struct queue *q, void *x, const void *y, size_t n), (q, x, y, n))
WRAP(PHASE_OTHER, norm, (struct queue *q, void *out, void *x, const void *added, enum norm_kind kind,
     const struct weight *w, const struct weight *b, int n_tokens, int dim, float eps),
     (q, out, x, added, kind, w, b, n_tokens, dim, eps))
WRAP(PHASE_MATMUL, matmul, (struct queue *q, void *out, const void *x, const struct weight *w,
     const struct weight *bias, int n_tokens, bool accumulate), (q, out, x, w, bias, n_tokens, accumulate))
WRAP(PHASE_ATTENTION, rope_table, (struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
     const int32_t *rope_len, int n_tokens), (q, cos_sin, rope, pos, rope_len, n_tokens))
WRAP(PHASE_ATTENTION, qkv_store, (struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
     const struct batch *batch, const struct rope *rope, const float *cos_sin, const struct weight *q_norm,
     const struct weight *k_norm, float eps),
     (q, qkv, k_cache, v_cache, heads, batch, rope, cos_sin, q_norm, k_norm, eps))
WRAP(PHASE_ATTENTION, attention, (struct queue *q, void *out, const void *qkv, const void *k_cache,
     const void *v_cache, const struct heads *heads, const struct batch *batch),
     (q, out, qkv, k_cache, v_cache, heads, batch))
WRAP(PHASE_OTHER, activate, (struct queue *q, void *out, const void *x, enum activation kind, bool gated,
     int n_tokens, int cols), (q, out, x, kind, gated, n_tokens, cols))
WRAP(PHASE_OTHER, route, (struct queue *q, const struct routes *r, const void *x, const struct weight *router,
     const struct weight *bias, const struct routing *how, int n_tokens), (q, r, x, router, bias, how, n_tokens))
WRAP(PHASE_MATMUL, matmul_experts, (struct queue *q, void *out, const void *x, const struct weight *w,
     const struct weight *bias, const struct routes *r, const struct routing *how, enum expert_rows x_rows, int n_tokens),
     (q, out, x, w, bias, r, how, x_rows, n_tokens))
WRAP(PHASE_OTHER, combine, (struct queue *q, void *out, const void *y, const struct routes *r,
     const struct routing *how, int n_tokens, int dim, bool accumulate), (q, out, y, r, how, n_tokens, dim, accumulate))
WRAP(PHASE_OTHER, gate, (struct queue *q, void *x, const void *in, const struct weight *w, int n_tokens, int dim),
     (q, x, in, w, n_tokens, dim))
WRAP(PHASE_OTHER, gather_rows, (struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim),
     (q, out, x, row, n_rows, dim))
WRAP(PHASE_ALL_GATHER, join_columns, (struct queue *q, void *out, const void *in, const int *begin, int n_ranks,
     int n_rows), (q, out, in, begin, n_ranks, n_rows))
WRAP(PHASE_SAMPLING, sample, (struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
     const int32_t *row_len, const struct sampler *s, int n_rows), (q, out, logits, row_slot, row_len, s, n_rows))
WRAP(PHASE_SAMPLING, score, (struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
     const int32_t *row_token, const struct sampler *s, int n_rows), (q, out, logits, row_slot, row_token, s, n_rows))
WRAP_COMM(PHASE_ALL_REDUCE, all_reduce, (struct comm *c, struct queue *q, void *data, size_t n), (c, q, data, n))
WRAP_COMM(PHASE_ALL_GATHER, all_gather, (struct comm *c, struct queue *q, void *out, const void *in, const size_t *n),
          (c, q, out, in, n))
WRAP_COMM(PHASE_ALL_GATHER, all_gather_columns, (struct comm *c, struct queue *q, void *out, const void *in,
     const int *begin, int n_rows), (c, q, out, in, begin, n_rows))
/* clang-format on */

static void wrap(struct profile *p)
{
    struct ops *o = &p->ops;
    p->ops = *p->inner;
    o->feed = feed;
    o->embed = embed;
    o->add_position = add_position;
    o->add = add;
    o->norm = norm;
    o->matmul = matmul;
    o->rope_table = rope_table;
    o->qkv_store = qkv_store;
    o->attention = attention;
    o->activate = activate;
    o->route = route;
    o->matmul_experts = matmul_experts;
    o->combine = combine;
    o->gate = gate;
    o->gather_rows = gather_rows;
    o->join_columns = join_columns;
    o->sample = sample;
    o->score = score;
    p->comm_ops = *p->inner_comm;
    p->comm_ops.all_reduce = all_reduce;
    p->comm_ops.all_gather = all_gather;
    p->comm_ops.all_gather_columns = all_gather_columns;
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
        stamp(p, N_PHASES);
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
