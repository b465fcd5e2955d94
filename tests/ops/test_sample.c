/* tests/ops/test_sample.c - the generator compared with published vectors, and sampling with the formulas, written here
 * with a sort and in double. */
#include "kernels/philox.h"
#include "tests/ops/check.h"

enum { MAX_VOCAB = 512, DRAWS = 20000 };

/* Random123 (Salmon et al.), examples/kat_vectors, philox4x32 10. */
static void test_philox(void **unused)
{
    (void)unused;
    const uint64_t all = UINT64_MAX;
    const struct {
        uint64_t seed, counter, stream;
        uint32_t want[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {all, all, all, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int k = 0; k < 3; k++) {
        uint32_t out[4];
        philox(known[k].seed, known[k].counter, known[k].stream, out);
        assert_memory_equal(out, known[k].want, sizeof out);
    }
    for (uint64_t i = 0; i < 1000; i++) {
        double u = philox_uniform(5, i);
        assert_true(u >= 0 && u < 1);
    }
}

struct scene {
    struct sampler s;
    struct sampling params[2];
    int32_t last[2];
    int32_t *history;
};

static void scene_open(struct scene *c, int vocab, int max_len, int n_rows)
{
    *c = (struct scene){.last = {-7, -7}};
    c->history = zeroed((size_t)(2 * max_len), sizeof *c->history);
    for (int i = 0; i < 2; i++)
        c->params[i] = (struct sampling){.seed = 99, .top_p = 1, .repetition_penalty = 1};
    c->s = (struct sampler){.n_slots = 2,
                            .max_len = max_len,
                            .vocab = vocab,
                            .history = c->history,
                            .last_token = c->last,
                            .params = c->params,
                            .scratch = zeroed((size_t)n_rows, ops->sample_scratch_bytes(vocab))};
    memset(c->s.scratch, 0xA5, (size_t)n_rows * ops->sample_scratch_bytes(vocab));
}

static void scene_close(struct scene *c)
{
    free(c->history);
    free(c->s.scratch);
}

static const double *sort_score;

static int by_score(const void *a, const void *b)
{
    int i = *(const int *)a, j = *(const int *)b;
    if (sort_score[i] != sort_score[j])
        return sort_score[i] > sort_score[j] ? -1 : 1;
    return i - j;
}

/* Turns scores [n] into probabilities: temperature, top_k, top_p, min_p. */
static void expect_probability(double *p, const double *score, int n, const struct sampling *k)
{
    int order[MAX_VOCAB];
    double total = 0, before = 0;
    for (int i = 0; i < n; i++)
        order[i] = i;
    sort_score = score;
    qsort(order, (size_t)n, sizeof *order, by_score);
    double best = score[order[0]], kth = k->top_k > 0 && k->top_k < n ? score[order[k->top_k - 1]] : -INFINITY;
    for (int i = 0; i < n; i++) {
        p[i] = score[i] >= kth ? exp((score[i] - best) / (double)k->temperature) : 0;
        total += p[i];
    }
    for (int i = 0; i < n; i++) {
        double here = p[order[i]] / total;
        if (i > 0 && before >= k->top_p && k->top_p < 1)
            p[order[i]] = 0;
        before += here;
    }
    total = 0;
    for (int i = 0; i < n; i++) {
        if (p[i] < k->min_p * p[order[0]])
            p[i] = 0;
        total += p[i];
    }
    for (int i = 0; i < n; i++)
        p[i] /= total;
}

/* Compares Pearson's statistic with the quantile 1 - 1e-4 (Wilson and Hilferty's approximation). */
static void check_distribution(const int *count, const double *p, int n, int draws)
{
    double chi = 0, rest_p = 0, rest = 0, z = 3.719;
    int k = -1;
    for (int i = 0; i < n; i++) {
        if (p[i] == 0)
            assert_int_equal(count[i], 0);
        if (p[i] * draws < 5) {
            rest_p += p[i];
            rest += count[i];
            continue;
        }
        chi += pow(count[i] - p[i] * draws, 2) / (p[i] * draws);
        k++;
    }
    if (rest_p * draws >= 1) {
        chi += pow(rest - rest_p * draws, 2) / (rest_p * draws);
        k++;
    }
    double limit = k > 0 ? k * pow(1 - 2 / (9.0 * k) + z * sqrt(2 / (9.0 * k)), 3) : 1e-9;
    if (!(chi <= limit))
        fail_msg("chi-square %.2f with %d degrees of freedom, limit %.2f", chi, k, limit);
}

static void check_draws(const float *logits, int vocab, struct sampling params)
{
    if (left_out())
        return;
    const int draws = DRAWS / case_stride();
    struct scene c;
    scene_open(&c, vocab, draws + 1, 1);
    free(c.s.scratch);
    c.s.scratch = zeroed(draws, ops->sample_scratch_bytes(vocab));
    c.params[1] = params;
    float *rows = zeroed((size_t)draws * (size_t)vocab, sizeof *rows);
    int32_t slot[DRAWS], len[DRAWS];
    double score[MAX_VOCAB], p[MAX_VOCAB];
    int count[MAX_VOCAB] = {0};
    for (int i = 0; i < draws; i++) {
        memcpy(rows + (size_t)i * vocab, logits, (size_t)vocab * sizeof *rows);
        slot[i] = 1;
        len[i] = i + 1;
    }
    for (int i = 0; i < vocab; i++)
        score[i] = logits[i];
    expect_probability(p, score, vocab, &params);
    struct sampled *out = zeroed(draws, sizeof *out);
    struct queue q = test_queue(2);
    ops->sample(&q, out, rows, slot, len, &c.s, draws);
    assert_int_equal(q.err.code, ERR_NONE);
    if (!backend_is_device()) /* rows of one slot: the last row's, if rows are processed in order */
        assert_int_equal(c.last[1], out[draws - 1].token);
    assert_int_equal(c.last[0], -7);
    for (int i = 0; i < draws; i++) { /* inverse of the cumulative sum, in id order */
        assert_in_range(out[i].token, 0, vocab - 1);
        double u = philox_uniform(params.seed, (uint64_t)len[i]), below = 0;
        for (int k = 0; k < out[i].token; k++)
            below += p[k];
        assert_true(u >= below - 1e-9 && u <= below + p[out[i].token] + 1e-9);
        count[out[i].token]++;
    }
    check_distribution(count, p, vocab, draws);
    free(out);
    free(rows);
    scene_close(&c);
}

static void test_distributions(void **unused)
{
    (void)unused;
    uint64_t state = 17;
    float logits[60], tied[60];
    for (int i = 0; i < 60; i++) {
        logits[i] = as_act(2.5f * random_float(&state) + 10);
        tied[i] = (float)random_int(&state, 5);
    }
    logits[3] = -INFINITY;
    const struct sampling cases[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 0.6f, .top_p = 1},
        {.temperature = 2.5f, .top_p = 1},
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1, .top_k = 7},
        {.temperature = 1, .top_p = 1, .top_k = 60},
        {.temperature = 1, .top_p = 1, .top_k = 1000},
        {.temperature = 1, .top_p = 0.8f},
        {.temperature = 1, .top_p = 0.02f},
        {.temperature = 1, .top_p = 0},
        {.temperature = 1, .top_p = 0.999f},
        {.temperature = 1, .top_p = 1, .min_p = 0.3f},
        {.temperature = 1, .top_p = 1, .min_p = 1},
        {.temperature = 1.3f, .top_p = 0.7f, .top_k = 20, .min_p = 0.1f},
        {.temperature = 0.8f, .top_p = 0.95f, .top_k = 50},
        {.temperature = 1e-30f, .top_p = 1},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct sampling params = cases[k];
        params.seed = 1000 + k;
        params.repetition_penalty = 1;
        check_draws(logits, 60, params);
        check_draws(tied, 60, params);
    }
    const struct sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    check_draws(logits, 1, plain);
    check_draws(logits, 2, plain);
}

