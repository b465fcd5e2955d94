/* coordinator/server/metrics.c - see metrics.h. */
#include "coordinator/server/metrics.h"
#include "base/clock.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_engine(struct engine_metrics *m, const struct buckets *lengths)
{
    m->first_token.buckets = &buckets_first_token;
    m->between_tokens.buckets = m->per_token.buckets = &buckets_token;
    m->total.buckets = m->queue.buckets = m->inference.buckets = m->prefill.buckets = m->decode.buckets =
        &buckets_request;
    m->n_prompt.buckets = m->n_output.buckets = m->max_tokens.buckets = lengths;
    m->n.buckets = &buckets_n;
    m->iteration.buckets = &buckets_iteration;
}

int metrics_open(struct metrics *m, enum metrics_names names, const char *model, const struct engines *engines,
                 bool prefix_caching, struct err *e)
{
    memset(m, 0, sizeof *m);
    m->names = names;
    m->model = model;
    m->prefix_caching = prefix_caching;
    m->started = seconds_now();
    m->length_buckets = buckets_up_to(1 << 20);
    m->engines = engines;
    m->engine = err_calloc(e, (unsigned long)engines->n, sizeof *m->engine, "metrics");
    for (int i = 0; m->engine != NULL && i < engines->n; i++)
        open_engine(&m->engine[i], &m->length_buckets);
    return m->engine != NULL ? 0 : -1;
}

void metrics_close(struct metrics *m)
{
    free(m->engine);
    m->engine = NULL;
}

void metrics_take(struct metrics *m, struct report *r, int engine)
{
    struct engine_metrics *of = &m->engine[engine];
    if (r->loaded && engines_loaded(m->engines)) {
        m->loaded = seconds_now();
        m->length_buckets = buckets_up_to(engines_max_len(m->engines)); /* nothing has been counted in them yet */
    }
    histogram_move(&of->between_tokens, &r->between_tokens);
    histogram_move(&of->iteration, &r->iteration);
}

void metrics_count(struct metrics *m, const struct outcome *o, const struct protocol_generate *g, int engine)
{
    struct engine_metrics *of = &m->engine[engine];
    m->n_by_code[o->code > 0 && o->code < 600 ? o->code : 0]++;
    if (g != NULL && o->code == PROTOCOL_OK) {
        histogram_add(&of->n, g->search.n);
        histogram_add(&of->max_tokens, g->rules.max_tokens);
    }
    if (o->code != PROTOCOL_OK)
        return;
    const struct time_split *t = &o->time;
    histogram_add(&of->first_token, o->first_token);
    if (o->per_token > 0)
        histogram_add(&of->per_token, o->per_token);
    histogram_add(&of->total, t->total);
    histogram_add(&of->queue, t->queue);
    histogram_add(&of->prefill, t->prefill);
    histogram_add(&of->decode, t->decode);
    histogram_add(&of->inference, t->prefill + t->decode);
    histogram_add(&of->n_prompt, (double)o->n_prompt);
    histogram_add(&of->n_output, (double)o->n_output);
    of->queue_seconds += t->queue;
    of->compute_seconds += t->prefill + t->decode;
    of->overhead_seconds += t->overhead;
    of->total_seconds += t->total;
}

double metrics_mean_seconds(const struct metrics *m)
{
    double sum = 0, n = 0;
    for (int i = 0; i < m->engines->n; i++) {
        sum += m->engine[i].total.sum;
        n += (double)m->engine[i].total.n;
    }
    return n > 0 ? sum / n : 1;
}

struct writer {
    const struct metrics *m;
    struct text_buffer *out;
    struct err *e;
    char labels[600]; /* model_name="...", and the like */
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

static const char *prefix(const struct writer *w)
{
    return w->m->names == METRICS_VLLM ? "vllm:" : "lockstep_";
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
                   w->m->names == METRICS_VLLM && w->m->engines->n == 1 ? ",engine=\"0\"" : "");
}

static void head(struct writer *w, const char *name, const char *type, const char *help)
{
    put(w, "# HELP %s%s %s\n# TYPE %s%s %s\n", prefix(w), name, help, prefix(w), name, type);
}

