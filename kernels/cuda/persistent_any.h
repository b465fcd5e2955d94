/* kernels/cuda/persistent_any.h - the persistent step of any model: functions of struct persistent_ops that call
 * persistent.cu for dense layers and persistent_experts.cu for mixtures of experts (kernels/decode_mixture.h). */
#ifndef KERNELS_CUDA_PERSISTENT_ANY_H
#define KERNELS_CUDA_PERSISTENT_ANY_H

#include "kernels/persistent.h"

#ifdef __cplusplus
extern "C" {
#endif

const char *cuda_any_refusal(struct queue *q, const struct decode_model *m);
void *cuda_any_open(struct queue *q, const struct decode_model *m, void *sums);
void cuda_any_close(struct queue *q, void *p);
int cuda_any_max_tokens(const void *p);
void cuda_any_attach(struct queue *q, void *p, void *const *memory);
void cuda_any_run(struct queue *q, void *p, void *logits, const struct batch *batch, const float *cos_sin,
                  const float *window_cos_sin);
/* As cuda_persistent_patience, for all persistent kernels. For tests */
void cuda_any_patience(struct queue *q, uint32_t for_others, uint32_t for_own);

#ifdef __cplusplus
}
#endif

#endif