/* Computes scores after the penalties, straight from ops.h. */
static void expect_scores(double *score, const float *logits, int vocab, const struct sampling *k,
                          const int32_t *history, int len)
{
    for (int id = 0; id < vocab; id++) {
        int seen = 0, made = 0;
        float s = logits[id];
        for (int i = 0; i < k->n_bias; i++)
            s += k->bias_id[i] == id ? k->bias[i] : 0;
        for (int j = 0; j < len; j++) {
            seen += history[j] == id;
            made += history[j] == id && j >= k->prompt_len;
        }
        if (seen)
            s = s < 0 ? s * k->repetition_penalty : s / k->repetition_penalty;
        if (made)
            s -= k->presence_penalty + k->frequency_penalty * (float)made;
        for (int i = 0; i < k->n_eos; i++)
            if (k->eos[i] == id && len - k->prompt_len < k->min_tokens)
                s = -INFINITY;
        score[id] = s;
    }
}

static void random_params(struct sampling *k, uint64_t *state, int vocab, int len)
{
    k->prompt_len = random_int(state, len + 1);
    k->repetition_penalty = random_int(state, 3) ? 1 + 0.5f * random_float(state) : 1;
    k->presence_penalty = random_int(state, 2) ? random_float(state) : 0;
    k->frequency_penalty = random_int(state, 2) ? random_float(state) : 0;
    k->min_tokens = random_int(state, 12);
    k->n_eos = random_int(state, 4);
    k->n_bias = random_int(state, 5);
    for (int i = 0; i < k->n_eos; i++)
        k->eos[i] = random_int(state, vocab + 2) - 1; /* some are not ids: ignored */
    for (int i = 0; i < k->n_bias; i++) {
        k->bias_id[i] = random_int(state, vocab + 2) - 1;
        k->bias[i] = 2 * random_float(state);
    }
}

