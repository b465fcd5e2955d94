/* text/tokenizer/pattern_parts.h - what the two parts of a pattern's translation share: its structure
 * (pattern_translate.c) and its characters (pattern_class.c); for them only. */
#ifndef TOKENIZER_PATTERN_PARTS_H
#define TOKENIZER_PATTERN_PARTS_H

#include "text/tokenizer/pattern.h"

#define PATTERN_MAX_DEPTH 60 /* of groups or classes in one another */
#define PATTERN_NO_ATOM   SIZE_MAX

struct translation {
    const struct source *l;
    const char *what, *s; /* s[n]: the pattern */
    size_t n, at;
    struct buffer *out;
    size_t atom;     /* offset in *out of the item that a quantifier would repeat; PATTERN_NO_ATOM: none */
    bool quantified; /* it has a quantifier already */
    bool caseless;
    int32_t last; /* previous literal, for multi-character case folding; 0: none */
};

/* ERR_UNSUPPORTED, ERR_INPUT with the place in the pattern. Return -1. */
int pattern_refuse(struct translation *t, const char *part);
int pattern_malformed(struct translation *t, const char *problem);

/* The byte `ahead` of the place; -1: behind the end. */
static inline int peek(const struct translation *t, size_t ahead)
{
    return t->at + ahead < t->n ? (unsigned char)t->s[t->at + ahead] : -1;
}

/* A set escape (\s \d \w \h \p and their negations) with t->at behind the backslash: 1 and its members are appended, to
 * be put in brackets (in_class: into the surrounding ones) and negated if *negated; 0: not a set escape. */
int pattern_set_escape(struct translation *t, bool in_class, bool *negated);
/* One literal code point, escaped or not, in a class or outside. */
int pattern_read_literal(struct translation *t, bool in_class, int32_t *cp);
/* The items of [...] up to and with its ']'. t->at is behind '[' and '^'. Nested classes are a union: flattened. */
int pattern_class_items(struct translation *t, int depth);

#endif
