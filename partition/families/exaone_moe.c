/* partition/families/exaone_moe.c - K-EXAONE: Qwen3's attention, whose layers have a window or do not rotate, with
 * DeepSeek-V3's experts. */
#include "partition/families/mixtures.h"

/* "sliding_window_pattern" may be text, such as "LLLG", beside a list of the layers. Without any window all layers
 * rotate. */
static void read_windows(struct model_config *m, const struct config *c)
{
    int period = 1;
    if (!config_has(c, "layer_types"))
        period = config_int(c, "sliding_window_pattern", 4, 1, MODEL_MAX_LAYERS);
    llama_read_pattern(m, c, 4096, period);
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].unrotated = m->layer[i].window == 0 && !config_is_null(c, "sliding_window");
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .vocab = 102400,
                                                .ffn = 16384,
                                                .max_positions = 2048,
                                                .norm_eps = 1e-5f};
    static const struct mixture_defaults experts = {.routing = {.n_experts = 64,
                                                                .n_chosen = 8,
                                                                .n_groups = 1,
                                                                .n_kept = 1,
                                                                .sigmoid = true,
                                                                .normalised = true,
                                                                .scale = 2.5f},
                                                    .ffn = 1024,
                                                    .n_shared = 1};
    llama_read(m, c, &missing, &llama_rope);
    m->qk_norm = true;
    read_windows(m, c);
    mixture_read(m, c, &experts);
    mixture_read_layer_types(m, c, config_int(c, "first_k_dense_replace", 1, 0, MODEL_MAX_LAYERS));
    config_refuse_other(c, "scoring_func", "sigmoid");
    config_refuse_other(c, "topk_method", "noaux_tc");
}

enum { EXPERTS_APART = 1, EXPERTS_TOGETHER }; /* forms */

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_HEAD_NORMS,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    LLAMA_MLP,
    LLAMA_SHARED_EXPERTS,
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.mlp.e_score_correction_bias", false, EXPERTS_APART},
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.mlp.gate.e_score_correction_bias", false, EXPERTS_TOGETHER},
    {0},
};
/* Also the layer that predicts further tokens, which is not used. */
static const char *const ignored[] = {".rotary_emb.inv_freq", "mtp.", NULL};

const struct family family_exaone_moe = {"exaone_moe", "ExaoneMoe",   "model.", config,
                                         source,       llama_outside, ignored,  false};
