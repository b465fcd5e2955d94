/* partition/families/moe.c - relatives of Llama with mixtures of experts: Mixtral, Qwen2-MoE, Qwen3-MoE and OLMoE. */
#include "partition/families/llama.h"

void qwen_read_experts(struct model_config *m, const struct config *c)
{
    bool dense[MODEL_MAX_LAYERS];
    int step = config_int(c, "decoder_sparse_step", 1, 1, MODEL_MAX_LAYERS);
    config_list_layers(c, "mlp_only_layers", m->n_layers, dense);
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = m->experts.routing.n_experts > 0 && !dense[i] && (i + 1) % step == 0;
}

static void config_mixtral(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 8,
                                                .vocab = 32000,
                                                .ffn = 14336,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 1e6, NULL, 1, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    llama_read_routing(m, c, 8, 1, 2, true);
    m->experts.ffn = m->ffn;
    for (int i = 0, window = config_int(c, "sliding_window", 0, 1, CONFIG_MAX_POSITIONS); i < m->n_layers; i++)
        m->layer[i] = (struct model_layer){.window = window, .experts = true};
}

static void config_qwen2_moe(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 24,
                                                .hidden = 2048,
                                                .n_heads = 16,
                                                .n_kv_heads = 16,
                                                .vocab = 151936,
                                                .ffn = 5632,
                                                .max_positions = 32768};
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = config_bool(c, "qkv_bias", true);
    llama_read_routing(m, c, 60, 0, 4, config_bool(c, "norm_topk_prob", false));
    m->experts.ffn = config_int(c, "moe_intermediate_size", 1408, 1, CONFIG_MAX_FFN);
    m->experts.shared_ffn = config_int(c, "shared_expert_intermediate_size", 5632, 1, CONFIG_MAX_FFN);
    m->experts.shared_gate = true;
    qwen_read_experts(m, c);
    int window = qwen_window(c), end = config_int(c, "max_window_layers", 28, 0, CONFIG_MAX_POSITIONS);
    llama_read_windows(m, c, 0, 0);
    for (int i = 0; i < m->n_layers && i < end && !config_has(c, "layer_types"); i += 2)
        m->layer[i].window = window;
}

static void config_qwen3_moe(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 24,
                                                .hidden = 2048,
                                                .n_heads = 32,
                                                .n_kv_heads = 4,
                                                .vocab = 151936,
                                                .ffn = 6144,
                                                .max_positions = 32768};
    llama_read(m, c, &missing, &llama_rope);
    m->qk_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    llama_read_routing(m, c, 128, 0, 8, config_bool(c, "norm_topk_prob", false));
    m->experts.ffn = config_int(c, "moe_intermediate_size", 768, 1, CONFIG_MAX_FFN);
    qwen_read_experts(m, c);
    for (int i = 0, window = qwen_window(c); i < m->n_layers; i++)
        m->layer[i].window = window; /* every layer, whatever "layer_types" and "max_window_layers" say */
}

/* All heads of q and all of k are normalised as one row. */
static void config_olmoe(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 16,
                                                .hidden = 2048,
                                                .n_heads = 16,
                                                .vocab = 50304,
                                                .ffn = 2048,
                                                .max_positions = 4096,
                                                .norm_eps = 1e-5f};
    llama_read(m, c, &missing, &llama_rope);
    m->qk_norm = m->qk_norm_each = m->qk_norm_row = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    llama_read_routing(m, c, 64, 1, 8, config_bool(c, "norm_topk_prob", false));
    m->experts.ffn = m->ffn;
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = true;
    llama_refuse_clip(c);
}

const struct family family_mixtral = {"mixtral",    "MixtralFor",  "model.",      config_mixtral,
                                      llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_qwen2_moe = {"qwen2_moe",  "Qwen2MoeFor", "model.",      config_qwen2_moe,
                                        llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_qwen3_moe = {"qwen3_moe",  "Qwen3MoeFor", "model.",      config_qwen3_moe,
                                        llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_olmoe = {"olmoe",      "OlmoeFor",    "model.",      config_olmoe,
                                    llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
