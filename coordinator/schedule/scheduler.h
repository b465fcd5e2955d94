/* coordinator/schedule/scheduler.h - decides which sequences run in which step. Order: by `priority`, the lower value
 * first; among equals clients take turns: every client's first sequence goes before any client's second one, and so on;
 * then the order of arrival. Priorities are strict: a higher value waits as long as lower ones fill the engine. Equal
 * sequences of one client do not overtake each other. A step carries one token of each running sequence and, in the
 * rest of max_batch_tokens, chunks of prompts. Clients with prompts share that room, and the rows of logits for scores,
 * in parts of at least a quarter. Memory: a sequence starts when there are KV blocks for its known tokens and for
 * the tokens that it and the running ones are expected to get (coordinator/schedule/lengths.h), and gets blocks as it
 * grows. If none are left, the last running sequence in the order is preempted: it releases its blocks, waits, and is
 * fed again later, prompt and output. A client that runs less than its share starts
 * without leaving room for growth. If slots or blocks are taken when a client's turn comes, sequences of clients that
 * run more than it give way, for at most one sequence per plan, and none gives way again before it has grown by an
 * eighth, so that repeated feeding remains a small part of the work. Full blocks of a prompt or output are found again
 * by any sequence that begins with the same tokens (coordinator/schedule/blocks.h). A prompt whose tokens are scored
 * (rules.want_prompt_logprobs) is fed in chunks of as many tokens as max_logit_rows has rows beside max_seqs, and uses
 * the prefix cache only for tokens that are scored already. For a request with a form (rules.form) every token has a
 * mask of the allowed tokens, which depends on the token before it. While that one is under way the next step is
 * planned nevertheless, with a mask that follows later (scheduler_masks). Forced text is not sampled: its tokens are
 * fed together, like a chunk of a prompt, and samples of steps under way in their places are dropped.
 *
 * With setup.max_step a step with decoding sequences feeds only as many prompt tokens as are expected to fit that time,
 * according to measured steps (coordinator/schedule/step_model.h), but at least 32.
 *
 * With drafts (setup.drafts) a step feeds the last token of a sequence and k more that may follow, and samples after
 * each. Sampled tokens are accepted as long as they equal the drafts, and the first one that differs, too: exactly the
 * tokens that would come without drafts. Keys of the other drafts are overwritten by the tokens fed next. No further
 * plan is made while drafts are under way, nor while the result of a sequence is under way for which the source has a
 * draft. If a request has a form, its drafts end before the first one that the form forbids. Steered requests have
 * none.
 *
 * A pure module: no clock, no socket, no device. The caller passes times, in seconds on any monotonic clock. Rank 0
 * only, one thread. Memory is allocated only in scheduler_open, scheduler_add and scheduler_fork, by growing outputs,
 * and when a sequence begins to have guesses. */
#ifndef SCHEDULE_SCHEDULER_H
#define SCHEDULE_SCHEDULER_H

#include "coordinator/drafts/corpus.h"
#include "coordinator/drafts/costs.h"
#include "coordinator/schedule/blocks.h"
#include "coordinator/schedule/drafter.h"
#include "coordinator/schedule/lengths.h"
#include "coordinator/schedule/request.h"
#include "coordinator/schedule/step_model.h"
#include "plan/plan.h"
#include "text/grammar/lexicon_keeper.h"

#define SCHEDULER_FLIGHTS 2 /* plans in flight: results may be outstanding */
#define SCHEDULER_FULL    1 /* scheduler_add: the queue is full */

/* The guesser of a sequence's next tokens, instead of what was there before (coordinator/drafts/guesses.h). */
struct draft_source {
    /* Copies guesses of the tokens after r's known ones, at most n <= DRAFTS_MAX, to *token; returns their number.
     * Called once per plan and sequence, and once more while a result is under way. NULL: guesses */
    int (*propose)(void *context, struct request *r, int n, int32_t *token);
    void *context;
};

/* The room of a plan for prompts: tokens, and rows of logits for scores. */
enum scheduler_room { ROOM_TOKENS, ROOM_ROWS, N_ROOMS };

/* One of those who take turns and share the room of a plan: a client, or a party of it. */
struct sharer {
    uint64_t name;
    struct sharer *next;   /* of all clients, or of the client's parties */
    struct sharer *client; /* of a party; NULL: it is a client, with */
    struct sharer *party;  /* the first of its parties, one at least */
    int n_running;         /* sequences */
    struct request *waits; /* of a client: its next one, while the next one of all is looked for; NULL: none */
    int want[N_ROOMS];     /* of the plan that is being made */
    int left[N_ROOMS];     /* unused part of that */
};

