/* coordinator/schedule/scheduler_parts.h - shared by scheduler*.c; for them only. */
#ifndef SCHEDULE_SCHEDULER_PARTS_H
#define SCHEDULE_SCHEDULER_PARTS_H

#include <string.h>

#include "coordinator/schedule/scheduler.h"

/* ---- the tokens of a sequence ---- */

/* The number of known tokens of prompt and output. */
static inline int n_known(const struct request *r)
{
    return (int)(r->prompt.n + r->output.n);
}

/* The number of tokens under way that will count. */
static inline int n_awaited(const struct request *r)
{
    return r->n_in_flight - r->n_void;
}

/* Copies tokens [begin, begin + n) of prompt and output to out. */
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

/* Does the prompt have tokens whose scores are still to be planned? */
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

/* The number of tokens that the sequence could feed now. The last token that it may get is never fed, and the next
 * token of a steered one is unknown until its owner sets it. */
static inline int n_feedable(const struct request *r)
{
    if (r->steered)
        return n_known(r) - r->n_fed;
    if ((int)r->output.n + n_awaited(r) >= r->rules->max_tokens)
        return 0;
    return n_known(r) + n_awaited(r) - r->n_fed;
}

/* Can r have drafts at all? Not if its owner decides the next tokens. */
static inline bool is_drafted(const struct request *r)
{
    return !r->steered;
}

/* Does r have penalties, which look at all tokens of the slot, including unfed ones? */
static inline bool needs_history(const struct request *r)
{
    const struct sampling *p = &r->rules->sampling;
    return p->repetition_penalty != 1.0f || p->presence_penalty != 0.0f || p->frequency_penalty != 0.0f;
}

/* The number of drafts whose samples could still be taken after the first sampled token. */
static inline int n_useful(const struct request *r)
{
    return r->rules->max_tokens - (int)r->output.n - 1;
}

/* ---- scheduler_blocks.c: the KV blocks of a sequence ---- */

/* Allocates memory for the numbers of all blocks that r may hold; request_close frees it. */
int kv_open(const struct scheduler *s, struct request *r, struct err *e);

/* Releases all blocks, the last one first. */
void kv_give_back(struct scheduler *s, struct request *r);

/* The first block that a token at position `pos`, or any later one, may still see. */
int kv_begin(const struct scheduler *s, int kind, int pos);

/* Release, for all running sequences, the blocks that no future token will see. Steps under way read them before a
 * later plan's step writes, since steps run in order. No drafts may be under way, since tokens that replace them have
 * lower positions. */
void kv_pass(struct scheduler *s);

/* Gives r another block, and enters it into the plan. */
void kv_add(struct request *r, int kind, int block, struct plan *p);

/* Takes blocks for the next n tokens of r; they must be free. */
void kv_place(struct scheduler *s, struct request *r, int n, struct plan *p);

/* The number of r's next n tokens for which windowed layers have unneeded blocks; at least a block's worth, for which
 * others may have to make room. */
int kv_placed(struct scheduler *s, const struct request *r, int n);

/* The number of free blocks that r needs to start, beside those that it holds: for all its known tokens, or for a
 * window. */
int kv_missing(const struct scheduler *s, const struct request *r, int kind);

/* Longest sequence for which the blocks suffice. */
int kv_longest(const struct scheduler *s);

/* ---- scheduler_order.c: the queues of waiting requests and the list of running ones ---- */

/* Adds the request to its party's queue, whose heap has room for all of them, so that preemption allocates nothing;
 * and removes it for good. */
int order_join(struct scheduler *s, struct request *r, struct err *e);
void order_leave(struct scheduler *s, struct request *r);
void order_close(struct scheduler *s);

/* Whether a goes before b; both are of one party. */
bool order_before(const struct request *a, const struct request *b);

/* The request whose turn it is to start, among the next ones of all queues except passed ones. NULL: none waits. */
struct request *order_next(const struct scheduler *s);

/* Copies the running requests to s->turn. */
void order_turns(struct scheduler *s);

/* Adds it to the waiting requests, and removes it. */
void order_wait(struct scheduler *s, struct request *r);
void order_leave_queue(struct scheduler *s, struct request *r);

/* Adds it to the running requests, with its slot and blocks; and removes it, releasing both. A plan that still carries
 * the sequence writes into its blocks before any later plan does, since steps run in order. */
void order_run(struct scheduler *s, struct request *r);
void order_stop(struct scheduler *s, struct request *r);

/* ---- scheduler_turns.c: fairness among clients and their parties ---- */

/* Preempts sequences of clients and parties beyond their share if the request whose turn it is has no room. */
void turns_give_way(struct scheduler *s);

/* Divide this many tokens and rows of logits among the clients and parties that need them. */
void turns_share(struct scheduler *s, int tokens, int rows);

