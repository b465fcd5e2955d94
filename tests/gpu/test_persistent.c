/* tests/gpu/test_persistent.c - decode steps as one operation against the separate operations, on as many ranks as
 * mpirun gives: the same noise for weights, the same prompts, then the same tokens fed to both. Compared is every logit
 * of every step, at every batch size that the whole step has room for, with contexts from one block to several parts.
 * Then the operation alone, with arguments between guard bytes: what it writes, and what it leaves as it was. And steps
 * that come after days of others. argv: a part of the names of the models to run, and of batch sizes the largest. */
#include "kernels/cuda/cuda.h"
#include "tests/gpu/side.h"

#define N_SEQS  SIDE_MAX_SEQS
#define MAX_LEN 1104
#define N_STEPS 2 /* of each batch size */

static const int prompt_length[N_SEQS] = {5, 300, 1, 1040, 17, 130, 33, 600, 2, 64, 16, 257, 90, 1023, 31, 700};

/* Models of bf16 with RMSNorm whose columns are multiples of 64 on 1 and 2 ranks have the wide kernel, up to 16
 * sequences. */
static const struct {
    const char *name, *json;
    bool wide;
} models[] = {
    {"llama, 8/2 heads of 128, odd vocabulary",
     "{\"model_type\":\"llama\",\"vocab_size\":1003,\"hidden_size\":1024,\"intermediate_size\":2816,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}",
     true},
    {"llama, 12/3 heads of 64, float16",
     "{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":768,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":12,\"num_key_value_heads\":3,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"float16\"}",
     false},
    {"llama, wide, 64/8 heads of 128",
     "{\"model_type\":\"llama\",\"vocab_size\":32000,\"hidden_size\":8192,\"intermediate_size\":9152,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}",
     true},
    {"llama, 4/2 heads of 256, 22016 columns",
     "{\"model_type\":\"llama\",\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":22016,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":256,\"torch_dtype\":\"bfloat16\"}",
     true},
    {"llama, hidden 1000, 28672 columns",
     "{\"model_type\":\"llama\",\"vocab_size\":700,\"hidden_size\":1000,\"intermediate_size\":28672,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"head_dim\":64,\"torch_dtype\":\"float16\"}",
     false},
    {"mistral, window of 100",
     "{\"model_type\":\"mistral\",\"vocab_size\":777,\"hidden_size\":1024,\"intermediate_size\":1800,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"sliding_window\":100,\"torch_dtype\":\"bfloat16\"}",
     false},
    {"qwen2, 14/2 heads of 64, biases, tied head",
     "{\"model_type\":\"qwen2\",\"vocab_size\":2000,\"hidden_size\":896,\"intermediate_size\":4864,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":14,\"num_key_value_heads\":2,\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\"}",
     true},
    {"qwen3, norms of heads",
     "{\"model_type\":\"qwen3\",\"vocab_size\":900,\"hidden_size\":1024,\"intermediate_size\":1536,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"torch_dtype\":\"float16\"}",
     false},
    {"qwen3, norms of heads, bfloat16",
     "{\"model_type\":\"qwen3\",\"vocab_size\":900,\"hidden_size\":2048,\"intermediate_size\":6144,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"torch_dtype\":\"bfloat16\"}",
     true},
    {"gptj, heads of 256",
     "{\"model_type\":\"gptj\",\"vocab_size\":1200,\"n_positions\":2048,\"n_embd\":1024,\"n_layer\":3,\"n_head\":4,"
     "\"rotary_dim\":64,\"tie_word_embeddings\":false,\"torch_dtype\":\"float16\"}",
     false},
    {"gpt_neox, parallel residual, two norms",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":8,\"rotary_pct\":0.25,\"use_parallel_residual\":true,\"torch_dtype\":\"float16\"}",
     false},
    {"gpt_neox, sequential residual",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":4,\"rotary_pct\":0.5,\"use_parallel_residual\":false,\"torch_dtype\":\"bfloat16\"}",
     false},
    {"opt, learned positions, biases everywhere",
     "{\"model_type\":\"opt\",\"vocab_size\":1500,\"hidden_size\":768,\"ffn_dim\":3072,\"num_hidden_layers\":3,"
     "\"num_attention_heads\":12,\"max_position_embeddings\":2048,\"word_embed_proj_dim\":768,\"torch_dtype\":"
     "\"float16\"}",
     false},
    {"opt, hidden 5120",
     "{\"model_type\":\"opt\",\"vocab_size\":600,\"hidden_size\":5120,\"ffn_dim\":4096,\"num_hidden_layers\":1,"
     "\"num_attention_heads\":40,\"max_position_embeddings\":2048,\"word_embed_proj_dim\":5120,\"torch_dtype\":"
     "\"float16\"}",
     false},
    {"gpt2, vocabulary of 50257",
     "{\"model_type\":\"gpt2\",\"vocab_size\":50257,\"n_positions\":2048,\"n_embd\":768,\"n_layer\":2,\"n_head\":12,"
     "\"torch_dtype\":\"float16\"}",
     false},
};

