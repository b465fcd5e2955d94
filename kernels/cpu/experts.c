/* kernels/cpu/experts.c - mixtures of experts without their products: the choice of experts, and the sum of their
 * results. The products are in matmul.c. */
#include "kernels/cpu/cpu.h"

#include <math.h>

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Experts of groups that are left out are chosen last. Among equal groups the lower number is kept. */
static void leave_groups_out(float *key, const struct routing *how)
{
    float score[ROUTING_MAX_GROUPS];
    int size = how->n_experts / how->n_groups;
    for (int g = 0; g < how->n_groups; g++) {
        float best[2] = {-INFINITY, -INFINITY};
        for (int e = g * size; e < (g + 1) * size; e++)
            /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): n_experts keys are there */
            if (key[e] > best[0]) {
                best[1] = best[0];
                best[0] = key[e];
            } else if (key[e] > best[1]) {
                best[1] = key[e];
            }
        score[g] = how->groups_by_best ? best[0] : best[0] + best[1];
    }
    for (int g = 0; g < how->n_groups; g++) {
        int n_better = 0;
        for (int other = 0; other < how->n_groups; other++)
            n_better += score[other] > score[g] || (score[other] == score[g] && other < g);
        for (int e = g * size; e < (g + 1) * size && n_better >= how->n_kept; e++)
            key[e] = -INFINITY;
    }
}

/* The largest logit, and the sum of exp(logit - largest); of sigmoids, of the logits. NaN if a logit is. */
struct sum {
    float largest;
    double all;
};

static struct sum add_up(const float *logits, const struct routing *how)
{
    struct sum s = {.largest = -INFINITY};
    for (int e = 0; e < how->n_experts; e++)
        s.largest = logits[e] > s.largest ? logits[e] : s.largest;
    for (int e = 0; e < how->n_experts; e++)
        s.all += how->sigmoid ? logits[e] : expf(logits[e] - s.largest);
    return s;
}

/* The score by which experts are chosen; one that is not a number comes last. */
static void make_keys(float *key, const float *logits, struct sum s, const struct weight *bias,
                      const struct routing *how)
{
    for (int e = 0; e < how->n_experts; e++) {
        bool score = routing_corrects(how) && !how->by_logits;
        float correction = score && bias ? dtype_load(bias->data, bias->type, (size_t)e) : 0;
        key[e] = logits[e];
        if (score)
            key[e] = correction + (how->sigmoid ? sigmoid(logits[e]) : (float)(expf(logits[e] - s.largest) / s.all));
        key[e] = isnan(key[e]) ? -INFINITY : key[e];
    }
    if (how->n_groups > 1)
        leave_groups_out(key, how);
}

/* A new expert is inserted after equal ones: of equal keys the lower number wins. */
static void pick_best(int32_t *expert, const float *key, const struct routing *how)
{
    int n = 0;
    for (int e = 0; e < how->n_experts; e++) {
        int at = n;
        while (at > 0 && key[e] > key[expert[at - 1]])
            at--;
        if (at == how->n_chosen)
            continue;
        n = n < how->n_chosen ? n + 1 : n;
        for (int i = n - 1; i > at; i--)
            expert[i] = expert[i - 1];
        expert[at] = e;
    }
}

/* The shares of the chosen experts. */
static void make_shares(float *share, const int32_t *expert, const float *logits, struct sum s,
                        const struct routing *how)
{
    double chosen = 0;
    for (int i = 0; i < how->n_chosen; i++)
        chosen += share[i] = how->sigmoid ? sigmoid(logits[expert[i]]) : expf(logits[expert[i]] - s.largest);
    /* A NaN logit makes `all` NaN, and so every share, whether its expert is chosen or not: it must not be hidden. */
    double whole = how->normalised ? fmax(chosen + 1e-20, how->least * s.all) : how->sigmoid ? 1 : s.all;
    for (int i = 0; i < how->n_chosen; i++)
        share[i] = isnan(s.all) ? NAN : how->scale * (float)(share[i] / whole);
}

/* One token's part: the best n_chosen of logits [n_experts] and their shares. */
static void choose_experts(int32_t *expert, float *share, const float *logits, const struct weight *bias,
                           const struct routing *how)
{
    float key[ROUTING_MAX_EXPERTS];
    struct sum s = add_up(logits, how);
    make_keys(key, logits, s, bias, how);
    pick_best(expert, key, how);
    make_shares(share, expert, logits, s, how);
}

