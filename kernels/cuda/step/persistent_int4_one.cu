/* kernels/cuda/step/persistent_int4_one.cu - the narrow persistent kernel for weights in INT4 and one token, see
 * persistent_codes.cuh and, for what it multiplies, persistent_digits.cuh. */
#define CHAIN_KEYS 1
#define CHAIN_ONE  1
#include "kernels/cuda/step/persistent_codes.cuh"
#include "kernels/cuda/step/persistent_digit_tile.cuh"

/* Here a ring may also have 4 slots, for models whose digits leave no room for 5. */
static chain_kernel find_deep_kernel(const struct queue *q, int slots)
{
    return slots != 4             ? find_kernel<FORM_INT4, false>(q, slots)
           : q->act == DTYPE_BF16 ? persistent_kernel<__nv_bfloat16, 4, FORM_INT4, false>
                                  : persistent_kernel<__half, 4, FORM_INT4, false>;
}

static void open_digits(struct queue *q, int max_shared)
{
    codes_open<FORM_INT4, false>(q, max_shared);
    CUDA_TRY(q, cudaFuncSetAttribute((const void *)find_deep_kernel(q, 4), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     max_shared));
}

static void run_digits(struct queue *q, int slots, const struct chain_args *a)
{
    launch_chain(q, find_deep_kernel(q, slots), *a);
}

const struct code_kernels code_kernels_int4_one = {open_digits, set_patience, run_digits};
