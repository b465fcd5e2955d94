/* coordinator/replicas/report_code.c - see report_code.h. */
#include "coordinator/replicas/report_code.h"
#include "coordinator/replicas/order_code.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)1 << 40) /* bounded by the message only */

/* A field more has to travel, too: see to it, then change the size. */
_Static_assert(sizeof(struct report) == 936 && sizeof(struct delta) == 80 && sizeof(struct sampled) == 172,
               "put_... and get_... know every field");

/* ---- out ---- */

static void put_text(struct wire_out *w, const char *text, size_t bytes)
{
    wire_put_array(w, text, bytes, 1);
}

/* n tokens, with the n_top likeliest beside each. */
static void put_sampled(struct wire_out *w, const struct sampled *s, size_t n, int n_top)
{
    wire_put_u64(w, n);
    for (size_t i = 0; i < n; i++) {
        wire_put_i32(w, s[i].token);
        wire_put_f32(w, s[i].logprob);
        wire_put(w, s[i].top_id, (size_t)n_top * sizeof s[i].top_id[0]);
        wire_put(w, s[i].top_logprob, (size_t)n_top * sizeof s[i].top_logprob[0]);
    }
}

static void put_age(struct wire_out *w, double at, double now)
{
    wire_put_f64(w, at > 0 ? now - at : -1);
}

static void put_histogram(struct wire_out *w, const struct histogram *h)
{
    wire_put(w, h->count, sizeof h->count);
    wire_put_u64(w, h->n);
    wire_put_f64(w, h->sum);
}

static void put_numbers(struct wire_out *w, const struct report *r)
{
    wire_put(w, &r->stats, sizeof r->stats);
    put_histogram(w, &r->between_tokens);
    put_histogram(w, &r->iteration);
    wire_put_u64(w, r->n_steps);
    wire_put_f64(w, r->step_seconds);
    wire_put_array(w, r->ranks, r->ranks != NULL ? (size_t)r->n_ranks : 0, sizeof *r->ranks);
    wire_put_array(w, r->recent, r->ranks != NULL ? (size_t)r->n_ranks : 0, sizeof *r->recent);
}

/* NULL: nothing has failed. */
static void put_err(struct wire_out *w, const struct err *e)
{
    enum err_code code = e != NULL ? e->code : ERR_NONE;
    wire_put_i32(w, (int32_t)code);
    if (code != ERR_NONE)
        put_text(w, e->text, strlen(e->text));
}

static void put_delta(struct wire_out *w, const struct delta *p)
{
    wire_put_u64(w, p->task->number);
    wire_put_i32(w, p->prompt_index);
    wire_put_i32(w, p->choice);
    put_text(w, p->text, p->bytes);
    wire_put_array(w, p->id, p->n_ids, sizeof *p->id);
    put_sampled(w, p->logprobs, p->logprobs != NULL ? p->n_ids : 0, p->task->rules[p->prompt_index].sampling.n_top);
    wire_put_i32(w, (int32_t)p->finish);
    put_err(w, p->error);
    wire_put_i32(w, p->stop_text);
}

/* A choice that never began, without a request. */
static void put_choice(struct wire_out *w, const struct choices *set, int c)
{
    const struct request *r = set->choice != NULL ? set->choice[c] : NULL;
    wire_put_u8(w, r != NULL);
    if (r == NULL)
        return;
    wire_put_i32(w, (int32_t)r->finish);
    put_err(w, &r->error);
    wire_put_i32(w, r->stop.found);
    put_text(w, r->text.data, r->released);
    wire_put_array(w, r->output.id, r->output.n, sizeof *r->output.id);
    put_sampled(w, r->logprobs, set->rules->want_logprobs && r->logprobs != NULL ? r->output.n : 0,
                set->rules->sampling.n_top);
    wire_put_f32(w, set->score != NULL ? set->score[c] : 0);
}

static void put_drafts(struct wire_out *w, const struct draft_counts *c)
{
    wire_put_i32(w, c->n_places);
    wire_put_u64(w, (uint64_t)c->n_steps);
    wire_put_u64(w, (uint64_t)c->n_tokens);
    for (int i = 0; i < c->n_places; i++)
        wire_put_u64(w, (uint64_t)c->n_accepted[i]);
}

