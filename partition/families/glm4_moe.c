/* partition/families/glm4_moe.c - GLM-4.5 to 4.7: a sigmoid router with a correction bias, shared experts, the first
 * layers dense; half of every head rotates. */
#include "partition/families/llama.h"

static void read_experts(struct model_config *m, const struct config *c)
{
    struct routing *r = &m->experts.routing;
    r->n_experts = config_int(c, "n_routed_experts|num_local_experts", 128, 1, CONFIG_MAX_EXPERTS);
    r->n_chosen = config_int(c, "num_experts_per_tok", 8, 1, CONFIG_MAX_EXPERTS);
    r->n_groups = config_int(c, "n_group", 1, 1, ROUTING_MAX_GROUPS);
    r->n_kept = config_int(c, "topk_group", 1, 1, ROUTING_MAX_GROUPS);
    r->normalised = config_bool(c, "norm_topk_prob", true);
    r->scale = (float)config_real(c, "routed_scaling_factor", 1, 0, 1e6);
    r->sigmoid = m->experts.router_bias = true;
    m->experts.ffn = config_int(c, "moe_intermediate_size", 1408, 1, CONFIG_MAX_FFN / 16);
    m->experts.shared_ffn = m->experts.ffn * config_int(c, "n_shared_experts", 1, 1, 16);
    for (int i = config_int(c, "first_k_dense_replace", 1, 0, MODEL_MAX_LAYERS); i < m->n_layers; i++)
        m->layer[i].experts = true;
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 46,
                                                .hidden = 4096,
                                                .n_heads = 96,
                                                .n_kv_heads = 8,
                                                .vocab = 151552,
                                                .ffn = 10944,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 0.5, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->n_predicting = config_int(c, "num_nextn_predict_layers", 0, 0, MODEL_MAX_LAYERS);
    m->qkv_bias = config_bool(c, "attention_bias", false);
    m->qk_norm = config_bool(c, "use_qk_norm", false);
    read_experts(m, c);
}

enum { EXPERTS_APART = 1, EXPERTS_TOGETHER }; /* forms */

/* clang-format off */
static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_HEAD_NORMS,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    LLAMA_MLP,
    LLAMA_SHARED_EXPERTS,
    LLAMA_PREDICTING,
    {0},
};
/* clang-format on */

const struct family family_glm4_moe = {"glm4_moe", "Glm4MoeFor",  "model.",      config,
                                       source,     llama_outside, llama_ignored, false};
