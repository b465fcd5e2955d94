/* partition/roles.c - see roles.h and weights.h: which roles a config has, and how large they are. */
#include "partition/roles.h"

const struct role roles[WEIGHT_COUNT] = {
    [WEIGHT_EMBED] = {"embed", AXIS_VOCAB, AXIS_EMBED},
    [WEIGHT_POSITION] = {"position", AXIS_POSITIONS, AXIS_HIDDEN},
    [WEIGHT_EMBED_NORM] = {"embed_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_EMBED_NORM_BIAS] = {"embed_norm_bias", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_PROJECT_IN] = {"project_in", AXIS_HIDDEN, AXIS_EMBED},
    [WEIGHT_PROJECT_OUT] = {"project_out", AXIS_EMBED, AXIS_HIDDEN},
    [WEIGHT_FINAL_NORM] = {"final_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_FINAL_NORM_BIAS] = {"final_norm_bias", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_HEAD] = {"head", AXIS_LOGITS, AXIS_EMBED},
    [WEIGHT_HEAD_BIAS] = {"head_bias", AXIS_LOGITS, AXIS_ONE},
    [WEIGHT_TAPS] = {"taps", AXIS_STATES, AXIS_TAPS},
    [WEIGHT_ATTN_NORM] = {"attn_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_ATTN_NORM_BIAS] = {"attn_norm_bias", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_QKV] = {"qkv", AXIS_QKV, AXIS_LAYER},
    [WEIGHT_QKV_BIAS] = {"qkv_bias", AXIS_QKV, AXIS_ONE},
    [WEIGHT_Q_NORM] = {"q_norm", AXIS_Q_NORM, AXIS_ONE},
    [WEIGHT_K_NORM] = {"k_norm", AXIS_K_NORM, AXIS_ONE},
    [WEIGHT_OUT] = {"out", AXIS_HIDDEN, AXIS_HEADS},
    [WEIGHT_OUT_BIAS] = {"out_bias", AXIS_HIDDEN_ONCE, AXIS_ONE},
    [WEIGHT_SINKS] = {"sinks", AXIS_HEAD_NUMBERS, AXIS_ONE},
    [WEIGHT_ATTN_OUT_NORM] = {"attn_out_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_MLP_NORM] = {"mlp_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_MLP_NORM_BIAS] = {"mlp_norm_bias", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_MLP_IN] = {"mlp_in", AXIS_MLP_IN, AXIS_HIDDEN},
    [WEIGHT_MLP_IN_BIAS] = {"mlp_in_bias", AXIS_MLP_IN, AXIS_ONE},
    [WEIGHT_MLP_OUT] = {"mlp_out", AXIS_HIDDEN, AXIS_FFN},
    [WEIGHT_MLP_OUT_BIAS] = {"mlp_out_bias", AXIS_HIDDEN_ONCE, AXIS_ONE},
    [WEIGHT_MLP_OUT_NORM] = {"mlp_out_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_TOKEN_NORM] = {"token_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_STATE_NORM] = {"state_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_JOIN] = {"join", AXIS_STATES, AXIS_JOINED},
    [WEIGHT_PREDICT_NORM] = {"predict_norm", AXIS_HIDDEN, AXIS_ONE},
    [WEIGHT_ROUTER] = {"router", AXIS_EXPERTS, AXIS_HIDDEN},
    [WEIGHT_ROUTER_BIAS] = {"router_bias", AXIS_EXPERTS, AXIS_ONE},
    [WEIGHT_EXPERTS_IN] = {"experts_in", AXIS_EXPERTS_IN, AXIS_HIDDEN},
    [WEIGHT_EXPERTS_IN_BIAS] = {"experts_in_bias", AXIS_EXPERTS_HELD, AXIS_EXPERT_PAIRS},
    [WEIGHT_EXPERTS_OUT] = {"experts_out", AXIS_EXPERTS_HIDDEN, AXIS_EXPERT_FFN},
    [WEIGHT_EXPERTS_OUT_BIAS] = {"experts_out_bias", AXIS_EXPERTS_ONCE, AXIS_HIDDEN},
    [WEIGHT_SHARED_IN] = {"shared_in", AXIS_SHARED_IN, AXIS_HIDDEN},
    [WEIGHT_SHARED_OUT] = {"shared_out", AXIS_HIDDEN, AXIS_SHARED_FFN},
    [WEIGHT_SHARED_GATE] = {"shared_gate", AXIS_SINGLE, AXIS_HIDDEN},
    [WEIGHT_QUERY] = {"query", AXIS_QUERIES, AXIS_HIDDEN},
    [WEIGHT_QUERY_DOWN] = {"query_down", AXIS_QUERY_RANK, AXIS_HIDDEN},
    [WEIGHT_QUERY_DOWN_BIAS] = {"query_down_bias", AXIS_QUERY_RANK, AXIS_ONE},
    [WEIGHT_QUERY_NORM] = {"query_norm", AXIS_QUERY_RANK, AXIS_ONE},
    [WEIGHT_QUERY_UP] = {"query_up", AXIS_QUERIES, AXIS_QUERY_RANK},
    [WEIGHT_LATENT] = {"latent", AXIS_LATENT, AXIS_HIDDEN},
    [WEIGHT_LATENT_BIAS] = {"latent_bias", AXIS_LATENT, AXIS_ONE},
    [WEIGHT_LATENT_NORM] = {"latent_norm", AXIS_RANK, AXIS_ONE},
    [WEIGHT_KEY_UP] = {"key_up", AXIS_HEADS_RANK, AXIS_KEY},
    [WEIGHT_VALUE_UP] = {"value_up", AXIS_HEADS, AXIS_RANK},
};

const char *weight_name(enum weight_id id)
{
    return roles[id].name;
}

bool weight_exists(const struct model_config *m, enum weight_id id, int layer)
{
    bool affine = m->norm_affine, bias = m->norm_affine && m->norm_bias;
    bool experts = layer >= 0 && m->layer[layer].experts, shared = experts && m->experts.shared_ffn > 0;
    bool latent = m->latent.rank > 0, query_latent = latent && m->latent.query_rank > 0;
    switch (id) {
    case WEIGHT_POSITION:
        return m->position == POSITION_LEARNED;
    case WEIGHT_EMBED_NORM:
        return m->embed_norm && affine;
    case WEIGHT_EMBED_NORM_BIAS:
        return m->embed_norm && bias;
    case WEIGHT_PROJECT_IN:
    case WEIGHT_PROJECT_OUT:
        return m->embed_dim != m->hidden;
    case WEIGHT_FINAL_NORM:
        return m->final_norm && affine;
    case WEIGHT_FINAL_NORM_BIAS:
        return m->final_norm && bias;
    case WEIGHT_HEAD:
        return !m->tied_head && !m->drafting.predicts;
    case WEIGHT_HEAD_BIAS:
        return m->head_bias;
    case WEIGHT_ATTN_NORM:
        return !m->no_input_norms && affine && !model_is_eagle(m);
    case WEIGHT_ATTN_NORM_BIAS:
        return !m->no_input_norms && bias;
    case WEIGHT_ATTN_OUT_NORM:
    case WEIGHT_MLP_OUT_NORM:
        return m->output_norms;
    case WEIGHT_QKV_BIAS:
        return m->qkv_bias;
    case WEIGHT_Q_NORM:
    case WEIGHT_K_NORM:
        return m->qk_norm;
    case WEIGHT_OUT_BIAS:
        return m->out_bias;
    case WEIGHT_MLP_NORM:
        return !m->shared_norm && !m->no_input_norms && affine;
    case WEIGHT_MLP_NORM_BIAS:
        return !m->shared_norm && !m->no_input_norms && bias;
    case WEIGHT_MLP_IN_BIAS:
    case WEIGHT_MLP_OUT_BIAS:
        return m->mlp_bias && !experts;
    case WEIGHT_MLP_IN:
    case WEIGHT_MLP_OUT:
        return !experts;
    case WEIGHT_ROUTER:
    case WEIGHT_EXPERTS_IN:
    case WEIGHT_EXPERTS_OUT:
        return experts;
    case WEIGHT_ROUTER_BIAS:
        return experts && m->experts.router_bias;
    case WEIGHT_EXPERTS_IN_BIAS:
    case WEIGHT_EXPERTS_OUT_BIAS:
        return experts && m->experts.biases;
    case WEIGHT_SINKS:
        return m->sinks;
    case WEIGHT_SHARED_IN:
    case WEIGHT_SHARED_OUT:
        return shared;
    case WEIGHT_SHARED_GATE:
        return shared && m->experts.shared_gate;
    case WEIGHT_QKV:
        return !latent;
    case WEIGHT_QUERY:
        return latent && !query_latent;
    case WEIGHT_QUERY_DOWN:
    case WEIGHT_QUERY_NORM:
    case WEIGHT_QUERY_UP:
        return query_latent;
    case WEIGHT_QUERY_DOWN_BIAS:
        return query_latent && m->latent.biases;
    case WEIGHT_LATENT:
    case WEIGHT_LATENT_NORM:
    case WEIGHT_KEY_UP:
    case WEIGHT_VALUE_UP:
        return latent;
    case WEIGHT_LATENT_BIAS:
        return latent && m->latent.biases;
    case WEIGHT_TAPS:
        return model_is_eagle(m);
    case WEIGHT_TOKEN_NORM:
    case WEIGHT_STATE_NORM:
        return m->drafting.n_taps > 0;
    case WEIGHT_JOIN:
    case WEIGHT_PREDICT_NORM:
        return m->drafting.predicts;
    case WEIGHT_EMBED:
        return m->drafting.n_taps == 0 || m->drafting.embeds;
    case WEIGHT_OUT:
        return true;
    case WEIGHT_COUNT:
        break;
    }
    return false;
}

int64_t role_axis_length(const struct model_config *m, const struct shard *s, enum axis axis)
{
    int64_t heads = range_length(s->heads), kv_heads = range_length(s->kv_heads), ffn = range_length(s->ffn);
    int64_t experts = range_length(s->experts), expert_ffn = range_length(s->expert_ffn);
    switch (axis) {
    case AXIS_HIDDEN:
        return m->hidden;
    case AXIS_HIDDEN_ONCE:
        return s->rank == 0 ? m->hidden : 0;
    case AXIS_EMBED:
        return m->embed_dim;
    case AXIS_VOCAB:
        return range_length(s->vocab);
    case AXIS_LOGITS:
        return range_length(s->logits);
    case AXIS_STATES:
        return range_length(s->states);
    case AXIS_TAPS:
        return (int64_t)m->drafting.n_taps * m->drafting.tapped;
    case AXIS_JOINED:
        return 2 * (int64_t)m->hidden;
    case AXIS_LAYER:
        return model_is_eagle(m) ? 2 * (int64_t)m->hidden : m->hidden;
    case AXIS_POSITIONS:
        return (int64_t)m->max_positions + m->position_offset;
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
    case AXIS_QUERY_RANK:
        return m->latent.query_rank;
    case AXIS_LATENT:
        return m->latent.rank + m->latent.rotated;
    case AXIS_RANK:
        return m->latent.rank;
    case AXIS_HEADS_RANK:
        return heads * m->latent.rank;
    case AXIS_KEY:
        return m->latent.key;
    case AXIS_FFN:
        return ffn;
    case AXIS_MLP_IN:
        return m->gated_mlp ? 2 * ffn : ffn;
    case AXIS_EXPERTS:
        return m->experts.routing.n_experts;
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
    case AXIS_SINGLE:
    case AXIS_ONE:
        break;
    }
    return 1;
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
