/* coordinator/schedule/scheduler.h - which sequences run in which step.
 *
 * Order: by `priority`, the lower value first; among equals clients take turns: every client's first sequence goes
 * before any client's second one, and so on; then who came first. Priorities are strict: what has a higher value waits
 * as long as lower ones fill the engine. Sequences of one client that are equals do not overtake each other. A step
 * carries one token of each running sequence and, in what is left of max_batch_tokens, chunks of prompts. Clients with
 * prompts share that room, and the rows of logits for scores: a quarter is theirs however many there are. Memory: a
 * sequence starts when there are KV blocks for what is to be fed, and gets further ones as it grows. When there are
 * none the last running one in the order gives its blocks away, waits, and is fed again later: prompt and output. If
 * slots or blocks are taken when a client's turn comes, sequences of clients that run more than it give way, for one
 * sequence a plan, and none again before it has grown by an eighth: what is fed anew stays a part of the work. Full
 * blocks of a prompt or output are found again by any sequence that begins with the same tokens
 * (coordinator/schedule/blocks.h). A prompt whose tokens are scored (rules.want_prompt_logprobs) is fed in chunks of as
 * many tokens as max_logit_rows has rows beside max_seqs, and takes from the prefix cache no token that is not scored
 * yet.
 *
 * A request with a form (rules.form) gets each token out of a mask of tokens that may follow the one before it. While
 * that one is under way the next step is planned nevertheless, with a mask that comes late (scheduler_masks). Text that
 * the form leaves no choice about is not sampled: its tokens are fed together, like a piece of a prompt, and what a
 * step under way samples in their places is dropped.
 *
 * With setup.max_step a step that carries sequences which decode feeds so much of prompts as it is expected to have
 * time for, by the steps that were measured (coordinator/schedule/step_model.h), but 32 tokens at least.
 *
 * With drafts (setup.drafts) a step feeds the last token of a sequence and k more that may follow, and samples after
 * each. Sampled tokens are taken as far as they equal the draft, and the first one that differs: exactly the tokens
 * that come without drafts. The rest of the draft is overwritten by what is fed next. No further plan is made while
 * drafts are under way, nor while a result is for whose sequence the source has a draft. If a request has a form, its
 * drafts end before the first one that the form forbids. Steered requests have none.
 *
 * A pure module: no clock, no socket, no device. Times are the caller's, in seconds on any clock that does not go back.
 * Rank 0 only, one thread. Nothing is allocated but in scheduler_open, scheduler_add and scheduler_fork,
 * by outputs that grow, and when a sequence begins to have guesses. */
#ifndef SCHEDULE_SCHEDULER_H
#define SCHEDULE_SCHEDULER_H

#include "coordinator/drafts/corpus.h"
#include "coordinator/drafts/costs.h"
#include "coordinator/schedule/blocks.h"
#include "coordinator/schedule/drafter.h"
#include "coordinator/schedule/request.h"
#include "coordinator/schedule/step_model.h"
#include "plan/plan.h"
#include "text/grammar/lexicon_keeper.h"

#define SCHEDULER_FLIGHTS 2 /* plans whose results may be outstanding */
#define SCHEDULER_FULL    1 /* scheduler_add: the queue has no place */

/* The guesser of a sequence's next tokens, instead of what was there before (coordinator/drafts/guesses.h). */
struct draft_source {
    /* Tokens that may follow those of r that are known, at most n <= DRAFTS_MAX, to *token; returns their number. The
     * scheduler asks once for each plan and sequence, and once more while a result is under way. NULL: guesses */
    int (*propose)(void *context, struct request *r, int n, int32_t *token);
    void *context;
};

/* The room of a plan for prompts: tokens, and rows of logits for scores. */
enum scheduler_room { ROOM_TOKENS, ROOM_ROWS, N_ROOMS };

