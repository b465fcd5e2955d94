/* kernels/cuda/products/weigh.cu - scales the experts' inputs by their shares. */
#include "kernels/cuda/device.cuh"

#define THREADS 256

/* One block per token. */
template <typename T>
__global__ void __launch_bounds__(THREADS) weigh_kernel(T *out, const T *x, float *share, int dim)
{
    after_previous();
    size_t row = (size_t)blockIdx.x * dim;
    float factor = share[blockIdx.x];
    __syncthreads();
    for (int c = threadIdx.x; c < dim; c += THREADS)
        out[row + c] = from_float<T>(factor * to_float(x[row + c]));
    if (threadIdx.x == 0)
        share[blockIdx.x] = 1;
}

extern "C" void cuda_weigh_input(struct queue *q, void *out, const void *x, const struct routes *r, int n_tokens,
                                 int dim)
{
    nvtx_range range("weigh_input");
    if (n_tokens < 1)
        return;
    with_type(q->act, [&](auto type) {
        using T = decltype(type);
        launch(q, weigh_kernel<T>, dim3((unsigned)n_tokens), dim3(THREADS), 0, (T *)out, (const T *)x, r->share, dim);
    });
}
