/* coordinator/server/metrics.c - see metrics.h. */
#include "coordinator/server/metrics.h"
#include "base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_PREFIX "lockstep_"

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
    m->n_prompt.buckets = m->n_output.buckets = m->n_longest.buckets = m->n_computed.buckets = m->max_tokens.buckets =
        &m->length_buckets;
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
    histogram_add(&m->n_longest, (double)o->n_longest);
    histogram_add(&m->n_computed, (double)(o->n_prompt - o->n_cached));
    m->queue_seconds += t->queue;
    m->compute_seconds += t->prefill + t->decode;
    m->overhead_seconds += t->overhead;
    m->total_seconds += t->total;
}

struct writer {
    const struct metrics *m;
    struct text_buffer *out;
    struct err *e;
    const char *prefix; /* of the names that come now */
    char labels[600];   /* model_name="...", and the like */
};

static void put(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct writer *w, const char *format, ...)
{
    char line[1200];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        (void)text_append(w->out, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1, w->e);
}

/* Labels that every sample has; a backslash, a quote or a line's end in a value is escaped. */
static void make_labels(struct writer *w)
{
    char name[400];
    size_t n = 0;
    for (const char *c = w->m->model; *c != '\0' && n + 2 < sizeof name; c++) {
        if (*c == '\\' || *c == '"' || *c == '\n')
            name[n++] = '\\';
        name[n++] = *c == '\n' ? 'n' : *c;
    }
    name[n] = '\0';
    (void)snprintf(w->labels, sizeof w->labels, "model_name=\"%s\"%s", name,
                   w->m->names == METRICS_VLLM ? ",engine=\"0\"" : "");
}

static void head(struct writer *w, const char *name, const char *type, const char *help)
{
    put(w, "# HELP %s%s %s\n# TYPE %s%s %s\n", w->prefix, name, help, w->prefix, name, type);
}

/* extra: "" or further labels with a comma before them. */
static void sample(struct writer *w, const char *name, const char *extra, double value)
{
    put(w, "%s%s{%s%s} %.17g\n", w->prefix, name, w->labels, extra, value);
}

static void one(struct writer *w, const char *name, const char *type, double value, const char *help)
{
    head(w, name, type, help);
    sample(w, name, "", value);
}

static void histogram(struct writer *w, const char *name, const struct histogram *h, const char *help)
{
    uint64_t below = 0;
    head(w, name, "histogram", help);
    for (int i = 0; i < h->buckets->n; i++) {
        below += h->count[i];
        put(w, "%s%s_bucket{%s,le=\"%.15g\"} %llu\n", w->prefix, name, w->labels, h->buckets->bound[i],
            (unsigned long long)below);
    }
    put(w, "%s%s_bucket{%s,le=\"+Inf\"} %llu\n", w->prefix, name, w->labels, (unsigned long long)h->n);
    put(w, "%s%s_sum{%s} %.17g\n", w->prefix, name, w->labels, h->sum);
    put(w, "%s%s_count{%s} %llu\n", w->prefix, name, w->labels, (unsigned long long)h->n);
}

/* What vLLM has, too, by its names. */
static void write_engine(struct writer *w)
{
    const struct metrics *m = w->m;
    const struct scheduler_stats *s = &m->stats;
    char extra[200];
    one(w, "num_requests_running", "gauge", s->n_running, "Sequences in the engine.");
    one(w, "num_requests_waiting", "gauge", s->n_waiting, "Sequences that wait for a place or for memory.");
    head(w, "num_requests_waiting_by_reason", "gauge", "The same; for something else than that none waits here.");
    sample(w, "num_requests_waiting_by_reason", ",reason=\"capacity\"", s->n_waiting);
    sample(w, "num_requests_waiting_by_reason", ",reason=\"deferred\"", 0);
    one(w, "kv_cache_usage_perc", "gauge", s->n_blocks > 0 ? (double)s->n_blocks_used / s->n_blocks : 0,
        "Share of KV blocks that sequences hold, 0 to 1.");
    head(w, "cache_config_info", "gauge", "The KV cache.");
    (void)snprintf(extra, sizeof extra, ",block_size=\"%d\",num_gpu_blocks=\"%d\",enable_prefix_caching=\"%s\"",
                   KV_BLOCK_TOKENS, m->n_blocks, m->prefix_caching ? "True" : "False");
    sample(w, "cache_config_info", extra, 1);
    one(w, "prompt_tokens_total", "counter", (double)s->n_prompt_tokens, "Prompt tokens processed.");
    head(w, "prompt_tokens_by_source_total", "counter", "The same: computed, or found in the prefix cache.");
    sample(w, "prompt_tokens_by_source_total", ",source=\"local_compute\"",
           (double)(s->n_prompt_tokens - s->n_prompt_cached));
    sample(w, "prompt_tokens_by_source_total", ",source=\"local_cache_hit\"", (double)s->n_prompt_cached);
    sample(w, "prompt_tokens_by_source_total", ",source=\"external_kv_transfer\"", 0);
    one(w, "generation_tokens_total", "counter", (double)s->n_output_tokens, "Tokens generated.");
    one(w, "num_preemptions_total", "counter", (double)s->n_preemptions, "Times that a sequence gave its memory away.");
    one(w, "prefix_cache_queries_total", "counter", (double)s->prefix_queries, "Tokens looked up in the prefix cache.");
    one(w, "prefix_cache_hits_total", "counter", (double)s->prefix_hits, "Tokens found there.");
    head(w, "request_success_total", "counter", "Sequences that ended, by the reason.");
    for (int f = FINISH_STOP; f < FINISH_REASONS; f++) {
        (void)snprintf(extra, sizeof extra, ",finished_reason=\"%s\"",
                       f == FINISH_CANCELLED ? "abort" : finish_name((enum finish_reason)f));
        sample(w, "request_success_total", extra, (double)s->n_finished[f]);
    }
    histogram(w, "iteration_tokens_total", &m->iteration, "Tokens of a step.");
}

