/* text/tokenizer/vocab.h - token content <-> id, both ways in constant time. Contents may hold any byte. */
#ifndef TOKENIZER_VOCAB_H
#define TOKENIZER_VOCAB_H

#include "text/tokenizer/source.h"

struct vocab_token {
    size_t start;
    uint32_t bytes;
    bool present;
};

struct vocab {
    char *text; /* all contents, concatenated */
    size_t text_bytes, text_capacity;
    struct vocab_token *token; /* [n_ids], by id; ids need not be dense */
    int32_t n_ids;
    int32_t *slot; /* [n_slots] open addressing by content: id, or -1 */
    size_t n_slots, n_tokens;
    size_t longest; /* bytes of the longest content */
};

/* Room for ids below n_ids, n_tokens tokens and text_bytes bytes of contents. */
int vocab_open(struct vocab *v, int32_t n_ids, size_t n_tokens, size_t text_bytes, struct err *e);
/* From {"content": id, ...}. */
int vocab_load(struct vocab *v, const struct source *l, const json_t *object);
void vocab_close(struct vocab *v);

/* 0, or -1 if the id or the content is taken. The id must be in range, and vocab_open must have reserved room. */
int vocab_add(struct vocab *v, int32_t id, const char *content, size_t bytes);
int32_t vocab_find(const struct vocab *v, const char *content, size_t bytes); /* -1: none */
/* Borrowed, not NUL-terminated; NULL: no such id. */
const char *vocab_text(const struct vocab *v, int32_t id, size_t *bytes);

#endif
