/* kernels/cuda/attention/attention_many.cuh - attention of single tokens in large batches. A pair of warps processes an
 * item (see attention_decode.cuh), or a part of its keys if they are very many: each has its own ring of copies and
 * every other block of the cache, and the first one joins both sums in the end. The number of parts depends only on the
 * number of keys, unless there are so many items that none is divided; the last pair to finish adds the parts. */
#ifndef ATTENTION_ATTENTION_MANY_CUH
#define ATTENTION_ATTENTION_MANY_CUH

#include "kernels/cuda/attention/attention_decode.cuh"

#define MANY_WARPS       2 /* of a block of the grid, which share an item */
#define MANY_PARTS       8
#define MANY_PART_BLOCKS 16 /* least blocks of the cache per part */
#define MANY_TOKENS      16 /* tokens that a pair checks if it is not known which ones are single */

/* A warp's part of shared memory. */
template <typename T, int HD>
struct many_warp {
    attention_ring<T, HD> ring;
    uint4 query[attention_query<T, HD>::shared_bytes / 16 + 1];
};

/* The warp's keys of [begin, end). */
template <typename T, int HD, typename C, typename TOKEN>
__device__ static inline void attend_alone(many_warp<T, HD> *w, attention_sums<T, HD> &sums,
                                           const attention_args<T, C> &a, const decode_item &m, TOKEN token)
{
    attention_query<T, HD> query;
    query.shared = w->query + threadIdx.x % 32;
    attend_blocks<MANY_WARPS>(&w->ring, sums, query, a, m, token, [&] {
        let_next_begin(); /* see attend_item */
        load_query(query, a, m);
    });
}

/* Adds the second warp's sums to the first one's. */
template <typename T, int HD>
__device__ static inline void join_warps(many_warp<T, HD> *of_both, attention_sums<T, HD> &sums)
{
    const int lane = threadIdx.x % 32;
    float *other = (float *)of_both[1].ring.k + lane; /* [HD / 2 + 4][lanes] */
    static_assert(sizeof of_both[1].ring.k + sizeof of_both[1].ring.v >= (HD / 2 + 4) * 32 * sizeof(float),
                  "room for the sums");
    if (threadIdx.x >= 32) {
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                other[(j * 4 + i) * 32] = sums.out[j][i];
#pragma unroll
        for (int i = 0; i < 2; i++)
            other[(HD / 2 + i) * 32] = sums.best[i], other[(HD / 2 + 2 + i) * 32] = sums.sum[i];
    }
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float best = other[(HD / 2 + i) * 32], top = fmaxf(sums.best[i], best);
        const float keep = sums.best[i] == -INFINITY ? 0.0f : exp2f(sums.best[i] - top);
        const float share = best == -INFINITY ? 0.0f : exp2f(best - top);
        sums.best[i] = top;
        sums.sum[i] = fmaf(other[(HD / 2 + 2 + i) * 32], share, sums.sum[i] * keep);
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                sums.out[j][2 * i + e] = fmaf(other[(j * 4 + 2 * i + e) * 32], share, sums.out[j][2 * i + e] * keep);
    }
}

/* Stores this part for the last one; true in the last one. By one warp. */
template <typename T, int HD, typename C>
__device__ static inline bool hand_in_alone(const attention_sums<T, HD> &sums, const attention_args<T, C> &a,
                                            const decode_item &m)
{
    int lane = threadIdx.x % 32;
    size_t at = ((size_t)m.index * a.max_parts + m.part) * a.rows_per_item;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = lane / 4 + i * 8;
        if (row >= m.n_rows)
            continue;
#pragma unroll
        for (int j = 0; j < HD / 8; j++)
            *(float2 *)&a.partial[(at + row) * HD + j * 8 + lane % 4 * 2] =
                make_float2(sums.out[j][2 * i], sums.out[j][2 * i + 1]);
        if (lane % 4 == 0)
            a.partial_sums[at + row] = make_float2(sums.best[i], sums.sum[i]);
    }
    __syncwarp();
    unsigned n_before = 0;
    if (lane == 0) { /* for all lanes: fences and barriers are cumulative */
        __threadfence();
        n_before = atomicAdd(&a.n_arrived[m.index], 1u);
        __threadfence();
        if (n_before == (unsigned)m.n_parts - 1)
            a.n_arrived[m.index] = 0; /* for the next launch */
    }
    __syncwarp();
    return __shfl_sync(0xffffffffu, n_before, 0) == (unsigned)m.n_parts - 1;
}

