/* tests/support/batch_alone.h - `lockstep batch` on the demo model in a cmocka test's own process, on a fake device
 * that takes no time: every sequence of a plan gets an arbitrary token. The test triggers each action. */
#ifndef TESTS_SUPPORT_BATCH_ALONE_H
#define TESTS_SUPPORT_BATCH_ALONE_H

#include "commands/batch.h"
#include "commands/options.h"

struct batch_alone {
    struct options options;
    struct model_config config;
    struct checkpoint checkpoint;
    struct batch_run batch;
    struct plan plan;
    struct sampled *sampled; /* [n_seqs] */
    uint64_t n_steps;
    char input[600], output[600];
};

/* dir: has in.jsonl, and the output by its name. more: options, NULL at the end. n_seqs run at once. The process must
 * have called signals_open. Any failure here and below fails the test. */
void batch_alone_open(struct batch_alone *a, const char *dir, const char *output, const char *const *more, int n_seqs);

/* Takes the next action: a step, a wait for work (0.1 s at most), or, if false is returned, the end. */
bool batch_alone_turn(struct batch_alone *a);

/* Call after the end. Returns the exit status; a failure of input or output is in *e. */
int batch_alone_close(struct batch_alone *a, struct err *e);

#endif
