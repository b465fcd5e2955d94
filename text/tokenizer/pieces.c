/* text/tokenizer/pieces.c - see pieces.h. */
#include "text/tokenizer/pieces.h"

#include <stdlib.h>

void pieces_close(struct pieces *p)
{
    buffer_free(&p->text);
    free(p->piece);
    *p = (struct pieces){0};
}

void pieces_clear(struct pieces *p)
{
    p->text.bytes = 0;
    p->n = 0;
}

int pieces_add(struct pieces *p, size_t start, size_t bytes, int32_t id, bool first, struct err *e)
{
    if (bytes == 0 && id < 0)
        return 0;
    if (p->n == p->capacity && buffer_grow_array((void **)&p->piece, &p->capacity, p->n + 1, sizeof *p->piece, e) != 0)
        return -1;
    p->piece[p->n++] = (struct text_piece){start, bytes, id, first};
    return 0;
}

void pieces_take_text(struct pieces *to, struct pieces *from)
{
    struct buffer text = to->text;
    to->text = from->text;
    from->text = text;
}
