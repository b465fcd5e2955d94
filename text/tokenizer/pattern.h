/* text/tokenizer/pattern.h - the patterns of tokenizer.json (Oniguruma, Ruby syntax), run by PCRE2.
 *
 * The two differ in syntax and in their Unicode tables, so a pattern is translated first; what cannot be translated
 * faithfully is refused by name. */
#ifndef TOKENIZER_PATTERN_H
#define TOKENIZER_PATTERN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/buffer.h"
#include "text/tokenizer/source.h"

#include <pcre2.h>

struct pattern {
    pcre2_code *code; /* NULL: literal */
    char *literal;    /* [literal_bytes] */
    size_t literal_bytes;
};

/* The state of matching besides the pattern: one per thread of control. Zeroed = not open. */
struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* A walk over all matches in text[0, bytes), valid UTF-8. */
struct pattern_walk {
    const char *text;
    size_t bytes, at; /* at: where the search goes on */
    size_t last_end;  /* of the last match; SIZE_MAX: none yet */
};

/* From {"String": ...} or {"Regex": ...}. */
int pattern_load(struct pattern *p, const struct source *l, const json_t *value, const char *what);
int pattern_open(struct pattern *p, const struct source *l, const char *regex, size_t bytes, const char *what);
void pattern_close(struct pattern *p);

/* pattern_translate.c: append the PCRE2 form of regex[0, bytes) to *out. */
int pattern_translate(struct buffer *out, const struct source *l, const char *regex, size_t bytes, const char *what);

int matcher_open(struct matcher *m, struct err *e);
void matcher_close(struct matcher *m);

/* The next match as [*start, *end): 1, 0 if there is none, -1 on failure. An empty match right after the previous one
 * is skipped. */
int pattern_next(const struct pattern *p, struct matcher *m, struct pattern_walk *walk, size_t *start, size_t *end,
                 struct err *e);

#endif
