/* partition/roles.c - see roles.h and weights.h: which roles a config has, and how large they are. */
#include "partition/roles.h"

/* Conditions on a config, or on one of its layers, as bits. A role exists if all its conditions hold. */
#define ALWAYS               0u
#define IF_LEARNED_POSITIONS (1u << 0)
#define IF_EMBED_NORM        (1u << 1)
#define IF_PROJECTIONS       (1u << 2)
#define IF_FINAL_NORM        (1u << 3)
#define IF_OWN_HEAD          (1u << 4)
#define IF_HEAD_BIAS         (1u << 5)
#define IF_INPUT_NORMS       (1u << 6)
#define IF_MLP_NORM          (1u << 7)
#define IF_OUTPUT_NORMS      (1u << 8)
#define IF_AFFINE            (1u << 9)
#define IF_NORM_BIAS         (1u << 10)
#define IF_QKV_BIAS          (1u << 11)
#define IF_QK_NORM           (1u << 12)
#define IF_OUT_BIAS          (1u << 13)
#define IF_SINKS             (1u << 14)
#define IF_MLP_BIAS          (1u << 15)
#define IF_DENSE             (1u << 16)
#define IF_EXPERTS           (1u << 17)
#define IF_ROUTER_BIAS       (1u << 18)
#define IF_EXPERT_BIASES     (1u << 19)
#define IF_SHARED            (1u << 20)
#define IF_SHARED_GATE       (1u << 21)
#define IF_NOT_LATENT        (1u << 22)
#define IF_LATENT            (1u << 23)
#define IF_QUERY_WHOLE       (1u << 24)
#define IF_QUERY_LATENT      (1u << 25)
#define IF_LATENT_BIASES     (1u << 26)
#define IF_EMBEDS            (1u << 27)
#define IF_TAPS              (1u << 28)
#define IF_PREDICTS          (1u << 29)
#define IF_EAGLE             (1u << 30)
#define IF_NOT_EAGLE         (1u << 31)

