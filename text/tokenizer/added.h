/* text/tokenizer/added.h - added tokens: found in the text before anything else is done with it. */
#ifndef TOKENIZER_ADDED_H
#define TOKENIZER_ADDED_H

#include "text/tokenizer/normalize.h"
#include "text/tokenizer/pieces.h"
#include "text/tokenizer/vocab.h"

struct added_token {
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    bool skipped;  /* skipped by a decoder that skips special tokens: `decoded` is the content of a special token */
    char *decoded; /* [decoded_bytes] what decoding yields: the normalized content if normalized (library 0.23) */
    size_t decoded_bytes;
};

/* A byte trie in first-child / next-sibling form, with children sorted by byte, and a direct index of the root's
 * children. */
struct added_node {
    int32_t child, sibling; /* -1: none */
    int32_t token;          /* index of the token that ends here, -1: none */
    unsigned char byte;
};

struct added_trie {
    struct added_node *node; /* [n]; 0 is the root */
    size_t n, capacity;
    int32_t first[256]; /* the root's child for a byte, -1: none */
};

struct added {
    struct added_token *token; /* [n] */
    size_t n;
    struct vocab content; /* as in the file, by id */
    int32_t *by_id;       /* [content.n_ids] index of the token, -1: none */
    struct added_trie raw, normalized;
};

/* From the "added_tokens" array, which may be NULL or null. model: its ids win over the file's. */
int added_load(struct added *a, const struct source *l, const json_t *list, const struct vocab *model,
               const struct normalizer *normalizer);
void added_close(struct added *a);

/* The added token with this id, or NULL. */
const struct added_token *added_get(const struct added *a, int32_t id);

struct spans { /* of a text: [start, stop), ascending, none touches another */
    struct span {
        size_t start, stop;
    } * span;
    size_t n, capacity;
};

/* Cut the tokens of one trie out of piece p of `in`: appends the parts to out->piece (text stays in->text).
 * special: of in->text; only within one of these are special tokens recognised. NULL: everywhere. */
int added_split(const struct added *a, const struct added_trie *trie, const struct pieces *in,
                const struct text_piece *p, const struct spans *special, struct pieces *out, struct err *e);

#endif
