/* coordinator/replicas/replicas.c - see replicas.h. */
#include "coordinator/replicas/replicas.h"
#include "base/log.h"
#include "coordinator/tasks/mailbox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int replicas_open(struct replicas *set, void *zmq_context, int n, int n_sets, int n_ranks, struct err *err)
{
    memset(set, 0, sizeof *set);
    set->replica = err_calloc(err, (unsigned long)n, sizeof *set->replica, "replicas");
    set->ranks = err_calloc(err, (unsigned long)n_ranks, sizeof *set->ranks, "replicas");
    set->recent = err_calloc(err, (unsigned long)n_ranks, sizeof *set->recent, "replicas");
    set->n_ranks = n_ranks;
    set->n_sets = n_sets;
    if (err->code != ERR_NONE)
        return -1;
    for (int i = 0; i < n_ranks; i++)
        set->ranks[i].joules = NAN;
    for (; set->n < n; set->n++) {
        char name[40];
        (void)snprintf(name, sizeof name, "replica-%d", set->n);
        set->replica[set->n].model = 0;
        if (mailbox_open(zmq_context, name, set->replica[set->n].end, err) != 0)
            return -1;
    }
    return 0;
}

void replicas_close(struct replicas *set)
{
    for (int i = 0; i < set->n; i++)
        for (int k = 0; k < 2; k++)
            mailbox_close(&set->replica[i].end[k]);
    free(set->replica);
    free(set->ranks);
    free(set->recent);
    memset(set, 0, sizeof *set);
}

static struct replica_load load_of(const struct task *task)
{
    struct replica_load load = {0};
    for (int i = 0; i < task->n_prompts; i++) {
        const struct choices *set = &task->choices[i];
        int n = set->search.num_beams > 1 ? set->search.num_beams : set->n_members;
        load.n_sequences += n;
        load.n_tokens += (int64_t)set->prompt.n + (int64_t)n * set->rules->max_tokens;
    }
    return load;
}

static bool has_less(const struct replica_load *a, const struct replica_load *b)
{
    return a->n_sequences != b->n_sequences ? a->n_sequences < b->n_sequences : a->n_tokens < b->n_tokens;
}

int replicas_choose(const struct replicas *set, int model, int spare, bool (*may)(const void *context, int replica),
                    const void *context)
{
    int best = -1;
    for (int i = 0; i < set->n; i++) {
        const struct replica *one = &set->replica[i];
        if (one->model != model || (may != NULL && !may(context, i)))
            continue;
        if (spare >= 0 && one->load.n_sequences > 0 && one->load.n_sequences >= one->max_seqs + spare)
            continue;
        if (best < 0 || has_less(&one->load, &set->replica[best].load))
            best = i;
    }
    return best;
}

void replicas_place(struct replicas *set, int replica, int model)
{
    set->replica[replica].model = model;
    set->replica[replica].ended = set->replica[replica].loaded = false;
}

static void add_counts(struct scheduler_stats *sum, const struct scheduler_stats *s)
{
    sum->n_preemptions += s->n_preemptions;
    sum->prefix_queries += s->prefix_queries;
    sum->prefix_hits += s->prefix_hits;
    sum->n_draft_places = s->n_draft_places > sum->n_draft_places ? s->n_draft_places : sum->n_draft_places;
    sum->n_drafts += s->n_drafts;
    sum->n_draft_tokens += s->n_draft_tokens;
    for (int i = 0; i < DRAFTS_MAX; i++)
        sum->n_accepted[i] += s->n_accepted[i];
    sum->n_prompt_tokens += s->n_prompt_tokens;
    sum->n_prompt_cached += s->n_prompt_cached;
    sum->n_output_tokens += s->n_output_tokens;
    for (int f = 0; f < FINISH_REASONS; f++)
        sum->n_finished[f] += s->n_finished[f];
}

void replicas_clear(struct replicas *set, int replica)
{
    struct replica *one = &set->replica[replica];
    add_counts(&one->past.stats, &one->stats);
    one->past.n_steps += one->n_steps;
    one->past.step_seconds += one->step_seconds;
    one->stats = (struct scheduler_stats){0};
    one->n_steps = 0;
    one->step_seconds = 0;
    one->max_len = one->n_blocks = one->max_seqs = one->n_units = 0;
    one->model = -1;
}

static void give_order(struct replica *to, struct order what)
{
    struct order *c = malloc(sizeof *c);
    if (c == NULL || (*c = what, !mailbox_post(to->end[0], c))) {
        log_warn("out of host memory: an order to the engine is lost");
        free(c);
    }
}

void replicas_submit(struct replicas *set, struct task *task, int replica)
{
    struct replica *to = &set->replica[replica];
    const struct replica_load load = load_of(task);
    to->load.n_sequences += load.n_sequences;
    to->load.n_tokens += load.n_tokens;
    task->ticket.replica = replica;
    task->ticket.submitted = task->ticket.in_replica = true;
    give_order(to, (struct order){.kind = ORDER_SUBMIT, .task = task});
}

void replicas_cancel(struct replicas *set, const struct task *task, enum finish_reason why)
{
    give_order(&set->replica[task->ticket.replica],
               (struct order){.kind = ORDER_CANCEL, .number = task->number, .why = why});
}

void replicas_withdraw(struct replicas *set, const struct task *task)
{
    for (int i = 0; i < set->n; i++)
        if (task == NULL || task->ticket.replica == i)
            give_order(&set->replica[i],
                       (struct order){.kind = ORDER_WITHDRAW, .number = task != NULL ? task->number : 0});
}

