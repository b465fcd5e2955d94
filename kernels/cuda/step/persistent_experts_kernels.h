/* kernels/cuda/step/persistent_experts_kernels.h - the host's interface to the kernels for mixtures of experts, for one
 * type of activations and one form of experts' weights. */
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
    expert_kernels_e2m1, expert_kernels_bf16_latent, expert_kernels_f16, expert_kernels_bf16_lone,
    expert_kernels_bf16_lone_once, expert_kernels_e4m3_lone, expert_kernels_e2m1_lone_once,
    expert_kernels_bf16_lone_ranks, expert_kernels_bf16_lone_ranks_once, expert_kernels_e4m3_lone_ranks,
    expert_kernels_e2m1_lone_ranks_once;

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

/* The kernels with CHAIN_LONE, which are for bfloat16, SCOPE_PLAIN and, with 16-bit weights, LONE_SLOTS slots of the
 * ring; NULL: there are none for such heads and norms. several: for more than one rank */
#define LONE_SLOTS 5
static inline const struct expert_kernels *find_lone_kernels(enum chain_form form, int head_dim, enum norm_kind norm,
                                                             bool several)
{
    bool once = head_dim == 64 && norm == NORM_RMS_ONCE, twice = head_dim == 128 && norm == NORM_RMS;
    if (form == FORM_NONE && once)
        return several ? &expert_kernels_bf16_lone_ranks_once : &expert_kernels_bf16_lone_once;
    if (form == FORM_NONE && twice)
        return several ? &expert_kernels_bf16_lone_ranks : &expert_kernels_bf16_lone;
    if (form == FORM_E4M3 && twice)
        return several ? &expert_kernels_e4m3_lone_ranks : &expert_kernels_e4m3_lone;
    if (form == FORM_E2M1 && once)
        return several ? &expert_kernels_e2m1_lone_ranks_once : &expert_kernels_e2m1_lone_once;
    return nullptr;
}

#endif