/* The requests of one client. */
struct client_queue {
    uint64_t client;
    struct request **waiting; /* [n_waiting] a heap, the next one first; capacity for all requests */
    int n_waiting, capacity;
    int n_requests, n_running; /* that have not ended; of these */
    bool passed;               /* the next one cannot start in the plan that is being made, though others may */
    int want[N_ROOMS];         /* of the plan that is being made */
    int left[N_ROOMS];         /* of its part of that */
};

struct scheduler_setup {
    struct limits limits; /* max_batch_tokens >= max_seqs, so that every running sequence moves in every step */
    const struct tokenizer *tokenizer; /* borrowed; NULL: requests get no text */
    struct lexicon_keeper *lexicon;    /* borrowed; NULL: no request has a form */
    /* The source of KV blocks of each kind, as many as the limits say at most; without a function: they are all
     * there. */
    struct blocks_source source[KV_KINDS];
    bool prefix_caching;
    double max_step;            /* s that a step with sequences that decode may take; 0: any time */
    int max_waiting;            /* requests that scheduler_add lets wait; 0: any number */
    struct guess_rules guesses; /* limits.max_drafts says how many drafts a step may have, limits.draft_len whether a
                                   model makes them */
    struct draft_source drafts;
    int rope_changes_at; /* longest sequence whose rotation does not depend on its length; 0: it never does. Blocks of
                             longer ones are not shared */
    /* After every token, and when a request ends otherwise; r->finish says whether that was all. May be NULL. */
    void (*on_progress)(void *context, struct request *r);
    /* The scheduler has let go of a finished request: its memory may be given back, not before. Always after its last
     * on_progress, often within the same call. May be NULL. Both may call scheduler_add, _cancel, _continue and
     * _fork. */
    void (*on_release)(void *context, struct request *r);
    void *context;
};

struct scheduler_stats {
    int n_running, n_waiting;                  /* now */
    int n_blocks, n_blocks_used;               /* used: held by sequences; what is only kept for reuse counts as free */
    int n_window_blocks, n_window_blocks_used; /* the same of kind KV_WINDOWED; 0: there is none */
    int n_draft_places;                        /* drafts of a sequence and step at most; 0: none are made */
    uint64_t n_preemptions;                    /* from here on: since the start */
    uint64_t prefix_queries;  /* tokens of requests that started, and were looked up in the prefix cache */
    uint64_t prefix_hits;     /* of these, found; preempted ones that start again are not counted, as in vLLM */
    uint64_t n_prompt_tokens; /* of requests that got their first token */
    uint64_t n_prompt_cached; /* of these tokens, found in the prefix cache */
    uint64_t n_output_tokens;
    uint64_t n_drafts, n_draft_tokens;   /* sequences that a step verified drafts of, and those tokens */
    uint64_t n_accepted[DRAFTS_MAX];     /* drafts that were right, by their place */
    uint64_t n_finished[FINISH_REASONS]; /* requests */
};

struct scheduler {
    struct scheduler_setup setup;
    struct request **running; /* [n_running] by priority and arrival */
    int n_running;
    struct request *
        *turn; /* [n_turns] while a plan is made: those that run in their order; the last ones give way first */
    int n_turns;
    struct client_queue **queue; /* [n_queues] one for each client that has requests here */
    int n_queues, queue_capacity;
    int n_waiting;                  /* in all queues */
    int n_parked;                   /* neither running nor waiting, see REQUEST_PARKED */
    int *free_slot, n_free_slots;   /* stack */
    int n_kinds;                    /* of KV blocks, each with owners and a cache of its own */
    struct blocks blocks[KV_KINDS]; /* [n_kinds] */
    struct flight {                 /* the sequences that an outstanding plan samples */
        uint64_t step;
        bool of_draft_model; /* it samples drafts: see drafter.h */
        int n;
        struct request **request; /* [n], capacity max_seqs */
        int *rows, n_rows;        /* [n] that are sampled of each, and of all */
        int n_tokens;             /* fed; 0: prompts, too */
        double planned;           /* when */
        bool bounded;             /* its prompts by max_step */
        struct step_work work;
        int n_scores;
        struct scores { /* the sequence whose prompt is scored: entries [first, first + n) of prompt_logprobs */
            struct request *request;
            int first, n;
        } * scores; /* [n_scores], capacity max_seqs */
    } flight[SCHEDULER_FLIGHTS];
    struct costs costs;           /* of steps without prompts */
    struct corpus *answers;       /* those that have ended, to draft from; NULL: no drafts look into them */
    struct step_model step_model; /* nothing is known without max_step */
    struct step_work work;        /* of the plan that is being made, */
    bool bounded;                 /* and whether max_step is its bound */
    struct drafter drafter;
    double accepted;  /* when the last results came */
    int guess_tokens; /* that the plan which is being made may still look at to make guesses of */
    int score_rows;   /* rows of logits that the plan which is being made has left for scores */
    uint64_t n_plans, n_arrived;
    double now;                     /* the time last told */
    double next_deadline;           /* no request has an earlier one */
    struct request *blocked;        /* the next one did not fit; it is looked at again when */
    int blocked_until[KV_KINDS];    /* this many blocks are free */
    const struct request *in_event; /* on_progress is running for it */
    struct scheduler_stats stats;
};

