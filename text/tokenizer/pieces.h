/* text/tokenizer/pieces.h - a text cut into pieces, each either still text or already an id. */
#ifndef TOKENIZER_PIECES_H
#define TOKENIZER_PIECES_H

#include "text/tokenizer/buffer.h"

struct text_piece {
    size_t start, bytes; /* in pieces.text */
    int32_t id;          /* of an added token; -1: text */
    bool first;          /* the piece is at the start of the input */
};

struct pieces { /* zeroed = empty */
    struct buffer text;
    struct text_piece *piece; /* [n] */
    size_t n, capacity;
};

void pieces_close(struct pieces *p);
void pieces_clear(struct pieces *p);
/* Drops empty text pieces. */
int pieces_add(struct pieces *p, size_t start, size_t bytes, int32_t id, bool first, struct err *e);
/* Moves the text of one into the other, whose pieces refer to it. */
void pieces_take_text(struct pieces *to, struct pieces *from);

#endif
