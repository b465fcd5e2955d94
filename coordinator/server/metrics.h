/* coordinator/server/metrics.h - what the server counts, as Prometheus text. Names and buckets are vLLM's where the meaning
 * is, the split of a request's time is Triton's and SageMaker's. The I/O thread's. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "coordinator/server/exposition.h"
#include "coordinator/server/steps.h"

enum metrics_names { METRICS_LOCKSTEP, METRICS_VLLM }; /* lockstep_x{model_name=} or vllm:x{model_name=,engine=} */

/* Where the time of a request went, in seconds. */
struct time_split {
    double queue;    /* ready, but not in a step yet */
    double prefill;  /* first step to first token */
    double decode;   /* first token to last */
    double overhead; /* the rest: parsing, tokenizing, making the reply */
    double total;    /* message to last reply */
};

/* What is known of a generate that has been answered. */
struct outcome {
    int code; /* enum protocol_code */
    struct time_split time;
    double first_token; /* message to first token; 0: none came */
    int64_t n_prompt, n_output, n_cached;
    double per_token; /* of the tokens after the first; 0: fewer than two */
};

struct metrics {
    enum metrics_names names;
    const char *model; /* borrowed */
    int n_ranks;
    double started, loaded; /* seconds_now(); loaded 0: not yet */
    bool prefix_caching;

    int max_len, n_blocks, max_seqs; /* after loading */
    struct scheduler_stats stats;
    uint64_t n_steps;
    double step_seconds;
    struct rank_stats *ranks; /* [n_ranks] owned; NULL: none have come yet */
    int slowest;
    struct buckets length_buckets;
    struct histogram first_token, between_tokens, per_token, total, queue, inference, prefill, decode, n_prompt,
        n_output, n, max_tokens, iteration;

    uint64_t n_by_code[600];                                                /* generates answered */
    double queue_seconds, compute_seconds, overhead_seconds, total_seconds; /* of those with 200 */
    uint64_t n_messages[PROTOCOL_SHUTDOWN + 1];                             /* by op */
    uint64_t n_bad_messages, n_refused_connections, n_slow_clients, n_lost_clients;
    uint64_t bytes_received, bytes_sent;
    int n_clients, n_open_jobs;
    size_t backlog;
    bool draining;
};

void metrics_open(struct metrics *m, enum metrics_names names, const char *model, int n_ranks, bool prefix_caching);

void metrics_close(struct metrics *m);

/* Numbers of the main thread. */
void metrics_take(struct metrics *m, struct report *r);

/* A generate was answered. g: NULL when it could not be parsed. */
void metrics_count(struct metrics *m, const struct outcome *o, const struct protocol_generate *g);

/* Parts of it: the engine, and every rank's steps. */
void metrics_write_engine(struct exposition *x, const struct metrics *m);
void metrics_write_ranks(struct exposition *x, const struct metrics *m);

/* The whole text, appended to *out. */
int metrics_write(const struct metrics *m, struct text_buffer *out, struct err *e);

#endif
