/* coordinator/schedule/scheduler.c - adding requests, taking results and releasing requests: scheduler.h except
 * scheduler_plan. */
#include "coordinator/schedule/scheduler_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int open_blocks(struct scheduler *s, struct err *e)
{
    const struct limits *l = &s->setup.limits;
    s->n_kinds = limits_kinds(l);
    for (int kind = 0; kind < s->n_kinds; kind++) {
        struct blocks *b = &s->blocks[kind];
        const struct blocks_source *source = &s->setup.source[kind];
        int n = limits_blocks(l, kind);
        if ((source->more != NULL ? blocks_open_shared(b, n, source, e) : blocks_open(b, n, e)) != 0)
            return -1;
    }
    return 0;
}

int scheduler_open(struct scheduler *s, const struct scheduler_setup *setup, struct err *e)
{
    const struct limits *l = &setup->limits;
    memset(s, 0, sizeof *s);
    s->setup = *setup;
    s->next_deadline = INFINITY;
    if (l->max_batch_tokens < l->max_seqs)
        return ERR(e, ERR_INTERNAL, "%d tokens per step, expected one for each of %d sequences at least",
                   l->max_batch_tokens, l->max_seqs);
    s->running = err_calloc(e, (size_t)l->max_seqs, sizeof(struct request *), "scheduler");
    s->turn = err_calloc(e, (size_t)l->max_seqs, sizeof(struct request *), "scheduler");
    s->growing = err_calloc(e, (size_t)l->max_seqs + 1, sizeof *s->growing, "scheduler");
    lengths_begin(&s->lengths);
    s->free_slot = err_calloc(e, (size_t)l->max_seqs, sizeof *s->free_slot, "scheduler");
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++) {
        s->flight[i].request = err_calloc(e, (size_t)l->max_seqs, sizeof(struct request *), "scheduler");
        s->flight[i].rows = err_calloc(e, (size_t)l->max_seqs, sizeof *s->flight[i].rows, "scheduler");
        s->flight[i].scores = err_calloc(e, (size_t)l->max_seqs, sizeof *s->flight[i].scores, "scheduler");
    }
    if (e->code != ERR_NONE || open_blocks(s, e) != 0)
        return -1;
    for (int i = l->max_seqs - 1; i >= 0; i--)
        s->free_slot[s->n_free_slots++] = i;
    if (scheduler_draft_places(s) > 0 && setup->guesses.shared && corpus_open(&s->answers, e) != 0)
        return -1;
    return drafter_open(s, e);
}

void scheduler_close(struct scheduler *s)
{
    free(s->running);
    free(s->turn);
    free(s->growing);
    order_close(s);
    free(s->free_slot);
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++) {
        free(s->flight[i].request);
        free(s->flight[i].rows);
        free(s->flight[i].scores);
    }
    drafter_close(s);
    corpus_close(&s->answers);
    for (int kind = 0; kind < KV_KINDS; kind++)
        blocks_close(&s->blocks[kind]);
    memset(s, 0, sizeof *s);
}

int scheduler_max_len(const struct scheduler *s)
{
    return kv_longest(s);
}

bool scheduler_busy(const struct scheduler *s)
{
    return s->n_waiting + s->n_running + s->n_parked > 0;
}

uint64_t scheduler_family(struct scheduler *s)
{
    return s->setup.prefix_caching ? 0 : blocks_name(&s->blocks[KV_MAIN]);
}

int scheduler_draft_places(const struct scheduler *s)
{
    return s->setup.limits.max_drafts > 0 ? s->setup.guesses.most : 0;
}

struct scheduler_stats scheduler_stats(const struct scheduler *s)
{
    struct scheduler_stats stats = s->stats;
    stats.n_running = s->n_running;
    stats.n_waiting = s->n_waiting;
    stats.n_blocks = s->blocks[KV_MAIN].n;
    stats.n_window_blocks = s->blocks[KV_WINDOWED].n;
    stats.n_window_blocks_used = s->blocks[KV_WINDOWED].n - s->blocks[KV_WINDOWED].n_free;
    stats.n_draft_places = scheduler_draft_places(s);
    stats.n_blocks_used = s->blocks[KV_MAIN].n - s->blocks[KV_MAIN].n_free;
    return stats;
}

/* ---- requests come and go ---- */

