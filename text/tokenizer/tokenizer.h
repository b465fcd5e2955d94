/* text/tokenizer/tokenizer.h - text to token ids and back, as defined by the checkpoint's own tokenizer.json. Supports
 * byte-pair encoding, byte-level (GPT-2, Llama-3, Qwen, ...) and SentencePiece-style (Llama-2, Mistral, Gemma). A
 * feature that is not implemented is refused by name when the tokenizer is opened, never while it runs. A struct
 * tokenizer is constant once open: any number of threads may encode and decode with it at the same time. */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include "base/err.h"
#include "base/text_buffer.h"
#include "base/token_list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENIZER_MAX_TEXT_BYTES ((size_t)1 << 28) /* longest text that tokenizer_encode accepts */

struct tokenizer;
struct detokenizer;

/* Read model_dir/tokenizer.json, or else vocab.json + merges.txt (GPT-2 byte-level), and tokenizer_config.json beside
 * it (add_bos_token, add_eos_token, add_prefix_space, clean_up_tokenization_spaces). ERR_INPUT: malformed;
 * ERR_UNSUPPORTED: well formed, but a part is not implemented (the message names it); ERR_IO: unreadable or absent. */
int tokenizer_open(struct tokenizer **t, const char *model_dir, struct err *e);

/* The same from the text of a tokenizer.json in memory; `what` names it in messages. */
int tokenizer_open_memory(struct tokenizer **t, const char *json, size_t bytes, const char *what, struct err *e);

/* Safe on NULL and on *t == NULL; sets *t to NULL. */
void tokenizer_close(struct tokenizer **t);

enum tokenizer_flag {
    TOKENIZER_ADD_SPECIAL = 1, /* apply the post-processor's template (bos, eos) */
    TOKENIZER_PLAIN = 2        /* special tokens written out in the text are ordinary text (no prompt injection) */
};

/* Append the ids of text[0, bytes) to *out (NULs are text like any other). flags: enum tokenizer_flag, or'ed. Invalid
 * UTF-8 is ERR_INPUT with the byte offset; on failure *out keeps what it had. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags, struct token_list *out,
                     struct err *e);

struct text_part {
    const char *text;
    size_t bytes;
    bool plain; /* special tokens spelled out in it are ordinary text, including ones that it only begins or ends */
};

/* The same for parts that form one text: words may cross their borders. flags: without TOKENIZER_PLAIN.
 * ERR_UNSUPPORTED: a part that is not plain contains a special token that this tokenizer finds only after it has
 * changed the text, and another part is plain, so the two could not be distinguished. */
int tokenizer_encode_parts(const struct tokenizer *t, const struct text_part *part, size_t n, unsigned flags,
                           struct token_list *out, struct err *e);

/* The text of ids[0, n): *text is malloc'ed, NUL-terminated, *bytes long without that NUL, and the caller frees it. Ids
 * outside the vocabulary decode to nothing. If the configuration has clean_up_tokenization_spaces, the text is cleaned
 * up, streamed or not. */
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special, char **text,
                     size_t *bytes, struct err *e);

/* Streaming: the pieces pushed and the finish, concatenated, equal tokenizer_decode of the whole, except that a run of
 * <0xNN> tokens that breaks off after valid characters keeps those. */
int detokenizer_open(struct detokenizer **d, const struct tokenizer *t, bool skip_special, struct err *e);
/* Special tokens with these texts are not skipped. text: NULL at the end; borrowed. */
void detokenizer_keep(struct detokenizer *d, const char *const *text);
/* *text, *bytes: the text that became final with this id; whole UTF-8 characters, perhaps none; borrowed until the next
 * call. */
int detokenizer_push(struct detokenizer *d, int32_t id, const char **text, size_t *bytes, struct err *e);
/* *text, *bytes: the text held back. Afterwards the detokenizer is reset and may be used for another sequence. */
int detokenizer_finish(struct detokenizer *d, const char **text, size_t *bytes, struct err *e);
void detokenizer_close(struct detokenizer **d);

/* Highest id + 1, added tokens included. */
int32_t tokenizer_vocab_size(const struct tokenizer *t);
/* The id of a token by its exact content (as in the file: byte-level tokens are in the printable alphabet), or -1. */
int32_t tokenizer_find(const struct tokenizer *t, const char *content, size_t bytes);
/* The content of a token, borrowed, NOT NUL-terminated; NULL if no token has this id. */
const char *tokenizer_token_text(const struct tokenizer *t, int32_t id, size_t *bytes);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* Append the bytes that a token stands for within a text; they need not be whole characters. Nothing for special tokens
 * and ids without a token. ERR_UNSUPPORTED: they depend on the tokens around it. */

int tokenizer_token_bytes(const struct tokenizer *t, int32_t id, struct text_buffer *out, struct err *e);

#endif