/* extra: "" or further labels with a comma before them. */
static void sample(struct writer *w, const char *name, const char *extra, double value)
{
    put(w, "%s%s{%s%s} %.17g\n", prefix(w), name, w->labels, extra, value);
}

static void one(struct writer *w, const char *name, const char *type, double value, const char *help)
{
    head(w, name, type, help);
    sample(w, name, "", value);
}

/* The label of engine i, where there are several. */
struct engine_label {
    char text[40];
};

static struct engine_label label_of(const struct writer *w, int i)
{
    struct engine_label label = {""};
    if (w->m->engines->n > 1)
        (void)snprintf(label.text, sizeof label.text, ",engine=\"%d\"", i);
    return label;
}

/* One number of every engine. */
static void of_engines(struct writer *w, const char *name, const char *type,
                       double (*value)(const struct metrics *m, int i), const char *help)
{
    head(w, name, type, help);
    for (int i = 0; i < w->m->engines->n; i++)
        sample(w, name, label_of(w, i).text, value(w->m, i));
}

/* One histogram of every engine; offset: in struct engine_metrics. */
static void histograms(struct writer *w, const char *name, size_t offset, const char *help)
{
    head(w, name, "histogram", help);
    for (int i = 0; i < w->m->engines->n; i++) {
        const struct histogram *h = (const void *)((const char *)&w->m->engine[i] + offset);
        const struct engine_label label = label_of(w, i);
        uint64_t below = 0;
        for (int b = 0; b < h->buckets->n; b++) {
            below += h->count[b];
            put(w, "%s%s_bucket{%s%s,le=\"%.15g\"} %llu\n", prefix(w), name, w->labels, label.text,
                h->buckets->bound[b], (unsigned long long)below);
        }
        put(w, "%s%s_bucket{%s%s,le=\"+Inf\"} %llu\n", prefix(w), name, w->labels, label.text,
            (unsigned long long)h->n);
        put(w, "%s%s_sum{%s%s} %.17g\n", prefix(w), name, w->labels, label.text, h->sum);
        put(w, "%s%s_count{%s%s} %llu\n", prefix(w), name, w->labels, label.text, (unsigned long long)h->n);
    }
}

/* A number of engine i. */
#define VALUE(name, expression)                              \
    static double name(const struct metrics *m, int i)       \
    {                                                        \
        const struct engine_end *e = &m->engines->engine[i]; \
        const struct engine_metrics *of = &m->engine[i];     \
        (void)e;                                             \
        (void)of;                                            \
        return (double)(expression);                         \
    }
VALUE(n_running, e->stats.n_running)
VALUE(n_waiting, e->stats.n_waiting)
VALUE(kv_usage, e->stats.n_blocks > 0 ? (double)e->stats.n_blocks_used / e->stats.n_blocks : 0)
VALUE(kv_blocks, e->stats.n_blocks)
VALUE(kv_blocks_used, e->stats.n_blocks_used)
VALUE(prompt_tokens, e->stats.n_prompt_tokens)
VALUE(output_tokens, e->stats.n_output_tokens)
VALUE(preemptions, e->stats.n_preemptions)
VALUE(prefix_queries, e->stats.prefix_queries)
VALUE(prefix_hits, e->stats.prefix_hits)
VALUE(n_steps, e->n_steps)
VALUE(step_seconds, e->step_seconds)
VALUE(n_answered, of->total.n)
VALUE(total_seconds, of->total_seconds)
VALUE(queue_seconds, of->queue_seconds)
VALUE(compute_seconds, of->compute_seconds)
VALUE(overhead_seconds, of->overhead_seconds)
#undef VALUE

static void write_finished(struct writer *w)
{
    char extra[120];
    head(w, "request_success_total", "counter", "Sequences that ended, by the reason.");
    for (int i = 0; i < w->m->engines->n; i++)
        for (int f = FINISH_STOP; f < FINISH_REASONS; f++) {
            (void)snprintf(extra, sizeof extra, "%s,finished_reason=\"%s\"", label_of(w, i).text,
                           f == FINISH_CANCELLED ? "abort" : finish_name((enum finish_reason)f));
            sample(w, "request_success_total", extra, (double)w->m->engines->engine[i].stats.n_finished[f]);
        }
}

