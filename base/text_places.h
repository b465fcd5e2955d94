/* base/text_places.h - the characters of a text at which its tokens begin, as `text_offset` of OpenAI's
 * log-probabilities counts them. */
#ifndef BASE_TEXT_PLACES_H
#define BASE_TEXT_PLACES_H

#include <stddef.h>
#include <stdint.h>

struct text_places {  /* set up as {text, bytes} */
    const char *text; /* [bytes] that the tokens make up; borrowed */
    size_t bytes, at; /* at: the byte where the next token is expected */
    int64_t begun;    /* characters that have begun before it */
};

/* Returns the place of the next token, which stands for these bytes. A part of a character is where the character
 * is. */
int64_t text_place(struct text_places *p, const char *piece, size_t bytes);

/* The same for a token that is in the text only if the text has its name here: a special token. */
int64_t text_place_of_name(struct text_places *p, const char *name, size_t bytes);

#endif
