/* kernels/cuda/rotation.cuh - the rotary embedding of one element of a head. */
#ifndef KERNELS_CUDA_ROTATION_CUH
#define KERNELS_CUDA_ROTATION_CUH

#include "kernels/cuda/device.cuh"

/* Element d of the head in x after the rotation of its first `dims`; pair j = (x[ia], x[ib]). half: enum rope_layout */
__device__ static inline float rotated(const float *x, const float *cos_sin, int dims, bool half, int d)
{
    int pairs = dims / 2;
    if (d >= dims)
        return x[d];
    int j = !half ? d / 2 : d < pairs ? d : d - pairs;
    int ia = half ? j : 2 * j, ib = half ? j + pairs : 2 * j + 1;
    float a = x[ia], b = x[ib], c = cos_sin[j], sine = cos_sin[pairs + j];
    return d == ia ? a * c - b * sine : b * c + a * sine;
}

/* Rotates a pair. The roundings are explicit, so that all kernels that use it have the same bits. */
__device__ static inline void rotate_pair(float &a, float &b, float c, float sine)
{
    float x = a, y = b;
    a = fmaf(x, c, -__fmul_rn(y, sine));
    b = fmaf(y, c, __fmul_rn(x, sine));
}

#endif
