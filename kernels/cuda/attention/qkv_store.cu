/* kernels/cuda/attention/qkv_store.cu - from the projections of q, k and v to what attention reads: per-head norms, rotation, and k
 * and v in the cache, all in one kernel. */
#include "kernels/cuda/rotation.cuh"

#define HEADS_PER_BLOCK 4 /* a warp each */

struct store {
    int n_q, n_kv, dim, dims; /* dims: rotated elements of a head; 0: none */
    bool half;                /* enum rope_layout */
    const float *cos_sin;
    const int32_t *slot, *pos, *block_table;
    int blocks_per_slot;
    const void *norm[2]; /* q, k */
    enum dtype norm_type[2];
    float eps;
};

/* Where the cache keeps local KV head 0 of token t, in elements; -1: nowhere (a plan that was not checked). */
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

/* One warp a head: q heads, then k heads, then v heads. Between load and store the head is in shared memory. */
template <typename T>
__global__ void store_kernel(T *qkv, T *k_cache, T *v_cache, const __grid_constant__ struct store s)
{
    extern __shared__ float heads[];
    after_previous();
    int t = blockIdx.y, h = blockIdx.x * HEADS_PER_BLOCK + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (h >= s.n_q + 2 * s.n_kv)
        return;
    T *row = qkv + ((size_t)t * (s.n_q + 2 * s.n_kv) + h) * s.dim;
    float *x = heads + threadIdx.x / 32 * s.dim;
    float square = 0;
    for (int d = lane; d < s.dim; d += 32) {
        x[d] = to_float(row[d]);
        square += x[d] * x[d];
    }
    bool is_v = h >= s.n_q + s.n_kv;
    const void *norm = is_v ? nullptr : s.norm[h >= s.n_q];
    if (norm != nullptr) {
        float inverse = 1.0f / sqrtf(warp_sum(square) / s.dim + s.eps);
        for (int d = lane; d < s.dim; d += 32)
            x[d] = weight_at(norm, s.norm_type[h >= s.n_q], d, 1) * rounded<T>(x[d] * inverse);
    }
    __syncwarp();
    int64_t at = h >= s.n_q ? cache_offset(s, t) : -1;
    T *cache = nullptr;
    if (at >= 0)
        cache = (is_v ? v_cache : k_cache) + at + (int64_t)((h - s.n_q) % s.n_kv) * KV_BLOCK_TOKENS * s.dim;
    for (int d = lane; d < s.dim; d += 32) {
        T y = from_float<T>(is_v || s.dims == 0 ? x[d] : rotated(x, s.cos_sin + (size_t)t * s.dims, s.dims, s.half, d));
        if (!is_v)
            row[d] = y;
        if (cache != nullptr)
            cache[d] = y;
    }
}

/* Many tokens whose heads are rotated as a whole, the second half with the first, and have no norms: a token a
 * block, with its angles in registers; 16 lanes a head, each with the same piece of both halves. The same bits as
 * above. */
