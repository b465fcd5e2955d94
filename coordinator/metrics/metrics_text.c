/* coordinator/metrics/metrics_text.c - see metrics_text.h. */
#include "coordinator/metrics/metrics_text.h"
#include "base/clock.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define OWN_PREFIX "lockstep_"

/* The label of replica i, if there are several. */
struct replica_label {
    char text[40];
};

static struct replica_label label_of(const struct metrics *m, int i)
{
    struct replica_label label = {""};
    if (m->replicas->n > 1)
        (void)snprintf(label.text, sizeof label.text, ",engine=\"%d\"", i);
    return label;
}

/* The label of a set of ranks, which is a replica or holds several models. */
static struct replica_label ranks_label(const struct metrics *m, int i)
{
    struct replica_label label = {""};
    if (m->replicas->n_sets == m->replicas->n)
        return m->replicas->n > 1 ? label_of(m, i) : label;
    if (m->replicas->n_sets > 1)
        (void)snprintf(label.text, sizeof label.text, ",set=\"%d\"", i);
    return label;
}

/* Skips slots that have never held a model. */
static bool has_figures(const struct metrics *m, int i)
{
    return m->replicas->replica[i].model >= 0 || m->replica[i].total.n > 0;
}

/* One number of every replica. */
static void of_replicas(struct exposition *x, const struct metrics *m, const char *name, const char *type,
                        double (*value)(const struct metrics *m, int i), const char *help)
{
    exposition_head(x, name, type, help);
    for (int i = 0; i < m->replicas->n; i++)
        if (has_figures(m, i))
            exposition_sample(x, name, label_of(m, i).text, value(m, i));
}

/* One histogram of every replica; offset: in struct replica_metrics. */
static void histograms(struct exposition *x, const struct metrics *m, const char *name, size_t offset, const char *help)
{
    exposition_head(x, name, "histogram", help);
    for (int i = 0; i < m->replicas->n; i++)
        if (has_figures(m, i))
            exposition_histogram(x, name, label_of(m, i).text, (const void *)((const char *)&m->replica[i] + offset));
}

#define OF(member) offsetof(struct replica_metrics, member)

static uint64_t accepted_of(const struct scheduler_stats *s)
{
    uint64_t n = 0;
    for (int i = 0; i < DRAFTS_MAX; i++)
        n += s->n_accepted[i];
    return n;
}

static double step_seconds_of(const struct replica *one)
{
    double seconds = 0;
    (void)replica_steps(one, &seconds);
    return seconds;
}

/* A number of replica i; totals include those of models that it no longer runs. */
#define VALUE(name, expression)                              \
    static double name(const struct metrics *m, int i)       \
    {                                                        \
        const struct replica *e = &m->replicas->replica[i];  \
        const struct scheduler_stats all = replica_stats(e); \
        const struct replica_metrics *of = &m->replica[i];   \
        (void)e;                                             \
        (void)all;                                           \
        (void)of;                                            \
        return (double)(expression);                         \
    }
VALUE(n_running, all.n_running)
VALUE(n_waiting, all.n_waiting + (i == 0 ? m->n_unassigned : 0))
VALUE(kv_usage, scheduler_kv_usage(&all))
VALUE(kv_blocks, all.n_blocks)
VALUE(kv_blocks_used, all.n_blocks_used)
VALUE(kv_window_blocks, all.n_window_blocks)
VALUE(kv_window_blocks_used, all.n_window_blocks_used)
VALUE(prompt_tokens, all.n_prompt_tokens)
VALUE(output_tokens, all.n_output_tokens)
VALUE(preemptions, all.n_preemptions)
VALUE(prefix_queries, all.prefix_queries)
VALUE(prefix_hits, all.prefix_hits)
VALUE(prompt_cached, all.n_prompt_cached)
VALUE(prompt_computed, all.n_prompt_tokens - all.n_prompt_cached)
VALUE(n_drafts, all.n_drafts)
VALUE(draft_tokens, all.n_draft_tokens)
VALUE(draft_places, all.n_draft_places)
VALUE(accepted_tokens, accepted_of(&all))
VALUE(nothing, 0)
VALUE(n_steps, replica_steps(e, &(double){0}))
VALUE(step_seconds, step_seconds_of(e))
VALUE(n_answered, of->total.n)
VALUE(total_seconds, of->total_seconds)
VALUE(queue_seconds, of->queue_seconds)
VALUE(compute_seconds, of->compute_seconds)
VALUE(overhead_seconds, of->overhead_seconds)
#undef VALUE

