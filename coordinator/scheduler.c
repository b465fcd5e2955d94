/* coordinator/scheduler.c - see scheduler.h. */
#include "coordinator/scheduler.h"

#include <stdlib.h>
#include <string.h>

int scheduler_open(struct scheduler *s, const struct scheduler_setup *setup, struct err *e)
{
    const struct limits *l = &setup->limits;
    memset(s, 0, sizeof *s);
    s->setup = *setup;
    s->limits = *l;
    s->running = err_calloc(e, (size_t)l->max_seqs, sizeof(struct request *), "scheduler");
    s->free_block = err_calloc(e, (size_t)l->n_blocks, sizeof *s->free_block, "scheduler");
    s->free_slot = err_calloc(e, (size_t)l->max_seqs, sizeof *s->free_slot, "scheduler");
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++)
        s->flight[i].request = err_calloc(e, (size_t)l->max_seqs, sizeof(struct request *), "scheduler");
    if (e->code != ERR_NONE)
        return -1;
    for (int i = l->n_blocks - 1; i >= 0; i--)
        s->free_block[s->n_free_blocks++] = i;
    for (int i = l->max_seqs - 1; i >= 0; i--)
        s->free_slot[s->n_free_slots++] = i;
    return 0;
}

void scheduler_close(struct scheduler *s)
{
    free(s->running);
    free(s->free_block);
    free(s->free_slot);
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++)
        free(s->flight[i].request);
    memset(s, 0, sizeof *s);
}

int scheduler_max_len(const struct scheduler *s)
{
    int64_t held = (int64_t)s->limits.n_blocks * KV_BLOCK_TOKENS;
    return held < s->limits.max_len ? (int)held : s->limits.max_len;
}

/* KV blocks for the whole life of a request: the last token is never fed, but costs at most one block more. */
static int blocks_needed(const struct request *r)
{
    return ((int)r->prompt.n + r->rules->max_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

int scheduler_add(struct scheduler *s, struct request *r, double now, struct err *e)
{
    (void)now;
    r->slot = -1;
    r->next = NULL;
    r->block = err_calloc(e, (size_t)blocks_needed(r), sizeof *r->block, "KV block list");
    if (r->block == NULL)
        return -1;
    if (s->last_waiting != NULL)
        s->last_waiting->next = r;
    else
        s->first_waiting = r;
    s->last_waiting = r;
    return 0;
}

bool scheduler_busy(const struct scheduler *s)
{
    return s->first_waiting != NULL || s->n_running > 0;
}

static void start(struct scheduler *s, struct request *r, struct plan *p)
{
    r->slot = s->free_slot[--s->n_free_slots];
    r->n_blocks = blocks_needed(r);
    struct plan_start *begin = &p->start[p->n_starts++];
    *begin = (struct plan_start){.slot = r->slot, .sampling = r->rules->sampling};
    begin->sampling.prompt_len = (int)r->prompt.n;
    for (int i = 0; i < r->n_blocks; i++) {
        r->block[i] = s->free_block[--s->n_free_blocks];
        p->block[p->n_blocks++] = (struct plan_block){r->slot, i, r->block[i]};
    }
    s->running[s->n_running++] = r;
}

static void add_to_flight(struct scheduler *s, struct request *r, uint64_t step)
{
    struct flight *f = &s->flight[step % SCHEDULER_FLIGHTS];
    f->request[f->n++] = r;
    r->n_in_flight++;
    r->n_planned++;
}

/* The next token of a sequence whose prompt is done: the one sampled last, which never leaves the device. */
static void add_decode(struct scheduler *s, struct request *r, struct plan *p)
{
    p->seq[p->n_seqs++] = (struct plan_seq){r->slot, 1, r->n_fed, r->n_fed + 1, 1, 1};
    p->token[p->n_tokens++] = -1;
    r->n_fed++;
    add_to_flight(s, r, p->step);
}

static void add_chunk(struct scheduler *s, struct request *r, struct plan *p)
{
    int left = (int)r->prompt.n - r->n_fed, budget = s->limits.max_batch_tokens - p->n_tokens;
    int n = left < budget ? left : budget, last = n == left;
    p->seq[p->n_seqs++] = (struct plan_seq){r->slot, n, r->n_fed, (int)r->prompt.n, last, last};
    memcpy(p->token + p->n_tokens, r->prompt.id + r->n_fed, (size_t)n * sizeof *p->token);
    p->n_tokens += n;
    r->n_fed += n;
    if (last)
        add_to_flight(s, r, p->step);
}

static bool has_room(const struct scheduler *s, const struct plan *p)
{
    return p->n_tokens < s->limits.max_batch_tokens;
}

void scheduler_plan(struct scheduler *s, struct plan *p, double now)
{
    (void)now;
    struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    *f = (struct flight){p->step, 0, f->request};
    for (int i = 0; i < s->n_running && has_room(s, p); i++) {
        struct request *r = s->running[i];
        if (r->n_fed >= (int)r->prompt.n && r->n_planned < r->rules->max_tokens)
            add_decode(s, r, p);
    }
    for (int i = 0; i < s->n_running && has_room(s, p); i++)
        if (s->running[i]->n_fed < (int)s->running[i]->prompt.n)
            add_chunk(s, s->running[i], p);
    while (s->first_waiting != NULL && has_room(s, p) && s->n_free_slots > 0 &&
           blocks_needed(s->first_waiting) <= s->n_free_blocks) {
        struct request *r = s->first_waiting;
        s->first_waiting = r->next;
        if (s->first_waiting == NULL)
            s->last_waiting = NULL;
        start(s, r, p);
        add_chunk(s, r, p);
    }
}

/* Give back what a finished request held. A plan that still carries it writes into its blocks before any later plan does,
 * since steps run in order. */
static void retire(struct scheduler *s, struct request *r)
{
    int i = 0;
    while (s->running[i] != r)
        i++;
    memmove(&s->running[i], &s->running[i + 1], (size_t)(s->n_running - i - 1) * sizeof(struct request *));
    s->n_running--;
    s->free_slot[s->n_free_slots++] = r->slot;
    for (int b = 0; b < r->n_blocks; b++)
        s->free_block[s->n_free_blocks++] = r->block[b];
    r->slot = -1;
}

int scheduler_accept(struct scheduler *s, const struct step_result *result, double now, struct err *e)
{
    (void)now;
    struct flight *f = &s->flight[result->step % SCHEDULER_FLIGHTS];
    if (f->step != result->step || f->n != result->n_sampled)
        return ERR(e, ERR_INTERNAL, "results of step %llu: %d tokens, expected %d of step %llu",
                   (unsigned long long)result->step, result->n_sampled, f->n, (unsigned long long)f->step);
    for (int i = 0; i < f->n; i++) {
        struct request *r = f->request[i];
        r->n_in_flight--;
        if (r->finish != FINISH_NONE)
            continue; /* ended in an earlier step: this token was sampled for nothing */
        if (request_take(r, s->setup.tokenizer, &result->sampled[i], e) != 0)
            return -1;
        if (r->finish != FINISH_NONE)
            retire(s, r);
        if (s->setup.on_progress != NULL)
            s->setup.on_progress(s->setup.context, r);
    }
    return 0;
}
