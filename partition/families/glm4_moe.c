/* partition/families/glm4_moe.c - GLM-4.5 to 4.7: a sigmoid router with a correction bias, shared experts, the first
 * layers dense; half of every head rotates. */
#include "partition/families/mixtures.h"

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
    static const struct mixture_defaults experts = {
        .routing = {.n_experts = 128,
                    .n_chosen = 8,
                    .n_groups = 1,
                    .n_kept = 1,
                    .sigmoid = true,
                    .normalised = true,
                    .scale = 1},
        .ffn = 1408,
        .n_shared = 1,
    };
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 0.5, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->n_predicting = config_int(c, "num_nextn_predict_layers", 0, 0, MODEL_MAX_LAYERS);
    m->qkv_bias = config_bool(c, "attention_bias", false);
    m->qk_norm = config_bool(c, "use_qk_norm", false);
    mixture_read(m, c, &experts);
    mixture_read_first_dense(m, c, 1);
}

const struct family family_glm4_moe = {"glm4_moe",     "Glm4MoeFor",  "model.",      config,
                                       mixture_source, llama_outside, llama_ignored, NOT_WRAPPED};
