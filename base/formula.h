/* base/formula.h - names of the formulas that a checkpoint's config chooses (partition/) and that the operations
 * compute (kernels/). Neither folder includes the other; both include this. */
#ifndef BASE_FORMULA_H
#define BASE_FORMULA_H

#include <stdbool.h>

enum norm_kind {
    NORM_LAYER,     /* (x - mean) / sqrt(var + eps) * w + b, biased variance */
    NORM_RMS,       /* w * round(x / sqrt(mean x^2 + eps)): rounded to the activation type before the weight */
    NORM_RMS_ONCE,  /* w * x / sqrt(mean x^2 + eps): rounded once */
    NORM_RMS_OFFSET /* (1 + w) * x / sqrt(mean x^2 + eps): rounded once */
};

enum activation {
    ACTIVATION_GELU,      /* x/2 (1 + erf(x / sqrt 2)) */
    ACTIVATION_GELU_TANH, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    ACTIVATION_RELU,
    ACTIVATION_SILU,       /* x / (1 + exp(-x)) */
    ACTIVATION_QUICK_GELU, /* x / (1 + exp(-1.702 x)) */
    ACTIVATION_SWIGLU,     /* always gated, gate and up rows alternating: (u + 1) quick_gelu(g), both clamped */
    ACTIVATION_XIELU       /* never gated, with constants of each layer: struct xielu, an operation of its own */
};

/* positive x^2 + beta x above 0, negative (exp(min(x, eps)) - 1 - x) + beta x elsewhere (Apertus). {1, 0, 0, 0} is the
 * square of ReLU. */
struct xielu {
    float positive, negative, beta, eps;
};

#define SWIGLU_LIMIT 7.0f /* g = min(gate, limit), u = clamp(up, -limit, limit) */

enum rope_layout {
    ROPE_HALF,       /* pairs (j, j + dims/2): "rotate_half" */
    ROPE_INTERLEAVED /* pairs (2j, 2j+1): GPT-J */
};

/* How the rotation changes when a sequence is longer than `long_from` tokens. */
enum rope_growth {
    ROPE_FIXED,   /* nothing changes */
    ROPE_DYNAMIC, /* NTK: the base grows with the length n: theta (factor n / long_from - factor+1)^(dims / (dims-2)) */
    ROPE_LONG     /* inv_freq_long replaces inv_freq */
};

#define ROUTING_MAX_EXPERTS 1024

#define ROUTING_MAX_GROUPS 32

/* The choice of the experts that take a token, and the weights of their results. An expert's score is its softmax
 * probability over the logits of all experts, or the sigmoid of its own logit. The highest scores are chosen; a bias is
 * added to a softmax's logit, but to a sigmoid's score, or to a corrected softmax's, for the choice only. With groups,
 * experts [0, n_experts / n_groups) are the first group and so on; a group's score is the sum of its two best experts
 * or that of the best one, and only experts of the n_kept best groups can be chosen. A share is the score of a chosen
 * expert, times scale. */
struct routing {
    int n_experts, n_chosen; /* 1 <= n_chosen <= n_experts <= ROUTING_MAX_EXPERTS */
    int n_groups, n_kept;    /* n_groups 0 or 1: there are none */
    bool groups_by_best;     /* a group's score is that of its best expert */
    bool sigmoid;
    bool corrected;  /* with a softmax: the bias is added to the probabilities, for the choice only (ERNIE 4.5) */
    bool by_logits;  /* with sigmoids: experts are chosen by logits, since several sigmoids may round to 1 */
    bool of_input;   /* shares are factors of the input of an expert, not of its result (Llama 4); n_chosen is 1 */
    bool normalised; /* the scores of the chosen ones are divided by their sum */
    float least;     /* with a softmax: what that sum counts as at least; otherwise 0 */
    float scale;
};

/* Is the bias a correction of scores, and not of logits? */
static inline bool routing_corrects(const struct routing *r)
{
    return r->sigmoid || r->corrected;
}

#define ROPE_MAX_PAIRS 256

/* Rotary embedding of the first `dims` of every head. angle = position * inv_freq[j] in float; cos and sin are
 * multiplied by attention_scaling. Flat, so that it can be broadcast as it is. */
struct rope {
    enum rope_layout layout;
    enum rope_growth growth;
    int dims;      /* even, 2..2*ROPE_MAX_PAIRS; 0: no rotation, but queries may still grow */
    int long_from; /* tokens; unused when fixed */
    float attention_scaling;
    float theta, factor; /* ROPE_DYNAMIC only */
    float
        query_growth; /* beta: queries are multiplied by 1 + beta ln(1 + floor((position + query_shift) / query_period))
                         unless it is 0 */
    int query_period, query_shift;       /* tokens; unused when beta is 0 */
    float inv_freq[ROPE_MAX_PAIRS];      /* [dims/2] */
    float inv_freq_long[ROPE_MAX_PAIRS]; /* [dims/2], ROPE_LONG only */
};

#endif
