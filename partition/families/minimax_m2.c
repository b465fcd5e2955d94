/* partition/families/minimax_m2.c - MiniMax-M2: Mixtral with a sigmoid router and a correction bias; all heads of q and
 * all of k are normalised as one row; half of every head rotates. */
#include "partition/families/llama.h"

static void config(struct model_config *m, const struct config *c)
{
    static const struct model_config missing = {.n_layers = 62,
                                                .hidden = 3072,
                                                .n_heads = 48,
                                                .n_kv_heads = 8,
                                                .head_dim = 128,
                                                .vocab = 200064,
                                                .ffn = 1536,
                                                .max_positions = 196608};
    struct rope_keys rope = {"rope_theta", 5e6, "partial_rotary_factor", 1, ROPE_NAMES};
    int head_dim = config_int(c, "head_dim", 128, 1, CONFIG_MAX_HEAD_DIM);
    rope.fraction_missing = (double)config_int(c, "rotary_dim", head_dim, 2, head_dim) / head_dim;
    llama_read(m, c, &missing, &rope);
    m->qk_norm = m->qk_norm_each = m->qk_norm_row = true;
    llama_read_routing(m, c, 256, 1, 8, true);
    m->experts.routing.sigmoid = m->experts.router_bias = true;
    m->experts.ffn = m->ffn;
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = true;
}

enum { EXPERTS_APART = 1, EXPERTS_TOGETHER }; /* forms */

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_HEAD_NORMS,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_EXPERTS_IN, PART_GATE, "layers.%d.block_sparse_moe.experts.%d.w1.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_IN, PART_UP, "layers.%d.block_sparse_moe.experts.%d.w3.weight", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.block_sparse_moe.experts.%d.w2.weight", false, EXPERTS_APART},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.block_sparse_moe.gate.weight", false, EXPERTS_APART},
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.block_sparse_moe.e_score_correction_bias", false, EXPERTS_APART},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.mlp.experts.gate_up_proj", false, EXPERTS_TOGETHER},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.mlp.experts.down_proj", false, EXPERTS_TOGETHER},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.mlp.gate.weight", false, EXPERTS_TOGETHER},
    {WEIGHT_ROUTER_BIAS, PART_WHOLE, "layers.%d.mlp.e_score_correction_bias", false, EXPERTS_TOGETHER},
    {0},
};

const struct family family_minimax_m2 = {"minimax_m2", "MiniMaxM2For", "model.",      config,
                                         source,       llama_outside,  llama_ignored, NOT_WRAPPED};
