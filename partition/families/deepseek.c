/* partition/families/deepseek.c - DeepSeek-V2, -V3 and R1, Kimi-K2, and GLM-4.7-Flash: latent attention, shared
 * experts, the first layers dense. V2's router takes the best of a softmax, within the best groups or of all experts;
 * the other models use GLM-4.5's router. Youtu-LLM has the same attention and no experts. */
#include "partition/families/llama.h"
#include "partition/families/mixtures.h"

#include <math.h>
#include <string.h>

/* Epsilon of the latents' norms, whatever "rms_norm_eps" says. */
#define LATENT_EPS 1e-6f

/* Class defaults beside those of Llama's kin. */
struct defaults {
    struct model_config sizes;
    struct model_latent latent;
    struct mixture_defaults experts;
};

/* The only head of the cache: the latent, followed by the rotated key. */
static void read_latent(struct model_config *m, const struct config *c, const struct model_latent *missing)
{
    static const struct rope_keys rope = {"rope_theta", 10000, NULL, 1, ROPE_NAMES};
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
    m->head_dim = l->rank + l->rotated;
    m->attention_scale = (float)(rope_score_factor(c) / sqrt(l->key + l->rotated));
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
    mixture_read(m, c, &missing->experts);
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
        .experts = {.routing = {.n_experts = 64, .n_groups = 1, .n_kept = 1, .scale = 1, .groups_by_best = true},
                    .ffn = 1407,
                    .n_shared = 2},
    };
    read_all(m, c, &missing);
    m->rope.layout = ROPE_INTERLEAVED;
    mixture_read_first_dense(m, c, 0);
    config_refuse_other(c, "scoring_func", "softmax");
    const char *method = json_get_string(c->json, "topk_method", "greedy", c->what, c->e);
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
    bool interleaved = config_bool(c, "rope_interleave", !config_is_null(c, "rope_interleave"));
    m->rope.layout = interleaved ? ROPE_INTERLEAVED : ROPE_HALF;
}

/* The fields that V3 and GLM-4.7-Flash share. */
static void read_sigmoid(struct model_config *m, const struct config *c, const struct defaults *missing)
{
    read_all(m, c, missing);
    read_layout(m, c);
    config_refuse_other(c, "scoring_func", "sigmoid");
    config_refuse_other(c, "topk_method", "noaux_tc");
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
        .experts = {.routing = {.n_experts = 256,
                                .n_chosen = 8,
                                .n_groups = 8,
                                .n_kept = 4,
                                .sigmoid = true,
                                .normalised = true,
                                .scale = 2.5f},
                    .ffn = 2048,
                    .n_shared = 1},
    };
    read_sigmoid(m, c, &missing);
    mixture_read_first_dense(m, c, 3);
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
        .experts = {.routing = {.n_experts = 64,
                                .n_chosen = 4,
                                .n_groups = 1,
                                .n_kept = 1,
                                .sigmoid = true,
                                .normalised = true,
                                .scale = 1.8f},
                    .ffn = 1536,
                    .n_shared = 1},
    };
    read_sigmoid(m, c, &missing);
    mixture_read_layer_types(m, c, 1);
    if (!config_has(c, "mlp_layer_types") && config_int(c, "first_k_dense_replace", 1, 0, MODEL_MAX_LAYERS) != 1)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"first_k_dense_replace\" is not 1, and \"mlp_layer_types\" is missing",
            c->what);
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
    LLAMA_CORRECTION,
    LLAMA_PREDICTING,
    {0},
};

const struct family family_deepseek_v2 = {"deepseek_v2", "DeepseekV2For", "model.",      config_v2,
                                          source,        llama_outside,   llama_ignored, NOT_WRAPPED};
const struct family family_deepseek_v3 = {"deepseek_v3", "DeepseekV3For", "model.",      config_v3,
                                          source,        llama_outside,   llama_ignored, NOT_WRAPPED};
const struct family family_glm4_moe_lite = {"glm4_moe_lite", "Glm4MoeLiteFor", "model.",      config_glm,
                                            source,          llama_outside,    llama_ignored, NOT_WRAPPED};
const struct family family_youtu = {"youtu", "YoutuFor",    "model.",      config_youtu,
                                    source,  llama_outside, llama_ignored, NOT_WRAPPED};
/* Kimi-K2: its config names the class of V3. */
const struct family family_kimi_k2 = {"kimi_k2", "DeepseekV3For", "model.",      config_v3,
                                      source,    llama_outside,   llama_ignored, NOT_WRAPPED};
