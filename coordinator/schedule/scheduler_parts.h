/* coordinator/schedule/scheduler_parts.h - shared by scheduler*.c; for them only. */
#ifndef SCHEDULE_SCHEDULER_PARTS_H
#define SCHEDULE_SCHEDULER_PARTS_H

#include <string.h>

#include "coordinator/schedule/scheduler.h"

/* ---- the tokens of a sequence ---- */

/* Tokens of prompt and output that are known here. */
static inline int n_known(const struct request *r)
{
    return (int)(r->prompt.n + r->output.n);
}

/* Tokens under way that will count. */
static inline int n_awaited(const struct request *r)
{
    return r->n_in_flight - r->n_void;
}

/* Tokens [begin, begin + n) of prompt and output to out. */
static inline void copy_tokens(const struct request *r, int begin, int n, int32_t *out)
{
    int n_prompt = (int)r->prompt.n, from_prompt = n_prompt - begin < n ? n_prompt - begin : n;
    if (from_prompt < 0)
        from_prompt = 0;
    if (from_prompt > 0)
        memcpy(out, r->prompt.id + begin, (size_t)from_prompt * sizeof *out);
    if (n > from_prompt)
        memcpy(out + from_prompt, r->output.id + (begin + from_prompt - n_prompt),
               (size_t)(n - from_prompt) * sizeof *out);
}

/* Are there tokens of the prompt whose scores are still to be planned? */
static inline bool wants_scores(const struct request *r)
{
    return r->rules->want_prompt_logprobs && r->n_scores_planned + 1 < (int)r->prompt.n;
}

