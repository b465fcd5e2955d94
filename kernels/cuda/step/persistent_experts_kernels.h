/* kernels/cuda/step/persistent_experts_kernels.h - what the host's side asks of the kernels for mixtures of experts, of
 * activations of one type and experts' weights of one form. */
#ifndef STEP_PERSISTENT_EXPERTS_KERNELS_H
#define STEP_PERSISTENT_EXPERTS_KERNELS_H

#include "kernels/cuda/step/persistent_choice.cuh"

struct expert_kernels {
    void (*open)(struct queue *q, int max_shared);
    void (*patience)(struct queue *q, uint32_t for_others, uint32_t for_own);
    /* slots: of the ring; 5, 3 or 2. Enqueued. */
    void (*run)(struct queue *q, int slots, const struct expert_args *a);
};
extern const struct expert_kernels expert_kernels_bf16, expert_kernels_bf16_full, expert_kernels_e4m3,
    expert_kernels_e2m1, expert_kernels_bf16_latent, expert_kernels_f16;

/* act: float16 has 16-bit weights and no latents; scope: of 16-bit weights only; of others SCOPE_PLAIN */
static inline const struct expert_kernels *find_expert_kernels(enum dtype act, enum chain_form form,
                                                               enum expert_scope scope)
{
    return act == DTYPE_F16        ? &expert_kernels_f16
           : form == FORM_E4M3     ? &expert_kernels_e4m3
           : form == FORM_E2M1     ? &expert_kernels_e2m1
           : scope == SCOPE_LATENT ? &expert_kernels_bf16_latent
           : scope == SCOPE_FULL   ? &expert_kernels_bf16_full
                                   : &expert_kernels_bf16;
}

#endif