/* The sums of all parts, added in order. */
template <typename T, int HD, typename C>
__device__ static inline void add_parts_alone(attention_sums<T, HD> &sums, const attention_args<T, C> &a,
                                              const decode_item &m)
{
    int lane = threadIdx.x % 32;
    size_t at = (size_t)m.index * a.max_parts * a.rows_per_item;
    sums.clear();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = lane / 4 + i * 8;
        if (row >= m.n_rows)
            continue;
        for (int p = 0; p < m.n_parts; p++)
            sums.best[i] = fmaxf(sums.best[i], __ldcg(&a.partial_sums[at + p * a.rows_per_item + row]).x);
        for (int p = 0; p < m.n_parts; p++) {
            size_t from = at + p * a.rows_per_item + row;
            float2 part = __ldcg(&a.partial_sums[from]);
            float scale = part.x == -INFINITY ? 0.0f : exp2f(part.x - sums.best[i]);
            sums.sum[i] = fmaf(part.y, scale, sums.sum[i]);
#pragma unroll
            for (int j = 0; j < HD / 8; j++) {
                float2 x = __ldcg((const float2 *)&a.partial[from * HD + j * 8 + lane % 4 * 2]);
                sums.out[j][2 * i] = fmaf(x.x, scale, sums.out[j][2 * i]);
                sums.out[j][2 * i + 1] = fmaf(x.y, scale, sums.out[j][2 * i + 1]);
            }
        }
    }
}

template <typename T, int HD, typename C>
__device__ static inline void store_alone(attention_sums<T, HD> &sums, const attention_args<T, C> &a,
                                          const decode_item &m)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = threadIdx.x % 32 / 4 + i * 8;
        if (row >= m.n_rows)
            continue;
        sums.sum[i] += sink_weight(a, m.head0 + row, m.seen.last, sums.best[i]);
        sums.store(i, a.out + ((size_t)m.t * a.heads.n_heads + m.head0 + row) * a.heads.head_dim, a.heads.head_dim);
    }
}

/* The prefix that token t shares with others: attention_prompts.cuh has attended to it for all of them. NULL: none */
template <typename T, typename C>
__device__ static inline const struct shared_prefix *prefix_of(const attention_args<T, C> &a, int t)
{
    if (a.prefixes == NULL || t >= PREFIX_TOKENS || t >= a.n_alone || a.prefixes->prefix_of[t] < 0)
        return NULL;
    return &a.prefixes->prefix[a.prefixes->prefix_of[t]];
}

/* Adds the sums over the prefix's keys, in the order of their parts. */
template <typename T, int HD, typename C>
__device__ static inline void add_shared(attention_sums<T, HD> &sums, const attention_args<T, C> &a,
                                         const decode_item &m, const struct shared_prefix &prefix)
{
    const int STEP = HD <= 128 ? 128 : 64;
    int lane = threadIdx.x % 32, n_parts = parts_of_prefix<STEP>(prefix.n_blocks, a.shared_parts);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = lane / 4 + i * 8;
        if (row >= m.n_rows)
            continue;
        size_t at = ((size_t)a.prefixes->place[m.t] * a.heads.n_heads + m.head0 + row) * a.shared_parts;
        float best = sums.best[i];
        for (int p = 0; p < n_parts; p++)
            best = fmaxf(best, a.shared_sums[at + p].x);
        float keep = sums.best[i] == -INFINITY ? 0.0f : exp2f(sums.best[i] - best);
        sums.best[i] = best;
        sums.sum[i] *= keep;
#pragma unroll
        for (int j = 0; j < HD / 8; j++) {
            sums.out[j][2 * i] *= keep;
            sums.out[j][2 * i + 1] *= keep;
        }
        for (int p = 0; p < n_parts; p++) {
            float2 part = a.shared_sums[at + p];
            float scale = exp2f(part.x - best);
            sums.sum[i] = fmaf(part.y, scale, sums.sum[i]);
#pragma unroll
            for (int j = 0; j < HD / 8; j++) {
                float2 x = *(const float2 *)&a.shared[(at + p) * HD + j * 8 + lane % 4 * 2];
                sums.out[j][2 * i] = fmaf(x.x, scale, sums.out[j][2 * i]);
                sums.out[j][2 * i + 1] = fmaf(x.y, scale, sums.out[j][2 * i + 1]);
            }
        }
    }
}