static void put_choices(struct wire_out *w, const struct choices *set, double now)
{
    const double at[] = {set->times.arrived, set->times.scheduled, set->times.first_token, set->times.finished};
    wire_put_i32(w, (int32_t)set->finish);
    put_err(w, &set->error);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++)
        put_age(w, at[i], now);
    wire_put_i32(w, set->n_cached);
    put_drafts(w, &set->drafts);
    put_sampled(w, set->prompt_logprobs, set->prompt_logprobs != NULL ? set->prompt.n - 1 : 0,
                set->rules->sampling.n_prompt_top);
    for (int c = 0; c < set->search.n; c++)
        put_choice(w, set, c);
}

static void put_done(struct wire_out *w, const struct task *task, double now)
{
    wire_put_u64(w, task->number);
    wire_put_i32(w, task->error.code);
    put_text(w, task->error.field, strlen(task->error.field));
    put_text(w, task->error.message, strlen(task->error.message));
    for (int i = 0; i < task->n_prompts; i++)
        put_choices(w, &task->choices[i], now);
}

void report_encode(struct wire_out *w, const struct report *r, double now)
{
    uint64_t n_deltas = 0, n_done = 0;
    wire_put_u8(w, LINK_REPORT);
    wire_put_u8(w, r->loaded);
    wire_put_u8(w, r->ended);
    wire_put_i32(w, r->max_len);
    wire_put_i32(w, r->n_blocks);
    wire_put_i32(w, r->max_seqs);
    wire_put_i32(w, r->n_units);
    put_numbers(w, r);
    for (const struct delta *p = r->first; p != NULL; p = p->next)
        n_deltas++;
    wire_put_u64(w, n_deltas);
    for (const struct delta *p = r->first; p != NULL; p = p->next)
        put_delta(w, p);
    for (const struct task *task = r->done; task != NULL; task = task->work.next)
        n_done++;
    wire_put_u64(w, n_done);
    for (const struct task *task = r->done; task != NULL; task = task->work.next)
        put_done(w, task, now);
}

/* ---- in ---- */

static int32_t get_id(struct wire_in *w, int vocab)
{
    return wire_get_i32(w, 0, vocab - 1, "a token");
}

static int32_t *get_tokens(struct wire_in *w, size_t *n, int vocab)
{
    int32_t *id = wire_get_array(w, n, MAX_BYTES, sizeof *id, "tokens");
    for (size_t i = 0; i < *n; i++)
        if (id[i] < 0 || id[i] >= vocab)
            wire_fail(w, "a token");
    return id;
}

/* Minus infinity stands for tokens that cannot be sampled. */
static float get_logprob(struct wire_in *w)
{
    float x = 0;
    (void)wire_get(w, &x, sizeof x);
    if (isnan(x))
        wire_fail(w, "a log-probability");
    return isnan(x) ? 0 : x;
}

/* Exactly `expected` or none (NULL). */
static struct sampled *get_sampled(struct wire_in *w, size_t expected, int n_top, int vocab)
{
    size_t n = wire_get_count(w, MAX_BYTES, 8 + 8 * (size_t)n_top, "log-probabilities");
    if (n != 0 && n != expected)
        wire_fail(w, "the number of log-probabilities");
    struct sampled *s = n > 0 && w->wrong == NULL ? calloc(n, sizeof *s) : NULL;
    if (s == NULL && n > 0)
        wire_fail(w, "host memory");
    for (size_t i = 0; s != NULL && i < n; i++) {
        s[i].token = get_id(w, vocab);
        s[i].logprob = get_logprob(w);
        for (int k = 0; k < n_top; k++)
            s[i].top_id[k] = get_id(w, vocab);
        for (int k = 0; k < n_top; k++)
            s[i].top_logprob[k] = get_logprob(w);
    }
    return s;
}

static double get_time(struct wire_in *w, double now)
{
    double age = wire_get_f64(w);
    return age >= 0 ? now - age : 0;
}

static void get_histogram(struct wire_in *w, struct histogram *h, const struct buckets *buckets)
{
    h->buckets = buckets;
    (void)wire_get(w, h->count, sizeof h->count);
    h->n = wire_get_u64(w);
    h->sum = wire_get_f64(w);
}

