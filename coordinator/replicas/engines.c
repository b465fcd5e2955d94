/* coordinator/replicas/engines.c - see engines.h. */
#include "coordinator/replicas/engines.h"
#include "base/log.h"
#include "coordinator/tasks/mailbox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int engines_open(struct engines *e, void *zmq_context, int n, int n_groups, int n_ranks, struct err *err)
{
    memset(e, 0, sizeof *e);
    e->engine = err_calloc(err, (unsigned long)n, sizeof *e->engine, "engines");
    e->ranks = err_calloc(err, (unsigned long)n_ranks, sizeof *e->ranks, "engines");
    e->recent = err_calloc(err, (unsigned long)n_ranks, sizeof *e->recent, "engines");
    e->n_ranks = n_ranks;
    e->n_groups = n_groups;
    if (err->code != ERR_NONE)
        return -1;
    for (int i = 0; i < n_ranks; i++)
        e->ranks[i].joules = NAN;
    for (; e->n < n; e->n++) {
        char name[40];
        (void)snprintf(name, sizeof name, "engine-%d", e->n);
        e->engine[e->n].model = 0;
        if (mailbox_open(zmq_context, name, e->engine[e->n].end, err) != 0)
            return -1;
    }
    return 0;
}

void engines_close(struct engines *e)
{
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < 2; k++)
            mailbox_close(&e->engine[i].end[k]);
    free(e->engine);
    free(e->ranks);
    free(e->recent);
    memset(e, 0, sizeof *e);
}

static struct engine_load load_of(const struct task *j)
{
    struct engine_load load = {0};
    for (int i = 0; i < j->n_groups; i++) {
        const struct group *g = &j->group[i];
        int n = g->search.num_beams > 1 ? g->search.num_beams : g->n_members;
        load.n_sequences += n;
        load.n_tokens += (int64_t)g->prompt.n + (int64_t)n * g->rules->max_tokens;
    }
    return load;
}

static bool has_less(const struct engine_load *a, const struct engine_load *b)
{
    return a->n_sequences != b->n_sequences ? a->n_sequences < b->n_sequences : a->n_tokens < b->n_tokens;
}

int engines_choose(const struct engines *e, int model, int spare)
{
    int best = -1;
    for (int i = 0; i < e->n; i++) {
        const struct engine_end *one = &e->engine[i];
        if (one->model != model)
            continue;
        if (spare >= 0 && one->load.n_sequences > 0 && one->load.n_sequences >= one->max_seqs + spare)
            continue;
        if (best < 0 || has_less(&one->load, &e->engine[best].load))
            best = i;
    }
    return best;
}

void engines_place(struct engines *e, int engine, int model)
{
    e->engine[engine].model = model;
    e->engine[engine].ended = e->engine[engine].loaded = false;
}

static void add_counts(struct scheduler_stats *sum, const struct scheduler_stats *s)
{
    sum->n_preemptions += s->n_preemptions;
    sum->prefix_queries += s->prefix_queries;
    sum->prefix_hits += s->prefix_hits;
    sum->n_prompt_tokens += s->n_prompt_tokens;
    sum->n_prompt_cached += s->n_prompt_cached;
    sum->n_output_tokens += s->n_output_tokens;
    for (int f = 0; f < FINISH_REASONS; f++)
        sum->n_finished[f] += s->n_finished[f];
}

void engines_clear(struct engines *e, int engine)
{
    struct engine_end *one = &e->engine[engine];
    add_counts(&e->past.stats, &one->stats);
    e->past.n_steps += one->n_steps;
    e->past.step_seconds += one->step_seconds;
    one->stats = (struct scheduler_stats){0};
    one->n_steps = 0;
    one->step_seconds = 0;
    one->max_len = one->n_blocks = one->max_seqs = 0;
    one->model = -1;
}

static void give_order(struct engine_end *to, struct order what)
{
    struct order *c = malloc(sizeof *c);
    if (c == NULL || (*c = what, !mailbox_post(to->end[0], c))) {
        log_warn("out of host memory: an order to the engine is lost");
        free(c);
    }
}

void engines_submit(struct engines *e, struct task *j, int engine)
{
    struct engine_end *to = &e->engine[engine];
    const struct engine_load load = load_of(j);
    to->load.n_sequences += load.n_sequences;
    to->load.n_tokens += load.n_tokens;
    j->ticket.engine = engine;
    j->ticket.submitted = j->ticket.in_engine = true;
    give_order(to, (struct order){.kind = ORDER_SUBMIT, .task = j});
}

void engines_cancel(struct engines *e, const struct task *j, enum finish_reason why)
{
    give_order(&e->engine[j->ticket.engine], (struct order){.kind = ORDER_CANCEL, .number = j->number, .why = why});
}

