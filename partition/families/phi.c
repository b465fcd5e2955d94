/* partition/families/phi.c - Phi-1, -1.5 and -2: one LayerNorm feeds attention and MLP in parallel, at most half of
 * every head rotates, every matrix has a bias, including the head. */
#include "partition/families/llama.h"

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {
        .n_layers = 24, .hidden = 2048, .n_heads = 32, .vocab = 51200, .ffn = 8192, .max_positions = 2048};
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 0.5, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_eps", 1e-5, 0, 1);
    m->activation = config_activation(c, "hidden_act", ACTIVATION_GELU_TANH);
    m->gated_mlp = false;
    m->parallel_residual = m->shared_norm = true;
    m->norm_bias = m->qkv_bias = m->out_bias = m->mlp_bias = m->head_bias = true;
    if (config_bool(c, "qk_layernorm", false))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"qk_layernorm\" is true: a LayerNorm of q and k with bias is not implemented",
            c->what);
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "embed_tokens.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "final_layernorm.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "final_layernorm.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_HEAD_BIAS, PART_WHOLE, "lm_head.bias", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "layers.%d.input_layernorm.bias", false, 0},
    LLAMA_QKV,
    {WEIGHT_OUT, PART_WHOLE, "layers.%d.self_attn.dense.weight", false, 0},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "layers.%d.self_attn.dense.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "layers.%d.mlp.fc1.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "layers.%d.mlp.fc1.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.fc2.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "layers.%d.mlp.fc2.bias", false, 0},
    {0},
};
static const char *const outside[] = {"lm_head.weight", "lm_head.bias", NULL};

const struct family family_phi = {"phi", "PhiFor", "model.", config, source, outside, llama_ignored, NOT_WRAPPED};