/* Mixtures of experts. A router chooses otherwise out of another rounding of its input, where experts are nearly alike;
 * what follows differs then, and rightly. `choices`: rows of a hundred that may; where all experts are
 * chosen none may. Sizes of experts are multiples of 64 on 1 to 4 ranks. */
static const struct {
    const char *name, *json;
    int choices;
} mixtures[] = {
    {"qwen3_moe, all of 6 experts, bfloat16",
     "{\"model_type\":\"qwen3_moe\",\"vocab_size\":900,\"hidden_size\":512,\"intermediate_size\":1024,\"moe_"
     "intermediate_size\":768,\"num_experts\":6,\"num_experts_per_tok\":6,\"norm_topk_prob\":true,\"num_hidden_"
     "layers\":"
     "3,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":64,\"torch_dtype\":\"bfloat16\"}",
     0},
    {"mixtral, 2 of 4 experts, bfloat16",
     "{\"model_type\":\"mixtral\",\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":1536,\"num_local_"
     "experts\":4,\"num_experts_per_tok\":2,\"num_hidden_layers\":2,\"num_attention_heads\":8,\"num_key_value_heads\":"
     "2,"
     "\"torch_dtype\":\"bfloat16\"}",
     10},
    {"qwen3_moe, 8 of 128 experts, bfloat16",
     "{\"model_type\":\"qwen3_moe\",\"vocab_size\":1500,\"hidden_size\":2048,\"intermediate_size\":6144,\"moe_"
     "intermediate_size\":768,\"num_experts\":128,\"num_experts_per_tok\":8,\"norm_topk_prob\":true,\"num_hidden_"
     "layers\":2,\"num_attention_heads\":32,\"num_key_value_heads\":4,\"head_dim\":128,\"torch_dtype\":\"bfloat16\"}",
     30},
};

/* Rows that were compared, and those of which a router seems to have chosen otherwise. */
struct tally {
    int rows, others, allowed; /* allowed: of a hundred */
};

#define ANOTHER_CHOICE 1.0 /* relative error that another expert of many makes at most */

#define CODED(family, hidden, ffn, heads, type)                                                                    \
    "{\"model_type\":\"" family "\",\"vocab_size\":640,\"hidden_size\":" hidden ",\"intermediate_size\":" ffn      \
    ",\"num_hidden_layers\":2,\"num_attention_heads\":" heads ",\"num_key_value_heads\":4,\"torch_dtype\":\"" type \
    "\"}"

