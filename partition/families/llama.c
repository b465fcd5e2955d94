/* partition/families/llama.c - Llama and its kin Mistral, Qwen2 and Qwen3: RMS norms, gated SiLU MLP, half-split rope,
 * grouped-query attention. They differ in defaults, biases, windows and in the norm of q and k. */
#include "partition/families/llama.h"
#include "partition/rope.h"

#include <math.h>
#include <string.h>

const struct rope_keys llama_rope = {"rope_theta", 10000, NULL, 1, ROPE_NAMES};

void llama_read(struct model_config *m, const struct config *c, const struct model_config *missing,
                const struct rope_keys *rope)
{
    config_sizes(m, c, missing);
    int kv_heads = missing->n_kv_heads;
    if (kv_heads == 0 || config_is_null(c, "num_key_value_heads"))
        kv_heads = m->n_heads;
    m->n_kv_heads = config_int(c, "num_key_value_heads", kv_heads, 1, CONFIG_MAX_HEADS);
    int head_dim = missing->head_dim;
    if (head_dim == 0 || config_is_null(c, "head_dim"))
        head_dim = m->head_dim;
    m->head_dim = config_int(c, "head_dim", head_dim, 1, CONFIG_MAX_HEAD_DIM);
    config_divide_heads(m, c);
    m->ffn = config_int(c, "intermediate_size", missing->ffn, 1, CONFIG_MAX_FFN);
    m->max_positions = config_int(c, "max_position_embeddings", missing->max_positions, 1, CONFIG_MAX_POSITIONS);
    m->norm = NORM_RMS;
    m->norm_eps = (float)config_real(c, "rms_norm_eps", missing->norm_eps > 0 ? missing->norm_eps : 1e-6, 0, 1);
    m->activation = missing->activation;
    if (missing->activation != ACTIVATION_XIELU)
        m->activation = config_activation(c, "hidden_act", ACTIVATION_SILU);
    m->gated_mlp = m->final_norm = m->norm_affine = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", false);
    m->position = POSITION_ROPE;
    m->attention_scale = (float)(1 / sqrt(m->head_dim));
    if (rope != NULL)
        rope_read(m, c, rope);
}

void llama_read_extended(struct model_config *m, const struct config *c, const struct model_config *missing,
                         const struct rope_keys *rope, double factor)
{
    struct config filled = *c;
    json_t *json = json_copy((json_t *)c->json);
    if (!rope_is_there(c))
        (void)json_object_set_new(json, "rope_parameters",
                                  json_pack("{s:s, s:f, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "rope_theta",
                                            rope->theta_missing, "factor", factor, "low_freq_factor", 1.0,
                                            "high_freq_factor", 4.0, "original_max_position_embeddings", 8192));
    filled.json = json;
    llama_read(m, &filled, missing, rope);
    json_decref(json);
}

bool llama_read_kinds(const struct model_config *m, const struct config *c, const char *kind, bool *full)
{
    const json_t *types = json_object_get(c->json, "layer_types");
    if (types == NULL || json_is_null(types))
        return false;
    if (!json_is_array(types) || json_array_size(types) != (size_t)m->n_layers)
        ERR(c->e, ERR_INPUT, "%s: \"layer_types\" is %s of %zu, expected an array of %d strings", c->what,
            json_type_name(types), json_array_size(types), m->n_layers);
    for (int i = 0; i < m->n_layers && c->e->code == ERR_NONE; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        full[i] = type != NULL && strcmp(type, "full_attention") == 0;
        if (!full[i] && (type == NULL || strcmp(type, kind) != 0))
            ERR(c->e, ERR_UNSUPPORTED, "%s: \"layer_types\"[%d] is \"%.60s\", expected full_attention or %s", c->what,
                i, type != NULL ? type : "no string", kind);
    }
    return true;
}

void llama_read_windows(struct model_config *m, const struct config *c, int window, int first)
{
    bool full[MODEL_MAX_LAYERS] = {false};
    if (!llama_read_kinds(m, c, "sliding_attention", full)) {
        for (int i = first; i < m->n_layers; i++)
            m->layer[i].window = window;
        return;
    }
    for (int i = 0; i < m->n_layers && c->e->code == ERR_NONE; i++)
        if (!full[i])
            m->layer[i].window = window > 0 ? window : config_need_int(c, "sliding_window", 1, CONFIG_MAX_POSITIONS);
}

void llama_read_pattern(struct model_config *m, const struct config *c, int window, int period)
{
    window = config_int(c, "sliding_window", config_is_null(c, "sliding_window") ? 0 : window, 1, CONFIG_MAX_POSITIONS);
    if (config_has(c, "layer_types")) {
        llama_read_windows(m, c, window, 0);
        return;
    }
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].window = (i + 1) % period != 0 ? window : 0;
}

void llama_read_routing(struct model_config *m, const struct config *c, int n, int least, int n_chosen, bool normalised)
{
    m->experts.routing = (struct routing){
        .n_experts = config_int(c, "num_experts|num_local_experts", n, least, CONFIG_MAX_EXPERTS),
        .n_chosen = config_int(c, "num_experts_per_tok", n_chosen, 1, CONFIG_MAX_EXPERTS),
        .normalised = normalised,
        .scale = 1,
    };
}

