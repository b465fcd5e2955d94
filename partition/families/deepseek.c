/* partition/families/deepseek.c - DeepSeek-V2, -V3 and R1, and GLM-4.7-Flash: latent attention, shared experts, the
 * first layers dense. V2's router takes the best of a softmax, within the best groups or of all experts; the other
 * models use GLM-4.5's router. Youtu-LLM has the same attention and no experts. */
#include "partition/families/llama.h"

#include <math.h>
#include <string.h>

/* Epsilon of the latents' norms, whatever "rms_norm_eps" says. */
#define LATENT_EPS 1e-6f

/* Class defaults beside those of Llama's kin. */
struct defaults {
    struct model_config sizes;
    struct model_latent latent;
    struct routing routing;
    int ffn, n_shared, n_dense;
};

static void refuse_other(const struct config *c, const char *key, const char *expected)
{
    const char *found = json_get_string(c->json, key, expected, c->what, c->e);
    if (strcmp(found, expected) != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is \"%.60s\", expected %s", c->what, key, found, expected);
}

/* The only head of the cache: the latent, followed by the rotated key. */
static void read_latent(struct model_config *m, const struct config *c, const struct model_latent *missing)
{
    static const struct rope_keys rope = {"rope_theta", 10000, "partial_rotary_factor", 1, ROPE_NAMES};
    struct model_latent *l = &m->latent;
    l->rank = config_int(c, "kv_lora_rank", missing->rank, 1, CONFIG_MAX_HEAD_DIM);
    l->query_rank =
        config_int(c, "q_lora_rank", config_is_null(c, "q_lora_rank") ? 0 : missing->query_rank, 1, CONFIG_MAX_HIDDEN);
    l->key = config_int(c, "qk_nope_head_dim", missing->key, 1, CONFIG_MAX_HEAD_DIM);
    l->rotated = config_int(c, "qk_rope_head_dim", missing->rotated, 2, 2 * ROPE_MAX_PAIRS);
    l->value = config_int(c, "v_head_dim", missing->value, 1, CONFIG_MAX_HEAD_DIM);
    l->biases = m->out_bias = config_bool(c, "attention_bias", false);
    l->norm_eps = LATENT_EPS;
    m->n_kv_heads = 1;
    m->head_dim = l->rotated;
    rope_read(m, c, &rope);
    if (c->e->code == ERR_NONE && m->rope.dims != l->rotated)
        ERR(c->e, ERR_UNSUPPORTED, "%s: %d of the %d dimensions of \"qk_rope_head_dim\" are rotated, expected all",
            c->what, m->rope.dims, l->rotated);
    m->head_dim = l->rank + l->rotated;
    m->attention_scale = (float)(rope_score_factor(c) / sqrt(l->key + l->rotated));
}

static void read_experts(struct model_config *m, const struct config *c, const struct defaults *missing)
{
    struct routing *r = &m->experts.routing;
    r->n_experts = config_int(c, "n_routed_experts|num_local_experts|num_experts", missing->routing.n_experts, 1,
                              CONFIG_MAX_EXPERTS);
    r->n_chosen = missing->routing.n_chosen > 0
                      ? config_int(c, "num_experts_per_tok", missing->routing.n_chosen, 1, CONFIG_MAX_EXPERTS)
                      : config_need_int(c, "num_experts_per_tok", 1, CONFIG_MAX_EXPERTS);
    r->n_groups = config_int(c, "n_group", missing->routing.n_groups, 1, ROUTING_MAX_GROUPS);
    r->n_kept = config_int(c, "topk_group", missing->routing.n_kept, 1, ROUTING_MAX_GROUPS);
    r->scale = (float)config_real(c, "routed_scaling_factor", missing->routing.scale, 0, 1e6);
    m->experts.ffn = config_int(c, "moe_intermediate_size", missing->ffn, 1, CONFIG_MAX_FFN / 16);
    m->experts.shared_ffn = m->experts.ffn * config_int(c, "n_shared_experts", missing->n_shared, 1, 16);
    if (config_int(c, "moe_layer_freq", 1, 1, MODEL_MAX_LAYERS) != 1)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"moe_layer_freq\" is not 1, which is not implemented", c->what);
}

static void read_first_dense(struct model_config *m, const struct config *c, int missing)
{
    for (int i = config_int(c, "first_k_dense_replace", missing, 0, MODEL_MAX_LAYERS); i < m->n_layers; i++)
        m->layer[i].experts = true;
}