/* Models whose weights are codes, in formats as bench has them. */
static const struct {
    const char *name, *json, *quantization;
} coded_models[] = {
    {"llama, bfloat16, FP8, a scale a row", CODED("llama", "1024", "4864", "8", "bfloat16"), "fp8"},
    {"llama, bfloat16, FP8 in blocks", CODED("llama", "2048", "6144", "16", "bfloat16"), "fp8-block"},
    {"llama, float16, FP8 in blocks", CODED("llama", "1024", "3072", "8", "float16"), "fp8-block"},
    {"llama, bfloat16, INT8", CODED("llama", "2048", "6144", "16", "bfloat16"), "int8"},
    {"llama, float16, INT8", CODED("llama", "1024", "4864", "8", "float16"), "int8"},
    {"llama, bfloat16, INT4", CODED("llama", "2048", "6144", "16", "bfloat16"), "int4"},
    {"llama, float16, INT4", CODED("llama", "4096", "14336", "32", "float16"), "int4"},
    {"llama, bfloat16, INT4 with zeros", CODED("llama", "4096", "8192", "32", "bfloat16"), "int4-zeros"},
    {"llama, float16, INT4 with zeros", CODED("llama", "4096", "8192", "32", "float16"), "int4-zeros"},
    {"gpt_neox, INT4, sequential",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":5120,\"intermediate_size\":4096,\"num_hidden_"
     "layers\":1,"
     "\"num_attention_heads\":40,\"use_parallel_residual\":false,\"torch_dtype\":\"bfloat16\"}",
     "int4"},
};

/* Models that keep keys and values as codes; wide: more than eight sequences are one operation, too. */
static const struct {
    const char *name, *json, *quantization;
    bool wide;
} kv_models[] = {
    {"llama, bfloat16, keys and values in FP8", CODED("llama", "1024", "4096", "8", "bfloat16"), NULL, true},
    {"llama, float16, keys and values in FP8, heads of 64", CODED("llama", "1024", "4096", "16", "float16"), NULL,
     false},
    {"llama, bfloat16, FP8, keys and values in FP8", CODED("llama", "2048", "6144", "16", "bfloat16"), "fp8", false},
};

/* Each KV head's scales differ. */
static void vary_kv_scales(struct side *s)
{
    struct network *n = &s->instance.network;
    int count = 2 * n->config.n_layers * range_length(n->shard.kv_heads);
    float *scale = malloc((size_t)count * sizeof *scale);
    size_t bytes = (size_t)count * sizeof *scale;
    for (int i = 0; i < count; i++)
        scale[i] = 0.02f + 0.003f * (float)(i % 7);
    s->instance.ops->upload(&s->instance.q, n->kv_scales, bytes, scale, bytes, bytes, 1);
    s->instance.ops->wait(&s->instance.q);
    free(scale);
}

/* Scales and zeros that differ from group to group: noise has one for all. */
static void vary_groups(struct side *s, const struct weight *w, uint32_t seed)
{
    size_t at = code_scales_at(&w->form, w->rows, w->cols), bytes = code_bytes(&w->form, w->rows, w->cols) - at;
    size_t zeros = code_zeros_at(&w->form, w->rows, w->cols) - at;
    int n = w->rows * code_groups(&w->form, w->cols);
    unsigned char *data = malloc(bytes), *there = (unsigned char *)w->data + at;
    s->instance.ops->download(&s->instance.q, data, there, bytes);
    s->instance.ops->wait(&s->instance.q);
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)data)[i] *= 0.75f + (float)(seed >> 8) / (1 << 25);
        if (w->form.zeros)
            data[zeros + (size_t)i] = (unsigned char)(5 + (seed >> 8) % 7);
    }
    s->instance.ops->upload(&s->instance.q, there, bytes, data, bytes, bytes, 1);
    s->instance.ops->wait(&s->instance.q);
    free(data);
}

static void open_dummy(struct side *s, struct world *w, const char *json, const char *quantization, bool kv_fp8,
                       enum step_choice step)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = side_setup(N_SEQS, MAX_LEN, step);
    setup.dummy = 1;
    setup.dummy_seed = 3;
    if (w->rank == 0)
        (void)(model_config_parse(&m, json, strlen(json), "config", &e) == 0 && quantization != NULL &&
               quantization_choose(&m.quantization, quantization, &e));
    m.kv_fp8 = kv_fp8;
    fatal_agree(w, &e);
    side_open(s, w, &m, &c, &setup);
    if (kv_fp8)
        vary_kv_scales(s);
    for (int i = 0; i < s->instance.network.map.n_slots; i++)
        if (weight_is_quantised(&s->instance.network.weight[i]))
            vary_groups(s, &s->instance.network.weight[i], (uint32_t)i);
}

