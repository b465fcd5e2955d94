/* partition/families/llama_kin.c - Seed-OSS: Llama with biases of q, k and v, and switches of its own for the other
 * biases. */
#include "partition/families/llama.h"

static void config_seed_oss(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 64,
                                                .hidden = 4096,
                                                .n_heads = 80,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .vocab = 155136,
                                                .ffn = 27648,
                                                .max_positions = 524288};
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = config_bool(c, "attention_bias", true);
    m->out_bias = config_bool(c, "attention_out_bias", false);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
}

const struct family family_seed_oss = {"seed_oss",   "SeedOssFor",  "model.",      config_seed_oss,
                                       llama_source, llama_outside, llama_ignored, false};