/* The rest of that for a request's client and party; turns_use takes n of it. */
int turns_left(const struct request *r, enum scheduler_room what);
void turns_use(struct request *r, enum scheduler_room what, int n);

/* ---- scheduler_plan.c ---- */

/* Preempts a running sequence. A steered one without a token to feed returns when its owner continues it. */
void scheduler_preempt(struct scheduler *s, struct request *r);

/* Take all blocks for r's known tokens; false: too few are free for these and for the growth of r and of the running
 * sequences, and s->blocked_until is the required number. */
bool scheduler_reserve(struct scheduler *s, struct request *r);

/* ---- scheduler_growth.c: the memory into which running sequences will grow ---- */

/* Forgets how the running sequences grow: to be called when one of them stops, when others hold its blocks, and when
 * all have got tokens. */
void growth_forget(struct scheduler *s);

/* The number of blocks of a kind that must be free beside those for r's known tokens, so that r and the running
 * sequences, of which there are some, will hardly have to be preempted. */
int growth_needed(struct scheduler *s, const struct request *r, int kind);

/* r, whose blocks have been taken, is one of them now. */
void growth_add(struct scheduler *s, const struct request *r);

/* Take the length of an answer that has ended into account. */
void growth_learn(struct scheduler *s, const struct request *r);

/* ---- scheduler_drafts.c: guessed tokens ---- */

/* Set n_drafts and draft of the requests in s->turn, for a plan in which n_decodes sequences feed one token. Returns
 * the total number of drafts. */
int drafts_plan(struct scheduler *s, int n_decodes);

/* Is a result under way on which the next guesses depend? */
bool drafts_wait(struct scheduler *s);

/* Note the time that the step took. */
void drafts_measure(struct scheduler *s, const struct flight *f, double seconds);

/* The number of n tokens sampled for r that are accepted. The positions of the others are released. */
int drafts_settle(struct scheduler *s, struct request *r, const struct sampled *sampled, int n);

/* ---- scheduler_drafter.c: the draft model, if there is one ---- */

int drafter_open(struct scheduler *s, struct err *e);
void drafter_close(struct scheduler *s);

/* To be called when r has got a slot, and when it releases the slot. */
void drafter_begin(struct scheduler *s, const struct request *r);
void drafter_end(struct scheduler *s, const struct request *r);

/* Fill the plan with a step of the draft model. True: filled, or left empty because results are awaited; false: the
 * next step of the main model can be planned, with the present drafts. */
bool drafter_plan(struct scheduler *s, struct plan *p);

/* Take the results of a step of the draft model. */
void drafter_accept(struct scheduler *s, const struct step_result *result);

/* Copies at most n of r's drafts to *token; returns their number. Each draft is handed out once. */
int drafter_take(struct scheduler *s, const struct request *r, int n, int32_t *token);

/* ---- scheduler_bound.c: the time that a step may take ---- */

/* To be called at the beginning of a plan, in which the decoding requests of s->turn take n_rows rows. */
void bound_begin(struct scheduler *s, int n_rows);

/* Is there time for prompts, or for more of them? */
bool bound_has_room(const struct scheduler *s);

/* The number of n tokens of a prompt, after `pos` tokens, for which there is time: at least a block's worth if there is
 * any room. And a report that they have been planned. */
int bound_fit(const struct scheduler *s, int pos, int n);
void bound_note(struct scheduler *s, int pos, int n);

/* The number of n tokens to be divided among clients, so that the first one does not take all the time. */
int bound_part(const struct scheduler *s, int n);

/* To be called when the plan is complete, and when its step's duration is known. */
void bound_end(struct scheduler *s, struct flight *f, const struct plan *p);
void bound_measure(struct scheduler *s, const struct flight *f, double seconds);

/* ---- scheduler_prefix.c: the prefix cache ---- */

/* Take the blocks of the longest cached prefix of a sequence that has no blocks. */
void prefix_hold(struct scheduler *s, struct request *r);

/* Put the blocks that have become full into the cache. */
void prefix_share(struct scheduler *s, struct request *r);

/* ---- scheduler_form.c: sequences with a form ---- */

/* The number of r's n drafts up to the one that its form forbids, or that would complete it. */
int form_allows(struct request *r, int n);

/* Provides masks for r's next token and for those after its drafts; drafts without a mask are dropped. The masks go
 * into the plan if the next token's mask is known; otherwise it will be late. */
enum plan_mask form_add_masks(const struct scheduler *s, struct request *r, struct plan *p);

/* r has got n tokens, of which one was sampled: the others are fed by the host, and samples in their places by steps
 * under way are void. */
void form_note_jump(struct request *r, size_t n);

/* The oldest token under way of r has arrived. Is it void? */
bool form_drops(struct request *r);

/* ---- scheduler.c ---- */

/* End the requests whose deadline has passed. */
void scheduler_expire(struct scheduler *s, double now);

#endif
