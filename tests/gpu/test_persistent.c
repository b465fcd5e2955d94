/* tests/gpu/test_persistent.c - decode steps as one operation against the separate operations, on as many ranks as mpirun
 * gives: the same noise for weights, the same prompts, then the same tokens fed to both. Compared is every logit of every
 * step, at every batch size that the whole step has room for, with contexts from one block to several parts. */
#include "rank/fatal.h"
#include "rank/instance.h"
#include "rank/loop.h"
#include "tests/support/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SEQS  8
#define MAX_LEN 1104
#define N_STEPS 2 /* of each batch size */

static const int prompt_length[N_SEQS] = {5, 300, 1, 1040, 17, 130, 33, 600};

static const struct {
    const char *name, *json;
} models[] = {
    {"llama, 8/2 heads of 128, odd vocabulary",
     "{\"model_type\":\"llama\",\"vocab_size\":1003,\"hidden_size\":1024,\"intermediate_size\":2816,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}"},
    {"llama, 12/3 heads of 64, float16",
     "{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":768,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":12,\"num_key_value_heads\":3,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"float16\"}"},
    {"llama, wide, 64/8 heads of 128",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"intermediate_size\":9152,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}"},
    {"mistral, window of 100",
     "{\"model_type\":\"mistral\",\"vocab_size\":777,\"hidden_size\":1024,\"intermediate_size\":1800,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"sliding_window\":100,\"torch_dtype\":\"bfloat16\"}"},
    {"qwen2, 14/2 heads of 64, biases, tied head",
     "{\"model_type\":\"qwen2\",\"vocab_size\":2000,\"hidden_size\":896,\"intermediate_size\":4864,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\"}"},
    {"qwen3, norms of heads",
     "{\"model_type\":\"qwen3\",\"vocab_size\":900,\"hidden_size\":1024,\"intermediate_size\":1536,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"torch_dtype\":\"float16\"}"},
    {"gptj, heads of 256",
     "{\"model_type\":\"gptj\",\"vocab_size\":1200,\"n_positions\":2048,\"n_embd\":1024,\"n_layer\":3,\"n_head\":4,"
     "\"rotary_dim\":64,\"tie_word_embeddings\":false,\"torch_dtype\":\"float16\"}"},
    {"gpt_neox, parallel residual, two norms",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":8,\"rotary_pct\":0.25,\"use_parallel_residual\":true,\"torch_dtype\":\"float16\"}"},
    {"gpt_neox, sequential residual",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":4,\"rotary_pct\":0.5,\"use_parallel_residual\":false,\"torch_dtype\":\"bfloat16\"}"},
    {"opt, learned positions, biases everywhere",
     "{\"model_type\":\"opt\",\"vocab_size\":1500,\"hidden_size\":768,\"ffn_dim\":3072,\"num_hidden_layers\":3,"
     "\"num_attention_heads\":12,\"max_position_embeddings\":2048,\"word_embed_proj_dim\":768,\"torch_dtype\":"
     "\"float16\"}"},
    {"gpt2, vocabulary of 50257",
     "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":2048,\"n_embd\":768,\"n_layer\":2,\"n_head\":12,"
     "\"torch_dtype\":\"float16\"}"},
};

/* One engine and how far each of its sequences is. */
struct side {
    struct instance instance;
    int length[N_SEQS];
    float *logits; /* [N_SEQS, vocab] of the last step */
};

static void open_side(struct side *s, struct world *w, const char *json, enum step_choice step)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits = {N_SEQS, 512, MAX_LEN, N_SEQS, N_SEQS * (MAX_LEN / KV_BLOCK_TOKENS)},
                                   .kv_bytes = -1,
                                   .threads = -1,
                                   .progress = PROGRESS_NEVER,
                                   .device = DEVICE_CUDA,
                                   .step = step,
                                   .dummy = 1,
                                   .dummy_seed = 3};
    memset(s, 0, sizeof *s);
    if (w->rank == 0)
        (void)model_config_parse(&m, json, strlen(json), "config", &e);
    fatal_agree(w, &e);
    instance_open(&s->instance, w, &m, &c, &setup, &e);
    s->logits = calloc((size_t)N_SEQS * (size_t)s->instance.network.config.vocab, sizeof *s->logits);
}

static void close_side(struct side *s)
{
    free(s->logits);
    instance_close(&s->instance);
}

static void run_plan(struct side *s, struct plan *plan)
{
    struct step_result result;
    struct engine *g = &s->instance.engine;
    struct queue *q = &s->instance.q;
    size_t n = (size_t)s->instance.network.config.vocab, size = dtype_bytes(q->act);
    loop_share(plan, g->world, (int)n);
    engine_step(g, plan, &result);
    n *= (size_t)result.n_rows;
    unsigned char *in = malloc(n * size + 1);
    s->instance.ops->download(q, in, result.logits, n * size);
    s->instance.ops->wait(q);
    for (size_t i = 0; i < n; i++)
        s->logits[i] = dtype_load(in, q->act, i);
    free(in);
}

