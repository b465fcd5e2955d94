/* tests/spmd/test_engine.c - rank/step/engine.c and step.c: a step allocates nothing, and the memory allocated at the
 * start suffices and was predicted. */
#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/step/step.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- every allocation of the process passes through here; free() remains the C library's ---- */

#if defined __SANITIZE_ADDRESS__
#define COUNTS 0 /* the sanitizer has its own allocator */
#else
#define COUNTS 1

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern char __executable_start, etext; /* from the linker: bounds of this program without the libraries */
#endif

#define SEPARATE __attribute__((noinline)) /* if inlined, it would see its caller's caller */

static _Atomic int counting, n_ours, n_all;

#if COUNTS
static void count(const void *caller)
{
    if (!counting)
        return;
    n_all++;
    if ((const char *)caller >= &__executable_start && (const char *)caller < &etext)
        n_ours++;
}

SEPARATE void *malloc(size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

SEPARATE void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

SEPARATE void *realloc(void *p, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, bytes);
}

SEPARATE void *aligned_alloc(size_t align, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(align, bytes);
}

SEPARATE int posix_memalign(void **p, size_t align, size_t bytes)
{
    count(__builtin_return_address(0));
    *p = __libc_memalign(align, bytes);
    return *p != NULL ? 0 : ENOMEM;
}
#endif

/* ---- plans: prompts in chunks, then decode, all made by this rank itself ---- */

#define N_SEQS 4
#define PROMPT 20
#define CHUNK  10

/* A chunk of every sequence in each step. */
static const struct limits whole_batches = {.max_seqs = N_SEQS,
                                            .max_batch_tokens = N_SEQS * CHUNK,
                                            .max_len = 64,
                                            .max_logit_rows = N_SEQS,
                                            .n_blocks = 4 * N_SEQS};

struct run {
    struct instance instance;
    struct plan plan;
    struct world *w;
    uint64_t step;
};

static void start_sequence(struct run *r, int slot)
{
    struct plan *p = &r->plan;
    p->start[p->n_starts++] = (struct plan_start){.slot = slot,
                                                  .sampling = {.top_p = 0.9f,
                                                               .temperature = slot % 2 == 0 ? 0 : 1,
                                                               .repetition_penalty = 1.1f,
                                                               .n_top = 3,
                                                               .prompt_len = PROMPT}};
    for (int i = 0; i < limits_blocks_per_slot(&p->limits); i++)
        p->block[p->n_blocks++] = (struct plan_block){slot, i, i * N_SEQS + slot, KV_MAIN};
}

static void go(struct run *r, struct step_result *result)
{
    loop_share(&r->plan, r->w, r->instance.network.config.vocab);
    engine_step(&r->instance.engine, &r->plan, result);
}

/* Runs a step: `n` tokens of every sequence from position pos on. */
static void step(struct run *r, int pos, int n, struct step_result *result)
{
    struct plan *p = &r->plan;
    plan_reset(p, r->step++);
    for (int slot = 0; slot < N_SEQS && r->w->rank == 0; slot++) {
        bool prompt = pos < PROMPT;
        if (pos == 0)
            start_sequence(r, slot);
        int sample = pos + n >= PROMPT;
        p->seq[p->n_seqs++] = (struct plan_seq){slot, n, pos, prompt ? PROMPT : pos + 1, sample, sample, 0};
        for (int i = 0; i < n; i++)
            p->token[p->n_tokens++] = prompt ? (pos + i + slot) % 50 : -1;
    }
    go(r, result);
}