int scheduler_open(struct scheduler *s, const struct scheduler_setup *setup, struct err *e);
void scheduler_close(struct scheduler *s);

/* Longest sequence (prompt and output) that can ever run under the limits. */
int scheduler_max_len(const struct scheduler *s);

/* Queue a request; borrowed until on_release. The caller has set rules, prompt, client, priority, deadline, steered,
 * index and owner, the rest is zero. Prompt (not empty) and max_tokens must fit scheduler_max_len. Returns 0,
 * SCHEDULER_FULL (nothing was taken), or -1 and *e. */
int scheduler_add(struct scheduler *s, struct request *r, double now, struct err *e);

/* End a request now as FINISH_CANCELLED, or as another reason; nothing happens if it has ended. Its blocks are free at
 * once if it waits; if it runs they are free for the next plan. on_progress is not called for it, on_release is. */
void scheduler_cancel(struct scheduler *s, struct request *r, enum finish_reason why, double now);

/* Anything waiting or running? */
bool scheduler_busy(const struct scheduler *s);

/* Fill a reset plan with the next step. It may have no sequences. Ends requests whose deadline has passed. */
void scheduler_plan(struct scheduler *s, struct plan *p, double now);

/* Fill in the late masks of the newest plan. The results of all plans before it have been taken. */
void scheduler_masks(const struct scheduler *s, struct plan *p);

/* Take the results of the oldest outstanding plan. */
int scheduler_accept(struct scheduler *s, const struct step_result *result, double now, struct err *e);

/* The next token of a steered request whose newest result was seen: the sequence goes on with it. */
int scheduler_continue(struct scheduler *s, struct request *r, const struct sampled *token, struct err *e);

/* Queue `child`, to which the caller has given all of the parent's tokens, prompt and output, or fewer, and its family.
 * It has the parent's client and arrival and does not count against max_waiting; otherwise as scheduler_add. */
int scheduler_fork(struct scheduler *s, struct request *child, const struct request *parent, double now, struct err *e);

/* A family for requests that find each other's blocks whether prefix_caching is on or not: 0 if it is on. */
uint64_t scheduler_family(struct scheduler *s);

/* Count a request that the caller made of steered ones, which are not counted themselves. */
void scheduler_note_finish(struct scheduler *s, enum finish_reason why);

/* Drafts of a sequence and step at most; 0: none are made. */
int scheduler_draft_places(const struct scheduler *s);

/* A picture of now. */
struct scheduler_stats scheduler_stats(const struct scheduler *s);

/* The used share of the kind of KV blocks of which the larger share is used. */
static inline double scheduler_kv_usage(const struct scheduler_stats *s)
{
    double all = s->n_blocks > 0 ? (double)s->n_blocks_used / s->n_blocks : 0;
    double windowed = s->n_window_blocks > 0 ? (double)s->n_window_blocks_used / s->n_window_blocks : 0;
    return windowed > all ? windowed : all;
}

#endif