void llama_refuse_clip(const struct config *c)
{
    double clip = config_real(c, "clip_qkv", 0, 0, 1e30);
    if (config_has(c, "clip_qkv"))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"clip_qkv\" is %g, expected null: limits of q, k and v are not implemented",
            c->what, clip);
}

static void config_llama(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {
        .n_layers = 32, .hidden = 4096, .n_heads = 32, .vocab = 32000, .ffn = 11008, .max_positions = 2048};
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
}

static void config_mistral(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 8,
                                                .vocab = 32000,
                                                .ffn = 14336,
                                                .max_positions = 131072};
    llama_read(m, c, &missing, &llama_rope);
    int window = config_is_null(c, "sliding_window") ? 0 : 4096; /* null disables, absence does not */
    llama_read_windows(m, c, config_int(c, "sliding_window", window, 1, CONFIG_MAX_POSITIONS), 0);
}

int qwen_window(const struct config *c)
{
    int window = config_is_null(c, "sliding_window") ? 0 : 4096;
    window =
        config_int(c, "sliding_window", window, 0, CONFIG_MAX_POSITIONS); /* 0: transformers 5 writes it for none */
    return config_bool(c, "use_sliding_window", false) ? window : 0;
}

static void read_qwen_windows(struct model_config *m, const struct config *c)
{
    int first = config_int(c, "max_window_layers", 28, 0, CONFIG_MAX_POSITIONS);
    llama_read_windows(m, c, qwen_window(c), first);
}

static void config_qwen2(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .vocab = 151936,
                                                .ffn = 22016,
                                                .max_positions = 32768};
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = true;
    read_qwen_windows(m, c);
}

static void config_qwen3(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .head_dim = 128,
                                                .vocab = 151936,
                                                .ffn = 22016,
                                                .max_positions = 32768};
    llama_read(m, c, &missing, &llama_rope);
    m->qk_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    read_qwen_windows(m, c);
}

enum { EXPERTS_APART = 1, EXPERTS_MIXTRAL, EXPERTS_TOGETHER }; /* forms */

const struct weight_source llama_source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "layers.%d.input_layernorm.bias", false, 0},
    LLAMA_QKV,
    LLAMA_HEAD_NORMS,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_NORM_BIAS, PART_WHOLE, "layers.%d.post_attention_layernorm.bias", false, 0},
    LLAMA_MLP,
    /* Forms of the experts: one tensor each, named as in Qwen or as in Mixtral; or all of a layer in one tensor, as
     * transformers 5 can write both. */
    {WEIGHT_EXPERTS_IN, PART_GATE, "layers.%d.mlp.experts.%d.gate_proj.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_IN, PART_UP, "layers.%d.mlp.experts.%d.up_proj.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.%d.down_proj.weight", false, EXPERTS_APART},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.mlp.gate.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_IN, PART_GATE, "layers.%d.block_sparse_moe.experts.%d.w1.weight", false, EXPERTS_MIXTRAL},
    {WEIGHT_EXPERTS_IN, PART_UP, "layers.%d.block_sparse_moe.experts.%d.w3.weight", false, EXPERTS_MIXTRAL},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.block_sparse_moe.experts.%d.w2.weight", false, EXPERTS_MIXTRAL},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.block_sparse_moe.gate.weight", false, EXPERTS_MIXTRAL},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.mlp.experts.gate_up_proj", false, EXPERTS_TOGETHER},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.down_proj", false, EXPERTS_TOGETHER},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.mlp.gate.weight", false, EXPERTS_TOGETHER},
    {WEIGHT_SHARED_IN, PART_GATE, "layers.%d.mlp.shared_expert.gate_proj.weight", false, 0},
    {WEIGHT_SHARED_IN, PART_UP, "layers.%d.mlp.shared_expert.up_proj.weight", false, 0},
    {WEIGHT_SHARED_OUT, PART_WHOLE, "layers.%d.mlp.shared_expert.down_proj.weight", false, 0},
    {WEIGHT_SHARED_GATE, PART_WHOLE, "layers.%d.mlp.shared_expert_gate.weight", false, 0},
    {0},
};
const struct weight_source llama_behind_source[] = {
    LLAMA_AROUND,
    LLAMA_QKV,
    LLAMA_HEAD_NORMS,
    LLAMA_OUT,
    {WEIGHT_ATTN_OUT_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    LLAMA_MLP,
    {WEIGHT_MLP_OUT_NORM, PART_WHOLE, "layers.%d.post_feedforward_layernorm.weight", false, 0},
    {0},
};
const char *const llama_outside[] = {"lm_head.weight", NULL};
const char *const llama_ignored[] = {".rotary_emb.inv_freq", NULL};
const char *const llama_pictures[] = {".rotary_emb.inv_freq", "vision_tower.", "multi_modal_projector.", NULL};

const struct family family_llama = {"llama",      "LlamaFor",    "model.",      config_llama,
                                    llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_mistral = {"mistral",    "MistralFor",  "model.",      config_mistral,
                                      llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_ministral = {"ministral",  "MinistralFor", "model.",      config_mistral,
                                        llama_source, llama_outside,  llama_ignored, NOT_WRAPPED};
const struct family family_qwen2 = {"qwen2",      "Qwen2For",    "model.",      config_qwen2,
                                    llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_qwen3 = {"qwen3",      "Qwen3For",    "model.",      config_qwen3,
                                    llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
