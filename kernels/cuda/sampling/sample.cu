/* kernels/cuda/sampling/sample.cu - samples one token from a row of logits (sample_choose.cuh), or computes the
 * log-probability of a given one, one block per row; with few rows, a cluster of blocks scans a row together
 * (sample_survey.cuh), and one of them goes on. The formulas are kernels/cpu/sample.c's, in double where it uses
 * double. Only the order of sums differs: the CPU adds in order of ids, a block adds warp by warp. Both orders are
 * fixed, so a run is reproducible bit for bit; the chosen token can differ from the CPU's only when the uniform number
 * falls within rounding (1e-15) of a boundary, or at the cut of top_p, where weights are multiples of 2^-44 of the
 * best. */
#include "kernels/cuda/sampling/sample_choose.cuh"

#define FEW     16 /* up to this many rows get CLUSTER blocks each: 128 of an H200's 132 multiprocessors */
#define CLUSTER 8

static __host__ __device__ size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

size_t cuda_sample_scratch_bytes(int vocab)
{
    return align((size_t)vocab * sizeof(double)) + align((size_t)vocab * sizeof(float));
}

__device__ static bool is_adjusted(const struct sampling *p, int len)
{
    return p->n_bias > 0 || has_penalty(p) || len - p->prompt_len < p->min_tokens;
}

/* Is the token drawn from all allowed tokens, by their unmodified logits? */
__device__ static bool draws_of_all(const struct sampling *p, int vocab, int len)
{
    bool cut = (p->top_k > 0 && p->top_k < vocab) || p->top_p < 1 || p->min_p > 0;
    return p->temperature > 0 && !cut && !is_adjusted(p, len);
}

/* The token, or -1 when the logits are not numbers. mask: of the row; NULL: its slot is not masked. sums: of the row's
 * stretches, where the token is drawn from all. */
template <typename T>
__device__ static int sample_row(struct sampled *out, struct row *r, const T *logits, const struct survey_result *known,
                                 const struct sampling *p, const int32_t *history, const uint32_t *mask, int len,
                                 const double *sums)
{
    double norm = known->norm;
    if (!isfinite(norm))
        return -1;
    struct best best = mask != NULL ? known->allowed : known->best;
    int token = best.id >= 0 ? best.id : 0;
    bool adjusted = is_adjusted(p, len);
    if (best.id >= 0 && draws_of_all(p, r->vocab, len)) {
        int drawn = choose_of_all(sums, r->vocab, plain_weight<T>{logits, mask, best.x, p->temperature}, p, len);
        token = drawn >= 0 ? drawn : token;
    } else if (p->temperature > 0 || adjusted) {
        for (int i = threadIdx.x; i < r->vocab; i += SAMPLE_THREADS)
            r->score[i] = to_float(logits[i]);
        __syncthreads();
        adjust(r, p, history, len);
        if (mask != NULL)
            forbid(r, mask);
        token = choose(r, p, len);
    }
    if (threadIdx.x == 0)
        out->logprob = (float)(to_float(logits[token]) - norm);
    int n_top = p->n_top < SAMPLING_MAX_TOP ? p->n_top : SAMPLING_MAX_TOP;
    if (n_top > 0)
        best_tokens(out, logits, r->vocab, n_top, norm);
    return token;
}

/* cuda_state.fault_dev: the first bad row of a launch, and the number of finished rows. Zero between launches. */
struct fault_tally {
    unsigned ended, worst; /* worst: n_rows - row, 0: none */
};

/* The last block to finish reports to the host, so that every rank reports the same failure. */
__device__ static void report(struct fault_tally *tally, struct cuda_fault *fault, const int32_t *row_slot, int row,
                              int n_rows, bool bad)
{
    if (bad)
        atomicMax(&tally->worst, (unsigned)(n_rows - row));
    __threadfence();
    if (atomicAdd(&tally->ended, 1) + 1 < (unsigned)n_rows)
        return;
    __threadfence();
    unsigned worst = atomicExch(&tally->worst, 0);
    tally->ended = 0;
    if (worst > 0) {
        fault->slot = row_slot[n_rows - (int)worst];
        fault->n_rows = 1;
        __threadfence_system();
    }
}

__device__ static void clear(struct sampled *result)
{
    for (int k = threadIdx.x; k < (int)(sizeof *result / sizeof(int32_t)); k += SAMPLE_THREADS)
        ((int32_t *)result)[k] = 0;
    __syncthreads();
}