static void write_finished(struct exposition *x, const struct metrics *m)
{
    char extra[120];
    exposition_head(x, "request_success_total", "counter", "Finished sequences, by finish reason.");
    for (int i = 0; i < m->replicas->n; i++) {
        const struct scheduler_stats all = replica_stats(&m->replicas->replica[i]);
        for (int f = FINISH_STOP; f < FINISH_REASONS; f++) {
            (void)snprintf(extra, sizeof extra, "%s,finished_reason=\"%s\"", label_of(m, i).text,
                           f == FINISH_CANCELLED ? "abort" : finish_name((enum finish_reason)f));
            exposition_sample(x, "request_success_total", extra, (double)all.n_finished[f]);
        }
    }
}

static void write_cache(struct exposition *x, const struct metrics *m)
{
    char extra[200];
    exposition_head(x, "cache_config_info", "gauge", "Configuration of the KV cache.");
    for (int i = 0; i < m->replicas->n; i++) {
        (void)snprintf(extra, sizeof extra, "%s,block_size=\"%d\",num_gpu_blocks=\"%d\",enable_prefix_caching=\"%s\"",
                       label_of(m, i).text, KV_BLOCK_TOKENS, m->replicas->replica[i].n_blocks,
                       m->prefix_caching ? "True" : "False");
        exposition_sample(x, "cache_config_info", extra, 1);
    }
}

/* For several samples per replica: {by="..."}. */
static void of_kind(struct exposition *x, const struct metrics *m, const char *name, const char *by, const char *kind,
                    double (*value)(const struct metrics *m, int i))
{
    char extra[120];
    for (int i = 0; i < m->replicas->n; i++) {
        (void)snprintf(extra, sizeof extra, "%s,%s=\"%s\"", label_of(m, i).text, by, kind);
        exposition_sample(x, name, extra, value(m, i));
    }
}

static void write_waiting(struct exposition *x, const struct metrics *m)
{
    static const char name[] = "num_requests_waiting_by_reason";
    exposition_head(x, name, "gauge", "Waiting sequences by reason; only \"capacity\" occurs.");
    of_kind(x, m, name, "reason", "capacity", n_waiting);
    of_kind(x, m, name, "reason", "deferred", nothing);
}

static void write_sources(struct exposition *x, const struct metrics *m)
{
    static const char name[] = "prompt_tokens_by_source_total";
    exposition_head(x, name, "counter", "Prompt tokens by source: computed, or found in the prefix cache.");
    of_kind(x, m, name, "source", "local_compute", prompt_computed);
    of_kind(x, m, name, "source", "local_cache_hit", prompt_cached);
    of_kind(x, m, name, "source", "external_kv_transfer", nothing);
}

static void write_accepted(struct exposition *x, const struct metrics *m)
{
    static const char name[] = "spec_decode_num_accepted_tokens_per_pos_total";
    char extra[80];
    exposition_head(x, name, "counter", "Accepted drafts by position, from 0.");
    for (int i = 0; i < m->replicas->n; i++) {
        const struct scheduler_stats all = replica_stats(&m->replicas->replica[i]);
        for (int k = 0; k < all.n_draft_places; k++) {
            (void)snprintf(extra, sizeof extra, "%s,position=\"%d\"", label_of(m, i).text, k);
            exposition_sample(x, name, extra, (double)all.n_accepted[k]);
        }
    }
}

/* Omitted if no drafts are made. */
static void write_drafts(struct exposition *x, const struct metrics *m)
{
    double n_places = 0;
    for (int i = 0; i < m->replicas->n; i++)
        n_places += draft_places(m, i);
    if (n_places == 0)
        return;
    of_replicas(x, m, "spec_decode_num_drafts_total", "counter", n_drafts,
                "Number of times that a step verified drafts of a sequence.");
    of_replicas(x, m, "spec_decode_num_draft_tokens_total", "counter", draft_tokens, "Drafted tokens.");
    of_replicas(x, m, "spec_decode_num_accepted_tokens_total", "counter", accepted_tokens, "Accepted drafts.");
    write_accepted(x, m);
}