/* The next n tokens of a sequence join the plan. */
static void feed(struct side *s, int seq, int n, bool decode)
{
    int32_t token[MAX_LEN];
    for (int i = 0; i < n; i++)
        token[i] = (seq * 131 + (s->length[seq] + i) * 7919 + 11) % s->instance.network.config.vocab;
    side_feed(s, seq, token, n, prompt_length[seq], decode, decode);
}

static void prefill(struct side *s)
{
    int most = s->instance.engine.limits.max_batch_tokens;
    for (int seq = 0; seq < N_SEQS; seq++)
        while (s->length[seq] < prompt_length[seq]) {
            int left = prompt_length[seq] - s->length[seq];
            feed(s, seq, left < most ? left : most, false);
            side_run(s);
        }
}

#define SPREAD 8 /* of an element's error, in those of its row: rounding does not go so far, a wrong element does */

/* Relative error of a row, or of its worst element in a SPREADth, if that is more; infinite if anything is not a number
 * or the row is zeros. */
static double row_difference(const struct side *a, const struct side *b, int row)
{
    size_t vocab = (size_t)a->instance.network.config.vocab;
    double error = 0, norm = 0, most = 0;
    for (size_t i = 0; i < vocab; i++) {
        double x = a->logits[(size_t)row * vocab + i], y = b->logits[(size_t)row * vocab + i];
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        error += (x - y) * (x - y);
        norm += x * x;
        most = fmax(most, fabs(x - y));
    }
    if (!(norm > 0)) /* nobody wrote it */
        return INFINITY;
    return fmax(sqrt(error / norm), most / sqrt(norm / (double)vocab) / SPREAD);
}

/* The worst row's. Rows that are further off than `most` may be another choice. */
static double difference(const struct side *a, const struct side *b, int n_rows, double most, struct tally *t)
{
    double worst = 0;
    for (int row = 0; row < n_rows; row++) {
        double d = row_difference(a, b, row);
        bool other = t->allowed > 0 && d > most && d <= ANOTHER_CHOICE;
        t->rows++;
        t->others += other;
        worst = fmax(worst, other ? 0 : d);
    }
    return worst;
}

/* when: of the name. */
static void check_size(struct side *a, struct side *b, const char *name, int n, const char *when, struct tally *t)
{
    const struct engine *g = &b->instance.engine;
    double worst = 0, most = b->instance.q.act == DTYPE_F16 ? 4e-3 : 2e-2;
    if (g->world->n_ranks > 2) /* the separate operations round a sum once for every rank that joins it */
        most *= 1.25;
    char reason[100];
    for (int step = 0; step < N_STEPS; step++) {
        for (int i = 0; i < n; i++) {
            int seq = (i + n + step) % N_SEQS;
            feed(a, seq, 1, true);
            feed(b, seq, 1, true);
        }
        side_run(a);
        side_run(b);
        worst = fmax(worst, difference(a, b, n, most, t));
    }
    snprintf(reason, sizeof reason, "relative error is %.3g, allowed %.1g", worst, most);
    tap_all(worst <= most, reason, "%s: %d sequence%s on %d rank%s%s (%.1e)", name, n, n == 1 ? "" : "s",
            g->world->n_ranks, g->world->n_ranks == 1 ? "" : "s", when, worst);
    tap_all(graphs_find(g, n, DECODE_WHOLE)->persistent &&
                !graphs_find(&a->instance.engine, n, DECODE_WHOLE)->persistent,
            "the other way was taken", "%s: %d as one operation%s", name, n, when);
}

#define GUARD_BYTES 256
#define GUARD_BYTE  0xD7
#define POISON      0x7FA5 /* of a logit: a NaN in both types */

/* An array on the device between guard bytes, and what it was. */
struct fenced {
    unsigned char *dev, *was;
    size_t bytes;
};