static void write_cache(struct writer *w)
{
    char extra[200];
    head(w, "cache_config_info", "gauge", "The KV cache.");
    for (int i = 0; i < w->m->engines->n; i++) {
        (void)snprintf(extra, sizeof extra, "%s,block_size=\"%d\",num_gpu_blocks=\"%d\",enable_prefix_caching=\"%s\"",
                       label_of(w, i).text, KV_BLOCK_TOKENS, w->m->engines->engine[i].n_blocks,
                       w->m->prefix_caching ? "True" : "False");
        sample(w, "cache_config_info", extra, 1);
    }
}

static void write_engines(struct writer *w)
{
    of_engines(w, "num_requests_running", "gauge", n_running, "Sequences in the engine.");
    of_engines(w, "num_requests_waiting", "gauge", n_waiting, "Sequences that wait for a place or for memory.");
    of_engines(w, "kv_cache_usage_perc", "gauge", kv_usage, "Share of KV blocks that sequences hold, 0 to 1.");
    write_cache(w);
    of_engines(w, "kv_blocks", "gauge", kv_blocks, "KV blocks that there are.");
    of_engines(w, "kv_blocks_used", "gauge", kv_blocks_used, "KV blocks that sequences hold.");
    of_engines(w, "prompt_tokens_total", "counter", prompt_tokens, "Prompt tokens processed.");
    of_engines(w, "generation_tokens_total", "counter", output_tokens, "Tokens generated.");
    of_engines(w, "num_preemptions_total", "counter", preemptions, "Times that a sequence gave its memory away.");
    of_engines(w, "prefix_cache_queries_total", "counter", prefix_queries, "Tokens looked up in the prefix cache.");
    of_engines(w, "prefix_cache_hits_total", "counter", prefix_hits, "Tokens found there.");
    write_finished(w);
    of_engines(w, "engine_steps_total", "counter", n_steps, "Steps with tokens.");
    of_engines(w, "engine_step_seconds_total", "counter", step_seconds, "Time from a step's plan to its results.");
}

#define OF(member) offsetof(struct engine_metrics, member)

static void write_requests(struct writer *w)
{
    histograms(w, "iteration_tokens_total", OF(iteration), "Tokens of a step.");
    histograms(w, "time_to_first_token_seconds", OF(first_token), "From the message to the first token.");
    histograms(w, "inter_token_latency_seconds", OF(between_tokens), "Between two tokens of a choice.");
    histograms(w, "time_per_output_token_seconds", OF(between_tokens), "inter_token_latency_seconds by its old name.");
    histograms(w, "request_time_per_output_token_seconds", OF(per_token), "Mean of a request's tokens but the first.");
    histograms(w, "e2e_request_latency_seconds", OF(total), "From the message to the last reply.");
    histograms(w, "request_queue_time_seconds", OF(queue), "Waiting for the engine.");
    histograms(w, "request_inference_time_seconds", OF(inference), "In the engine.");
    histograms(w, "request_prefill_time_seconds", OF(prefill), "From the first step to the first token.");
    histograms(w, "request_decode_time_seconds", OF(decode), "From the first token to the last.");
    histograms(w, "request_prompt_tokens", OF(n_prompt), "Prompt tokens of a request.");
    histograms(w, "request_generation_tokens", OF(n_output), "Output tokens of a request.");
    histograms(w, "request_params_n", OF(n), "n of a request.");
    histograms(w, "request_params_max_tokens", OF(max_tokens), "max_tokens of a request.");
}