void metrics_write_replicas(struct exposition *x, const struct metrics *m)
{
    of_replicas(x, m, "num_requests_running", "gauge", n_running, "Running sequences.");
    of_replicas(x, m, "num_requests_waiting", "gauge", n_waiting,
                "Sequences that wait for a slot or for memory; those not yet given to an engine count for engine 0.");
    write_waiting(x, m);
    of_replicas(x, m, "kv_cache_usage_perc", "gauge", kv_usage, "Share of KV blocks that sequences hold, 0 to 1.");
    write_cache(x, m);
    of_replicas(x, m, "prompt_tokens_total", "counter", prompt_tokens, "Prompt tokens processed.");
    write_sources(x, m);
    of_replicas(x, m, "generation_tokens_total", "counter", output_tokens, "Tokens generated.");
    of_replicas(x, m, "num_preemptions_total", "counter", preemptions, "Number of preempted sequences.");
    of_replicas(x, m, "prefix_cache_queries_total", "counter", prefix_queries,
                "Prompt tokens looked up in the prefix cache.");
    of_replicas(x, m, "prefix_cache_hits_total", "counter", prefix_hits, "Prompt tokens found in the prefix cache.");
    write_drafts(x, m);
    write_finished(x, m);
    histograms(x, m, "iteration_tokens_total", OF(iteration), "Tokens per step.");
}

void metrics_write_steps(struct exposition *x, const struct metrics *m)
{
    of_replicas(x, m, "kv_blocks", "gauge", kv_blocks, "KV blocks in total.");
    of_replicas(x, m, "kv_blocks_used", "gauge", kv_blocks_used, "KV blocks that sequences hold.");
    of_replicas(x, m, "kv_window_blocks", "gauge", kv_window_blocks,
                "KV blocks of windowed layers, if other layers see everything.");
    of_replicas(x, m, "kv_window_blocks_used", "gauge", kv_window_blocks_used,
                "KV blocks of windowed layers that sequences hold.");
    of_replicas(x, m, "engine_steps_total", "counter", n_steps, "Steps with tokens.");
    of_replicas(x, m, "engine_step_seconds_total", "counter", step_seconds, "Time from a step's plan to its results.");
}

static void write_requests(struct exposition *x, const struct metrics *m)
{
    histograms(x, m, "time_to_first_token_seconds", OF(first_token), "Time from the message to the first token.");
    histograms(x, m, "inter_token_latency_seconds", OF(between_tokens), "Time between two tokens of a choice.");
    histograms(x, m, "time_per_output_token_seconds", OF(between_tokens),
               "The old name of inter_token_latency_seconds.");
    histograms(x, m, "request_time_per_output_token_seconds", OF(per_token),
               "Mean time per output token of a request, without the first.");
    histograms(x, m, "e2e_request_latency_seconds", OF(total), "Time from the message to the last reply.");
    histograms(x, m, "request_queue_time_seconds", OF(queue), "Time of a request in the engine's queue.");
    histograms(x, m, "request_inference_time_seconds", OF(inference), "Time of a request in the engine.");
    histograms(x, m, "request_prefill_time_seconds", OF(prefill), "Time from the first step to the first token.");
    histograms(x, m, "request_decode_time_seconds", OF(decode), "Time from the first token to the last.");
    histograms(x, m, "request_prompt_tokens", OF(n_prompt), "Prompt tokens of a request.");
    histograms(x, m, "request_generation_tokens", OF(n_output), "Output tokens of a request.");
    histograms(x, m, "request_max_num_generation_tokens", OF(n_longest),
               "Output tokens of a request's longest choice.");
    histograms(x, m, "request_prefill_kv_computed_tokens", OF(n_computed),
               "Prompt tokens of a request that were not in the prefix cache.");
    histograms(x, m, "request_params_n", OF(n), "Parameter n of a request.");
    histograms(x, m, "request_params_max_tokens", OF(max_tokens), "Parameter max_tokens of a request.");
}

