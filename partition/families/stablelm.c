/* partition/families/stablelm.c - StableLM: LayerNorm, a quarter of every head rotates; the 12b adds attention and MLP of one
 * norm in parallel. */
#include "partition/families/llama.h"

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 2560,
                                                .n_heads = 32,
                                                .n_kv_heads = 32,
                                                .vocab = 50304,
                                                .ffn = 6912,
                                                .max_positions = 4096};
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 0.25, false};
    llama_read(m, c, &missing, &rope);
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_eps", 1e-5, 0, 1);
    m->norm_bias = true;
    m->qkv_bias = config_bool(c, "use_qkv_bias", false);
    m->parallel_residual = m->shared_norm = config_bool(c, "use_parallel_residual", false);
    if (config_bool(c, "qk_layernorm", false))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"qk_layernorm\" is true: a LayerNorm for each head is not implemented",
            c->what);
}

const struct family family_stablelm = {"stablelm",   "StableLmFor", "model.",      config,
                                       llama_source, llama_outside, llama_ignored, false};
