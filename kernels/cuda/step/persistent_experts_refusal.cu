/* kernels/cuda/step/persistent_experts_refusal.cu - which models the persistent kernels for mixtures of experts
 * support, and what only they support. */
#include "kernels/cuda/persistent_any.h"
#include "kernels/cuda/step/persistent_experts_host.cuh"
#include "kernels/cuda/step/persistent_latent.cuh"

#define MAX_CHOSEN 32 /* for a token */

/* The columns of the experts' products are multiples of this. */
static int expert_columns(enum chain_form form)
{
    return form == FORM_E2M1 ? SMALL_GROUP : form == FORM_E4M3 ? GROUP_COLUMNS : EXPERT_COLUMNS;
}

static const char *refuse_experts(const struct decode_model *m, const struct decode_layer *l)
{
    const struct decode_layer *first = &m->layer[0];
    const enum chain_form form = expert_form(first->mlp_in);
    const struct weight *const dense[] = {l->qkv, l->out, m->head};
    for (const struct weight *w : dense)
        if (weight_is_quantised(w) && form_of_weight(w) != form)
            return "experts and other weights that are quantised in different ways";
    const struct weight *const experts[][2] = {{l->mlp_in, first->mlp_in}, {l->mlp_out, first->mlp_out}};
    for (const auto &w : experts) {
        if (weight_is_quantised(w[0]) && expert_form(w[0]) == FORM_NONE)
            return "quantised experts other than FP8 with scales of rows or of whole groups of 128 inputs, and MXFP4";
        if (expert_form(w[0]) != form || !code_form_equal(&w[0]->form, &w[1]->form))
            return "experts that are not quantised alike";
        if (w[0]->cols % expert_columns(form) != 0)
            return "experts whose sizes are not multiples of 64, in FP8 of 128, in MXFP4 of 32";
    }
    return nullptr;
}

/* Returns why a layer's router or shared MLP is refused. */
static const char *refuse_more(struct queue *q, const struct decode_mixture *m, int layer)
{
    const struct decode_common *common = &m->common[layer];
    const struct weight *const all[] = {m->router[layer], common->in, common->out, common->gate};
    for (const struct weight *w : all)
        if (w != nullptr && weight_is_quantised(w))
            return "quantised routers or shared experts";
    for (const struct weight *w : all)
        if (w != nullptr && (w->type != q->act || (uintptr_t)w->data % 16 != 0))
            return "weights of more than one type";
    const struct weight *bias = router_bias_of(m, layer);
    if (bias != nullptr && bias->type != (m->routing->sigmoid ? router_bias_type(m) : q->act))
        return "biases of routers of another type than the other weights";
    if (common->out != nullptr && common->out->cols % EXPERT_COLUMNS != 0)
        return "shared experts or MLPs beside mixtures whose sizes are not multiples of 64";
    return common->out != nullptr && m->model.activation == ACTIVATION_SWIGLU ? "shared experts whose gates take turns"
                                                                              : nullptr;
}

static const char *refuse_layer(struct queue *q, const struct decode_mixture *m, int layer)
{
    const struct decode_layer *l = &m->model.layer[layer];
    const struct weight *const products[] = {l->qkv, l->out, l->mlp_in, l->mlp_out, m->model.head};
    for (const struct weight *w : products)
        if (weight_is_quantised(w) && q->act == DTYPE_F16)
            return "quantised mixtures of experts in float16";
    for (const struct weight *w : products)
        if (weight_is_quantised(w) && find_scope(m) != SCOPE_PLAIN)
            return "quantised weights with routers of sigmoids or groups, shared experts, layers without experts or "
                   "latent attention";
    if (l->heads.sinks != nullptr && l->heads.sinks_type != q->act)
        return "attention sinks of another type than the other weights";
    if (l->heads.kv_scales != nullptr)
        return "keys and values in FP8 beside mixtures of experts";
    return refuse_more(q, m, layer);
}

