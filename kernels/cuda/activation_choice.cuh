/* kernels/cuda/activation_choice.cuh - a kernel's activation function, chosen by the host. */
#ifndef KERNELS_CUDA_ACTIVATION_CHOICE_CUH
#define KERNELS_CUDA_ACTIVATION_CHOICE_CUH

#include "kernels/cuda/device.cuh"

#include <type_traits>

/* Calls f with the kind as a constant of the compiler. SwiGLU, a function of two numbers, and xIELU, which has
 * constants, are left out. */
template <typename F>
static inline void with_activation(enum activation kind, F f)
{
    switch (kind) {
    case ACTIVATION_GELU:
        return f(std::integral_constant<int, ACTIVATION_GELU>());
    case ACTIVATION_GELU_TANH:
        return f(std::integral_constant<int, ACTIVATION_GELU_TANH>());
    case ACTIVATION_RELU:
        return f(std::integral_constant<int, ACTIVATION_RELU>());
    case ACTIVATION_SILU:
        return f(std::integral_constant<int, ACTIVATION_SILU>());
    case ACTIVATION_QUICK_GELU:
        return f(std::integral_constant<int, ACTIVATION_QUICK_GELU>());
    case ACTIVATION_SWIGLU:
    case ACTIVATION_XIELU:
        return;
    }
}

#endif
