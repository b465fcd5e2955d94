/* text/tokenizer/detokenize.h - the "decoder" part: a chain that token texts are pushed through, one by one.
 *
 * Whole-text decoding pushes everything through the same chain, so that streamed and whole text agree by
 * construction. */
#ifndef TOKENIZER_DETOKENIZE_H
#define TOKENIZER_DETOKENIZE_H

#include "text/tokenizer/pretokenize.h"

#define DECODER_CLEAN_UPS 10
#define DECODER_MAX_STEPS (SOURCE_MAX_MEMBERS + DECODER_CLEAN_UPS)

enum decoder_kind {
    DECODER_BYTE_LEVEL = 1,
    DECODER_BYTE_FALLBACK,
    DECODER_FUSE,
    DECODER_STRIP,
    DECODER_REPLACE,
    DECODER_METASPACE
};

struct decoder_step {
    enum decoder_kind kind;
    /* An earlier step has joined all tokens (Fuse, ByteLevel), or they are joined for this one (decoder_clean_up): it
     * sees a single text that arrives in parts. */
    bool joined;
    bool to_joined;         /* the next step does not depend on token borders */
    struct pattern pattern; /* Replace */
    char *content;          /* Replace, Strip: [content_bytes] */
    size_t content_bytes;
    size_t start, stop;                /* Strip: copies of content to drop at either end */
    struct pretokenize_step metaspace; /* Metaspace: replacement and prepend */
};

struct decoder {
    struct decoder_step *step; /* [n] */
    size_t n;
    double growth; /* see normalize_check_growth */
    bool present;  /* otherwise tokens are joined by spaces */
};

struct decoder_state {  /* of one step; zeroed = before the first token */
    struct buffer held; /* text held back */
    size_t count;       /* Metaspace: tokens so far. Strip: copies dropped at the start */
    bool flag;          /* ByteFallback: the run is broken. Strip: past the start. ByteFallback, joined: passing on */
};

struct decoder_run { /* zeroed, then decoder and eager set: one sequence in progress */
    const struct decoder *decoder;
    bool eager; /* pass valid characters of a <0xNN> run on before the run ends */
    bool begun;
    struct decoder_state state[DECODER_MAX_STEPS];
    struct matcher matcher;
    struct buffer out; /* final text; the caller takes it from here */
};

int decoder_load(struct decoder *d, const struct source *l, const json_t *part);
/* GPT-2's: ByteLevel. */
int decoder_load_gpt2(struct decoder *d, const struct source *l);
/* Appends transformers' clean_up_tokenization to the loaded steps: replacements one after the other, each over the
 * whole text. */
int decoder_clean_up(struct decoder *d, struct err *e);
void decoder_close(struct decoder *d);

/* The bytes that a token stands for within a text, appended to *out. ERR_UNSUPPORTED: they depend on other tokens. */
int decoder_token_bytes(const struct decoder *d, const char *text, size_t bytes, struct buffer *out, struct err *e);

/* Push a token's text through; then end the text. Final text is appended to run->out. */
int decoder_push(struct decoder_run *run, const char *text, size_t bytes, struct err *e);
int decoder_finish(struct decoder_run *run, struct err *e);
/* Resets to before the first token, keeping memory; and frees. */
void decoder_reset(struct decoder_run *run);
void decoder_run_close(struct decoder_run *run);

#endif
