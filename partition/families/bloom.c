/* partition/families/bloom.c - BLOOM: ALiBi, a norm on the embedding, q, k, v interleaved by head. */
#include "partition/families.h"

#include <math.h>

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 2, .hidden = 64, .n_heads = 8, .vocab = 250880};
    config_sizes(m, c, &missing);
    config_divide_heads(m, c);
    m->ffn = 4 * m->hidden;
    m->max_positions = 0; /* "seq_length" is only the training length */
    m->position = POSITION_ALIBI;
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_epsilon", 1e-5, 0, 1);
    m->activation = ACTIVATION_GELU_TANH;
    m->residual_is_normed = config_bool(c, "apply_residual_connection_post_layernorm", false);
    m->embed_norm = m->final_norm = m->norm_affine = m->norm_bias = true;
    m->qkv_bias = m->out_bias = m->mlp_bias = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    m->attention_scale = (float)(1 / sqrt(m->head_dim));
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "word_embeddings.weight", false, 0},
    {WEIGHT_EMBED_NORM, PART_WHOLE, "word_embeddings_layernorm.weight", false, 0},
    {WEIGHT_EMBED_NORM_BIAS, PART_WHOLE, "word_embeddings_layernorm.bias", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "ln_f.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "ln_f.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "h.%d.input_layernorm.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "h.%d.input_layernorm.bias", false, 0},
    {WEIGHT_QKV, PART_QKV_HEADS, "h.%d.self_attention.query_key_value.weight", false, 0},
    {WEIGHT_QKV_BIAS, PART_QKV_HEADS, "h.%d.self_attention.query_key_value.bias", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "h.%d.self_attention.dense.weight", false, 0},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "h.%d.self_attention.dense.bias", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "h.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "h.%d.post_attention_layernorm.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "h.%d.mlp.dense_h_to_4h.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "h.%d.mlp.dense_h_to_4h.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "h.%d.mlp.dense_4h_to_h.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "h.%d.mlp.dense_4h_to_h.bias", false, 0},
    {0},
};
static const char *const outside[] = {"lm_head.weight", NULL};
static const char *const ignored[] = {NULL};

const struct family family_bloom = {"bloom", "BloomFor", "transformer.", config, source, outside, ignored, NOT_WRAPPED};