static struct fenced fence(struct side *s, const void *data, size_t bytes)
{
    size_t all = bytes + 2 * (size_t)GUARD_BYTES;
    struct fenced f = {s->instance.ops->alloc(&s->instance.q, all), malloc(all), bytes};
    memset(f.was, GUARD_BYTE, all);
    memcpy(f.was + GUARD_BYTES, data, bytes);
    s->instance.ops->upload(&s->instance.q, f.dev, all, f.was, all, all, 1);
    s->instance.ops->wait(&s->instance.q);
    return f;
}

/* Bytes that are not what they were, the guards' first; *now: what they are. */
static size_t unfence(struct side *s, struct fenced *f, unsigned char *now)
{
    size_t all = f->bytes + 2 * (size_t)GUARD_BYTES, changed = 0;
    unsigned char *is = malloc(all);
    s->instance.ops->download(&s->instance.q, is, f->dev, all);
    s->instance.ops->wait(&s->instance.q);
    for (size_t i = 0; i < all; i++)
        if (now == NULL || i < GUARD_BYTES || i >= GUARD_BYTES + f->bytes)
            changed += is[i] != f->was[i];
    if (now != NULL)
        memcpy(now, is + GUARD_BYTES, f->bytes);
    s->instance.ops->free(&s->instance.q, f->dev);
    free(f->was);
    free(is);
    return changed;
}

static void *inside(const struct fenced *f)
{
    return f->dev + GUARD_BYTES;
}

/* Keys or values of a layer on this rank, as they are. */
static unsigned char *read_cache(struct side *s, const void *cache, size_t bytes)
{
    unsigned char *copy = malloc(bytes + 1);
    s->instance.ops->download(&s->instance.q, copy, cache, bytes);
    s->instance.ops->wait(&s->instance.q);
    return copy;
}

static size_t cache_elements(const struct side *s)
{
    struct heads h = network_heads(&s->instance.network, 0);
    return (size_t)s->instance.engine.limits.n_blocks * KV_BLOCK_TOKENS * (size_t)(h.n_kv_heads * h.head_dim);
}

/* All caches of the rank: [2 n_layers]. */
static unsigned char **read_caches(struct side *s)
{
    const struct network *n = &s->instance.network;
    unsigned char **copy = calloc(2 * (size_t)n->config.n_layers, sizeof *copy);
    for (int i = 0; i < 2 * n->config.n_layers; i++)
        copy[i] = read_cache(s, i % 2 == 0 ? n->k_cache[i / 2] : n->v_cache[i / 2],
                             cache_elements(s) * side_element_bytes(s));
    return copy;
}

/* Counts wrong elements of the cache after a step of these sequences, each at its next position: changed elements
 * elsewhere, and unwritten elements there. */
static size_t wrong_in_cache(const struct side *s, const unsigned char *was, const unsigned char *is, const int *seq,
                             int n)
{
    static const unsigned char poison[2] = {SIDE_POISON, SIDE_POISON};
    struct heads h = network_heads(&s->instance.network, 0);
    size_t row = (size_t)h.head_dim, all = cache_elements(s), size = side_element_bytes(s), wrong = 0;
    char *mine = calloc(all / row + 1, 1);
    for (int i = 0; i < n; i++)
        for (int kv = 0; kv < h.n_kv_heads; kv++) {
            int pos = s->length[seq[i]], block = side_block(s, seq[i], pos / KV_BLOCK_TOKENS);
            mine[(size_t)(block * h.n_kv_heads + kv) * KV_BLOCK_TOKENS + (size_t)(pos % KV_BLOCK_TOKENS)] = 1;
        }
    for (size_t i = 0; i < all; i++)
        wrong +=
            mine[i / row] ? memcmp(is + i * size, poison, size) == 0 : memcmp(is + i * size, was + i * size, size) != 0;
    free(mine);
    return wrong;
}

static size_t wrong_in_caches(struct side *s, unsigned char **was, const int *seq, int n)
{
    unsigned char **is = read_caches(s);
    size_t wrong = 0;
    for (int i = 0; i < 2 * s->instance.network.config.n_layers; i++) {
        wrong += wrong_in_cache(s, was[i], is[i], seq, n);
        free(was[i]);
        free(is[i]);
    }
    free(was);
    free(is);
    return wrong;
}

