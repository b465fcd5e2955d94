/* text/tokenizer/bonds.h - between which characters a word may be joined by merges. If no merge has a left token that
 * ends in the one and a right token that begins with the other, nothing is ever joined across: a long word falls into
 * parts there that have the same tokens as the whole (in SentencePiece-style vocabularies: into words, about). */
#ifndef TOKENIZER_BONDS_H
#define TOKENIZER_BONDS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bonds {      /* zeroed = empty */
    uint64_t *pair; /* [n_slots] open addressing; 0: empty */
    size_t n, n_slots;
    bool any; /* a merge of an empty token: everything may be joined */
};

/* A merge of these two tokens, valid UTF-8. */
int bonds_add(struct bonds *b, const char *left, size_t n_left, const char *right, size_t n_right, struct err *e);
/* May a merge join what ends as left with what begins as right? */
bool bonds_find(const struct bonds *b, const char *left, size_t n_left, const char *right, size_t n_right);
void bonds_close(struct bonds *b);

#endif
