/* partition/families/phi3.c - Phi-3, -3.5 and -4: Llama with q, k, v in one tensor, gate and up in another;
 * LongRoPE. */
#include "partition/families/llama.h"

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 3072,
                                                .n_heads = 32,
                                                .vocab = 32064,
                                                .ffn = 8192,
                                                .max_positions = 4096,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 1, ROPE_YARN_IS_LONG};
    llama_read(m, c, &missing, &rope);
    for (int i = 0, window = config_int(c, "sliding_window", 0, 1, CONFIG_MAX_POSITIONS); i < m->n_layers; i++)
        m->layer[i].window = window;
}

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_QKV, PART_QKV_BLOCKS, "layers.%d.self_attn.qkv_proj.weight", false, 0},
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_IN, PART_GATE_UP, "layers.%d.mlp.gate_up_proj.weight", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.down_proj.weight", false, 0},
    {0},
};

const struct family family_phi3 = {"phi3", "Phi3For",     "model.",      config,
                                   source, llama_outside, llama_ignored, NOT_WRAPPED};
