/* tests/gpu/test_persistent_drafts.c - several tokens of a sequence in one persistent step, as drafts are verified,
 * against the separate operations, on as many ranks as mpirun gives: every logit of every token, within blocks of the
 * cache and across them, in contexts of one part and of several; steps that sample only from the last tokens; and the
 * activations of layers that a draft head reads. argv: a part of the names of the models to run. */
#include "base/codes.h"
#include "partition/drafting.h"
#include "rank/model/taps.h"
#include "tests/gpu/side.h"

#define N_SEQS  6
#define MAX_LEN 1200

static const int prompt_length[N_SEQS] = {5, 300, 1, 1020, 14, 130};

/* head: a draft head of EAGLE-3; NULL: none. kv_fp8: keys and values are codes. */
static const struct subject {
    const char *name, *json, *head;
    bool kv_fp8;
} models[] = {
    {"llama, 8/2 heads of 128, bfloat16",
     "{\"model_type\":\"llama\",\"vocab_size\":1003,\"hidden_size\":1024,\"intermediate_size\":2816,\"num_hidden_"
     "layers\":5,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}",
     "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"model_type\":\"llama\",\"draft_vocab_size\":400,\"vocab_size\":"
     "1003,\"hidden_size\":1024,\"intermediate_size\":512,\"num_hidden_layers\":1,\"num_attention_heads\":8,\"num_key_"
     "value_heads\":2,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}",
     false},
    {"llama, 12/3 heads of 64, float16",
     "{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":768,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":12,\"num_key_value_heads\":3,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"float16\"}",
     "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"model_type\":\"llama\",\"draft_vocab_size\":512,\"vocab_size\":"
     "512,\"hidden_size\":768,\"intermediate_size\":512,\"num_hidden_layers\":1,\"num_attention_heads\":12,\"num_key_"
     "value_heads\":3,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"float16\",\"eagle_config\":{\"eagle_aux_hidden_state_"
     "layer_ids\":[0,0,1]}}",
     false},
    {"llama, 4/2 heads of 256",
     "{\"model_type\":\"llama\",\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":4096,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":256,\"torch_dtype\":\"bfloat16\"}",
     NULL, false},
    {"mistral, window of 100",
     "{\"model_type\":\"mistral\",\"vocab_size\":777,\"hidden_size\":1024,\"intermediate_size\":1800,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"sliding_window\":100,\"torch_dtype\":\"bfloat16\"}",
     NULL, false},
    {"qwen3, norms of heads",
     "{\"model_type\":\"qwen3\",\"vocab_size\":900,\"hidden_size\":1024,\"intermediate_size\":1536,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"torch_dtype\":\"float16\"}",
     NULL, false},
    {"gpt_neox, parallel residual",
     "{\"model_type\":\"gpt_neox\",\"vocab_size\":1000,\"hidden_size\":512,\"intermediate_size\":2048,\"num_hidden_"
     "layers\":3,"
     "\"num_attention_heads\":8,\"rotary_pct\":0.25,\"use_parallel_residual\":true,\"torch_dtype\":\"float16\"}",
     NULL, false},
    {"llama, 8/2 heads of 128, keys and values in FP8",
     "{\"model_type\":\"llama\",\"vocab_size\":1003,\"hidden_size\":1024,\"intermediate_size\":2816,\"num_hidden_"
     "layers\":2,"
     "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"}",
     NULL, true},
};

/* Tokens of each sequence in a step: 1 to 16 in all. */
static const int steps[][N_SEQS] = {{5, 0, 0, 0, 0, 0},  {0, 0, 0, 5, 0, 0}, {2, 3, 0, 0, 0, 0},  {0, 0, 1, 0, 3, 0},
                                    {0, 1, 0, 0, 0, 2},  {1, 1, 2, 1, 1, 1}, {0, 0, 0, 8, 0, 0},  {0, 8, 0, 0, 0, 0},
                                    {3, 3, 0, 3, 0, 3},  {0, 0, 4, 0, 4, 4}, {0, 0, 0, 16, 0, 0}, {1, 2, 3, 4, 5, 1},
                                    {0, 0, 0, 0, 16, 0}, {1, 0, 0, 0, 0, 0}, {0, 0, 0, 2, 0, 0}};