static void read_dense(struct model_config *m, const struct config *c, const struct defaults *missing)
{
    config_sizes(m, c, &missing->sizes);
    m->ffn = config_int(c, "intermediate_size", missing->sizes.ffn, 1, CONFIG_MAX_FFN);
    m->n_predicting = config_int(c, "num_nextn_predict_layers", 0, 0, MODEL_MAX_LAYERS);
    m->max_positions = config_int(c, "max_position_embeddings", missing->sizes.max_positions, 1, CONFIG_MAX_POSITIONS);
    m->norm = NORM_RMS;
    m->norm_eps = (float)config_real(c, "rms_norm_eps", missing->sizes.norm_eps, 0, 1);
    m->activation = config_activation(c, "hidden_act", ACTIVATION_SILU);
    m->gated_mlp = m->final_norm = m->norm_affine = true;
    m->tied_head = config_bool(c, "tie_word_embeddings", false);
    m->position = POSITION_ROPE;
    read_latent(m, c, &missing->latent);
}

static void read_all(struct model_config *m, const struct config *c, const struct defaults *missing)
{
    read_dense(m, c, missing);
    read_experts(m, c, missing);
}

static void config_v2(struct model_config *m, const struct config *c)
{
    static const struct defaults missing = {
        .sizes = {.n_layers = 32,
                  .hidden = 4096,
                  .n_heads = 32,
                  .vocab = 102400,
                  .ffn = 11008,
                  .max_positions = 2048,
                  .norm_eps = 1e-6f},
        .latent = {.rank = 512, .query_rank = 1536, .key = 128, .rotated = 64, .value = 128},
        .routing = {.n_experts = 64, .n_groups = 1, .n_kept = 1, .scale = 1},
        .ffn = 1407,
        .n_shared = 2,
    };
    read_all(m, c, &missing);
    m->rope.layout = ROPE_INTERLEAVED;
    read_first_dense(m, c, missing.n_dense);
    refuse_other(c, "scoring_func", "softmax");
    const char *method = json_get_string(c->json, "topk_method", "greedy", c->what, c->e);
    m->experts.routing.groups_by_best = true;
    if (strcmp(method, "greedy") == 0)
        m->experts.routing.n_groups = m->experts.routing.n_kept = 1;
    else if (strcmp(method, "group_limited_greedy") != 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"topk_method\" is \"%.60s\", expected greedy or group_limited_greedy", c->what,
            method);
    if (config_bool(c, "norm_topk_prob", false)) /* transformers ignores it, the model's own code does not */
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"norm_topk_prob\" is true, which is not implemented for deepseek_v2", c->what);
    if (config_bool(c, "mlp_bias", false))
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"mlp_bias\" is true, which is not implemented for deepseek_v2", c->what);
}

static void read_layout(struct model_config *m, const struct config *c)
{
    m->rope.layout = config_bool(c, "rope_interleave", true) ? ROPE_INTERLEAVED : ROPE_HALF;
}

/* The fields that V3 and GLM-4.7-Flash share. */
static void read_sigmoid(struct model_config *m, const struct config *c, const struct defaults *missing)
{
    read_all(m, c, missing);
    read_layout(m, c);
    m->experts.routing.sigmoid = m->experts.router_bias = true;
    m->experts.routing.normalised = config_bool(c, "norm_topk_prob", true);
    refuse_other(c, "scoring_func", "sigmoid");
    refuse_other(c, "topk_method", "noaux_tc");
}

static void config_v3(struct model_config *m, const struct config *c)
{
    static const struct defaults missing = {
        .sizes = {.n_layers = 61,
                  .hidden = 7168,
                  .n_heads = 128,
                  .vocab = 129280,
                  .ffn = 18432,
                  .max_positions = 4096,
                  .norm_eps = 1e-6f},
        .latent = {.rank = 512, .query_rank = 1536, .key = 128, .rotated = 64, .value = 128},
        .routing = {.n_experts = 256, .n_chosen = 8, .n_groups = 8, .n_kept = 4, .scale = 2.5f},
        .ffn = 2048,
        .n_shared = 1,
        .n_dense = 3,
    };
    read_sigmoid(m, c, &missing);
    read_first_dense(m, c, missing.n_dense);
}

/* "mlp_layer_types" of GLM-4.7-Flash; without it the first layer is dense. */
static void read_layer_types(struct model_config *m, const struct config *c)
{
    const json_t *types = json_object_get(c->json, "mlp_layer_types");
    bool listed = types != NULL && !json_is_null(types);
    if (!listed && config_int(c, "first_k_dense_replace", 1, 0, MODEL_MAX_LAYERS) != 1)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"first_k_dense_replace\" is not 1, and \"mlp_layer_types\" is missing",
            c->what);
    if (listed && (!json_is_array(types) || json_array_size(types) != (size_t)m->n_layers)) {
        ERR(c->e, ERR_INPUT, "%s: \"mlp_layer_types\" is %s of %zu, expected an array of %d strings", c->what,
            json_type_name(types), json_array_size(types), m->n_layers);
        return;
    }
    for (int i = 0; i < m->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        m->layer[i].experts = listed ? type != NULL && strcmp(type, "sparse") == 0 : i > 0;
        if (listed && (type == NULL || (strcmp(type, "sparse") != 0 && strcmp(type, "dense") != 0)))
            ERR(c->e, ERR_UNSUPPORTED, "%s: \"mlp_layer_types\"[%d] is \"%.60s\", expected dense or sparse", c->what, i,
                type != NULL ? type : "no string");
    }
}

