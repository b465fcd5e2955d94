/* partition/families/ernie4_5_moe.c - ERNIE 4.5 with mixtures of experts: a softmax router whose choice is corrected,
 * shared experts, interleaved rotation. */
#include "partition/families/llama.h"

static void read_experts(struct model_config *m, const struct config *c)
{
    struct routing *r = &m->experts.routing;
    r->n_experts = config_int(c, "moe_num_experts|num_experts", 64, 1, CONFIG_MAX_EXPERTS);
    r->n_chosen = config_int(c, "moe_k|num_experts_per_tok", 6, 1, CONFIG_MAX_EXPERTS);
    r->corrected = r->normalised = m->experts.router_bias = true;
    r->least = (float)config_real(c, "moe_norm_min", 1e-12, 0, 1);
    r->scale = 1;
    m->experts.ffn = config_int(c, "moe_intermediate_size", 1536, 1, CONFIG_MAX_FFN / 16);
    m->experts.shared_ffn = m->experts.ffn * config_int(c, "moe_num_shared_experts", 2, 0, 16);
}

static void read_layers(struct model_config *m, const struct config *c)
{
    int first = config_int(c, "moe_layer_start_index", 1, 0, MODEL_MAX_LAYERS);
    int last = config_int(c, "moe_layer_end_index", -1, -1, MODEL_MAX_LAYERS); /* -1: the last one */
    int interval = config_int(c, "moe_layer_interval", 1, 1, MODEL_MAX_LAYERS);
    for (int i = first; i < m->n_layers && (last < 0 || i <= last); i++)
        m->layer[i].experts = (i + 1) % interval == 0;
}

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 28,
                                                .hidden = 2560,
                                                .n_heads = 20,
                                                .n_kv_heads = 4,
                                                .vocab = 103424,
                                                .ffn = 12288,
                                                .max_positions = 131072,
                                                .norm_eps = 1e-5f};
    static const struct rope_keys rope = {"rope_theta", 500000, NULL, 1, ROPE_NAMES};
    llama_read(m, c, &missing, &rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    if (config_bool(c, "use_bias", false))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"use_bias\" is true, which is not implemented for ernie4_5_moe", c->what);
    read_experts(m, c);
    read_layers(m, c);
}

enum { EXPERTS_APART = 1, EXPERTS_TOGETHER }; /* forms */

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    LLAMA_MLP,
    LLAMA_SHARED_EXPERTS,
    {WEIGHT_ROUTER_BIAS, PART_ROW, "layers.%d.mlp.moe_statics.e_score_correction_bias", false, EXPERTS_APART},
    {WEIGHT_ROUTER_BIAS, PART_ROW, "layers.%d.mlp.gate.moe_statics.e_score_correction_bias", false, EXPERTS_TOGETHER},
    {0},
};
/* Also the layer that predicts further tokens, which is not used. */
static const char *const ignored[] = {".rotary_emb.inv_freq", "mtp_block.",       "mtp_emb_norm.",
                                      "mtp_hidden_norm.",     "mtp_linear_proj.", NULL};

const struct family family_ernie4_5_moe = {"ernie4_5_moe", "Ernie4_5_MoeFor", "model.", config,
                                           source,         llama_outside,     ignored,  NOT_WRAPPED};
