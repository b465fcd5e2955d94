/* partition/families/llama4.c - the language model of Llama 4: layers that rotate and attend in chunks, and layers that
 * do neither, whose queries grow with the position; one expert per token, whose routing weight multiplies its input,
 * beside a shared expert. */
#include "partition/families/llama.h"

/* Layers that rotate: those with a 1 in "no_rope_layers", or else all but every "no_rope_layer_interval"th. */
static void read_rotated(struct model_config *m, const struct config *c)
{
    const json_t *list = json_object_get(c->json, "no_rope_layers");
    bool listed = json_array_size(list) > 0; /* transformers treats an empty list as missing */
    int interval = config_int(c, "no_rope_layer_interval", 4, 1, MODEL_MAX_LAYERS);
    if (list != NULL && !json_is_null(list) &&
        (!json_is_array(list) || (listed && json_array_size(list) < (size_t)m->n_layers))) {
        ERR(c->e, ERR_INPUT, "%s: \"no_rope_layers\" is %s of %zu, expected an array of %d numbers", c->what,
            json_type_name(list), json_array_size(list), m->n_layers);
        return;
    }
    for (int i = 0; i < m->n_layers; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        if (listed && (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) > 1))
            ERR(c->e, ERR_INPUT, "%s: \"no_rope_layers\"[%d] is %s, expected 0 or 1", c->what, i, json_type_name(item));
        m->layer[i].unrotated = listed ? json_integer_value(item) == 0 : (i + 1) % interval == 0;
    }
}

/* The layers that rotate attend in chunks, unless "layer_types" says otherwise. */
static void read_chunks(struct model_config *m, const struct config *c)
{
    int chunk = config_int(c, "attention_chunk_size", config_is_null(c, "attention_chunk_size") ? 0 : 8192, 1,
                           CONFIG_MAX_POSITIONS);
    bool full[MODEL_MAX_LAYERS] = {false};
    bool listed = llama_read_kinds(m, c, "chunked_attention", full);
    for (int i = 0; i < m->n_layers; i++) {
        bool chunked = listed ? !full[i] : !m->layer[i].unrotated;
        m->layer[i].chunk = chunked ? chunk : 0;
    }
}

/* The layers with experts: "moe_layers", else every "interleave_moe_layer_step"th. */
static void read_experts(struct model_config *m, const struct config *c)
{
    bool listed[MODEL_MAX_LAYERS];
    int step = config_int(c, "interleave_moe_layer_step", 1, 1, MODEL_MAX_LAYERS);
    llama_read_routing(m, c, 16, 1, 1, false);
    m->experts.routing.sigmoid = m->experts.routing.by_logits = m->experts.routing.of_input = true;
    if (m->experts.routing.n_chosen != 1)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"num_experts_per_tok\" is %d, expected 1: shares are factors of the input",
            c->what, m->experts.routing.n_chosen);
    m->experts.ffn = m->experts.shared_ffn = config_int(c, "intermediate_size", 8192, 1, CONFIG_MAX_FFN / 16);
    config_list_layers(c, "moe_layers", m->n_layers, listed);
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = config_has(c, "moe_layers") ? listed[i] : (i + 1) % step == 0;
}

/* Queries of the layers that do not rotate are multiplied by 1 + scale ln(1 + floor((position + 1) / floor_scale)). */
static void read_growth(struct model_config *m, const struct config *c)
{
    double scale = config_real(c, "attn_scale", 0.1, 0, 1e6);
    int period = config_int(c, "floor_scale", 8192, 1, CONFIG_MAX_POSITIONS);
    if (!config_bool(c, "attn_temperature_tuning", true))
        return;
    m->unrotated_rope.query_growth = (float)scale;
    m->unrotated_rope.query_period = period;
    m->unrotated_rope.query_shift = 1;
    m->unrotated_rope.attention_scaling = 1;
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 48,
                                                .hidden = 5120,
                                                .n_heads = 40,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .vocab = 202048,
                                                .ffn = 16384,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 500000, NULL, 1, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->ffn = config_int(c, "intermediate_size_mlp", missing.ffn, 1, CONFIG_MAX_FFN);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->qk_norm_unit = config_bool(c, "use_qk_norm", true);
    read_rotated(m, c);
    read_chunks(m, c);
    read_experts(m, c);
    read_growth(m, c);
}

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_IN, PART_GATE, "layers.%d.feed_forward.gate_proj.weight", false, 0},
    {WEIGHT_MLP_IN, PART_UP, "layers.%d.feed_forward.up_proj.weight", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.feed_forward.down_proj.weight", false, 0},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.feed_forward.experts.gate_up_proj", true, 0},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.feed_forward.experts.down_proj", true, 0},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.feed_forward.router.weight", false, 0},
    {WEIGHT_SHARED_IN, PART_GATE, "layers.%d.feed_forward.shared_expert.gate_proj.weight", false, 0},
    {WEIGHT_SHARED_IN, PART_UP, "layers.%d.feed_forward.shared_expert.up_proj.weight", false, 0},
    {WEIGHT_SHARED_OUT, PART_WHOLE, "layers.%d.feed_forward.shared_expert.down_proj.weight", false, 0},
    {0},
};
static const char *const pictures[] = {".rotary_emb.inv_freq", "vision_model.", "multi_modal_projector.", NULL};

const struct family family_llama4_text = {"llama4_text", "Llama4ForCausal", "model.",      config,
                                          source,        llama_outside,     llama_ignored, NOT_WRAPPED};
const struct family family_llama4 = {"llama4", "Llama4ForConditional", "model.", config,
                                     source,   llama_outside,          pictures, WRAPPED};
