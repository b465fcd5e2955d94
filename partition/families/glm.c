/* partition/families/glm.c - GLM-4-9B (glm-4-9b-hf): half of every head rotates, in neighbouring pairs; gate and up in one
 * tensor. */
#include "partition/families/llama.h"

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 40,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 2,
                                                .head_dim = 128,
                                                .vocab = 151552,
                                                .ffn = 13696,
                                                .max_positions = 131072,
                                                .norm_eps = 1.5625e-7f};
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 0.5, false};
    llama_read(m, c, &missing, &rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->qkv_bias = config_bool(c, "attention_bias", true);
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "embed_tokens.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "norm.weight", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_QKV, PART_Q, "layers.%d.self_attn.q_proj.weight", false, 0},
    {WEIGHT_QKV, PART_K, "layers.%d.self_attn.k_proj.weight", false, 0},
    {WEIGHT_QKV, PART_V, "layers.%d.self_attn.v_proj.weight", false, 0},
    {WEIGHT_QKV_BIAS, PART_Q, "layers.%d.self_attn.q_proj.bias", false, 0},
    {WEIGHT_QKV_BIAS, PART_K, "layers.%d.self_attn.k_proj.bias", false, 0},
    {WEIGHT_QKV_BIAS, PART_V, "layers.%d.self_attn.v_proj.bias", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "layers.%d.self_attn.o_proj.weight", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_IN, PART_GATE_UP, "layers.%d.mlp.gate_up_proj.weight", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.down_proj.weight", false, 0},
    {0},
};

const struct family family_glm = {"glm", "GlmFor", "model.", config, source, llama_outside, llama_ignored};
