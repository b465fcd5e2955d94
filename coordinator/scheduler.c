/* coordinator/scheduler.c - see scheduler.h. */
#include "coordinator/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int scheduler_open(struct scheduler *s, const struct scheduler_setup *setup, struct err *e)
{
    const struct limits *l = &setup->limits;
    memset(s, 0, sizeof *s);
    s->setup = *setup;
    s->next_deadline = INFINITY;
    if (l->max_batch_tokens < l->max_seqs)
        return ERR(e, ERR_INTERNAL, "%d tokens a step, expected one for each of %d sequences at least",
                   l->max_batch_tokens, l->max_seqs);
    s->running = err_calloc(e, (size_t)l->max_seqs, sizeof(struct request *), "scheduler");
    s->free_slot = err_calloc(e, (size_t)l->max_seqs, sizeof *s->free_slot, "scheduler");
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++) {
        s->flight[i].request = err_calloc(e, (size_t)l->max_seqs, sizeof(struct request *), "scheduler");
        s->flight[i].scores = err_calloc(e, (size_t)l->max_seqs, sizeof *s->flight[i].scores, "scheduler");
    }
    if (e->code != ERR_NONE || blocks_open(&s->blocks, l->n_blocks, e) != 0)
        return -1;
    for (int i = l->max_seqs - 1; i >= 0; i--)
        s->free_slot[s->n_free_slots++] = i;
    return 0;
}

void scheduler_close(struct scheduler *s)
{
    free(s->running);
    free(s->waiting);
    free(s->free_slot);
    for (int i = 0; i < SCHEDULER_FLIGHTS; i++) {
        free(s->flight[i].request);
        free(s->flight[i].scores);
    }
    blocks_close(&s->blocks);
    memset(s, 0, sizeof *s);
}

int scheduler_max_len(const struct scheduler *s)
{
    int64_t held = (int64_t)s->setup.limits.n_blocks * KV_BLOCK_TOKENS;
    return held < s->setup.limits.max_len ? (int)held : s->setup.limits.max_len;
}

bool scheduler_busy(const struct scheduler *s)
{
    return s->n_waiting + s->n_running + s->n_parked > 0;
}

uint64_t scheduler_family(struct scheduler *s)
{
    return s->setup.prefix_caching ? 0 : blocks_name(&s->blocks);
}

struct scheduler_stats scheduler_stats(const struct scheduler *s)
{
    struct scheduler_stats stats = s->stats;
    stats.n_running = s->n_running;
    stats.n_waiting = s->n_waiting;
    stats.n_blocks = s->blocks.n;
    stats.n_blocks_used = s->blocks.n - s->blocks.n_free;
    return stats;
}

/* ---- the tokens of a sequence ---- */

static int n_known(const struct request *r)
{
    return (int)(r->prompt.n + r->output.n);
}

static int32_t token_at(const struct request *r, int pos)
{
    return pos < (int)r->prompt.n ? r->prompt.id[pos] : r->output.id[pos - (int)r->prompt.n];
}

/* Tokens [begin, begin + n) of prompt and output to out. */
static void copy_tokens(const struct request *r, int begin, int n, int32_t *out)
{
    int from_prompt = (int)r->prompt.n - begin < n ? (int)r->prompt.n - begin : n;
    if (from_prompt > 0)
        memcpy(out, r->prompt.id + begin, (size_t)from_prompt * sizeof *out);
    for (int i = from_prompt > 0 ? from_prompt : 0; i < n; i++)
        out[i] = token_at(r, begin + i);
}

/* Are there tokens of the prompt whose scores are still to be planned? */
static bool wants_scores(const struct request *r)
{
    return r->rules->want_prompt_logprobs && r->n_scores_planned + 1 < (int)r->prompt.n;
}

/* How many tokens the sequence could feed now. The last one that it may get is never fed, and what a steered one gets is
 * not known before its owner says so. */
