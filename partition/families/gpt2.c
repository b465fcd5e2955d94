/* partition/families/gpt2.c - GPT-2: learned positions, pre-norm, Conv1D matrices stored [in, out]. */
#include "partition/families.h"

#include <math.h>

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 12, .hidden = 768, .n_heads = 12, .vocab = 50257};
    config_sizes(m, c, &missing);
    config_divide_heads(m, c);
    m->ffn = config_int(c, "n_inner", 4 * m->hidden, 1, CONFIG_MAX_FFN);
    m->max_positions = config_int(c, "n_positions|max_position_embeddings|n_ctx", 1024, 1, CONFIG_MAX_POSITIONS);
    m->positions_end = true;
    m->position = POSITION_LEARNED;
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_epsilon", 1e-5, 0, 1);
    m->activation = config_activation(c, "activation_function", ACTIVATION_GELU_TANH);
    m->final_norm = m->norm_affine = m->norm_bias = true;
    m->qkv_bias = m->out_bias = m->mlp_bias = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    bool scaled = config_bool(c, "scale_attn_weights", true);
    m->attention_scale = scaled ? (float)(1 / sqrt(m->head_dim)) : 1.0f;
    m->scale_by_inverse_layer = config_bool(c, "scale_attn_by_inverse_layer_idx", false);
    if (config_bool(c, "add_cross_attention", false))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"add_cross_attention\" is true: encoder-decoder models are not implemented",
            c->what);
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "wte.weight", false, 0},
    {WEIGHT_POSITION, PART_WHOLE, "wpe.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "ln_f.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "ln_f.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "h.%d.ln_1.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "h.%d.ln_1.bias", false, 0},
    {WEIGHT_QKV, PART_QKV_BLOCKS, "h.%d.attn.c_attn.weight", true, 0},
    {WEIGHT_QKV_BIAS, PART_QKV_BLOCKS, "h.%d.attn.c_attn.bias", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "h.%d.attn.c_proj.weight", true, 0},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "h.%d.attn.c_proj.bias", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "h.%d.ln_2.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "h.%d.ln_2.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "h.%d.mlp.c_fc.weight", true, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "h.%d.mlp.c_fc.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "h.%d.mlp.c_proj.weight", true, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "h.%d.mlp.c_proj.bias", false, 0},
    {0},
};
static const char *const outside[] = {"lm_head.weight", NULL};
static const char *const ignored[] = {".attn.bias", ".attn.masked_bias", NULL};

const struct family family_gpt2 = {"gpt2", "GPT2", "transformer.", config, source, outside, ignored, NOT_WRAPPED};
