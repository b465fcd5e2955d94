/* tests/spmd/test_loop_models.c - rank/step/loop.c with models that come and go: a change waits for the steps of its
 * own model only. */
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <stdlib.h>

/* The plans of rank 0, and the number of steps in flight expected when a change is executed. */
static const struct {
    enum plan_kind kind;
    int model, under_way;
} script[] = {
    {PLAN_LOAD, 1, 0},     {PLAN_STEP, 0, 0}, {PLAN_COMMIT, 1, 1}, {PLAN_STEP, 0, 0}, {PLAN_STEP, 1, 0},
    {PLAN_STEP, 0, 0},     {PLAN_DROP, 1, 1}, {PLAN_LOAD, 1, 1},   {PLAN_STEP, 0, 0}, {PLAN_STEP, 0, 0},
    {PLAN_ROLLBACK, 1, 1}, {PLAN_LOAD, 1, 1}, {PLAN_HURRY, 1, 1},  {PLAN_STEP, 0, 0}, {PLAN_STEP, 1, 0},
    {PLAN_DROP, 1, 0},     {PLAN_STEP, 0, 0}, {PLAN_DROP, 0, 0},   {PLAN_STOP, 0, 0},
};
#define N_PLANS ((int)(sizeof script / sizeof script[0]))

struct job {
    struct engine ground, engine[2];
    struct loop_models models;
    int n_planned, n_accepted;  /* on rank 0 */
    int at, n_changes, n_wrong; /* at: the plan in the script */
    bool in_order;
};

static int next(void *context, struct plan *p, struct err *e)
{
    struct job *j = context;
    (void)e;
    p->kind = script[j->n_planned].kind;
    p->model = script[j->n_planned++].model;
    return 0;
}

static int accept_step(void *context, const struct step_result *result, struct err *e)
{
    struct job *j = context;
    (void)e;
    j->in_order = j->in_order && result->step == (uint64_t)j->n_accepted++; /* no two steps share a flight */
    return 0;
}

/* Returns the steps of each engine that were submitted and whose results were not taken. */
static uint64_t under_way(const struct job *j, int model)
{
    return j->engine[model].n_steps - j->engine[model].n_taken;
}

static void change(void *context, const struct plan *p)
{
    struct job *j = context;
    bool comes = p->kind == PLAN_COMMIT || p->kind == PLAN_HURRY;
    j->n_changes++;
    while (script[j->at].kind == PLAN_STEP)
        j->at++;
    j->n_wrong += under_way(j, 0) + under_way(j, 1) != (uint64_t)script[j->at++].under_way;
    j->n_wrong += under_way(j, p->model) != 0;
    if (comes || p->kind == PLAN_DROP)
        j->models.engine[p->model] = comes ? &j->engine[p->model] : NULL;
}

static int n_of(bool steps)
{
    int n = 0;
    for (int i = 0; i < N_PLANS; i++)
        n += steps ? script[i].kind == PLAN_STEP : script[i].kind != PLAN_STEP && script[i].kind != PLAN_STOP;
    return n;
}

/* Opens a model of two layers that computes nothing: steps have no tokens. */
static void open_network(struct network *n, struct queue *q, struct world *w, struct err *e)
{
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, "
                                 "\"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"vocab_size\": 99, "
                                 "\"max_position_embeddings\": 64}";
    struct model_config m;
    struct shard shard;
    (void)model_config_parse(&m, config, sizeof config - 1, "config", e);
    fatal_agree(w, e);
    shard_make(&shard, &m, w->rank, w->n_ranks);
    (void)network_open(n, &m, &shard, NULL, false, &ops_cpu, q, e);
    (void)network_open_kv(n, (const int[KV_KINDS]){8}, 0, &ops_cpu, q, e);
    fatal_agree(w, e);
}

static void check_changes(struct world *w)
{
    const struct limits limits = {
        .max_seqs = 2, .max_batch_tokens = 4, .max_len = 32, .max_logit_rows = 2, .n_blocks = 8};
    struct job j = {.in_order = true};
    struct queue q = {.act = DTYPE_F32, .n_threads = 1};
    struct network network;
    struct err e = {0};
    const struct loop_client client = {.context = &j, .next = next, .accept = accept_step};
    open_network(&network, &q, w, &e);
    for (int i = 0; i < 2; i++) {
        (void)engine_open(&j.engine[i], w, &network, &limits, &ops_cpu, &q, STEP_AUTO, NULL, &e);
        fatal_agree(w, &e);
    }
    /* As on a device, a step is in flight until its results are taken. */
    j.ground = (struct engine){.world = w, .ops = &ops_cpu, .q = &q, .limits = limits, .n_flights = ENGINE_FLIGHTS};
    j.models = (struct loop_models){.ground = &j.ground, .engine = {&j.engine[0]}, .change = change, .context = &j};
    loop_run_models(&j.models, &client, &e);
    tap_all(j.n_changes == n_of(false) && j.n_wrong == 0, "a change waits for other models' steps, or not for its own",
            "models come and go beside the steps of others, on %d ranks", w->n_ranks);
    tap_all(w->rank != 0 || (j.n_accepted == n_of(true) && j.in_order), "results are lost, or out of order",
            "all results are taken, in order");
    for (int i = 0; i < 2; i++)
        engine_close(&j.engine[i]);
    network_close(&network, &ops_cpu, &q);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    check_changes(&w);
    int status = tap_done();
    world_close(&w);
    return status;
}
