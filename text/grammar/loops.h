/* text/grammar/loops.h - tokens whose characters, all but the first, belong to one set. Within a pattern like
 * [a-z0-9_]+ a machine stays in one state over such a set, within [0-9]{1,9} it goes along a chain of states, so that
 * these tokens are found once for a set, not once for a state. The sets of many patterns are the same. */
#ifndef GRAMMAR_LOOPS_H
#define GRAMMAR_LOOPS_H

#include "text/grammar/alike.h"
#include "text/grammar/lexicon.h"

#define LOOPS_KEPT      24
#define LOOPS_MAX_CHAIN 256
#define LOOPS_LENGTHS   12

struct loop_token {
    int32_t token, chars; /* characters; one that is not complete counts as well */
};

struct loop_leaving {
    int32_t node;   /* of lexicon.all, whose byte is the first one that does not belong to the set */
    uint16_t chars; /* before it */
    uint8_t first;  /* byte of these */
};

struct loop_set {
    uint64_t ascii[2];
    bool wide;                /* all characters beyond ASCII belong to it */
    uint32_t *inner;          /* [LOOPS_LENGTHS + 1][n_words] tokens all of whose characters belong to the set, with the
                                 first one: of at most i + 1 characters; the last: of all */
    struct loop_token *token; /* by their first byte: those of byte b are token[token_begin[b], token_begin[b + 1]) */
    struct loop_leaving
        *leaving; /* likewise by the byte of the node. Bytes beyond ASCII begin something if it is wide */
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

/* A machine's way over the characters of a set: state[i] behind i of them. */
struct loop_chain {
    const struct loop_set *set; /* NULL: there is none worth the memory */
    int n;                      /* of states; behind the last one comes the last one again (endless), or nothing */
    bool endless;
    int32_t state[LOOPS_MAX_CHAIN];
};

/* The way from a state. Valid until the next call. */
void loops_chain(struct loops *loops, const struct lexicon *l, struct machine *m, int state, struct loop_chain *chain);
/* The state behind so many characters; MACHINE_DEAD. */
int loops_state(const struct loop_chain *chain, int chars);
/* Whether a byte begins a character of the set. */
bool loops_has(const struct loop_set *set, unsigned char byte);
/* Tokens all of whose characters belong to the chain's set, the first of which led to its begin, to the mask. */
void loops_set_inner(const struct loop_chain *chain, const struct lexicon *l, uint32_t *mask);
void loops_close(struct loops *loops);

#endif
