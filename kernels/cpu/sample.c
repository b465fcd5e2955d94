/* kernels/cpu/sample.c - samples one token from a row of logits, or scores a given one. Without sorting: a cut (top_k,
 * top_p) is found by radix search on the logits, so a row costs a few passes over the vocabulary whatever the values.
 *  */
#include "kernels/cpu/cpu.h"
#include "kernels/philox.h"

#include <math.h>

/* One row's work. `probability` doubles as the table of counts while penalties are applied. */
struct logit_row {
    const float *logits; /* [vocab] raw logits of the model */
    float *score;        /* [vocab] after penalties; -inf: forbidden */
    double *probability; /* [vocab] relative to the best score's; 0: dropped */
    int vocab;
};

static size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

size_t cpu_sample_scratch_bytes(int vocab)
{
    return align((size_t)vocab * sizeof(double)) + align((size_t)vocab * sizeof(float));
}

/* The lowest id among the largest; NaN is never the largest. */
static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best] || (isnan(x[best]) && !isnan(x[i])))
            best = i;
    return best;
}

/* log sum exp of the logits; not finite when one of them is NaN or +inf, or when all are -inf. */
static double log_sum(const float *x, int n, float max)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* The best logits, by insertion. The lower id comes first among equals because ids come in order. */
static void best_tokens(struct sampled *out, const float *logits, int vocab, int n_top, double norm)
{
    int n = 0;
    for (int i = 0; i < vocab; i++) {
        if (n == n_top && (n == 0 || !(logits[i] > logits[out->top_id[n - 1]])))
            continue;
        int at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[i] > logits[out->top_id[at - 1]]; at--)
            out->top_id[at] = out->top_id[at - 1];
        out->top_id[at] = i;
    }
    for (int k = 0; k < n; k++)
        out->top_logprob[k] = (float)(logits[out->top_id[k]] - norm);
    for (int k = n; k < n_top; k++) { /* a vocabulary smaller than n_top */
        out->top_id[k] = -1;
        out->top_logprob[k] = -INFINITY;
    }
}

