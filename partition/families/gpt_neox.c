/* partition/families/gpt_neox.c - GPT-NeoX and Pythia: parallel residual with two norms, q, k, v interleaved by
 * head. */
#include "partition/families.h"
#include "partition/rope.h"

#include <math.h>

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 44, .hidden = 6144, .n_heads = 64, .vocab = 50432};
    static const struct rope_keys rope = {"rotary_emb_base|rope_theta", 10000, "rotary_pct|partial_rotary_factor", 0.25,
                                          ROPE_NAMES};
    config_sizes(m, c, &missing);
    config_divide_heads(m, c);
    m->ffn = config_int(c, "intermediate_size", 24576, 1, CONFIG_MAX_FFN);
    m->max_positions = config_int(c, "max_position_embeddings", 2048, 1, CONFIG_MAX_POSITIONS);
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_eps", 1e-5, 0, 1);
    m->activation = config_activation(c, "hidden_act", ACTIVATION_GELU);
    m->parallel_residual = config_bool(c, "use_parallel_residual", true);
    m->final_norm = m->norm_affine = m->norm_bias = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", true);
    m->mlp_bias = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", false);
    m->attention_scale = (float)(1 / sqrt(m->head_dim));
    m->position = POSITION_ROPE;
    rope_read(m, c, &rope);
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "embed_in.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "final_layer_norm.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "final_layer_norm.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "embed_out.weight", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "layers.%d.input_layernorm.bias", false, 0},
    {WEIGHT_QKV, PART_QKV_HEADS, "layers.%d.attention.query_key_value.weight", false, 0},
    {WEIGHT_QKV_BIAS, PART_QKV_HEADS, "layers.%d.attention.query_key_value.bias", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "layers.%d.attention.dense.weight", false, 0},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "layers.%d.attention.dense.bias", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "layers.%d.post_attention_layernorm.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "layers.%d.mlp.dense_h_to_4h.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "layers.%d.mlp.dense_h_to_4h.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.dense_4h_to_h.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "layers.%d.mlp.dense_4h_to_h.bias", false, 0},
    {0},
};
static const char *const outside[] = {"embed_out.weight", NULL};
static const char *const ignored[] = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq", NULL};

const struct family family_gpt_neox = {"gpt_neox", "GPTNeoXFor", "gpt_neox.", config,
                                       source,     outside,      ignored,     NOT_WRAPPED};
