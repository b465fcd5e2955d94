/* kernels/cuda/attention/qkv_store.cu - prepares the projections of q, k and v for attention: norms of heads, rotation,
 * and storing k and v in the cache, all in one kernel. */
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/rotation.cuh"
#include "kernels/cuda/vectors.cuh"

#define HEADS_PER_BLOCK 4 /* one warp each */

struct store {
    int n_q, n_kv, dim, dims; /* dims: rotated elements of a head; 0: none */
    bool half;                /* enum rope_layout */
    const float *cos_sin;
    const int32_t *slot, *pos, *block_table;
    int blocks_per_slot;
    const void *norm[2]; /* q, k */
    enum dtype norm_type[2];
    bool unit;    /* normalised without weights */
    bool rotated; /* normalised after the rotation */
    bool each[2]; /* every head has weights of its own */
    enum norm_kind kind;
    float eps;
    const float *squares; /* struct head_norms */
    int n[2];             /* elements of those rows */
    float query_growth;
    int query_period, query_shift;
    const float *kv_scales; /* struct heads */
};

/* The offset of local KV head 0 of token t in the cache, in elements; -1: none (an unchecked plan). */
__device__ static int64_t cache_offset(const struct store &s, int t)
{
    int slot = s.slot[t], pos = s.pos[t];
    if (slot < 0 || pos < 0 || pos / KV_BLOCK_TOKENS >= s.blocks_per_slot)
        return -1;
    int64_t block = s.block_table[(size_t)slot * s.blocks_per_slot + pos / KV_BLOCK_TOKENS];
    if (block < 0)
        return -1;
    return (block * s.n_kv * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS) * s.dim;
}

/* The normalised element, as yet without weight, times its weight, of index i. */
template <typename T>
__device__ static inline float weighed(float unit, const struct store &s, bool is_k, int i)
{
    float offset = s.kind == NORM_RMS_OFFSET ? 1.0f : 0.0f, w = weight_at(s.norm[is_k], s.norm_type[is_k], i, 1);
    return s.kind == NORM_RMS ? w * rounded<T>(unit) : rounded<T>((offset + w) * unit);
}

/* Normalises head `head` of q or k; a lane holds every 32nd element, x. */
template <typename T>
__device__ static void norm_head(float *x, const struct store &s, int t, int head, bool is_k)
{
    int lane = threadIdx.x % 32, first = s.each[is_k] ? head * s.dim : 0;
    float mean = 0, square = 0;
    if (s.kind == NORM_LAYER) {
        for (int d = lane; d < s.dim; d += 32)
            mean += x[d];
        mean = warp_sum(mean) / s.dim;
    }
    for (int d = lane; d < s.dim; d += 32)
        square += (x[d] - mean) * (x[d] - mean);
    float variance = s.squares != nullptr ? s.squares[2 * (size_t)t + is_k] / s.n[is_k] : warp_sum(square) / s.dim;
    float inverse = 1.0f / sqrtf(variance + s.eps);
    for (int d = lane; d < s.dim; d += 32)
        x[d] = weighed<T>((x[d] - mean) * inverse, s, is_k, first + d);
}

/* Element d of head x of token t after the rotation. */
__device__ static inline float turned(const float *x, const struct store &s, int t, bool is_v, int d)
{
    return is_v || s.dims == 0 ? x[d] : rotated(x, s.cos_sin + (size_t)t * s.dims, s.dims, s.half, d);
}

/* Returns what the norm of a rotated head multiplies its elements by. */
__device__ static float inverse_of_rotated(const float *x, const struct store &s, int t)
{
    float square = 0;
    for (int d = threadIdx.x % 32; d < s.dim; d += 32) {
        float y = turned(x, s, t, false, d);
        square += y * y;
    }
    return 1.0f / sqrtf(warp_sum(square) / s.dim + s.eps);
}

/* Stores an element in the cache: y, which is x rounded, or the code nearest to x / scale. */
template <typename T>
__device__ static inline void keep(T *to, float, T y, float)
{
    *to = y;
}
template <typename T>
__device__ static inline void keep(uint8_t *to, float x, T, float scale)
{
    *to = __nv_cvt_float_to_fp8(x / scale, __NV_SATFINITE, __NV_E4M3);
}

/* One warp per head: q heads, then k heads, then v heads. Between load and store the head is in shared memory. C: T, or
 * uint8_t for codes. ROTATED: s.rotated, a constant since the norms after the rotation need more registers. */