static struct rank_stats *get_ranks(struct wire_in *w, size_t *n, int n_ranks)
{
    struct rank_stats *r = wire_get_array(w, n, (size_t)n_ranks, sizeof *r, "figures of ranks");
    if (*n != 0 && *n != (size_t)n_ranks)
        wire_fail(w, "figures of ranks");
    for (size_t i = 0; i < *n; i++)
        r[i].host[sizeof r[i].host - 1] = '\0';
    if (*n > 0)
        return r;
    free(r);
    return NULL;
}

static void get_numbers(struct wire_in *w, struct report *r, int n_ranks)
{
    size_t n = 0, n_recent = 0;
    (void)wire_get(w, &r->stats, sizeof r->stats);
    get_histogram(w, &r->between_tokens, &buckets_token);
    get_histogram(w, &r->iteration, &buckets_iteration);
    r->n_steps = wire_get_u64(w);
    r->step_seconds = wire_get_f64(w);
    r->ranks = get_ranks(w, &n, n_ranks);
    r->recent = get_ranks(w, &n_recent, n_ranks);
    if (n != n_recent)
        wire_fail(w, "figures of ranks");
    r->n_ranks = (int)n;
}

static enum finish_reason get_finish(struct wire_in *w, const char *what)
{
    return (enum finish_reason)wire_get_i32(w, FINISH_NONE, FINISH_ERROR, what);
}

static int get_stop_text(struct wire_in *w, const struct request_rules *rules)
{
    return wire_get_i32(w, 0, rules->stop != NULL ? rules->stop->n : 0, "a stop text's number");
}

static void get_short_text(struct wire_in *w, char *text, size_t bytes, const char *what)
{
    size_t n = wire_get_count(w, bytes - 1, 1, what);
    (void)wire_get(w, text, n);
    text[n] = '\0';
}

static void get_err(struct wire_in *w, struct err *e)
{
    e->code = (enum err_code)wire_get_i32(w, ERR_NONE, ERR_RESUME, "an error's code");
    if (e->code != ERR_NONE)
        get_short_text(w, e->text, sizeof e->text, "an error's text");
}

/* NULL: there is none. */
static struct err *get_new_err(struct wire_in *w)
{
    struct err got = {0}, *e;
    get_err(w, &got);
    if (got.code == ERR_NONE)
        return NULL;
    if ((e = malloc(sizeof *e)) == NULL)
        wire_fail(w, "host memory");
    else
        *e = got;
    return e;
}

static void get_delta(struct wire_in *w, struct report *r, const struct report_rules *is)
{
    struct task *task = is->find(is->context, wire_get_u64(w), false);
    struct delta *p = task != NULL ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) {
        wire_fail(w, task == NULL ? "a delta of a task that does not exist" : "host memory");
        return;
    }
    p->task = task;
    p->prompt_index = wire_get_i32(w, 0, task->n_prompts - 1, "a delta's prompt");
    p->choice = wire_get_i32(w, 0, task->n_choices - 1, "a delta's choice");
    p->text = wire_get_array(w, &p->bytes, MAX_BYTES, 1, "a text");
    p->id = get_tokens(w, &p->n_ids, is->vocab);
    p->logprobs = get_sampled(w, p->n_ids, task->rules[p->prompt_index].sampling.n_top, is->vocab);
    p->finish = get_finish(w, "how a delta ends");
    p->error = get_new_err(w);
    p->stop_text = get_stop_text(w, &task->rules[p->prompt_index]);
    if (r->last != NULL)
        r->last->next = p;
    else
        r->first = p;
    r->last = p;
}

/* Into rank 0's request, which has never run. */
static void get_choice(struct wire_in *w, struct choices *set, int c, int vocab)
{
    if (!wire_get_bool(w)) {
        set->choice[c] = NULL;
        return;
    }
    struct request *r = set->choice[c];
    r->finish = get_finish(w, "how a choice ended");
    get_err(w, &r->error);
    r->stop.found = get_stop_text(w, set->rules);
    r->text.data = wire_get_array(w, &r->text.bytes, MAX_BYTES, 1, "a text");
    r->text.capacity = r->text.bytes;
    r->released = r->text.bytes;
    r->output.id = get_tokens(w, &r->output.n, vocab);
    r->output.capacity = r->output.n;
    r->logprobs = get_sampled(w, r->output.n, set->rules->sampling.n_top, vocab);
    float score = get_logprob(w);
    if (set->score != NULL)
        set->score[c] = score;
}

