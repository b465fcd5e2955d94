/* tests/spmd/test_graphs.c - rank/step/graphs.c and submit.c: which steps are recorded, when, and what they say about
 * their tokens, on a paper device that computes at once. */
#include "tests/spmd/engine_run.h"
#include "tests/support/tap.h"

#include <stdio.h>
#include <stdlib.h>

static struct paper_device {
    struct engine *g;
    int n_recorded, n_launched, n_persistent; /* graphs recorded and launched; runs of the persistent step */
    bool recording, in_second_way;
    struct batch batch; /* attention's last one */
    struct paper_graph {
        int n_tokens;
        bool persistent, mixed;
        int longest;
    } graph[64];
} paper;

static void *paper_host_alloc(struct queue *q, size_t bytes)
{
    (void)q;
    return calloc(1, bytes);
}

static void paper_host_free(struct queue *q, void *p)
{
    (void)q;
    free(p);
}

static void paper_begin(struct queue *q)
{
    (void)q;
    paper.recording = true;
    paper.in_second_way = false;
}

static void *paper_end(struct queue *q)
{
    (void)q;
    struct paper_graph *graph = &paper.graph[paper.n_recorded++];
    paper.recording = false;
    *graph =
        (struct paper_graph){paper.batch.n_tokens, paper.in_second_way, paper.batch.n_alone == 0, paper.batch.longest};
    return graph;
}

/* Operations do nothing during recording. */
#define STEP(phase, name, parameters, arguments) \
    static void paper_op_##name parameters       \
    {                                            \
        if (!paper.recording)                    \
            ops_cpu.name arguments;              \
    }
#define OPTIONAL(phase, name, parameters, arguments)       \
    static bool paper_op_##name parameters                 \
    {                                                      \
        return !paper.recording && ops_cpu.name arguments; \
    }
#include "kernels/op_list.h"

/* Empty rows occur only in runs at the start, where all rows are empty: the CPU, which has no graphs, reports them as
 * faults. */
static void paper_sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                         const int32_t *row_len, const struct sampler *s, int n_rows)
{
    if (!paper.recording && row_slot[0] >= 0)
        ops_cpu.sample(q, out, logits, row_slot, row_len, s, n_rows);
}

static void paper_attention(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                            const struct heads *heads, const struct batch *batch)
{
    paper.batch = *batch;
    if (!paper.recording)
        ops_cpu.attention(q, out, qkv, k_cache, v_cache, heads, batch);
}

static void paper_download(struct queue *q, void *dst, const void *src, size_t bytes)
{
    if (!paper.recording)
        ops_cpu.download(q, dst, src, bytes);
}

/* Repeats the recorded work, with the memory of the step that is being submitted. */
static void paper_launch(struct queue *q, void *graph)
{
    (void)q;
    struct engine *g = paper.g;
    const struct paper_graph *recorded = graph;
    const struct step_shape shape = step_shape_of(
        &(struct decode_graph){.n_tokens = recorded->n_tokens, .mixed = recorded->mixed, .longest = recorded->longest});
    paper.n_launched++;
    step_execute(g, &g->flight[(g->n_steps + g->shift) % ENGINE_FLIGHTS], &shape, recorded->persistent);
}

static void paper_free(struct queue *q, void *graph)
{
    (void)q;
    (void)graph;
}

static void paper_mark(struct queue *q, int which)
{
    (void)q;
    (void)which;
}

static const char *paper_refusal(struct queue *q, const struct decode_model *m)
{
    (void)q;
    (void)m;
    return NULL;
}

static void *paper_open(struct queue *q, const struct decode_model *m, void *sums)
{
    (void)q;
    (void)m;
    (void)sums;
    return &paper;
}

static int paper_tokens(const void *p)
{
    (void)p;
    return N_SEQS;
}

static void *paper_memory(void *p)
{
    return p;
}

static void paper_attach(struct queue *q, void *p, void *const *memory)
{
    (void)q;
    (void)p;
    (void)memory;
}

/* Sets all logits to 0, which makes it the faster one. */
static void paper_run(struct queue *q, void *p, void *logits, const struct batch *b, const float *rotations,
                      const float *window_rotations)
{
    (void)q;
    (void)p;
    (void)rotations;
    (void)window_rotations;
    memset(logits, 0, (size_t)b->n_tokens * (size_t)paper.g->network->config.vocab * sizeof(float));
    paper.batch = *b;
    paper.n_persistent++;
    paper.in_second_way = true;
}

static void paper_range_begin(const char *name, int64_t number)
{
    (void)name;
    (void)number;
}

static void paper_range_end(void) {}

static const struct async_ops paper_async = {.host_alloc = paper_host_alloc,
                                             .host_free = paper_host_free,
                                             .begin_capture = paper_begin,
                                             .end_capture = paper_end,
                                             .launch_graph = paper_launch,
                                             .free_graph = paper_free,
                                             .range_begin = paper_range_begin,
                                             .range_end = paper_range_end,
                                             .mark = paper_mark,
                                             .wait_mark = paper_mark};