template <typename T, typename C, bool ROTATED>
__global__ void store_kernel(T *qkv, C *k_cache, C *v_cache, const __grid_constant__ struct store s)
{
    extern __shared__ float heads[];
    after_previous();
    int t = blockIdx.y, h = blockIdx.x * HEADS_PER_BLOCK + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (h >= s.n_q + 2 * s.n_kv)
        return;
    T *row = qkv + ((size_t)t * (s.n_q + 2 * s.n_kv) + h) * s.dim;
    float *x = heads + threadIdx.x / 32 * s.dim, factor = 1;
    for (int d = lane; d < s.dim; d += 32)
        x[d] = to_float(row[d]);
    bool is_k = h >= s.n_q, is_v = h >= s.n_q + s.n_kv;
    if (!is_v && (s.norm[is_k] != nullptr || s.unit) && !ROTATED)
        norm_head<T>(x, s, t, is_k ? h - s.n_q : h, is_k);
    if (!is_k && s.query_growth != 0)
        factor = 1 + s.query_growth * logf((float)(1 + (s.pos[t] + s.query_shift) / s.query_period));
    __syncwarp();
    int64_t at = h >= s.n_q ? cache_offset(s, t) : -1;
    C *cache = nullptr;
    float scale = s.kv_scales != nullptr && h >= s.n_q ? s.kv_scales[h - s.n_q] : 1; /* scales of k heads, then of v
                                                                                        heads */
    if (at >= 0)
        cache = (is_v ? v_cache : k_cache) + at + (int64_t)((h - s.n_q) % s.n_kv) * KV_BLOCK_TOKENS * s.dim;
    float inverse = ROTATED && !is_v ? inverse_of_rotated(x, s, t) : 0;
    for (int d = lane; d < s.dim; d += 32) {
        float z = turned(x, s, t, is_v, d);
        if (ROTATED && !is_v)
            z = weighed<T>(z * inverse, s, is_k, d);
        T y = from_float<T>(z * factor);
        if (!is_v)
            row[d] = y;
        if (cache != nullptr)
            keep(cache + d, z * factor, y, scale);
    }
}

/* For fully rotated heads (half-split) without norms: several lanes per head, each with the same 16 bytes of both
 * halves. The same bits as above. grid: tokens, heads */
#define ROTATE_THREADS 128
template <typename T, int DIM>
struct rotate_shape {
    static const int N = 16 / sizeof(T), LANES = DIM / 2 / N, HEADS = ROTATE_THREADS / LANES;
};

template <typename T, int DIM>
__global__ void __launch_bounds__(ROTATE_THREADS)
    rotate_and_store(T *qkv, T *k_cache, T *v_cache, const __grid_constant__ struct store s)
{
    using shape = rotate_shape<T, DIM>;
    const int N = shape::N;
    using V = packed<T, N>;
    int lane = (int)threadIdx.x % shape::LANES * N, n_heads = s.n_q + 2 * s.n_kv;
    int t = blockIdx.x, h = (int)blockIdx.y * shape::HEADS + (int)threadIdx.x / shape::LANES;
    after_previous();
    if (h >= n_heads)
        return;
    T *row = qkv + ((size_t)t * n_heads + h) * DIM + lane;
    V low = *(const V *)row, high = *(const V *)(row + DIM / 2);
    if (h < s.n_q + s.n_kv) {
        const float *angles = s.cos_sin + (size_t)t * DIM + lane;
        vec<float, N> cosine = *(const vec<float, N> *)angles, sine = *(const vec<float, N> *)(angles + DIM / 2);
        float first[N], second[N];
        widen_pairs(first, low);
        widen_pairs(second, high);
#pragma unroll
        for (int i = 0; i < N; i++)
            rotate_pair(first[i], second[i], cosine.e[i], sine.e[i]);
        *(V *)row = low = round_pairs<T>(first);
        *(V *)(row + DIM / 2) = high = round_pairs<T>(second);
    }
    int64_t offset = h >= s.n_q ? cache_offset(s, t) : -1;
    if (offset < 0)
        return;
    T *to = (h >= s.n_q + s.n_kv ? v_cache : k_cache) + offset + lane +
            (int64_t)((h - s.n_q) % s.n_kv) * KV_BLOCK_TOKENS * DIM;
    *(V *)to = low;
    *(V *)(to + DIM / 2) = high;
}

template <typename T, int DIM>
static void launch_rotate(struct queue *q, T *qkv, T *k_cache, T *v_cache, const struct store &s, int n_tokens)
{
    const int HEADS = rotate_shape<T, DIM>::HEADS;
    dim3 grid((unsigned)n_tokens, (unsigned)((s.n_q + 2 * s.n_kv + HEADS - 1) / HEADS));
    launch(q, rotate_and_store<T, DIM>, grid, dim3(ROTATE_THREADS), 0, qkv, k_cache, v_cache, s);
}

/* For fully rotated heads (half-split) with norms: one warp per head, each lane with every 32nd element, and so with
 * both elements of its pairs, in registers. All loads are in flight before the first result is needed. grid: tokens,
 * heads */
