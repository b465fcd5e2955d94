/* partition/families/cwm.c - CWM (Code World Model): Llama with windows in three of four layers. */
#include "partition/families/llama.h"

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
    llama_read_extended(m, c, &missing, &rope, 16);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
    int window = config_is_null(c, "sliding_window") ? 0 : 8192;
    llama_read_windows(m, c, config_int(c, "sliding_window", window, 1, CONFIG_MAX_POSITIONS), 0);
    for (int i = 0; i < m->n_layers && !config_has(c, "layer_types"); i += 4)
        m->layer[i].window = 0;
}

const struct family family_cwm = {"cwm",        "CwmFor",      "model.",      config,
                                  llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
