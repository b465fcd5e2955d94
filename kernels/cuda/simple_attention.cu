/* stand-in until attention.cu exists: one warp a token and head. */
#include "kernels/cuda/device.cuh"

struct simple {
    struct heads h;
    struct batch b;
};

template <typename T>
__global__ void simple_attention(T *out, const T *qkv, const T *k_cache, const T *v_cache, struct simple s)
{
    extern __shared__ float acc[];
    const struct heads &h = s.h;
    int t = blockIdx.y, head = blockIdx.x, lane = threadIdx.x, dim = h.head_dim;
    int slot = s.b.slot[t], pos = s.b.pos[t], kv = (h.first_head + head) / h.group - h.first_kv_head;
    const T *q = qkv + ((size_t)t * (h.n_heads + 2 * h.n_kv_heads) + head) * dim;
    float best = -INFINITY, sum = 0;
    for (int d = lane; d < dim; d += 32)
        acc[d] = 0;
    int first = h.window > 0 && pos - h.window + 1 > 0 ? pos - h.window + 1 : 0;
    bool ok = slot >= 0 && pos >= 0 && pos / KV_BLOCK_TOKENS < s.b.blocks_per_slot;
    for (int k = first; ok && k <= pos; k++) {
        int64_t block = s.b.block_table[(size_t)slot * s.b.blocks_per_slot + k / KV_BLOCK_TOKENS];
        size_t at = ((block * h.n_kv_heads + kv) * KV_BLOCK_TOKENS + k % KV_BLOCK_TOKENS) * dim;
        float dot = 0;
        for (int d = lane; d < dim; d += 32)
            dot += to_float(q[d]) * to_float(k_cache[at + d]);
        dot = warp_sum(dot) * h.scale + (h.alibi_slopes ? h.alibi_slopes[head] * (float)k : 0.0f);
        float top = fmaxf(best, dot), keep = expf(best - top), w = expf(dot - top);
        best = top;
        sum = sum * keep + w;
        for (int d = lane; d < dim; d += 32)
            acc[d] = acc[d] * keep + w * to_float(v_cache[at + d]);
    }
    for (int d = lane; d < dim; d += 32)
        out[((size_t)t * h.n_heads + head) * dim + d] = from_float<T>(sum > 0 ? acc[d] / sum : 0.0f);
}

void cuda_attention(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                    const struct heads *heads, const struct batch *batch)
{
    if (heads->n_heads == 0 || batch->n_tokens == 0)
        return;
    struct simple s = {*heads, *batch};
    with_type(q->act, [&](auto type) {
        using T = decltype(type);
        simple_attention<<<dim3((unsigned)heads->n_heads, (unsigned)batch->n_tokens), 32,
                           (size_t)heads->head_dim * sizeof(float), cuda_stream(q)>>>(
            (T *)out, (const T *)qkv, (const T *)k_cache, (const T *)v_cache, s);
    });
    CUDA_TRY(q, cudaGetLastError());
}

int cuda_attention_open(struct queue *q, struct err *e)
{
    (void)q;
    (void)e;
    return 0;
}

void cuda_attention_close(struct queue *q)
{
    (void)q;
}