/* A side and the head beside it, if the model has one. */
struct pair {
    struct side side;
    struct draft_model draft;
};

static void open_pair(struct pair *p, struct world *w, const struct subject *what, enum step_choice step)
{
    const char *json = what->json, *head = what->head;
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = side_setup(N_SEQS, MAX_LEN, step);
    struct side *s = &p->side;
    memset(p, 0, sizeof *p);
    setup.dummy = 1;
    setup.dummy_seed = 3;
    setup.limits.max_drafts = PERSISTENT_MAX_TOKENS;
    setup.limits.draft_len = head != NULL ? MAX_LEN : 0;
    setup.limits.draft_skip = head != NULL;
    if (w->rank == 0 && model_config_parse(&m, json, strlen(json), "config", &e) == 0 && head != NULL)
        (void)(model_config_parse(&p->draft.config, head, strlen(head), "head", &e) == 0 &&
               model_draft_for(&p->draft.config, &m, "head", &e) == 0);
    m.kv_fp8 = what->kv_fp8;
    fatal_agree(w, &e);
    if (head == NULL) {
        side_open(s, w, &m, &c, &setup);
        if (what->kv_fp8)
            side_vary_kv_scales(s);
        return;
    }
    instance_open_drafted(&s->instance, &p->draft, w, &m, &c, &setup, &e);
    const struct limits *l = &s->instance.engine.limits;
    s->logits = calloc((size_t)l->max_logit_rows * (size_t)s->instance.network.config.vocab, sizeof *s->logits);
    if (s->logits == NULL || plan_open(&s->plan, l, &e) != 0)
        fatal(&e);
    plan_reset(&s->plan, 0);
}

static void close_pair(struct pair *p, bool head)
{
    if (head)
        instance_close(&p->draft.instance);
    side_close(&p->side);
}

/* Adds the next n tokens of a sequence to the plan. */
static void feed(struct side *s, int seq, int n, int n_logits, int sample)
{
    int32_t token[MAX_LEN];
    for (int i = 0; i < n; i++)
        token[i] = (seq * 131 + (s->length[seq] + i) * 7919 + 11) % s->instance.network.config.vocab;
    side_feed(s, seq, token, n, prompt_length[seq], n_logits, sample);
}

static void prefill(struct side *s)
{
    int most = s->instance.engine.limits.max_batch_tokens;
    for (int seq = 0; seq < N_SEQS; seq++)
        while (s->length[seq] < prompt_length[seq]) {
            int left = prompt_length[seq] - s->length[seq];
            feed(s, seq, left < most ? left : most, 0, 0);
            side_run(s);
        }
}

/* Returns the relative error of the worst row that the head reads at the n tokens of the last step; 0 without a
 * head. */
static double taps_difference(const struct side *a, const struct side *b, int n)
{
    const struct taps *t[2] = {a->instance.network.taps, b->instance.network.taps};
    struct queue *q = (struct queue *)&a->instance.q;
    if (t[0] == NULL)
        return 0;
    int columns = t[0]->head->config.drafting.n_taps * t[0]->head->config.drafting.tapped;
    size_t bytes = (size_t)n * (size_t)columns * dtype_bytes(q->act);
    unsigned char *in[2] = {malloc(bytes), malloc(bytes)};
    double worst = 0;
    for (int i = 0; i < 2; i++) {
        a->instance.ops->download(q, in[i], t[i]->tapped, bytes);
        a->instance.ops->wait(q);
    }
    for (int row = 0; row < n; row++) {
        double error = 0, norm = 0;
        for (size_t i = (size_t)row * (size_t)columns; i < (size_t)(row + 1) * (size_t)columns; i++) {
            double x = dtype_load(in[0], q->act, i), y = dtype_load(in[1], q->act, i);
            error += (x - y) * (x - y);
            norm += x * x;
        }
        worst = norm > 0 && isfinite(error) ? fmax(worst, sqrt(error / norm)) : INFINITY;
    }
    free(in[0]);
    free(in[1]);
    return worst;
}

