/* text/tokenizer/pretokenize.h - the "pre_tokenizer" part: splits a text into words before any merging.
 *
 * ByteLevel, Split, Digits, Punctuation, Metaspace, and Sequences of them. */
#ifndef TOKENIZER_PRETOKENIZE_H
#define TOKENIZER_PRETOKENIZE_H

#include "text/tokenizer/pattern.h"
#include "text/tokenizer/pieces.h"

enum pretokenize_kind {
    PRETOKENIZE_BYTE_LEVEL = 1,
    PRETOKENIZE_SPLIT,
    PRETOKENIZE_DIGITS,
    PRETOKENIZE_PUNCTUATION,
    PRETOKENIZE_METASPACE
};

/* The treatment of the matches of a splitting pattern, and of the gaps between them. */
enum pretokenize_behavior {
    BEHAVIOR_ISOLATED,
    BEHAVIOR_REMOVED,
    BEHAVIOR_PREVIOUS,
    BEHAVIOR_NEXT,
    BEHAVIOR_CONTIGUOUS
};

enum metaspace_prepend { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

struct pretokenize_step {
    enum pretokenize_kind kind;
    struct pattern pattern; /* ByteLevel with use_regex, Split */
    enum pretokenize_behavior behavior;
    enum metaspace_prepend prepend;
    bool invert, add_prefix_space, use_regex, split; /* split: Metaspace */
    char replacement[4];                             /* Metaspace: a character of replacement_bytes bytes */
    size_t replacement_bytes;
};

struct pretokenizer {
    struct pretokenize_step *step; /* [n] */
    size_t n;
    bool byte_level;     /* the last step is ByteLevel: its pieces are raw bytes that stand for printable characters */
    bool top_level_type; /* the part is a single ByteLevel, not a Sequence: tokenizer_config.json may change it */
};

struct pretokenize_span {
    size_t start, end;
    bool match;
};

struct pretokenize_scratch { /* zeroed = empty */
    struct matcher matcher;
    struct pretokenize_span *span; /* [n] matches and gaps of one piece */
    size_t n, capacity;
};

int pretokenize_load(struct pretokenizer *p, const struct source *l, const json_t *part);
/* GPT-2's: ByteLevel with its regular expression. */
int pretokenize_load_gpt2(struct pretokenizer *p, const struct source *l, bool add_prefix_space);
void pretokenize_close(struct pretokenizer *p);
void pretokenize_scratch_close(struct pretokenize_scratch *s);

/* Read a Metaspace's members, which the decoder of that name has too. */
int pretokenize_load_metaspace(struct pretokenize_step *step, const struct source *l, const json_t *part,
                               const char *what);

/* Cut the text pieces of *a; *b is spare. On return *a holds the result. */
int pretokenize_run(const struct pretokenizer *p, struct pretokenize_scratch *s, struct pieces *a, struct pieces *b,
                    struct err *e);

#endif