/* As Triton's nv_inference_*_duration_us and SageMaker's ModelLatency and OverheadLatency split it, in seconds. */
static void write_split(struct exposition *x, const struct metrics *m)
{
    char extra[64];
    of_replicas(x, m, "inference_request_success_total", "counter", n_answered,
                "Requests answered without an error, whose time the inference_* metrics split.");
    of_replicas(x, m, "inference_request_duration_seconds_total", "counter", total_seconds,
                "Time of answered requests, end to end.");
    of_replicas(x, m, "inference_queue_duration_seconds_total", "counter", queue_seconds,
                "Time that answered requests waited for the engine.");
    of_replicas(x, m, "inference_compute_duration_seconds_total", "counter", compute_seconds,
                "Time of answered requests in the engine.");
    of_replicas(x, m, "inference_overhead_duration_seconds_total", "counter", overhead_seconds,
                "Remaining time of answered requests: parsing, tokenizing, replying.");
    exposition_head(x, "requests_total", "counter", "Answered requests, by code.");
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
    const struct replicas *all = m->replicas;
    int size = all->n_ranks / all->n_sets;
    char extra[200];
    exposition_head(x, name, type, help);
    for (int i = 0; i < all->n_ranks; i++) {
        const struct rank_stats *r = &all->ranks[i];
        double y = all->replica[i / size].has_ranks ? value(r) : NAN;
        (void)snprintf(extra, sizeof extra, "%s,rank=\"%d\",host=\"%.64s\"", ranks_label(m, i / size).text, i, r->host);
        if (!isnan(y)) /* not measured: absent */
            exposition_sample(x, name, extra, y);
    }
}

/* A collective ends for all ranks at the same time. The rank that spends least time in them arrives last and does not
 * wait; the others wait for the difference. These are means over steps in which different ranks may be last, hence a
 * lower bound. */
static void write_waits(struct exposition *x, const struct metrics *m)
{
    static const char name[] = "rank_all_reduce_wait_seconds";
    const struct replicas *all = m->replicas;
    int size = all->n_ranks / all->n_sets;
    char extra[200];
    exposition_head(x, name, "gauge", "Lower bound of the time per step that a rank waits for others in all-reduces.");
    for (int i = 0; i < all->n_ranks; i++) {
        double least = INFINITY, mine = rank_stats_all_reduce(&all->ranks[i]);
        for (int k = i / size * size; k < (i / size + 1) * size; k++)
            least = fmin(least, rank_stats_all_reduce(&all->ranks[k]));
        (void)snprintf(extra, sizeof extra, "%s,rank=\"%d\",host=\"%.64s\"", ranks_label(m, i / size).text, i,
                       all->ranks[i].host);
        if (all->replica[i / size].has_ranks && !isnan(mine) && !isinf(least))
            exposition_sample(x, name, extra, mine - least);
    }
}

static double steps_of(const struct rank_stats *r)
{
    return (double)r->n_steps;
}

static double late_of(const struct rank_stats *r)
{
    return (double)r->n_late;
}

