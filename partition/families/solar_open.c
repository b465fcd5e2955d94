/* partition/families/solar_open.c - Solar Open: Llama's attention with DeepSeek-V3's experts in every layer. */
#include "partition/families/mixtures.h"

/* Keys of the kin that the class ignores, or cannot compute. */
static void refuse_kin(const struct config *c)
{
    if (config_int(c, "first_k_dense_replace", 0, 0, MODEL_MAX_LAYERS) != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"first_k_dense_replace\" is not 0, which is not implemented for solar_open",
            c->what);
    if (config_bool(c, "use_qk_norm", false))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"use_qk_norm\" is true, which is not implemented for solar_open", c->what);
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 48,
                                                .hidden = 4096,
                                                .n_heads = 64,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .vocab = 196608,
                                                .ffn = 1280,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct mixture_defaults experts = {.routing = {.n_experts = 128,
                                                                .n_chosen = 8,
                                                                .n_groups = 1,
                                                                .n_kept = 1,
                                                                .sigmoid = true,
                                                                .normalised = true,
                                                                .scale = 1},
                                                    .ffn = 1280,
                                                    .n_shared = 1};
    static const struct rope_keys rope = {"rope_theta", 1e6, NULL, 1, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->qkv_bias = config_bool(c, "attention_bias", false);
    mixture_read(m, c, &experts);
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = true;
    refuse_kin(c);
}

const struct family family_solar_open = {"solar_open",   "SolarOpenFor", "model.",      config,
                                         mixture_source, llama_outside,  llama_ignored, NOT_WRAPPED};
