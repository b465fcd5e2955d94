/* partition/families/apertus.c - relatives of Llama whose MLP has no gate: Apertus, with xIELU and norms of q and k,
 * and Arcee (AFM), with the square of ReLU. */
#include "partition/families/llama.h"

#include <string.h>

/* "hidden_act" must be `name`: every layer's activation is the xIELU of these constants, unless the checkpoint has its
 * own. */
static void read_activation(struct model_config *m, const struct config *c, const char *name, struct xielu constants)
{
    const char *found = json_get_string(c->json, "hidden_act", name, c->what, c->e);
    if (strcmp(found, name) != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"hidden_act\" is \"%.60s\", expected %s", c->what, found, name);
    m->gated_mlp = false;
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].xielu = constants;
}

static void config_apertus(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 4096,
                                                .n_heads = 32,
                                                .vocab = 131072,
                                                .ffn = 14336,
                                                .max_positions = 65536,
                                                .norm_eps = 1e-5f,
                                                .activation = ACTIVATION_XIELU};
    static const struct rope_keys rope = {"rope_theta", 12000000, NULL, 1, ROPE_NAMES};
    llama_read_extended(m, c, &missing, &rope, 8);
    m->qk_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    read_activation(m, c, "xielu", (struct xielu){0.8f, 0.8f, 0.5f, -1e-6f});
    m->activation_trained = true;
}

static void config_arcee(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 32,
                                                .hidden = 2560,
                                                .n_heads = 32,
                                                .vocab = 32000,
                                                .ffn = 18432,
                                                .max_positions = 4096,
                                                .norm_eps = 1e-5f,
                                                .activation = ACTIVATION_XIELU};
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
    read_activation(m, c, "relu2", (struct xielu){1, 0, 0, 0});
}

/* clang-format off */
#define UNGATED_MLP                                                           \
    {WEIGHT_MLP_IN, PART_WHOLE, "layers.%d.mlp.up_proj.weight", false, 0},    \
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "layers.%d.mlp.up_proj.bias", false, 0}, \
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.mlp.down_proj.weight", false, 0}, \
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "layers.%d.mlp.down_proj.bias", false, 0}

static const struct weight_source source_apertus[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.attention_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_HEAD_NORMS,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.feedforward_layernorm.weight", false, 0},
    UNGATED_MLP,
    {0},
};
static const struct weight_source source_arcee[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    UNGATED_MLP,
    {0},
};
/* clang-format on */
static const char *const ignored_apertus[] = {".rotary_emb.inv_freq", ".mlp.act_fn.", NULL}; /* partition/xielu.c */

const struct family family_apertus = {"apertus",      "ApertusFor",  "model.",        config_apertus,
                                      source_apertus, llama_outside, ignored_apertus, NOT_WRAPPED};
const struct family family_arcee = {"arcee",      "ArceeFor",    "model.",      config_arcee,
                                    source_arcee, llama_outside, llama_ignored, NOT_WRAPPED};
