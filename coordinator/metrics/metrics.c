/* coordinator/metrics/metrics.c - see metrics.h. */
#include "coordinator/metrics/metrics.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

static void open_replica(struct replica_metrics *m, const struct buckets *lengths)
{
    m->first_token.buckets = &buckets_first_token;
    m->between_tokens.buckets = m->per_token.buckets = &buckets_token;
    m->total.buckets = m->queue.buckets = m->inference.buckets = m->prefill.buckets = m->decode.buckets =
        &buckets_request;
    m->n_prompt.buckets = m->n_output.buckets = m->n_longest.buckets = m->n_computed.buckets = m->max_tokens.buckets =
        lengths;
    m->n.buckets = &buckets_n;
    m->iteration.buckets = &buckets_iteration;
}

int metrics_open(struct metrics *m, enum metrics_names names, const char *model, const struct replicas *replicas,
                 bool prefix_caching, struct err *e)
{
    memset(m, 0, sizeof *m);
    m->names = names;
    m->model = model;
    m->prefix_caching = prefix_caching;
    m->started = seconds_now();
    m->length_buckets = buckets_up_to(1 << 20);
    m->replicas = replicas;
    m->cancel_steps.buckets = &buckets_n;
    m->replica = err_calloc(e, (unsigned long)replicas->n, sizeof *m->replica, "metrics");
    for (int i = 0; m->replica != NULL && i < replicas->n; i++)
        open_replica(&m->replica[i], &m->length_buckets);
    return m->replica != NULL ? 0 : -1;
}

void metrics_close(struct metrics *m)
{
    free(m->replica);
    m->replica = NULL;
}

void metrics_take(struct metrics *m, struct report *r, int replica)
{
    struct replica_metrics *of = &m->replica[replica];
    if (r->loaded && m->loaded == 0 && replicas_loaded(m->replicas)) {
        m->loaded = seconds_now();
        m->length_buckets = buckets_up_to(replicas_max_len(m->replicas, 0)); /* nothing has been counted in them yet */
    }
    histogram_move(&of->between_tokens, &r->between_tokens);
    histogram_move(&of->iteration, &r->iteration);
}

void metrics_count(struct metrics *m, const struct outcome *o, const struct protocol_generate *g, int replica)
{
    struct replica_metrics *of = &m->replica[replica];
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
    histogram_add(&of->n_longest, (double)o->n_longest);
    histogram_add(&of->n_computed, (double)(o->n_prompt - o->n_cached));
    of->queue_seconds += t->queue;
    of->compute_seconds += t->prefill + t->decode;
    of->overhead_seconds += t->overhead;
    of->total_seconds += t->total;
}

double metrics_mean_seconds(const struct metrics *m)
{
    double sum = 0, n = 0;
    for (int i = 0; i < m->replicas->n; i++) {
        sum += m->replica[i].total.sum;
        n += (double)m->replica[i].total.n;
    }
    return n > 0 ? sum / n : 1;
}
