/* partition/families/olmo.c - OLMo 1: Llama whose norms are LayerNorms without weights. OLMo 2 and 3: norms after
 * attention and MLP and none before them; all heads of q and all of k are normalised as one row. OLMo 3 has windows in
 * three of four layers; rotary scaling applies to the others only. */
#include "partition/families/llama.h"

static const struct model_config missing = {.n_layers = 32,
                                            .hidden = 4096,
                                            .n_heads = 32,
                                            .vocab = 50304,
                                            .ffn = 11008,
                                            .max_positions = 2048,
                                            .norm_eps = 1e-5f};

static void config_olmo(struct model_config *m, const struct config *c)
{
    llama_read(m, c, &missing, &llama_rope);
    m->norm = NORM_LAYER;
    m->norm_eps = 1e-5f; /* no key of the config */
    m->norm_affine = false;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    llama_refuse_clip(c);
}

static void read_later(struct model_config *m, const struct config *c)
{
    llama_read(m, c, &missing, NULL);
    m->norm = NORM_RMS_ONCE;
    m->no_input_norms = m->output_norms = true;
    m->qk_norm = m->qk_norm_each = m->qk_norm_row = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
}

static void config_olmo2(struct model_config *m, const struct config *c)
{
    read_later(m, c);
    rope_read(m, c, &llama_rope);
}

static void config_olmo3(struct model_config *m, const struct config *c)
{
    static const struct rope_keys rope = {"rope_theta", 500000, NULL, 1, ROPE_NAMES};
    read_later(m, c);
    rope_read_kinds(m, c, &rope, &rope);
    llama_read_pattern(m, c, 4096, 4);
}

const struct family family_olmo = {"olmo",       "OlmoFor",     "model.",      config_olmo,
                                   llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_olmo2 = {"olmo2",       "Olmo2For",    "model.",   config_olmo2, llama_behind_source,
                                    llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_olmo3 = {"olmo3",       "Olmo3For",    "model.",   config_olmo3, llama_behind_source,
                                    llama_outside, llama_ignored, NOT_WRAPPED};