void engines_withdraw(struct engines *e, const struct task *j)
{
    for (int i = 0; i < e->n; i++)
        if (j == NULL || j->ticket.engine == i)
            give_order(&e->engine[i], (struct order){.kind = ORDER_WITHDRAW, .number = j != NULL ? j->number : 0});
}

void engines_stop(struct engines *e)
{
    for (int i = 0; i < e->n; i++)
        give_order(&e->engine[i], (struct order){.kind = ORDER_STOP});
}

static void note_ranks(struct engines *e, int engine, const struct report *r)
{
    int size = e->n_ranks / e->n_groups, group = engine % e->n_groups;
    if (r->ranks == NULL || r->n_ranks != size)
        return;
    memcpy(e->ranks + group * size, r->ranks, (size_t)size * sizeof *r->ranks);
    memcpy(e->recent + group * size, r->recent, (size_t)size * sizeof *r->recent);
    e->engine[group].has_ranks = true;
}

static void note(struct engine_end *from, const struct report *r)
{
    if (r->loaded) {
        from->max_len = r->max_len;
        from->n_blocks = r->n_blocks;
        from->max_seqs = r->max_seqs;
    }
    from->stats = r->stats;
    from->n_steps = r->n_steps;
    from->step_seconds = r->step_seconds;
    from->loaded = from->loaded || r->loaded;
    from->ended = from->ended || r->ended;
    for (struct task *j = r->done; j != NULL; j = j->work.next) {
        const struct engine_load load = load_of(j);
        from->load.n_sequences -= load.n_sequences;
        from->load.n_tokens -= load.n_tokens;
        j->ticket.in_engine = false;
        from->n_done++;
    }
}

struct report *engines_take(struct engines *e, int *engine)
{
    for (int i = 0; i < e->n; i++) {
        struct report *r = mailbox_take(e->engine[i].end[0]);
        if (r == NULL)
            continue;
        note(&e->engine[i], r);
        note_ranks(e, i, r);
        *engine = i;
        return r;
    }
    return NULL;
}

bool engines_loaded(const struct engines *e)
{
    bool all = e->n > 0;
    for (int i = 0; i < e->n; i++)
        all = all && e->engine[i].loaded;
    return all;
}

bool engines_ended(const struct engines *e)
{
    bool all = true;
    for (int i = 0; i < e->n; i++)
        all = all && e->engine[i].ended;
    return all;
}

int engines_max_seqs(const struct engines *e)
{
    int n = 0;
    for (int i = 0; i < e->n; i++)
        n += e->engine[i].max_seqs;
    return n;
}

int engines_running(const struct engines *e)
{
    int n = 0;
    for (int i = 0; i < e->n; i++)
        n += e->engine[i].model >= 0;
    return n;
}

int engines_max_len(const struct engines *e, int model)
{
    int least = 0;
    for (int i = 0; i < e->n; i++) {
        const struct engine_end *one = &e->engine[i];
        if (one->model == model && (least == 0 || one->max_len < least))
            least = one->max_len;
    }
    return least;
}

struct scheduler_stats engines_stats(const struct engines *e)
{
    struct scheduler_stats sum = e->past.stats;
    for (int i = 0; i < e->n; i++) {
        const struct scheduler_stats *s = &e->engine[i].stats;
        sum.n_running += s->n_running;
        sum.n_waiting += s->n_waiting;
        sum.n_blocks += s->n_blocks;
        sum.n_blocks_used += s->n_blocks_used;
        add_counts(&sum, s);
    }
    return sum;
}

uint64_t engines_steps(const struct engines *e, double *seconds)
{
    uint64_t n = e->past.n_steps;
    *seconds = e->past.step_seconds;
    for (int i = 0; i < e->n; i++) {
        n += e->engine[i].n_steps;
        *seconds += e->engine[i].step_seconds;
    }
    return n;
}

double engines_joules(const struct engines *e)
{
    return rank_stats_joules(e->ranks, e->n_ranks);
}

void engines_say(const struct engines *e)
{
    for (int i = 0; i < e->n && e->n_groups > 1; i++)
        log_info("group %d: %lld requests, %llu steps in %.3f s", i, (long long)e->engine[i].n_done,
                 (unsigned long long)e->engine[i].n_steps, e->engine[i].step_seconds);
}

/* Considers only engines all of whose ranks know their figures. */
int engines_slowest(const struct engines *e)
{
    int size = e->n_ranks / e->n_groups, slowest = -1;
    for (int i = 0; i < e->n_groups && e->n_ranks > 1; i++) {
        bool known = true;
        for (int r = i * size; r < (i + 1) * size; r++)
            known = known && e->recent[r].n_parted > 0;
        for (int r = i * size; known && r < (i + 1) * size; r++)
            if (slowest < 0 || rank_stats_compute(&e->recent[r]) > rank_stats_compute(&e->recent[slowest]))
                slowest = r;
    }
    return slowest;
}