static const struct persistent_ops paper_persistent = {.refusal = paper_refusal,
                                                       .open = paper_open,
                                                       .close = paper_free,
                                                       .max_tokens = paper_tokens,
                                                       .memory = paper_memory,
                                                       .attach = paper_attach,
                                                       .run = paper_run};

/* Runs n decode steps after the prompts; the last tokens of each sequence go to token[]. */
static void decode(struct run *r, int n, int32_t *token)
{
    struct step_result result = {0};
    for (int pos = 0; pos < PROMPT; pos += CHUNK)
        step(r, pos, CHUNK, &result);
    for (int i = 0; i < n; i++) {
        step(r, PROMPT + i, 1, &result);
        for (int s = 0; s < N_SEQS; s++)
            token[i * N_SEQS + s] = result.sampled[s].token;
    }
}

/* Opens the same model on the paper device, with known ways: no persistent one, or one that is faster. */
static void open_paper(struct run *r, struct ops *ops, bool persistent, struct step_ways *ways)
{
    struct err e = {0};
    struct limits limits = r->instance.engine.limits;
    *ops = ops_cpu;
#define STEP(phase, name, parameters, arguments)     ops->name = paper_op_##name;
#define OPTIONAL(phase, name, parameters, arguments) ops->name = paper_op_##name;
#include "kernels/op_list.h"
    ops->sample = paper_sample;
    ops->download = paper_download;
    ops->attention = paper_attention;
    ops->async = &paper_async;
    ops->persistent = persistent ? &paper_persistent : NULL;
    engine_close(&r->instance.engine);
    paper = (struct paper_device){.g = &r->instance.engine};
    if (engine_open(&r->instance.engine, r->w, &r->instance.network, &limits, ops, &r->instance.q, STEP_AUTO, ways,
                    &e) != 0)
        fatal(&e);
}

/* With ways that are kept, nothing is recorded at first: each flight's first run has no graph, its second one records,
 * and all others are launched; tokens are the same. Otherwise everything is recorded at the start. */
static void check_recorded_later(struct world *w)
{
    enum { N = 12 };
    struct run r;
    struct ops ops;
    struct model_config m = {0};
    struct step_ways ways = {0};
    int32_t plain[N * N_SEQS], late[N * N_SEQS], early[N * N_SEQS];
    char reason[120];
    open_run(&r, w, &m, "tests/parity/fixtures/llama-14-2-gelu", whole_batches);
    decode(&r, N, plain);
    open_paper(&r, &ops, false, &ways);
    int at_first = paper.n_recorded;
    decode(&r, N, late);
    (void)snprintf(reason, sizeof reason, "%d recorded at first, %d then, %d launched", at_first, paper.n_recorded,
                   paper.n_launched);
    tap_all(at_first == 0 && paper.n_recorded == ENGINE_FLIGHTS && paper.n_launched == N - ENGINE_FLIGHTS, reason,
            "decode steps are recorded at their second run");
    tap_all(memcmp(plain, late, sizeof plain) == 0, "the tokens differ", "recorded later, they give the same tokens");
    open_paper(&r, &ops, false, NULL);
    at_first = paper.n_recorded;
    decode(&r, N, early);
    (void)snprintf(reason, sizeof reason, "%d recorded at first, %d in all", at_first, paper.n_recorded);
    tap_all(at_first == N_SEQS * ENGINE_FLIGHTS && paper.n_recorded == at_first && paper.n_launched == N &&
                memcmp(plain, early, sizeof plain) == 0,
            reason, "decode steps are recorded at the start");
    close_run(&r);
}

/* The first opening measures the faster way; the second one knows it, and runs nothing. */
static void check_known_ways(struct world *w)
{
    enum { N = 6 };
    struct run r;
    struct ops ops;
    struct model_config m = {0};
    struct step_ways ways = {0};
    int32_t token[N * N_SEQS];
    char reason[120];
    open_run(&r, w, &m, "tests/parity/fixtures/llama-14-2-gelu", whole_batches);
    open_paper(&r, &ops, true, &ways);
    const struct decode_graph *g = &r.instance.engine.decode[N_SEQS - 1];
    (void)snprintf(reason, sizeof reason, "measured %d, %d runs, %g s and %g s", ways.measured, paper.n_persistent,
                   ways.way[N_SEQS].separate_seconds, ways.way[N_SEQS].persistent_seconds);
    tap_all(ways.measured && ways.way[N_SEQS].persistent && paper.n_persistent > 0 && g->persistent &&
                g->graph[0] != NULL && g->graph[1] == NULL && ways.way[N_SEQS].separate_seconds > 0,
            reason, "the first opening of a model measures two ways");
    open_paper(&r, &ops, true, &ways);
    int runs = paper.n_persistent, recorded = paper.n_recorded;
    g = &r.instance.engine.decode[N_SEQS - 1];
    bool told = g->persistent && g->separate_seconds == ways.way[N_SEQS].separate_seconds;
    decode(&r, N, token);
    (void)snprintf(reason, sizeof reason, "%d runs and %d recorded at first, %d runs then", runs, recorded,
                   paper.n_persistent);
    tap_all(runs == 0 && recorded == 0 && told && paper.n_persistent == N + ENGINE_FLIGHTS, reason,
            "the second opening knows them, without a run");
    close_run(&r);
}

