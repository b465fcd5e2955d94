/* partition/families/cohere.c - Command R and R7B (Cohere and Cohere2): one norm, a LayerNorm without bias, feeds
 * attention and MLP in parallel; neighbouring pairs rotate; a factor of the logits. Cohere may norm each q and k head
 * with weights of its own; Cohere2 has windows in three of four layers and does not rotate in the others. */
#include "partition/families/llama.h"

static const struct model_config missing = {
    .n_layers = 40, .hidden = 8192, .n_heads = 64, .vocab = 256000, .ffn = 22528, .max_positions = 8192};

static void read_cohere(struct model_config *m, const struct config *c, const struct rope_keys *rope)
{
    llama_read(m, c, &missing, rope);
    m->rope.layout = ROPE_INTERLEAVED;
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_eps", 1e-5, 0, 1);
    m->parallel_residual = m->shared_norm = true;
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
    m->logit_scale = (float)config_real(c, "logit_scale", 0.0625, 1e-6, 1e6);
}

static void config_cohere(struct model_config *m, const struct config *c)
{
    static const struct rope_keys rope = {"rope_theta", 500000, NULL, 1, ROPE_NAMES};
    read_cohere(m, c, &rope);
    m->qk_norm = m->qk_norm_each = config_bool(c, "use_qk_norm", false);
}

static void config_cohere2(struct model_config *m, const struct config *c)
{
    read_cohere(m, c, &llama_rope);
    if (config_is_null(c, "sliding_window"))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"sliding_window\" is null, expected the window of the layers that rotate",
            c->what);
    llama_read_pattern(m, c, 4096, config_int(c, "sliding_window_pattern", 4, 1, MODEL_MAX_LAYERS));
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].unrotated = m->layer[i].window == 0;
}

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    {WEIGHT_Q_NORM, PART_ROWS, "layers.%d.self_attn.q_norm.weight", false, 0},
    {WEIGHT_K_NORM, PART_ROWS, "layers.%d.self_attn.k_norm.weight", false, 0},
    LLAMA_OUT,
    LLAMA_MLP,
    {0},
};

const struct family family_cohere = {"cohere", "CohereFor",   "model.",      config_cohere,
                                     source,   llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_cohere2 = {"cohere2", "Cohere2For",  "model.",      config_cohere2,
                                      source,    llama_outside, llama_ignored, NOT_WRAPPED};
