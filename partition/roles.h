/* partition/roles.h - the dimensions of each role (enum weight_id), whole and on a rank. Only for partition/. */
#ifndef PARTITION_ROLES_H
#define PARTITION_ROLES_H

#include "partition/weights.h"

/* The meaning of a role's dimension. */
enum axis {
    AXIS_ONE,    /* a vector has no second dimension */
    AXIS_SINGLE, /* one row of a matrix */
    AXIS_HIDDEN,
    AXIS_HIDDEN_ONCE, /* rank 0 only: added to a partial sum */
    AXIS_EMBED,
    AXIS_VOCAB,
    AXIS_LOGITS, /* rows of the head */
    AXIS_STATES, /* the rank's columns of a drafting head's states */
    AXIS_TAPS,   /* n_taps x elements of a state of the main model */
    AXIS_JOINED, /* the embedding and the state of a drafting head: 2 x hidden */
    AXIS_LAYER,  /* inputs of q, k and v: hidden, or joined */
    AXIS_POSITIONS,
    AXIS_Q_NORM, /* head_dim, or that for each head */
    AXIS_K_NORM,
    AXIS_QKV,
    AXIS_HEADS,   /* n_heads x elements of attention's output per head */
    AXIS_QUERIES, /* n_heads x (key + rotated) */
    AXIS_QUERY_RANK,
    AXIS_LATENT, /* rank + rotated */
    AXIS_RANK,
    AXIS_HEADS_RANK, /* n_heads x rank */
    AXIS_KEY,
    AXIS_FFN,
    AXIS_MLP_IN, /* ffn, or twice that if gated */
    AXIS_EXPERTS,
    AXIS_EXPERTS_HELD, /* those of the rank */
    AXIS_EXPERTS_IN,   /* the rank's experts x 2 x expert_ffn */
    AXIS_EXPERTS_ONCE, /* the same; rank 0 only if all ranks have columns of every expert */
    AXIS_EXPERT_FFN,
    AXIS_EXPERT_PAIRS, /* 2 x expert_ffn, in pairs */
    AXIS_HEAD_NUMBERS,
    AXIS_EXPERTS_HIDDEN, /* the rank's experts x hidden */
    AXIS_SHARED_IN,      /* 2 x shared_ffn */
    AXIS_SHARED_FFN
};

struct role {
    const char *name;
    enum axis out, in;
    unsigned conditions; /* bits: the role exists if all of them hold */
};
extern const struct role roles[WEIGHT_COUNT];

/* Length of an axis on the rank of s. */
int64_t role_axis_length(const struct model_config *m, const struct shard *s, enum axis axis);

/* The first input of a matrix on the rank of s, if the axis is cut along inputs. */
int64_t role_first_input(const struct model_config *m, const struct shard *s, enum axis axis);

#endif
