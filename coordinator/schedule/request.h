/* coordinator/schedule/request.h - one prompt on its way to text. Rank 0 only. */
#ifndef SCHEDULE_REQUEST_H
#define SCHEDULE_REQUEST_H

#include "coordinator/drafts/draft_counts.h"
#include "protocol/rules.h"
#include "text/grammar/form.h"
#include "text/stop.h"
#include "text/tokenizer/tokenizer.h"

/* The times of a request's events, on the scheduler's clock; 0: not yet. */
struct request_times {
    double arrived, scheduled, first_token, finished; /* scheduled: its first tokens are in a plan */
};

struct request {
    const struct request_rules *rules; /* borrowed, until the request is closed */
    int index;                         /* the caller's: place in the input, from 0 */
    void *owner;                       /* the caller's */
    uint64_t client;                   /* its owner: clients take turns. 0: the caller has a single client */
    uint64_t party;                    /* the one on whose behalf its owner asks: its parties take turns, too */
    int priority;                      /* lower runs first; equals take turns by client */
    double deadline;                   /* on the same clock: ends as FINISH_TIMEOUT then; 0: never */
    /* Sampled tokens are not appended: after each one the sequence waits for scheduler_continue. For beam search. */
    bool steered;
    bool ranked; /* its logprob_sum over all tokens is needed */
    struct token_list prompt, output;
    const struct token_list *prediction; /* the expected text, a source of drafts; borrowed. NULL: none */
    char *prompt_text;                   /* owned; NULL when the prompt came as ids */
    size_t prompt_bytes;                 /* of prompt_text */
    struct sampled *logprobs;            /* [output.n] if rules->want_logprobs */
    struct sampled *prompt_logprobs;     /* [prompt.n - 1] if rules->want_prompt_logprobs: of prompt tokens 1, 2, .. */
    int n_scored;                        /* number of these so far: all, before the output's first token */
    double logprob_sum;                  /* of the output's tokens */
    struct text_buffer text;
    size_t released; /* bytes of text that are final */
    struct stop_state stop;
    struct grammar_run *form; /* progress of the output in rules->form; NULL: no form */
    uint32_t *mask;           /* [mask_words] of the next token, if there is a form */
    struct detokenizer *detokenizer;
    enum finish_reason finish;
    struct err error; /* FINISH_ERROR */

    /* Name before the first block of this request's chain; 0: shared by all. See coordinator/schedule/blocks.h. */
    uint64_t family;

    /* Set by the scheduler; the caller may read. */
    struct request_times times;
    const struct sampled *newest; /* steered: the result that has just come; during on_progress only */
    int n_cached;                 /* prompt tokens that came from the prefix cache when it first ran */
    int n_preempted;              /* number of preemptions */
    uint64_t arrival;             /* order among requests of one party */
    struct party_queue *queue;    /* its party's, from scheduler_add to its end */
    int party_rank, rank; /* numbers of its party's, and of its client's, running sequences before it, as of the last
                             plan */
    int n_begun_with;     /* tokens known when it last began to run */
    enum request_state {
        REQUEST_IDLE,
        REQUEST_WAITING,
        REQUEST_RUNNING,
        REQUEST_PARKED /* steered and preempted; it waits for its owner, then for blocks */
    } state;
    int heap_index;       /* index in its queue's heap of waiting requests */
    int slot;             /* while running */
    int n_fed;            /* tokens of prompt and output whose keys and values exist or are planned */
    int n_in_flight;      /* tokens whose sampling is planned and whose results are outstanding */
    int n_void;           /* the first ones of these, to be dropped, since the tokens there are known already */
    int n_scores_planned; /* tokens of the prompt, from the second on, whose scores are planned */
    int n_score_flights;  /* plans with such scores whose results are outstanding */
    bool in_slot;         /* the newest token was sampled in this slot: the device has it */
    int n_behind;         /* tokens of the current plan that follow those of sequences which feed one token */
    int n_drafts;         /* drafts in the current plan, or in the step whose result is outstanding */
    int32_t draft[DRAFTS_MAX];
    int barred;                 /* 1 + the position of the draft that its form forbade and that was not fed; 0: none */
    struct guesses *guesses;    /* NULL: there are none */
    struct draft_counts drafts; /* n_places is 0 */
    int n_guessed_from;         /* tokens of prediction, prompt and output that they know; -1: no memory for them */
    struct held_blocks {
        int begin, end, *block; /* block[begin .. end) by position in the sequence; room for its greatest length */
    } held[KV_KINDS]; /* KV blocks of each kind; begin > 0: windowed layers no longer see the blocks before it */
    int n_alike;      /* its first blocks that were found when it began to run, so that others may share them */
    int n_shared;     /* its first blocks that are in the prefix cache, or equal to one there */
    uint64_t chain;   /* name of the last of them, or family */
};

/* Append a token to the output: text, stop rules. Sets r->finish when the sequence is done. t NULL: no text is made,
 * and only rules->max_tokens ends the sequence. Unless further tokens have arrived already, tokens that the form then
 * forces are appended, too (if log-probabilities are not requested), and the mask of the next token is computed.
 * Returns -1 and *e only if the host is out of memory. */
int request_take(struct request *r, const struct tokenizer *t, const struct sampled *s, bool more, struct err *e);

/* With rules->form: the mask of the first token. n_words: of a mask over the model's vocabulary. */
int request_begin_form(struct request *r, const struct lexicon *l, int n_words, struct err *e);

/* Append a token to the output, and nothing else. */
int request_append(struct request *r, const struct sampled *s, struct err *e);

void request_close(struct request *r);

#endif
