/* kernels/cuda/inputs.h - see kernels/inputs.h; products quantise their inputs themselves (products/inputs.cu). */
#ifndef KERNELS_CUDA_INPUTS_H
#define KERNELS_CUDA_INPUTS_H

#include "kernels/inputs.h"

#define CUDA_INPUTS_AS_THEY_ARE 16 /* rows of products of codes that are bound by memory */

#ifdef __cplusplus
extern "C" {
#endif

const char *cuda_inputs_refusal(struct queue *q, const struct weight *w, const struct input_form *f, bool of_experts);

bool cuda_inputs_activate(struct queue *q, const struct weight *w, const void *x, enum activation kind, int n_rows);
bool cuda_inputs_norm(struct queue *q, const struct weight *w, void *x, const void *add, enum norm_kind kind,
                      const struct weight *scale, const struct weight *shift, int n_rows, float eps);

#ifdef __cplusplus
}
#endif

#endif