const struct role roles[WEIGHT_COUNT] = {
    [WEIGHT_EMBED] = {"embed", AXIS_VOCAB, AXIS_EMBED, IF_EMBEDS},
    [WEIGHT_POSITION] = {"position", AXIS_POSITIONS, AXIS_HIDDEN, IF_LEARNED_POSITIONS},
    [WEIGHT_EMBED_NORM] = {"embed_norm", AXIS_HIDDEN, AXIS_ONE, IF_EMBED_NORM | IF_AFFINE},
    [WEIGHT_EMBED_NORM_BIAS] = {"embed_norm_bias", AXIS_HIDDEN, AXIS_ONE, IF_EMBED_NORM | IF_NORM_BIAS},
    [WEIGHT_PROJECT_IN] = {"project_in", AXIS_HIDDEN, AXIS_EMBED, IF_PROJECTIONS},
    [WEIGHT_PROJECT_OUT] = {"project_out", AXIS_EMBED, AXIS_HIDDEN, IF_PROJECTIONS},
    [WEIGHT_FINAL_NORM] = {"final_norm", AXIS_HIDDEN, AXIS_ONE, IF_FINAL_NORM | IF_AFFINE},
    [WEIGHT_FINAL_NORM_BIAS] = {"final_norm_bias", AXIS_HIDDEN, AXIS_ONE, IF_FINAL_NORM | IF_NORM_BIAS},
    [WEIGHT_HEAD] = {"head", AXIS_LOGITS, AXIS_EMBED, IF_OWN_HEAD},
    [WEIGHT_HEAD_BIAS] = {"head_bias", AXIS_LOGITS, AXIS_ONE, IF_HEAD_BIAS},
    [WEIGHT_TAPS] = {"taps", AXIS_STATES, AXIS_TAPS, IF_EAGLE},
    [WEIGHT_ATTN_NORM] = {"attn_norm", AXIS_HIDDEN, AXIS_ONE, IF_INPUT_NORMS | IF_AFFINE | IF_NOT_EAGLE},
    [WEIGHT_ATTN_NORM_BIAS] = {"attn_norm_bias", AXIS_HIDDEN, AXIS_ONE, IF_INPUT_NORMS | IF_NORM_BIAS},
    [WEIGHT_QKV] = {"qkv", AXIS_QKV, AXIS_LAYER, IF_NOT_LATENT},
    [WEIGHT_QKV_BIAS] = {"qkv_bias", AXIS_QKV, AXIS_ONE, IF_QKV_BIAS},
    [WEIGHT_Q_NORM] = {"q_norm", AXIS_Q_NORM, AXIS_ONE, IF_QK_NORM},
    [WEIGHT_K_NORM] = {"k_norm", AXIS_K_NORM, AXIS_ONE, IF_QK_NORM},
    [WEIGHT_OUT] = {"out", AXIS_HIDDEN, AXIS_HEADS, ALWAYS},
    [WEIGHT_OUT_BIAS] = {"out_bias", AXIS_HIDDEN_ONCE, AXIS_ONE, IF_OUT_BIAS},
    [WEIGHT_SINKS] = {"sinks", AXIS_HEAD_NUMBERS, AXIS_ONE, IF_SINKS},
    [WEIGHT_ATTN_OUT_NORM] = {"attn_out_norm", AXIS_HIDDEN, AXIS_ONE, IF_OUTPUT_NORMS},
    [WEIGHT_MLP_NORM] = {"mlp_norm", AXIS_HIDDEN, AXIS_ONE, IF_MLP_NORM | IF_INPUT_NORMS | IF_AFFINE},
    [WEIGHT_MLP_NORM_BIAS] = {"mlp_norm_bias", AXIS_HIDDEN, AXIS_ONE, IF_MLP_NORM | IF_INPUT_NORMS | IF_NORM_BIAS},
    [WEIGHT_MLP_IN] = {"mlp_in", AXIS_MLP_IN, AXIS_HIDDEN, IF_DENSE},
    [WEIGHT_MLP_IN_BIAS] = {"mlp_in_bias", AXIS_MLP_IN, AXIS_ONE, IF_MLP_BIAS | IF_DENSE},
    [WEIGHT_MLP_OUT] = {"mlp_out", AXIS_HIDDEN, AXIS_FFN, IF_DENSE},
    [WEIGHT_MLP_OUT_BIAS] = {"mlp_out_bias", AXIS_HIDDEN_ONCE, AXIS_ONE, IF_MLP_BIAS | IF_DENSE},
    [WEIGHT_MLP_OUT_NORM] = {"mlp_out_norm", AXIS_HIDDEN, AXIS_ONE, IF_OUTPUT_NORMS},
    [WEIGHT_TOKEN_NORM] = {"token_norm", AXIS_HIDDEN, AXIS_ONE, IF_TAPS},
    [WEIGHT_STATE_NORM] = {"state_norm", AXIS_HIDDEN, AXIS_ONE, IF_TAPS},
    [WEIGHT_JOIN] = {"join", AXIS_STATES, AXIS_JOINED, IF_PREDICTS},
    [WEIGHT_PREDICT_NORM] = {"predict_norm", AXIS_HIDDEN, AXIS_ONE, IF_PREDICTS},
    [WEIGHT_ROUTER] = {"router", AXIS_EXPERTS, AXIS_HIDDEN, IF_EXPERTS},
    [WEIGHT_ROUTER_BIAS] = {"router_bias", AXIS_EXPERTS, AXIS_ONE, IF_EXPERTS | IF_ROUTER_BIAS},
    [WEIGHT_EXPERTS_IN] = {"experts_in", AXIS_EXPERTS_IN, AXIS_HIDDEN, IF_EXPERTS},
    [WEIGHT_EXPERTS_IN_BIAS] = {"experts_in_bias", AXIS_EXPERTS_HELD, AXIS_EXPERT_PAIRS, IF_EXPERTS | IF_EXPERT_BIASES},
    [WEIGHT_EXPERTS_OUT] = {"experts_out", AXIS_EXPERTS_HIDDEN, AXIS_EXPERT_FFN, IF_EXPERTS},
    [WEIGHT_EXPERTS_OUT_BIAS] = {"experts_out_bias", AXIS_EXPERTS_ONCE, AXIS_HIDDEN, IF_EXPERTS | IF_EXPERT_BIASES},
    [WEIGHT_SHARED_IN] = {"shared_in", AXIS_SHARED_IN, AXIS_HIDDEN, IF_EXPERTS | IF_SHARED},
    [WEIGHT_SHARED_OUT] = {"shared_out", AXIS_HIDDEN, AXIS_SHARED_FFN, IF_EXPERTS | IF_SHARED},
    [WEIGHT_SHARED_GATE] = {"shared_gate", AXIS_SINGLE, AXIS_HIDDEN, IF_EXPERTS | IF_SHARED | IF_SHARED_GATE},
    [WEIGHT_QUERY] = {"query", AXIS_QUERIES, AXIS_HIDDEN, IF_LATENT | IF_QUERY_WHOLE},
    [WEIGHT_QUERY_DOWN] = {"query_down", AXIS_QUERY_RANK, AXIS_HIDDEN, IF_LATENT | IF_QUERY_LATENT},
    [WEIGHT_QUERY_DOWN_BIAS] = {"query_down_bias", AXIS_QUERY_RANK, AXIS_ONE,
                                IF_LATENT | IF_QUERY_LATENT | IF_LATENT_BIASES},
    [WEIGHT_QUERY_NORM] = {"query_norm", AXIS_QUERY_RANK, AXIS_ONE, IF_LATENT | IF_QUERY_LATENT},
    [WEIGHT_QUERY_UP] = {"query_up", AXIS_QUERIES, AXIS_QUERY_RANK, IF_LATENT | IF_QUERY_LATENT},
    [WEIGHT_LATENT] = {"latent", AXIS_LATENT, AXIS_HIDDEN, IF_LATENT},
    [WEIGHT_LATENT_BIAS] = {"latent_bias", AXIS_LATENT, AXIS_ONE, IF_LATENT | IF_LATENT_BIASES},
    [WEIGHT_LATENT_NORM] = {"latent_norm", AXIS_RANK, AXIS_ONE, IF_LATENT},
    [WEIGHT_KEY_UP] = {"key_up", AXIS_HEADS_RANK, AXIS_KEY, IF_LATENT},
    [WEIGHT_VALUE_UP] = {"value_up", AXIS_HEADS, AXIS_RANK, IF_LATENT},
};