static double allowed(const struct side *s)
{
    double most = s->instance.q.act == DTYPE_F16 ? 4e-3 : 2e-2;
    return s->instance.engine.world->n_ranks > 2 ? 1.25 * most : most; /* as in test_persistent.c */
}

/* The number of compared rows, and the sum of their errors. */
struct tally {
    int rows;
    double errors;
};

static void check_step(struct side *a, struct side *b, const char *name, const int *n_tokens, struct tally *t)
{
    char reason[160];
    int n = 0, n_seqs = 0;
    double worst = 0, most = allowed(b) * (b->instance.network.config.kv_fp8 ? SIDE_CODES : 1);
    for (int seq = 0; seq < N_SEQS; seq++)
        n += n_tokens[seq];
    if (n > b->instance.engine.persistent.max_tokens)
        return;
    for (int seq = 0; seq < N_SEQS; seq++)
        if (n_tokens[seq] > 0) {
            n_seqs++;
            feed(a, seq, n_tokens[seq], n_tokens[seq], n_tokens[seq]);
            feed(b, seq, n_tokens[seq], n_tokens[seq], n_tokens[seq]);
        }
    side_run(a);
    side_run(b);
    for (int row = 0; row < n; row++) {
        double d = side_difference(a, b, row);
        worst = fmax(worst, d);
        t->errors += d;
    }
    t->rows += n;
    double taps = taps_difference(a, b, n);
    bool ways = graphs_find(&b->instance.engine, n, DECODE_WHOLE)->persistent &&
                !graphs_find(&a->instance.engine, n, DECODE_WHOLE)->persistent;
    snprintf(reason, sizeof reason, "relative error is %.3g, of the states %.3g, allowed %.1g%s", worst, taps, most,
             ways ? "" : "; the other way was taken");
    tap_all(worst <= most && taps <= most && ways && a->n_rows == n && b->n_rows == n, reason,
            "%s: %d tokens of %d sequence%s on %d rank%s (%.1e, states %.1e)", name, n, n_seqs, n_seqs == 1 ? "" : "s",
            b->instance.engine.world->n_ranks, b->instance.engine.world->n_ranks == 1 ? "" : "s", worst, taps);
}

/* Samples from the last of each sequence's tokens: the results are in the plan's order, and the next step finds all
 * keys. */
static void check_last(struct side *a, struct side *b, const char *name)
{
    static const int order[] = {4, 1, 3}, n_tokens[] = {2, 1, 3};
    struct step_result result[2];
    struct side *side[2] = {a, b};
    struct sampled sampled[2][3];
    bool right = true;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            feed(side[i], order[k], n_tokens[k], 1, 1);
        loop_share(&side[i]->plan, side[i]->instance.engine.world, side[i]->instance.network.config.vocab);
        engine_step(&side[i]->instance.engine, &side[i]->plan, &result[i]);
        plan_reset(&side[i]->plan, 0);
        right = right && result[i].n_sampled == 3 && (result[i].logits == NULL) == (i == 1);
        memcpy(sampled[i], result[i].sampled, sizeof sampled[i]);
    }
    double worst = 0;
    for (int k = 0; right && k < 3; k++) {
        double apart = fabs((double)sampled[0][k].logprob - (double)sampled[1][k].logprob);
        right = sampled[0][k].slot == order[k] && sampled[1][k].slot == order[k] && apart < 0.05; /* false for NaN */
        worst = fmax(worst, apart);
    }
    tap_all(right, "other tokens, or rows that were not spread",
            "%s: the last of several tokens is sampled from (%.1e)", name, worst);
}