#define LANES_PER_HEAD 16
template <typename T, int DIM>
__global__ void __launch_bounds__(128)
    rotate_and_store(T *qkv, T *k_cache, T *v_cache, const __grid_constant__ struct store s)
{
    const int N = DIM / 2 / LANES_PER_HEAD, STRIDE = 128 / LANES_PER_HEAD;
    after_previous();
    int t = blockIdx.x, at = (int)threadIdx.x % LANES_PER_HEAD * N, n_heads = s.n_q + 2 * s.n_kv;
    const float *angles = s.cos_sin + (size_t)t * DIM;
    float cosine[N], sine[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        cosine[i] = angles[at + i];
        sine[i] = angles[DIM / 2 + at + i];
    }
    int64_t offset = cache_offset(s, t);
#pragma unroll 3
    for (int h = (int)threadIdx.x / LANES_PER_HEAD; h < n_heads; h += STRIDE) {
        T *row = qkv + ((size_t)t * n_heads + h) * DIM + at;
        vec<T, N> low = *(const vec<T, N> *)row, high = *(const vec<T, N> *)(row + DIM / 2);
        bool is_v = h >= s.n_q + s.n_kv;
        if (!is_v) {
#pragma unroll
            for (int i = 0; i < N; i++) {
                float a = to_float(low.e[i]), b = to_float(high.e[i]), c = cosine[i], si = sine[i];
                low.e[i] = from_float<T>(a * c - b * si);
                high.e[i] = from_float<T>(b * c + a * si);
            }
            *(vec<T, N> *)row = low;
            *(vec<T, N> *)(row + DIM / 2) = high;
        }
        if (h < s.n_q || offset < 0)
            continue;
        T *to = (is_v ? v_cache : k_cache) + offset + (int64_t)((h - s.n_q) % s.n_kv) * KV_BLOCK_TOKENS * DIM + at;
        *(vec<T, N> *)to = low;
        *(vec<T, N> *)(to + DIM / 2) = high;
    }
}

#define FEW_TOKENS 16 /* that leave a kernel with a token a block without enough to do */

static bool store_many(struct queue *, float *, float *, float *, const struct store &, int)
{
    return false;
}

/* With that kernel, if it is for these heads. */
template <typename T>
static bool store_many(struct queue *q, T *qkv, T *k_cache, T *v_cache, const struct store &s, int n_tokens)
{
    if (n_tokens <= FEW_TOKENS || !s.half || s.dims != s.dim || s.norm[0] != nullptr || s.norm[1] != nullptr ||
        !vectors_fit<T>((size_t)s.dim, qkv, k_cache, v_cache))
        return false;
    void (*kernel)(T *, T *, T *, struct store) = s.dim == 64    ? rotate_and_store<T, 64>
                                                  : s.dim == 128 ? rotate_and_store<T, 128>
                                                  : s.dim == 256 ? rotate_and_store<T, 256>
                                                                 : nullptr;
    if (kernel != nullptr)
        launch(q, kernel, dim3((unsigned)n_tokens), dim3(128), 0, qkv, k_cache, v_cache, s);
    return kernel != nullptr;
}

void cuda_qkv_store(struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                    const struct batch *batch, const struct rope *rope, const float *cos_sin,
                    const struct weight *q_norm, const struct weight *k_norm, float eps)
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
    s.norm[0] = q_norm != nullptr ? q_norm->data : nullptr;
    s.norm[1] = k_norm != nullptr ? k_norm->data : nullptr;
    s.norm_type[0] = q_norm != nullptr ? q_norm->type : DTYPE_F32;
    s.norm_type[1] = k_norm != nullptr ? k_norm->type : DTYPE_F32;
    s.eps = eps;
    size_t shared = HEADS_PER_BLOCK * (size_t)s.dim * sizeof(float);
    unsigned n_blocks = (unsigned)((n_heads + HEADS_PER_BLOCK - 1) / HEADS_PER_BLOCK);
    with_type(q->act, [&](auto type) {
        using T = decltype(type);
        if (store_many(q, (T *)qkv, (T *)k_cache, (T *)v_cache, s, batch->n_tokens))
            return;
        for (int t = 0; t < batch->n_tokens; t += 65535) { /* the grid's limit in y */
            int n = batch->n_tokens - t < 65535 ? batch->n_tokens - t : 65535;
            struct store part = s;
            part.cos_sin = cos_sin != nullptr ? cos_sin + (size_t)t * s.dims : nullptr;
            part.slot += t;
            part.pos += t;
            launch(q, store_kernel<T>, dim3(n_blocks, (unsigned)n), dim3(32 * HEADS_PER_BLOCK), shared,
                   (T *)qkv + (size_t)t * n_heads * s.dim, (T *)k_cache, (T *)v_cache, part);
        }
    });
}