static bool has_penalty(const struct sampling *p)
{
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

static void penalize(struct logit_row *r, const struct sampling *p, const int32_t *history, int len)
{
    enum { SEEN = 1 << 30 };
    int32_t *count = (int32_t *)r->probability;
    memset(count, 0, (size_t)r->vocab * sizeof *count);
    for (int j = 0; j < len; j++) {
        int32_t id = history[j];
        if (id < 0 || id >= r->vocab)
            continue;
        if (!(count[id] & SEEN)) {
            float s = r->score[id];
            r->score[id] = s < 0 ? s * p->repetition_penalty : s / p->repetition_penalty;
        }
        count[id] = (count[id] | SEEN) + (j >= p->prompt_len);
    }
    for (int j = p->prompt_len < 0 ? 0 : p->prompt_len; j < len; j++) {
        int32_t id = history[j];
        if (id < 0 || id >= r->vocab || !(count[id] & SEEN))
            continue;
        r->score[id] -= p->presence_penalty + p->frequency_penalty * (float)(count[id] & ~SEEN);
        count[id] = 0; /* once for each id */
    }
}

static void adjust(struct logit_row *r, const struct sampling *p, const int32_t *history, int len)
{
    for (int i = 0; i < p->n_bias && i < SAMPLING_MAX_BIAS; i++)
        if (p->bias_id[i] >= 0 && p->bias_id[i] < r->vocab)
            r->score[p->bias_id[i]] += p->bias[i];
    if (has_penalty(p))
        penalize(r, p, history, len);
    for (int i = 0; i < p->n_eos && i < SAMPLING_MAX_EOS && len - p->prompt_len < p->min_tokens; i++)
        if (p->eos[i] >= 0 && p->eos[i] < r->vocab)
            r->score[p->eos[i]] = -INFINITY;
}

/* Tokens whose bit is not set are forbidden. */
static void forbid(struct logit_row *r, const uint32_t *mask)
{
    for (int i = 0; i < r->vocab; i++)
        if ((mask[i / 32] >> i % 32 & 1) == 0)
            r->score[i] = -INFINITY;
}

/* A number's bits so that unsigned order is the number's order. */
static inline uint32_t order(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline double weigh(const struct logit_row *r, int i, bool count)
{
    return count ? 1.0 : r->probability[i];
}

/* The score at which the descending sum of weights (or, if `count`, the number of tokens) reaches `goal`, found one
 * 8-bit digit at a time; *above becomes the sum over better scores, which is less than goal. */
static uint32_t find_cut(const struct logit_row *r, double goal, bool count, double *above)
{
    uint32_t prefix = 0, known = 0; /* the digits found, and the mask of their bits */
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        double bucket[256] = {0};
        for (int i = 0; i < r->vocab; i++) {
            uint32_t key = order(r->score[i]);
            if (r->probability[i] > 0 && (key & known) == prefix)
                bucket[key >> shift & 255] += weigh(r, i, count);
        }
        int digit = 255, lowest = 255; /* lowest: a fallback in case rounding ends the search too late */
        for (; digit >= 0 && *above + bucket[digit] < goal; digit--) {
            if (bucket[digit] > 0)
                lowest = digit;
            *above += bucket[digit];
        }
        if (digit < 0) {
            digit = lowest;
            *above -= bucket[lowest];
        }
        prefix |= (uint32_t)digit << shift;
        known |= 255u << shift;
    }
    return prefix;
}

/* Keeps the k best scores, and all that equal the k-th. */
static void keep_top_k(struct logit_row *r, int k)
{
    double above;
    uint32_t cut = find_cut(r, k, true, &above);
    for (int i = 0; i < r->vocab; i++)
        if (order(r->score[i]) < cut)
            r->probability[i] = 0;
}

static double total(const struct logit_row *r)
{
    double sum = 0;
    for (int i = 0; i < r->vocab; i++)
        sum += r->probability[i];
    return sum;
}

/* Keeps a token as long as those before it in descending order, lower ids first among equals, add up to less than p. */
static void keep_top_p(struct logit_row *r, double p)
{
    double above, goal = fmax(p * total(r), 1e-300); /* the best always stays: its weight is 1 */
    uint32_t cut = find_cut(r, goal, false, &above);
    for (int i = 0; i < r->vocab; i++) {
        uint32_t key = order(r->score[i]);
        if (key > cut || r->probability[i] <= 0)
            continue;
        if (key == cut && above < goal)
            above += r->probability[i];
        else
            r->probability[i] = 0;
    }
}

static int draw(const struct logit_row *r, double u)
{
    double goal = u * total(r), sum = 0;
    int last = 0;
    for (int i = 0; i < r->vocab; i++) {
        if (r->probability[i] <= 0)
            continue;
        sum += r->probability[i];
        last = i;
        if (sum > goal)
            break;
    }
    return last;
}

/* Differences from the best score are divided by the temperature, so that nothing overflows at any temperature. */
static int choose_token(struct logit_row *r, const struct sampling *p, int len)
{
    int best = argmax(r->score, r->vocab);
    double max = r->score[best];
    if (!(p->temperature > 0) || !isfinite(max))
        return best;
    for (int i = 0; i < r->vocab; i++) {
        double s = r->score[i];
        r->probability[i] = s >= -INFINITY ? exp((s - max) / p->temperature) : 0;
    }
    if (p->top_k > 0 && p->top_k < r->vocab)
        keep_top_k(r, p->top_k);
    if (p->top_p < 1)
        keep_top_p(r, p->top_p);
    for (int i = 0; i < r->vocab && p->min_p > 0; i++)
        if (r->probability[i] < p->min_p && i != best)
            r->probability[i] = 0;
    return draw(r, philox_uniform(p->seed, (uint64_t)len));
}

/* token is -1 when the logits are not numbers. mask: of the row, if its slot is masked. */
static void sample_row(struct sampled *out, struct logit_row *r, const struct sampling *p, const int32_t *history,
                       const uint32_t *mask, int len)
{
    int best = argmax(r->logits, r->vocab);
    double norm = r->vocab > 0 ? log_sum(r->logits, r->vocab, r->logits[best]) : NAN;
    if (!isfinite(norm)) {
        out->token = -1;
        return;
    }
    out->token = best;
    if (p->temperature > 0 || p->n_bias > 0 || has_penalty(p) || len - p->prompt_len < p->min_tokens || p->masked) {
        memcpy(r->score, r->logits, (size_t)r->vocab * sizeof *r->score);
        adjust(r, p, history, len);
        if (p->masked)
            forbid(r, mask);
        out->token = choose_token(r, p, len);
    }
    out->logprob = (float)(r->logits[out->token] - norm);
    int n_top = p->n_top < SAMPLING_MAX_TOP ? p->n_top : SAMPLING_MAX_TOP;
    if (n_top > 0)
        best_tokens(out, r->logits, r->vocab, n_top, norm);
}

/* Records a row whose logits are not numbers. Rows are checked in order, so every rank reports the same failure. */
static void report(struct queue *q, struct sampled *out)
{
    if (out->token >= 0)
        return;
    ERR(&q->err, ERR_DEVICE, "logits of slot %d are not numbers: a weight may be NaN", out->slot);
    out->token = 0;
}

static const uint32_t *mask_of(const struct sampler *s, int row)
{
    return s->mask != NULL ? s->mask + (size_t)row * s->mask_words : NULL;
}

void cpu_sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                const int32_t *row_len, const struct sampler *s, int n_rows)
{
    size_t stride = cpu_sample_scratch_bytes(s->vocab);
    int n_threads = n_rows > 1 ? cpu_threads(q, (size_t)n_rows * s->vocab * 20) : 1;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
    for (int i = 0; i < n_rows; i++) {
        char *scratch = (char *)s->scratch + i * stride;
        struct logit_row r = {.logits = (const float *)logits + (size_t)i * s->vocab,
                              .score = (float *)(scratch + align((size_t)s->vocab * sizeof(double))),
                              .probability = (double *)scratch,
                              .vocab = s->vocab};
        int slot = row_slot[i];
        out[i] = (struct sampled){.token = -1, .slot = slot};
        if (slot >= 0 && slot < s->n_slots)
            sample_row(&out[i], &r, &s->params[slot], s->history + (size_t)slot * s->max_len, mask_of(s, i),
                       row_len[i] < s->max_len ? row_len[i] : s->max_len);
    }
    for (int i = 0; i < n_rows; i++) {
        report(q, &out[i]);
        if (row_slot[i] >= 0 && row_slot[i] < s->n_slots)
            s->last_token[row_slot[i]] = out[i].token;
    }
}

