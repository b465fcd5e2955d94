/* text/template/text.h - strings of which every byte knows whether it came with the request.
 *
 * Whatever a template does with a user's words - cutting, joining, replacing - the marks go with the bytes. */
#ifndef TEXT_TEMPLATE_TEXT_H
#define TEXT_TEMPLATE_TEXT_H

#include "text/template/heap.h"

#include <stdbool.h>
#include <stdint.h>

struct text {      /* immutable, valid UTF-8 */
    const char *s; /* [n], not NUL-terminated */
    size_t n;
    const char *mark; /* [n] nonzero: a byte of the request; NULL: all bytes are as `foreign` says */
    bool foreign;
};

struct builder { /* {w} = empty */
    struct heap *w;
    char *s, *mark;
    size_t n, capacity;
    bool foreign; /* while there is no mark: as all bytes so far */
};

/* A text of the template. */
struct text text_of(const char *string);
struct text text_slice(struct text t, size_t from, size_t to);
bool text_equal(struct text a, struct text b);
bool text_is(struct text t, const char *string);
int text_compare(struct text a, struct text b);
bool text_marked(struct text t, size_t i);
/* Offset of `what` at or behind `from`, or t.n + 1. */
size_t text_find(struct text t, struct text what, size_t from);
size_t text_characters(struct text t);
/* Offset of the character behind the one at `at`; of the one that ends before `at`. */
size_t text_next(struct text t, size_t at);
size_t text_previous(struct text t, size_t at);
int32_t text_char(struct text t, size_t at);
/* White space as Python's str.strip() and \s see it. */
bool text_is_blank(int32_t cp);
/* Without the characters of `set` (NULL: white space) at its ends. */
struct text text_strip(struct text t, const struct text *set, bool left, bool right);

void build(struct builder *b, struct text t);
void build_bytes(struct builder *b, const char *s, size_t n, bool foreign);
void build_string(struct builder *b, const char *string, bool foreign);
void build_char(struct builder *b, int32_t cp, bool foreign);
struct text built(const struct builder *b);

#endif
