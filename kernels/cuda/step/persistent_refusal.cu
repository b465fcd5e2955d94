/* kernels/cuda/step/persistent_refusal.cu - which devices and dense models the persistent kernels support; for others,
 * why they do not. persistent_experts_refusal.cu says the same of mixtures of experts. */
#include "kernels/cuda/step/persistent_input.cuh"
#include "kernels/cuda/step/persistent_maps.cuh"
#include "kernels/cuda/step/persistent_model.h"
#include "kernels/decode_latent.h"

#define MAX_HIDDEN (NORM_UNITS * UNIT_COLUMNS * CHAIN_THREADS) /* elements that the norms keep in registers */
#define MAX_LAYERS 256

static bool fits_type(const struct queue *q, const struct weight *w)
{
    return w == nullptr || weight_is_quantised(w) || w->type == q->act;
}

bool weight_has_groups(const struct weight *w)
{
    return code_groups(&w->form, w->cols) > 1;
}

enum chain_form form_of_weight(const struct weight *w)
{
    const struct code_form *f = &w->form;
    if (!weight_is_quantised(w) || f->scale != SCALE_F32 ||
        (weight_has_groups(w) ? f->group != GROUP_COLUMNS || f->first != 0 : f->zeros))
        return FORM_NONE;
    return f->codes == CODES_E4M3   ? FORM_E4M3
           : f->codes == CODES_INT8 ? FORM_INT8
           : f->codes == CODES_INT4 ? FORM_INT4
                                    : FORM_NONE;
}

/* Returns why a product's weights are refused, by name. */
static const char *refuse_codes(const struct weight *w)
{
    if (!weight_is_quantised(w))
        return nullptr;
    if (form_of_weight(w) == FORM_NONE)
        return "quantised weights other than FP8, INT8 and INT4 with scales of rows or of whole groups of 128 inputs";
    if (w->cols * code_bits(w->form.codes) % 1024 != 0)
        return "quantised weights in rows that are not multiples of 128 bytes";
    int groups = code_groups(&w->form, w->cols);
    if (groups > 1 && (groups % 4 != 0 || (w->form.zeros && groups % 16 != 0)))
        return "scales or zeros in rows that are not multiples of 16 bytes";
    return nullptr;
}

/* A kernel supports one form. */
static bool another_form(const struct decode_model *m, const struct weight *w)
{
    const struct weight *first = find_codes(m);
    return weight_is_quantised(w) &&
           (form_of_weight(w) != form_of_weight(first) || w->form.zeros != first->form.zeros ||
            weight_has_groups(w) != weight_has_groups(first));
}

/* Compares a layer with the first one. */
static bool alike(const struct decode_layer *a, const struct decode_layer *b)
{
    const struct weight *const pairs[][2] = {
        {a->qkv, b->qkv}, {a->out, b->out}, {a->mlp_in, b->mlp_in}, {a->mlp_out, b->mlp_out}};
    for (const auto &pair : pairs)
        if (weight_is_quantised(pair[0]) != weight_is_quantised(pair[1]))
            return false;
    return true;
}

static const char *refuse_layer(struct queue *q, const struct decode_model *m, const struct decode_layer *l)
{
    const struct weight *const all[] = {l->attn_norm,     l->attn_norm_bias, l->attn_out_norm, l->mlp_norm,
                                        l->mlp_norm_bias, l->mlp_out_norm,   l->qkv,           l->qkv_bias,
                                        l->q_norm,        l->k_norm,         l->out,           l->out_bias,
                                        l->mlp_in,        l->mlp_in_bias,    l->mlp_out,       l->mlp_out_bias};
    for (const struct weight *w : all)
        if (!fits_type(q, w))
            return "weights of more than one type";
    const struct weight *const products[] = {l->qkv, l->out, l->mlp_in, l->mlp_out};
    for (const struct weight *w : products)
        if (w->rows < 2 || w->cols < 8 || w->cols % 8 != 0 || (uintptr_t)w->data % 16 != 0)
            return "rows of weights that are not multiples of 16 bytes";
    for (int k = 0; k < CHAIN_PRODUCTS; k++)
        if (!is_expert(m, k) && refuse_codes(products[k]) != nullptr)
            return refuse_codes(products[k]);
    const struct heads *h = &l->heads;
    if (!(m->mixture && decode_layer_is_latent(l)) && h->head_dim != 64 && h->head_dim != 128 && h->head_dim != 256)
        return "heads that have neither 64, 128 nor 256 elements";
    if (h->kv_scales != nullptr && h->head_dim > 128)
        return "keys and values in FP8, of heads of 256 elements";
    return h->alibi_slopes != nullptr ? "ALiBi" : nullptr;
}