static void check_logprobs(const struct sampled *out, const float *logits, int vocab, int n_top)
{
    double sum = 0, score[MAX_VOCAB];
    int order[MAX_VOCAB];
    for (int i = 0; i < vocab; i++) {
        sum += exp((double)logits[i]);
        score[i] = logits[i];
        order[i] = i;
    }
    sort_score = score;
    qsort(order, (size_t)vocab, sizeof *order, by_score);
    assert_true(fabs(out->logprob - (logits[out->token] - log(sum))) < 1e-5);
    for (int i = 0; i < n_top; i++) {
        assert_int_equal(out->top_id[i], i < vocab ? order[i] : -1);
        assert_true(i >= vocab || fabs(out->top_logprob[i] - (logits[order[i]] - log(sum))) < 1e-5);
    }
}

static void test_penalties(void **unused)
{
    (void)unused;
    uint64_t state = 23;
    for (int round = 0; round < 3000; round++) {
        if (left_out())
            continue;
        int vocab = 1 + random_int(&state, 40), len = random_int(&state, 30), n_top = random_int(&state, 21);
        struct scene c;
        scene_open(&c, vocab, 30, 1);
        struct sampling *k = &c.params[round % 2];
        random_params(k, &state, vocab, len);
        k->n_top = n_top;
        int32_t *history = c.history + round % 2 * 30;
        for (int j = 0; j < 30; j++) /* beyond len: of an earlier sequence */
            history[j] = random_int(&state, vocab);
        float logits[40];
        double score[MAX_VOCAB];
        for (int i = 0; i < vocab; i++)
            logits[i] = round % 3 ? as_act(2 * random_float(&state)) : (float)random_int(&state, 3);
        expect_scores(score, logits, vocab, k, history, len);
        int best = 0;
        for (int i = 1; i < vocab; i++)
            best = score[i] > score[best] ? i : best;
        struct sampled out[3];
        memset(out, 0x5A, sizeof out);
        struct queue q = test_queue(1);
        ops->sample(&q, out + 1, logits, &(int32_t){round % 2}, &(int32_t){len}, &c.s, 1);
        if (score[out[1].token] < score[best] - 1e-6 ||
            (score[best] > -INFINITY && out[1].token != best && score[out[1].token] == score[best]))
            fail_msg("round %d: token %d, expected %d", round, out[1].token, best);
        assert_int_equal(out[1].slot, round % 2);
        assert_int_equal(c.last[round % 2], out[1].token);
        check_logprobs(&out[1], logits, vocab, n_top);
        for (size_t i = 0; i < sizeof out[0]; i++)
            assert_true(((unsigned char *)&out[0])[i] == 0x5A && ((unsigned char *)&out[2])[i] == 0x5A);
        k->temperature = 1;
        k->top_k = 1; /* the same token, or one of equal score */
        ops->sample(&q, out + 1, logits, &(int32_t){round % 2}, &(int32_t){len}, &c.s, 1);
        assert_true(score[out[1].token] >= score[best] - 1e-6);
        assert_int_equal(q.err.code, ERR_NONE);
        scene_close(&c);
    }
}