template <typename T, int DIM>
__global__ void __launch_bounds__(32 * HEADS_PER_BLOCK)
    normalise_and_store(T *qkv, T *k_cache, T *v_cache, const __grid_constant__ struct store s)
{
    const int PER = DIM / 32, PAIRS = PER / 2;
    int lane = (int)threadIdx.x % 32, h = (int)(blockIdx.y * HEADS_PER_BLOCK + threadIdx.x / 32), t = (int)blockIdx.x;
    int n_heads = s.n_q + 2 * s.n_kv;
    bool is_k = h >= s.n_q, is_v = h >= s.n_q + s.n_kv;
    after_previous();
    if (h >= n_heads)
        return;
    T *row = qkv + ((size_t)t * n_heads + h) * DIM + lane;
    T y[PER];
    float x[PER], w[PER], angle[PER]; /* cosines, then sines */
#pragma unroll
    for (int i = 0; i < PER; i++)
        y[i] = row[32 * i];
    int64_t offset = is_k ? cache_offset(s, t) : -1;
    if (!is_v) {
        float square = 0;
#pragma unroll
        for (int i = 0; i < PER; i++) {
            w[i] = weight_at(s.norm[is_k], s.norm_type[is_k], lane + 32 * i, 1);
            angle[i] = s.cos_sin[(size_t)t * DIM + lane + 32 * i];
        }
#pragma unroll
        for (int i = 0; i < PER; i++) {
            x[i] = to_float(y[i]);
            square = fmaf(x[i], x[i], square);
        }
        float inverse = 1.0f / sqrtf(warp_sum(square) / DIM + s.eps), add = s.kind == NORM_RMS_OFFSET ? 1.0f : 0.0f;
#pragma unroll
        for (int i = 0; i < PER; i++) {
            float unit = x[i] * inverse;
            x[i] = s.kind == NORM_RMS ? w[i] * rounded<T>(unit) : rounded<T>((add + w[i]) * unit);
        }
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            float a = x[i], b = x[i + PAIRS], c = angle[i], sine = angle[i + PAIRS];
            row[32 * i] = y[i] = from_float<T>(a * c - b * sine);
            row[32 * (i + PAIRS)] = y[i + PAIRS] = from_float<T>(b * c + a * sine);
        }
    }
    if (offset < 0)
        return;
    T *to = (is_v ? v_cache : k_cache) + offset + lane + (int64_t)((h - s.n_q) % s.n_kv) * KV_BLOCK_TOKENS * DIM;
#pragma unroll
    for (int i = 0; i < PER; i++)
        to[32 * i] = y[i];
}

/* Does that kernel have these norms? */
static bool takes_norms(const struct store &s)
{
    return !s.rotated && s.norm[0] != nullptr && s.norm[1] != nullptr && !s.each[0] && !s.each[1] &&
           s.squares == nullptr && s.kind != NORM_LAYER;
}

template <typename T, int DIM>
static void launch_normalise(struct queue *q, T *qkv, T *k_cache, T *v_cache, const struct store &s, int n_tokens)
{
    dim3 grid((unsigned)n_tokens, (unsigned)((s.n_q + 2 * s.n_kv + HEADS_PER_BLOCK - 1) / HEADS_PER_BLOCK));
    launch(q, normalise_and_store<T, DIM>, grid, dim3(32 * HEADS_PER_BLOCK), 0, qkv, k_cache, v_cache, s);
}

static bool rotate_heads(struct queue *, float *, float *, float *, const struct store &, int)
{
    return false;
}

/* Launches one of these kernels if it supports these heads. */
template <typename T>
static bool rotate_heads(struct queue *q, T *qkv, T *k_cache, T *v_cache, const struct store &s, int n_tokens)
{
    bool plain = s.norm[0] == nullptr && s.norm[1] == nullptr && !s.unit;
    if (s.kv_scales != nullptr || !s.half || s.dims != s.dim || s.query_growth != 0 || !(plain || takes_norms(s)) ||
        !vectors_fit<T>((size_t)s.dim, qkv, k_cache, v_cache))
        return false;
    auto with = [&](auto dim) {
        const int DIM = decltype(dim)::value;
        if (plain)
            launch_rotate<T, DIM>(q, qkv, k_cache, v_cache, s, n_tokens);
        else
            launch_normalise<T, DIM>(q, qkv, k_cache, v_cache, s, n_tokens);
        return true;
    };
    return s.dim == 64    ? with(std::integral_constant<int, 64>())
           : s.dim == 128 ? with(std::integral_constant<int, 128>())
           : s.dim == 256 ? with(std::integral_constant<int, 256>())
                          : false;
}