/* Checks that no more drafts were accepted than fed, and at no position more than at the previous one. */
static void get_drafts(struct wire_in *w, struct draft_counts *c)
{
    c->n_places = wire_get_i32(w, 0, DRAFTS_MAX, "drafts of a step");
    uint64_t steps = wire_get_u64(w), tokens = wire_get_u64(w), most = steps, right = 0;
    bool good = tokens <= INT64_MAX && steps <= tokens;
    for (int i = 0; i < c->n_places; i++) {
        uint64_t n = wire_get_u64(w);
        good = good && n <= most && n <= tokens - right;
        most = n;
        right += n;
        c->n_accepted[i] = good ? (int64_t)n : 0;
    }
    c->n_steps = good ? (int64_t)steps : 0;
    c->n_tokens = good ? (int64_t)tokens : 0;
    if (!good)
        wire_fail(w, "drafts that were right");
}

static void get_choices(struct wire_in *w, struct choices *set, int vocab, double now)
{
    set->finish = get_finish(w, "how a prompt ended");
    get_err(w, &set->error);
    set->times.arrived = get_time(w, now);
    set->times.scheduled = get_time(w, now);
    set->times.first_token = get_time(w, now);
    set->times.finished = get_time(w, now);
    set->n_cached = wire_get_i32(w, 0, (int32_t)set->prompt.n, "tokens from the cache");
    get_drafts(w, &set->drafts);
    set->prompt_logprobs = get_sampled(w, set->prompt.n - 1, set->rules->sampling.n_prompt_top, vocab);
    for (int c = 0; c < set->search.n && w->wrong == NULL; c++)
        get_choice(w, set, c, vocab);
}

static void get_done(struct wire_in *w, struct report *r, const struct report_rules *is, double now)
{
    struct task *task = is->find(is->context, wire_get_u64(w), true);
    if (task == NULL) {
        wire_fail(w, "a task that does not exist");
        return;
    }
    task->work.previous = NULL;
    task->work.next = r->done;
    r->done = task;
    task->error.code = wire_get_i32(w, 0, 599, "an error's code");
    get_short_text(w, task->error.field, sizeof task->error.field, "an error's field");
    get_short_text(w, task->error.message, sizeof task->error.message, "an error's text");
    for (int i = 0; i < task->n_prompts && w->wrong == NULL; i++)
        get_choices(w, &task->choices[i], is->vocab, now);
}

static void get_report(struct wire_in *w, struct report *r, const struct report_rules *is, double now)
{
    if (wire_get_u8(w) != LINK_REPORT)
        wire_fail(w, "the message's kind");
    r->loaded = wire_get_bool(w);
    r->ended = wire_get_bool(w);
    r->max_len = wire_get_i32(w, 0, INT32_MAX, "the context's length");
    r->n_blocks = wire_get_i32(w, 0, INT32_MAX, "the number of blocks");
    r->max_seqs = wire_get_i32(w, 0, INT32_MAX, "the number of sequences");
    r->n_units = wire_get_i32(w, 0, INT32_MAX, "the number of units");
    get_numbers(w, r, is->n_ranks);
    size_t n = wire_get_count(w, MAX_BYTES, 8, "the number of deltas");
    for (size_t i = 0; i < n && w->wrong == NULL; i++)
        get_delta(w, r, is);
    n = wire_get_count(w, MAX_BYTES, 8, "the number of tasks");
    for (size_t i = 0; i < n && w->wrong == NULL; i++)
        get_done(w, r, is, now);
}

struct report *report_decode(const void *data, size_t bytes, const struct report_rules *rules, double now,
                             struct err *e)
{
    struct wire_in w = {data, bytes, NULL};
    struct report *r = err_calloc(e, 1, sizeof *r, "report");
    if (r == NULL)
        return NULL;
    get_report(&w, r, rules, now);
    if (wire_end(&w, "a report of a replica", e) == 0)
        return r;
    steps_report_free(r);
    return NULL;
}
