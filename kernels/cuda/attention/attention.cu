/* kernels/cuda/attention/attention.cu - attention over the paged cache. 16-bit heads of a multiple of 8:
 * attention_many.cuh for single tokens; for tokens with neighbours of their own sequence attention_prompts.cuh, or
 * attention_prefill.cuh if the former does not support the device or the heads, or if layers see chunks. The device
 * distinguishes the tokens, except those whose kind the batch states. Up to EVERY_TOKEN_ALONE tokens all count as
 * single and go through attention_decode.cuh, so that a result has the same bits in any such batch. Latents of 576
 * elements: attention_latent.cuh. Float, heads of other sizes, and of more than 256 elements: a plain kernel. FP8
 * caches (struct heads' kv_scales) use the same kernels, except attention_prompts.cuh and attention_latent.cuh. On
 * invariant devices (kernels/invariance.h) attention_same.cuh takes single tokens, and a few others, with the bits of
 * attention_prompts.cuh, which takes the rest; where that does not support the device or the heads,
 * attention_decode.cuh takes all, a few at a time. attention_fresh.cu computes both qkv_store and attention. */
#include "kernels/cuda/attention/attention_host.cuh"
#include "kernels/cuda/attention/attention_latent.cuh"
#include "kernels/cuda/attention/attention_prefill.cuh"
#include "kernels/invariance.h"

#include <stdlib.h>
#include <type_traits>

#define LATENT_DIVIDED 128 /* up to this many tokens the keys of latents are divided, into LATENT_PARTS parts */
#define LATENT_PARTS   4
#define SHARED_BYTES   ((size_t)64 << 20) /* of sums over shared keys */

