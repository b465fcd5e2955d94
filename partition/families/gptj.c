/* partition/families/gptj.c - GPT-J: one norm feeds attention and MLP in parallel; interleaved partial rotation. */
#include "partition/families.h"
#include "partition/rope.h"

#include <math.h>

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 28, .hidden = 4096, .n_heads = 16, .vocab = 50400};
    config_sizes(m, c, &missing);
    config_divide_heads(m, c);
    m->ffn = config_int(c, "n_inner", 4 * m->hidden, 1, CONFIG_MAX_FFN);
    m->max_positions = config_int(c, "n_positions|max_position_embeddings", 2048, 1, CONFIG_MAX_POSITIONS);
    m->positions_end = true; /* HF tabulates sines for n_positions */
    m->norm = NORM_LAYER;
    m->norm_eps = (float)config_real(c, "layer_norm_epsilon", 1e-5, 0, 1);
    m->activation = config_activation(c, "activation_function", ACTIVATION_GELU_TANH);
    m->parallel_residual = m->shared_norm = true;
    m->final_norm = m->norm_affine = m->norm_bias = true;
    m->mlp_bias = m->head_bias = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", false);
    m->attention_scale = (float)(1 / sqrt(m->head_dim));
    m->position = POSITION_ROPE;

    int dims = config_int(c, "rotary_dim", 64, 2, 2 * ROPE_MAX_PAIRS);
    if (config_is_null(c, "rotary_dim"))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"rotary_dim\" is null, expected an even number up to %d", c->what,
            m->head_dim);
    if (dims % 2 != 0 || dims > m->head_dim) {
        ERR(c->e, ERR_INPUT, "%s: \"rotary_dim\" is %d, expected an even number up to the head's %d", c->what, dims,
            m->head_dim);
        return;
    }
    rope_plain(&m->rope, ROPE_INTERLEAVED, dims, 10000);
}

static const struct weight_source source[] = {
    {WEIGHT_EMBED, PART_WHOLE, "wte.weight", false, 0},
    {WEIGHT_FINAL_NORM, PART_WHOLE, "ln_f.weight", false, 0},
    {WEIGHT_FINAL_NORM_BIAS, PART_WHOLE, "ln_f.bias", false, 0},
    {WEIGHT_HEAD, PART_WHOLE, "lm_head.weight", false, 0},
    {WEIGHT_HEAD_BIAS, PART_WHOLE, "lm_head.bias", false, 0},
    {WEIGHT_ATTN_NORM, PART_WHOLE, "h.%d.ln_1.weight", false, 0},
    {WEIGHT_ATTN_NORM_BIAS, PART_WHOLE, "h.%d.ln_1.bias", false, 0},
    {WEIGHT_QKV, PART_Q, "h.%d.attn.q_proj.weight", false, 0},
    {WEIGHT_QKV, PART_K, "h.%d.attn.k_proj.weight", false, 0},
    {WEIGHT_QKV, PART_V, "h.%d.attn.v_proj.weight", false, 0},
    {WEIGHT_OUT, PART_WHOLE, "h.%d.attn.out_proj.weight", false, 0},
    {WEIGHT_MLP_IN, PART_WHOLE, "h.%d.mlp.fc_in.weight", false, 0},
    {WEIGHT_MLP_IN_BIAS, PART_WHOLE, "h.%d.mlp.fc_in.bias", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "h.%d.mlp.fc_out.weight", false, 0},
    {WEIGHT_MLP_OUT_BIAS, PART_WHOLE, "h.%d.mlp.fc_out.bias", false, 0},
    {0},
};
static const char *const outside[] = {"lm_head.weight", "lm_head.bias", NULL};
static const char *const ignored[] = {".attn.bias", ".attn.masked_bias", NULL};

const struct family family_gptj = {"gptj", "GPTJFor", "transformer.", config, source, outside, ignored, NOT_WRAPPED};
