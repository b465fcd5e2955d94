/* partition/families/exaone.c - EXAONE 4.0: norms after attention and MLP and none before them, and a norm of each q
 * and k head. K-EXAONE: Qwen3's attention with DeepSeek-V3's experts. A model with windows in some layers rotates in
 * these only; one without windows rotates in all. */
#include "partition/families/mixtures.h"

#include <string.h>

/* "sliding_window_pattern" as a string: layer i has a window if letter i, counted from the start again after the last
 * one, is L, and none if it is G. The model's last layer never has one. */
static void read_letters(struct model_config *m, const struct config *c, const char *letters)
{
    int window = config_int(c, "sliding_window", 4096, 1, CONFIG_MAX_POSITIONS);
    size_t n = strlen(letters);
    if (n == 0 || strspn(letters, "LG") != n) {
        ERR(c->e, ERR_INPUT, "%s: \"sliding_window_pattern\" is \"%.60s\", expected letters L and G", c->what, letters);
        return;
    }
    for (int i = 0; i < m->n_layers - 1; i++)
        m->layer[i].window = letters[(size_t)i % n] == 'L' ? window : 0;
}

static void read_windows(struct model_config *m, const struct config *c)
{
    static const char *const key = "sliding_window_pattern";
    if (config_is_null(c, "sliding_window")) {
        llama_read_windows(m, c, 0, 0);
        return;
    }
    const char *letters = json_string_value(json_object_get(c->json, key));
    bool listed = config_has(c, "layer_types");
    if (!listed && config_is_null(c, key))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is null, expected a number of layers or letters L and G", c->what, key);
    if (!listed && letters != NULL)
        read_letters(m, c, letters);
    else
        llama_read_pattern(m, c, 4096, listed ? 1 : config_int(c, key, 4, 1, MODEL_MAX_LAYERS));
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].unrotated = m->layer[i].window == 0;
}

static const struct model_config missing = {.n_layers = 32,
                                            .hidden = 4096,
                                            .n_heads = 32,
                                            .n_kv_heads = 32,
                                            .vocab = 102400,
                                            .ffn = 16384,
                                            .max_positions = 2048,
                                            .norm_eps = 1e-5f};

static void config_exaone4(struct model_config *m, const struct config *c)
{
    llama_read(m, c, &missing, &llama_rope);
    m->no_input_norms = m->output_norms = m->qk_norm = true;
    read_windows(m, c);
}

static void config_moe(struct model_config *m, const struct config *c)
{
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
    LLAMA_LAYER,
    LLAMA_SHARED_EXPERTS,
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.mlp.e_score_correction_bias", false, EXPERTS_APART},
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.mlp.gate.e_score_correction_bias", false, EXPERTS_TOGETHER},
    {0},
};
/* Also the layer that predicts further tokens, which is not used. */
static const char *const ignored[] = {".rotary_emb.inv_freq", "mtp.", NULL};

const struct family family_exaone4 = {"exaone4",           "Exaone4For",  "model.",      config_exaone4,
                                      llama_behind_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_exaone_moe = {"exaone_moe", "ExaoneMoe",   "model.", config_moe,
                                         source,       llama_outside, ignored,  NOT_WRAPPED};
