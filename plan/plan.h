/* plan/plan.h - one step of work, decided on rank 0, identical on every rank. The interface between coordinator/ and
 * rank/: the coordinator fills it, the ranks execute it and decide nothing. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/err.h"
#include "base/sampling.h"

#include <stdbool.h>
#include <stddef.h>

enum plan_kind {
    PLAN_STEP = 1,
    PLAN_STOP,
    PLAN_LOAD,     /* begin to read a model while other models run */
    PLAN_COMMIT,   /* all ranks have read the model: steps of it may follow */
    PLAN_HURRY,    /* the same while other models have requests: no measurements, for which they would have to wait */
    PLAN_ROLLBACK, /* some rank could not read the model: all ranks free what they have read */
    PLAN_DROP      /* free a model's memory */
};

/* Loaded models have numbers below this. */
#define PLAN_MODELS 64

/* The sizes for which memory was allocated; they bound every plan. Flat, since they are broadcast once at start. */
struct limits {
    int32_t max_seqs;         /* slots: sequences that run at once */
    int32_t max_batch_tokens; /* tokens of one step, prefill and decode together */
    int32_t max_len;          /* tokens of one sequence, prompt and output */
    int32_t max_logit_rows;   /* rows of logits of one step */
    int32_t n_blocks;         /* KV blocks of KV_BLOCK_TOKENS tokens, of kind KV_MAIN */
    int32_t mask_words;       /* words of 32 bits in a mask over the vocabulary; 0: plans have no masks */
    int32_t max_drafts;  /* drafts in one step, all sequences together; 0: no drafts. For a draft model: tokens beyond
                           the first of each sequence in a small step */
    int32_t draft_len;   /* tokens of a sequence that the draft model can have; 0: there is no draft model */
    int32_t draft_ranks; /* the first ranks, which alone hold the draft model; 0: all do. The others know its drafts
                            from plans only, so these have no PLAN_DRAFTED */
    int32_t draft_skip;  /* tokens at the beginning of a sequence that the draft model is not fed: 1 for a head
                           (EAGLE-3), which is fed token p + 1 with the main model's state of position p */
    int32_t n_window_blocks; /* KV blocks of kind KV_WINDOWED; 0: there is one kind only */
    int32_t window; /* in windowed layers a token sees itself and at most window - 1 tokens before it; 0: no layer is
                       windowed. With one kind of blocks either all layers are windowed or none */
    int32_t sum_pieces; /* rows of a step are cut into at most this many pieces, whose sums over the ranks run beside
                           products; 0: the device's default */
};

/* The model number in a draft model's plans, and its limits if the main model has these: it has as many blocks of kind
 * KV_MAIN, with its own numbering, and no others, so its windowed layers keep everything. If all drafts of a sequence
 * were right, it is fed the last one and the token after it: two in a step. */
#define PLAN_DRAFT_MODEL 1
struct limits limits_of_draft_model(const struct limits *l);

