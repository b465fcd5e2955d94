/* base/text_places.c - see text_places.h. */
#include "base/text_places.h"

#include <stdbool.h>
#include <string.h>

static bool goes_on(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

int64_t text_place(struct text_places *p, const char *piece, size_t bytes)
{
    bool inside = bytes > 0 && goes_on(piece[0]);
    if (p->begun == 0 && bytes > 0 && piece[0] == ' ' && p->bytes > 0 && p->text[0] != ' ') {
        piece++; /* SentencePiece's space before the first word, which texts do not have */
        bytes--;
    }
    if (inside && p->begun == 0)
        p->begun = 1;
    int64_t place = p->begun - inside;
    for (size_t i = 0; i < bytes; i++)
        p->begun += !goes_on(piece[i]);
    p->at += bytes;
    return place;
}

int64_t text_place_of_name(struct text_places *p, const char *name, size_t bytes)
{
    bool found = p->at <= p->bytes && bytes <= p->bytes - p->at && memcmp(p->text + p->at, name, bytes) == 0;
    return found ? text_place(p, name, bytes) : p->begun;
}
