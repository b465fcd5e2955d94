/* base/sampling_options.h - how tokens are chosen, where a command line says it: `generate` and `batch`, each with rows of its
 * own, whose help and ranges differ. */
#ifndef BASE_SAMPLING_OPTIONS_H
#define BASE_SAMPLING_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* NAN, or negative (top_k: below -1): not given, so that a file or a request may say it. */
struct sampling_options {
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t max_tokens, min_tokens, top_k, seed;
    bool ignore_eos;
};

#endif
