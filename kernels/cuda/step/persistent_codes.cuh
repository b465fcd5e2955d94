/* kernels/cuda/step/persistent_codes.cuh - the narrow kernels for weights that are codes, of activations of type T: what
 * persistent_codes_f16.cu and persistent_codes_bf16.cu have in common, each for its own, since they take long to
 * compile. */
#ifndef STEP_PERSISTENT_CODES_CUH
#define STEP_PERSISTENT_CODES_CUH

#include "kernels/cuda/step/persistent_code_tile.cuh"
#include "kernels/cuda/step/persistent_host.cuh"

typedef void (*chain_kernel)(struct chain_args);

/* slots: of the ring; 5, 3 or 2 */
template <typename T, chain_form FORM>
static chain_kernel find_kernel(int slots)
{
    return slots == 5   ? persistent_kernel<T, 5, FORM>
           : slots == 3 ? persistent_kernel<T, 3, FORM>
                        : persistent_kernel<T, 2, FORM>;
}

template <typename T>
static chain_kernel find_codes(enum chain_form form, int slots)
{
    return form == FORM_ROWS   ? find_kernel<T, FORM_ROWS>(slots)
           : form == FORM_E4M3 ? find_kernel<T, FORM_E4M3>(slots)
                               : find_kernel<T, FORM_INT4>(slots);
}

template <typename T>
static void codes_open(struct queue *q, const struct persistent *p)
{
    for (int slots : {5, 3, 2})
        CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_codes<T>(p->form, slots),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, p->max_shared));
}

static void codes_patience(struct queue *q, uint32_t for_others, uint32_t for_own)
{
    const decltype(word_patience) patience = {cuda_state(q)->vain, for_others, for_own};
    CUDA_TRY(q, cudaMemcpyToSymbol(word_patience, &patience, sizeof patience));
}

template <typename T>
static void codes_run(struct queue *q, const struct persistent *p, int slots, const struct chain_args *a)
{
    launch_chain(q, find_codes<T>(p->form, slots), *a);
}

#endif
