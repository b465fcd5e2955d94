/* kernels/cuda/sampling/sample_choose.cuh - the choice of one row's token, by one block: penalties and biases, top_k,
 * top_p and min_p, and the id selected by a uniform number (inverse CDF). The weights that top_p sums are integers in
 * units of 2^-44: exact, so that the order of atomic additions does not matter. */
#ifndef SAMPLING_SAMPLE_CHOOSE_CUH
#define SAMPLING_SAMPLE_CHOOSE_CUH

#include "kernels/cuda/sampling/sample_survey.cuh"
#include "kernels/philox.h"

#define ONE  17592186044416.0 /* 2^44: 2^19 weights of at most 1 fit into 64 bits */
#define SEEN (1 << 30)

/* One row's work; each thread has its copy. `probability` doubles as the table of counts while penalties are applied */
struct row {
    float *score;        /* [vocab] after penalties; -inf: forbidden */
    double *probability; /* [vocab] relative to the best score's */
    int vocab;
    int best;              /* the lowest id of the best score */
    uint32_t cut_k, cut_p; /* keys of the lowest scores that top_k and top_p keep */
    int last_tie;          /* among scores equal to cut_p, ids up to this one stay */
    double min_p;
};

/* A float's bits such that unsigned order is the float's order. */
__device__ static uint32_t order(float x)
{
    uint32_t bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ static bool has_penalty(const struct sampling *p)
{
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

/* Multiplications and additions are rounded separately, as on the CPU: the compiler would fuse them. */
__device__ static void penalize(struct row *r, const struct sampling *p, const int32_t *history, int len)
{
    int32_t *count = (int32_t *)r->probability;
    for (int i = threadIdx.x; i < r->vocab; i += SAMPLE_THREADS)
        count[i] = 0;
    __syncthreads();
    for (int j = threadIdx.x; j < len; j += SAMPLE_THREADS) {
        int32_t id = history[j];
        if (id < 0 || id >= r->vocab)
            continue;
        atomicOr(&count[id], SEEN);
        if (j >= p->prompt_len)
            atomicAdd(&count[id], 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < r->vocab; i += SAMPLE_THREADS) {
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

/* An id may occur more than once: its first occurrence adds them all, in order. */
__device__ static void add_bias(struct row *r, const struct sampling *p)
{
    int n = p->n_bias < SAMPLING_MAX_BIAS ? p->n_bias : SAMPLING_MAX_BIAS;
    for (int i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
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

/* Tokens whose bit is not set are forbidden. */
__device__ static void forbid(struct row *r, const uint32_t *mask)
{
    for (int i = threadIdx.x; i < r->vocab; i += SAMPLE_THREADS)
        if (!allows(mask, i))
            r->score[i] = -INFINITY;
    __syncthreads();
}

/* Probability i after the cuts known so far. */
__device__ static double weight(const struct row *r, int i)
{
    uint32_t key = order(r->score[i]);
    double p = r->probability[i];
    bool keep =
        key >= r->cut_k && key >= r->cut_p && (key > r->cut_p || i <= r->last_tie) && (p >= r->min_p || i == r->best);
    return keep ? p : 0;
}

/* In integers: 1 for each remaining token, or its weight. */
__device__ static unsigned long long units(const struct row *r, int i, bool count)
{
    double p = weight(r, i);
    return count ? p > 0 : (unsigned long long)(p * ONE);
}

__device__ static unsigned long long total_units(const struct row *r, bool count)
{
    unsigned long long sum = 0;
    for (int i = threadIdx.x; i < r->vocab; i += SAMPLE_THREADS)
        sum += units(r, i, count);
    return block_sum(sum);
}

/* bucket[digit] += u, which is at most ONE; digit < 0: nothing. Lanes with equal digits, often all of a warp, are added
 * up first: a bucket in shared memory takes one lane's 64 bits at a time. Called by all lanes. */
__device__ static void add_to_bucket(unsigned long long *bucket, int digit, unsigned long long u)
{
    unsigned same = __match_any_sync(0xffffffffu, digit);
    unsigned low = __reduce_add_sync(same, (unsigned)(u & 0x3fffff)),
             high = __reduce_add_sync(same, (unsigned)(u >> 22));
    if (digit >= 0 && (int)threadIdx.x % 32 == __ffs((int)same) - 1)
        atomicAdd(&bucket[digit], ((unsigned long long)high << 22) + low);
}

/* The score at which the descending sum of units reaches `goal`, found by radix selection with 8-bit digits; *above
 * becomes the sum over better scores, which is less than goal. If the total is less, the lowest score. */
__device__ static uint32_t find_cut(const struct row *r, unsigned long long goal, bool count, unsigned long long *above)
{
    __shared__ unsigned long long bucket[256], sum;
    __shared__ int digit;
    uint32_t prefix = 0, known = 0; /* the digits found, and the mask of their bits */
    *above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += SAMPLE_THREADS)
            bucket[i] = 0;
        __syncthreads();
        for (int first = 0; first < r->vocab; first += SAMPLE_THREADS) {
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

/* Length of each of n stretches of ids. */
__device__ static int stretch(int vocab, int n)
{
    return ((vocab + n - 1) / n + 31) / 32 * 32;
}

/* The sum of value(id) over a stretch, by one warp. */
template <typename X, typename VALUE>
__device__ static X stretch_sum(int begin, int end, VALUE value)
{
    X mine = 0;
    for (int i = begin + (int)threadIdx.x % 32; i < end; i += 32)
        mine += value(i);
    return warp_sum(mine);
}

/* The first of n stretches after which the running sum, which starts at *below, exceeds the goal; the last one with a
 * value when rounding lets none exceed it; -1 when there is no value. *below becomes the sum before it. */
template <typename X>
__device__ static int find_stretch(const X *part, int n, X goal, X *below)
{
    int chosen = -1, fallback = -1;
    X sum = *below, below_chosen = sum, below_fallback = sum;
    for (int w = 0; w < n; w++) {
        if (chosen < 0 && sum + part[w] > goal) {
            chosen = w;
            below_chosen = sum;
        }
        if (part[w] > 0) {
            fallback = w;
            below_fallback = sum;
        }
        sum += part[w];
    }
    *below = chosen < 0 ? below_fallback : below_chosen;
    return chosen < 0 ? fallback : chosen;
}

/* The first id of [begin, end) at which the running sum, which starts at `below`, exceeds the goal; else the last one
 * with a value. */
template <typename X, typename VALUE>
__device__ static int find_within(int begin, int end, X below, X goal, VALUE value)
{
    __shared__ X before[SAMPLE_WARPS];
    __shared__ int found, last;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        found = last = -1;
    for (int first = begin; first < end; first += SAMPLE_THREADS) {
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
        for (int w = 0; w < SAMPLE_WARPS; w++) {
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

/* The first id, in order of ids, at which the sum of value(id) exceeds goal(total); the last id with a value when
 * rounding lets none exceed it; -1 when there is no value. Warps sum stretches of ids to find the stretch; then the
 * block searches it. */
template <typename X, typename VALUE, typename GOAL>
__device__ static int find_id(int vocab, VALUE value, GOAL goal_of)
{
    __shared__ X part[SAMPLE_WARPS];
    int length = stretch(vocab, SAMPLE_WARPS), warp = threadIdx.x / 32;
    X sum = stretch_sum<X>(warp * length, min((warp + 1) * length, vocab), value);
    if (threadIdx.x % 32 == 0)
        part[warp] = sum;
    __syncthreads();
    X total = 0, below = 0;
    for (int w = 0; w < SAMPLE_WARPS; w++)
        total += part[w];
    X goal = goal_of(total);
    int chosen = find_stretch(part, SAMPLE_WARPS, goal, &below);
    if (chosen < 0)
        return -1;
    return find_within(chosen * length, min((chosen + 1) * length, vocab), below, goal, value);
}

/* Keeps a token while those before it in descending order, lower ids first among equals, sum to less than p. */
__device__ static void keep_top_p(struct row *r, double p)
{
    unsigned long long above, total = total_units(r, false), goal = (unsigned long long)ceil(p * (double)total);
    goal = goal > 0 ? goal : 1; /* the best always stays */
    uint32_t cut = find_cut(r, goal, false, &above);
    /* All scores at the cut have the same weight: the fewest that reach the goal stay. */
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

/* Differences from the best score are divided by the temperature: nothing overflows, however low it is. */
__device__ static int choose(struct row *r, const struct sampling *p, int len)
{
    struct best best = argmax(r->score, r->vocab);
    double max = best.x;
    if (!(p->temperature > 0) || !isfinite(max))
        return best.id;
    for (int i = threadIdx.x; i < r->vocab; i += SAMPLE_THREADS) {
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

/* The weight of a token where no score is modified or cut off: directly from the logits that the mask allows (NULL:
 * all), relative to `max`. */
template <typename T>
struct plain_weight {
    const T *logits;
    const uint32_t *mask;
    double max, temperature;

    __device__ double operator()(int i) const
    {
        if (!allows(mask, i))
            return 0.0;
        double s = to_float(logits[i]) - max;
        return exp(temperature == 1 ? s : s / temperature); /* divisions cost as much as the rest */
    }
};

#define STRETCHES 256 /* of a row, in runs of RUN: the exponentials are slow, so a cluster's blocks share them */
#define RUN       (STRETCHES / SAMPLE_WARPS)

/* The sums of a row's stretches; a cluster's blocks store them with its first block. Called by all threads of all its
 * blocks. */
template <typename T, int C>
__device__ static void sum_stretches(double *sum, int vocab, const struct plain_weight<T> &value)
{
    const int MINE = STRETCHES / C;
    int length = stretch(vocab, STRETCHES), first = C > 1 ? (int)blockIdx.x % C * MINE : 0;
    for (int s = first + (int)threadIdx.x / 32; s < first + MINE; s += SAMPLE_WARPS) {
        double x = stretch_sum<double>(s * length, min((s + 1) * length, vocab), value);
        double *to = &sum[s];
#if __CUDA_ARCH__ >= 900
        if constexpr (C > 1)
            to = cooperative_groups::this_cluster().map_shared_rank(to, 0);
#endif
        if (threadIdx.x % 32 == 0)
            *to = x;
    }
#if __CUDA_ARCH__ >= 900
    if constexpr (C > 1) {
        cooperative_groups::this_cluster().sync();
        return;
    }
#endif
    __syncthreads();
}

/* The token selected by a uniform number, by the sums of the row's stretches; -1 when there is none. */
template <typename T>
__device__ static int choose_of_all(const double *sum, int vocab, const struct plain_weight<T> &value,
                                    const struct sampling *p, int len)
{
    __shared__ double run_sum[SAMPLE_WARPS];
    int length = stretch(vocab, STRETCHES);
    if (threadIdx.x < SAMPLE_WARPS) {
        double mine = 0;
        for (int k = 0; k < RUN; k++)
            mine += sum[threadIdx.x * RUN + k];
        run_sum[threadIdx.x] = mine;
    }
    __syncthreads();
    double total = 0, below = 0;
    for (int w = 0; w < SAMPLE_WARPS; w++)
        total += run_sum[w];
    double goal = philox_uniform(p->seed, (uint64_t)len) * total;
    int chosen = find_stretch(run_sum, SAMPLE_WARPS, goal, &below);
    if (chosen < 0)
        return -1;
    chosen = chosen * RUN + find_stretch(sum + chosen * RUN, RUN, goal, &below);
    return find_within(chosen * length, min((chosen + 1) * length, vocab), below, goal, value);
}

#endif
