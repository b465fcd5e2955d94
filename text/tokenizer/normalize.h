/* text/tokenizer/normalize.h - the "normalizer" part: NFC, Prepend, Replace, and Sequences of them. */
#ifndef TOKENIZER_NORMALIZE_H
#define TOKENIZER_NORMALIZE_H

#include "text/tokenizer/buffer.h"
#include "text/tokenizer/pattern.h"

enum normalize_kind { NORMALIZE_NFC = 1, NORMALIZE_PREPEND, NORMALIZE_REPLACE };

struct normalize_step {
    enum normalize_kind kind;
    struct pattern pattern; /* Replace */
    char *content;          /* Prepend, Replace: [content_bytes] */
    size_t content_bytes;
};

struct normalizer {
    struct normalize_step *step; /* [n] */
    size_t n;
    double growth; /* see normalize_check_growth */
};

int normalize_load(struct normalizer *n, const struct source *l, const json_t *part);
void normalize_close(struct normalizer *n);

/* Append the normalized form of text[0, bytes), valid UTF-8, to *out. */
int normalize_run(const struct normalizer *n, struct matcher *m, const char *text, size_t bytes, struct buffer *out,
                  struct err *e);
/* Adds a replacement by content_bytes bytes to a chain: *growth (0 at the start) is the factor by which a text can
 * grow. Files in use stay below 100; hostile ones are refused here. */
int normalize_check_growth(double *growth, const struct source *l, size_t content_bytes, const char *what);
/* Append text with every match replaced; also used by the Replace decoder. */
int normalize_replace(const struct pattern *p, struct matcher *m, const char *text, size_t bytes, const char *content,
                      size_t content_bytes, struct buffer *out, struct err *e);

#endif
