/* text/grammar/lexicon.h - a vocabulary as the bytes that its tokens stand for: a tree to be walked along a machine's
 * states. Most tokens are "plain", pieces of ordinary text without quotes, backslashes and control characters, whose
 * last character may be incomplete. Within a JSON string of unlimited length all plain tokens are allowed, so they form
 * one bitmap, and only the others are walked: their tails from the first byte that is not plain, since the bytes before
 * it stay within the string. If a path through the tree of all tokens reaches such a place (a member's name once it
 * differs from the listed ones; the text after a backslash), the plain tokens below it are set together, too. */
#ifndef GRAMMAR_LEXICON_H
#define GRAMMAR_LEXICON_H

#include "text/grammar/lexicon_tree.h"
#include "text/grammar/machine.h"
#include "text/tokenizer/tokenizer.h"

#define LEXICON_LENGTHS 16

/* A byte that does not occur in UTF-8. It encloses the text of a special token, so such tokens match only where a form
 * requests them (calls.h). */
#define LEXICON_SPECIAL 0xff

struct lexicon_plain {    /* a plain token */
    int32_t token, chars; /* number of characters that begin in it */
};

struct lexicon_tails { /* tree of the tokens with this number of plain characters before the first byte that is not
                          plain */
    int chars;
    struct lexicon_tree tree; /* of their bytes from that one on */
};

struct loops;
struct walks;

struct lexicon {                       /* constant once open */
    const struct tokenizer *tokenizer; /* borrowed */
    int32_t n_tokens;                  /* the vocabulary's size */
    int n_words;                       /* of 32 bits, of a mask over it */
    int32_t *same, *same_tail;         /* [n_tokens] for the trees: of equal bytes; of equal tails */
    struct lexicon_tree all, other;    /* other: those that are not plain */
    int32_t *other_of;                 /* [all.n] the node of `other` with the same bytes, -1: there is none */
    int32_t *plain_before;             /* [all.n + 1] plain tokens of the nodes before it */
    struct lexicon_plain *in_order;    /* [n_plain] by nodes */
    struct loops *loops;               /* kept between masks; besides walks the only part that changes */
    struct walks *walks;               /* of the grammars used last; NULL: none are kept */
    struct lexicon_plain *plain;       /* [n_plain] the shortest first */
    int n_plain, longest;              /* characters of the longest one */
    struct lexicon_tails *tails;       /* [n_tails] of those that are not plain, by characters */
    int n_tails;
    size_t most_within;   /* most bytes of a token that is not plain within a string, up to the quote */
    uint32_t *up_to;      /* [LEXICON_LENGTHS + 1][n_words]: plain ones of at most i + 1 characters; the last: of all */
    unsigned char *bytes; /* the bytes of all tokens, concatenated */
    size_t *first;        /* [n_tokens + 1] where each begins */
};

/* Opens the lexicon of a vocabulary of n_tokens ids, at least the tokenizer's. ERR_UNSUPPORTED: its tokens have no
 * bytes of their own. */
int lexicon_open(struct lexicon *l, const struct tokenizer *t, int32_t n_tokens, struct err *e);
void lexicon_close(struct lexicon *l);

/* Set the bits of all tokens that may come in a state, and clear the others. One thread at a time. Returns the number
 * of visited nodes. */
int lexicon_mask(const struct lexicon *l, struct machine *m, int state, uint32_t *mask);

/* Another state, to which most characters lead from this one and in which they stay: tokens that begin with them may
 * come in both states or in neither. MACHINE_DEAD: there is none. */
int lexicon_near(struct machine *m, int state);
/* The mask of a state, made from the existing mask of that other state: only paths after which the two differ are
 * followed. Returns the number of visited nodes. */
int lexicon_mask_from(const struct lexicon *l, struct machine *m, int state, int near, uint32_t *mask);

/* The state after a token. MACHINE_DEAD: it may not come, or has no text. */
int lexicon_take(const struct lexicon *l, struct machine *m, int state, int32_t token);

/* The bytes of a token; *n is 0 where it has no text. */
const unsigned char *lexicon_bytes(const struct lexicon *l, int32_t token, size_t *n);

/* The longest token that is a prefix of text[0, n), and its number of bytes; -1: there is none. */
int32_t lexicon_longest(const struct lexicon *l, const char *text, size_t n, size_t *bytes);

/* Is there a longer token that begins with text[0, n) and whose remaining bytes may come in the state? */
bool lexicon_reaches(const struct lexicon *l, struct machine *m, int state, const char *text, size_t n);

#endif