/* The token of a masked slot's row is in the row's mask, and is chosen as if all others had a score of -infinity. The
 * slot has two rows with masks of their own: one token, and every `every`th. */
static void check_mask(uint64_t *state, int vocab, int every)
{
    struct scene c;
    scene_open(&c, vocab, 8, 3);
    int words = (vocab + 31) / 32, n[3] = {0};
    uint32_t *mask = zeroed(3 * (size_t)words, sizeof *mask); /* slot 0 is not masked: its row's mask is not read */
    float *logits = zeroed(3 * (size_t)vocab, sizeof *logits),
          *forbidden = zeroed(3 * (size_t)vocab, sizeof *forbidden);
    for (int row = 0; row < 3; row++)
        for (int i = 0, kept = random_int(state, vocab); i < vocab; i++) {
            bool set = row > 0 && (i == kept || random_int(state, every) == 0);
            mask[row * words + i / 32] |= (uint32_t)set << i % 32;
            n[row] += set;
            logits[row * vocab + i] = row == 0 ? as_act(2 * random_float(state)) : logits[i];
            forbidden[row * vocab + i] = set || row == 0 ? logits[i] : -INFINITY;
        }
    c.s.mask = mask;
    c.s.mask_words = words;
    struct sampling *k = c.params;
    k[0].temperature = k[1].temperature = random_int(state, 2) ? 1 : 0;
    k[0].top_p = k[1].top_p = random_int(state, 2) ? 0.9f : 1;
    k[0].top_k = k[1].top_k = random_int(state, 3) ? 0 : 1 + random_int(state, vocab);
    const int32_t slot[3] = {0, 1, 1}, len[3] = {3, 4, 5};
    struct sampled out[3], want[3];
    struct queue q = test_queue(2);
    k[1].masked = 1;
    ops->sample(&q, out, logits, slot, len, &c.s, 3);
    k[1].masked = 0;
    ops->sample(&q, want, forbidden, slot, len, &c.s, 3);
    assert_int_equal(q.err.code, ERR_NONE);
    assert_int_equal(out[0].token, want[0].token);
    for (int row = 1; row < 3; row++) {
        assert_int_equal(out[row].token, want[row].token);
        assert_true(mask[row * words + out[row].token / 32] >> out[row].token % 32 & 1);
        assert_true(out[row].logprob <= want[row].logprob + 1e-6f); /* from the model's unmodified logits */
        assert_true(n[row] < vocab || fabsf(out[row].logprob - want[row].logprob) < 1e-5f);
    }
    free(mask);
    free(logits);
    free(forbidden);
    scene_close(&c);
}

static void test_masks(void **unused)
{
    (void)unused;
    uint64_t state = 31;
    static const int vocab[] = {1, 2, 31, 32, 33, 64, 100, 511, 512};
    for (int round = 0; round < 300; round++)
        if (!left_out())
            check_mask(&state, vocab[round % (int)(sizeof vocab / sizeof *vocab)], 4);
}

/* Vocabularies of real sizes, with masks whose last word is full or not; many tokens allowed, few, one. */
static void test_masks_of_many(void **unused)
{
    (void)unused;
    uint64_t state = 32;
    static const int vocab[] = {70001, 128256, 151936, 201088, 262145}, every[] = {2, 1000, INT32_MAX};
    for (int round = 0; round < 45; round++)
        if (!left_out())
            check_mask(&state, vocab[round % 5], every[round / 5 % 3]);
}

static void test_ties(void **unused)
{
    (void)unused;
    struct scene c;
    scene_open(&c, 6, 4, 1);
    const float logits[6] = {1, 5, 2, 5, 5, -3};
    struct sampled out;
    struct queue q = test_queue(1);
    c.params[0].n_top = 4;
    ops->sample(&q, &out, logits, &(int32_t){0}, &(int32_t){1}, &c.s, 1);
    assert_int_equal(out.token, 1);
    assert_memory_equal(out.top_id, ((int32_t[]){1, 3, 4, 2}), 4 * sizeof(int32_t));
    scene_close(&c);
}