/* The arguments of a step of the operation alone. */
struct alone {
    struct fenced token, slot, pos, table, angles, logits;
    int seq[N_SEQS];
};

static void make_alone(struct side *s, struct alone *x, int n)
{
    const struct engine *g = &s->instance.engine;
    const struct limits *l = &g->limits;
    int blocks = limits_blocks_per_slot(l);
    int32_t token[N_SEQS], pos[N_SEQS], *table = calloc((size_t)(l->max_seqs * blocks), sizeof *table);
    size_t n_logits = (size_t)n * (size_t)range_length(s->instance.network.shard.vocab);
    uint16_t *poison = calloc(n_logits + 1, sizeof *poison);
    float *zero = calloc((size_t)n * 2 * ROPE_MAX_PAIRS, sizeof *zero);
    for (int i = 0; i < n; i++) {
        x->seq[i] = (i * 3 + n) % N_SEQS;
        token[i] = (i * 37 + 5) % s->instance.network.config.vocab;
        pos[i] = s->length[x->seq[i]];
    }
    for (int i = 0; i < l->max_seqs * blocks; i++)
        table[i] = side_block(s, i / blocks, i % blocks);
    for (size_t i = 0; i < n_logits; i++)
        poison[i] = POISON;
    x->token = fence(s, token, (size_t)n * sizeof *token);
    x->slot = fence(s, x->seq, (size_t)n * sizeof *x->seq);
    x->pos = fence(s, pos, (size_t)n * sizeof *pos);
    x->table = fence(s, table, (size_t)(l->max_seqs * blocks) * sizeof *table);
    x->angles = fence(s, zero, (size_t)n * 2 * ROPE_MAX_PAIRS * sizeof *zero);
    x->logits = fence(s, poison, n_logits * sizeof *poison);
    free(table);
    free(poison);
    free(zero);
}

static void run_alone(struct side *s, const struct alone *x, int n)
{
    struct engine *g = &s->instance.engine;
    const struct model_config *m = &s->instance.network.config;
    struct batch b = {.n_tokens = n,
                      .token = inside(&x->token),
                      .slot = inside(&x->slot),
                      .pos = inside(&x->pos),
                      .rope_len = inside(&x->pos), /* no model here whose rotation depends on it */
                      .block_table = inside(&x->table),
                      .blocks_per_slot = limits_blocks_per_slot(&g->limits)};
    if (m->position == POSITION_ROPE)
        g->ops->rope_table(g->q, inside(&x->angles), &m->rope, b.pos, b.rope_len, n);
    g->ops->persistent->run(g->q, g->persistent.step, inside(&x->logits), &b, inside(&x->angles));
    g->ops->wait(g->q);
    if (g->q->err.code != ERR_NONE)
        fatal(&g->q->err);
}

/* The operation writes this rank's logits, all of them, and of the cache the rows of its tokens, and nothing else. */
static void check_memory(struct side *s, const char *name, int n)
{
    struct alone x = {0};
    char reason[160];
    int n_ranks = s->instance.engine.world->n_ranks;
    make_alone(s, &x, n);
    unsigned char **was = read_caches(s);
    run_alone(s, &x, n);
    size_t in_cache = wrong_in_caches(s, was, x.seq, n), n_logits = x.logits.bytes / 2, unwritten = 0;
    uint16_t *logits = malloc(x.logits.bytes + 1);
    float *angles = malloc(x.angles.bytes);
    size_t beside = unfence(s, &x.logits, (unsigned char *)logits) + unfence(s, &x.angles, (unsigned char *)angles);
    size_t inputs =
        unfence(s, &x.token, NULL) + unfence(s, &x.slot, NULL) + unfence(s, &x.pos, NULL) + unfence(s, &x.table, NULL);
    for (size_t i = 0; i < n_logits; i++)
        unwritten += logits[i] == POISON;
    snprintf(reason, sizeof reason,
             "wrong: %zu elements of the cache, %zu logits unwritten, %zu guards, %zu of the inputs", in_cache,
             unwritten, beside, inputs);
    tap_all(in_cache + unwritten + beside + inputs == 0, reason, "%s: memory of %d on %d rank%s", name, n, n_ranks,
            n_ranks == 1 ? "" : "s");
    free(logits);
    free(angles);
}