static double mask_waits_of(const struct rank_stats *r)
{
    return (double)r->n_waited;
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

/* Written only if every rank's value is known: a sum over some ranks would be taken for the sum over all. */
static void write_energy(struct exposition *x, const struct metrics *m)
{
    if (isnan(replicas_joules(m->replicas)))
        return;
    of_ranks(x, m, "energy_joules_total", "counter", "Energy used by a rank's device since the model was ready.",
             joules_of);
}

void metrics_write_ranks(struct exposition *x, const struct metrics *m)
{
    int slowest = replicas_slowest(m->replicas);
    bool any = false;
    for (int i = 0; i < m->replicas->n_sets; i++)
        any = any || m->replicas->replica[i].has_ranks;
    if (!any)
        return;
    of_ranks(x, m, "rank_steps_total", "counter", "Steps of a rank.", steps_of);
    of_ranks(x, m, "rank_late_mask_steps_total", "counter",
             "Steps of a rank whose masks (answers in a given form) came while the step was under way.", late_of);
    of_ranks(x, m, "rank_mask_waits_total", "counter", "Steps of a rank in which the device waited for masks.",
             mask_waits_of);
    of_ranks(x, m, "rank_timed_steps_total", "counter",
             "Steps of a rank that were timed: all on CPUs, samples on GPUs.", timed_of);
    of_ranks(x, m, "rank_step_seconds_total", "counter", "Time of a rank's timed steps.", seconds_of);
    of_ranks(x, m, "rank_all_reduce_seconds_total", "counter",
             "Time of a rank's timed steps in all-reduces: waiting and exchange.", waited_of);
    of_ranks(x, m, "rank_step_seconds", "gauge", "Mean time of a rank's step.", rank_stats_step);
    of_ranks(x, m, "rank_all_reduce_seconds", "gauge", "Mean time per step of a rank in all-reduces.",
             rank_stats_all_reduce);
    write_waits(x, m);
    of_ranks(x, m, "rank_compute_seconds", "gauge", "Mean time per step of a rank outside of collectives.",
             rank_stats_compute);
    write_energy(x, m);
    if (slowest >= 0)
        exposition_one(x, "slowest_rank", "gauge", slowest, "Rank that computed longest in the last second.");
}

static void write_server(struct exposition *x, const struct metrics *m)
{
    char extra[64];
    exposition_head(x, "messages_total", "counter", "Messages, by op.");
    for (int op = 0; op <= PROTOCOL_SHUTDOWN; op++) {
        (void)snprintf(extra, sizeof extra, ",op=\"%s\"", protocol_op_name((enum protocol_op)op));
        exposition_sample(x, "messages_total", extra, (double)m->n_messages[op]);
    }
    exposition_head(
        x, "cancellation_steps", "histogram",
        "Steps until a cancelled request had left the engine; overstated by up to 0.1 s of steps if none streams.");
    exposition_histogram(x, "cancellation_steps", "", &m->cancel_steps);
    exposition_one(x, "bad_messages_total", "counter", (double)m->n_bad_messages,
                   "Messages with a wrong number of frames, which are ignored.");
    exposition_one(x, "refused_connections_total", "counter", (double)m->n_refused_connections, "Failed handshakes.");
    exposition_one(x, "turned_away_connections_total", "counter", (double)m->n_turned_away,
                   "Connections closed at once because --max-connections were open.");
    exposition_one(x, "lost_clients_total", "counter", (double)m->n_lost_clients,
                   "Clients that left with requests open.");
    exposition_one(x, "slow_clients_total", "counter", (double)m->n_slow_clients,
                   "Requests cancelled or refused because of a client's backlog.");
    exposition_one(x, "cut_clients_total", "counter", (double)m->n_cut_clients,
                   "Connections closed because of a client's backlog.");
    exposition_one(x, "access_log_lost_lines_total", "counter", (double)m->n_lost_log_lines,
                   "Lines of --access-log that could not be written.");
    exposition_one(x, "received_bytes_total", "counter", (double)m->bytes_received, "Bytes of received messages.");
    exposition_one(x, "sent_bytes_total", "counter", (double)m->bytes_sent, "Bytes of sent replies.");
    exposition_one(x, "clients", "gauge", m->n_clients, "Connections that have sent something.");
    exposition_one(x, "open_requests", "gauge", m->n_open_tasks, "Messages in progress, at any stage.");
    exposition_one(x, "client_backlog_bytes", "gauge", (double)m->backlog,
                   "Bytes of replies that clients have not read yet.");
    exposition_one(x, "ranks", "gauge", m->replicas->n_ranks, "Ranks of the job.");
    exposition_one(x, "groups", "gauge", m->replicas->n_sets, "Sets of ranks, each with a model or models of its own.");
    exposition_one(x, "draining", "gauge", m->draining, "1 if the server accepts no new requests.");
    exposition_one(x, "uptime_seconds", "gauge", seconds_now() - m->started, "Time since the socket was opened.");
    if (m->loaded > 0)
        exposition_one(x, "load_seconds", "gauge", m->loaded - m->started,
                       "Time from the start until the model was ready.");
}

int metrics_write(const struct metrics *m, struct text_buffer *out, struct err *e)
{
    struct exposition x;
    bool vllm = m->names == METRICS_VLLM;
    exposition_open(&x, out, vllm ? "vllm:" : OWN_PREFIX, e);
    exposition_label(&x, "model_name", m->model);
    if (vllm && m->replicas->n == 1)
        exposition_label(&x, "engine", "0");
    metrics_write_replicas(&x, m);
    write_requests(&x, m);
    x.prefix = OWN_PREFIX;
    metrics_write_steps(&x, m);
    write_split(&x, m);
    metrics_write_ranks(&x, m);
    write_server(&x, m);
    return e->code == ERR_NONE ? 0 : -1;
}
