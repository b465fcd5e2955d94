/* kernels/cuda/activation.cuh - the activation functions named in base/formula.h. */
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
    case ACTIVATION_SWIGLU: /* of the clamped gate */
    case ACTIVATION_QUICK_GELU:
        return x / (1.0f + expf(-1.702f * x));
    case ACTIVATION_XIELU: /* cuda_xielu */
        break;
    }
    return x;
}

/* The formula of most gates, without branches: (max(min(up, limit), -limit) + offset) gate / (1 + exp(-slope gate)),
 * with gate clamped to limit. */
struct gate_formula {
    float limit, slope, offset;
};

static inline __host__ __device__ bool has_gate_formula(enum activation kind)
{
    return kind == ACTIVATION_SILU || kind == ACTIVATION_SWIGLU;
}

__device__ static inline gate_formula gate_formula_of(enum activation kind)
{
    if (kind == ACTIVATION_SWIGLU)
        return {SWIGLU_LIMIT, 1.702f, 1.0f};
    return {__int_as_float(0x7f800000), 1.0f, 0.0f};
}

__device__ static inline float gated_by(const gate_formula &f, float gate, float up)
{
    gate = gate > f.limit ? f.limit : gate; /* NaN stays NaN */
    up = up > f.limit ? f.limit : up < -f.limit ? -f.limit : up;
    return (up + f.offset) * (gate / (1.0f + expf(-f.slope * gate)));
}

__device__ static inline float gated_activation(enum activation kind, float gate, float up)
{
    return has_gate_formula(kind) ? gated_by(gate_formula_of(kind), gate, up) : activation(kind, gate) * up;
}

#endif
