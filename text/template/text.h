/* text/template/text.h - strings of which every byte knows whether it came with the request.
 *
 * Whatever a template does with a user's text (cutting, joining, replacing), the marks stay with the bytes. */
#ifndef TEXT_TEMPLATE_TEXT_H
#define TEXT_TEMPLATE_TEXT_H

#include "text/template/heap.h"

#include <stdbool.h>
#include <stdint.h>

struct text {      /* immutable, valid UTF-8 */
    const char *s; /* [n], not NUL-terminated */
    size_t n;
    const char *mark; /* [n] nonzero: a byte of the request; NULL: `foreign` applies to all bytes */
    bool foreign;
};

struct builder { /* {w} = empty */
    struct heap *w;
    char *s, *mark;
    size_t n, capacity;
    bool foreign; /* without marks: applies to all bytes so far */
};

/* A text of the template. */
struct text text_of(const char *string);
struct text text_slice(struct text t, size_t from, size_t to);
bool text_equal(struct text a, struct text b);
bool text_is(struct text t, const char *string);
int text_compare(struct text a, struct text b);
bool text_marked(struct text t, size_t i);
/* Offset of `what` at or after `from`, or t.n + 1. */
size_t text_find(struct text t, struct text what, size_t from);
size_t text_characters(struct text t);
/* Offset of the character after the one at `at`; of the one before `at`. */
size_t text_next(struct text t, size_t at);
size_t text_previous(struct text t, size_t at);
int32_t text_char(struct text t, size_t at);
/* White space as defined by Python's str.strip() and \s. */
bool text_is_blank(int32_t cp);
/* Strips the characters of `set` (NULL: white space) from both ends. */
struct text text_strip(struct text t, const struct text *set, bool left, bool right);

void build(struct builder *b, struct text t);
void build_bytes(struct builder *b, const char *s, size_t n, bool foreign);
void build_string(struct builder *b, const char *string, bool foreign);
void build_char(struct builder *b, int32_t cp, bool foreign);
struct text built(const struct builder *b);

#endif