/* Why a model that needs kernels with CHAIN_OUTPUTS is refused. */
static const char *refuse_outputs(const struct decode_model *m)
{
    const struct rope *all = m->rope, *windowed = m->window_rope;
    if (m->mixture || m->parallel || find_codes(m) != nullptr)
        return "norms of outputs, weights that are differences from 1, a factor of the embedding or two rotations, "
               "beside experts, parallel layers or quantised weights";
    if (m->several || m->layer[0].heads.kv_scales != nullptr)
        return "norms of outputs, weights that are differences from 1, a factor of the embedding or two rotations, "
               "beside several tokens of a sequence or keys and values in FP8";
    if (m->norm != NORM_RMS && m->norm != NORM_RMS_OFFSET)
        return "norms of outputs, a factor of the embedding or two rotations, beside LayerNorm";
    if (windowed != nullptr && (windowed->dims != all->dims || windowed->layout != all->layout))
        return "rotations of different sizes";
    return nullptr;
}

static bool is_too_old(struct queue *q)
{
    int major = 0, cooperative = 0, device = cuda_state(q)->device;
    CUDA_TRY(q, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    CUDA_TRY(q, cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
    return major < 9 || !cooperative;
}

extern "C" size_t cuda_persistent_sums_bytes(struct queue *q, int n_ranks)
{
    return is_too_old(q) || n_ranks > PERSISTENT_MAX_RANKS ? 0 : sums_bytes(n_ranks, MAX_HIDDEN);
}

extern "C" const char *cuda_persistent_refusal(struct queue *q, const struct decode_model *m)
{
    if (is_too_old(q))
        return "a GPU older than compute capability 9.0";
    if (q->act == DTYPE_F32)
        return "32-bit weights";
    if (m->n_ranks > PERSISTENT_MAX_RANKS)
        return "more than 8 ranks";
    if (m->hidden > MAX_HIDDEN || m->hidden % 8 != 0 || m->ffn % 8 != 0)
        return "a hidden size above 8192 or sizes that are not multiples of 8";
    if (m->n_layers < 1 || m->n_layers > MAX_LAYERS)
        return "more than 256 layers";
    if (needs_outputs(m) && refuse_outputs(m) != nullptr)
        return refuse_outputs(m);
    if (m->rope != nullptr && m->rope->dims % 8 != 0)
        return "a rotation whose number of elements is no multiple of 8";
    if (!fits_type(q, m->embed) || !fits_type(q, m->position) || !fits_type(q, m->final_norm) ||
        !fits_type(q, m->head) || !fits_type(q, m->final_norm_bias) || !fits_type(q, m->head_bias))
        return "weights of more than one type";
    if (m->head->rows < 1 || (uintptr_t)m->head->data % 16 != 0)
        return "a rank without vocabulary";
    for (int l = 0; l < m->n_layers; l++) {
        const char *why = refuse_layer(q, m, &m->layer[l]);
        if (why != nullptr)
            return why;
        if (!alike(&m->layer[0], &m->layer[l]))
            return "weights that are quantised in some layers only";
    }
    const char *why = refuse_codes(m->head);
    if (why == nullptr && m->parallel && find_codes(m) != nullptr)
        why = "quantised weights in parallel layers";
    bool mixed = false;
    each_product(m, [&](const struct weight *w, int k) { mixed = mixed || (!is_expert(m, k) && another_form(m, w)); });
    return why == nullptr && mixed ? "quantised weights of more than one form" : why;
}
