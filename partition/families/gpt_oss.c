/* partition/families/gpt_oss.c - gpt-oss: experts with biases and a clamped activation, attention sinks, a window in
 * every second layer, YaRN. Experts are stored [in, out], all of a layer as one tensor. */
#include "partition/families/llama.h"

/* The same config, with the released models' YaRN if it does not define a rotation; the caller frees json. */
static struct config with_rope(const struct config *c)
{
    struct config filled = *c;
    json_t *json = json_copy((json_t *)c->json);
    if (!config_has(c, "rope_parameters") && !config_has(c, "rope_scaling"))
        (void)json_object_set_new(json, "rope_scaling",
                                  json_pack("{s:s, s:f, s:f, s:f, s:b, s:i}", "rope_type", "yarn", "factor", 32.0,
                                            "beta_fast", 32.0, "beta_slow", 1.0, "truncate", 0,
                                            "original_max_position_embeddings", 4096));
    filled.json = json;
    return filled;
}

/* The only supported value. */
static void check_swiglu(const struct config *c)
{
    static const struct {
        const char *key;
        double value;
    } constant[] = {{"swiglu_limit", 7.0}, {"swiglu_alpha", 1.702}};
    for (size_t i = 0; i < sizeof constant / sizeof constant[0]; i++) {
        double found = config_real(c, constant[i].key, constant[i].value, -1e30, 1e30);
        if (found != constant[i].value)
            ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is %g, expected %g", c->what, constant[i].key, found,
                constant[i].value);
    }
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 36,
                                                .hidden = 2880,
                                                .n_heads = 64,
                                                .n_kv_heads = 8,
                                                .head_dim = 64,
                                                .vocab = 201088,
                                                .ffn = 2880,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 150000, NULL, 1, ROPE_NAMES};
    struct config filled = with_rope(c);
    llama_read(m, &filled, &missing, &rope);
    json_decref((json_t *)filled.json);
    check_swiglu(c);
    m->norm = NORM_RMS_ONCE;
    m->activation = ACTIVATION_SWIGLU;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", true);
    m->sinks = m->experts.router_bias = m->experts.biases = true;
    llama_read_routing(m, c, 128, 1, 4, true);
    m->experts.ffn = m->ffn;
    llama_read_pattern(m, c, 128, 2);
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = true;
}

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_SINKS, PART_WHOLE, "layers.%d.self_attn.sinks", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.mlp.router.weight", false, 0},
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.mlp.router.bias", false, 0},
    {WEIGHT_EXPERTS_IN, PART_PAIRS, "layers.%d.mlp.experts.gate_up_proj", true, 0},
    {WEIGHT_EXPERTS_IN_BIAS, PART_WHOLE, "layers.%d.mlp.experts.gate_up_proj_bias", false, 0},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.down_proj", true, 0},
    {WEIGHT_EXPERTS_OUT_BIAS, PART_WHOLE, "layers.%d.mlp.experts.down_proj_bias", false, 0},
    {0},
};

const struct family family_gpt_oss = {"gpt_oss", "GptOssFor",   "model.",      config,
                                      source,    llama_outside, llama_ignored, NOT_WRAPPED};