/* The requests of one party. */
struct party_queue {
    struct sharer as;
    struct request **waiting; /* [n_waiting] a heap, the next one first; capacity for all requests */
    int n_waiting, capacity;
    int n_requests; /* requests that have not ended */
    bool passed;    /* the next one cannot start in the current plan, though others may */
};

struct scheduler_setup {
    struct limits limits; /* max_batch_tokens >= max_seqs, so that every running sequence moves in every step */
    const struct tokenizer *tokenizer; /* borrowed; NULL: requests get no text */
    struct lexicon_keeper *lexicon;    /* borrowed; NULL: no request has a form */
    /* The source of KV blocks of each kind, at most as many as the limits allow; without a function all blocks exist
     * from the start. */
    struct blocks_source source[KV_KINDS];
    bool prefix_caching;
    bool foresees;              /* a sequence starts when the memory suffices for the expected growth, too */
    double max_step;            /* s that a step with decoding sequences may take; 0: no limit */
    int max_waiting;            /* requests that scheduler_add lets wait; 0: any number */
    struct guess_rules guesses; /* limits.max_drafts says how many drafts a step may have, limits.draft_len whether a
                                   model makes them */
    struct draft_source drafts;
    int rope_changes_at; /* length up to which the rotation does not depend on it; 0: it never does. Longer sequences
                            do not share blocks */
    /* Called after every token, and when a request ends otherwise; r->finish tells whether it has ended. May be
     * NULL. */
    void (*on_progress)(void *context, struct request *r);
    /* The scheduler has released a finished request: its memory may be freed, not before. Always after its last
     * on_progress, often within the same call. May be NULL. Both may call scheduler_add, _cancel, _continue and
     * _fork. */
    void (*on_release)(void *context, struct request *r);
    void *context;
};

struct scheduler_stats {
    int n_running, n_waiting;                  /* now */
    int n_blocks, n_blocks_used;               /* used: held by sequences; cached blocks count as free */
    int n_window_blocks, n_window_blocks_used; /* the same of kind KV_WINDOWED; 0: none */
    int n_draft_places;                        /* limit of drafts per sequence and step; 0: no drafts */
    uint64_t n_preemptions;                    /* from here on: since the start */
    uint64_t prefix_queries; /* tokens of requests that started, and were looked up in the prefix cache */
    uint64_t prefix_hits; /* tokens of these that were found; restarts after preemption are not counted, as in vLLM */
    uint64_t n_prompt_tokens; /* of requests that got their first token */
    uint64_t n_prompt_cached; /* tokens of these found in the prefix cache */
    uint64_t n_output_tokens;
    uint64_t n_drafts, n_draft_tokens;   /* number of times that a step verified drafts of a sequence, and of these
                                          drafts */
    uint64_t n_accepted[DRAFTS_MAX];     /* accepted drafts by position */
    uint64_t n_finished[FINISH_REASONS]; /* requests */
};

