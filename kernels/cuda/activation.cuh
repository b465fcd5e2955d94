/* kernels/cuda/activation.cuh - the activation functions, base/formula.h's names. */
#ifndef KERNELS_CUDA_ACTIVATION_CUH
#define KERNELS_CUDA_ACTIVATION_CUH

#include "kernels/cuda/device.cuh"

__device__ static inline float activation(enum activation kind, float x)
{
    switch (kind) {
    case ACTIVATION_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case ACTIVATION_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ACTIVATION_RELU:
        return x < 0.0f ? 0.0f : x; /* NaN stays NaN */
    case ACTIVATION_SILU:
        return x / (1.0f + expf(-x));
    case ACTIVATION_SWIGLU: /* of what is clamped */
    case ACTIVATION_QUICK_GELU:
        return x / (1.0f + expf(-1.702f * x));
    }
    return x;
}

#endif