static inline int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* KV blocks that this many tokens fill. */
static inline int blocks_for(int n_tokens)
{
    return (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* The number of tokens that the sequence could feed now. The last one that it may get is never fed, and what a steered
 * one gets is not known before its owner says so. */
static inline int n_feedable(const struct request *r)
{
    if (r->steered)
        return n_known(r) - r->n_fed;
    if ((int)r->output.n + n_awaited(r) >= r->rules->max_tokens)
        return 0;
    return n_known(r) + n_awaited(r) - r->n_fed;
}

/* Can r have drafts at all? Else its owner decides what follows. */
static inline bool is_drafted(const struct request *r)
{
    return !r->steered;
}

/* Penalties look at the tokens of the slot, also at those that are not fed. */
static inline bool needs_history(const struct request *r)
{
    const struct sampling *p = &r->rules->sampling;
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

/* Drafts whose sampled token would still be taken, behind the token that is sampled first. */
static inline int n_useful(const struct request *r)
{
    return r->rules->max_tokens - (int)r->output.n - 1;
}

/* ---- scheduler_blocks.c: the KV blocks of a sequence ---- */

/* Memory for the numbers of all blocks that r may hold; request_close frees it. */
int kv_open(const struct scheduler *s, struct request *r, struct err *e);

/* All of them, the last one first. */
void kv_give_back(struct scheduler *s, struct request *r);

/* The first place whose block a token at position `pos` and all behind it may still see. */
int kv_begin(const struct scheduler *s, int kind, int pos);

/* Give back, for all running sequences, the blocks that no token to come will see. Steps under way read them before a
 * later plan's step writes, since steps run in order. No drafts may be under way: what is fed over comes at lower
 * positions. */
void kv_pass(struct scheduler *s);

/* r holds a block more, and the plan says so. */
void kv_add(struct request *r, int kind, int block, struct plan *p);

/* Blocks for the next n tokens of r, which are free. */
void kv_place(struct scheduler *s, struct request *r, int n, struct plan *p);

/* The number of r's next n tokens, for which windowed layers have blocks that nobody else is about to need; a block's
 * at least, which others may have to make room for. */
int kv_placed(struct scheduler *s, const struct request *r, int n);

/* Blocks that r has to find free to start, beside those that it holds: for all that is known of it, or what a window
 * takes. */
int kv_missing(const struct scheduler *s, const struct request *r, int kind);

/* Longest sequence for which the blocks suffice. */
int kv_longest(const struct scheduler *s);

/* ---- scheduler_order.c: the queues of those that wait, and the list of those that run ---- */

/* The request joins its client's queue, with a place in the heap for all of them, so that nothing has to be allocated
 * when one is preempted; and leaves it for ever. */
int order_join(struct scheduler *s, struct request *r, struct err *e);
void order_leave(struct scheduler *s, struct request *r);
void order_close(struct scheduler *s);

/* Whether a goes before b; both are of one client. */
bool order_before(const struct request *a, const struct request *b);

/* The request whose turn it is to start, among the next ones of all queues except those that are passed. NULL: none
 * waits. */
struct request *order_next(const struct scheduler *s);

/* The running ones to s->turn. */
void order_turns(struct scheduler *s);

/* To those that wait, and away from them. */
void order_wait(struct scheduler *s, struct request *r);
void order_leave_queue(struct scheduler *s, struct request *r);

/* To those that run, with the slot and blocks that it has; and away from them: it gives both back. A plan that still
 * carries the sequence writes into its blocks before any later plan does, since steps run in order. */
void order_run(struct scheduler *s, struct request *r);
void order_stop(struct scheduler *s, struct request *r);

/* ---- scheduler_turns.c: what clients leave each other ---- */

/* Sequences of clients that run more than their share make room for the one whose turn it is to start, if it has
 * none. */
void turns_give_way(struct scheduler *s);

/* Divide this many tokens and rows of logits among the queues that need them. */
void turns_share(struct scheduler *s, int tokens, int rows);

/* ---- scheduler_plan.c ---- */

/* A running sequence makes room. A steered one that has nothing to feed comes back when its owner goes on. */
void scheduler_preempt(struct scheduler *s, struct request *r);

/* Hold all blocks for what is known of r; false: there are too few, beside some for those that run to grow into, and
 * s->blocked_until says how many have to be free. */
bool scheduler_reserve(struct scheduler *s, struct request *r);

/* ---- scheduler_drafts.c: tokens that are guessed ---- */

/* Set n_drafts and draft of those in s->turn, for a plan in which n_decodes sequences feed one token. Returns their
 * sum. */
int drafts_plan(struct scheduler *s, int n_decodes);

/* Is a result under way that decides what is guessed next? */
bool drafts_wait(struct scheduler *s);

/* Note the time that the step took. */
void drafts_measure(struct scheduler *s, const struct flight *f, double seconds);

/* The number of n tokens sampled for r that count. The others' places are given back. */
int drafts_settle(struct scheduler *s, struct request *r, const struct sampled *sampled, int n);

/* ---- scheduler_drafter.c: the draft model, if there is one ---- */

int drafter_open(struct scheduler *s, struct err *e);
void drafter_close(struct scheduler *s);

/* r has got a slot; and r gives its slot back. */
void drafter_begin(struct scheduler *s, const struct request *r);
void drafter_end(struct scheduler *s, const struct request *r);

/* Fill the plan with a step of the draft model. True: with that, or with nothing since results are awaited; false: the
 * next step of the other model can be planned, with the drafts that there are. */
bool drafter_plan(struct scheduler *s, struct plan *p);

/* Take the results of a step of the draft model. */
void drafter_accept(struct scheduler *s, const struct step_result *result);

/* At most n of r's drafts to *token; returns their number. They are handed out once. */
int drafter_take(struct scheduler *s, const struct request *r, int n, int32_t *token);

/* ---- scheduler_bound.c: the time that a step may take ---- */

/* A plan begins, in which those of s->turn that decode take n_rows rows. */
void bound_begin(struct scheduler *s, int n_rows);

/* Is there time for prompts, or for more of them? */
bool bound_has_room(const struct scheduler *s);

/* The number of n tokens of a prompt, behind `pos` tokens, for which there is time: a block's at least, if there is
 * room at all. And they have been planned. */
int bound_fit(const struct scheduler *s, int pos, int n);
void bound_note(struct scheduler *s, int pos, int n);

/* The number of n tokens that clients divide, so that the first of them does not take all the time there is. */
int bound_part(const struct scheduler *s, int n);

/* The plan is complete; and its step has taken so long. */
void bound_end(struct scheduler *s, struct flight *f, const struct plan *p);
void bound_measure(struct scheduler *s, const struct flight *f, double seconds);

/* ---- scheduler_prefix.c: the prefix cache ---- */

/* Hold the blocks of the longest known beginning of a sequence that has none. */
void prefix_hold(struct scheduler *s, struct request *r);

/* Put the blocks that have become full into the cache. */
void prefix_share(struct scheduler *s, struct request *r);

/* ---- scheduler_form.c: sequences whose text has to have a form ---- */

/* The number of r's n drafts up to the one that its form forbids, or that would complete it. */
int form_allows(struct request *r, int n);

/* The place of the masks of r's next token and of those behind its drafts, of which it loses those that have none: they
 * go into the plan where the next one's is known, else that one will be late. */
enum plan_mask form_add_masks(const struct scheduler *s, struct request *r, struct plan *p);

/* r has taken n tokens, of which one was sampled: those behind it are fed from here, and what is sampled in their
 * places by steps that are under way is void. */
void form_note_jump(struct request *r, size_t n);

/* The oldest token under way of r has come. Is it void? */
bool form_drops(struct request *r);

/* ---- scheduler.c ---- */

/* End the requests whose deadline has passed. */
void scheduler_expire(struct scheduler *s, double now);

#endif