const char *weight_name(enum weight_id id)
{
    return roles[id].name;
}

static unsigned bit(bool holds, unsigned condition)
{
    return holds ? condition : ALWAYS;
}

static unsigned conditions_of(const struct model_config *m, int layer)
{
    bool experts = layer >= 0 && m->layer[layer].experts;
    return bit(m->position == POSITION_LEARNED, IF_LEARNED_POSITIONS) | bit(m->embed_norm, IF_EMBED_NORM) |
           bit(m->embed_dim != m->hidden, IF_PROJECTIONS) | bit(m->final_norm, IF_FINAL_NORM) |
           bit(!m->tied_head && !m->drafting.predicts, IF_OWN_HEAD) | bit(m->head_bias, IF_HEAD_BIAS) |
           bit(!m->no_input_norms, IF_INPUT_NORMS) | bit(!m->shared_norm, IF_MLP_NORM) |
           bit(m->output_norms, IF_OUTPUT_NORMS) | bit(m->norm_affine, IF_AFFINE) |
           bit(m->norm_affine && m->norm_bias, IF_NORM_BIAS) | bit(m->qkv_bias, IF_QKV_BIAS) |
           bit(m->qk_norm, IF_QK_NORM) | bit(m->out_bias, IF_OUT_BIAS) | bit(m->sinks, IF_SINKS) |
           bit(m->mlp_bias, IF_MLP_BIAS) | bit(!experts, IF_DENSE) | bit(experts, IF_EXPERTS) |
           bit(m->experts.router_bias, IF_ROUTER_BIAS) | bit(m->experts.biases, IF_EXPERT_BIASES) |
           bit(m->experts.shared_ffn > 0, IF_SHARED) | bit(m->experts.shared_gate, IF_SHARED_GATE) |
           bit(m->latent.rank == 0, IF_NOT_LATENT) | bit(m->latent.rank > 0, IF_LATENT) |
           bit(m->latent.query_rank == 0, IF_QUERY_WHOLE) | bit(m->latent.query_rank > 0, IF_QUERY_LATENT) |
           bit(m->latent.biases, IF_LATENT_BIASES) | bit(m->drafting.n_taps == 0 || m->drafting.embeds, IF_EMBEDS) |
           bit(m->drafting.n_taps > 0, IF_TAPS) | bit(m->drafting.predicts, IF_PREDICTS) |
           bit(model_is_eagle(m), IF_EAGLE) | bit(!model_is_eagle(m), IF_NOT_EAGLE);
}

