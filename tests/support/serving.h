/* tests/support/serving.h - `lockstep serve` under mpirun with the demo model, on a free port, and its metrics. */
#ifndef TESTS_SUPPORT_SERVING_H
#define TESTS_SUPPORT_SERVING_H

#include "client/connection.h"
#include "tests/support/process.h"

struct serving {
    struct process p;
    int ranks;
    char dir[256], rendezvous[300], endpoint[ENDPOINT_BYTES];
};

#define SERVING_IPC "ipc"

/* Starts it and waits until it is ready. more: further options, NULL at the end, or NULL; endpoint NULL: tcp, a free
 * port; SERVING_IPC: a Unix socket in a folder of its own, over which it accepts drain and shutdown. false: it did not
 * start; the reason is printed as a TAP comment, and serving_stop has been called. */
bool serving_start(struct serving *s, int ranks, const char *endpoint, const char *const *more);

/* The same with the model in this folder. */
bool serving_start_model(struct serving *s, const char *model, int ranks, const char *endpoint,
                         const char *const *more);

/* The same with all models of a folder, over a Unix socket. env: for the ranks, as in struct process_setup. */
bool serving_start_models(struct serving *s, const char *dir, int ranks, const char *const *more,
                          const char *const *env);

/* Waits until it ends by itself, for a minute on a quiet machine. */
void serving_wait(struct serving *s);

/* After its end: frees what it printed, and removes its folder. */
void serving_free(struct serving *s);

/* Tells rank 0 to drain if it still runs; waits for its end; frees it; returns its exit status, -1 if it had to be
 * killed. */
int serving_stop(struct serving *s);

/* Opens a connection with the client's own code; false: failed, the reason is printed. */
bool serving_connect(const struct serving *s, struct connection *c);

/* Returns a sample of its metrics (summed over all labels), NAN if missing. */
double serving_metric(const struct serving *s, const char *name);

/* Returns the samples that have this label. */
double serving_metric_of(const struct serving *s, const char *name, const char *label, const char *value);

/* Polls the metrics until this one is at most `limit`; false: not within the time. */
bool serving_await(const struct serving *s, const char *name, double limit, double seconds);

/* Returns the resident memory of a rank's process, in bytes. */
double serving_resident(const struct serving *s, int rank);

/* Returns the greedy token ids of a prompt, as text "[1,2,3]"; the caller frees it. NULL: no valid answer, the reason
 * is printed. */
char *serving_story(const struct serving *s, const char *prompt, int n_tokens);

#endif
