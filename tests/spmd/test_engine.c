/* tests/spmd/test_engine.c - rank/step/engine.c and step.c: a step allocates nothing, and the memory allocated at the
 * start suffices and was predicted. */
#include "tests/spmd/engine_run.h"
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
    int status = tap_done();
    world_close(&w);
    return status;
}