bool weight_exists(const struct model_config *m, enum weight_id id, int layer)
{
    return (roles[id].conditions & ~conditions_of(m, layer)) == 0;
}

/* Lengths that are the same on every rank. */
static int64_t whole_axis_length(const struct model_config *m, enum axis axis)
{
    switch (axis) {
    case AXIS_HIDDEN:
        return m->hidden;
    case AXIS_EMBED:
        return m->embed_dim;
    case AXIS_TAPS:
        return (int64_t)m->drafting.n_taps * m->drafting.tapped;
    case AXIS_JOINED:
        return 2 * (int64_t)m->hidden;
    case AXIS_LAYER:
        return model_is_eagle(m) ? 2 * (int64_t)m->hidden : m->hidden;
    case AXIS_POSITIONS:
        return (int64_t)m->max_positions + m->position_offset;
    case AXIS_QUERY_RANK:
        return m->latent.query_rank;
    case AXIS_LATENT:
        return m->latent.rank + m->latent.rotated;
    case AXIS_RANK:
        return m->latent.rank;
    case AXIS_KEY:
        return m->latent.key;
    case AXIS_EXPERTS:
        return m->experts.routing.n_experts;
    default:
        return 1; /* a vector, or a single row */
    }
}

int64_t role_axis_length(const struct model_config *m, const struct shard *s, enum axis axis)
{
    int64_t heads = range_length(s->heads), kv_heads = range_length(s->kv_heads), ffn = range_length(s->ffn);
    int64_t experts = range_length(s->experts), expert_ffn = range_length(s->expert_ffn);
    switch (axis) {
    case AXIS_HIDDEN_ONCE:
        return s->rank == 0 ? m->hidden : 0;
    case AXIS_VOCAB:
        return range_length(s->vocab);
    case AXIS_LOGITS:
        return range_length(s->logits);
    case AXIS_STATES:
        return range_length(s->states);
    case AXIS_Q_NORM:
        return (m->qk_norm_each ? heads : 1) * m->head_dim;
    case AXIS_K_NORM:
        return (m->qk_norm_each ? kv_heads : 1) * m->head_dim;
    case AXIS_QKV:
        return (heads + 2 * kv_heads) * m->head_dim;
    case AXIS_HEADS:
        return heads * model_value_dim(m);
    case AXIS_QUERIES:
        return heads * (m->latent.key + m->latent.rotated);
    case AXIS_HEADS_RANK:
        return heads * m->latent.rank;
    case AXIS_FFN:
        return ffn;
    case AXIS_MLP_IN:
        return m->gated_mlp ? 2 * ffn : ffn;
    case AXIS_EXPERTS_HELD:
        return experts;
    case AXIS_EXPERTS_IN:
        return experts * 2 * expert_ffn;
    case AXIS_EXPERTS_ONCE:
        return s->rank == 0 || m->whole_experts ? experts : 0;
    case AXIS_EXPERT_FFN:
        return expert_ffn;
    case AXIS_EXPERT_PAIRS:
        return 2 * expert_ffn;
    case AXIS_HEAD_NUMBERS:
        return heads;
    case AXIS_EXPERTS_HIDDEN:
        return experts * m->hidden;
    case AXIS_SHARED_IN:
        return 2 * (int64_t)range_length(s->shared_ffn);
    case AXIS_SHARED_FFN:
        return range_length(s->shared_ffn);
    default:
        return whole_axis_length(m, axis);
    }
}

int64_t role_first_input(const struct model_config *m, const struct shard *s, enum axis axis)
{
    switch (axis) {
    case AXIS_HEADS:
        return (int64_t)s->heads.begin * model_value_dim(m);
    case AXIS_FFN:
        return s->ffn.begin;
    case AXIS_EXPERT_FFN:
        return s->expert_ffn.begin;
    case AXIS_EXPERT_PAIRS:
        return 2 * (int64_t)s->expert_ffn.begin;
    case AXIS_SHARED_FFN:
        return s->shared_ffn.begin;
    default:
        return 0;
    }
}

int weight_inputs(const struct model_config *m, enum weight_id id)
{
    struct shard whole;
    shard_make(&whole, m, 0, 1);
    return (int)role_axis_length(m, &whole, roles[id].in);
}

int weight_first_input(const struct model_config *m, const struct shard *s, enum weight_id id)
{
    return (int)role_first_input(m, s, roles[id].in);
}
