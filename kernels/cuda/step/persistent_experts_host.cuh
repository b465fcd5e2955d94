/* kernels/cuda/step/persistent_experts_host.cuh - what the host knows of a model with a mixture of experts before it
 * opens the persistent step. */
#ifndef STEP_PERSISTENT_EXPERTS_HOST_CUH
#define STEP_PERSISTENT_EXPERTS_HOST_CUH

#include "kernels/cuda/step/persistent_experts_codes.cuh"
#include "kernels/cuda/step/persistent_experts_kernels.h"
#include "kernels/cuda/step/persistent_host.cuh"
#include "kernels/decode_latent.h"

/* The part of a step that only mixtures have: p->experts of the p that cuda_persistent_open returned. */
struct expert_step {
    struct persistent *p;
    struct expert_args args;                     /* but for the chain_args that change */
    enum chain_form form;                        /* of the experts' weights */
    const struct expert_kernels *kernels, *lone; /* lone: for one token; NULL: there are none */
    int bias_rows, max_tokens;
    bool has_biases, has_gates; /* of the experts' second products; of shared MLPs */
    bool plain;                 /* see expert_plain */
};

/* FORM_NONE: 16-bit weights, or codes that no kernel supports. */
static inline enum chain_form expert_form(const struct weight *w)
{
    const struct code_form *f = &w->form;
    if (f->codes == CODES_E2M1 && f->scale == SCALE_E8M0 && f->group == SMALL_GROUP && f->first == 0)
        return FORM_E2M1;
    return form_of_weight(w) == FORM_E4M3 ? FORM_E4M3 : FORM_NONE;
}

static inline const struct weight *router_bias_of(const struct decode_mixture *m, int layer)
{
    return m->router_bias != nullptr ? m->router_bias[layer] : nullptr;
}

static inline enum dtype router_bias_type(const struct decode_mixture *m)
{
    for (int l = 0; l < m->model.n_layers; l++)
        if (router_bias_of(m, l) != nullptr)
            return router_bias_of(m, l)->type;
    return DTYPE_F32;
}

/* The scope that the kernel needs. */
static inline enum expert_scope find_scope(const struct decode_mixture *m)
{
    bool full = m->routing->sigmoid || m->routing->n_groups > 1;
    for (int l = 0; l < m->model.n_layers; l++)
        full = full || m->router[l] == nullptr || m->common[l].out != nullptr;
    return decode_latent_of(&m->model) != nullptr ? SCOPE_LATENT : full ? SCOPE_FULL : SCOPE_PLAIN;
}

/* The model with one expert as its MLP. */
static inline struct decode_model dense_model(const struct decode_mixture *m)
{
    struct decode_model d = m->model;
    d.ffn = m->expert_ffn;
    return d;
}

#endif
