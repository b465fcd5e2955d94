/* kernels/cuda/inputs.h - see kernels/inputs.h; products quantise their inputs themselves (products/inputs.cu). */
#ifndef KERNELS_CUDA_INPUTS_H
#define KERNELS_CUDA_INPUTS_H

#include "kernels/inputs.h"

#define CUDA_INPUTS_AS_THEY_ARE 16 /* rows of products of codes that are bound by memory */

#ifdef __cplusplus
extern "C" {
#endif

const char *cuda_inputs_refusal(struct queue *q, const struct weight *w, const struct input_form *f, bool of_experts);

#ifdef __cplusplus
}
#endif

#endif
