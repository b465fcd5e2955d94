/* partition/families/hunyuan.c - Hunyuan, dense and with experts: norms of q and k heads after the rotation, whose base
 * "alpha" multiplies; a mixture in every layer, with a shared expert as wide as the others. */
#include "partition/families/llama.h"

static void read_hunyuan(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .vocab = 290943,
                                                .ffn = 11008,
                                                .max_positions = 2048,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 10000, NULL, 1, ROPE_DYNAMIC_BY_ALPHA};
    llama_read(m, c, &missing, &rope);
    m->qk_norm = m->qk_norm_rotated = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
}

/* A number, or a list with one for each layer, which must be the same. */
static int read_uniform(const struct config *c, const char *key, int n_layers)
{
    const json_t *list = json_object_get(c->json, key);
    if (!json_is_array(list))
        return config_int(c, key, 1, 1, CONFIG_MAX_EXPERTS);
    json_int_t first = json_integer_value(json_array_get(list, 0));
    bool same = json_array_size(list) >= (size_t)n_layers && first >= 1 && first <= CONFIG_MAX_EXPERTS;
    for (int i = 0; i < n_layers && same; i++)
        same = json_is_integer(json_array_get(list, (size_t)i)) &&
               json_integer_value(json_array_get(list, (size_t)i)) == first;
    if (!same)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is a list of %zu, expected the same number in [1, %d] for all %d layers",
            c->what, key, json_array_size(list), CONFIG_MAX_EXPERTS, n_layers);
    return same ? (int)first : 1;
}

static void config_moe(struct model_config *m, const struct config *c)
{
    read_hunyuan(m, c);
    m->experts.routing = (struct routing){.n_experts = read_uniform(c, "num_experts", m->n_layers),
                                          .n_chosen = read_uniform(c, "moe_topk", m->n_layers),
                                          .normalised = true,
                                          .scale = 1};
    m->experts.ffn = m->experts.shared_ffn = m->ffn;
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = true;
}

enum { EXPERTS_APART = 1, EXPERTS_TOGETHER }; /* forms */

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    {WEIGHT_Q_NORM, PART_WHOLE, "layers.%d.self_attn.query_layernorm.weight", false, 0},
    {WEIGHT_K_NORM, PART_WHOLE, "layers.%d.self_attn.key_layernorm.weight", false, 0},
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    LLAMA_MLP,
    {WEIGHT_EXPERTS_IN, PART_GATE, "layers.%d.mlp.experts.%d.gate_proj.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_IN, PART_UP, "layers.%d.mlp.experts.%d.up_proj.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.%d.down_proj.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.mlp.experts.gate_up_proj", false, EXPERTS_TOGETHER},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.down_proj", false, EXPERTS_TOGETHER},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.mlp.gate.wg.weight", false, 0},
    {WEIGHT_SHARED_IN, PART_GATE, "layers.%d.mlp.shared_mlp.gate_proj.weight", false, 0},
    {WEIGHT_SHARED_IN, PART_UP, "layers.%d.mlp.shared_mlp.up_proj.weight", false, 0},
    {WEIGHT_SHARED_OUT, PART_WHOLE, "layers.%d.mlp.shared_mlp.down_proj.weight", false, 0},
    {0},
};

const struct family family_hunyuan_v1_dense = {
    "hunyuan_v1_dense", "HunYuanDenseV1For", "model.", read_hunyuan, source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_hunyuan_v1_moe = {"hunyuan_v1_moe", "HunYuanMoEV1For", "model.",      config_moe,
                                             source,           llama_outside,     llama_ignored, NOT_WRAPPED};
