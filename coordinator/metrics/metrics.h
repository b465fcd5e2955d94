/* coordinator/metrics/metrics.h - the counters of server, replicas and ranks (as text: metrics_text.h). Names and
 * buckets are vLLM's where the meaning is the same; the split of a request's time is Triton's and SageMaker's. The I/O
 * thread's. */
#ifndef METRICS_METRICS_H
#define METRICS_METRICS_H

#include "coordinator/replicas/replicas.h"
#include "coordinator/tasks/finished.h"
#include "coordinator/tasks/histogram.h"

/* Names: lockstep_x{model_name=}; or vllm:x, with a label engine=, for metrics that vLLM also has. */
enum metrics_names { METRICS_LOCKSTEP, METRICS_VLLM };

/* The figures of a generate that has been answered. */
struct outcome {
    int code; /* enum protocol_code */
    struct time_split time;
    double first_token;                              /* message to first token; 0: none came */
    int64_t n_prompt, n_output, n_cached, n_longest; /* n_longest: of the output, the longest choice's */
    double per_token;                                /* of the tokens after the first; 0: fewer than two */
};

/* Requests that one replica has answered well, and the steps that it took. */
struct replica_metrics {
    struct histogram first_token, between_tokens, per_token, total, queue, inference, prefill, decode, n_prompt,
        n_output, n_longest, n_computed, n, max_tokens, iteration;
    double queue_seconds, compute_seconds, overhead_seconds, total_seconds;
};

struct metrics {
    enum metrics_names names;
    const char *model;      /* borrowed */
    double started, loaded; /* seconds_now(); loaded 0: not yet */
    bool prefix_caching;
    const struct replicas *replicas; /* borrowed */
    struct replica_metrics *replica; /* [replicas->n] */
    struct buckets length_buckets;

    struct histogram cancel_steps;              /* from a cancellation until the replica has released it */
    uint64_t n_by_code[600];                    /* generates answered */
    uint64_t n_messages[PROTOCOL_SHUTDOWN + 1]; /* by op */
    uint64_t n_bad_messages, n_refused_connections, n_turned_away, n_slow_clients, n_cut_clients, n_lost_clients,
        n_lost_log_lines;
    uint64_t bytes_received, bytes_sent;
    int n_clients, n_open_tasks;
    int n_unassigned; /* sequences that wait for a replica */
    size_t backlog;
    bool draining;
};

int metrics_open(struct metrics *m, enum metrics_names names, const char *model, const struct replicas *replicas,
                 bool prefix_caching, struct err *e);

void metrics_close(struct metrics *m);

/* Updates a replica's numbers, after `replicas` has processed its report. */
void metrics_take(struct metrics *m, struct report *r, int replica);

/* A generate was answered, by this replica if it reached one. g: NULL if it could not be parsed. */
void metrics_count(struct metrics *m, const struct outcome *o, const struct protocol_generate *g, int replica);

/* The mean time of a request; 1 while there was none. */
double metrics_mean_seconds(const struct metrics *m);

#endif
