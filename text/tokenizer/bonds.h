/* text/tokenizer/bonds.h - pairs of characters across which merges may join a word. If no merge has a left token that
 * ends in the one and a right token that begins with the other, no merge crosses that border, and a long word can be
 * split there without changing its tokens (in SentencePiece-style vocabularies roughly into words). */
#ifndef TOKENIZER_BONDS_H
#define TOKENIZER_BONDS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bonds {      /* zeroed = empty */
    uint64_t *pair; /* [n_slots] open addressing; 0: empty */
    size_t n, n_slots;
    bool any; /* there is a merge of an empty token: everything may be joined */
};

/* Adds a merge of these two tokens, which are valid UTF-8. */
int bonds_add(struct bonds *b, const char *left, size_t n_left, const char *right, size_t n_right, struct err *e);
/* May a merge join a text that ends like left with one that begins like right? */
bool bonds_find(const struct bonds *b, const char *left, size_t n_left, const char *right, size_t n_right);
void bonds_close(struct bonds *b);

#endif
