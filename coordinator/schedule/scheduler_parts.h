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

/* KV blocks that so many tokens fill. */
static inline int blocks_for(int n_tokens)
{
    return (n_tokens + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* ---- scheduler_order.c: the line of those that wait, a heap, and the list of those that run ---- */

/* Does a go before b? */
bool order_before(const struct request *a, const struct request *b);

/* Into the line, where scheduler.c has reserved a place; and out of it. */
void order_wait(struct scheduler *s, struct request *r);
void order_leave_line(struct scheduler *s, struct request *r);

/* To those that run, with the slot and blocks that it has; and away from them: it gives both back. A plan that still carries
 * the sequence writes into its blocks before any later plan does, since steps run in order. */
void order_run(struct scheduler *s, struct request *r);
void order_stop(struct scheduler *s, struct request *r);

/* ---- scheduler_prefix.c: the prefix cache ---- */

/* Hold the blocks of the longest known beginning of a sequence that has none. */
void prefix_hold(struct scheduler *s, struct request *r);

/* Put the blocks that have become full into the cache. */
void prefix_share(struct scheduler *s, struct request *r);

/* ---- scheduler.c ---- */

/* End the requests whose deadline has passed. */
void scheduler_expire(struct scheduler *s, double now);

#endif
