/* coordinator/server/metrics.c - see metrics.h. */
#include "coordinator/server/metrics.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void metrics_open(struct metrics *m, enum metrics_names names, const char *model, int n_ranks, bool prefix_caching)
{
    memset(m, 0, sizeof *m);
    m->names = names;
    m->model = model;
    m->n_ranks = n_ranks;
    m->prefix_caching = prefix_caching;
    m->started = seconds_now();
    m->length_buckets = buckets_up_to(1 << 20);
    m->first_token.buckets = &buckets_first_token;
    m->between_tokens.buckets = m->per_token.buckets = &buckets_token;
    m->total.buckets = m->queue.buckets = m->inference.buckets = m->prefill.buckets = m->decode.buckets =
        &buckets_request;
    m->n_prompt.buckets = m->n_output.buckets = m->max_tokens.buckets = &m->length_buckets;
    m->n.buckets = &buckets_n;
    m->iteration.buckets = &buckets_iteration;
}

void metrics_close(struct metrics *m)
{
    free(m->ranks);
    m->ranks = NULL;
}

void metrics_take(struct metrics *m, struct report *r)
{
    if (r->loaded) {
        m->loaded = seconds_now();
        m->max_len = r->max_len;
        m->n_blocks = r->n_blocks;
        m->max_seqs = r->max_seqs;
        m->length_buckets = buckets_up_to(r->max_len); /* nothing has been counted in them yet */
    }
    m->stats = r->stats;
    m->n_steps = r->n_steps;
    m->step_seconds = r->step_seconds;
    if (r->ranks != NULL && r->n_ranks == m->n_ranks) {
        free(m->ranks);
        m->ranks = r->ranks;
        r->ranks = NULL;
        m->slowest = r->slowest;
    }
    histogram_move(&m->between_tokens, &r->between_tokens);
    histogram_move(&m->iteration, &r->iteration);
}

void metrics_count(struct metrics *m, const struct outcome *o, const struct protocol_generate *g)
{
    m->n_by_code[o->code > 0 && o->code < 600 ? o->code : 0]++;
    if (g != NULL && o->code == PROTOCOL_OK) {
        histogram_add(&m->n, g->search.n);
        histogram_add(&m->max_tokens, g->rules.max_tokens);
    }
    if (o->code != PROTOCOL_OK)
        return;
    const struct time_split *t = &o->time;
    histogram_add(&m->first_token, o->first_token);
    if (o->per_token > 0)
        histogram_add(&m->per_token, o->per_token);
    histogram_add(&m->total, t->total);
    histogram_add(&m->queue, t->queue);
    histogram_add(&m->prefill, t->prefill);
    histogram_add(&m->decode, t->decode);
    histogram_add(&m->inference, t->prefill + t->decode);
    histogram_add(&m->n_prompt, (double)o->n_prompt);
    histogram_add(&m->n_output, (double)o->n_output);
    m->queue_seconds += t->queue;
    m->compute_seconds += t->prefill + t->decode;
    m->overhead_seconds += t->overhead;
    m->total_seconds += t->total;
}

void metrics_write_engine(struct exposition *x, const struct metrics *m)
{
    const struct scheduler_stats *s = &m->stats;
    char extra[200];
    exposition_one(x, "num_requests_running", "gauge", s->n_running, "Sequences in the engine.");
    exposition_one(x, "num_requests_waiting", "gauge", s->n_waiting, "Sequences that wait for a place or for memory.");
    exposition_one(x, "kv_cache_usage_perc", "gauge", s->n_blocks > 0 ? (double)s->n_blocks_used / s->n_blocks : 0,
                   "Share of KV blocks that sequences hold, 0 to 1.");
    exposition_head(x, "cache_config_info", "gauge", "The KV cache.");
    (void)snprintf(extra, sizeof extra, ",block_size=\"%d\",num_gpu_blocks=\"%d\",enable_prefix_caching=\"%s\"",
                   KV_BLOCK_TOKENS, m->n_blocks, m->prefix_caching ? "True" : "False");
    exposition_sample(x, "cache_config_info", extra, 1);
    exposition_one(x, "kv_blocks", "gauge", s->n_blocks, "KV blocks that there are.");
    exposition_one(x, "kv_blocks_used", "gauge", s->n_blocks_used, "KV blocks that sequences hold.");
    exposition_one(x, "prompt_tokens_total", "counter", (double)s->n_prompt_tokens, "Prompt tokens processed.");
    exposition_one(x, "generation_tokens_total", "counter", (double)s->n_output_tokens, "Tokens generated.");
    exposition_one(x, "num_preemptions_total", "counter", (double)s->n_preemptions,
                   "Times that a sequence gave its memory away.");
    exposition_one(x, "prefix_cache_queries_total", "counter", (double)s->prefix_queries,
                   "Tokens looked up in the prefix cache.");
    exposition_one(x, "prefix_cache_hits_total", "counter", (double)s->prefix_hits, "Tokens found there.");
    exposition_head(x, "request_success_total", "counter", "Sequences that ended, by the reason.");
    for (int f = FINISH_STOP; f < FINISH_REASONS; f++) {
        (void)snprintf(extra, sizeof extra, ",finished_reason=\"%s\"",
                       f == FINISH_CANCELLED ? "abort" : finish_name((enum finish_reason)f));
        exposition_sample(x, "request_success_total", extra, (double)s->n_finished[f]);
    }
    exposition_one(x, "engine_steps_total", "counter", (double)m->n_steps, "Steps with tokens.");
    exposition_one(x, "engine_step_seconds_total", "counter", m->step_seconds,
                   "Time from a step's plan to its results.");
    exposition_histogram(x, "iteration_tokens_total", &m->iteration, "Tokens of a step.");
}

