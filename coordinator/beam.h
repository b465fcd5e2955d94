/* coordinator/beam.h - beam search as Hugging Face transformers' generate does it: which continuations of the beams go on,
 * which are finished hypotheses, and when to end. Arithmetic alone; coordinator/group.c runs the sequences. */
#ifndef COORDINATOR_BEAM_H
#define COORDINATOR_BEAM_H

#include "kernels/ops.h"

#include <stdbool.h>

#define BEAM_MAX (SAMPLING_MAX_TOP / 2)

enum early_stopping { EARLY_STOPPING_FALSE, EARLY_STOPPING_TRUE, EARLY_STOPPING_NEVER };

struct beam_rules {
    double length_penalty; /* a finished hypothesis scores (sum of log-probabilities) / (tokens of output) ** this; 1 */
    enum early_stopping early_stopping;
};

struct beam_search;

#endif