/* As Triton's nv_inference_*_duration_us and SageMaker's ModelLatency and OverheadLatency split it, in seconds. */
static void write_split(struct writer *w)
{
    const struct metrics *m = w->m;
    char extra[64];
    of_engines(w, "inference_request_success_total", "counter", n_answered,
               "Requests answered without an error: those whose time is split below.");
    of_engines(w, "inference_request_duration_seconds_total", "counter", total_seconds, "Their time end to end.");
    of_engines(w, "inference_queue_duration_seconds_total", "counter", queue_seconds, "Of it, waiting for the engine.");
    of_engines(w, "inference_compute_duration_seconds_total", "counter", compute_seconds, "Of it, in the engine.");
    of_engines(w, "inference_overhead_duration_seconds_total", "counter", overhead_seconds,
               "The rest: parsing, tokenizing, replying.");
    head(w, "requests_total", "counter", "Requests answered, by code.");
    for (int code = 0; code < 600; code++)
        if (m->n_by_code[code] > 0 || code == PROTOCOL_OK) {
            (void)snprintf(extra, sizeof extra, ",code=\"%d\"", code);
            sample(w, "requests_total", extra, (double)m->n_by_code[code]);
        }
}

/* One sample a rank: {rank="0",host="..."}. */
static void of_ranks(struct writer *w, const char *name, const char *type, const char *help,
                     double (*value)(const struct rank_stats *r))
{
    char extra[200];
    head(w, name, type, help);
    const struct engines *all = w->m->engines;
    for (int i = 0; i < all->n_ranks; i++) {
        const struct rank_stats *r = &all->ranks[i];
        double x = r->host[0] != '\0' ? value(r) : NAN;
        (void)snprintf(extra, sizeof extra, "%s,rank=\"%d\",host=\"%.64s\"",
                       label_of(w, i / (all->n_ranks / all->n)).text, i, r->host);
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

static void write_ranks(struct writer *w)
{
    int slowest = engines_slowest(w->m->engines);
    if (!w->m->engines->has_ranks)
        return;
    of_ranks(w, "rank_steps_total", "counter", "Steps of a rank.", steps_of);
    of_ranks(w, "rank_timed_steps_total", "counter", "Of these, timed: all on CPUs, samples on GPUs.", timed_of);
    of_ranks(w, "rank_step_seconds_total", "counter", "Time of the timed steps.", seconds_of);
    of_ranks(w, "rank_all_reduce_seconds_total", "counter", "Of it, in all-reduces: waiting and exchange.", waited_of);
    of_ranks(w, "rank_step_seconds", "gauge", "Mean time of a step.", rank_stats_step);
    of_ranks(w, "rank_all_reduce_seconds", "gauge", "Mean time of a step in all-reduces.", rank_stats_all_reduce);
    of_ranks(w, "rank_compute_seconds", "gauge", "Mean time of a step outside of collectives.", rank_stats_compute);
    if (slowest >= 0)
        one(w, "slowest_rank", "gauge", slowest, "The rank that computed longest in the last second.");
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
    one(w, "slow_clients_total", "counter", (double)m->n_slow_clients, "Requests cancelled for a client's backlog.");
    one(w, "received_bytes_total", "counter", (double)m->bytes_received, "Of messages.");
    one(w, "sent_bytes_total", "counter", (double)m->bytes_sent, "Of replies.");
    one(w, "clients", "gauge", m->n_clients, "Connections that have sent something.");
    one(w, "open_requests", "gauge", m->n_open_jobs, "Messages under way, in whatever stage.");
    one(w, "client_backlog_bytes", "gauge", (double)m->backlog, "Replies that wait for their clients to read.");
    one(w, "ranks", "gauge", m->engines->n_ranks, "Ranks of the job.");
    one(w, "groups", "gauge", m->engines->n, "Groups of ranks, each with a model of its own.");
    one(w, "draining", "gauge", m->draining, "1: no new requests are taken.");
    one(w, "uptime_seconds", "gauge", seconds_now() - m->started, "Since the socket is there.");
    if (m->loaded > 0)
        one(w, "load_seconds", "gauge", m->loaded - m->started, "Until the model was ready.");
}

int metrics_write(const struct metrics *m, struct text_buffer *out, struct err *e)
{
    struct writer w = {.m = m, .out = out, .e = e};
    make_labels(&w);
    write_engines(&w);
    write_requests(&w);
    write_split(&w);
    write_ranks(&w);
    write_server(&w);
    return e->code == ERR_NONE ? 0 : -1;
}
