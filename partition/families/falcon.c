/* partition/families/falcon.c - Falcon 7b, 40b, 180b and 11b: attention and MLP in parallel, with one norm or one each;
 * q, k and v in one tensor, by KV head. */
#include "partition/families.h"
#include "partition/rope.h"

#include <math.h>

static void read_heads(struct model_config *m, const struct config *c, bool new_architecture)
{
    if (new_architecture)
        m->n_kv_heads = config_int(c, "num_kv_heads", m->n_heads, 1, CONFIG_MAX_HEADS);
    else if (config_bool(c, "multi_query", true))
        m->n_kv_heads = 1;
}

static void read_residual(struct model_config *m, const struct config *c, bool new_architecture)
{
    int n_norms = config_int(c, "num_ln_in_parallel_attn", new_architecture ? 2 : 1, 1, 2);
    m->parallel_residual = new_architecture || config_bool(c, "parallel_attn", true);
    m->shared_norm = m->parallel_residual && n_norms == 1;
    if (n_norms == 2 && !new_architecture)
        ERR(c->e, ERR_INPUT, "%s: \"num_ln_in_parallel_attn\" is 2, expected 1 without \"new_decoder_architecture\"",
            c->what);
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32, .hidden = 4544, .n_heads = 71, .vocab = 65024};
    static const struct rope_keys rope = {"rope_theta", 10000, NULL, 1, ROPE_NAMES};
    bool new_architecture = config_bool(c, "new_decoder_architecture", false);
    config_sizes(m, c, &missing);
    config_divide_heads(m, c);
    read_heads(m, c, new_architecture);
    read_residual(m, c, new_architecture);
    m->ffn = config_int(c, "ffn_hidden_size", 4 * m->hidden, 1, CONFIG_MAX_FFN);
    m->max_positions = config_int(c, "max_position_embeddings", 2048, 1, CONFIG_MAX_POSITIONS);
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_epsilon", 1e-5, 0, 1);
    m->activation = config_activation(c, "activation", ACTIVATION_GELU);
    m->final_norm = m->norm_affine = m->norm_bias = true;
    m->qkv_bias = m->out_bias = m->mlp_bias = config_bool(c, "bias", false);
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    m->attention_scale = (float)(1 / sqrt(m->head_dim));
    m->position = POSITION_ROPE;
    if (config_bool(c, "alibi", false))
        ERR(c->e, ERR_UNSUPPORTED,
            "%s: \"alibi\" is true: ALiBi rounded to bfloat16, as Falcon has it, is not implemented", c->what);
    if (c->e->code == ERR_NONE)
        rope_read(m, c, &rope);
}

enum { TWO_NORMS = 1, ONE_NORM }; /* forms */

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "word_embeddings.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "ln_f.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "ln_f.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "h.%d.ln_attn.weight", false, TWO_NORMS},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "h.%d.ln_attn.bias", false, TWO_NORMS},
    {WEIGHT_MLP_NORM, PART_WHOLE, "h.%d.ln_mlp.weight", false, TWO_NORMS},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "h.%d.ln_mlp.bias", false, TWO_NORMS},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "h.%d.input_layernorm.weight", false, ONE_NORM},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "h.%d.input_layernorm.bias", false, ONE_NORM},
    {WEIGHT_MLP_NORM, PART_WHOLE, "h.%d.post_attention_layernorm.weight", false, ONE_NORM},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "h.%d.post_attention_layernorm.bias", false, ONE_NORM},
    {WEIGHT_QKV, PART_QKV_HEADS, "h.%d.self_attention.query_key_value.weight", false, 0},
    {WEIGHT_QKV_BIAS, PART_QKV_HEADS, "h.%d.self_attention.query_key_value.bias", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "h.%d.self_attention.dense.weight", false, 0},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "h.%d.self_attention.dense.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "h.%d.mlp.dense_h_to_4h.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "h.%d.mlp.dense_h_to_4h.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "h.%d.mlp.dense_4h_to_h.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "h.%d.mlp.dense_4h_to_h.bias", false, 0},
    {0},
};
static const char *const outside[] = {"lm_head.weight", NULL};
static const char *const ignored[] = {".rotary_emb.inv_freq", NULL};

const struct family family_falcon = {"falcon", "FalconFor", "transformer.", config,
                                     source,   outside,     ignored,        NOT_WRAPPED};
