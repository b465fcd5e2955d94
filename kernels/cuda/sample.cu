/* kernels/cuda/sample.cu - one token out of one row of logits, or how likely a given one is, one block a row; where rows are
 * few, some blocks look through a row together, and one of them goes on. The formulas are kernels/cpu/sample.c's, in double where
 * it uses double. What differs is the order of sums: the CPU adds in order of ids, a block adds warp by warp.
 * Both orders are fixed, so a run repeats itself bit for bit; the chosen token can differ from the CPU's only when the
 * uniform number falls within rounding (1e-15) of a border. The weights that top_p adds are integers, 2^-44 each: exact,
 * so that atomic sums have no order. */
#include "kernels/cuda/device.cuh"
#include "kernels/philox.h"

#include <cooperative_groups.h>
#include <float.h>
#include <math.h>

#define THREADS 1024
#define WARPS   32
#define ONE     17592186044416.0 /* 2^44: 2^19 weights of at most 1 fit into 64 bits */
#define SEEN    (1 << 30)
#define FEW     16 /* up to so many rows get CLUSTER blocks each: 128 of an H200's 132 multiprocessors */
#define CLUSTER 8

/* One row's work; every thread has its copy. `probability` doubles as the table of counts while penalties are applied. */
struct row {
    float *score;        /* [vocab] after penalties; -inf: forbidden */
    double *probability; /* [vocab] relative to the best score's */
    int vocab;
    int best;              /* the lowest id of the best score */
    uint32_t cut_k, cut_p; /* orders of the lowest scores that top_k and top_p keep */
    int last_tie;          /* of the scores equal to cut_p, ids up to this one stay */
    double min_p;
};

