/* partition/families/llama_kin.c - Llama with other biases and rotations: Seed-OSS has switches for the biases of q, k
 * and v, of attention's output and of the MLP; in ERNIE 4.5 neighbouring pairs rotate, and all products have biases or
 * none has. */
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

static void config_ernie(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 18,
                                                .hidden = 1024,
                                                .n_heads = 16,
                                                .n_kv_heads = 2,
                                                .head_dim = 128,
                                                .vocab = 103424,
                                                .ffn = 3072,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 500000, "partial_rotary_factor", 1, false};
    llama_read(m, c, &missing, &rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->qkv_bias = m->out_bias = m->mlp_bias = config_bool(c, "use_bias", false); /* the head has none */
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
}

const struct family family_seed_oss = {"seed_oss",   "SeedOssFor",  "model.",      config_seed_oss,
                                       llama_source, llama_outside, llama_ignored, false};
const struct family family_ernie4_5 = {"ernie4_5",   "Ernie4_5For", "model.",      config_ernie,
                                       llama_source, llama_outside, llama_ignored, false};
