/* partition/families/eagle3.c - EAGLE-3: a head that drafts for another model, in the forms that EAGLE and SpecForge
 * write (the keys of a Llama config, beside "draft_vocab_size") and Speculators ("transformer_layer_config"). */
#include "partition/families/llama.h"

#include <string.h>

/* ---- which configs ---- */

bool eagle3_is(const struct config *c)
{
    const char *kind = json_string_value(json_object_get(c->json, "speculators_model_type"));
    const char *architecture = json_string_value(json_array_get(json_object_get(c->json, "architectures"), 0));
    if (kind != NULL && strcmp(kind, "eagle3") != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"speculators_model_type\" is \"%.60s\", expected eagle3", c->what, kind);
    return kind != NULL || config_has(c, "draft_vocab_size") ||
           (architecture != NULL && strstr(architecture, "Eagle3") != NULL);
}

/* ---- the config ---- */

/* Layers of the main model: "eagle_config" (SpecForge, SGLang) numbers the layers whose outputs are read, the top level
 * (Speculators, vLLM) those whose inputs are read. */
static void read_taps(struct model_config *m, const struct config *c)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *ours = json_object_get(c->json, "eagle_config"), *list = json_object_get(c->json, key);
    bool leave = !json_is_array(list);
    list = leave ? json_object_get(ours, key) : list;
    m->drafting.n_taps = MODEL_TAPS;
    m->drafting.taps_known = list != NULL && !json_is_null(list);
    if (!m->drafting.taps_known)
        return;
    if (!json_is_array(list) || json_array_size(list) != MODEL_TAPS)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is %s of %zu, expected an array of %d layers", c->what, key,
            json_type_name(list), json_array_size(list), MODEL_TAPS);
    for (size_t i = 0; i < MODEL_TAPS && c->e->code == ERR_NONE; i++) {
        const json_t *layer = json_array_get(list, i);
        json_int_t id = json_is_integer(layer) ? json_integer_value(layer) : -1;
        if (id < 0 || id > MODEL_MAX_LAYERS)
            ERR(c->e, ERR_INPUT, "%s: \"%s\"[%zu] is %s, expected the number of a layer in [0, %d]", c->what, key, i,
                json_is_integer(layer) ? "out of range" : json_type_name(layer), MODEL_MAX_LAYERS);
        m->drafting.tap[i] = (int)id + leave;
    }
}

/* Variants of newer versions. */
static void refuse_variants(const struct config *c)
{
    static const char *const key[] = {"norm_before_fc", "fc_norm", "norm_output", "parallel_drafting"};
    for (size_t i = 0; i < sizeof key / sizeof key[0]; i++)
        if (config_bool(c, key[i], false))
            ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is true, which is not implemented", c->what, key[i]);
}

static void read_layer(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {
        .n_layers = 1, .hidden = 4096, .n_heads = 32, .vocab = 128256, .ffn = 14336, .max_positions = 2048};
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 1, ROPE_NAMES};
    const char *type = json_get_string(c->json, "model_type", "llama", c->what, c->e);
    if (strcmp(type, "llama") != 0 && strcmp(type, "qwen3") != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"model_type\" is \"%.60s\", expected a layer of llama or qwen3", c->what,
            type);
    llama_read(m, c, &missing, &rope);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
    m->qk_norm = strcmp(type, "qwen3") == 0;
    m->tied_head = false;
    m->positions_end = false;
    if (m->n_layers != 1)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"num_hidden_layers\" is %d, expected a head of 1 layer", c->what, m->n_layers);
}

static void config_eagle3(struct model_config *m, const struct config *c)
{
    const json_t *layer = json_object_get(c->json, "transformer_layer_config");
    const struct config inner = {json_is_object(layer) ? layer : c->json, c->what, c->e};
    if (layer != NULL && !json_is_object(layer))
        ERR(c->e, ERR_INPUT, "%s: \"transformer_layer_config\" is %s, expected an object", c->what,
            json_type_name(layer));
    if (m->quantization.format != FORMAT_NONE)
        ERR(c->e, ERR_UNSUPPORTED, "%s: quantised weights of a head that drafts are not implemented", c->what);
    read_layer(m, &inner);
    if (!config_has(c, "dtype") && !config_has(c, "torch_dtype"))
        config_dtype(m, &inner);
    m->drafting.tapped = config_int(c, "target_hidden_size", m->hidden, 1, CONFIG_MAX_HIDDEN);
    m->drafting.vocab = config_int(c, "draft_vocab_size", m->vocab, 1, m->vocab);
    m->drafting.normed_stream = config_bool(c, "norm_before_residual", false);
    read_taps(m, c);
    refuse_variants(c);
}

/* ---- the tensors ---- */

enum { NAMED_MIDDLE = 1, NAMED_LAYER }; /* forms */

/* clang-format off */
#define EAGLE_LAYER(at, form)                                                    \
    {WEIGHT_STATE_NORM, PART_WHOLE, at "hidden_norm.weight", false, form},       \
    {WEIGHT_TOKEN_NORM, PART_WHOLE, at "input_layernorm.weight", false, form},    \
    {WEIGHT_QKV, PART_Q, at "self_attn.q_proj.weight", false, form},             \
    {WEIGHT_QKV, PART_K, at "self_attn.k_proj.weight", false, form},             \
    {WEIGHT_QKV, PART_V, at "self_attn.v_proj.weight", false, form},             \
    {WEIGHT_QKV_BIAS, PART_Q, at "self_attn.q_proj.bias", false, form},          \
    {WEIGHT_QKV_BIAS, PART_K, at "self_attn.k_proj.bias", false, form},          \
    {WEIGHT_QKV_BIAS, PART_V, at "self_attn.v_proj.bias", false, form},          \
    {WEIGHT_Q_NORM, PART_WHOLE, at "self_attn.q_norm.weight", false, form},      \
    {WEIGHT_K_NORM, PART_WHOLE, at "self_attn.k_norm.weight", false, form},      \
    {WEIGHT_OUT, PART_WHOLE, at "self_attn.o_proj.weight", false, form},         \
    {WEIGHT_OUT_BIAS, PART_WHOLE, at "self_attn.o_proj.bias", false, form},      \
    {WEIGHT_MLP_NORM, PART_WHOLE, at "post_attention_layernorm.weight", false, form}, \
    {WEIGHT_MLP_IN, PART_GATE, at "mlp.gate_proj.weight", false, form},          \
    {WEIGHT_MLP_IN, PART_UP, at "mlp.up_proj.weight", false, form},              \
    {WEIGHT_MLP_IN_BIAS, PART_GATE, at "mlp.gate_proj.bias", false, form},       \
    {WEIGHT_MLP_IN_BIAS, PART_UP, at "mlp.up_proj.bias", false, form},           \
    {WEIGHT_MLP_OUT, PART_WHOLE, at "mlp.down_proj.weight", false, form},        \
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, at "mlp.down_proj.bias", false, form}

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_TAPS, PART_WHOLE, "fc.weight", false, 0},
    EAGLE_LAYER("midlayer.", NAMED_MIDDLE),
    EAGLE_LAYER("layers.%d.", NAMED_LAYER),
    {0},
};
/* clang-format on */

/* "t2d" is the inverse of "d2t", which partition/drafting.c reads. */
static const char *const ignored[] = {".rotary_emb.inv_freq", "d2t", "t2d", NULL};

const struct family family_eagle3 = {
    "eagle3", "LlamaForCausalLMEagle3", "model.", config_eagle3, source, llama_outside, ignored, NOT_WRAPPED};