/* No crash, an error that names the slot, and correct rows beside it. */
static void test_not_numbers(void **unused)
{
    (void)unused;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 6; k++) {
        struct scene c;
        float logits[3 * 5] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 9, 2, 3, 4};
        for (int i = 0; i < 5; i++)
            if (k % 3 == 2 || i == k)
                logits[5 + i] = bad[k % 3]; /* one NaN, one infinity, or only -infinity */
        if (k >= 3 && k < 5)
            logits[5 + k - 1] = bad[k % 3];
        scene_open(&c, 5, 4, 3);
        c.params[1].temperature = k >= 3;
        c.params[1].top_k = 2;
        c.params[1].top_p = 0.5f;
        struct sampled out[3];
        struct queue q = test_queue(1);
        ops->sample(&q, out, logits, (int32_t[]){0, 1, 0}, (int32_t[]){1, 1, 2}, &c.s, 3);
        assert_int_equal(q.err.code, ERR_DEVICE);
        assert_non_null(strstr(q.err.text, "slot 1"));
        assert_int_equal(out[0].token, 4);
        assert_int_equal(out[1].token, 0);
        assert_int_equal(out[2].token, 1);
        scene_close(&c);
    }
}

/* Returns log sum exp of a row, in double. */
static double log_sum(const float *logits, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    return log(sum);
}

/* Vocabularies of real sizes, which a device's blocks may search in parts: the best logit in every part in turn, an
 * equal one later in the row; in between a row without a sequence, as in recorded steps, which only devices support;
 * then a row with one bad number at its end. */
static void test_wide_rows(void **unused)
{
    (void)unused;
    enum { PARTS = 8, MOST = 17 };
    const int vocabs[] = {20000, 20001, 131072}, rows[] = {1, 3, 16, MOST};
    const float bad[] = {NAN, INFINITY};
    uint64_t state = 12;
    for (int round = 0; round < 3 * 4; round++) {
        if (left_out())
            continue;
        int vocab = vocabs[round / 4], n = rows[round % 4], best[MOST];
        int32_t slot[MOST], len[MOST];
        struct scene c;
        scene_open(&c, vocab, 4, n);
        float *logits = zeroed((size_t)n * (size_t)vocab, sizeof *logits);
        random_fill(logits, (size_t)n * (size_t)vocab, &state, 2);
        for (int i = 0; i < n; i++) {
            best[i] = vocab / PARTS * (i % PARTS) + random_int(&state, vocab / PARTS);
            logits[(size_t)i * (size_t)vocab + (size_t)best[i]] = logits[((size_t)i + 1) * (size_t)vocab - 1] = 6;
            slot[i] = n > 1 && i == 1 && backend_real_ops()->async != NULL ? -1 : i % 2;
            len[i] = 1;
        }
        struct sampled out[MOST];
        for (int k = 0; k < 3; k++) {
            struct queue q = test_queue(1);
            if (k > 0) /* the last row, which has a sequence */
                logits[(size_t)n * (size_t)vocab - 1] = bad[k - 1];
            ops->sample(&q, out, logits, slot, len, &c.s, n);
            assert_int_equal(q.err.code, k > 0 ? ERR_DEVICE : ERR_NONE);
            assert_true(k == 0 || strstr(q.err.text, (n - 1) % 2 == 0 ? "slot 0" : "slot 1") != NULL);
            for (int i = 0; i < n - (k > 0); i++) {
                const float *row = logits + (size_t)i * (size_t)vocab;
                assert_int_equal(out[i].slot, slot[i]);
                if (slot[i] < 0)
                    continue;
                assert_int_equal(out[i].token, best[i]);
                assert_true(fabs(out[i].logprob - (6 - log_sum(row, vocab))) < 1e-5);
            }
        }
        free(logits);
        scene_close(&c);
    }
}