static void config_glm(struct model_config *m, const struct config *c)
{
    static const struct defaults missing = {
        .sizes = {.n_layers = 47,
                  .hidden = 2048,
                  .n_heads = 20,
                  .vocab = 154880,
                  .ffn = 10240,
                  .max_positions = 202752,
                  .norm_eps = 1e-5f},
        .latent = {.rank = 512, .query_rank = 768, .key = 192, .rotated = 64, .value = 256},
        .routing = {.n_experts = 64, .n_chosen = 4, .n_groups = 1, .n_kept = 1, .scale = 1.8f},
        .ffn = 1536,
        .n_shared = 1,
    };
    read_sigmoid(m, c, &missing);
    read_layer_types(m, c);
}

static void config_youtu(struct model_config *m, const struct config *c)
{
    static const struct defaults missing = {
        .sizes = {.n_layers = 32,
                  .hidden = 2048,
                  .n_heads = 16,
                  .vocab = 128256,
                  .ffn = 6144,
                  .max_positions = 131072,
                  .norm_eps = 1e-6f},
        .latent = {.rank = 512, .query_rank = 1536, .key = 128, .rotated = 64, .value = 128},
    };
    read_dense(m, c, &missing);
    read_layout(m, c);
    m->tied_head = config_bool(c, "tie_word_embeddings", true);
}

enum { EXPERTS_APART = 1, EXPERTS_TOGETHER }; /* forms */

static const struct weight_source source[] = {
    LLAMA_AROUND,
    {WEIGHT_ATTN_NORM, PART_WHOLE, "layers.%d.input_layernorm.weight", false, 0},
    {WEIGHT_QUERY, PART_WHOLE, "layers.%d.self_attn.q_proj.weight", false, 0},
    {WEIGHT_QUERY_DOWN, PART_WHOLE, "layers.%d.self_attn.q_a_proj.weight", false, 0},
    {WEIGHT_QUERY_DOWN_BIAS, PART_WHOLE, "layers.%d.self_attn.q_a_proj.bias", false, 0},
    {WEIGHT_QUERY_NORM, PART_WHOLE, "layers.%d.self_attn.q_a_layernorm.weight", false, 0},
    {WEIGHT_QUERY_UP, PART_WHOLE, "layers.%d.self_attn.q_b_proj.weight", false, 0},
    {WEIGHT_LATENT, PART_WHOLE, "layers.%d.self_attn.kv_a_proj_with_mqa.weight", false, 0},
    {WEIGHT_LATENT_BIAS, PART_WHOLE, "layers.%d.self_attn.kv_a_proj_with_mqa.bias", false, 0},
    {WEIGHT_LATENT_NORM, PART_WHOLE, "layers.%d.self_attn.kv_a_layernorm.weight", false, 0},
    {WEIGHT_KEY_UP, PART_KEYS, "layers.%d.self_attn.kv_b_proj.weight", false, 0},
    {WEIGHT_VALUE_UP, PART_VALUES, "layers.%d.self_attn.kv_b_proj.weight", false, 0},
    LLAMA_OUT,
    {WEIGHT_MLP_NORM, PART_WHOLE, "layers.%d.post_attention_layernorm.weight", false, 0},
    LLAMA_MLP,
    LLAMA_SHARED_EXPERTS,
    LLAMA_PREDICTING,
    {0},
};

const struct family family_deepseek_v2 = {"deepseek_v2", "DeepseekV2For", "model.",      config_v2,
                                          source,        llama_outside,   llama_ignored, false};
const struct family family_deepseek_v3 = {"deepseek_v3", "DeepseekV3For", "model.",      config_v3,
                                          source,        llama_outside,   llama_ignored, false};
const struct family family_glm4_moe_lite = {"glm4_moe_lite", "Glm4MoeLiteFor", "model.",      config_glm,
                                            source,          llama_outside,    llama_ignored, false};
const struct family family_youtu = {"youtu", "YoutuFor",    "model.",      config_youtu,
                                    source,  llama_outside, llama_ignored, false};