/* Sorts pairs by expert, by counting; within an expert in order of the tokens. */
static void sort_pairs(const struct routes *r, const struct routing *how, int n_pairs)
{
    int32_t next[ROUTING_MAX_EXPERTS] = {0};
    for (int p = 0; p < n_pairs; p++)
        next[r->expert[p]]++;
    r->begin[0] = 0;
    for (int e = 0; e < how->n_experts; e++) {
        r->begin[e + 1] = r->begin[e] + next[e];
        next[e] = r->begin[e];
    }
    for (int p = 0; p < n_pairs; p++)
        r->pair[next[r->expert[p]]++] = p;
}

void cpu_route(struct queue *q, const struct routes *r, const void *x, const struct weight *router,
               const struct weight *bias, const struct routing *how, int n_tokens)
{
    cpu_matmul(q, r->logits, x, router, routing_corrects(how) ? NULL : bias, n_tokens, false);
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens * how->n_experts * how->n_chosen)) schedule(static)
    for (int t = 0; t < n_tokens; t++)
        choose_experts(r->expert + (size_t)t * how->n_chosen, r->share + (size_t)t * how->n_chosen,
                       r->logits + (size_t)t * how->n_experts, bias, how);
    sort_pairs(r, how, n_tokens * how->n_chosen);
}

static bool is_held(const struct routes *r, int expert)
{
    return expert >= r->first_held && expert < r->first_held + r->n_held;
}

/* out[t] (+)= the sum over i of share[t][i] y[t n_chosen + i], of held experts, in the order of i. */
static void combine(struct queue *q, void *out, const void *y, const struct routes *r, const struct routing *how,
                    int n_tokens, int dim, bool accumulate)
{
    size_t n_chosen = (size_t)how->n_chosen;
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens *dim *n_chosen)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        float *to = (float *)out + (size_t)t * dim;
        const float *from = (const float *)y + (size_t)t * n_chosen * dim, *share = r->share + (size_t)t * n_chosen;
        const int32_t *expert = r->expert + (size_t)t * n_chosen;
        for (int c = 0; c < dim; c++) {
            float sum = 0;
            for (size_t i = 0; i < n_chosen; i++)
                sum = is_held(r, expert[i]) ? sum + share[i] * from[i * dim + c] : sum;
            to[c] = accumulate ? to[c] + sum : sum;
        }
    }
}

void cpu_experts_first(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                       const struct routes *r, const struct routing *how, enum activation kind, void *work,
                       int n_tokens)
{
    cpu_product_of_pairs(q, work, x, w, bias, r, how, X_TOKENS, n_tokens);
    if (r->n_held > 0) /* also of pairs with experts on other ranks, which are not read */
        cpu_activate(q, out, work, kind, true, n_tokens * how->n_chosen, w->rows / r->n_held / 2);
}

void cpu_experts_second(struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                        const struct routes *r, const struct routing *how, void *work, int n_tokens, int dim,
                        bool accumulate)
{
    cpu_product_of_pairs(q, work, x, w, bias, r, how, X_PAIRS, n_tokens);
    combine(q, out, work, r, how, n_tokens, dim, accumulate);
}

void cpu_weigh_input(struct queue *q, void *out, const void *x, const struct routes *r, int n_tokens, int dim)
{
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens *dim)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        for (int c = 0; c < dim; c++)
            ((float *)out)[(size_t)t * dim + c] = r->share[t] * ((const float *)x)[(size_t)t * dim + c];
        r->share[t] = 1;
    }
}

void cpu_gate(struct queue *q, void *x, const void *in, const struct weight *w, int n_tokens, int dim)
{
#pragma omp parallel for num_threads(cpu_threads(q, (size_t)n_tokens * w->cols)) schedule(static)
    for (int t = 0; t < n_tokens; t++) {
        const float *from = (const float *)in + (size_t)t * w->cols;
        double sum = 0;
        for (int c = 0; c < w->cols; c++)
            sum += (double)from[c] * dtype_load(w->data, w->type, (size_t)c);
        float factor = sigmoid((float)sum);
        for (int c = 0; c < dim; c++)
            ((float *)x)[(size_t)t * dim + c] *= factor;
    }
}