template <typename T, int HD, typename C, typename TOKEN>
__device__ static inline void run_item(many_warp<T, HD> *of_both, const attention_args<T, C> &a, const decode_item &m,
                                       const TOKEN &token)
{
    attention_sums<T, HD> sums;
    attend_alone(of_both + threadIdx.x / 32, sums, a, m, token);
    join_warps(of_both, sums);
    if (threadIdx.x >= 32)
        return;
    if (m.n_parts > 1) {
        if (!hand_in_alone(sums, a, m))
            return;
        add_parts_alone(sums, a, m);
    }
    const struct shared_prefix *prefix = prefix_of(a, m.t);
    if (prefix != NULL)
        add_shared(sums, a, m, *prefix);
    store_alone(sums, a, m);
}

/* Has token t no neighbour of its own sequence? */
template <typename T, typename C>
__device__ static inline bool is_alone(const attention_args<T, C> &a, int t)
{
    int slot = a.slot[t];
    return !(t > 0 && a.slot[t - 1] == slot) && !(t + 1 < a.n_tokens && a.slot[t + 1] == slot);
}

/* Work of a block of a kernel. Its number: first [n_alone][max_parts][items of a token], then [bundles of MANY_TOKENS
 * others][items]. */
template <typename T, int HD, typename C, typename TOKEN>
__device__ static inline void many_block(const attention_args<T, C> &a, const TOKEN &token)
{
    extern __shared__ uint4 shared[];
    int n_items = a.heads.n_kv_heads * a.head_parts, lane = threadIdx.x % 32, unit = (int)blockIdx.x;
    many_warp<T, HD> *of_both = (many_warp<T, HD> *)shared;
    int which = unit % n_items, part = unit / n_items % a.max_parts, t = unit / n_items / a.max_parts;
    bool known = t < a.n_alone, waited = false;
    int bundle = unit / n_items - a.n_alone * a.max_parts, first = known ? t : a.n_alone + bundle * MANY_TOKENS;
    bool mine = known ? lane == 0 : lane < MANY_TOKENS && first + lane < a.n_tokens && is_alone(a, first + lane);
    for (unsigned left = __ballot_sync(0xffffffffu, mine); left != 0; left &= left - 1) {
        decode_item m = find_item(a, first + __ffs((int)left) - 1, which);
        const struct shared_prefix *prefix = prefix_of(a, m.t);
        m.begin = prefix != NULL ? prefix->n_blocks : m.begin;
        int length = (m.end - m.begin + a.max_parts - 1) / a.max_parts;
        length = max(MANY_PART_BLOCKS, (length + 1) / 2 * 2);
        if (m.n_rows <= 0 || (known && !take_part(&m, part, length)))
            continue;
        if (waited)
            __syncthreads();    /* the first warp has read the second one's sums */
        else if (!TOKEN::FRESH) /* of which a block of the grid has one */
            wait_for_previous();
        waited = true;
        run_item(of_both, a, m, token);
    }
    if (!waited && !leaves_at_once(false))
        wait_for_previous();
}

template <typename T, int HD, typename C>
__global__ void __launch_bounds__(MANY_WARPS * 32, HD <= 128 ? 6 : 2) attention_many(attention_args<T, C> a)
{
    many_block<T, HD>(a, stored_token<T, HD>());
}

#endif
