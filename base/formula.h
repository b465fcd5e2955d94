/* base/formula.h - names of the formulas that a checkpoint's config chooses (partition/) and that the operations compute
 * (kernels/). Neither folder includes the other; both include this. */
#ifndef BASE_FORMULA_H
#define BASE_FORMULA_H

enum norm_kind {
    NORM_LAYER, /* (x - mean) / sqrt(var + eps) * w + b, biased variance */
    NORM_RMS    /* w * round(x / sqrt(mean x^2 + eps)): rounded to the activation type before the weight */
};

enum activation {
    ACTIVATION_GELU,      /* x/2 (1 + erf(x / sqrt 2)) */
    ACTIVATION_GELU_TANH, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    ACTIVATION_RELU,
    ACTIVATION_SILU,      /* x / (1 + exp(-x)) */
    ACTIVATION_QUICK_GELU /* x / (1 + exp(-1.702 x)) */
};

enum rope_layout {
    ROPE_HALF,       /* pairs (j, j + dims/2): "rotate_half" */
    ROPE_INTERLEAVED /* pairs (2j, 2j+1): GPT-J */
};

/* How the rotation changes when a sequence is longer than `long_from` tokens. */
enum rope_growth {
    ROPE_FIXED,   /* nothing changes */
    ROPE_DYNAMIC, /* NTK: the base grows with the length n: theta * (factor n / long_from - (factor-1))^(dims/(dims-2)) */
    ROPE_LONG     /* inv_freq_long replaces inv_freq */
};

#define ROPE_MAX_PAIRS 256

/* Rotary embedding of the first `dims` of every head. angle = position * inv_freq[j] in float; cos and sin are multiplied
 * by attention_scaling. Flat: it is broadcast as it is. */
struct rope {
    enum rope_layout layout;
    enum rope_growth growth;
    int dims;      /* even, 2..2*ROPE_MAX_PAIRS */
    int long_from; /* tokens; unused when fixed */
    float attention_scaling;
    float theta, factor;                 /* ROPE_DYNAMIC only */
    float inv_freq[ROPE_MAX_PAIRS];      /* [dims/2] */
    float inv_freq_long[ROPE_MAX_PAIRS]; /* [dims/2], ROPE_LONG only */
};

#endif
