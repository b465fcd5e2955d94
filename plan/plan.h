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
    PLAN_LOAD,     /* begin to read a model, beside the steps of others */
    PLAN_COMMIT,   /* it has been read on all ranks: steps of it may follow */
    PLAN_HURRY,    /* the same while other models run: nothing is measured, which would keep them waiting */
    PLAN_ROLLBACK, /* it could not be read on all ranks: what was read of it is given back */
    PLAN_DROP      /* a model's memory is given back */
};

/* Models that are loaded at once have numbers below this. */
#define PLAN_MODELS 64

/* The sizes for which memory was allocated; the bounds of every plan. Flat: broadcast once at start. */
struct limits {
    int32_t max_seqs;         /* slots: sequences that run at once */
    int32_t max_batch_tokens; /* tokens of one step, prefill and decode together */
    int32_t max_len;          /* tokens of one sequence, prompt and output */
    int32_t max_logit_rows;   /* rows of logits of one step */
    int32_t n_blocks;         /* KV blocks of KV_BLOCK_TOKENS tokens, of kind KV_MAIN */
    int32_t mask_words;       /* of 32 bits, of a mask over the model's vocabulary; 0: no plan brings masks */
    int32_t max_drafts;       /* drafted tokens of one step, of all sequences together; 0: none are drafted. Of a draft
                                 model: tokens beyond one of each sequence in a step of a few */
    int32_t draft_len;        /* tokens of a sequence that the draft model takes; 0: there is none */
    int32_t draft_skip;       /* of these, at the beginning, that it is not fed: a head (EAGLE-3) is fed token p + 1 at
                                 place p, beside the other model's state there: 1 */
    int32_t n_window_blocks;  /* KV blocks of kind KV_WINDOWED; 0: there is one kind only */
    int32_t window; /* a token of windowed layers sees itself and at most window - 1 before it; 0: no layer is windowed.
                       With one kind of blocks: all of them are, or none */
};

/* The number that plans of a draft model have, and its limits beside a model of these: it has as many blocks of kind
 * KV_MAIN, with numbers of its own, and no others, so that its windowed layers keep everything. If all drafts of a
 * sequence were right, it is fed the last one and the token behind it: two in a step. */
#define PLAN_DRAFT_MODEL 1
struct limits limits_of_draft_model(const struct limits *l);

