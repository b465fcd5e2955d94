/* partition/families/opt.c - OPT: learned positions from row 2 on; 350m has post-norm and a narrower embedding. */
#include "partition/families.h"

#include <math.h>

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 12, .hidden = 768, .n_heads = 12, .vocab = 50272};
    config_sizes(m, c, &missing);
    config_divide_heads(m, c);
    m->ffn = config_int(c, "ffn_dim", 3072, 1, CONFIG_MAX_FFN);
    m->max_positions = config_int(c, "max_position_embeddings", 2048, 1, CONFIG_MAX_POSITIONS);
    m->positions_end = true;
    m->position = POSITION_LEARNED;
    m->position_offset = 2;
    m->embed_dim = config_int(c, "word_embed_proj_dim", m->hidden, 1, CONFIG_MAX_HIDDEN);
    m->norm = NORM_LAYER;
    m->norm_eps = 1e-5f;
    m->activation = config_activation(c, "activation_function", ACTIVATION_RELU);
    m->post_norm = !config_bool(c, "do_layer_norm_before", true);
    m->final_norm = !m->post_norm && !config_bool(c, "_remove_final_layer_norm", false);
    m->norm_bias = true;
    m->norm_affine = config_bool(c, "layer_norm_elementwise_affine", true);
    m->qkv_bias = m->out_bias = m->mlp_bias = config_bool(c, "enable_bias", true);
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    m->attention_scale = (float)(1 / sqrt(m->head_dim));
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "decoder.embed_tokens.weight", false, 0},
    {WEIGHT_POSITION, PART_WHOLE, "decoder.embed_positions.weight", false, 0},
    {WEIGHT_PROJECT_IN, PART_WHOLE, "decoder.project_in.weight", false, 0},
    {WEIGHT_PROJECT_OUT, PART_WHOLE, "decoder.project_out.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "decoder.final_layer_norm.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "decoder.final_layer_norm.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "decoder.layers.%d.self_attn_layer_norm.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "decoder.layers.%d.self_attn_layer_norm.bias", false, 0},
    {WEIGHT_QKV, PART_Q, "decoder.layers.%d.self_attn.q_proj.weight", false, 0},
    {WEIGHT_QKV, PART_K, "decoder.layers.%d.self_attn.k_proj.weight", false, 0},
    {WEIGHT_QKV, PART_V, "decoder.layers.%d.self_attn.v_proj.weight", false, 0},
    {WEIGHT_QKV_BIAS, PART_Q, "decoder.layers.%d.self_attn.q_proj.bias", false, 0},
    {WEIGHT_QKV_BIAS, PART_K, "decoder.layers.%d.self_attn.k_proj.bias", false, 0},
    {WEIGHT_QKV_BIAS, PART_V, "decoder.layers.%d.self_attn.v_proj.bias", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "decoder.layers.%d.self_attn.out_proj.weight", false, 0},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "decoder.layers.%d.self_attn.out_proj.bias", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "decoder.layers.%d.final_layer_norm.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "decoder.layers.%d.final_layer_norm.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "decoder.layers.%d.fc1.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "decoder.layers.%d.fc1.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "decoder.layers.%d.fc2.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "decoder.layers.%d.fc2.bias", false, 0},
    {0},
};
static const char *const outside[] = {"lm_head.weight", NULL};
static const char *const ignored[] = {NULL};

const struct family family_opt = {"opt", "OPTFor", "model.", config, source, outside, ignored, NOT_WRAPPED};