/* Runs n steps of two tokens of the first sequence, as drafts are verified; the sampled ones go to token[]. */
static void verify(struct run *r, int n, int32_t *token)
{
    struct step_result result = {0};
    struct plan *p = &r->plan;
    for (int i = 0, pos = PROMPT; i < n; i++, pos += 2) {
        plan_reset(p, r->step++);
        p->seq[p->n_seqs++] = (struct plan_seq){0, 2, pos, pos + 1, 2, 2, 0};
        p->token[p->n_tokens++] = (pos + 3) % 50;
        p->token[p->n_tokens++] = (pos + 7) % 50;
        go(r, &result);
        for (int k = 0; k < 2; k++)
            token[2 * i + k] = result.sampled[k].token;
    }
}

/* Steps with several tokens of a sequence have graphs of their own, recorded at their second run, in which no token is
 * said to be the only one of its sequence: an operation may store a single token's keys while others are attended
 * to. */
static void check_mixed_steps(struct world *w)
{
    enum { N = 6 };
    struct limits drafted = whole_batches;
    struct run r;
    struct ops ops;
    struct model_config m = {0};
    int32_t first[N_SEQS], plain[2 * N], mixed[2 * N];
    char reason[160];
    drafted.max_drafts = 2;
    open_run(&r, w, &m, "tests/parity/fixtures/llama-14-2-gelu", drafted);
    decode(&r, 1, first);
    verify(&r, N, plain);
    open_paper(&r, &ops, false, NULL);
    decode(&r, 1, first);
    int alone = paper.batch.n_alone, recorded = paper.n_recorded, launched = paper.n_launched;
    verify(&r, N, mixed);
    (void)snprintf(reason, sizeof reason, "%d and %d alone, %d recorded, %d launched", alone, paper.batch.n_alone,
                   paper.n_recorded - recorded, paper.n_launched - launched);
    tap_all(alone == N_SEQS && paper.batch.n_alone == 0 && paper.n_recorded - recorded == ENGINE_FLIGHTS &&
                paper.n_launched - launched == N - ENGINE_FLIGHTS,
            reason, "steps with several tokens of a sequence have graphs of their own");
    tap_all(memcmp(plain, mixed, sizeof plain) == 0, "the tokens differ", "and the tokens of steps without graphs");
    close_run(&r);
}

/* Steps of short sequences have graphs of their own, which say so; one token more, and the graphs of the start do. */
static void check_short_steps(struct world *w)
{
    enum { N = ENGINE_FLIGHTS * 2 + 1, LIMIT = PROMPT + N };
    struct run r;
    struct ops ops;
    struct model_config m = {0};
    struct step_result result = {0};
    int32_t plain[N * N_SEQS], brief[N * N_SEQS];
    char reason[160];
    open_run(&r, w, &m, "tests/parity/fixtures/llama-14-2-gelu", whole_batches);
    decode(&r, N, plain);
    open_paper(&r, &ops, false, NULL);
    struct engine *g = &r.instance.engine;
    g->short_tokens = LIMIT;
    for (int i = 0; i < g->n_decode; i++)
        g->decode[DECODE_SHORT * g->n_decode + i].longest = LIMIT;
    int at_first = paper.n_recorded;
    decode(&r, N, brief);
    int said = paper.batch.longest, recorded = paper.n_recorded - at_first;
    step(&r, LIMIT, 1, &result);
    (void)snprintf(reason, sizeof reason, "longest %d, then %d; %d recorded, then %d", said, paper.batch.longest,
                   recorded, paper.n_recorded - at_first);
    tap_all(said == LIMIT && paper.batch.longest == 0 && recorded == ENGINE_FLIGHTS &&
                paper.n_recorded - at_first == recorded,
            reason, "steps of short sequences have graphs of their own");
    tap_all(memcmp(plain, brief, sizeof plain) == 0, "the tokens differ", "and the tokens of all others");
    close_run(&r);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    check_recorded_later(&w);
    check_mixed_steps(&w);
    check_short_steps(&w);
    if (w.n_ranks == 1) /* the persistent step of several ranks needs devices that share memory */
        check_known_ways(&w);
    int status = tap_done();
    world_close(&w);
    return status;
}