static inline int limits_blocks_per_slot(const struct limits *l)
{
    return (l->max_len + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* Entries of the block table of a kind: [max_seqs, blocks per slot]. */
static inline int64_t limits_table_entries(const struct limits *l)
{
    return (int64_t)l->max_seqs * limits_blocks_per_slot(l);
}

/* Rows that a step samples at most: one of each sequence, and one for each draft. */
static inline int limits_sampled(const struct limits *l)
{
    int rows = l->max_seqs + l->max_drafts;
    return rows < l->max_logit_rows ? rows : l->max_logit_rows;
}

/* Kinds of KV blocks. */
static inline int limits_kinds(const struct limits *l)
{
    return l->n_window_blocks > 0 ? KV_KINDS : 1;
}

/* Blocks of a kind with this window that a sequence has to hold to feed a block's tokens, wherever they begin. */
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

/* The place of the masks of a sequence's sampled rows, one for each. Late: they depend on the token that the step
 * before samples, so they follow once that is known, while the device works on the rest of this step. */
enum plan_mask { MASK_NONE, MASK_HERE, MASK_LATE };

/* A sequence's share of the step: its next n_tokens tokens, at positions pos .. pos + n_tokens - 1. */
struct plan_seq {
    int32_t slot, n_tokens, pos;
    int32_t rope_len; /* prompt's length; this or a token's position + 1, if that is more, chooses its rotation */
    int32_t n_logits; /* logits of the last n_logits tokens are computed; 0: none */
    int32_t
        sample; /* a token is sampled from each of the last `sample` rows of logits. 0: none; 1: the next one; k + 1:
                         the last k tokens fed are drafts, each of which counts if the token sampled before it is the
                         same */
    int32_t masked; /* enum plan_mask; sampling.masked of the slot says whether it is MASK_NONE. MASK_LATE: one row
                         is sampled */
};

/* Scoring (prompt_logprobs): each of the first n_scored of the rows of logits of sequence number seq of the plan
 * says how likely it makes the token that follows it in the prompt, and which sampling.n_prompt_top are likeliest.
 * That token is the sequence's next one in the plan; after its last one it is `next` (-1 when that row is not
 * scored).
 *
 * So a chunk [pos, pos + n) of a prompt of P tokens has n_logits = n and {seq, min(n, P - 1 - pos), prompt[pos + n]
 * or -1}. Each token costs a row: n is at most what limits.max_logit_rows leaves. Tokens from the prefix cache are not
 * fed and so not scored: a request that wants scores takes nothing from there, until it has them (it may when it is
 * recomputed). */
struct plan_score {
    int32_t seq, n_scored, next;
};

/* A slot gets a new sequence. Its first n_history tokens are not fed, since their keys and values are in blocks that
 * it shares, but are given nevertheless: for penalties, which look at the tokens of the slot. 0 where nothing looks
 * at them. */
struct plan_start {
    int32_t slot, n_history;
    struct sampling sampling;
};

/* block_table[kind][slot][index] = block */
struct plan_block {
    int32_t slot, index, block;
    int32_t kind; /* enum kv_kind */
};

/* Ids of tokens that only the device knows: the one sampled last in the slot, and the one that the draft model sampled
 * last in its slot of the same number, which that model's last plan did. */
#define PLAN_SAMPLED (-1)
#define PLAN_DRAFTED (-2)

/* Returned instead of a plan when there is nothing to do yet: ask again. */
#define PLAN_IDLE 1

struct plan {
    uint64_t step; /* steps before it; a change of the models has the number of the next step */
    int32_t kind;  /* enum plan_kind */
    int32_t model; /* number of the one that it is about */
    int32_t
        report; /* 1: the ranks' measures go to rank 0 after this step (rank/measure/meter.h, which sets it); 0: not */
    int32_t n_seqs, n_tokens, n_starts, n_blocks, n_scores, n_history, n_masks;
    int32_t n_late;           /* sequences whose masks are late */
    int32_t shares;           /* 1: many sequences begin with the same blocks, which are worth looking for; 0: not */
    struct plan_seq *seq;     /* [n_seqs], capacity max_seqs */
    struct plan_start *start; /* [n_starts], capacity max_seqs */
    struct plan_block *block; /* [n_blocks], capacity max_seqs * blocks per slot, for each kind */
    struct plan_score *score; /* [n_scores] in ascending order of seq, capacity max_seqs */
    /* [n_masks + n_late][mask_words] bit i of word i / 32: of the sampled rows whose masks are here, in order of seq;
     * then the late ones, in order of seq, which are not packed with the plan. Capacity limits_sampled */
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
    const void *logits; /* device [n_rows, vocab]: the sampled rows, the scored ones, the others that were asked for;
                         * NULL: they lie apart, since the step was recorded with a row for each token */
    int n_scored;       /* tokens scored: sequences in the plan's order, tokens in theirs */
    const struct sampled *scored; /* [n_scored] .token: the one that was scored; valid as long as the sampled ones */
};

/* Takes memory for the largest plan. */
int plan_open(struct plan *p, const struct limits *l, struct err *e);
void plan_close(struct plan *p);

/* Take more memory, if a plan within these limits needs it: what the plan holds is lost then. Equal on all ranks
 * that share it. */
int plan_reserve(struct plan *p, const struct limits *l, struct err *e);

/* Empty the plan for the next step, of model 0. */
void plan_reset(struct plan *p, uint64_t step);

/* Flat bytes in p->message; returns their number. */
size_t plan_pack(struct plan *p);

/* The reverse, from p->message; checks magic, version, sizes and every index against the limits. `vocab` bounds ids. */
int plan_unpack(struct plan *p, size_t bytes, int vocab, struct err *e);

/* The late masks; bytes of all of them. */
uint32_t *plan_late_masks(const struct plan *p);
size_t plan_late_bytes(const struct plan *p);

/* Bytes that a packed plan claims to have, from its first PLAN_HEADER_BYTES bytes. */
#define PLAN_HEADER_BYTES 72
size_t plan_message_bytes(const unsigned char *message);
/* And the model that it is about, -1 where it is not below PLAN_MODELS. */
int plan_message_model(const unsigned char *message);

#endif