static void open_run(struct run *r, struct world *w, struct model_config *m, const char *dir, struct limits limits)
{
    struct err e = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {
        .limits = limits, .kv_bytes = -1, .threads = 1, .progress = PROGRESS_NEVER, .dummy = dir == NULL};
    memset(r, 0, sizeof *r);
    r->w = w;
    if (w->rank == 0 && dir != NULL && model_config_read(m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(w, &e);
    instance_open(&r->instance, w, m, &c, &setup, &e);
    if (plan_open(&r->plan, &setup.limits, &e) != 0)
        fatal(&e);
}

static void close_run(struct run *r)
{
    plan_close(&r->plan);
    instance_close(&r->instance);
}

/* From the second request of a slot on, nothing is allocated. MPI may allocate: the test counts only this program's
 * allocations, and on one rank, where a step does not call MPI, all of them. */
static void check_allocations(struct world *w, const char *dir)
{
    struct run r;
    struct model_config m = {0};
    struct step_result result;
    char reason[100];
    open_run(&r, w, &m, dir, whole_batches);
    for (int round = 0; round < 2; round++) {
        n_ours = n_all = 0;
        counting = round > 0;
        for (int pos = 0; pos < PROMPT; pos += CHUNK)
            step(&r, pos, CHUNK, &result);
        for (int pos = PROMPT; pos < PROMPT + 20; pos++)
            step(&r, pos, 1, &result);
        counting = 0;
    }
    bool none = n_ours == 0 && (w->n_ranks > 1 || n_all == 0);
    snprintf(reason, sizeof reason, "%d allocations, %d of them by this program", n_all, n_ours);
    tap_all(none && result.n_sampled == N_SEQS, reason, "%s, %d ranks: steps allocate no memory", dir, w->n_ranks);
    close_run(&r);
}

/* The counter itself must work. */
static void check_counter(void)
{
    counting = 1;
    n_ours = 0;
    void *volatile p = malloc(100);
    free(p);
    p = calloc(3, 5);
    free(p);
    counting = 0;
    char reason[60];
    snprintf(reason, sizeof reason, "%d counted, %d of all", n_ours, n_all);
    tap_all(n_ours == (COUNTS ? 2 : 0), reason, "allocations of this program are counted");
}

/* An embedding wider than the rest of the model (OPT-350m has a narrower one): its all-reduce is the largest in a
 * step. */
static void check_wide_embedding(struct world *w)
{
    static const char config[] =
        "{\"model_type\": \"opt\", \"vocab_size\": 60, \"hidden_size\": 8, \"word_embed_proj_dim\": 512, \"ffn_dim\": "
        "16, "
        "\"num_attention_heads\": 2, \"num_hidden_layers\": 1, \"max_position_embeddings\": 300, "
        "\"torch_dtype\": \"float32\"}";
    struct run r;
    struct err e = {0};
    struct model_config m = {0};
    struct step_result result;
    if (w->rank == 0)
        (void)model_config_parse(&m, config, sizeof config - 1, "wide", &e);
    fatal_agree(w, &e);
    open_run(
        &r, w, &m, NULL,
        (struct limits){.max_seqs = 1, .max_batch_tokens = 280, .max_len = 300, .max_logit_rows = 1, .n_blocks = 20});
    plan_reset(&r.plan, 0);
    if (w->rank == 0) {
        struct plan *p = &r.plan;
        p->start[p->n_starts++] = (struct plan_start){.sampling = {.top_p = 1, .repetition_penalty = 1}};
        for (int i = 0; i < 18; i++)
            p->block[p->n_blocks++] = (struct plan_block){0, i, i, KV_MAIN};
        p->seq[p->n_seqs++] = (struct plan_seq){0, 280, 0, 280, 1, 1, 0};
        for (int i = 0; i < 280; i++)
            p->token[p->n_tokens++] = i % 60;
    }
    go(&r, &result);
    tap_all(result.n_sampled == 1, "no token", "an embedding 64 times as wide as the model, %d ranks", w->n_ranks);
    close_run(&r);
}

/* MPI's counts are int. */
static void check_many_logits(struct world *w)
{
    struct err e = {0};
    struct engine g;
    struct queue q = {.act = DTYPE_F32, .n_threads = 1};
    struct network n = {.config = {.hidden = 8, .embed_dim = 8, .vocab = 1 << 24}};
    const struct limits limits = {
        .max_seqs = 128, .max_batch_tokens = 128, .max_len = 16, .max_logit_rows = 128, .n_blocks = 128};
    if (w->n_ranks == 1)
        return;
    int rc = engine_open(&g, w, &n, &limits, &ops_cpu, &q, STEP_AUTO, NULL, &e);
    tap_all(rc == -1 && e.code == ERR_UNSUPPORTED, e.text, "128 rows of 16777216 logits are refused, %d ranks",
            w->n_ranks);
    engine_close(&g);
}

static size_t taken;

static void *count_alloc(struct queue *q, size_t bytes)
{
    taken += (bytes + 511) / 512 * 512;
    return ops_cpu.alloc(q, bytes);
}

/* engine_open allocates as much from a device as engine_bytes predicts. */
static void check_foretold(struct world *w)
{
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 96, \"intermediate_size\": 200, "
                                 "\"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"num_hidden_layers\": 2, "
                                 "\"vocab_size\": 333, \"max_position_embeddings\": 64}";
    const struct limits limits = {
        .max_seqs = 3, .max_batch_tokens = 20, .max_len = 50, .max_logit_rows = 3, .n_blocks = 12};
    struct err e = {0};
    struct engine g;
    struct network *n = err_calloc(&e, 1, sizeof *n, "network");
    struct queue q = {.act = DTYPE_F32, .n_threads = 1};
    struct ops counting_ops = ops_cpu;
    char reason[100];
    counting_ops.alloc = count_alloc;
    if (n != NULL && model_config_parse(&n->config, config, sizeof config - 1, "config", &e) == 0)
        shard_make(&n->shard, &n->config, w->rank, w->n_ranks);
    fatal_agree(w, &e);
    size_t foretold = engine_bytes(n, &limits, &ops_cpu, DTYPE_F32, &e);
    size_t half = engine_bytes(n, &limits, &ops_cpu, DTYPE_BF16, &e);
    taken = 0;
    (void)engine_open(&g, w, n, &limits, &counting_ops, &q, STEP_AUTO, NULL, &e);
    fatal_agree(w, &e);
    (void)snprintf(reason, sizeof reason, "foretold %zu bytes, %zu for 16 bits, taken %zu", foretold, half, taken);
    tap_all(foretold == taken && half < foretold && foretold > 20 * 3 * 96 * sizeof(float), reason,
            "working memory is as predicted, %d ranks", w->n_ranks);
    engine_close(&g);
    free(n);
}

/* ---- decode steps that are recorded later, on a paper device that computes at once ---- */

static struct paper_device {
    struct engine *g;
    int n_recorded, n_launched, n_persistent; /* graphs recorded and launched; runs of the persistent step */
    bool recording, in_second_way;
    struct batch batch; /* attention's last one */
    struct paper_graph {
        int n_tokens;
        bool persistent, mixed;
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
    *graph = (struct paper_graph){paper.batch.n_tokens, paper.in_second_way, paper.batch.n_alone == 0};
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
    const struct step_shape shape =
        step_shape_of(&(struct decode_graph){.n_tokens = recorded->n_tokens, .mixed = recorded->mixed});
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
    if (w->n_ranks > 1)
        return;
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
    if (w->n_ranks > 1)
        return;
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
    if (w->n_ranks > 1)
        return;
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

/* An empty plan, which a coordinator makes when all requests wait. */
static void check_empty_step(struct world *w)
{
    struct run r;
    struct model_config m = {0};
    struct step_result result = {.n_sampled = 99, .n_rows = 99};
    open_run(&r, w, &m, "tests/parity/fixtures/llama-14-2-gelu",
             (struct limits){.max_seqs = 1, .max_batch_tokens = 8, .max_len = 16, .max_logit_rows = 1, .n_blocks = 1});
    plan_reset(&r.plan, 5);
    go(&r, &result);
    tap_all(result.n_sampled == 0 && result.n_rows == 0 && result.step == 5, "something",
            "a step without sequences, %d ranks", w->n_ranks);
    close_run(&r);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    check_counter();
    static const char *const dir[] = {"tests/parity/fixtures/llama-14-2-gelu", "tests/parity/fixtures/gptj-3h",
                                      "tests/parity/fixtures/opt-350m-noprefix", "tests/parity/fixtures/bloom-8h"};
    for (size_t i = 0; i < sizeof dir / sizeof dir[0]; i++)
        check_allocations(&w, dir[i]);
    check_wide_embedding(&w);
    check_many_logits(&w);
    check_foretold(&w);
    check_empty_step(&w);
    check_recorded_later(&w);
    check_known_ways(&w);
    check_mixed_steps(&w);
    int status = tap_done();
    world_close(&w);
    return status;
}
