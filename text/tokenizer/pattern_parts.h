/* text/tokenizer/pattern_parts.h - shared by the two parts of a pattern's translation: structure (pattern_translate.c)
 * and characters (pattern_class.c); for them only. */
#ifndef TOKENIZER_PATTERN_PARTS_H
#define TOKENIZER_PATTERN_PARTS_H

#include "text/tokenizer/pattern.h"

#define PATTERN_MAX_DEPTH 60 /* nesting of groups or classes */
#define PATTERN_NO_ATOM   SIZE_MAX

struct translation {
    const struct source *l;
    const char *what, *s; /* s[n]: the pattern */
    size_t n, at;
    struct buffer *out;
    size_t atom;     /* offset in *out of the item that a quantifier would repeat; PATTERN_NO_ATOM: none */
    bool quantified; /* that item has a quantifier already */
    bool caseless;
    int32_t last; /* previous literal, for multi-character case folding; 0: none */
};

/* ERR_UNSUPPORTED, ERR_INPUT with the place in the pattern. Return -1. */
int pattern_refuse(struct translation *t, const char *part);
int pattern_malformed(struct translation *t, const char *problem);

/* The byte `ahead` positions further; -1: beyond the end. */
static inline int peek(const struct translation *t, size_t ahead)
{
    return t->at + ahead < t->n ? (unsigned char)t->s[t->at + ahead] : -1;
}

/* Translates a set escape (\s \d \w \h \p and their negations) with t->at after the backslash. 1: its members are
 * appended, for the caller to put in brackets (in_class: the surrounding ones) and to negate if *negated; 0: not a set
 * escape. */
int pattern_set_escape(struct translation *t, bool in_class, bool *negated);
/* One literal code point, escaped or not, in a class or outside. */
int pattern_read_literal(struct translation *t, bool in_class, int32_t *cp);
/* The items of [...] up to and including ']'. t->at is after '[' and '^'. Nested classes are unions and are
 * flattened. */
int pattern_class_items(struct translation *t, int depth);

#endif