/* Rows of random lengths and types against the formula; last tokens and the results' neighbours stay unchanged. */
static void test_score(void **unused)
{
    (void)unused;
    enum { ROWS = 7 };
    uint64_t state = 31;
    for (int round = 0; round < 400; round++) {
        if (left_out())
            continue;
        int vocab = 1 + random_int(&state, round % 4 == 0 ? 300 : 40), n_rows = 1 + random_int(&state, ROWS);
        struct scene c;
        scene_open(&c, vocab, 4, 1);
        int32_t slot[ROWS], token[ROWS];
        float *logits = zeroed((size_t)(n_rows * vocab), sizeof *logits);
        for (int i = 0; i < n_rows * vocab; i++)
            logits[i] = round % 3 ? as_act(4 * random_float(&state)) : (float)random_int(&state, 3);
        for (int i = 0; i < 2; i++) {
            c.params[i].n_prompt_top = random_int(&state, 21);
            c.params[i].n_top = 20 - c.params[i].n_prompt_top; /* for sampled tokens: irrelevant here */
            c.params[i].repetition_penalty = 3;
            c.params[i].temperature = 2;
        }
        for (int i = 0; i < n_rows; i++) {
            slot[i] = random_int(&state, 2);
            token[i] = random_int(&state, vocab);
        }
        if (vocab > 1) /* a forbidden token, which is valid */
            logits[token[0]] = -INFINITY;
        struct sampled out[ROWS + 2];
        memset(out, 0x5A, sizeof out);
        struct queue q = test_queue(2);
        ops->score(&q, out + 1, logits, slot, token, &c.s, n_rows);
        assert_int_equal(q.err.code, ERR_NONE);
        for (int i = 0; i < n_rows; i++) {
            const struct sampled *s = &out[1 + i];
            assert_int_equal(s->token, token[i]);
            assert_int_equal(s->slot, slot[i]);
            if (i == 0 && vocab > 1)
                assert_true(s->logprob == -INFINITY);
            else
                check_logprobs(s, logits + (size_t)i * (size_t)vocab, vocab, c.params[slot[i]].n_prompt_top);
        }
        for (size_t i = 0; i < sizeof out[0]; i++)
            assert_true(((unsigned char *)&out[0])[i] == 0x5A && ((unsigned char *)&out[1 + n_rows])[i] == 0x5A);
        assert_memory_equal(c.last, ((int32_t[]){-7, -7}), sizeof c.last);
        free(logits);
        scene_close(&c);
    }
}

static void test_score_not_numbers(void **unused)
{
    (void)unused;
    const float bad[] = {NAN, INFINITY};
    for (int k = 0; k < 2; k++) {
        struct scene c;
        float logits[2 * 5] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
        scene_open(&c, 5, 4, 1);
        logits[5 + k] = bad[k];
        struct sampled out[2];
        struct queue q = test_queue(1);
        ops->score(&q, out, logits, (int32_t[]){0, 1}, (int32_t[]){4, 4}, &c.s, 2);
        assert_int_equal(q.err.code, ERR_DEVICE);
        assert_non_null(strstr(q.err.text, "slot 1"));
        assert_int_equal(out[0].token, 4);
        assert_true(fabs(out[0].logprob + 0.4519144) < 1e-5); /* 4 - log(1 + e + e^2 + e^3 + e^4) */
        scene_close(&c);
    }
    struct queue q = test_queue(1);
    struct scene c;
    scene_open(&c, 5, 4, 1);
    ops->score(&q, NULL, NULL, NULL, NULL, &c.s, 0);
    assert_int_equal(q.err.code, ERR_NONE);
    scene_close(&c);
}

/* With everything forbidden some token within the vocabulary results, without failure. */
static void test_all_forbidden(void **unused)
{
    (void)unused;
    struct scene c;
    scene_open(&c, 2, 4, 1);
    for (int k = 0; k < 2; k++) {
        c.params[0].temperature = (float)k;
        c.params[0].top_p = 0.5f;
        c.params[0].min_tokens = 5;
        c.params[0].n_eos = 2;
        c.params[0].eos[1] = 1;
        struct sampled out;
        struct queue q = test_queue(1);
        ops->sample(&q, &out, (float[]){1, 2}, &(int32_t){0}, &(int32_t){0}, &c.s, 1);
        assert_in_range(out.token, 0, 1);
        assert_int_equal(q.err.code, ERR_NONE);
    }
    struct queue q = test_queue(1);
    ops->sample(&q, NULL, NULL, NULL, NULL, &c.s, 0);
    scene_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_penalties),     cmocka_unit_test(test_masks),
        cmocka_unit_test(test_masks_of_many), cmocka_unit_test(test_ties),
        cmocka_unit_test(test_not_numbers),   cmocka_unit_test(test_all_forbidden),
        cmocka_unit_test(test_score),         cmocka_unit_test(test_score_not_numbers),
        cmocka_unit_test(test_wide_rows),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
