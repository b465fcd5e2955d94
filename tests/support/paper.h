/* tests/support/paper.h - a simulated device ("made of paper"): it executes plans as an engine does, on a KV cache of
 * hashes. The entry at a position is a hash of the token and of the preceding position's entry, read through the block
 * table, as a real cache's keys and values depend on all tokens before. Sampled tokens are a hash of all entries up to
 * the position. So a block that is shared wrongly, overwritten, or read before it is filled, and a token that is fed
 * twice or skipped, gives other tokens than paper_next, which knows the tokens alone. Penalties read the tokens that
 * were fed in the slot, as the engine's do. Sequences of a step run in a random order: none may read what another
 * writes in the same step. Blocks of kind KV_WINDOWED have a copy of these hashes, and every fed token compares the
 * copies in its window with the originals. If there is one kind only, and it is windowed, sampled tokens depend on the
 * hashes in the window alone, in paper_next, too, which follows the device opened last. */
#ifndef TESTS_SUPPORT_PAPER_H
#define TESTS_SUPPORT_PAPER_H

#include "plan/plan.h"

struct paper {
    struct limits limits;
    int vocab;
    int *table[KV_KINDS];       /* [max_seqs][blocks per slot], -1: never set */
    uint64_t *kv[KV_KINDS];     /* [n_blocks][KV_BLOCK_TOKENS] */
    int32_t *history;           /* [max_seqs][max_len] */
    int32_t *last;              /* [max_seqs] */
    struct sampling *params;    /* [max_seqs] */
    struct plan plan;           /* as another rank would receive it */
    int *order;                 /* [max_seqs] */
    uint64_t seed;              /* of the order */
    struct sampled *sampled[2]; /* [max_seqs + max_drafts] of an even and an odd step */
    int64_t n_fed;
    const struct paper *draft_model; /* borrowed; NULL: there is none */
};

int paper_open(struct paper *d, const struct limits *l, int vocab, struct err *e);
void paper_close(struct paper *d);

/* Packs, unpacks and executes the plan. Returns NULL if it is valid, else the error. The result is valid until the step
 * after the next one. */
const char *paper_execute(struct paper *d, struct plan *p, struct step_result *result);

/* Returns the token that the device must sample after token[0, n), prompt_len of them prompt. Log-probabilities follow
 * from the same numbers: *out has them for s->n_top. */
int32_t paper_next(const int32_t *token, int n, int prompt_len, const struct sampling *s, int vocab,
                   struct sampled *out);

/* Computes the log-probabilities of all tokens, before any rule. */
void paper_logprobs(const int32_t *token, int n, int vocab, float *logprob);

#endif
