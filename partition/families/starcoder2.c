/* partition/families/starcoder2.c - StarCoder2: LayerNorm and biases, an MLP without gates, grouped-query attention, a
 * window. */
#include "partition/families/llama.h"

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 30,
                                                .hidden = 3072,
                                                .n_heads = 24,
                                                .n_kv_heads = 2,
                                                .vocab = 49152,
                                                .ffn = 12288,
                                                .max_positions = 4096};
    llama_read(m, c, &missing, &llama_rope);
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "norm_epsilon", 1e-5, 0, 1);
    m->norm_bias = true;
    m->gated_mlp = false;
    m->activation = config_activation(c, "hidden_act", ACTIVATION_GELU_TANH);
    m->qkv_bias = m->out_bias = m->mlp_bias = config_bool(c, "use_bias", true);
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    for (int i = 0, window = config_int(c, "sliding_window", 0, 1, CONFIG_MAX_POSITIONS); i < m->n_layers; i++)
        m->layer[i].window = window;
}

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "layers.%d.input_layernorm.bias", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "layers.%d.post_attention_layernorm.bias", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "layers.%d.mlp.c_fc.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "layers.%d.mlp.c_fc.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.c_proj.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "layers.%d.mlp.c_proj.bias", false, 0},
    {0},
};

const struct family family_starcoder2 = {"starcoder2", "Starcoder2For", "model.",      config,
                                         source,       llama_outside,   llama_ignored, NOT_WRAPPED};
