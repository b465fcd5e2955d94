/* partition/families/glm.c - GLM-4-9B (glm-4-9b-hf) and GLM-4-0414 (glm4): half of every head rotates, in neighbouring
 * pairs; gate and up in one tensor. The latter also normalises the outputs of attention and MLP. */
#include "partition/families/llama.h"

static void config_glm(struct model_config *m, const struct config *c)
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
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 0.5, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->qkv_bias = config_bool(c, "attention_bias", true);
}

static const struct weight_source glm_source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_IN, PART_GATE_UP, "layers.%d.mlp.gate_up_proj.weight", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.down_proj.weight", false, 0},
    {0},
};

static void config_glm4(struct model_config *m, const struct config *c)
{
    config_glm(m, c);
    m->output_norms = true;
}

static const struct weight_source glm4_source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_ATTN_OUT_NORM, PART_WHOLE, "layers.%d.post_self_attn_layernorm.weight", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_IN, PART_GATE_UP, "layers.%d.mlp.gate_up_proj.weight", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.down_proj.weight", false, 0},
    {WEIGHT_MLP_OUT_NORM, PART_WHOLE, "layers.%d.post_mlp_layernorm.weight", false, 0},
    {0},
};

const struct family family_glm = {"glm",      "GlmFor",      "model.",      config_glm,
                                  glm_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_glm4 = {"glm4",      "Glm4For",     "model.",      config_glm4,
                                   glm4_source, llama_outside, llama_ignored, NOT_WRAPPED};
