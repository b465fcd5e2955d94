/* kernels/cuda/step/persistent_model.h - properties of a model that decide on its persistent step: for persistent.cu,
 * which opens the step, and persistent_refusal.cu, which says what it does not support. Host only */
#ifndef STEP_PERSISTENT_MODEL_H
#define STEP_PERSISTENT_MODEL_H

#include "kernels/cuda/step/persistent_host.cuh"

/* The narrow kernel's host handles a mixture's experts only for the copies of their weights. */
static inline bool is_expert(const struct decode_model *m, int product)
{
    return m->mixture && (product == 2 || product == 3);
}

/* The weights of the first quantised product; NULL: there is none. */
static inline const struct weight *find_codes(const struct decode_model *m)
{
    const struct decode_layer *l = &m->layer[0];
    const struct weight *const all[] = {l->qkv, l->out, l->mlp_in, l->mlp_out, m->head};
    for (int k = 0; k <= CHAIN_HEAD; k++)
        if (weight_is_quantised(all[k]) && !is_expert(m, k))
            return all[k];
    return nullptr;
}

/* Does the model need kernels with CHAIN_OUTPUTS? */
static inline bool needs_outputs(const struct decode_model *m)
{
    return m->norm == NORM_RMS_OFFSET || m->embed_scale > 0 || m->window_rope != nullptr ||
           m->layer[0].attn_out_norm != nullptr || m->layer[0].mlp_out_norm != nullptr;
}

/* Size of the memory to which the other ranks write their sums. */
static inline size_t sums_bytes(int n_ranks, int hidden)
{
    return 2 * (size_t)n_ranks * PERSISTENT_MAX_TOKENS * (size_t)hidden * sizeof(unsigned long long);
}

#endif