void replicas_stop(struct replicas *set)
{
    for (int i = 0; i < set->n; i++)
        give_order(&set->replica[i], (struct order){.kind = ORDER_STOP});
}

static void note_ranks(struct replicas *set, int replica, const struct report *r)
{
    int size = set->n_ranks / set->n_sets, home = replica / (set->n / set->n_sets);
    if (r->ranks == NULL || r->n_ranks != size)
        return;
    memcpy(set->ranks + home * size, r->ranks, (size_t)size * sizeof *r->ranks);
    memcpy(set->recent + home * size, r->recent, (size_t)size * sizeof *r->recent);
    set->replica[home].has_ranks = true;
}

static void note_report(struct replica *from, const struct report *r)
{
    if (r->loaded) {
        from->max_len = r->max_len;
        from->n_blocks = r->n_blocks;
        from->max_seqs = r->max_seqs;
    }
    from->stats = r->stats;
    from->n_units = r->n_units;
    from->n_steps = r->n_steps;
    from->step_seconds = r->step_seconds;
    from->loaded = from->loaded || r->loaded;
    from->ended = from->ended || r->ended;
    for (struct task *task = r->done; task != NULL; task = task->work.next) {
        const struct replica_load load = load_of(task);
        from->load.n_sequences -= load.n_sequences;
        from->load.n_tokens -= load.n_tokens;
        task->ticket.in_replica = false;
        from->n_done++;
    }
}

struct report *replicas_take(struct replicas *set, int *replica)
{
    for (int i = 0; i < set->n; i++) {
        struct report *r = mailbox_take(set->replica[i].end[0]);
        if (r == NULL)
            continue;
        note_report(&set->replica[i], r);
        note_ranks(set, i, r);
        *replica = i;
        return r;
    }
    return NULL;
}

bool replicas_loaded(const struct replicas *set)
{
    bool all = set->n > 0;
    for (int i = 0; i < set->n; i++)
        all = all && set->replica[i].loaded;
    return all;
}

bool replicas_ended(const struct replicas *set)
{
    bool all = true;
    for (int i = 0; i < set->n; i++)
        all = all && set->replica[i].ended;
    return all;
}

int replicas_max_seqs(const struct replicas *set)
{
    int n = 0;
    for (int i = 0; i < set->n; i++)
        n += set->replica[i].max_seqs;
    return n;
}

int replicas_running(const struct replicas *set)
{
    int n = 0;
    for (int i = 0; i < set->n; i++)
        n += set->replica[i].model >= 0;
    return n;
}

int replicas_max_len(const struct replicas *set, int model)
{
    int least = 0;
    for (int i = 0; i < set->n; i++) {
        const struct replica *one = &set->replica[i];
        if (one->model == model && one->max_len > 0 && (least == 0 || one->max_len < least))
            least = one->max_len;
    }
    return least;
}

struct scheduler_stats replica_stats(const struct replica *one)
{
    struct scheduler_stats all = one->stats;
    add_counts(&all, &one->past.stats);
    return all;
}

struct scheduler_stats replicas_stats(const struct replicas *set)
{
    struct scheduler_stats sum = {0};
    for (int i = 0; i < set->n; i++) {
        const struct scheduler_stats *s = &set->replica[i].stats;
        sum.n_running += s->n_running;
        sum.n_waiting += s->n_waiting;
        sum.n_blocks += s->n_blocks;
        sum.n_blocks_used += s->n_blocks_used;
        sum.n_window_blocks += s->n_window_blocks;
        sum.n_window_blocks_used += s->n_window_blocks_used;
        add_counts(&sum, s);
        add_counts(&sum, &set->replica[i].past.stats);
    }
    return sum;
}

uint64_t replica_steps(const struct replica *one, double *seconds)
{
    *seconds = one->step_seconds + one->past.step_seconds;
    return one->n_steps + one->past.n_steps;
}

uint64_t replicas_steps(const struct replicas *set, double *seconds)
{
    uint64_t n = 0;
    double one = 0;
    *seconds = 0;
    for (int i = 0; i < set->n; i++) {
        n += replica_steps(&set->replica[i], &one);
        *seconds += one;
    }
    return n;
}

double replicas_joules(const struct replicas *set)
{
    return rank_stats_joules(set->ranks, set->n_ranks);
}

void replicas_say(const struct replicas *set)
{
    for (int i = 0; i < set->n && set->n_sets > 1; i++) {
        const struct replica *one = &set->replica[i];
        double seconds = 0;
        uint64_t n = replica_steps(one, &seconds);
        if (set->n == set->n_sets || one->n_done > 0)
            log_info("replica %d: %lld requests, %llu steps in %.3f s", i, (long long)one->n_done,
                     (unsigned long long)n, seconds);
    }
}

/* Considers only replicas all of whose ranks know their figures. */
int replicas_slowest(const struct replicas *set)
{
    int size = set->n_ranks / set->n_sets, slowest = -1;
    for (int i = 0; i < set->n_sets && set->n_ranks > 1; i++) {
        bool known = true;
        for (int r = i * size; r < (i + 1) * size; r++)
            known = known && set->recent[r].n_parted > 0;
        for (int r = i * size; known && r < (i + 1) * size; r++)
            if (slowest < 0 || rank_stats_compute(&set->recent[r]) > rank_stats_compute(&set->recent[slowest]))
                slowest = r;
    }
    return slowest;
}