static void write_requests(struct exposition *x, const struct metrics *m)
{
    exposition_histogram(x, "time_to_first_token_seconds", &m->first_token, "From the message to the first token.");
    exposition_histogram(x, "inter_token_latency_seconds", &m->between_tokens, "Between two tokens of a choice.");
    exposition_histogram(x, "time_per_output_token_seconds", &m->between_tokens,
                         "inter_token_latency_seconds by its old name.");
    exposition_histogram(x, "request_time_per_output_token_seconds", &m->per_token,
                         "Mean of a request's tokens but the first.");
    exposition_histogram(x, "e2e_request_latency_seconds", &m->total, "From the message to the last reply.");
    exposition_histogram(x, "request_queue_time_seconds", &m->queue, "Waiting for the engine.");
    exposition_histogram(x, "request_inference_time_seconds", &m->inference, "In the engine.");
    exposition_histogram(x, "request_prefill_time_seconds", &m->prefill, "From the first step to the first token.");
    exposition_histogram(x, "request_decode_time_seconds", &m->decode, "From the first token to the last.");
    exposition_histogram(x, "request_prompt_tokens", &m->n_prompt, "Prompt tokens of a request.");
    exposition_histogram(x, "request_generation_tokens", &m->n_output, "Output tokens of a request.");
    exposition_histogram(x, "request_params_n", &m->n, "n of a request.");
    exposition_histogram(x, "request_params_max_tokens", &m->max_tokens, "max_tokens of a request.");
}

/* As Triton's nv_inference_*_duration_us and SageMaker's ModelLatency and OverheadLatency split it, in seconds. */
static void write_split(struct exposition *x, const struct metrics *m)
{
    char extra[64];
    exposition_one(x, "inference_request_success_total", "counter", (double)m->n_by_code[PROTOCOL_OK],
                   "Requests answered without an error: those whose time is split below.");
    exposition_one(x, "inference_request_duration_seconds_total", "counter", m->total_seconds,
                   "Their time end to end.");
    exposition_one(x, "inference_queue_duration_seconds_total", "counter", m->queue_seconds,
                   "Of it, waiting for the engine.");
    exposition_one(x, "inference_compute_duration_seconds_total", "counter", m->compute_seconds,
                   "Of it, in the engine.");
    exposition_one(x, "inference_overhead_duration_seconds_total", "counter", m->overhead_seconds,
                   "The rest: parsing, tokenizing, replying.");
    exposition_head(x, "requests_total", "counter", "Requests answered, by code.");
    for (int code = 0; code < 600; code++)
        if (m->n_by_code[code] > 0 || code == PROTOCOL_OK) {
            (void)snprintf(extra, sizeof extra, ",code=\"%d\"", code);
            exposition_sample(x, "requests_total", extra, (double)m->n_by_code[code]);
        }
}

/* One sample a rank: {rank="0",host="..."}. */
static void of_ranks(struct exposition *x, const struct metrics *m, const char *name, const char *type,
                     const char *help, double (*value)(const struct rank_stats *r))
{
    char extra[160];
    exposition_head(x, name, type, help);
    for (int i = 0; i < m->n_ranks; i++) {
        const struct rank_stats *r = &m->ranks[i];
        double y = value(r);
        (void)snprintf(extra, sizeof extra, ",rank=\"%d\",host=\"%.64s\"", i, r->host);
        if (!isnan(y)) /* not measured: absent */
            exposition_sample(x, name, extra, y);
    }
}

