/* text/grammar/loops.h - tokens whose characters, all but the first, belong to one set. Over such a set a machine stays
 * in one state (in a pattern like [a-z0-9_]+) or goes along a chain of states (in [0-9]{1,9}), so these tokens are
 * found once per set, not once per state. Many patterns have the same sets. */
#ifndef GRAMMAR_LOOPS_H
#define GRAMMAR_LOOPS_H

#include "text/grammar/alike.h"
#include "text/grammar/lexicon.h"

#define LOOPS_KEPT      24
#define LOOPS_MAX_CHAIN 256
#define LOOPS_LENGTHS   12

struct loop_token {
    int32_t token, chars; /* characters, including an incomplete one */
};

struct loop_leaving {
    int32_t node;   /* node of lexicon.all whose byte is the first one outside of the set */
    uint16_t chars; /* before it */
    uint8_t first;  /* byte of these */
};

struct loop_set {
    uint64_t ascii[2];
    bool wide;       /* all characters beyond ASCII belong to it */
    uint32_t *inner; /* [LOOPS_LENGTHS + 1][n_words] tokens whose characters, including the first, all belong to the
                        set: of at most i + 1 characters; the last bitmap: of any length */
    struct loop_token *token; /* by their first byte: those of byte b are token[token_begin[b], token_begin[b + 1]) */
    struct loop_leaving *leaving; /* likewise by the byte of the node. Bytes beyond ASCII can begin a token if the
                                     set is wide */
    int32_t token_begin[257], leaving_begin[257];
    int n_tokens, n_leaving, longest; /* characters */
    uint64_t used;
};

struct loops {
    struct loop_set *set[LOOPS_KEPT];
    struct loop_token *token;     /* [lexicon.n_tokens] room in which a set is found */
    struct loop_leaving *leaving; /* [lexicon.all.n] */
    uint64_t clock;
};

/* A machine's path over the characters of a set: state[i] after i of them. */
struct loop_chain {
    const struct loop_set *set; /* NULL: not worth the memory */
    int n;                      /* number of states; the last one is followed by itself (endless), or by none */
    bool endless;
    int32_t state[LOOPS_MAX_CHAIN];
};

/* The chain from a state. Valid until the next call. */
void loops_chain(struct loops *loops, const struct lexicon *l, struct machine *m, int state, struct loop_chain *chain);
/* The state after this many characters, or MACHINE_DEAD. */
int loops_state(const struct loop_chain *chain, int chars);
/* Whether a byte begins a character of the set. */
bool loops_has(const struct loop_set *set, unsigned char byte);
/* Adds to the mask the tokens whose characters all belong to the chain's set and whose first one led to its
 * beginning. */
void loops_set_inner(const struct loop_chain *chain, const struct lexicon *l, uint32_t *mask);
void loops_close(struct loops *loops);

#endif
