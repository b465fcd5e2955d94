/* base/sampling_options.h - sampling options of the command line: `generate` and `batch` have rows of their own, whose
 * help and ranges differ. */
#ifndef BASE_SAMPLING_OPTIONS_H
#define BASE_SAMPLING_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* NAN, or negative (top_k: below -1): not given, so a file or a request may set it. */
struct sampling_options {
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t max_tokens, min_tokens, top_k, seed;
    bool ignore_eos;
};

#endif
