/* partition/families/llama.c - Llama and its kin Mistral, Qwen2 and Qwen3: RMS norms, gated SiLU MLP, half-split rope,
 * grouped KV heads. They differ in defaults, biases, windows and in the norm of q and k. */
#include "partition/families.h"
#include "partition/rope.h"

#include <math.h>
#include <string.h>

/* Class defaults; n_kv_heads 0: as many as heads, head_dim 0: hidden / n_heads. Sets everything but biases, windows and
 * q and k norms. */
static void read_common(struct model_config *m, const struct config *c, const struct model_config *missing)
{
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 1};
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
    m->norm_eps = (float)config_real(c, "rms_norm_eps", 1e-6, 0, 1);
    m->activation = config_activation(c, "hidden_act", ACTIVATION_SILU);
    m->gated_mlp = m->final_norm = m->norm_affine = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", false);
    m->position = POSITION_ROPE;
    m->attention_scale = (float)(1 / sqrt(m->head_dim));
    rope_read(m, c, &rope);
}

/* Layers from `first` on have the window, unless "layer_types" names each layer's kind. */
static void read_windows(struct model_config *m, const struct config *c, int window, int first)
{
    const json_t *types = json_object_get(c->json, "layer_types");
    if (types == NULL || json_is_null(types)) {
        for (int i = first; i < m->n_layers; i++)
            m->window[i] = window;
        return;
    }
    if (!json_is_array(types) || json_array_size(types) != (size_t)m->n_layers) {
        ERR(c->e, ERR_INPUT, "%s: \"layer_types\" is %s of %zu, expected an array of %d strings", c->what,
            json_type_name(types), json_array_size(types), m->n_layers);
        return;
    }
    for (int i = 0; i < m->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type != NULL && strcmp(type, "sliding_attention") == 0)
            m->window[i] = config_need_int(c, "sliding_window", 1, CONFIG_MAX_POSITIONS);
        else if (type == NULL || strcmp(type, "full_attention") != 0)
            ERR(c->e, ERR_UNSUPPORTED,
                "%s: \"layer_types\"[%d] is \"%.60s\", expected full_attention or sliding_attention", c->what, i,
                type != NULL ? type : "no string");
    }
}

static void config_llama(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {
        .n_layers = 32, .hidden = 4096, .n_heads = 32, .vocab = 32000, .ffn = 11008, .max_positions = 2048};
    read_common(m, c, &missing);
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
    read_common(m, c, &missing);
    int window = config_is_null(c, "sliding_window") ? 0 : 4096; /* null disables, absence does not */
    read_windows(m, c, config_int(c, "sliding_window", window, 1, CONFIG_MAX_POSITIONS), 0);
}

static void read_qwen_windows(struct model_config *m, const struct config *c)
{
    int window = config_is_null(c, "sliding_window") ? 0 : 4096;
    window = config_int(c, "sliding_window", window, 1, CONFIG_MAX_POSITIONS);
    int first = config_int(c, "max_window_layers", 28, 0, CONFIG_MAX_POSITIONS);
    if (!config_bool(c, "use_sliding_window", false))
        window = 0;
    read_windows(m, c, window, first);
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
    read_common(m, c, &missing);
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
    read_common(m, c, &missing);
    m->qk_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    read_qwen_windows(m, c);
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "embed_tokens.weight", false},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "norm.weight", false},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false},
    {WEIGHT_QKV, PART_Q, "layers.%d.self_attn.q_proj.weight", false},
    {WEIGHT_QKV, PART_K, "layers.%d.self_attn.k_proj.weight", false},
    {WEIGHT_QKV, PART_V, "layers.%d.self_attn.v_proj.weight", false},
    {WEIGHT_QKV_BIAS, PART_Q, "layers.%d.self_attn.q_proj.bias", false},
    {WEIGHT_QKV_BIAS, PART_K, "layers.%d.self_attn.k_proj.bias", false},
    {WEIGHT_QKV_BIAS, PART_V, "layers.%d.self_attn.v_proj.bias", false},
    {WEIGHT_Q_NORM, PART_WHOLE, "layers.%d.self_attn.q_norm.weight", false},
    {WEIGHT_K_NORM, PART_WHOLE, "layers.%d.self_attn.k_norm.weight", false},
    {WEIGHT_OUT, PART_WHOLE, "layers.%d.self_attn.o_proj.weight", false},
    {WEIGHT_OUT_BIAS, PART_WHOLE, "layers.%d.self_attn.o_proj.bias", false},
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false},
    {WEIGHT_MLP_IN, PART_GATE, "layers.%d.mlp.gate_proj.weight", false},
    {WEIGHT_MLP_IN, PART_UP, "layers.%d.mlp.up_proj.weight", false},
    {WEIGHT_MLP_IN_BIAS, PART_GATE, "layers.%d.mlp.gate_proj.bias", false},
    {WEIGHT_MLP_IN_BIAS, PART_UP, "layers.%d.mlp.up_proj.bias", false},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.down_proj.weight", false},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "layers.%d.mlp.down_proj.bias", false},
    {0},
};
static const char *const outside[] = {"lm_head.weight", NULL};
static const char *const ignored[] = {".rotary_emb.inv_freq", NULL};

const struct family family_llama = {"llama", "LlamaFor", "model.", config_llama, source, outside, ignored};
const struct family family_mistral = {"mistral", "MistralFor", "model.", config_mistral, source, outside, ignored};
const struct family family_qwen2 = {"qwen2", "Qwen2For", "model.", config_qwen2, source, outside, ignored};
const struct family family_qwen3 = {"qwen3", "Qwen3For", "model.", config_qwen3, source, outside, ignored};