/* Combines the warps' sums into the result. */
template <typename T, int N, typename C>
__device__ static inline void plain_finish(const attention_args<T, C> &a, int t, int head, int kv, float best,
                                           float sum, const float (&out)[N])
{
    __shared__ float best_of[ATTENTION_WARPS], sum_of[ATTENTION_WARPS], out_of[ATTENTION_WARPS][32 * N];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim = a.heads.head_dim;
    if (lane == 0) {
        best_of[warp] = best;
        sum_of[warp] = sum;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        out_of[warp][lane + 32 * i] = out[i];
    __syncthreads();
    float all_best = -INFINITY, all_sum = 0, scale[ATTENTION_WARPS];
    for (int v = 0; v < ATTENTION_WARPS; v++)
        all_best = fmaxf(all_best, best_of[v]);
#pragma unroll
    for (int v = 0; v < ATTENTION_WARPS; v++) {
        scale[v] = best_of[v] == -INFINITY ? 0.0f : expf(best_of[v] - all_best);
        all_sum = fmaf(sum_of[v], scale[v], all_sum);
    }
    float all = all_sum + sink_weight(a, head, a.pos[t], all_best * ATTENTION_LOG2_E);
    for (int d = threadIdx.x; d < dim; d += ATTENTION_WARPS * 32) {
        float s = 0;
#pragma unroll
        for (int v = 0; v < ATTENTION_WARPS; v++)
            s = fmaf(out_of[v][d], scale[v], s);
        a.out[((size_t)t * a.heads.n_heads + head) * dim + d] =
            from_float<T>(all_sum == 0 ? 0.0f : s / all * value_scale(a, kv)); /* NaN stays */
    }
}

/* An element of the cache. */
template <typename T>
__device__ static inline float cached(T x)
{
    return to_float(x);
}
__device__ static inline float cached(uint8_t code)
{
    return coded_value(CODES_E4M3, code);
}

/* One block per query head of a token: the warps take keys in turn, PLAIN_KEYS at a time; lanes hold N elements lane,
 * lane + 32, .. of the head. An out-of-range read is replaced by a valid one with weight 0, so that loads do not wait
 * for tests. grid: n_tokens, n_heads */
#define PLAIN_KEYS 4
template <typename T, int N, typename C>
__global__ void __launch_bounds__(ATTENTION_WARPS * 32) attention_plain(attention_args<T, C> a)
{
    int t = (int)blockIdx.x, head = (int)blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int dim = a.heads.head_dim, kv = (a.heads.first_head + head) / a.heads.heads_per_kv - a.heads.first_kv_head;
    attention_range seen = visible(a, a.slot[t], a.pos[t]);
    const int32_t *table = a.block_table + (ptrdiff_t)a.slot[t] * a.blocks_per_slot;
    const T *query = query_row(a, t, head);
    float slope = a.heads.alibi_slopes ? a.heads.alibi_slopes[head] : 0.0f, best = -INFINITY, sum = 0;
    float q[N], out[N], scale = key_scale(a, kv);
    int element[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        element[i] = min(lane + 32 * i, dim - 1);
        q[i] = lane + 32 * i < dim ? to_float(query[element[i]]) : 0.0f;
        out[i] = 0;
    }
    for (int key0 = seen.first / PLAIN_KEYS * PLAIN_KEYS + warp * PLAIN_KEYS; key0 <= seen.last;
         key0 += ATTENTION_WARPS * PLAIN_KEYS) {
        int id = table[key0 / KV_BLOCK_TOKENS];
        if (id < 0)
            continue;
        size_t block = ((size_t)id * a.heads.n_kv_heads + kv) * KV_BLOCK_TOKENS * dim;
        float score[PLAIN_KEYS], k[PLAIN_KEYS][N], v[PLAIN_KEYS][N], top = best;
#pragma unroll
        for (int j = 0; j < PLAIN_KEYS; j++)
#pragma unroll
            for (int i = 0; i < N; i++) {
                int row = min(max(key0 + j, seen.first), seen.last) % KV_BLOCK_TOKENS;
                k[j][i] = cached(a.k_cache[block + row * dim + element[i]]);
                v[j][i] = cached(a.v_cache[block + row * dim + element[i]]);
            }
#pragma unroll
        for (int j = 0; j < PLAIN_KEYS; j++) {
            float s = 0;
#pragma unroll
            for (int i = 0; i < N; i++)
                s = fmaf(q[i], k[j][i], s);
            s = warp_sum(s);
            bool wanted = key0 + j >= seen.first && key0 + j <= seen.last;
            if (a.heads.cap > 0) {
                float capped = a.heads.cap * tanhf(scale * s / a.heads.cap);
                score[j] = wanted ? fmaf(slope, (float)(key0 + j - seen.last), capped) : -INFINITY;
            } else {
                score[j] = wanted ? fmaf(scale, s, slope * (float)(key0 + j - seen.last)) : -INFINITY;
            }
            top = fmaxf(top, score[j]);
        }
        float keep = expf(best - top);
        sum *= keep;
#pragma unroll
        for (int i = 0; i < N; i++)
            out[i] *= keep;
#pragma unroll
        for (int j = 0; j < PLAIN_KEYS; j++) {
            float weight = expf(score[j] - top);
            sum += weight;
#pragma unroll
            for (int i = 0; i < N; i++)
                out[i] = fmaf(weight, v[j][i], out[i]);
        }
        best = top;
    }
    plain_finish<T, N>(a, t, head, kv, best, sum, out);
}

/* Calls f(type, width) with the narrowest kernel for the head; fewer widths for a cache C of codes. */
template <int HD>
struct width {
    static const int value = HD;
};

template <typename C, typename F>
static void with_width(int dim, F f)
{
    const bool codes = sizeof(C) == 1;
    if (dim <= 64)
        f(width<64>());
    else if (dim <= 80 && !codes)
        f(width < codes ? 64 : 80 > ());
    else if (dim <= 96 && !codes)
        f(width < codes ? 64 : 96 > ());
    else if (dim <= 128)
        f(width<128>());
    else
        f(width<256>());
}

template <typename T, int HD, typename C>
static void decode(struct queue *q, attention_args<T, C> a)
{
    launch_decode<T, HD>(q, a, attention_decode<T, HD, C>);
}

template <typename T, int HD, typename C>
static void decode_many(struct queue *q, attention_args<T, C> a)
{
    launch_many<T, HD>(q, a, attention_many<T, HD, C>);
}

template <typename T, int HD, typename C>
static void prefill(struct queue *q, const attention_args<T, C> &a)
{
    dim3 grid((unsigned)(a.n_tokens - a.n_alone + PREFILL_TOKENS - 1) / PREFILL_TOKENS, (unsigned)a.heads.n_heads);
    attention_prefill<T, HD, C><<<grid, ATTENTION_WARPS * 32, sizeof(prefill_shared<T, HD>), cuda_stream(q)>>>(a);
    CUDA_TRY(q, cudaGetLastError());
}

template <typename T, typename C>
static void plain(struct queue *q, const attention_args<T, C> &a)
{
    dim3 grid((unsigned)a.n_tokens, (unsigned)a.heads.n_heads);
    int threads = ATTENTION_WARPS * 32;
    if (a.heads.head_dim <= 32)
        attention_plain<T, 1><<<grid, threads, 0, cuda_stream(q)>>>(a);
    else if (a.heads.head_dim <= 64)
        attention_plain<T, 2><<<grid, threads, 0, cuda_stream(q)>>>(a);
    else if (a.heads.head_dim <= 128)
        attention_plain<T, 4><<<grid, threads, 0, cuda_stream(q)>>>(a);
    else if (a.heads.head_dim <= CUDA_TILE_HEAD_DIM)
        attention_plain<T, CUDA_TILE_HEAD_DIM / 32><<<grid, threads, 0, cuda_stream(q)>>>(a);
    else
        attention_plain<T, CUDA_MAX_HEAD_DIM / 32><<<grid, threads, 0, cuda_stream(q)>>>(a);
    CUDA_TRY(q, cudaGetLastError());
}

/* The number of parts of the keys of latents: constant for up to EVERY_TOKEN_ALONE tokens, limited by the memory for
 * their sums. Many tokens keep the blocks busy without parts. */
static int latent_parts(const struct queue *q, const struct heads *h, int n_tokens)
{
    if (cuda_is_invariant(q))
        return 1;
    size_t sums = (size_t)EVERY_TOKEN_ALONE * items_of(h) * DECODE_ROWS * (LATENT_DIM + 2) * sizeof(float);
    int parts = DECODE_MAX_PARTS;
    if (n_tokens > EVERY_TOKEN_ALONE)
        return n_tokens <= LATENT_DIVIDED ? LATENT_PARTS : 1;
    while (parts > 1 && sums * (size_t)parts > PARTIAL_BYTES)
        parts /= 2;
    return parts;
}

/* Attention over latents; false: not latents, or not supported. All heads of the rank share the keys, so items may
 * combine any heads. */
template <typename T, typename C>
static bool attend_latents(struct queue *, const attention_args<T, C> &)
{
    return false;
}
template <typename T>
static bool attend_latents(struct queue *q, attention_args<T> a)
{
    const struct attention_state *s = (const struct attention_state *)cuda_state(q)->attention;
    struct heads *h = &a.heads;
    if (!s->latents || a.k_cache != a.v_cache || h->head_dim != LATENT_DIM || h->n_kv_heads != 1 || h->cap > 0 ||
        a.n_tokens > 65535 || h->alibi_slopes != NULL)
        return false;
    h->first_head = h->first_kv_head = 0;
    h->heads_per_kv = h->n_heads;
    divide_items(&a, s, a.n_tokens, latent_parts(q, h, a.n_tokens), LATENT_MIN_BLOCKS, LATENT_DIM);
    latent_launch(q, s->launches_early, a, dim3((unsigned)a.max_parts, (unsigned)items_of(h), (unsigned)a.n_tokens));
    return true;
}

template <typename C>
static bool on_tensor_cores(struct queue *, const attention_args<float, C> &)
{
    return false;
}

/* Attends to the keys that tokens share, before each token's own. Clears prefixes if they are not supported. */
template <typename T, int HD>
static void attend_shared(struct queue *q, const struct attention_state *s, attention_args<T> *a)
{
    a->shared_parts = s->shared != NULL ? shared_parts(&s->prompts, *a, HD, SHARED_BYTES) : 0;
    if (a->shared_parts == 0) {
        a->prefixes = NULL;
        return;
    }
    int n = a->n_alone < PREFIX_TOKENS ? a->n_alone : PREFIX_TOKENS;
    a->shared = s->shared;
    a->shared_sums = (float2 *)(s->shared + (size_t)n * (size_t)a->heads.n_heads * (size_t)a->shared_parts * HD);
    launch_shared<T, HD>(q, &s->prompts, *a);
}
template <typename T, int HD>
static void attend_shared(struct queue *, const struct attention_state *, attention_args<T, uint8_t> *a)
{
    a->prefixes = NULL;
}

/* Attention for tokens with neighbours of their own sequence. */
template <typename T, int HD>
static void attend_prompts(struct queue *q, struct prompts_state *prompts, const attention_args<T> &a)
{
    if (a.heads.chunk == 0 && takes_prompts(prompts, a, HD))
        launch_prompts<T, HD>(q, prompts, a, false);
    else
        prefill<T, HD>(q, a);
}
template <typename T, int HD>
static void attend_prompts(struct queue *q, struct prompts_state *, const attention_args<T, uint8_t> &a)
{
    prefill<T, HD>(q, a);
}

/* The same bits whatever else is in the batch: a few tokens at a time. */
template <typename T, int HD, typename C>
static void decode_all(struct queue *q, const attention_args<T, C> &all)
{
    size_t row = (size_t)all.heads.n_heads * (size_t)all.heads.head_dim;
    size_t inputs = row + 2 * (size_t)all.heads.n_kv_heads * (size_t)all.heads.head_dim;
    for (int t = 0; t < all.n_tokens; t += EVERY_TOKEN_ALONE) {
        attention_args<T, C> a = all;
        a.out += (size_t)t * row;
        a.qkv += (size_t)t * inputs;
        a.slot += t;
        a.pos += t;
        a.n_tokens = all.n_tokens - t < EVERY_TOKEN_ALONE ? all.n_tokens - t : EVERY_TOKEN_ALONE;
        decode<T, HD>(q, a);
    }
}

/* A few tokens with neighbours count as single. */
template <typename T, int HD>
static void attend_invariant(struct queue *q, struct prompts_state *prompts, const attention_args<T> &a)
{
    if (a.heads.chunk > 0 || !takes_prompts(prompts, a, HD)) {
        decode_all<T, HD>(q, a);
        return;
    }
    attention_args<T> others = a;
    if (a.n_tokens - a.n_alone <= EVERY_TOKEN_ALONE)
        others.n_alone = a.n_tokens;
    if (others.n_alone > 0)
        attend_same<T, HD>(q, a, others.n_alone);
    if (others.n_alone < a.n_tokens)
        launch_prompts<T, HD>(q, prompts, others, true);
}
template <typename T, int HD>
static void attend_invariant(struct queue *q, struct prompts_state *, const attention_args<T, uint8_t> &a)
{
    decode_all<T, HD>(q, a);
}

template <typename T, typename C>
static bool on_tensor_cores(struct queue *q, const attention_args<T, C> &a)
{
    struct attention_state *s = (struct attention_state *)cuda_state(q)->attention;
    if (!s->tensor_cores || a.heads.head_dim % 8 != 0 ||
        ((uintptr_t)a.k_cache | (uintptr_t)a.v_cache | (uintptr_t)a.qkv) % 16 != 0 || (uintptr_t)a.out % 4 != 0)
        return false;
    if (a.heads.head_dim > CUDA_TILE_HEAD_DIM)
        return attend_latents(q, a);
    with_width<C>(a.heads.head_dim, [&](auto w) {
        const int HD = decltype(w)::value;
        if (cuda_is_invariant(q)) {
            attend_invariant<T, HD>(q, &s->prompts, a);
            return;
        }
        if (a.n_tokens <= EVERY_TOKEN_ALONE) {
            decode<T, HD>(q, a);
            return;
        }
        attention_args<T, C> many = a;
        attend_shared<T, HD>(q, s, &many);
        decode_many<T, HD>(q, many);
        if (a.n_alone < a.n_tokens)
            attend_prompts<T, HD>(q, &s->prompts, a);
    });
    return true;
}

template <typename T, typename C>
static void attend(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                   const struct heads *heads, const struct batch *batch)
{
    attention_args<T, C> a =
        attention_args_of((T *)out, (const T *)qkv, (const C *)k_cache, (const C *)v_cache, heads, batch);
    if (!on_tensor_cores(q, a))
        plain(q, a);
}

extern "C" void cuda_attention(struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                               const struct heads *heads, const struct batch *batch)
{
    nvtx_range range("attention");
    if (batch->n_tokens < 1 || heads->n_heads < 1 || heads->head_dim < 1)
        return;
    if (heads->head_dim > CUDA_MAX_HEAD_DIM) {
        ERR(&q->err, ERR_UNSUPPORTED, "attention heads of %d, at most %d on CUDA", heads->head_dim, CUDA_MAX_HEAD_DIM);
        return;
    }
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if (heads->kv_scales != NULL)
            attend<T, uint8_t>(q, out, qkv, k_cache, v_cache, heads, batch);
        else
            attend<T, T>(q, out, qkv, k_cache, v_cache, heads, batch);
    });
}