/* A step's memory for biases is sized by the first layer's. */
static bool biases_alike(const struct decode_layer *a, const struct decode_layer *b)
{
    return (a->qkv_bias != nullptr) == (b->qkv_bias != nullptr) &&
           (a->out_bias != nullptr) == (b->out_bias != nullptr) &&
           (a->mlp_out_bias != nullptr) == (b->mlp_out_bias != nullptr);
}

/* Returns why latent attention is refused. */
static const char *refuse_latents(struct queue *q, const struct decode_latent *d)
{
    const struct decode_model *m = &d->mixture.model;
    if (d->rank != LATENT_RANK || d->rotated != LATENT_TURNED || d->key != LATENT_KEY || d->value != LATENT_VALUE)
        return "latents of another size than 512, or heads of other parts than 128, 64 rotated ones and 128";
    if (m->rope == nullptr || m->rope->dims != LATENT_TURNED)
        return "latent attention without a rotation";
    if (m->layer[0].qkv->rows / 2 < cuda_state(q)->n_multiprocessors)
        return "latent attention with fewer rows of queries than two for each of the GPU's multiprocessors";
    for (int l = 0; l < m->n_layers; l++) {
        const struct decode_latent_layer *layer = &d->layer[l];
        const struct weight *const all[] = {layer->latent, layer->norm, layer->key_up, layer->value_up};
        for (const struct weight *w : all)
            if (weight_is_quantised(w) || w->type != q->act || (uintptr_t)w->data % 16 != 0)
                return "weights of latent attention that are quantised or of another type";
        if (m->layer[l].qkv_bias != nullptr || m->layer[l].heads.sinks != nullptr)
            return "latent attention with biases or sinks";
    }
    return nullptr;
}

static const char *refuse_mixture(struct queue *q, const struct decode_mixture *m)
{
    const struct routing *how = m->routing;
    if (q->act == DTYPE_F16 && find_scope(m) == SCOPE_LATENT)
        return "latent attention in float16";
    if (how->n_experts > EXPERT_MAX || how->n_chosen > MAX_CHOSEN)
        return "more than 256 experts, or 32 for a token";
    if (m->model.norm == NORM_LAYER)
        return "mixtures of experts with LayerNorm";
    if (m->model.hidden % EXPERT_COLUMNS != 0)
        return "a hidden size that is not a multiple of 64";
    if (m->model.hidden / 2 < cuda_state(q)->n_multiprocessors)
        return "experts in layers of fewer rows than two for each of the GPU's multiprocessors";
    for (int l = 0; l < m->model.n_layers; l++) {
        const char *why = refuse_layer(q, m, l);
        if (why == nullptr && m->router[l] != nullptr)
            why = refuse_experts(&m->model, &m->model.layer[l]);
        if (why == nullptr && !biases_alike(&m->model.layer[0], &m->model.layer[l]))
            why = "mixtures of experts with biases in some layers only";
        if (why != nullptr)
            return why;
    }
    const struct decode_latent *latents = decode_latent_of(&m->model);
    return latents != nullptr ? refuse_latents(q, latents) : nullptr;
}

/* Refuses by name: only the kernels for mixtures support these. */
static const char *refuse_dense(const struct decode_model *m)
{
    if (m->norm == NORM_RMS_ONCE)
        return "norms that are rounded after their weight";
    return m->layer[0].heads.sinks != nullptr ? "attention sinks in dense layers" : nullptr;
}

extern "C" const char *cuda_any_refusal(struct queue *q, const struct decode_model *m)
{
    const struct decode_mixture *mixture = decode_mixture_of(m);
    if (mixture == nullptr)
        return refuse_dense(m) != nullptr ? refuse_dense(m) : cuda_persistent_refusal(q, m);
    struct decode_model dense = dense_model(mixture);
    const char *why = refuse_mixture(q, mixture);
    return why != nullptr ? why : cuda_persistent_refusal(q, &dense);
}
