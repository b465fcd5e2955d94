/* kernels/cuda/activate.cu - the activation functions between the matrices of an MLP. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/activation_choice.cuh"
#include "kernels/cuda/vectors.cuh"

#define THREADS  256
#define MAX_GRID 65535 /* in y */

/* Row t of x is at t * width; the gate comes first, the up part `up` elements further (0: not gated).
 * grid: columns, rows */
template <typename T, int N, int KIND>
__global__ void __launch_bounds__(THREADS, 2048 / THREADS)
    activate_kernel(T *out, const T *x, int n_tokens, int cols, int width, int up)
{
    using V = packed<T, N>;
    after_previous();
    int c = ((int)blockIdx.x * THREADS + (int)threadIdx.x) * N;
    for (int t = blockIdx.y; t < n_tokens && c < cols; t += gridDim.y) {
        const T *from = x + (size_t)t * width + c;
        V gate = *(const V *)from, other = gate;
        if (up > 0)
            other = *(const V *)(from + up);
        float y[N], factor[N];
        widen_pairs(y, gate);
        widen_pairs(factor, other);
#pragma unroll
        for (int k = 0; k < N; k++) {
            y[k] = activation((enum activation)KIND, y[k]);
            y[k] = up > 0 ? y[k] * factor[k] : y[k];
        }
        *(V *)(out + (size_t)t * cols + c) = round_pairs<T>(y);
    }
}

template <typename T, int N, int KIND>
static void launch_activate(struct queue *q, void *out, const void *x, bool gated, int n_tokens, int cols)
{
    dim3 grid((unsigned)((cols + N * THREADS - 1) / (N * THREADS)),
              (unsigned)(n_tokens < MAX_GRID ? n_tokens : MAX_GRID));
    launch(q, activate_kernel<T, N, KIND>, grid, dim3(THREADS), 0, (T *)out, (const T *)x, n_tokens, cols,
           gated ? 2 * cols : cols, gated ? cols : 0);
}

/* grid: columns, rows */
template <typename T>
__global__ void swiglu_kernel(T *out, const T *x, int n_tokens, int cols)
{
    after_previous();
    int c = (int)blockIdx.x * THREADS + (int)threadIdx.x;
    for (int t = blockIdx.y; t < n_tokens && c < cols; t += gridDim.y) {
        const T *from = x + ((size_t)t * cols + c) * 2;
        out[(size_t)t * cols + c] =
            from_float<T>(gated_activation(ACTIVATION_SWIGLU, to_float(from[0]), to_float(from[1])));
    }
}

static void swiglu(struct queue *q, void *out, const void *x, int n_tokens, int cols)
{
    dim3 grid((unsigned)(cols + THREADS - 1) / THREADS, (unsigned)(n_tokens < MAX_GRID ? n_tokens : MAX_GRID));
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        launch(q, swiglu_kernel<T>, grid, dim3(THREADS), 0, (T *)out, (const T *)x, n_tokens, cols);
    });
}

void cuda_activate(struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens, int cols)
{
    nvtx_range range("activate");
    if (n_tokens == 0 || cols == 0)
        return;
    if (kind == ACTIVATION_SWIGLU) {
        swiglu(q, out, x, n_tokens, cols);
        return;
    }
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        with_activation(kind, [&](auto chosen) {
            if (vectors_fit<T>(cols, out, x))
                launch_activate<T, 16 / sizeof(T), chosen()>(q, out, x, gated, n_tokens, cols);
            else
                launch_activate<T, 1, chosen()>(q, out, x, gated, n_tokens, cols);
        });
    });
}

/* grid: blocks of THREADS N elements */
template <typename T, int N>
__global__ void __launch_bounds__(THREADS) xielu_kernel(T *out, const T *x, xielu k, size_t n)
{
    after_previous();
    size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * N;
    if (i >= n)
        return;
    float y[N];
    widen_pairs(y, *(const packed<T, N> *)(x + i));
#pragma unroll
    for (int j = 0; j < N; j++) {
        float v = y[j];
        if (v > 0.0f)
            y[j] = k.positive * v * v + k.beta * v;
        else
            y[j] = k.negative * (expm1f(v > k.eps ? k.eps : v) - v) + k.beta * v; /* NaN stays NaN */
    }
    *(packed<T, N> *)(out + i) = round_pairs<T>(y);
}

template <typename T, int N>
static void launch_xielu(struct queue *q, void *out, const void *x, xielu constants, size_t n)
{
    size_t blocks = (n + N * THREADS - 1) / (N * THREADS);
    launch(q, xielu_kernel<T, N>, dim3((unsigned)blocks), dim3(THREADS), 0, (T *)out, (const T *)x, constants, n);
}

void cuda_xielu(struct queue *q, void *out, const void *x, struct xielu constants, int n_tokens, int cols)
{
    nvtx_range range("xielu");
    size_t n = (size_t)n_tokens * (size_t)cols;
    if (n == 0)
        return;
    with_type(q->act, [&](auto t) {
        using T = decltype(t);
        if (vectors_fit<T>(cols, out, x))
            launch_xielu<T, 16 / sizeof(T)>(q, out, x, constants, n);
        else
            launch_xielu<T, 1>(q, out, x, constants, n);
    });
}