/* Lets the kernels for a cache C use as much shared memory as they need. */
template <typename T, int HD, typename C>
static cudaError_t allow_cache()
{
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    cudaError_t rc = cudaFuncSetAttribute((const void *)attention_decode<T, HD, C>, most, sizeof(decode_shared<T, HD>));
    if (rc == cudaSuccess)
        rc = cudaFuncSetAttribute((const void *)attention_many<T, HD, C>, most, sizeof(many_warp<T, HD>) * MANY_WARPS);
    if (rc == cudaSuccess)
        rc = cudaFuncSetAttribute((const void *)attention_prefill<T, HD, C>, most, sizeof(prefill_shared<T, HD>));
    return rc;
}

template <typename T, int HD>
static cudaError_t allow_shared(bool prompts)
{
    cudaError_t rc = allow_cache<T, HD, T>();
    with_width<uint8_t>(HD, [&](auto w) {
        if (rc == cudaSuccess)
            rc = allow_cache<T, decltype(w)::value, uint8_t>();
    });
    return rc == cudaSuccess && prompts ? allow_prompts<T, HD>() : rc;
}

extern "C" int cuda_attention_open(struct queue *q, struct err *e)
{
    struct attention_state *s = (struct attention_state *)calloc(1, sizeof *s);
    if (!s)
        return ERR(e, ERR_MEMORY, "cannot allocate %zu bytes of host memory", sizeof *s);
    cuda_state(q)->attention = s;
    int shared_bytes = 0, device = cuda_state(q)->device;
    cudaError_t rc = cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    s->launches_early = cuda_state(q)->launches_early;
    s->tensor_cores = (size_t)shared_bytes >= sizeof(decode_shared<__half, CUDA_TILE_HEAD_DIM>) &&
                      (size_t)shared_bytes >= sizeof(prefill_shared<__half, CUDA_TILE_HEAD_DIM>);
    if (rc == cudaSuccess)
        rc = cudaMalloc(&s->partial, PARTIAL_BYTES);
    if (rc == cudaSuccess)
        rc = cudaMalloc(&s->n_arrived, MAX_ITEMS * sizeof *s->n_arrived);
    if (rc == cudaSuccess)
        rc = cudaMemsetAsync(s->n_arrived, 0, MAX_ITEMS * sizeof *s->n_arrived, cuda_stream(q));
    if (rc == cudaSuccess && s->tensor_cores)
        rc = open_prompts(q, &s->prompts);
    if (rc == cudaSuccess && s->prompts.tiles != NULL)
        rc = cudaMalloc(&s->shared, SHARED_BYTES);
    if (rc == cudaSuccess && s->tensor_cores)
        rc = prepare_fresh_attention();
    if (rc == cudaSuccess && s->prompts.tiles != NULL)
        rc = prepare_same_attention();
    if (rc == cudaSuccess && s->tensor_cores)
        rc = latent_open((size_t)shared_bytes, &s->latents);
    const int dims[] = {64, 80, 96, 128, 256};
    for (int dim : dims)
        with_width<__half>(dim, [&](auto w) {
            if (rc == cudaSuccess && s->tensor_cores)
                rc = allow_shared<__half, decltype(w)::value>(s->prompts.tiles);
            if (rc == cudaSuccess && s->tensor_cores)
                rc = allow_shared<__nv_bfloat16, decltype(w)::value>(s->prompts.tiles);
        });
    return rc == cudaSuccess ? 0 : ERR(e, ERR_DEVICE, "attention: %s", cudaGetErrorString(rc));
}

extern "C" void cuda_attention_close(struct queue *q)
{
    struct attention_state *s = cuda_state(q) ? (struct attention_state *)cuda_state(q)->attention : NULL;
    if (!s)
        return;
    (void)cudaFree(s->partial);
    (void)cudaFree(s->n_arrived);
    (void)cudaFree(s->shared);
    (void)cudaFree(s->prompts.tiles);
    free(s);
    cuda_state(q)->attention = NULL;
}
