/* partition/families/cwm.c - CWM (Code World Model): Llama with windows in three of four layers. */
#include "partition/families/llama.h"

/* The class default of the rotation, where the config says nothing of it. */
static json_t *default_rope(void)
{
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "rope_theta", 1e6, "factor", 16.0,
                     "low_freq_factor", 1.0, "high_freq_factor", 4.0, "original_max_position_embeddings", 8192);
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 64,
                                                .hidden = 6144,
                                                .n_heads = 48,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .vocab = 128256,
                                                .ffn = 21504,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 1e6, NULL, 1, ROPE_NAMES};
    struct config filled = *c;
    json_t *json = json_copy((json_t *)c->json);
    if (!config_has(c, rope_key(c)))
        (void)json_object_set_new(json, "rope_parameters", default_rope());
    filled.json = json;
    llama_read(m, &filled, &missing, &rope);
    json_decref(json);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
    int window = config_is_null(c, "sliding_window") ? 0 : 8192;
    llama_read_windows(m, c, config_int(c, "sliding_window", window, 1, CONFIG_MAX_POSITIONS), 0);
    for (int i = 0; i < m->n_layers && !config_has(c, "layer_types"); i += 4)
        m->layer[i].window = 0;
}

const struct family family_cwm = {"cwm",        "CwmFor",      "model.",      config,
                                  llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