static inline int limits_blocks_per_slot(const struct limits *l)
{
    return (l->max_len + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* Number of entries of a kind's block table, [max_seqs, blocks per slot]. */
static inline int64_t limits_table_entries(const struct limits *l)
{
    return (int64_t)l->max_seqs * limits_blocks_per_slot(l);
}

/* The most rows that a step samples: one per sequence and one per draft. */
static inline int limits_sampled(const struct limits *l)
{
    int rows = l->max_seqs + l->max_drafts;
    return rows < l->max_logit_rows ? rows : l->max_logit_rows;
}

/* The number of kinds of KV blocks. */
static inline int limits_kinds(const struct limits *l)
{
    return l->n_window_blocks > 0 ? KV_KINDS : 1;
}

/* Blocks of this window that a sequence needs in order to feed one block of tokens, at any position. */
static inline int limits_window_blocks(int window)
{
    return (window - 1 + 2 * KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS + 1;
}

/* Blocks of this kind. */
static inline int limits_blocks(const struct limits *l, int kind)
{
    return kind == KV_WINDOWED ? l->n_window_blocks : l->n_blocks;
}

/* The window of the layers with blocks of this kind; 0: they see everything. */
static inline int limits_window(const struct limits *l, int kind)
{
    return kind + 1 == limits_kinds(l) ? l->window : 0;
}

/* The location of the masks of a sequence's sampled rows, one per row. Late masks depend on the token that the previous
 * step samples, so they follow once it is known, while the device works on the rest of this step. */
enum plan_mask { MASK_NONE, MASK_HERE, MASK_LATE };

/* A sequence's share of the step: its next n_tokens tokens, at positions pos .. pos + n_tokens - 1. */
struct plan_seq {
    int32_t slot, n_tokens, pos;
    int32_t rope_len; /* length of the prompt; the larger of this and a token's position + 1 selects the token's
                         rotation */
    int32_t n_logits; /* logits of the last n_logits tokens are computed; 0: none */
    int32_t
        sample; /* a token is sampled from each of the last `sample` rows of logits. 0: none; 1: the next one; k + 1:
                         the last k tokens fed are drafts, each of which counts if the token sampled before it is the
                         same */
    int32_t masked; /* enum plan_mask; sampling.masked of the slot says whether it is MASK_NONE. MASK_LATE: one row
                         is sampled */
};

/* Scoring (prompt_logprobs): for each of the first n_scored rows of logits of the plan's sequence number seq, the step
 * reports the log-probability of the token that follows in the prompt, and the sampling.n_prompt_top likeliest tokens.
 * The token that follows is the sequence's next one in the plan; for its last token it is `next` (-1 if that row is not
 * scored).
 *
 * So a chunk [pos, pos + n) of a prompt of P tokens has n_logits = n and {seq, min(n, P - 1 - pos), prompt[pos + n]
 * or -1}. Each token costs a row: n is at most what limits.max_logit_rows leaves. Tokens from the prefix cache are not
 * fed and so not scored: a request with scores does not use the cache until it has them all (after a preemption it
 * may). */
struct plan_score {
    int32_t seq, n_scored, next;
};

/* A slot gets a new sequence. Its first n_history tokens are not fed, since their keys and values are in shared blocks;
 * the plan still carries them for penalties, which look at the tokens of the slot. 0 without penalties. */
struct plan_start {
    int32_t slot, n_history;
    struct sampling sampling;
};

/* block_table[kind][slot][index] = block */
struct plan_block {
    int32_t slot, index, block;
    int32_t kind; /* enum kv_kind */
};

/* Stand for tokens that only the device knows: the one sampled last in the slot, and the draft that the draft model's
 * last plan sampled in its slot of the same number. */
#define PLAN_SAMPLED (-1)
#define PLAN_DRAFTED (-2)

/* Returned instead of a plan if there is nothing to do yet; the caller asks again. */
#define PLAN_IDLE 1

struct plan {
    uint64_t step;  /* steps before it; a change of the models has the number of the next step */
    int32_t kind;   /* enum plan_kind */
    int32_t model;  /* number of the model that the plan concerns */
    int32_t report; /* 1: the ranks' measures go to rank 0 after this step (rank/measure/meter.h, which sets it); 0:
                       not */
    int32_t n_seqs, n_tokens, n_starts, n_blocks, n_scores, n_history, n_masks;
    int32_t n_late; /* sequences whose masks are late */
    int32_t shares; /* 1: many sequences begin with the same blocks, so attention looks for them; 0: it does not */
    struct plan_seq *seq;     /* [n_seqs], capacity max_seqs */
    struct plan_start *start; /* [n_starts], capacity max_seqs */
    struct plan_block *block; /* [n_blocks], capacity max_seqs * blocks per slot, for each kind */
    struct plan_score *score; /* [n_scores] in ascending order of seq, capacity max_seqs */
    /* [n_masks + n_late][mask_words] bit i of word i / 32 is token i. In order of seq: the masks of sampled rows, then
     * the late ones, not packed. Capacity limits_sampled */
    uint32_t *mask;
    int32_t *history;       /* [n_history] of all starts, in their order; capacity max_len */
    int32_t *token;         /* [n_tokens] ids to feed in order of seq, or PLAN_SAMPLED, PLAN_DRAFTED */
    struct limits limits;   /* of the model: what the plan is checked against */
    struct limits capacity; /* for which memory was taken */
    unsigned char *message; /* packed form, as broadcast */
    size_t message_capacity;
};

/* The results of a step that the host reads. */
struct step_result {
    uint64_t step;
    int32_t model;                 /* of the plan */
    int n_sampled;                 /* rows sampled from: sequences in the plan's order, rows in theirs */
    const struct sampled *sampled; /* [n_sampled]; valid until the next step is submitted */
    int n_rows;
    const void *logits; /* device [n_rows, vocab]: the sampled rows, the scored ones, other requested ones; NULL:
                            not contiguous, since the recorded step has a row for each token */
    int n_scored;       /* tokens scored: sequences in the plan's order, tokens in theirs */
    const struct sampled *scored; /* [n_scored] .token: the one that was scored; valid as long as the sampled ones */
};

/* Allocates memory for the largest plan. */
int plan_open(struct plan *p, const struct limits *l, struct err *e);
void plan_close(struct plan *p);

/* Allocate more memory if a plan within these limits needs it; the plan's contents are lost then. The limits must be
 * equal on all ranks that share it. */
int plan_reserve(struct plan *p, const struct limits *l, struct err *e);

/* Empty the plan for the next step, of model 0. */
void plan_reset(struct plan *p, uint64_t step);

/* Flat bytes in p->message; returns their number. */
size_t plan_pack(struct plan *p);

/* Unpacks p->message; checks magic, version, sizes and every index against the limits. `vocab` bounds ids. */
int plan_unpack(struct plan *p, size_t bytes, int vocab, struct err *e);

/* The late masks, and their size in bytes. */
uint32_t *plan_late_masks(const struct plan *p);
size_t plan_late_bytes(const struct plan *p);

/* Bytes that a packed plan claims to have, from its first PLAN_HEADER_BYTES bytes. */
#define PLAN_HEADER_BYTES 72
size_t plan_message_bytes(const unsigned char *message);
/* The model of such a plan; -1 if it is not below PLAN_MODELS. */
int plan_message_model(const unsigned char *message);

#endif
