/* coordinator/schedule/choices.h - one prompt and its requested choices: `n` choices, the n best of `best_of`, or beam
 * search. Such a set consists of several requests of the scheduler, or of one if n = 1. A server queues sets. Rank 0
 * only. The sequences of a prompt share its blocks: the others start when the first one has its first token, and find
 * the blocks in the prefix cache (in a private part of it if prefix_caching is off). A beam with two continuations
 * becomes two sequences; the new one finds the full blocks of the common beginning and feeds the rest again. */
#ifndef SCHEDULE_CHOICES_H
#define SCHEDULE_CHOICES_H

#include "coordinator/schedule/beam.h"
#include "coordinator/schedule/scheduler.h"

struct choices {
    void *owner;                       /* the caller's */
    const struct request_rules *rules; /* borrowed until choices_close */
    struct search search;
    struct token_list prompt;            /* owned */
    const struct token_list *prediction; /* as in struct request */
    uint64_t client, party;              /* these four as in struct request */
    int priority;
    double deadline;
    enum finish_reason
        finish;       /* FINISH_NONE while members run; FINISH_STOP when all are done; or the reason for an early end */
    struct err error; /* FINISH_ERROR: the reason, unless it concerns a single choice */
    /* [search.n] once finished, best first if they are ranked, otherwise in order of their seeds; each has its own
     * finish. Before that, without best_of and beams, choice[i] is the so far unfinished sequence i. */
    struct request **choice;
    float *score;                    /* [search.n] of beam search's choices, as beam.h says; else NULL */
    struct request_times times;      /* of the first sequence; finished: of the whole set */
    int n_cached;                    /* prompt tokens that the first sequence had from the prefix cache */
    struct draft_counts drafts;      /* of all sequences, once finished */
    struct sampled *prompt_logprobs; /* [prompt.n - 1] if requested; owned */

    /* Private. */
    struct scheduler *scheduler;   /* NULL: not submitted */
    struct request *member;        /* [n_members] sequences, with beams also free ones (rules NULL) */
    int n_members, n_finished;     /* n_finished: sequences that have ended; not counted with beams */
    int n_held;                    /* members that the scheduler still refers to */
    int n_awaited;                 /* beams whose result of this round is outstanding */
    bool started;                  /* all members that are to run have been queued */
    bool silent;                   /* choices_cancel ended it */
    int n_calls;                   /* calls in progress: on_release waits for their end */
    struct request_rules *variant; /* [n_members] rules with the member's seed; one for all beams */
    struct request *result;        /* [n] choices of a beam search */
    struct beam_search beam;
    int beam_member[BEAM_MAX];   /* which member runs beam i */
    struct sampled *beam_result; /* [num_beams] of this round */
};

struct choices_events {
    /* Choice i has one more token or has ended. Not called with best_of > n or beams, whose choices are known at the
     * end. */
    void (*on_choice)(void *context, struct choices *set, int i);
    /* All choices are finished, or the set has timed out with what it had. Not called after choices_cancel. */
    void (*on_finish)(void *context, struct choices *set);
    /* The scheduler has let go of a finished set: choices_close is allowed from now on. */
    void (*on_release)(void *context, struct choices *set);
    void *context;
};

/* The prompt moves into the set, on success and on failure. search_check must have passed. Call choices_close in any
 * case. */
int choices_open(struct choices *set, const struct search *how, const struct request_rules *rules,
                 struct token_list *prompt, struct err *e);

/* Queue the set; owner, client, party, priority and deadline must be set, and prompt and max_tokens must fit
 * scheduler_max_len. Returns 0, SCHEDULER_FULL, or -1 and *e; events follow only after 0. */
int choices_submit(struct choices *set, struct scheduler *s, double now, struct err *e);

/* End the set with its present results. If it was submitted and had not finished, on_release follows, maybe within this
 * call. */
void choices_cancel(struct choices *set, enum finish_reason why, double now);

void choices_close(struct choices *set);

/* The reason why choice i ended with FINISH_ERROR; NULL: it did not. */
const struct err *choices_error(const struct choices *set, int i);

/* Has any part of the submitted set been in a step? */
bool choices_begun(const struct choices *set);

/* A scheduler all of whose requests belong to such sets calls these: setup.on_progress = choices_on_progress,
 * setup.on_release = choices_on_release, setup.context = a struct choices_events. */
void choices_on_progress(void *events, struct request *r);
void choices_on_release(void *events, struct request *r);

#endif
