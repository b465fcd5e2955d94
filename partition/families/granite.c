/* partition/families/granite.c - Granite, GraniteMoE, the same with a shared expert, and those models of Granite 4.0
 * whose layers are all attention: Llama and Mixtral with factors for the embedding, the outputs of attention and MLP,
 * scores and logits. HyperCLOVA X: Granite that may also normalise these outputs; its logits are multiplied, not
 * divided. */
#include "partition/families/llama.h"

#include <math.h>
#include <string.h>

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

static void read_mixtures(struct model_config *m, const struct config *c)
{
    llama_read_routing(m, c, 8, 1, 2, true);
    m->experts.ffn = m->ffn;
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].experts = true;
}

static void config_granitemoe(struct model_config *m, const struct config *c)
{
    read_granite(m, c);
    read_mixtures(m, c);
}

static void config_shared(struct model_config *m, const struct config *c)
{
    config_granitemoe(m, c);
    m->experts.shared_ffn = config_int(c, "shared_intermediate_size", 0, 0, CONFIG_MAX_FFN);
}

/* By class default every layer is one of Mamba-2. */
static void check_layers(const struct model_config *m, const struct config *c)
{
    const char *key = config_has(c, "layer_types") ? "layer_types" : "layers_block_type";
    const json_t *types = json_object_get(c->json, key);
    if (types == NULL || json_is_null(types)) {
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"layer_types\" is missing: Mamba-2 layers are not implemented", c->what);
        return;
    }
    if (!json_is_array(types) || json_array_size(types) != (size_t)m->n_layers) {
        ERR(c->e, ERR_INPUT, "%s: \"%s\" is %s of %zu, expected an array of %d strings", c->what, key,
            json_type_name(types), json_array_size(types), m->n_layers);
        return;
    }
    for (int i = 0; i < m->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        if (type == NULL || (strcmp(type, "attention") != 0 && strcmp(type, "full_attention") != 0))
            ERR(c->e, ERR_UNSUPPORTED,
                "%s: \"%s\"[%d] is \"%.60s\", expected attention: Mamba-2 layers are not implemented", c->what, key, i,
                type != NULL ? type : "no string");
    }
}

/* The position embedding "nope", also the class default, is none at all. */
static void read_rotation(struct model_config *m, const struct config *c)
{
    const char *kind = json_get_string(c->json, "position_embedding_type", "nope", c->what, c->e);
    for (int i = 0; i < m->n_layers; i++)
        m->layer[i].unrotated = strcmp(kind, "rope") != 0;
    if (strcmp(kind, "rope") != 0 && strcmp(kind, "nope") != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"position_embedding_type\" is \"%.60s\", expected rope or nope", c->what,
            kind);
}

/* Without experts the shared one is the MLP. */
static void config_hybrid(struct model_config *m, const struct config *c)
{
    read_granite(m, c);
    check_layers(m, c);
    read_rotation(m, c);
    config_refuse_other(c, "normalization_function", "rmsnorm");
    int shared = config_int(c, "shared_intermediate_size", 1024, 1, CONFIG_MAX_FFN);
    if (config_int(c, "num_local_experts", 8, 0, CONFIG_MAX_EXPERTS) == 0) {
        m->ffn = shared;
        return;
    }
    m->experts.shared_ffn = shared;
    read_mixtures(m, c);
}

enum { EXPERTS_OLD = 1, EXPERTS_NEW }; /* forms */

static const struct weight_source moe_source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    LLAMA_QKV,
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    {WEIGHT_MLP_IN, PART_GATE_UP, "layers.%d.shared_mlp.input_linear.weight", false, 0},
    {WEIGHT_MLP_OUT, PART_WHOLE, "layers.%d.shared_mlp.output_linear.weight", false, 0},
    {WEIGHT_SHARED_IN, PART_GATE_UP, "layers.%d.shared_mlp.input_linear.weight", false, 0},
    {WEIGHT_SHARED_OUT, PART_WHOLE, "layers.%d.shared_mlp.output_linear.weight", false, 0},
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
                                      llama_source, llama_outside, llama_ignored, NOT_WRAPPED};
const struct family family_granitemoe = {"granitemoe", "GraniteMoeFor", "model.",      config_granitemoe,
                                         moe_source,   llama_outside,   llama_ignored, NOT_WRAPPED};
const struct family family_hyperclovax = {"hyperclovax",      "HyperCLOVAXFor", "model.",      config_hyperclovax,
                                          hyperclovax_source, llama_outside,    llama_ignored, NOT_WRAPPED};
const struct family family_granitemoeshared = {"granitemoeshared", "GraniteMoeSharedFor", "model.",      config_shared,
                                               moe_source,         llama_outside,         llama_ignored, NOT_WRAPPED};
const struct family family_granitemoehybrid = {"granitemoehybrid", "GraniteMoeHybridFor", "model.",      config_hybrid,
                                               moe_source,         llama_outside,         llama_ignored, NOT_WRAPPED};