/* All blocks go on as if this were their step number `step`. */
static void count_from(struct side *s, uint32_t step)
{
    struct engine *g = &s->instance.engine;
    int n_blocks;
    uint32_t *count = cuda_persistent_steps(g->q, g->persistent.step, &n_blocks);
    for (int i = 0; i < n_blocks; i++)
        g->ops->upload(g->q, count + i, sizeof step, &step, sizeof step, sizeof step, 1);
    g->ops->wait(g->q);
}

/* A step has n_layers + 1 epochs of 32 bits. What a step of `most` sequences has left on the device is old for the next
 * one of them, however many of one sequence lie between: here three quarters of all epochs, a difference that is
 * positive as an int whatever ran before. Then steps at whose epochs counting begins anew. */
static void check_late(struct side *a, struct side *b, const char *name, int most, struct tally *t)
{
    uint64_t epochs = (uint64_t)a->instance.network.config.n_layers + 1;
    count_from(b, (uint32_t)((UINT64_C(3) << 30) / epochs));
    check_size(a, b, name, most, ", three quarters of all epochs later", t);
    count_from(b, (uint32_t)((UINT64_C(1) << 32) / epochs) - 1);
    check_size(a, b, name, most, ", the last epochs", t);
    check_size(a, b, name, 1, ", the first epochs again", t);
}

static void check_model(struct world *w, const char *name, const char *json, bool wide, const char *quantization,
                        bool kv_fp8, struct tally *t, int most)
{
    struct side a, b;
    open_dummy(&a, w, json, quantization, kv_fp8, STEP_SEPARATE);
    open_dummy(&b, w, json, quantization, kv_fp8, STEP_PERSISTENT);
    prefill(&a);
    prefill(&b);
    int has = b.instance.engine.persistent.max_tokens;
    if (w->n_ranks <= 2)
        tap_all(wide == (has == PERSISTENT_MAX_TOKENS), "the other kernel", "%s: up to %d sequences", name, has);
    for (int n = 1; n <= has && n <= most; n++) {
        check_size(&a, &b, name, n, "", t);
        check_memory(&b, name, n);
    }
    check_late(&a, &b, name, has < most ? has : most, t);
    side_close(&a);
    side_close(&b);
}

static void check_mixture(struct world *w, const char *name, const char *json, int choices, int most)
{
    struct tally t = {.allowed = choices};
    char reason[100];
    check_model(w, name, json, false, NULL, false, &t, most);
    snprintf(reason, sizeof reason, "%d of %d, allowed %d %%", t.others, t.rows, t.allowed);
    tap_all(100 * t.others <= t.allowed * t.rows, reason, "%s: %d of %d rows with another choice", name, t.others,
            t.rows);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    const char *part = argc > 1 ? argv[1] : "";
    int most = argc > 2 ? atoi(argv[2]) : PERSISTENT_MAX_TOKENS;
    struct tally none = {0};
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strstr(models[i].name, part) != NULL)
            check_model(&w, models[i].name, models[i].json, models[i].wide, NULL, false, &none, most);
    for (size_t i = 0; i < sizeof coded_models / sizeof coded_models[0]; i++)
        if (strstr(coded_models[i].name, part) != NULL)
            check_model(&w, coded_models[i].name, coded_models[i].json, false, coded_models[i].quantization, false,
                        &none, most);
    for (size_t i = 0; i < sizeof kv_models / sizeof kv_models[0]; i++)
        if (strstr(kv_models[i].name, part) != NULL)
            check_model(&w, kv_models[i].name, kv_models[i].json, kv_models[i].wide, kv_models[i].quantization, true,
                        &none, most);
    for (size_t i = 0; i < sizeof mixtures / sizeof mixtures[0]; i++)
        if (strstr(mixtures[i].name, part) != NULL)
            check_mixture(&w, mixtures[i].name, mixtures[i].json, mixtures[i].choices, most);
    int status = tap_done();
    world_close(&w);
    return status;
}