/* Memory for scores, if requested. They use the rows of logits that max_seqs leaves. */
static int reserve_scores(const struct scheduler *s, struct request *r, struct err *e)
{
    const struct limits *l = &s->setup.limits;
    if (!r->rules->want_prompt_logprobs)
        return 0;
    if (l->max_logit_rows <= l->max_seqs + l->max_drafts)
        return ERR(e, ERR_INTERNAL, "%d rows of logits for %d sequences: none is left to score prompts with",
                   l->max_logit_rows, l->max_seqs);
    r->prompt_logprobs = err_calloc(e, r->prompt.n - 1, sizeof *r->prompt_logprobs, "prompt logprobs");
    return r->prompt_logprobs != NULL ? 0 : -1;
}

static int begin_form(struct scheduler *s, struct request *r, struct err *e)
{
    if (r->rules->form == NULL)
        return 0;
    if (s->setup.lexicon == NULL || r->steered)
        return ERR(e, ERR_INTERNAL, "a request with a form, where none is possible");
    const struct lexicon *l = lexicon_keeper_get(s->setup.lexicon, e);
    return l != NULL ? request_begin_form(r, l, s->setup.limits.mask_words, e) : -1;
}

static int enqueue(struct scheduler *s, struct request *r, double now, struct err *e)
{
    s->now = now;
    r->slot = -1;
    if (kv_open(s, r, e) != 0 || begin_form(s, r, e) != 0 || order_join(s, r, e) != 0)
        return -1;
    r->times.arrived = now;
    order_wait(s, r);
    return 0;
}

int scheduler_add(struct scheduler *s, struct request *r, double now, struct err *e)
{
    if (s->setup.max_waiting > 0 && s->n_waiting >= s->setup.max_waiting)
        return SCHEDULER_FULL;
    r->arrival = s->n_arrived++;
    return reserve_scores(s, r, e) == 0 ? enqueue(s, r, now, e) : -1;
}

int scheduler_fork(struct scheduler *s, struct request *child, const struct request *parent, double now, struct err *e)
{
    child->client = parent->client;
    child->party = parent->party;
    child->arrival = parent->arrival;
    child->n_scores_planned = (int)child->prompt.n; /* they belong to its parent */
    return enqueue(s, child, now, e);
}

static void leave(struct scheduler *s, struct request *r)
{
    if (r->state == REQUEST_RUNNING)
        order_stop(s, r);
    else if (r->state == REQUEST_WAITING)
        order_leave_queue(s, r);
    else if (r->state == REQUEST_PARKED)
        s->n_parked--;
    r->state = REQUEST_IDLE;
    order_leave(s, r);
}

void scheduler_note_finish(struct scheduler *s, enum finish_reason why)
{
    s->stats.n_finished[why]++;
}

static void end_request(struct scheduler *s, struct request *r)
{
    leave(s, r);
    guesses_close(&r->guesses);
    if (s->answers != NULL && !r->steered)
        corpus_add(s->answers, r->output.id, r->output.n);
    r->times.finished = s->now;
    growth_learn(s, r);
    if (!r->steered)
        scheduler_note_finish(s, r->finish);
}

static void release_if_done(struct scheduler *s, struct request *r)
{
    if (r->finish != FINISH_NONE && r->n_in_flight == 0 && r->n_score_flights == 0 && s->setup.on_release != NULL)
        s->setup.on_release(s->setup.context, r);
}

static void tell_progress(struct scheduler *s, struct request *r)
{
    const struct request *outer = s->in_event;
    s->in_event = r;
    if (s->setup.on_progress != NULL)
        s->setup.on_progress(s->setup.context, r);
    s->in_event = outer;
    release_if_done(s, r);
}

void scheduler_cancel(struct scheduler *s, struct request *r, enum finish_reason why, double now)
{
    if (r->finish != FINISH_NONE)
        return;
    s->now = now;
    r->finish = why;
    end_request(s, r);
    if (r != s->in_event) /* else tell_progress does */
        release_if_done(s, r);
}

/* The first one of a list whose deadline has passed, or NULL; s gets the earliest deadline of the others. */
static struct request *find_late(struct scheduler *s, struct request **list, int n, double now)
{
    for (int i = 0; i < n; i++) {
        if (list[i]->deadline <= 0)
            continue;
        if (list[i]->deadline <= now)
            return list[i];
        s->next_deadline = fmin(s->next_deadline, list[i]->deadline);
    }
    return NULL;
}

void scheduler_expire(struct scheduler *s, double now)
{
    while (now >= s->next_deadline) {
        s->next_deadline = INFINITY;
        struct request *r = find_late(s, s->running, s->n_running, now);
        for (int i = 0; i < s->n_queues; i++)
            r = r != NULL ? r : find_late(s, s->queue[i]->waiting, s->queue[i]->n_waiting, now);
        if (r == NULL)
            return;
        s->next_deadline = now; /* there may be more */
        r->finish = FINISH_TIMEOUT;
        end_request(s, r);
        tell_progress(s, r);
    }
}

