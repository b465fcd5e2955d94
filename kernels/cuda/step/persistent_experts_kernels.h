/* kernels/cuda/step/persistent_experts_kernels.h - what the host's side asks of the kernels for mixtures of experts, of
 * activations of one type. */
#ifndef STEP_PERSISTENT_EXPERTS_KERNELS_H
#define STEP_PERSISTENT_EXPERTS_KERNELS_H

#include "kernels/cuda/step/persistent_choice.cuh"

struct expert_kernels {
    void (*open)(struct queue *q, int max_shared);
    void (*patience)(struct queue *q, uint32_t for_others, uint32_t for_own);
    /* slots: of the ring; 5, 3 or 2. Enqueued. */
    void (*run)(struct queue *q, int slots, const struct expert_args *a);
};
/* full: see persistent_experts_kernel */
extern const struct expert_kernels expert_kernels_bf16, expert_kernels_bf16_full;

#endif