static int n_feedable(const struct request *r)
{
    if (r->steered)
        return n_known(r) - r->n_fed;
    if ((int)r->output.n + r->n_in_flight >= r->rules->max_tokens)
        return 0;
    return n_known(r) + r->n_in_flight - r->n_fed;
}

static int blocks_for(int n_tokens)
{
    return (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* ---- the order ---- */

static bool goes_before(const struct request *a, const struct request *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

static void heap_put(struct scheduler *s, int i, struct request *r)
{
    s->waiting[i] = r;
    r->place = i;
}

static void heap_up(struct scheduler *s, int i, struct request *r)
{
    for (; i > 0 && goes_before(r, s->waiting[(i - 1) / 2]); i = (i - 1) / 2)
        heap_put(s, i, s->waiting[(i - 1) / 2]);
    heap_put(s, i, r);
}

static void heap_down(struct scheduler *s, int i, struct request *r)
{
    for (int child = 2 * i + 1; child < s->n_waiting; i = child, child = 2 * i + 1) {
        if (child + 1 < s->n_waiting && goes_before(s->waiting[child + 1], s->waiting[child]))
            child++;
        if (!goes_before(s->waiting[child], r))
            break;
        heap_put(s, i, s->waiting[child]);
    }
    heap_put(s, i, r);
}

static void wait_in_line(struct scheduler *s, struct request *r)
{
    r->state = REQUEST_WAITING;
    if (r->deadline > 0 && r->deadline < s->next_deadline)
        s->next_deadline = r->deadline;
    heap_up(s, s->n_waiting++, r);
}

static void leave_line(struct scheduler *s, struct request *r)
{
    int i = r->place;
    struct request *last = s->waiting[--s->n_waiting];
    if (last != r) {
        heap_down(s, i, last);
        heap_up(s, last->place, last);
    }
    if (s->blocked == r)
        s->blocked = NULL;
    r->state = REQUEST_IDLE;
}

/* Where r stands, or would stand, among the running. Requests of one group have the same arrival. */
static int place_among_running(const struct scheduler *s, const struct request *r)
{
    int low = 0, high = s->n_running;
    while (low < high) {
        int middle = (low + high) / 2;
        if (goes_before(s->running[middle], r))
            low = middle + 1;
        else
            high = middle;
    }
    while (low < s->n_running && s->running[low] != r && !goes_before(r, s->running[low]))
        low++;
    return low;
}

static void insert_running(struct scheduler *s, struct request *r)
{
    int at = place_among_running(s, r);
    memmove(&s->running[at + 1], &s->running[at], (size_t)(s->n_running - at) * sizeof(struct request *));
    s->running[at] = r;
    s->n_running++;
    r->state = REQUEST_RUNNING;
}

/* Give slot and blocks back. A plan that still carries the sequence writes into its blocks before any later plan does, since
 * steps run in order. */
static void remove_running(struct scheduler *s, struct request *r)
{
    int at = place_among_running(s, r);
    s->n_running--;
    memmove(&s->running[at], &s->running[at + 1], (size_t)(s->n_running - at) * sizeof(struct request *));
    s->free_slot[s->n_free_slots++] = r->slot;
    while (r->n_blocks > 0)
        blocks_give_back(&s->blocks, r->block[--r->n_blocks]);
    r->slot = -1;
    r->n_fed = 0;
    r->state = REQUEST_IDLE;
}

/* ---- requests come and go ---- */

/* A place in the heap for everybody, so that nothing has to be allocated when one is preempted. */
static int reserve_place(struct scheduler *s, struct err *e)
{
    int n = s->n_waiting + s->n_running + s->n_parked + 1;
    if (n <= s->waiting_capacity)
        return 0;
    struct request **waiting = realloc(s->waiting, 2 * (size_t)n * sizeof(struct request *));
    if (waiting == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: a queue of %d requests", 2 * n);
    s->waiting = waiting;
    s->waiting_capacity = 2 * n;
    return 0;
}

/* Memory for scores, if they are wanted. What max_seqs leaves of the rows of logits is theirs. */
static int reserve_scores(const struct scheduler *s, struct request *r, struct err *e)
{
    const struct limits *l = &s->setup.limits;
    if (!r->rules->want_prompt_logprobs)
        return 0;
    if (l->max_logit_rows <= l->max_seqs)
        return ERR(e, ERR_INTERNAL, "%d rows of logits for %d sequences: none is left to score prompts with",
                   l->max_logit_rows, l->max_seqs);
    r->prompt_logprobs = err_calloc(e, r->prompt.n - 1, sizeof *r->prompt_logprobs, "prompt logprobs");
    return r->prompt_logprobs != NULL ? 0 : -1;
}

static int enqueue(struct scheduler *s, struct request *r, double now, struct err *e)
{
    s->now = now;
    r->slot = -1;
    if (reserve_place(s, e) != 0)
        return -1;
    r->block =
        err_calloc(e, (size_t)blocks_for((int)r->prompt.n + r->rules->max_tokens), sizeof *r->block, "KV block list");
    if (r->block == NULL)
        return -1;
    r->times.arrived = now;
    wait_in_line(s, r);
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
    child->arrival = parent->arrival;
    child->n_scores_planned = (int)child->prompt.n; /* they are its parent's */
    return enqueue(s, child, now, e);
}

static void leave(struct scheduler *s, struct request *r)
{
    if (r->state == REQUEST_RUNNING)
        remove_running(s, r);
    else if (r->state == REQUEST_WAITING)
        leave_line(s, r);
    else if (r->state == REQUEST_PARKED)
        s->n_parked--;
    r->state = REQUEST_IDLE;
}

void scheduler_note_finish(struct scheduler *s, enum finish_reason why)
{
    s->stats.n_finished[why]++;
}

static void end(struct scheduler *s, struct request *r)
{
    leave(s, r);
    r->times.finished = s->now;
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
    end(s, r);
    if (r != s->in_event) /* else tell_progress does */
        release_if_done(s, r);
}

/* The first one of a list whose time is over, or NULL; the earliest deadline of the others goes to s. */
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

static void expire(struct scheduler *s, double now)
{
    while (now >= s->next_deadline) {
        s->next_deadline = INFINITY;
        struct request *r = find_late(s, s->running, s->n_running, now);
        r = r != NULL ? r : find_late(s, s->waiting, s->n_waiting, now);
        if (r == NULL)
            return;
        s->next_deadline = now; /* there may be more */
        r->finish = FINISH_TIMEOUT;
        end(s, r);
        tell_progress(s, r);
    }
}

/* ---- the prefix cache ---- */

/* How many of its first tokens have keys and values that any sequence with the same tokens would have. */
static int n_sharable(const struct scheduler *s, const struct request *r)
{
    int limit = s->setup.rope_changes_at;
    if (!s->setup.prefix_caching && r->family == 0)
        return 0;
    if (limit == 0)
        return INT32_MAX;
    return (int)r->prompt.n <= limit ? limit : 0;
}

/* Put the blocks that have become full into the cache. */
static void share_blocks(struct scheduler *s, struct request *r)
{
    int n = r->n_fed < n_known(r) ? r->n_fed : n_known(r);
    if ((r->n_shared + 1) * KV_BLOCK_TOKENS > n)
        return;
    int sharable = n_sharable(s, r);
    n = n < sharable ? n : sharable;
    for (; (r->n_shared + 1) * KV_BLOCK_TOKENS <= n; r->n_shared++) {
        int32_t token[KV_BLOCK_TOKENS];
        copy_tokens(r, r->n_shared * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
        r->chain = blocks_share(&s->blocks, r->block[r->n_shared], r->chain, token, s->n_plans);
    }
}

/* How many of its tokens need not be fed if their blocks are there. */
static int n_skippable(const struct scheduler *s, const struct request *r)
{
    int n = n_known(r) - 1;                         /* the last one is fed: its logits are wanted */
    if (wants_scores(r) && n > r->n_scores_planned) /* what is not fed has no logits */
        n = r->n_scores_planned;
    int sharable = n_sharable(s, r);
    return n < sharable ? n : sharable;
}

/* Hold the longest known beginning. */
static void hold_known_blocks(struct scheduler *s, struct request *r)
{
    int n = n_skippable(s, r) / KV_BLOCK_TOKENS;
    r->chain = r->family;
    for (r->n_blocks = 0; r->n_blocks < n; r->n_blocks++) {
        int32_t token[KV_BLOCK_TOKENS];
        copy_tokens(r, r->n_blocks * KV_BLOCK_TOKENS, KV_BLOCK_TOKENS, token);
        int block = blocks_find(&s->blocks, r->chain, token, s->n_plans);
        if (block < 0)
            break;
        blocks_hold(&s->blocks, block);
        r->chain = s->blocks.block[block].name;
        r->block[r->n_blocks] = block;
    }
    r->n_shared = r->n_blocks;
}

/* ---- plans ---- */

static void add_block(struct request *r, int block, struct plan *p)
{
    p->block[p->n_blocks++] = (struct plan_block){r->slot, r->n_blocks, block};
    r->block[r->n_blocks++] = block;
}

/* Of the next n tokens of r, as many as there are rows of logits for. The row of a token scores the one after it. */
static int n_scorable(const struct scheduler *s, const struct request *r, int n)
{
    int first = r->n_fed > r->n_scores_planned ? r->n_fed : r->n_scores_planned, end = first + s->score_rows;
    if (!wants_scores(r) || end >= (int)r->prompt.n - 1)
        return n;
    return n < end - r->n_fed ? n : end - r->n_fed;
}

/* Tokens of the prompt that the newest sequence of the plan, with the tokens up to r->n_fed, scores. */
static void add_scores(struct scheduler *s, struct request *r, struct plan *p)
{
    struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    struct plan_seq *seq = &p->seq[p->n_seqs - 1];
    int end = r->n_fed < (int)r->prompt.n - 1 ? r->n_fed : (int)r->prompt.n - 1, n = end - r->n_scores_planned;
    if (!wants_scores(r) || n <= 0)
        return;
    seq->n_logits = r->n_fed - r->n_scores_planned;
    p->score[p->n_scores++] =
        (struct plan_score){p->n_seqs - 1, n, r->n_fed < (int)r->prompt.n ? r->prompt.id[r->n_fed] : -1};
    f->scores[f->n_scores++] = (struct scores){r, r->n_scores_planned, n};
    r->n_scores_planned = end;
    r->n_score_flights++;
    s->score_rows -= n;
}

/* The next n tokens of a running sequence; if they are all that there are, another one is sampled. */
static void add_tokens(struct scheduler *s, struct request *r, int n, struct plan *p)
{
    int last = n == n_feedable(r);
    int32_t *token = p->token + p->n_tokens;
    p->seq[p->n_seqs++] = (struct plan_seq){r->slot, n, r->n_fed, (int)r->prompt.n, last, last};
    if (r->in_slot)
        *token = -1; /* the one sampled last, which never leaves the device */
    else
        copy_tokens(r, r->n_fed, n, token);
    p->n_tokens += n;
    r->n_fed += n;
    add_scores(s, r, p);
    r->in_slot = last && !r->steered;
    if (last) {
        struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
        f->request[f->n++] = r;
        r->n_in_flight++;
    }
    share_blocks(s, r);
}

/* A running sequence makes room. A steered one that has nothing to feed comes back when its owner goes on. */
static void preempt(struct scheduler *s, struct request *r)
{
    bool parked = r->steered && n_feedable(r) == 0;
    remove_running(s, r);
    r->n_preempted++;
    s->stats.n_preemptions++;
    if (parked) {
        r->state = REQUEST_PARKED;
        s->n_parked++;
    } else {
        wait_in_line(s, r);
    }
}

/* Steered sequences keep slots and blocks while they wait for their owner, who may wait for one in line: the last of those
 * that do not go before r makes room for it. False: there is none. */
static bool park_for(struct scheduler *s, const struct request *r)
{
    for (int i = s->n_running - 1; i >= 0 && !goes_before(s->running[i], r); i--) {
        struct request *idle = s->running[i];
        if (idle->steered && n_feedable(idle) == 0 && idle->n_in_flight == 0) {
            preempt(s, idle);
            return true;
        }
    }
    return false;
}

/* Blocks for the next n tokens of r, at the cost of those behind it. False: r itself was the last and had to go. *n_decodes
 * counts sequences from r on that will feed one token. */
static bool grow(struct scheduler *s, struct request *r, int n, int *n_decodes, struct plan *p)
{
    while (r->n_blocks < blocks_for(r->n_fed + n)) {
        int block = blocks_take(&s->blocks);
        if (block >= 0) {
            add_block(r, block, p);
            continue;
        }
        struct request *last = s->running[s->n_running - 1];
        *n_decodes -= n_feedable(last) == 1;
        preempt(s, last);
        if (last == r)
            return false;
    }
    return true;
}

/* Those that run, in their order: a token each, and chunks that leave room for the tokens of those behind them. */
static void plan_running(struct scheduler *s, struct plan *p)
{
    int n_decodes = 0;
    for (int i = 0; i < s->n_running; i++)
        n_decodes += n_feedable(s->running[i]) == 1;
    for (int i = 0; i < s->n_running; i++) {
        struct request *r = s->running[i];
        int n = n_feedable(r), room = s->setup.limits.max_batch_tokens - p->n_tokens - n_decodes;
        if (n > 1)
            n = n < room ? n : room;
        n = n_scorable(s, r, n);
        if (n <= 0 || !grow(s, r, n, &n_decodes, p))
            continue;
        n_decodes -= n_feedable(r) == 1;
        add_tokens(s, r, n, p);
    }
}

/* Hold all blocks for what is known of r; false: there are too few, beside some for those that run to grow into. */
static bool reserve(struct scheduler *s, struct request *r)
{
    int n_free = s->blocks.n_free, spare = s->n_running > 0 ? s->blocks.n / 100 : 0;
    if (s->blocked == r && n_free < s->blocked_until && s->n_running > 0)
        return false;
    hold_known_blocks(s, r);
    int missing = blocks_for(n_known(r)) - r->n_blocks;
    s->blocked = NULL;
    if (s->blocks.n_free >= missing + spare)
        return true;
    s->blocked = r;
    s->blocked_until = n_free - s->blocks.n_free + missing + spare;
    while (r->n_blocks > 0)
        blocks_give_back(&s->blocks, r->block[--r->n_blocks]);
    return false;
}

static void note_start(struct scheduler *s, struct request *r)
{
    if (r->n_preempted > 0)
        return;
    r->times.scheduled = s->now;
    r->n_cached = r->n_fed;
    if (s->setup.prefix_caching && r->output.n == 0) { /* not a beam that goes on */
        s->stats.prefix_queries += (uint64_t)n_known(r);
        s->stats.prefix_hits += (uint64_t)r->n_fed;
    }
}

/* Penalties look at the tokens of the slot, also at those that are not fed. */
static bool needs_history(const struct request *r)
{
    const struct sampling *p = &r->rules->sampling;
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

static void add_history(const struct request *r, struct plan *p)
{
    struct plan_start *start = &p->start[p->n_starts - 1];
    start->n_history = r->n_fed;
    copy_tokens(r, 0, r->n_fed, p->history + p->n_history);
    p->n_history += r->n_fed;
}

static void start(struct scheduler *s, struct request *r, struct plan *p)
{
    leave_line(s, r);
    r->slot = s->free_slot[--s->n_free_slots];
    r->in_slot = false;
    r->n_fed = r->n_blocks * KV_BLOCK_TOKENS;
    p->start[p->n_starts] = (struct plan_start){.slot = r->slot, .sampling = r->rules->sampling};
    p->start[p->n_starts++].sampling.prompt_len = (int)r->prompt.n;
    if (needs_history(r))
        add_history(r, p);
    for (int i = 0; i < r->n_blocks; i++)
        p->block[p->n_blocks++] = (struct plan_block){r->slot, i, r->block[i]};
    while (r->n_blocks < blocks_for(n_known(r)))
        add_block(r, blocks_take(&s->blocks), p);
    insert_running(s, r);
    note_start(s, r);
}

/* The next ones in line, as long as they fit. One whose last token has not been seen yet cannot be fed. */
static void plan_waiting(struct scheduler *s, struct plan *p)
{
    while (s->n_waiting > 0) {
        struct request *r = s->waiting[0];
        int room = s->setup.limits.max_batch_tokens - p->n_tokens;
        if (room <= 0 || r->n_in_flight > 0 || (wants_scores(r) && s->score_rows == 0))
            return;
        if (needs_history(r) && p->n_history > 0 && p->n_history + n_known(r) > s->setup.limits.max_len)
            return; /* there is room for one in every plan */
        if (s->n_free_slots == 0 || !reserve(s, r)) {
            if (!park_for(s, r))
                return;
            continue;
        }
        start(s, r, p);
        int n = n_feedable(r);
        add_tokens(s, r, n_scorable(s, r, n < room ? n : room), p);
    }
}

void scheduler_plan(struct scheduler *s, struct plan *p, double now)
{
    struct flight *f = &s->flight[p->step % SCHEDULER_FLIGHTS];
    uint64_t n_preemptions = s->stats.n_preemptions;
    f->step = p->step;
    f->n = f->n_scores = 0;
    s->score_rows = s->setup.limits.max_logit_rows - s->setup.limits.max_seqs;
    s->n_plans++;
    s->now = now;
    expire(s, now);
    plan_running(s, p);
    if (s->stats.n_preemptions == n_preemptions)
        plan_waiting(s, p);
}

/* ---- results ---- */

static int take(struct scheduler *s, struct request *r, const struct sampled *sampled, struct err *e)
{
    if (r->output.n == 0) {
        r->times.first_token = s->now;
        s->stats.n_prompt_tokens += r->prompt.n;
        s->stats.n_prompt_cached += (uint64_t)r->n_cached;
    }
    s->stats.n_output_tokens++;
    if (r->steered) {
        r->newest = sampled;
        tell_progress(s, r);
        return 0;
    }
    if (request_take(r, s->setup.tokenizer, sampled, e) != 0)
        return -1;
    if (r->state == REQUEST_RUNNING)
        share_blocks(s, r);
    if (r->finish != FINISH_NONE)
        end(s, r);
    tell_progress(s, r);
    return 0;
}

/* The scores of a step, to the requests that are still there. */
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

int scheduler_accept(struct scheduler *s, const struct step_result *result, double now, struct err *e)
{
    struct flight *f = &s->flight[result->step % SCHEDULER_FLIGHTS];
    if (f->step != result->step || f->n != result->n_sampled)
        return ERR(e, ERR_INTERNAL, "results of step %llu: %d tokens, expected %d of step %llu",
                   (unsigned long long)result->step, result->n_sampled, f->n, (unsigned long long)f->step);
    s->now = now;
    if (take_scores(s, f, result, e) != 0)
        return -1;
    for (int i = 0; i < f->n; i++) {
        struct request *r = f->request[i];
        r->n_in_flight--;
        if (r->finish != FINISH_NONE)
            release_if_done(s, r); /* it ended in an earlier step: this token was sampled for nothing */
        else if (take(s, r, &result->sampled[i], e) != 0)
            return -1;
    }
    return 0;
}

int scheduler_continue(struct scheduler *s, struct request *r, const struct sampled *token, struct err *e)
{
    if (request_append(r, token, e) != 0)
        return -1;
    if (r->state == REQUEST_PARKED) {
        s->n_parked--;
        wait_in_line(s, r);
    }
    return 0;
}
