/* partition/families/granite.c - Granite and GraniteMoE: Llama and Mixtral with factors for the embedding, the outputs
 * of attention and MLP, scores and logits. HyperCLOVA X: Granite that may also normalise these outputs; its logits are
 * multiplied, not divided. */
#include "partition/families/llama.h"

#include <math.h>

static const struct model_config missing = {
    .n_layers = 32, .hidden = 4096, .n_heads = 32, .vocab = 32000, .ffn = 11008, .max_positions = 2048};

static void read_granite(struct model_config *m, const struct config *c)
{
    llama_read(m, c, &missing, &llama_rope);
    m->qkv_bias = m->out_bias = config_bool(c, "attention_bias", false);
    m->embed_scale = (float)config_real(c, "embedding_multiplier", 1, 1e-6, 1e6);
    m->residual_scale = (float)config_real(c, "residual_multiplier", 1, 1e-6, 1e6);
    m->attention_scale = (float)config_real(c, "attention_multiplier", 1, 1e-6, 1e6);
    m->logit_scale = (float)(1 / config_real(c, "logits_scaling", 1, 1e-6, 1e6));
}

static void config_granite(struct model_config *m, const struct config *c)
{
    read_granite(m, c);
    m->mlp_bias = config_bool(c, "mlp_bias", false);
}

static void config_hyperclovax(struct model_config *m, const struct config *c)
{
    config_granite(m, c);
    if (!config_has(c, "attention_multiplier"))
        m->attention_scale = (float)(1 / sqrt(m->head_dim));
    m->logit_scale = (float)config_real(c, "logits_scaling", 1, 1e-6, 1e6);
    m->output_norms = config_bool(c, "use_post_norm", true);
}

static void config_granitemoe(struct model_config *m, const struct config *c)
{
    read_granite(m, c);
    llama_read_routing(m, c, 8, 1, 2, true);
    m->experts.ffn = m->ffn;
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = true;
}

enum { EXPERTS_OLD = 1, EXPERTS_NEW }; /* forms */

static const struct weight_source moe_source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.block_sparse_moe.input_linear.weight", false, EXPERTS_OLD},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.block_sparse_moe.output_linear.weight", false, EXPERTS_OLD},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.block_sparse_moe.router.layer.weight", false, EXPERTS_OLD},
    {WEIGHT_EXPERTS_IN, PART_GATE_UP, "layers.%d.block_sparse_moe.experts.gate_up_proj", false, EXPERTS_NEW},
    {WEIGHT_EXPERTS_OUT, PART_WHOLE, "layers.%d.block_sparse_moe.experts.down_proj", false, EXPERTS_NEW},
    {WEIGHT_ROUTER, PART_WHOLE, "layers.%d.block_sparse_moe.router.weight", false, EXPERTS_NEW},
    {0},
};

static const struct weight_source hyperclovax_source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_ATTN_OUT_NORM, PART_WHOLE, "layers.%d.post_norm1.weight", false, 0},
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    LLAMA_MLP,
    {WEIGHT_MLP_OUT_NORM, PART_WHOLE, "layers.%d.post_norm2.weight", false, 0},
    {0},
};

const struct family family_granite = {"granite",    "GraniteFor",  "model.",      config_granite,
                                      llama_source, llama_outside, llama_ignored, false};
const struct family family_granitemoe = {"granitemoe", "GraniteMoeFor", "model.",      config_granitemoe,
                                         moe_source,   llama_outside,   llama_ignored, false};
const struct family family_hyperclovax = {"hyperclovax",      "HyperCLOVAXFor", "model.",      config_hyperclovax,
                                          hyperclovax_source, llama_outside,    llama_ignored, false};
