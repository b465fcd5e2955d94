/* partition/families/qwen_vl.c - the language models of Qwen2-VL, Qwen2.5-VL and Qwen3-VL. Positions in time, height
 * and width ("mrope") are the same in texts, so that their rotation is the plain one. */
#include "partition/families/llama.h"

static void config_qwen2_vl(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 80,
                                                .hidden = 8192,
                                                .n_heads = 64,
                                                .n_kv_heads = 8,
                                                .vocab = 152064,
                                                .ffn = 29568,
                                                .max_positions = 32768,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 1e6, NULL, 1, ROPE_MROPE_IS_PLAIN};
    llama_read(m, c, &missing, &rope);
    m->qkv_bias = true;
    llama_read_windows(m, c, qwen_window(c), config_int(c, "max_window_layers", 80, 0, CONFIG_MAX_POSITIONS));
}

static const struct rope_keys rope_qwen3 = {"rope_theta", 500000, NULL, 1, ROPE_MROPE_IS_PLAIN};

static void config_qwen3_vl(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .head_dim = 128,
                                                .vocab = 151936,
                                                .ffn = 22016,
                                                .max_positions = 128000};
    llama_read(m, c, &missing, &rope_qwen3);
    m->qk_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
}

static void config_qwen3_vl_moe(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 24,
                                                .hidden = 2048,
                                                .n_heads = 16,
                                                .n_kv_heads = 16,
                                                .vocab = 151936,
                                                .ffn = 5632,
                                                .max_positions = 128000};
    llama_read(m, c, &missing, &rope_qwen3);
    m->qk_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    llama_read_routing(m, c, 60, 1, 4, true);
    m->experts.ffn = config_int(c, "moe_intermediate_size", 1408, 1, CONFIG_MAX_FFN);
    qwen_read_experts(m, c);
}

/* Forms of the experts' matrices, told apart by their shapes: as published, and as transformers 5 saves them again. */
enum { EXPERTS_PUBLISHED = 1, EXPERTS_SAVED };

static const struct weight_source moe_source[] = {
    LLAMA_AROUND,
    LLAMA_LAYER,
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.down_proj", true, EXPERTS_PUBLISHED},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.mlp.experts.gate_up_proj", true, EXPERTS_PUBLISHED},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.down_proj", false, EXPERTS_SAVED},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.mlp.experts.gate_up_proj", false, EXPERTS_SAVED},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.mlp.gate.weight", false, 0},
    {0},
};
static const char *const pictures[] = {".rotary_emb.inv_freq", "visual.", NULL};

const struct family family_qwen2_vl = {"qwen2_vl",   "Qwen2VLFor",  "model.", config_qwen2_vl,
                                       llama_source, llama_outside, pictures, WRAPPED_OR_FLAT};
const struct family family_qwen2_5_vl = {"qwen2_5_vl", "Qwen2_5_VLFor", "model.", config_qwen2_vl,
                                         llama_source, llama_outside,   pictures, WRAPPED_OR_FLAT};
const struct family family_qwen3_vl = {"qwen3_vl",   "Qwen3VLFor",  "model.", config_qwen3_vl,
                                       llama_source, llama_outside, pictures, WRAPPED};
const struct family family_qwen3_vl_moe = {"qwen3_vl_moe", "Qwen3VLMoeFor", "model.", config_qwen3_vl_moe,
                                           moe_source,     llama_outside,   pictures, WRAPPED};
