/* kernels/cuda/noise.cu - weights without a checkpoint, bit for bit those of kernels/cpu/noise.c. */
#include "kernels/cuda/device.cuh"

/* splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): output number i of the
 * generator that starts from the seed. Its four 16-bit parts serve the elements 4i .. 4i+3. */
__device__ static uint64_t splitmix64(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Multiplication and sum each rounded: the compiler would fuse them, and the last bit would differ from the CPU's. */
template <typename T>
__global__ void noise_kernel(T *data, size_t n, uint64_t seed, float center, float scale)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; 4 * i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint64_t word = splitmix64(seed, i);
        for (size_t k = 4 * i; k < 4 * i + 4 && k < n; k++, word >>= 16) {
            float unit = __fmul_rn((float)(word & 0xFFFF) - 32767.5f, 1.0f / 32767.5f);
            data[k] = from_float<T>(__fadd_rn(center, __fmul_rn(scale, unit)));
        }
    }
}

void cuda_fill_noise(struct queue *q, struct weight *w, uint64_t seed, float center, float scale)
{
    size_t n = (size_t)w->rows * (size_t)w->cols;
    if (n == 0)
        return;
    with_type(w->type, [&](auto t) {
        using T = decltype(t);
        noise_kernel<<<blocks_for((n + 3) / 4, 256), 256, 0, cuda_stream(q)>>>((T *)w->data, n, seed, center, scale);
    });
    CUDA_TRY(q, cudaGetLastError());
}
