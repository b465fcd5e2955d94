/* text/stop.h - finds stop strings in text that arrives in pieces, holding back bytes that may still become one. */
#ifndef TEXT_STOP_H
#define TEXT_STOP_H

#include "base/text_buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STOP_MAX_STRINGS 16
#define STOP_MAX_BYTES   1024 /* of each */

struct stop_strings { /* from 1 to STOP_MAX_STRINGS of them */
    int n;
    struct stop_string {
        const char *text; /* [bytes], NUL-terminated */
        size_t bytes;
        /* [bytes] Knuth, Morris and Pratt's failure function: the length of the longest proper prefix that is a suffix
         * of the first k + 1 bytes. */
        const uint16_t *border;
    } string[STOP_MAX_STRINGS];
};

/* Copies the texts, of which each has 1 to STOP_MAX_BYTES bytes, and prepares matching them, all in one piece of
 * memory. NULL, and *e: out of host memory. */
struct stop_strings *stop_open(int n, const char *const *text, struct err *e);
void stop_close(struct stop_strings *s); /* safe on NULL */

/* The progress of a text in each string; zeroed for an empty text. */
struct stop_state {
    uint16_t matched[STOP_MAX_STRINGS]; /* bytes of the string that the text ends with */
    int found;                          /* 1 + the number of the string that has been found; 0: none */
};

/* Append a piece to `text`, whose first *released bytes are final. Its cost is that of the piece alone, however long
 * the strings and what is held back are. If s is NULL, nothing is looked for, and `state` has seen none of the bytes so
 * far. Afterwards either a stop string has been found: true is returned, the text ends before it (after it if
 * keep_stop) and is all released; or *released covers all but the longest tail that begins a stop string. Once the last
 * piece is in, release the rest by setting *released = text->bytes. */
bool stop_append(const struct stop_strings *s, struct stop_state *state, struct text_buffer *text, size_t *released,
                 const char *piece, size_t bytes, bool keep_stop, struct err *e);

#endif