template <typename T, int C>
__global__ void __launch_bounds__(SAMPLE_THREADS, 1)
    sample_kernel(struct sampled *out, const T *logits, const int32_t *row_slot, const int32_t *row_len,
                  struct sampler s, size_t stride, struct fault_tally *tally, struct cuda_fault *fault)
{
    __shared__ double sums[STRETCHES];
    struct row r = {};
    after_previous();
    int i = blockIdx.x / C, slot = row_slot[i], len = row_len[i] < s.max_len ? row_len[i] : s.max_len, token = -1;
    bool known = slot >= 0 && slot < s.n_slots; /* else an empty row of a captured step */
    const uint32_t *mask = known && s.params[slot].masked ? s.mask + (size_t)i * s.mask_words : NULL;
    const T *row = logits + (size_t)i * s.vocab;
    struct survey_result survey = {};
    if (known)
        survey = survey_row<T, C>(row, s.vocab, mask);
    if (known && draws_of_all(&s.params[slot], s.vocab, len)) {
        double max = mask != NULL ? survey.allowed.x : survey.best.x;
        sum_stretches<T, C>(sums, s.vocab, plain_weight<T>{row, mask, max, s.params[slot].temperature});
    }
    if (blockIdx.x % C > 0)
        return;
    char *scratch = (char *)s.scratch + i * stride;
    struct sampled *result = &out[i];
    r.probability = (double *)scratch;
    r.score = (float *)(scratch + align((size_t)s.vocab * sizeof(double)));
    r.vocab = s.vocab;
    clear(result);
    if (known)
        token = sample_row(result, &r, row, &survey, &s.params[slot], s.history + (size_t)slot * s.max_len, mask, len,
                           sums);
    if (threadIdx.x != 0)
        return;
    result->token = token < 0 ? 0 : token;
    result->slot = slot;
    if (known)
        s.last_token[slot] = result->token;
    report(tally, fault, row_slot, i, gridDim.x / C, known && token < 0);
}

/* Devices with early launches also support clusters. */
static bool shares_rows(const struct queue *q, int n_rows)
{
    return n_rows <= FEW && cuda_state(q)->launches_early;
}

void cuda_sample(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                 const int32_t *row_len, const struct sampler *s, int n_rows)
{
    nvtx_range range("sample");
    struct cuda_state *state = cuda_state(q);
    if (n_rows == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        const auto start = [&](auto kernel, int blocks) {
            launch_clusters(q, blocks, kernel, dim3((unsigned)(n_rows * blocks)), dim3(SAMPLE_THREADS), 0, out,
                            (const T *)logits, row_slot, row_len, *s, cuda_sample_scratch_bytes(s->vocab),
                            (struct fault_tally *)state->fault_dev, state->fault);
        };
        if (shares_rows(q, n_rows))
            start(sample_kernel<T, CLUSTER>, CLUSTER);
        else
            start(sample_kernel<T, 1>, 1);
    });
}

/* False when the logits are not numbers. */
template <typename T>
__device__ static bool score_row(struct sampled *out, const T *logits, int vocab, int token, int n_top)
{
    double norm = survey_row<T, 1>(logits, vocab, NULL).norm;
    if (!isfinite(norm) || token < 0 || token >= vocab)
        return false;
    if (threadIdx.x == 0)
        out->logprob = (float)(to_float(logits[token]) - norm);
    n_top = n_top < SAMPLING_MAX_TOP ? n_top : SAMPLING_MAX_TOP;
    if (n_top > 0)
        best_tokens(out, logits, vocab, n_top, norm);
    return true;
}

template <typename T>
__global__ void __launch_bounds__(SAMPLE_THREADS, 1)
    score_kernel(struct sampled *out, const T *logits, const int32_t *row_slot, const int32_t *row_token,
                 struct sampler s, struct fault_tally *tally, struct cuda_fault *fault)
{
    after_previous();
    int i = blockIdx.x, slot = row_slot[i], token = row_token[i];
    bool known = slot >= 0 && slot < s.n_slots, good = false;
    struct sampled *result = &out[i];
    clear(result);
    if (known)
        good = score_row(result, logits + (size_t)i * s.vocab, s.vocab, token, s.params[slot].n_prompt_top);
    if (threadIdx.x != 0)
        return;
    result->token = good ? token : 0;
    result->slot = slot;
    report(tally, fault, row_slot, i, gridDim.x, known && !good);
}

void cuda_score(struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                const int32_t *row_token, const struct sampler *s, int n_rows)
{
    nvtx_range range("score");
    struct cuda_state *state = cuda_state(q);
    if (n_rows == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        launch(q, score_kernel<T>, dim3((unsigned)n_rows), dim3(SAMPLE_THREADS), 0, out, (const T *)logits, row_slot,
               row_token, *s, (struct fault_tally *)state->fault_dev, state->fault);
    });
}
