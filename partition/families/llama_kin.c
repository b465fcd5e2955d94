/* partition/families/llama_kin.c - Llama with other biases and rotations: Seed-OSS has switches for the biases of q, k
 * and v, of attention's output and of the MLP, InternLM3 one for q, k, v and one for the rest; in ERNIE 4.5, where all
 * products have biases or none has, and in Helium neighbouring pairs rotate; IQuest-Coder has defaults of its own. */
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
    static const struct rope_keys rope = {"rope_theta", 500000, NULL, 1, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->qkv_bias = m->out_bias = m->mlp_bias = config_bool(c, "use_bias", false); /* the head has none */
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
}

/* The model's own code says "qkv_bias" and "bias", transformers "attention_bias" and "mlp_bias". */
static void config_internlm3(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 48,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .n_kv_heads = 2,
                                                .head_dim = 128,
                                                .vocab = 128512,
                                                .ffn = 10240,
                                                .max_positions = 32768,
                                                .norm_eps = 1e-5f};
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = config_bool(c, config_has(c, "qkv_bias") ? "qkv_bias" : "attention_bias", false);
    m->out_bias = m->mlp_bias = config_bool(c, config_has(c, "bias") ? "bias" : "mlp_bias", false);
}

static void config_iquestcoder(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 80,
                                                .hidden = 5120,
                                                .n_heads = 40,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .vocab = 76800,
                                                .ffn = 27648,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
    llama_refuse_clip(c);
    if (config_bool(c, "use_sliding_window", false))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"use_sliding_window\" is true, which is not implemented for iquestcoder",
            c->what);
}

static void config_helium(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 24,
                                                .hidden = 2560,
                                                .n_heads = 20,
                                                .n_kv_heads = 20,
                                                .head_dim = 128,
                                                .vocab = 48000,
                                                .ffn = 7040,
                                                .max_positions = 4096,
                                                .norm_eps = 1e-8f};
    static const struct rope_keys rope = {"rope_theta", 100000, NULL, 1, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->norm = NORM_RMS_ONCE;
    m->qkv_bias = config_bool(c, "attention_bias", false);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
}

const struct family family_seed_oss = {"seed_oss",   "SeedOssFor",  "model.",      config_seed_oss,
                                       llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_ernie4_5 = {"ernie4_5",   "Ernie4_5For", "model.",      config_ernie,
                                       llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_internlm3 = {"internlm3",  "InternLM3For", "model.",      config_internlm3,
                                        llama_source, llama_outside,  llama_ignored, NOT_WRAPPED};
const struct family family_iquestcoder = {"iquestcoder", "IQuestCoderFor", "model.",      config_iquestcoder,
                                          llama_source,  llama_outside,    llama_ignored, NOT_WRAPPED};
const struct family family_helium = {"helium",     "HeliumFor",   "model.",      config_helium,
                                     llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