/* Returns the value of a code of E4M3; *step: the distance to the next one. */
static double stored_value(unsigned char code, double *step)
{
    int size = code & 127, exponent = size >> 3;
    *step = ldexp(1, (exponent > 0 ? exponent : 1) - 10);
    return size == 127 ? NAN : (double)code_value(CODES_E4M3, code);
}

/* Counts codes that differ; *far: by more than a step and a CODE_SPREADth of their mean size. */
#define CODE_SPREAD 32
static size_t count_others(const unsigned char *a, const unsigned char *b, size_t n, size_t *far)
{
    double squares = 0, step[2];
    size_t numbers = 0, others = 0;
    for (size_t i = 0; i < n; i++) {
        double x = stored_value(a[i], step);
        squares += isnan(x) ? 0 : x * x;
        numbers += !isnan(x);
    }
    double spread = sqrt(squares / (double)(numbers > 0 ? numbers : 1)) / CODE_SPREAD;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) {
            double apart = fabs(stored_value(a[i], step) - stored_value(b[i], step + 1));
            others++;
            *far += !(apart <= fmax(step[0], step[1]) + spread);
        }
    return others;
}

/* Compares the codes that the steps left in the first layer. The products before them are rounded at other points: the
 * wide kernel multiplies by the norm's weights first. So one of fifteen codes may differ, for small elements by more
 * than one step, but none by much. All rows are compared: a wrong row would show in their mean. */
static void check_codes(const struct side *a, const struct side *b, const char *name, const struct tally *t)
{
    const struct side *side[2] = {a, b};
    struct heads h = network_heads(&a->instance.network, 0);
    size_t n = (size_t)a->instance.engine.limits.n_blocks * KV_BLOCK_TOKENS * (size_t)(h.n_kv_heads * h.head_dim);
    size_t stored = (size_t)t->rows * 2 * (size_t)(h.n_kv_heads * h.head_dim), far = 0;
    unsigned char *codes[2] = {malloc(2 * n), malloc(2 * n)};
    char reason[160];
    for (int i = 0; i < 2; i++) {
        struct queue *q = (struct queue *)&side[i]->instance.q;
        a->instance.ops->download(q, codes[i], side[i]->instance.network.k_cache[0], n);
        a->instance.ops->download(q, codes[i] + n, side[i]->instance.network.v_cache[0], n);
        a->instance.ops->wait(q);
    }
    size_t others = count_others(codes[0], codes[1], 2 * n, &far);
    free(codes[0]);
    free(codes[1]);
    snprintf(reason, sizeof reason, "%zu of %zu codes are others, %zu far away", others, stored, far);
    tap_all(far == 0 && others * 10 <= stored, reason, "%s: %zu of %zu codes of the first layer are others, near ones",
            name, others, stored);
    snprintf(reason, sizeof reason, "relative error is %.3g, allowed %.1g", t->errors / t->rows, allowed(b));
    tap_all(t->errors / t->rows <= allowed(b), reason, "%s: mean of %d rows (%.1e)", name, t->rows,
            t->errors / t->rows);
}

static void check_model(struct world *w, const struct subject *what)
{
    const char *name = what->name;
    struct tally t = {0};
    struct pair *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    open_pair(a, w, what, STEP_SEPARATE);
    open_pair(b, w, what, STEP_PERSISTENT);
    prefill(&a->side);
    prefill(&b->side);
    tap_all(b->side.instance.engine.persistent.max_tokens >= 2, b->side.instance.engine.persistent.why_not,
            "%s: there is a persistent step", name);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (i == 3 && b->side.instance.engine.persistent.max_tokens >= 6)
            check_last(&a->side, &b->side, name);
        check_step(&a->side, &b->side, name, steps[i], &t);
    }
    if (what->kv_fp8)
        check_codes(&a->side, &b->side, name, &t);
    close_pair(a, what->head != NULL);
    close_pair(b, what->head != NULL);
    free(a);
    free(b);
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
            check_model(&w, &models[i]);
    int status = tap_done();
    world_close(&w);
    return status;
}