/* ---- results ---- */

/* more: the step has further tokens of r. */
static int take_sampled(struct scheduler *s, struct request *r, const struct sampled *sampled, bool more, struct err *e)
{
    if (r->output.n == 0) {
        r->times.first_token = s->now;
        s->stats.n_prompt_tokens += r->prompt.n;
        s->stats.n_prompt_cached += (uint64_t)r->n_cached;
    }
    size_t before = r->output.n;
    if (r->steered) {
        s->stats.n_output_tokens++;
        r->newest = sampled;
        tell_progress(s, r);
        return 0;
    }
    if (request_take(r, s->setup.tokenizer, sampled, more, e) != 0)
        return -1;
    s->stats.n_output_tokens += r->output.n - before;
    form_note_jump(r, r->output.n - before);
    if (r->state == REQUEST_RUNNING)
        prefix_share(s, r);
    if (r->finish != FINISH_NONE)
        end_request(s, r);
    tell_progress(s, r);
    return 0;
}

/* Gives the scores of a step to the requests that still exist. */
static int take_scores(struct scheduler *s, const struct flight *f, const struct step_result *result, struct err *e)
{
    int at = 0;
    for (int i = 0; i < f->n_scores; i++) {
        const struct scores *got = &f->scores[i];
        if (got->n > result->n_scored - at)
            return ERR(e, ERR_INTERNAL, "results of step %llu: %d scores, expected more",
                       (unsigned long long)result->step, result->n_scored);
        if (got->request->finish == FINISH_NONE) {
            memcpy(got->request->prompt_logprobs + got->first, result->scored + at,
                   (size_t)got->n * sizeof *result->scored);
            got->request->n_scored += got->n;
        }
        at += got->n;
        got->request->n_score_flights--;
        release_if_done(s, got->request);
    }
    return 0;
}

static void note_accepted(struct scheduler *s, struct request *r, int position)
{
    s->stats.n_accepted[position]++;
    r->drafts.n_accepted[position]++;
}

/* Processes the tokens that a step sampled for r, which is not released before its last token. */
static int take_rows(struct scheduler *s, struct request *r, const struct sampled *sampled, int n, struct err *e)
{
    bool dropped = form_drops(r);
    n = dropped ? 0 : drafts_settle(s, r, sampled, n);
    for (int i = 0; i < n && r->finish == FINISH_NONE; i++) {
        bool last = i + 1 == n;
        if (i > 0)
            note_accepted(s, r, i - 1);
        r->n_in_flight -= last;
        if (take_sampled(s, r, &sampled[i], !last, e) != 0)
            return -1;
        if (last)
            return 0; /* r may be gone */
    }
    r->n_in_flight--;
    release_if_done(s, r); /* it has ended, or its text was known: this sample is dropped */
    return 0;
}

/* Records the duration of the step whose results have come: from the results of the previous step or from its plan,
 * whichever was later. */
static void measure(struct scheduler *s, const struct flight *f)
{
    double seconds = s->now - (f->planned > s->accepted ? f->planned : s->accepted);
    drafts_measure(s, f, seconds);
    bound_measure(s, f, seconds);
    s->accepted = s->now;
}

int scheduler_accept(struct scheduler *s, const struct step_result *result, double now, struct err *e)
{
    struct flight *f = &s->flight[result->step % SCHEDULER_FLIGHTS];
    if (f->step != result->step || f->n_rows != result->n_sampled)
        return ERR(e, ERR_INTERNAL, "results of step %llu: %d tokens, expected %d of step %llu",
                   (unsigned long long)result->step, result->n_sampled, f->n_rows, (unsigned long long)f->step);
    s->now = now;
    if (f->of_draft_model) {
        drafter_accept(s, result);
        s->accepted = now; /* the main step that was planned after it begins now */
        return 0;
    }
    measure(s, f);
    if (take_scores(s, f, result, e) != 0)
        return -1;
    for (int i = 0, row = 0; i < f->n; row += f->rows[i], i++)
        if (take_rows(s, f->request[i], result->sampled + row, f->rows[i], e) != 0)
            return -1;
    return 0;
}

int scheduler_continue(struct scheduler *s, struct request *r, const struct sampled *token, struct err *e)
{
    if (request_append(r, token, e) != 0)
        return -1;
    if (r->state == REQUEST_PARKED) {
        s->n_parked--;
        order_wait(s, r);
    }
    return 0;
}
