/* coordinator/schedule/request.h - one prompt on its way to text. Rank 0 only. */
#ifndef SCHEDULE_REQUEST_H
#define SCHEDULE_REQUEST_H

#include "coordinator/drafts/draft_counts.h"
#include "protocol/rules.h"
#include "text/grammar/form.h"
#include "text/stop.h"
#include "text/tokenizer/tokenizer.h"

/* When what happened to a request, on the clock whose readings the scheduler is given; 0: not yet. */
struct request_times {
    double arrived, scheduled, first_token, finished; /* scheduled: its first tokens are in a plan */
};

struct request {
    const struct request_rules *rules; /* borrowed, until the request is closed */
    int index;                         /* the caller's: place in the input, from 0 */
    void *owner;                       /* the caller's */
    uint64_t client;                   /* its owner: clients take turns. 0: the caller has one only */
    int priority;                      /* lower runs first; among equals, whose turn it is */
    double deadline;                   /* on the same clock: ends as FINISH_TIMEOUT then; 0: never */
    /* Its tokens are not taken as they come: after each one the sequence waits for scheduler_continue. For beam
     * search. */
    bool steered;
    bool ranked; /* its logprob_sum is wanted, of all tokens */
    struct token_list prompt, output;
    const struct token_list *prediction; /* the expected text, a source of drafts; borrowed. NULL: none */
    char *prompt_text;                   /* owned; NULL when the prompt came as ids */
    size_t prompt_bytes;                 /* of prompt_text */
    struct sampled *logprobs;            /* [output.n] if rules->want_logprobs */
    struct sampled *prompt_logprobs;     /* [prompt.n - 1] if rules->want_prompt_logprobs: of prompt tokens 1, 2, .. */
    int n_scored;                        /* how many of these there are: all, before the output's first token */
    double logprob_sum;                  /* of the output's tokens */
    struct text_buffer text;
    size_t released; /* bytes of text that are final */
    struct stop_state stop;
    struct grammar_run *form; /* rules->form as far as the output has come; NULL: it has none */
    uint32_t *mask;           /* [mask_words] of the next token, if there is a form */
    struct detokenizer *detokenizer;
    enum finish_reason finish;
    struct err error; /* FINISH_ERROR */

    /* Begin of this request's chain of blocks; 0: what all share. See coordinator/schedule/blocks.h. */
    uint64_t family;

    /* The scheduler's; the caller reads. */
    struct request_times times;
    const struct sampled *newest; /* steered: the result that has just come; during on_progress only */
    int n_cached;                 /* prompt tokens that came from the prefix cache when it first ran */
    int n_preempted;              /* how often it had to give its blocks away */
    uint64_t arrival;             /* order among those of one client */
    struct client_queue *queue;   /* its client's, from scheduler_add to its end */
    int rank;                     /* how many of its client's running sequences go before it; as of the last plan */
    int n_begun_with;             /* tokens that were known when it last began to run */
    enum request_state {
        REQUEST_IDLE,
        REQUEST_WAITING,
        REQUEST_RUNNING,
        REQUEST_PARKED /* steered and preempted; it waits for its owner, then for blocks */
    } state;
    int heap_index;       /* index in its queue's heap of waiting requests */
    int slot;             /* while running */
    int n_fed;            /* tokens of prompt and output whose keys and values exist or are planned */
    int n_in_flight;      /* tokens whose sampling was planned and whose results were not seen yet */
    int n_void;           /* of these, the first ones: they will be dropped, since what stands there is known */
    int n_scores_planned; /* tokens of the prompt, from the second on, whose scores were */
    int n_score_flights;  /* plans with some of these whose results were not seen yet */
    bool in_slot;         /* the newest token was sampled in this slot: the device has it */
    int n_behind;         /* tokens of the plan that is being made that come behind those of sequences which feed one */
    int n_drafts;         /* of the plan that is being made, or of the step whose result was not seen yet */
    int32_t draft[DRAFTS_MAX];
    int barred; /* 1 + the place of the draft that its form forbade, and so was not fed; 0: there was none */
    struct guesses *guesses;    /* NULL: there are none */
    struct draft_counts drafts; /* n_places is 0 */
    int n_guessed_from;         /* tokens of prediction, prompt and output that they know; -1: no memory for them */
    struct held_blocks {
        int begin, end, *block; /* block[begin .. end) by place in the sequence; room for the longest that it may get */
    } held[KV_KINDS];           /* KV blocks of each kind; begin > 0: of windowed layers, which see no more before it */
    int n_alike;                /* its first blocks that were found when it began to run: others may begin as it does */
    int n_shared;               /* its first blocks that are in the prefix cache or equal to one there */
    uint64_t chain;             /* name of the last of them, or family */
};

/* Take a token into the output: text, stop rules. Sets r->finish when the sequence is done. t NULL: no text is made,
 * and only rules->max_tokens ends the sequence. Unless more tokens are there already, those come with it that the form
 * leaves no choice about behind it, if nobody wants to know how likely they are; and its mask is that of the next one.
 * Returns -1 and *e only when the host is out of memory. */
int request_take(struct request *r, const struct tokenizer *t, const struct sampled *s, bool more, struct err *e);

/* With rules->form: the mask of the first token. n_words: of a mask over the model's vocabulary. */
int request_begin_form(struct request *r, const struct lexicon *l, int n_words, struct err *e);

/* Append a token to the output, and nothing else. */
int request_append(struct request *r, const struct sampled *s, struct err *e);

void request_close(struct request *r);

#endif