/* token stays -1 when the logits are not numbers. */
static void score_row(struct sampled *out, const float *logits, int vocab, int32_t token, int n_top)
{
    double norm = vocab > 0 ? log_sum(logits, vocab, logits[argmax(logits, vocab)]) : NAN;
    if (!isfinite(norm) || token < 0 || token >= vocab)
        return;
    out->token = token;
    out->logprob = (float)(logits[token] - norm);
    n_top = n_top < SAMPLING_MAX_TOP ? n_top : SAMPLING_MAX_TOP;
    if (n_top > 0)
        best_tokens(out, logits, vocab, n_top, norm);
}

void cpu_score(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
               const int32_t *row_token, const struct sampler *s, int n_rows)
{
    int n_threads = n_rows > 1 ? cpu_threads(q, (size_t)n_rows * s->vocab * 20) : 1;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic)
    for (int i = 0; i < n_rows; i++) {
        int slot = row_slot[i];
        out[i] = (struct sampled){.token = -1, .slot = slot};
        if (slot >= 0 && slot < s->n_slots)
            score_row(&out[i], (const float *)logits + (size_t)i * s->vocab, s->vocab, row_token[i],
                      s->params[slot].n_prompt_top);
    }
    for (int i = 0; i < n_rows; i++)
        report(q, &out[i]);
}
