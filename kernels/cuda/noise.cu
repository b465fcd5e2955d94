/* kernels/cuda/noise.cu - weights without a checkpoint, bit for bit those of kernels/cpu/noise.c. */
#include "kernels/code_noise.h"
#include "kernels/cuda/device.cuh"

#include <math.h>

/* splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): output number i of
 * the generator that starts from the seed. Its four 16-bit parts serve the elements 4i .. 4i+3. */
__device__ static uint64_t splitmix64(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Multiplication and sum are rounded separately: if the compiler fused them, the last bit would differ from the
 * CPU's. */
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

__global__ void codes_kernel(uint64_t *data, size_t n, uint64_t seed, enum codes codes)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        data[i] = code_noise(codes, splitmix64(seed, i));
}

__global__ void scales_kernel(uint8_t *scales, size_t n, float scale, uint8_t exponent, bool floats)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        if (floats)
            ((float *)scales)[i] = scale;
        else
            scales[i] = exponent;
}

static void fill_codes(struct queue *q, struct weight *w, uint64_t seed, float range)
{
    const struct code_form *f = &w->form;
    uint8_t *data = (uint8_t *)w->data;
    size_t scales = code_scales_at(f, w->rows, w->cols), n = (size_t)w->rows * (size_t)code_groups(f, w->cols);
    float scale = code_noise_scale(f->codes, range);
    codes_kernel<<<blocks_for(scales / 8, 256), 256, 0, cuda_stream(q)>>>((uint64_t *)data, scales / 8, seed, f->codes);
    scales_kernel<<<blocks_for(n, 256), 256, 0, cuda_stream(q)>>>(
        data + scales, n, scale, (uint8_t)(127 + ilogbf(scale)), f->scale == SCALE_F32);
    if (f->zeros)
        CUDA_TRY(q, cudaMemsetAsync(data + code_zeros_at(f, w->rows, w->cols), code_zero(f->codes), n, cuda_stream(q)));
}

void cuda_fill_noise(struct queue *q, struct weight *w, uint64_t seed, float center, float scale)
{
    if (weight_is_quantised(w)) {
        if (w->rows > 0 && w->cols > 0)
            fill_codes(q, w, seed, scale);
        CUDA_TRY(q, cudaGetLastError());
        return;
    }
    size_t n = (size_t)w->rows * (size_t)w->cols;
    if (n == 0)
        return;
    with_type(w->type, [&](auto t) {
        using T = decltype(t);
        noise_kernel<<<blocks_for((n + 3) / 4, 256), 256, 0, cuda_stream(q)>>>((T *)w->data, n, seed, center, scale);
    });
    CUDA_TRY(q, cudaGetLastError());
}
