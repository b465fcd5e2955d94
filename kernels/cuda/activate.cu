/* kernels/cuda/activate.cu - the activation functions between the matrices of an MLP. */
#include "kernels/cuda/activation.cuh"

/* Row t of x is at t * width; its gate comes first, `up` elements further what it multiplies (0: not gated). */
template <typename T, int N, int KIND>
__global__ void activate_kernel(T *out, const T *x, size_t n, size_t cols, size_t width, size_t up)
{
    using V = vec<T, N>;
    after_previous();
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N; i < n;
         i += (size_t)gridDim.x * blockDim.x * N) {
        const T *from = x + i / cols * width + i % cols;
        V v = *(const V *)from, u = v;
        if (up > 0)
            u = *(const V *)(from + up);
        for (int k = 0; k < N; k++) {
            float y = activation((enum activation)KIND, to_float(v.e[k]));
            v.e[k] = from_float<T>(up > 0 ? y * to_float(u.e[k]) : y);
        }
        *(V *)(out + i) = v;
    }
}

template <typename T, int N, int KIND>
static void launch_activate(struct queue *q, void *out, const void *x, bool gated, int n_tokens, int cols)
{
    size_t n = (size_t)n_tokens * cols, width = gated ? 2 * (size_t)cols : cols;
    launch(q, activate_kernel<T, N, KIND>, dim3(blocks_for(n / N, 128)), dim3(128), 0, (T *)out, (const T *)x, n,
           (size_t)cols, width, gated ? (size_t)cols : (size_t)0);
}

template <typename T, int N>
static void choose(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens, int cols)
{
    switch (kind) {
    case ACTIVATION_GELU:
        launch_activate<T, N, ACTIVATION_GELU>(q, out, x, gated, n_tokens, cols);
        break;
    case ACTIVATION_GELU_TANH:
        launch_activate<T, N, ACTIVATION_GELU_TANH>(q, out, x, gated, n_tokens, cols);
        break;
    case ACTIVATION_RELU:
        launch_activate<T, N, ACTIVATION_RELU>(q, out, x, gated, n_tokens, cols);
        break;
    case ACTIVATION_SILU:
        launch_activate<T, N, ACTIVATION_SILU>(q, out, x, gated, n_tokens, cols);
        break;
    case ACTIVATION_QUICK_GELU:
        launch_activate<T, N, ACTIVATION_QUICK_GELU>(q, out, x, gated, n_tokens, cols);
        break;
    }
}

void cuda_activate(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens, int cols)
{
    nvtx_range range("activate");
    if (n_tokens == 0 || cols == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        if (vectors_fit<T>(cols, out, x))
            choose<T, 16 / sizeof(T)>(q, out, x, kind, gated, n_tokens, cols);
        else
            choose<T, 1>(q, out, x, kind, gated, n_tokens, cols);
    });
}