static int token_at(const struct side *s, int seq, int pos)
{
    return (seq * 131 + pos * 7919 + 11) % s->instance.network.config.vocab;
}

/* The next n tokens of a sequence. */
static void feed(struct side *s, struct plan *p, int seq, int n, bool sample)
{
    int pos = s->length[seq];
    p->seq[p->n_seqs++] = (struct plan_seq){seq, n, pos, n > 1 ? prompt_length[seq] : pos + 1, sample, sample};
    for (int i = 0; i < n; i++)
        p->token[p->n_tokens++] = token_at(s, seq, pos + i);
    s->length[seq] += n;
}

static void prefill(struct side *s, struct plan *plan)
{
    const struct limits *l = &s->instance.engine.limits;
    for (int seq = 0; seq < N_SEQS; seq++)
        while (s->length[seq] < prompt_length[seq]) {
            int left = prompt_length[seq] - s->length[seq], n = left < l->max_batch_tokens ? left : l->max_batch_tokens;
            plan_reset(plan, 0);
            if (s->length[seq] == 0) {
                plan->start[plan->n_starts++] =
                    (struct plan_start){.slot = seq, .sampling = {.top_p = 1, .repetition_penalty = 1}};
                for (int i = 0; i < limits_blocks_per_slot(l); i++) /* scattered: who ignores the table fails */
                    plan->block[plan->n_blocks++] = (struct plan_block){seq, i, l->n_blocks - 1 - (i * N_SEQS + seq)};
            }
            feed(s, plan, seq, n, false);
            run_plan(s, plan);
        }
}

/* Relative error of the worst row; infinite if anything is not a number. */
static double difference(const struct side *a, const struct side *b, int n_rows)
{
    size_t vocab = (size_t)a->instance.network.config.vocab;
    double worst = 0;
    for (int row = 0; row < n_rows; row++) {
        double error = 0, norm = 0;
        for (size_t i = 0; i < vocab; i++) {
            double x = a->logits[(size_t)row * vocab + i], y = b->logits[(size_t)row * vocab + i];
            if (!isfinite(x) || !isfinite(y))
                return INFINITY;
            error += (x - y) * (x - y);
            norm += x * x;
        }
        worst = fmax(worst, sqrt(error / norm));
    }
    return worst;
}

static void check_size(struct side *a, struct side *b, struct plan *pa, struct plan *pb, const char *name, int n)
{
    const struct engine *g = &b->instance.engine;
    double worst = 0, most = b->instance.q.act == DTYPE_F16 ? 4e-3 : 2e-2;
    char reason[100];
    for (int step = 0; step < N_STEPS; step++) {
        plan_reset(pa, 1);
        plan_reset(pb, 1);
        for (int i = 0; i < n; i++) {
            int seq = (i + n + step) % N_SEQS;
            feed(a, pa, seq, 1, true);
            feed(b, pb, seq, 1, true);
        }
        run_plan(a, pa);
        run_plan(b, pb);
        worst = fmax(worst, difference(a, b, n));
    }
    snprintf(reason, sizeof reason, "relative error is %.3g, allowed %.1g", worst, most);
    tap_all(worst <= most, reason, "%s: %d sequence%s on %d rank%s (%.1e)", name, n, n == 1 ? "" : "s",
            g->world->n_ranks, g->world->n_ranks == 1 ? "" : "s", worst);
    tap_all(g->decode[n - 1].n_tokens == n && g->decode[n - 1].persistent &&
                !a->instance.engine.decode[n - 1].persistent,
            "the other way was taken", "%s: %d as one operation", name, n);
}

static void check_model(struct world *w, const char *name, const char *json)
{
    struct side a, b;
    struct plan pa, pb;
    struct err e = {0};
    open_side(&a, w, json, STEP_SEPARATE);
    open_side(&b, w, json, STEP_PERSISTENT);
    if (plan_open(&pa, &a.instance.engine.limits, &e) != 0 || plan_open(&pb, &b.instance.engine.limits, &e) != 0)
        fatal(&e);
    prefill(&a, &pa);
    prefill(&b, &pb);
    int most = b.instance.engine.persistent.max_tokens;
    for (int n = 1; n <= most; n++)
        check_size(&a, &b, &pa, &pb, name, n);
    plan_close(&pa);
    plan_close(&pb);
    close_side(&a);
    close_side(&b);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    const char *part = argc > 1 ? argv[1] : "";
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strstr(models[i].name, part) != NULL)
            check_model(&w, models[i].name, models[i].json);
    int status = tap_done();
    world_close(&w);
    return status;
}