static double steps_of(const struct rank_stats *r)
{
    return (double)r->n_steps;
}

static double timed_of(const struct rank_stats *r)
{
    return (double)r->n_timed;
}

static double seconds_of(const struct rank_stats *r)
{
    return r->step_seconds;
}

static double waited_of(const struct rank_stats *r)
{
    return r->all_reduce_seconds;
}

static double joules_of(const struct rank_stats *r)
{
    return r->joules;
}

/* Only where every rank knows: a sum over some of them would be read as one over all. */
static void write_energy(struct exposition *x, const struct metrics *m)
{
    double joules = rank_stats_joules(m->ranks, m->n_ranks);
    if (isnan(joules))
        return;
    of_ranks(x, m, "energy_joules_total", "counter", "Used by a rank's device since the model was ready.", joules_of);
}

void metrics_write_ranks(struct exposition *x, const struct metrics *m)
{
    if (m->ranks == NULL)
        return;
    of_ranks(x, m, "rank_steps_total", "counter", "Steps of a rank.", steps_of);
    of_ranks(x, m, "rank_timed_steps_total", "counter", "Of these, timed: all on CPUs, samples on GPUs.", timed_of);
    of_ranks(x, m, "rank_step_seconds_total", "counter", "Time of the timed steps.", seconds_of);
    of_ranks(x, m, "rank_all_reduce_seconds_total", "counter", "Of it, in all-reduces: waiting and exchange.",
             waited_of);
    of_ranks(x, m, "rank_step_seconds", "gauge", "Mean time of a step.", rank_stats_step);
    of_ranks(x, m, "rank_all_reduce_seconds", "gauge", "Mean time of a step in all-reduces.", rank_stats_all_reduce);
    of_ranks(x, m, "rank_compute_seconds", "gauge", "Mean time of a step outside of collectives.", rank_stats_compute);
    write_energy(x, m);
    if (m->slowest >= 0)
        exposition_one(x, "slowest_rank", "gauge", m->slowest, "The rank that computed longest in the last second.");
}

static void write_server(struct exposition *x, const struct metrics *m)
{
    char extra[64];
    exposition_head(x, "messages_total", "counter", "Messages, by op.");
    for (int op = 0; op <= PROTOCOL_SHUTDOWN; op++) {
        (void)snprintf(extra, sizeof extra, ",op=\"%s\"", protocol_op_name((enum protocol_op)op));
        exposition_sample(x, "messages_total", extra, (double)m->n_messages[op]);
    }
    exposition_one(x, "bad_messages_total", "counter", (double)m->n_bad_messages,
                   "Messages of another number of frames; ignored.");
    exposition_one(x, "refused_connections_total", "counter", (double)m->n_refused_connections,
                   "Handshakes that failed.");
    exposition_one(x, "lost_clients_total", "counter", (double)m->n_lost_clients,
                   "Clients that left with requests open.");
    exposition_one(x, "slow_clients_total", "counter", (double)m->n_slow_clients,
                   "Requests cancelled for a client's backlog.");
    exposition_one(x, "received_bytes_total", "counter", (double)m->bytes_received, "Of messages.");
    exposition_one(x, "sent_bytes_total", "counter", (double)m->bytes_sent, "Of replies.");
    exposition_one(x, "clients", "gauge", m->n_clients, "Connections that have sent something.");
    exposition_one(x, "open_requests", "gauge", m->n_open_jobs, "Messages under way, in whatever stage.");
    exposition_one(x, "client_backlog_bytes", "gauge", (double)m->backlog,
                   "Replies that wait for their clients to read.");
    exposition_one(x, "ranks", "gauge", m->n_ranks, "Ranks of the job.");
    exposition_one(x, "draining", "gauge", m->draining, "1: no new requests are taken.");
    exposition_one(x, "uptime_seconds", "gauge", seconds_now() - m->started, "Since the socket is there.");
    if (m->loaded > 0)
        exposition_one(x, "load_seconds", "gauge", m->loaded - m->started, "Until the model was ready.");
}

int metrics_write(const struct metrics *m, struct text_buffer *out, struct err *e)
{
    struct exposition x;
    bool vllm = m->names == METRICS_VLLM;
    exposition_open(&x, out, vllm ? "vllm:" : "lockstep_", e);
    exposition_label(&x, "model_name", m->model);
    if (vllm)
        exposition_label(&x, "engine", "0");
    metrics_write_engine(&x, m);
    write_requests(&x, m);
    write_split(&x, m);
    metrics_write_ranks(&x, m);
    write_server(&x, m);
    return e->code == ERR_NONE ? 0 : -1;
}
