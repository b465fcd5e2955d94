/* partition/families/stablelm.c - StableLM: LayerNorm, a quarter of every head rotates; the 12b runs attention and MLP
 * in parallel after one norm, and normalises each head of q and k with its own weights. */
#include "partition/families/llama.h"

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 2560,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .vocab = 50304,
                                                .ffn = 6912,
                                                .max_positions = 4096};
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 0.25, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_eps", 1e-5, 0, 1);
    m->norm_bias = true;
    m->qkv_bias = config_bool(c, "use_qkv_bias", false);
    m->parallel_residual = m->shared_norm = config_bool(c, "use_parallel_residual", false);
    m->qk_norm = m->qk_norm_each = config_bool(c, "qk_layernorm", false);
}

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "layers.%d.input_layernorm.bias", false, 0},
    LLAMA_QKV,
    {WEIGHT_Q_NORM, PART_HEAD, "layers.%d.self_attn.q_layernorm.norms.%d.weight", false, 0},
    {WEIGHT_K_NORM, PART_HEAD, "layers.%d.self_attn.k_layernorm.norms.%d.weight", false, 0},
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "layers.%d.post_attention_layernorm.bias", false, 0},
    LLAMA_MLP,
    {0},
};

const struct family family_stablelm = {"stablelm", "StableLmFor", "model.",      config,
                                       source,     llama_outside, llama_ignored, NOT_WRAPPED};