static __host__ __device__ size_t align(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

size_t cuda_sample_scratch_bytes(int vocab)
{
    return align((size_t)vocab * sizeof(double)) + align((size_t)vocab * sizeof(float));
}

/* A number's bits so that unsigned order is the number's order. */
__device__ static uint32_t order(float x)
{
    uint32_t bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The largest number and the lowest id that has it; NaN is never the largest. */
struct best {
    float x;
    int id;
};

__device__ static struct best better(struct best a, struct best b)
{
    if (a.id < 0 || b.id < 0)
        return a.id < 0 ? b : a;
    if (isnan(a.x) != isnan(b.x))
        return isnan(a.x) ? b : a;
    if (a.x < b.x || (!(a.x > b.x) && b.id < a.id))
        return b;
    return a;
}

__device__ static struct best block_best(struct best a)
{
    __shared__ struct best part[WARPS];
    for (int round = 0; round < 2; round++) {
        for (int d = 16; d > 0; d /= 2) {
            struct best other = {__shfl_xor_sync(0xffffffffu, a.x, d), __shfl_xor_sync(0xffffffffu, a.id, d)};
            a = better(a, other);
        }
        if (round == 1)
            break;
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32] = a;
        __syncthreads();
        a = part[threadIdx.x % 32];
    }
    __syncthreads();
    return a;
}

__device__ static struct best argmax(const float *x, int n)
{
    struct best a = {0, -1};
    for (int i = threadIdx.x; i < n; i += THREADS)
        a = better(a, best{x[i], i});
    a = block_best(a);
    return a.id < 0 ? best{0, 0} : a;
}

/* N more numbers, of ids from `first` on: *best and *sum, which is relative to it, take them in. */
template <typename T, int N>
__device__ static void take_in(struct best *best, float *sum, const vec<T, N> &v, int first)
{
    struct best top = *best;
    for (int k = 0; k < N; k++) {
        float f = to_float(v.e[k]);
        if (f > top.x || (f == top.x && top.id < 0))
            top = {f, first + k};
    }
    float more = 0;
    for (int k = 0; k < N; k++)
        more += expf(to_float(v.e[k]) - top.x);
    *sum = *sum * expf(best->x - top.x) + more;
    *best = top;
}

/* A block's share of a row: its best logit, id -1 if it has none above -inf, and the sum of exponentials relative to that. */
struct share {
    struct best best;
    double sum;
};

/* The share of block `part` of C. One pass; a thread's sum is relative to the best that it has seen. The exponentials are
 * float: only a reported log-probability depends on them. */
template <typename T, int N, int C>
__device__ static struct share survey(const T *x, int n, int part)
{
    const int AHEAD = 4, STEP = C * THREADS * N; /* AHEAD: loads under way */
    struct best a = {-FLT_MAX, -1};              /* of none: so that the differences below stay finite */
    float sum = 0;
    for (int i = (part * THREADS + (int)threadIdx.x) * N; i < n; i += AHEAD * STEP) {
        vec<T, N> v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (i + j * STEP < n)
                v[j] = *(const vec<T, N> *)(x + i + j * STEP);
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            if (i + j * STEP < n)
                take_in<T, N>(&a, &sum, v[j], i + j * STEP);
    }
    struct best top = block_best(a);
    return share{top, block_sum((double)(sum * expf(a.x - top.x)))};
}

/* The best logit, and log sum exp of all: not finite when one of them is NaN or +inf, or when all are -inf. The blocks of a
 * cluster share the row; only the first one, to which the others hand their shares, comes to know: id -1 for the others. */
template <typename T, int C>
__device__ static struct best survey_row(const T *logits, int vocab, double *norm)
{
    int part = C > 1 ? (int)blockIdx.x % C : 0;
    bool wide = vocab % (16 / sizeof(T)) == 0 && (size_t)logits % 16 == 0;
    struct share row = wide ? survey<T, 16 / sizeof(T), C>(logits, vocab, part) : survey<T, 1, C>(logits, vocab, part);
#if __CUDA_ARCH__ >= 900
    if constexpr (C > 1) {
        __shared__ struct share all[C];
        cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
        cluster.sync(); /* all have begun */
        if (threadIdx.x == 0)
            *cluster.map_shared_rank(&all[part], 0) = row;
        cluster.sync();
        if (part > 0)
            return best{0, -1};
        row = all[0];
        for (int k = 1; k < C; k++) {
            struct best top = better(row.best, all[k].best);
            row.sum = row.sum * exp((double)row.best.x - top.x) + all[k].sum * exp((double)all[k].best.x - top.x);
            row.best = top;
        }
    }
#endif
    if (row.best.id < 0)
        row.best = best{0, 0};
    *norm = row.best.x + log(row.sum);
    return row.best;
}

/* The n_top best logits, best first: each is the best of those that come after the one before. */
template <typename T>
__device__ static void best_tokens(struct sampled *out, const T *logits, int vocab, int n_top, double norm)
{
    struct best last = {INFINITY, -1};
    for (int k = 0; k < n_top; k++) {
        struct best a = {0, -1};
        for (int i = threadIdx.x; i < vocab && k < vocab; i += THREADS) {
            float x = to_float(logits[i]);
            if (k == 0 || x < last.x || (x == last.x && i > last.id))
                a = better(a, best{x, i});
        }
        last = block_best(a);
        if (threadIdx.x == 0) {
            out->top_id[k] = k < vocab ? last.id : -1; /* a vocabulary smaller than n_top */
            out->top_logprob[k] = k < vocab ? (float)(last.x - norm) : -INFINITY;
        }
    }
}

__device__ static bool has_penalty(const struct sampling *p)
{
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

/* Multiplications and sums are rounded one by one, as the CPU's are: the compiler would fuse them. */
__device__ static void penalize(struct row *r, const struct sampling *p, const int32_t *history, int len)
{
    int32_t *count = (int32_t *)r->probability;
    for (int i = threadIdx.x; i < r->vocab; i += THREADS)
        count[i] = 0;
    __syncthreads();
    for (int j = threadIdx.x; j < len; j += THREADS) {
        int32_t id = history[j];
        if (id < 0 || id >= r->vocab)
            continue;
        atomicOr(&count[id], SEEN);
        if (j >= p->prompt_len)
            atomicAdd(&count[id], 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < r->vocab; i += THREADS) {
        if (count[i] == 0)
            continue;
        int made = count[i] & ~SEEN;
        float s = r->score[i];
        s = s < 0 ? __fmul_rn(s, p->repetition_penalty) : s / p->repetition_penalty;
        if (made > 0)
            s = __fsub_rn(s, __fadd_rn(p->presence_penalty, __fmul_rn(p->frequency_penalty, (float)made)));
        r->score[i] = s;
    }
    __syncthreads();
}

/* An id may be named more than once: its first mention adds them all, in order. */
__device__ static void add_bias(struct row *r, const struct sampling *p)
{
    int n = p->n_bias < SAMPLING_MAX_BIAS ? p->n_bias : SAMPLING_MAX_BIAS;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        int id = p->bias_id[i];
        bool first = id >= 0 && id < r->vocab;
        for (int k = 0; k < i && first; k++)
            first = p->bias_id[k] != id;
        for (int k = i; k < n && first; k++)
            if (p->bias_id[k] == id)
                r->score[id] += p->bias[k];
    }
    __syncthreads();
}

__device__ static void adjust(struct row *r, const struct sampling *p, const int32_t *history, int len)
{
    add_bias(r, p);
    if (has_penalty(p))
        penalize(r, p, history, len);
    if (len - p->prompt_len < p->min_tokens && threadIdx.x < SAMPLING_MAX_EOS && (int)threadIdx.x < p->n_eos) {
        int id = p->eos[threadIdx.x];
        if (id >= 0 && id < r->vocab)
            r->score[id] = -INFINITY;
    }
    __syncthreads();
}

/* What is left of probability i after the cuts that are known. */
__device__ static double weight(const struct row *r, int i)
{
    uint32_t key = order(r->score[i]);
    double p = r->probability[i];
    bool keep =
        key >= r->cut_k && key >= r->cut_p && (key > r->cut_p || i <= r->last_tie) && (p >= r->min_p || i == r->best);
    return keep ? p : 0;
}

/* In integers: 1 for each that is left, or its share. */
__device__ static unsigned long long units(const struct row *r, int i, bool count)
{
    double p = weight(r, i);
    return count ? p > 0 : (unsigned long long)(p * ONE);
}

__device__ static unsigned long long total_units(const struct row *r, bool count)
{
    unsigned long long sum = 0;
    for (int i = threadIdx.x; i < r->vocab; i += THREADS)
        sum += units(r, i, count);
    return block_sum(sum);
}

/* bucket[digit] += u, which is at most ONE; digit < 0: nowhere. Lanes with equal digits, often all of a warp, add theirs
 * before: a bucket in shared memory takes one lane's 64 bits at a time. All lanes. */
__device__ static void add_to_bucket(unsigned long long *bucket, int digit, unsigned long long u)
{
    unsigned same = __match_any_sync(0xffffffffu, digit);
    unsigned low = __reduce_add_sync(same, (unsigned)(u & 0x3fffff)),
             high = __reduce_add_sync(same, (unsigned)(u >> 22));
    if (digit >= 0 && (int)threadIdx.x % 32 == __ffs((int)same) - 1)
        atomicAdd(&bucket[digit], ((unsigned long long)high << 22) + low);
}

/* The score at which the descending sum of units reaches `goal`, one digit of 8 bits after the other; *above becomes the
 * sum over better scores, which is less than goal. If all together are less, the lowest score. */
__device__ static uint32_t find_cut(const struct row *r, unsigned long long goal, bool count, unsigned long long *above)
{
    __shared__ unsigned long long bucket[256], sum;
    __shared__ int digit;
    uint32_t prefix = 0, known = 0; /* the digits found, and the mask of their bits */
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += THREADS)
            bucket[i] = 0;
        __syncthreads();
        for (int first = 0; first < r->vocab; first += THREADS) {
            int i = first + (int)threadIdx.x;
            uint32_t key = i < r->vocab ? order(r->score[i]) : 0;
            unsigned long long u = i < r->vocab && (key & known) == prefix ? units(r, i, count) : 0;
            add_to_bucket(bucket, u > 0 ? (int)(key >> shift & 255) : -1, u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            sum = *above;
            digit = 255;
            int lowest = 255;
            for (; digit >= 0 && sum + bucket[digit] < goal; digit--) {
                if (bucket[digit] > 0)
                    lowest = digit;
                sum += bucket[digit];
            }
            if (digit < 0) {
                digit = lowest;
                sum -= bucket[lowest];
            }
        }
        __syncthreads();
        *above = sum;
        prefix |= (uint32_t)digit << shift;
        known |= 255u << shift;
        __syncthreads();
    }
    return prefix;
}

/* A warp's stretch of ids. */
__device__ static int stretch(int vocab)
{
    return ((vocab + WARPS - 1) / WARPS + 31) / 32 * 32;
}

/* The first id, in order of ids, at which the sum of value(id) exceeds goal(total); the last id with a value when rounding
 * lets none; -1 when there is no value. Sums by warps, each over a stretch of ids, find the stretch; then the block looks
 * into it. */
template <typename X, typename VALUE, typename GOAL>
__device__ static int find_id(int vocab, VALUE value, GOAL goal_of)
{
    __shared__ X part[WARPS + 1], before[WARPS];
    __shared__ int found, last;
    int length = stretch(vocab), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    X mine = 0;
    for (int i = warp * length + lane; i < (warp + 1) * length && i < vocab; i += 32)
        mine += value(i);
    mine = warp_sum(mine);
    if (lane == 0)
        part[warp] = mine;
    if (threadIdx.x == 0)
        found = last = -1;
    __syncthreads();
    X total = 0, sum = 0;
    for (int w = 0; w < WARPS; w++)
        total += part[w];
    X goal = goal_of(total);
    int chosen = -1, fallback = -1; /* the stretch with the border; the last one with a value */
    X below = 0, below_fallback = 0;
    for (int w = 0; w < WARPS; w++) {
        if (chosen < 0 && sum + part[w] > goal) {
            chosen = w;
            below = sum;
        }
        if (part[w] > 0) {
            fallback = w;
            below_fallback = sum;
        }
        sum += part[w];
    }
    if (chosen < 0) {
        chosen = fallback;
        below = below_fallback;
    }
    if (chosen < 0)
        return -1;
    int end = (chosen + 1) * length < vocab ? (chosen + 1) * length : vocab;
    for (int first = chosen * length; first < end; first += THREADS) {
        int i = first + threadIdx.x;
        X v = i < end ? value(i) : X(0), upto = v;
        for (int d = 1; d < 32; d *= 2) {
            X other = __shfl_up_sync(0xffffffffu, upto, d);
            upto += lane >= d ? other : X(0);
        }
        __syncthreads();
        if (lane == 31)
            before[warp] = upto;
        __syncthreads();
        X start = below;
        for (int w = 0; w < WARPS; w++) {
            start += w < warp ? before[w] : X(0);
            below += before[w];
        }
        if (v > 0) {
            atomicMax(&last, i);
            if (start + upto > goal)
                atomicMin((unsigned *)&found, (unsigned)i);
        }
    }
    __syncthreads();
    int id = found >= 0 ? found : last;
    __syncthreads();
    return id;
}

/* Keep a token while those before it in descending order, lower ids first among equals, have less than p together. */
__device__ static void keep_top_p(struct row *r, double p)
{
    unsigned long long above, total = total_units(r, false), goal = (unsigned long long)ceil(p * (double)total);
    goal = goal > 0 ? goal : 1; /* the best always stays */
    uint32_t cut = find_cut(r, goal, false, &above);
    /* All scores at the cut have the same weight: as many of them stay as reach the goal. */
    const struct row *all = r;
    int first = find_id<int>(
        r->vocab, [=](int i) { return order(all->score[i]) == cut && units(all, i, false) > 0 ? 1 : 0; },
        [](int) { return 0; });
    unsigned long long each = first >= 0 ? units(r, first, false) : 1;
    unsigned long long n = (goal - above + each - 1) / each;
    int last = find_id<int>(
        r->vocab, [=](int i) { return order(all->score[i]) == cut && units(all, i, false) > 0 ? 1 : 0; },
        [=](int ties) { return (unsigned long long)ties < n ? ties - 1 : (int)n - 1; });
    r->cut_p = cut;
    r->last_tie = last;
}

/* Differences from the best score are divided by the temperature: however low it is, nothing overflows. */
__device__ static int choose(struct row *r, const struct sampling *p, int len)
{
    struct best best = argmax(r->score, r->vocab);
    double max = best.x;
    if (!(p->temperature > 0) || !isfinite(max))
        return best.id;
    for (int i = threadIdx.x; i < r->vocab; i += THREADS) {
        double s = r->score[i];
        r->probability[i] = s >= -INFINITY ? exp((s - max) / p->temperature) : 0;
    }
    __syncthreads();
    r->best = best.id;
    r->cut_k = r->cut_p = 0;
    r->last_tie = r->vocab;
    r->min_p = 0;
    if (p->top_k > 0 && p->top_k < r->vocab) {
        unsigned long long above;
        r->cut_k = find_cut(r, p->top_k, true, &above);
    }
    if (p->top_p < 1)
        keep_top_p(r, p->top_p);
    if (p->min_p > 0)
        r->min_p = p->min_p;
    double u = philox_uniform(p->seed, (uint64_t)len);
    const struct row *all = r;
    int id = find_id<double>(
        r->vocab, [=](int i) { return weight(all, i); }, [=](double total) { return u * total; });
    return id >= 0 ? id : best.id;
}

/* The same where no score is changed and none is left out: straight from the logits. */
template <typename T>
__device__ static int choose_of_all(const T *logits, int vocab, struct best best, const struct sampling *p, int len)
{
    double max = best.x, temperature = p->temperature, u = philox_uniform(p->seed, (uint64_t)len);
    int id = find_id<double>(
        vocab,
        [=](int i) {
            double s = to_float(logits[i]) - max;
            return exp(temperature == 1 ? s : s / temperature); /* divisions take as long as the rest */
        },
        [=](double total) { return u * total; });
    return id >= 0 ? id : best.id;
}

/* The token, or -1 when the logits are not numbers. */
template <typename T>
__device__ static int sample_row(struct sampled *out, struct row *r, const T *logits, struct best best, double norm,
                                 const struct sampling *p, const int32_t *history, int len)
{
    if (!isfinite(norm))
        return -1;
    int token = best.id;
    bool adjusted = p->n_bias > 0 || has_penalty(p) || len - p->prompt_len < p->min_tokens;
    bool cut = (p->top_k > 0 && p->top_k < r->vocab) || p->top_p < 1 || p->min_p > 0;
    if (p->temperature > 0 && !adjusted && !cut) {
        token = choose_of_all(logits, r->vocab, best, p, len);
    } else if (p->temperature > 0 || adjusted) {
        for (int i = threadIdx.x; i < r->vocab; i += THREADS)
            r->score[i] = to_float(logits[i]);
        __syncthreads();
        adjust(r, p, history, len);
        token = choose(r, p, len);
    }
    if (threadIdx.x == 0)
        out->logprob = (float)(to_float(logits[token]) - norm);
    int n_top = p->n_top < SAMPLING_MAX_TOP ? p->n_top : SAMPLING_MAX_TOP;
    if (n_top > 0)
        best_tokens(out, logits, r->vocab, n_top, norm);
    return token;
}

/* cuda_state.fault_dev: the first bad row of a launch, and how many rows' blocks have ended. Zero between launches. */
struct tally {
    unsigned ended, worst; /* worst: n_rows - row, 0: none */
};

/* The last row's block to end tells the host, so that the failure told is the same on every rank. */
__device__ static void report(struct tally *tally, struct cuda_fault *fault, const int32_t *row_slot, int row,
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
    for (int k = threadIdx.x; k < (int)(sizeof *result / sizeof(int32_t)); k += THREADS)
        ((int32_t *)result)[k] = 0;
    __syncthreads();
}

template <typename T, int C>
__global__ void __launch_bounds__(THREADS, 1)
    sample_kernel(struct sampled *out, const T *logits, const int32_t *row_slot, const int32_t *row_len,
                  struct sampler s, size_t stride, struct tally *tally, struct cuda_fault *fault)
{
    struct row r = {};
    after_previous();
    int i = blockIdx.x / C, slot = row_slot[i], token = -1;
    bool known = slot >= 0 && slot < s.n_slots; /* else an empty row of a recorded step */
    double norm = 0;
    struct best best = {0, 0};
    if (known)
        best = survey_row<T, C>(logits + (size_t)i * s.vocab, s.vocab, &norm);
    if (blockIdx.x % C > 0)
        return;
    char *scratch = (char *)s.scratch + i * stride;
    struct sampled *result = &out[i];
    r.probability = (double *)scratch;
    r.score = (float *)(scratch + align((size_t)s.vocab * sizeof(double)));
    r.vocab = s.vocab;
    clear(result);
    if (known)
        token = sample_row(result, &r, logits + (size_t)i * s.vocab, best, norm, &s.params[slot],
                           s.history + (size_t)slot * s.max_len, row_len[i] < s.max_len ? row_len[i] : s.max_len);
    if (threadIdx.x != 0)
        return;
    result->token = token < 0 ? 0 : token;
    result->slot = slot;
    if (known)
        s.last_token[slot] = result->token;
    report(tally, fault, row_slot, i, gridDim.x / C, known && token < 0);
}

/* Clusters of blocks come with the same devices as launches that begin early. */
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
            launch_clusters(q, blocks, kernel, dim3((unsigned)(n_rows * blocks)), dim3(THREADS), 0, out,
                            (const T *)logits, row_slot, row_len, *s, cuda_sample_scratch_bytes(s->vocab),
                            (struct tally *)state->fault_dev, state->fault);
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
    double norm;
    (void)survey_row<T, 1>(logits, vocab, &norm);
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
__global__ void __launch_bounds__(THREADS, 1)
    score_kernel(struct sampled *out, const T *logits, const int32_t *row_slot, const int32_t *row_token,
                 struct sampler s, struct tally *tally, struct cuda_fault *fault)
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
        launch(q, score_kernel<T>, dim3((unsigned)n_rows), dim3(THREADS), 0, out, (const T *)logits, row_slot,
               row_token, *s, (struct tally *)state->fault_dev, state->fault);
    });
}