static void write_requests(struct writer *w)
{
    const struct metrics *m = w->m;
    histogram(w, "time_to_first_token_seconds", &m->first_token, "From the message to the first token.");
    histogram(w, "inter_token_latency_seconds", &m->between_tokens, "Between two tokens of a choice.");
    histogram(w, "time_per_output_token_seconds", &m->between_tokens, "inter_token_latency_seconds by its old name.");
    histogram(w, "request_time_per_output_token_seconds", &m->per_token, "Mean of a request's tokens but the first.");
    histogram(w, "e2e_request_latency_seconds", &m->total, "From the message to the last reply.");
    histogram(w, "request_queue_time_seconds", &m->queue, "Waiting for the engine.");
    histogram(w, "request_inference_time_seconds", &m->inference, "In the engine.");
    histogram(w, "request_prefill_time_seconds", &m->prefill, "From the first step to the first token.");
    histogram(w, "request_decode_time_seconds", &m->decode, "From the first token to the last.");
    histogram(w, "request_prompt_tokens", &m->n_prompt, "Prompt tokens of a request.");
    histogram(w, "request_generation_tokens", &m->n_output, "Output tokens of a request.");
    histogram(w, "request_max_num_generation_tokens", &m->n_longest, "Output tokens of a request's longest choice.");
    histogram(w, "request_prefill_kv_computed_tokens", &m->n_computed, "Prompt tokens of a request but those cached.");
    histogram(w, "request_params_n", &m->n, "n of a request.");
    histogram(w, "request_params_max_tokens", &m->max_tokens, "max_tokens of a request.");
}

/* As Triton's nv_inference_*_duration_us and SageMaker's ModelLatency and OverheadLatency split it, in seconds. */
static void write_split(struct writer *w)
{
    const struct metrics *m = w->m;
    char extra[64];
    one(w, "inference_request_success_total", "counter", (double)m->n_by_code[PROTOCOL_OK],
        "Requests answered without an error: those whose time is split below.");
    one(w, "inference_request_duration_seconds_total", "counter", m->total_seconds, "Their time end to end.");
    one(w, "inference_queue_duration_seconds_total", "counter", m->queue_seconds, "Of it, waiting for the engine.");
    one(w, "inference_compute_duration_seconds_total", "counter", m->compute_seconds, "Of it, in the engine.");
    one(w, "inference_overhead_duration_seconds_total", "counter", m->overhead_seconds,
        "The rest: parsing, tokenizing, replying.");
    head(w, "requests_total", "counter", "Requests answered, by code.");
    for (int code = 0; code < 600; code++)
        if (m->n_by_code[code] > 0 || code == PROTOCOL_OK) {
            (void)snprintf(extra, sizeof extra, ",code=\"%d\"", code);
            sample(w, "requests_total", extra, (double)m->n_by_code[code]);
        }
}

static void write_steps(struct writer *w)
{
    const struct metrics *m = w->m;
    one(w, "kv_blocks", "gauge", m->stats.n_blocks, "KV blocks that there are.");
    one(w, "kv_blocks_used", "gauge", m->stats.n_blocks_used, "KV blocks that sequences hold.");
    one(w, "engine_steps_total", "counter", (double)m->n_steps, "Steps with tokens.");
    one(w, "engine_step_seconds_total", "counter", m->step_seconds, "Time from a step's plan to its results.");
}

