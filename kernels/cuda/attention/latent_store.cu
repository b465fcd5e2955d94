/* kernels/cuda/attention/latent_store.cu - latent attention: stores the latent and the rotated key of a token in the
 * cache, and the rotated part of its queries where attention reads them. */
#include "kernels/cuda/rotation.cuh"

#define THREADS 256

struct latent {
    int n_heads, n_kv, dim, query_dim, turned; /* turned: rotated elements, the last of a head */
    bool half;                                 /* enum rope_layout */
    const float *cos_sin;
    const int32_t *slot, *pos, *block_table;
    int blocks_per_slot;
    const void *norm;
    enum dtype norm_type;
    float eps;
};

/* The offset of token t in the cache, in elements; -1: none (an unchecked plan). */
__device__ static int64_t cache_offset(const struct latent &s, int t)
{
    int slot = s.slot[t], pos = s.pos[t];
    if (slot < 0 || pos < 0 || pos / KV_BLOCK_TOKENS >= s.blocks_per_slot)
        return -1;
    int64_t block = s.block_table[(size_t)slot * s.blocks_per_slot + pos / KV_BLOCK_TOKENS];
    return block < 0 ? -1 : (block * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS) * s.dim;
}

/* Pair j of the rotated elements. */
template <typename T>
__device__ static inline void turn(T *to, const T *from, const struct latent &s, const float *angles, int j)
{
    int pairs = s.turned / 2, ia = s.half ? j : 2 * j, ib = s.half ? j + pairs : 2 * j + 1;
    float a = to_float(from[ia]), b = to_float(from[ib]), c = angles[j], sine = angles[pairs + j];
    to[ia] = from_float<T>(a * c - b * sine);
    to[ib] = from_float<T>(b * c + a * sine);
}

/* One block per token. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    latent_kernel(T *qkv, const T *query, const T *latent, T *cache, const __grid_constant__ struct latent s)
{
    after_previous();
    int t = (int)blockIdx.x, pairs = s.turned / 2, rank = s.dim - s.turned;
    const float *angles = s.cos_sin + (size_t)t * s.turned;
    T *row = qkv + (size_t)t * (s.n_heads + 2 * s.n_kv) * s.dim;
    for (int i = threadIdx.x; i < s.n_heads * pairs; i += THREADS) {
        int h = i / pairs;
        turn(row + (size_t)(h + 1) * s.dim - s.turned, query + ((size_t)t * s.n_heads + h + 1) * s.query_dim - s.turned,
             s, angles, i % pairs);
    }
    const T *from = latent + (size_t)t * s.dim;
    float square = 0;
    for (int d = threadIdx.x; d < rank; d += THREADS)
        square += to_float(from[d]) * to_float(from[d]);
    float inverse = 1.0f / sqrtf(block_sum(square) / rank + s.eps);
    int64_t at = cache_offset(s, t);
    if (at < 0)
        return;
    for (int d = threadIdx.x; d < rank; d += THREADS)
        cache[at + d] = from_float<T>(weight_at(s.norm, s.norm_type, d, 1) * rounded<T>(to_float(from[d]) * inverse));
    for (int j = threadIdx.x; j < pairs; j += THREADS)
        turn(cache + at + rank, from + rank, s, angles, j);
}

extern "C" void cuda_latent_store(struct queue *q, void *qkv, const void *query, int query_dim, const void *latent,
                                  void *cache, const struct heads *heads, const struct batch *batch,
                                  const struct rope *rope, const float *cos_sin, const struct weight *norm, float eps)
{
    nvtx_range range("latent_store");
    if (heads->n_heads < 1 || batch->n_tokens < 1)
        return;
    struct latent s = {};
    s.n_heads = heads->n_heads;
    s.n_kv = heads->n_kv_heads;
    s.dim = heads->head_dim;
    s.query_dim = query_dim;
    s.turned = rope->dims;
    s.half = rope->layout == ROPE_HALF;
    s.cos_sin = cos_sin;
    s.slot = batch->slot;
    s.pos = batch->pos;
    s.block_table = batch->block_table;
    s.blocks_per_slot = batch->blocks_per_slot;
    s.norm = norm->data;
    s.norm_type = norm->type;
    s.eps = eps;
    with_type(q->act, [&](auto type) {
        using T = decltype(type);
        launch(q, latent_kernel<T>, dim3((unsigned)batch->n_tokens), dim3(THREADS), 0, (T *)qkv, (const T *)query,
               (const T *)latent, (T *)cache, s);
    });
}
