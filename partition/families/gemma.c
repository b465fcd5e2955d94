/* partition/families/gemma.c - Gemma 1, 2 and 3 and VaultGemma: scaled embeddings, norms that store their weights minus
 * one, tanh GELU. Gemma 2 also normalises the outputs of attention and MLP, caps scores and logits and has a window in
 * every second layer; Gemma 3 normalises q and k instead of the caps, and its windowed layers, five of six, have
 * another rotation. VaultGemma is Gemma 2 without the norms of outputs. */
#include "partition/families/llama.h"

#include <math.h>

/* Everything but the windows and the rotation of Gemma 3. */
static void read_gemma(struct model_config *m, const struct config *c, const struct model_config *missing)
{
    llama_read(m, c, missing, NULL);
    m->norm = NORM_RMS_OFFSET;
    m->activation = config_activation(c, "hidden_activation", ACTIVATION_GELU_TANH);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    m->embed_scale = (float)sqrt(m->hidden);
    m->embed_scale_rounded = true;
    if (config_bool(c, "use_bidirectional_attention", false))
        ERR(c->e, ERR_UNSUPPORTED,
            "%s: \"use_bidirectional_attention\" is true: attention to later tokens, as embedding "
            "models have it, is not implemented",
            c->what);
}

static void config_gemma(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 28,
                                                .hidden = 3072,
                                                .n_heads = 16,
                                                .n_kv_heads = 16,
                                                .head_dim = 256,
                                                .vocab = 256000,
                                                .ffn = 24576,
                                                .max_positions = 8192};
    read_gemma(m, c, &missing);
    if (!config_has(c, "hidden_activation"))
        m->activation = config_activation(c, "hidden_act", ACTIVATION_GELU_TANH);
    if (m->activation == ACTIVATION_GELU)
        m->activation = ACTIVATION_GELU_TANH; /* the first files say "gelu" and mean this */
    rope_read(m, c, &llama_rope);
}

/* The fields that Gemma 2 and 3 share; the caps' defaults are those of the class. */
static void read_later(struct model_config *m, const struct config *c, double score_cap, double logit_cap)
{
    m->output_norms = true;
    m->attention_scale = (float)(1 / sqrt(config_real(c, "query_pre_attn_scalar", 256, 1e-6, 1e6)));
    if (!config_is_null(c, "attn_logit_softcapping"))
        m->attention_cap = (float)config_real(c, "attn_logit_softcapping", score_cap, 0, 1e6);
    if (!config_is_null(c, "final_logit_softcapping"))
        m->logit_cap = (float)config_real(c, "final_logit_softcapping", logit_cap, 0, 1e6);
}

static void config_gemma2(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 26,
                                                .hidden = 2304,
                                                .n_heads = 8,
                                                .n_kv_heads = 4,
                                                .head_dim = 256,
                                                .vocab = 256000,
                                                .ffn = 9216,
                                                .max_positions = 8192};
    read_gemma(m, c, &missing);
    read_later(m, c, 50, 30);
    rope_read(m, c, &llama_rope);
    llama_read_pattern(m, c, 4096, 2);
}

static void config_vaultgemma(struct model_config *m, const struct config *c)
{
    config_gemma2(m, c);
    m->output_norms = false;
}

static void config_gemma3(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 26,
                                                .hidden = 2304,
                                                .n_heads = 8,
                                                .n_kv_heads = 4,
                                                .head_dim = 256,
                                                .vocab = 262208,
                                                .ffn = 9216,
                                                .max_positions = 131072};
    static const struct rope_keys far = {"rope_theta", 1e6, NULL, 1, ROPE_NAMES};
    static const struct rope_keys near = {"rope_local_base_freq", 1e4, NULL, 1, ROPE_NAMES};
    read_gemma(m, c, &missing);
    read_later(m, c, 0, 0);
    m->qk_norm = true;
    rope_read_kinds(m, c, &far, &near);
    llama_read_pattern(m, c, 4096, config_int(c, "sliding_window_pattern", 6, 1, MODEL_MAX_LAYERS));
}

static const struct weight_source later_source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_HEAD_NORMS,
    LLAMA_OUT,
    {WEIGHT_ATTN_OUT_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.pre_feedforward_layernorm.weight", false, 0},
    LLAMA_MLP,
    {WEIGHT_MLP_OUT_NORM, PART_WHOLE, "layers.%d.post_feedforward_layernorm.weight", false, 0},
    {0},
};

const struct family family_gemma = {"gemma",      "GemmaFor",    "model.",      config_gemma,
                                    llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_gemma2 = {"gemma2",     "Gemma2For",   "model.",      config_gemma2,
                                     later_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_vaultgemma = {"vaultgemma", "VaultGemmaFor", "model.",      config_vaultgemma,
                                         later_source, llama_outside,   llama_ignored, NOT_WRAPPED};
const struct family family_gemma3_text = {"gemma3_text", "Gemma3ForCausal", "model.",      config_gemma3,
                                          later_source,  llama_outside,     llama_ignored, NOT_WRAPPED};
const struct family family_gemma3 = {"gemma3",     "Gemma3ForCond", "model.",       config_gemma3,
                                     later_source, llama_outside,   llama_pictures, WRAPPED};