/* One sample a rank: {rank="0",host="..."}. */
static void of_ranks(struct writer *w, const char *name, const char *type, const char *help,
                     double (*value)(const struct rank_stats *r))
{
    char extra[160];
    head(w, name, type, help);
    for (int i = 0; i < w->m->n_ranks; i++) {
        const struct rank_stats *r = &w->m->ranks[i];
        double x = value(r);
        (void)snprintf(extra, sizeof extra, ",rank=\"%d\",host=\"%.64s\"", i, r->host);
        if (!isnan(x)) /* not measured: absent */
            sample(w, name, extra, x);
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
static void write_energy(struct writer *w)
{
    const struct metrics *m = w->m;
    double joules = rank_stats_joules(m->ranks, m->n_ranks);
    if (isnan(joules))
        return;
    of_ranks(w, "energy_joules_total", "counter", "Used by a rank's device since the model was ready.", joules_of);
}

static void write_ranks(struct writer *w)
{
    if (w->m->ranks == NULL)
        return;
    of_ranks(w, "rank_steps_total", "counter", "Steps of a rank.", steps_of);
    of_ranks(w, "rank_timed_steps_total", "counter", "Of these, timed: all on CPUs, samples on GPUs.", timed_of);
    of_ranks(w, "rank_step_seconds_total", "counter", "Time of the timed steps.", seconds_of);
    of_ranks(w, "rank_all_reduce_seconds_total", "counter", "Of it, in all-reduces: waiting and exchange.", waited_of);
    of_ranks(w, "rank_step_seconds", "gauge", "Mean time of a step.", rank_stats_step);
    of_ranks(w, "rank_all_reduce_seconds", "gauge", "Mean time of a step in all-reduces.", rank_stats_all_reduce);
    of_ranks(w, "rank_compute_seconds", "gauge", "Mean time of a step outside of collectives.", rank_stats_compute);
    write_energy(w);
    if (w->m->slowest >= 0)
        one(w, "slowest_rank", "gauge", w->m->slowest, "The rank that computed longest in the last second.");
}

static void write_server(struct writer *w)
{
    const struct metrics *m = w->m;
    char extra[64];
    head(w, "messages_total", "counter", "Messages, by op.");
    for (int op = 0; op <= PROTOCOL_SHUTDOWN; op++) {
        (void)snprintf(extra, sizeof extra, ",op=\"%s\"", protocol_op_name((enum protocol_op)op));
        sample(w, "messages_total", extra, (double)m->n_messages[op]);
    }
    one(w, "bad_messages_total", "counter", (double)m->n_bad_messages,
        "Messages of another number of frames; ignored.");
    one(w, "refused_connections_total", "counter", (double)m->n_refused_connections, "Handshakes that failed.");
    one(w, "lost_clients_total", "counter", (double)m->n_lost_clients, "Clients that left with requests open.");
    one(w, "slow_clients_total", "counter", (double)m->n_slow_clients,
        "Requests cancelled or refused for a client's backlog.");
    one(w, "cut_clients_total", "counter", (double)m->n_cut_clients, "Connections closed for a client's backlog.");
    one(w, "access_log_lost_lines_total", "counter", (double)m->n_lost_log_lines,
        "Lines of --access-log that could not be written.");
    one(w, "received_bytes_total", "counter", (double)m->bytes_received, "Of messages.");
    one(w, "sent_bytes_total", "counter", (double)m->bytes_sent, "Of replies.");
    one(w, "clients", "gauge", m->n_clients, "Connections that have sent something.");
    one(w, "open_requests", "gauge", m->n_open_jobs, "Messages under way, in whatever stage.");
    one(w, "client_backlog_bytes", "gauge", (double)m->backlog, "Replies that wait for their clients to read.");
    one(w, "ranks", "gauge", m->n_ranks, "Ranks of the job.");
    one(w, "draining", "gauge", m->draining, "1: no new requests are taken.");
    one(w, "uptime_seconds", "gauge", seconds_now() - m->started, "Since the socket is there.");
    if (m->loaded > 0)
        one(w, "load_seconds", "gauge", m->loaded - m->started, "Until the model was ready.");
}

int metrics_write(const struct metrics *m, struct text_buffer *out, struct err *e)
{
    struct writer w = {.m = m, .out = out, .e = e};
    make_labels(&w);
    w.prefix = m->names == METRICS_VLLM ? "vllm:" : OWN_PREFIX;
    write_engine(&w);
    write_requests(&w);
    w.prefix = OWN_PREFIX;
    write_steps(&w);
    write_split(&w);
    write_ranks(&w);
    write_server(&w);
    return e->code == ERR_NONE ? 0 : -1;
}
