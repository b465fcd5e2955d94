/* kernels/cuda/attention/attention_fresh.cu - qkv_store and attention as one operation, for batches of single tokens in
 * 16-bit types whose heads attention_fresh.cuh takes. On invariant devices attention_same.cu does it. */
#include "kernels/cuda/attention/attention_fresh.cuh"
#include "kernels/cuda/attention/attention_host.cuh"
#include "kernels/invariance.h"

template <typename T, int HD>
__global__ void __launch_bounds__(ATTENTION_WARPS * 32, 3) fresh_decode(attention_args<T> a, fresh_args<T> f)
{
    decode_block<T, HD>(a, fresh_token<T, HD>(f));
}

template <typename T, int HD>
__global__ void __launch_bounds__(MANY_WARPS * 32, 6) fresh_many(attention_args<T> a, fresh_args<T> f)
{
    many_block<T, HD>(a, fresh_token<T, HD>(f));
}

/* Calls f(T, width) for every type and width that the kernels have. */
template <typename F>
static void each_kernel(F f)
{
    f(__half(), std::integral_constant<int, 64>()), f(__half(), std::integral_constant<int, 128>());
    f(__nv_bfloat16(), std::integral_constant<int, 64>()), f(__nv_bfloat16(), std::integral_constant<int, 128>());
}

cudaError_t prepare_fresh_attention(void)
{
    cudaError_t rc = cudaSuccess;
    each_kernel([&](auto type, auto width) {
        using T = decltype(type);
        const int HD = decltype(width)::value;
        const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
        if (rc == cudaSuccess)
            rc = cudaFuncSetAttribute((const void *)fresh_decode<T, HD>, most, sizeof(decode_shared<T, HD>));
        if (rc == cudaSuccess)
            rc = cudaFuncSetAttribute((const void *)fresh_many<T, HD>, most, sizeof(many_warp<T, HD>) * MANY_WARPS);
    });
    return rc;
}

/* Do the kernels take these heads? Every KV head has all of its query heads here, so that an item stores it. */
static bool takes_heads(const struct heads *h)
{
    return (h->head_dim == 64 || h->head_dim == 128) && h->kv_scales == NULL && h->heads_per_kv <= DECODE_ROWS &&
           h->n_heads == h->n_kv_heads * h->heads_per_kv && h->first_head == h->first_kv_head * h->heads_per_kv;
}

static bool takes_rotation(const struct rope *rope, int head_dim, const struct head_norms *norms)
{
    return rope != NULL && rope->layout == ROPE_HALF && rope->dims == head_dim && rope->query_growth == 0 &&
           norms->q == NULL && norms->k == NULL && !norms->unit;
}

/* Returns false if the kernels of invariant devices do not take the batch. */
template <typename T, int HD>
static bool attend(struct queue *q, const attention_args<T> &a, const fresh_args<T> &f)
{
    if (cuda_is_invariant(q))
        return store_and_attend_same<T, HD>(q, a, f);
    if (a.n_tokens <= EVERY_TOKEN_ALONE)
        launch_decode<T, HD>(q, a, fresh_decode<T, HD>, f);
    else
        launch_many<T, HD>(q, a, fresh_many<T, HD>, f);
    return true;
}

extern "C" bool cuda_store_and_attend(struct queue *q, void *out, const void *qkv, void *k_cache, void *v_cache,
                                      const struct heads *heads, const struct batch *batch, const struct rope *rope,
                                      const float *cos_sin, const struct head_norms *norms)
{
    nvtx_range range("store_and_attend");
    const struct attention_state *s = (const struct attention_state *)cuda_state(q)->attention;
    if (!s->tensor_cores || q->act == DTYPE_F32 || batch->n_alone < batch->n_tokens || batch->prefixes != NULL ||
        !takes_heads(heads) || !takes_rotation(rope, heads->head_dim, norms) ||
        ((uintptr_t)k_cache | (uintptr_t)v_cache | (uintptr_t)qkv | (uintptr_t)out | (uintptr_t)cos_sin) % 16 != 0)
        return false;
    if (batch->n_tokens < 1 || heads->n_heads < 1)
        return true;
    bool done = false;
    with_type(q->act, [&](auto act) {
        using T = decltype(act);
        if constexpr (sizeof(T) == 2) {
            const attention_args<T> a =
                attention_args_of((T *)out, (const T *)qkv, (const T *)k_cache, (const T *)v_cache, heads, batch);
            const fresh_args<T> f = {cos_sin, (T *)k_cache, (T *)v_cache};
            done = heads->head_dim == 64 ? attend<T, 64>(q, a, f) : attend<T, 128>(q, a, f);
        }
    });
    return done;
}