struct scheduler {
    struct scheduler_setup setup;
    struct request **running; /* [n_running] by priority and arrival */
    int n_running;
    struct request **turn; /* [n_turns] while a plan is made: running requests in their order; the last ones give way
                              first */
    int n_turns;
    struct party_queue **queue; /* [n_queues] one for each party that has requests here */
    int n_queues, queue_capacity;
    struct sharer *clients;         /* that have requests here */
    int n_waiting;                  /* in all queues */
    int n_parked;                   /* neither running nor waiting, see REQUEST_PARKED */
    int *free_slot, n_free_slots;   /* stack */
    int n_kinds;                    /* of KV blocks, each with owners and a cache of its own */
    struct blocks blocks[KV_KINDS]; /* [n_kinds] */
    struct flight {                 /* the sequences sampled by an outstanding plan */
        uint64_t step;
        bool of_draft_model; /* it samples drafts: see drafter.h */
        int n;
        struct request **request; /* [n], capacity max_seqs */
        int *rows, n_rows;        /* [n] rows sampled for each, and in total */
        int n_tokens;             /* tokens fed per sequence; 0: prompts, too */
        double planned;           /* when */
        bool bounded;             /* its prompts were bounded by max_step */
        struct step_work work;
        int n_scores;
        struct scores { /* the sequence whose prompt is scored: entries [first, first + n) of prompt_logprobs */
            struct request *request;
            int first, n;
        } * scores; /* [n_scores], capacity max_seqs */
    } flight[SCHEDULER_FLIGHTS];
    struct costs costs;           /* of steps without prompts */
    struct corpus *answers;       /* finished answers, to draft from; NULL: not used */
    struct step_model step_model; /* empty without max_step */
    struct step_work work;        /* of the plan that is being made, */
    bool bounded;                 /* and whether max_step is its bound */
    struct drafter drafter;
    double accepted;  /* when the last results came */
    int guess_tokens; /* tokens that the current plan may still read into guesses */
    int score_rows;   /* rows of logits left for scores in the current plan */
    uint64_t n_plans, n_arrived;
    double now;                        /* the latest time passed by the caller */
    double next_deadline;              /* no request has an earlier one */
    struct lengths lengths;            /* of answers */
    struct growing {                   /* a sequence, by what is expected of it */
        int left;                      /* tokens that it will get */
        int n_tokens, n_blocks;        /* that it has; */
        int n_shared;                  /* of these, blocks that others hold, too */
    } * growing;                       /* [n_growing] running ones, the first to end first; capacity max_seqs + 1 */
    int n_growing;                     /* -1: unknown, as are */
    int64_t growing_windows[KV_KINDS]; /* the blocks that running ones will need in windowed layers */
    struct request *blocked;           /* the next request did not fit; */
    int blocked_by[KV_KINDS];          /* it needs this many free blocks itself, */
    int blocked_until[KV_KINDS];       /* and can start when this many are free */
    const struct request *favoured;    /* the request whose client runs less than its share, in the current plan */
    const struct request *in_event;    /* on_progress is running for it */
    struct scheduler_stats stats;
};

int scheduler_open(struct scheduler *s, const struct scheduler_setup *setup, struct err *e);
void scheduler_close(struct scheduler *s);

/* Longest sequence (prompt and output) that can ever run under the limits. */
int scheduler_max_len(const struct scheduler *s);

/* Queue a request, borrowed until on_release. The caller sets rules, prompt, client, priority, deadline, steered, index
 * and owner; the rest is zero. The prompt (not empty) and max_tokens must fit scheduler_max_len. Returns 0,
 * SCHEDULER_FULL (the request was not queued), or -1 and *e. */
int scheduler_add(struct scheduler *s, struct request *r, double now, struct err *e);

/* End a request now as FINISH_CANCELLED, or as another reason; does nothing if it has ended. The blocks of a waiting
 * request are free at once, those of a running one for the next plan. on_progress is not called for it, on_release
 * is. */
void scheduler_cancel(struct scheduler *s, struct request *r, enum finish_reason why, double now);

/* Are there waiting or running requests? */
bool scheduler_busy(const struct scheduler *s);

/* Fill a reset plan with the next step, which may have no sequences. Ends requests whose deadline has passed. */
void scheduler_plan(struct scheduler *s, struct plan *p, double now);

/* Fill in the late masks of the newest plan. The results of all plans before it must have been taken. */
void scheduler_masks(const struct scheduler *s, struct plan *p);

/* Take the results of the oldest outstanding plan. */
int scheduler_accept(struct scheduler *s, const struct step_result *result, double now, struct err *e);

/* Continue a steered request, whose newest result has been seen, with this token. */
int scheduler_continue(struct scheduler *s, struct request *r, const struct sampled *token, struct err *e);

/* Queue `child`, to which the caller has given all of the parent's tokens, prompt and output, or fewer, and its family.
 * It has the parent's client and arrival and does not count against max_waiting; otherwise as scheduler_add. */
int scheduler_fork(struct scheduler *s, struct request *child, const struct request *parent, double now, struct err *e);

/* A new family for requests that share blocks only with each other if prefix_caching is off; 0 if it is on. */
uint64_t scheduler_family(struct scheduler *s);

/* Count a request that the caller has composed of steered ones, which are not counted themselves. */
void scheduler_note_finish(struct scheduler *s, enum finish_reason why);

/* The limit of drafts per sequence and step; 0: no drafts. */
int scheduler_draft_places(const struct scheduler *s);

/* A snapshot of the statistics. */
struct scheduler_stats scheduler_stats(const struct scheduler *s);

/* The used share of KV blocks, of the kind with the larger share. */
static inline double scheduler_kv_usage(const struct scheduler_stats *s)
{
    double all = s->n_blocks > 0 ? (double)s->n_blocks_used / s->n_blocks : 0;
    double windowed = s->n_window_blocks > 0 ? (double)s->n_window_blocks_used / s->n_window_blocks : 0;
    return windowed > all ? windowed : all;
}

#endif