static void set_norms(struct store *s, const struct head_norms *norms)
{
    const struct weight *w[2] = {norms->q, norms->k};
    for (int i = 0; i < 2; i++) {
        s->norm[i] = w[i] != nullptr ? w[i]->data : nullptr;
        s->norm_type[i] = w[i] != nullptr ? w[i]->type : DTYPE_F32;
        s->each[i] = w[i] != nullptr && w[i]->cols > s->dim;
    }
    s->unit = norms->unit;
    s->rotated = norms->rotated;
    s->kind = norms->kind;
    s->eps = norms->eps;
    s->squares = norms->squares;
    s->n[0] = norms->n_q;
    s->n[1] = norms->n_k;
}

/* One block per token. */
#define SQUARES_THREADS 256
template <typename T>
__global__ void __launch_bounds__(SQUARES_THREADS)
    squares_kernel(float *squares, const T *qkv, int n_q, int k_begin, int k_end, int width)
{
    after_previous_alone();
    const T *row = qkv + (size_t)blockIdx.x * width;
    float of_q = 0, of_k = 0;
    for (int i = threadIdx.x; i < n_q; i += SQUARES_THREADS)
        of_q += to_float(row[i]) * to_float(row[i]);
    for (int i = k_begin + threadIdx.x; i < k_end; i += SQUARES_THREADS)
        of_k += to_float(row[i]) * to_float(row[i]);
    of_q = block_sum(of_q);
    of_k = block_sum(of_k);
    if (threadIdx.x == 0) {
        squares[2 * (size_t)blockIdx.x] = of_q;
        squares[2 * (size_t)blockIdx.x + 1] = of_k;
    }
}

void cuda_head_squares(struct queue *q, float *squares, const void *qkv, const struct heads *heads, struct kv_range kv,
                       int n_tokens)
{
    nvtx_range range("head_squares");
    if (n_tokens == 0)
        return;
    int dim = heads->head_dim, n_q = heads->n_heads * dim;
    with_type(q->act, [&](auto type) {
        using T = decltype(type);
        launch(q, squares_kernel<T>, dim3((unsigned)n_tokens), dim3(SQUARES_THREADS), 0, squares, (const T *)qkv, n_q,
               n_q + kv.begin * dim, n_q + kv.end * dim, (heads->n_heads + 2 * heads->n_kv_heads) * dim);
    });
}

void cuda_qkv_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                    const struct batch *batch, const struct rope *rope, const float *cos_sin,
                    const struct head_norms *norms)
{
    nvtx_range range("qkv_store");
    int n_heads = heads->n_heads + 2 * heads->n_kv_heads;
    if (n_heads == 0 || batch->n_tokens == 0 || heads->head_dim == 0)
        return;
    struct store s = {};
    s.n_q = heads->n_heads;
    s.n_kv = heads->n_kv_heads;
    s.dim = heads->head_dim;
    s.dims = rope != nullptr ? rope->dims : 0;
    s.half = rope != nullptr && rope->layout == ROPE_HALF;
    s.cos_sin = cos_sin;
    s.slot = batch->slot;
    s.pos = batch->pos;
    s.block_table = batch->block_table;
    s.blocks_per_slot = batch->blocks_per_slot;
    s.query_growth = rope != nullptr ? rope->query_growth : 0;
    s.query_period = rope != nullptr ? rope->query_period : 0;
    s.query_shift = rope != nullptr ? rope->query_shift : 0;
    s.kv_scales = heads->kv_scales;
    set_norms(&s, norms);
    size_t shared = HEADS_PER_BLOCK * (size_t)s.dim * sizeof(float);
    unsigned n_blocks = (unsigned)((n_heads + HEADS_PER_BLOCK - 1) / HEADS_PER_BLOCK);
    with_type(q->act, [&](auto type) {
        using T = decltype(type);
        if (rotate_heads(q, (T *)qkv, (T *)k_cache, (T *)v_cache, s, batch->n_tokens))
            return;
        for (int t = 0; t < batch->n_tokens; t += 65535) { /* the grid's limit in y */
            int n = batch->n_tokens - t < 65535 ? batch->n_tokens - t : 65535;
            struct store part = s;
            part.cos_sin = cos_sin != nullptr ? cos_sin + (size_t)t * s.dims : nullptr;
            part.slot += t;
            part.squares = s.squares != nullptr ? s.squares + 2 * (size_t)t : nullptr;
            part.pos += t;
            dim3 grid(n_blocks, (unsigned)n), block(32 * HEADS_PER_BLOCK);
            T *rows = (T *)qkv + (size_t)t * n_heads * s.dim;
            if (s.kv_scales != nullptr)
                launch(q, s.rotated ? store_kernel<T, uint8_t, true> : store_kernel<T, uint8_t, false>, grid, block,
                       shared, rows, (uint8_t *)k_cache, (uint8_t *)v_cache, part);
            else
                launch(q, s.rotated ? store_kernel<T, T, true> : store_kernel<T, T, false>, grid, block, shared, rows,
                       (T *)k_cache, (T *)v_cache, part);
        }
    });
}
