/* base/sampling.h - parameters and results of sampling, and the number of tokens in a block of the KV cache. Plans
 * carry these (plan/plan.h) and operations obey them (kernels/); both folders include this file instead of each
 * other. */
#ifndef BASE_SAMPLING_H
#define BASE_SAMPLING_H

#include <stdint.h>

#define KV_BLOCK_TOKENS 16
/* Kinds of KV blocks. A model with windowed and other layers has both; windowed layers keep only the blocks that are
 * still visible. In all other models all layers have blocks of the first kind. */
enum kv_kind { KV_MAIN, KV_WINDOWED, KV_KINDS };

#define SAMPLING_MAX_BIAS 300
#define SAMPLING_MAX_EOS  16
#define SAMPLING_MAX_TOP  20

/* How one sequence is sampled. Flat, since it travels in the plan. Order of application (Hugging Face's): logit_bias,
 * repetition_penalty, frequency and presence penalty, min_tokens (eos ids forbidden), mask, temperature, top_k, top_p,
 * min_p. */
struct sampling {
    uint64_t seed;
    float temperature;        /* 0: greedy, the lowest id among equals */
    float top_p, min_p;       /* 1 and 0: off */
    float repetition_penalty; /* 1: off; over distinct ids of prompt and output: s < 0 ? s * p : s / p */
    float presence_penalty;   /* over ids of the output: s -= presence + frequency * count */
    float frequency_penalty;
    int32_t top_k;                        /* 0: off */
    int32_t prompt_len;                   /* tokens of the prompt: history before it is prompt, after it output */
    int32_t min_tokens;                   /* eos ids are forbidden while fewer tokens have been generated */
    int32_t n_eos, eos[SAMPLING_MAX_EOS]; /* ids that min_tokens forbids */
    int32_t n_top;                        /* log-probabilities wanted: the best n_top (0..SAMPLING_MAX_TOP) */
    int32_t n_prompt_top;                 /* the same for every scored token of the prompt */
    int32_t masked; /* 1: only tokens whose bits are set in the mask of the slot, which comes with the plan */
    int32_t n_bias;
    int32_t bias_id[SAMPLING_MAX_BIAS];
    float bias[SAMPLING_MAX_BIAS];
};

/* One sampled or scored token, as the host reads it. Log-probabilities are log_softmax of the logits before any of the
 * above.
 * */
struct sampled {
    int32_t token;
    int32_t slot;
    float logprob;
    int32_t top_id[SAMPLING_MAX_TOP]; /* [n_top or n_prompt_top] best first, the lower id first among equals */
    float top_logprob[SAMPLING_MAX_TOP];
};

#endif
