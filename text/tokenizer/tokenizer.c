/* text/tokenizer/tokenizer.c - see tokenizer.h. The order of the parts, encoding and decoding. */
#include "text/tokenizer/tokenizer.h"

#include "text/tokenizer/internal.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

void tokenizer_close(struct tokenizer **t)
{
    if (t == NULL || *t == NULL)
        return;
    added_close(&(*t)->added);
    normalize_close(&(*t)->normalizer);
    pretokenize_close(&(*t)->pretokenizer);
    bpe_close(&(*t)->bpe);
    template_close(&(*t)->template);
    decoder_close(&(*t)->decoder);
    free(*t);
    *t = NULL;
}

int tokenizer_open(struct tokenizer **t, const char *model_dir, struct err *e)
{
    *t = err_calloc(e, 1, sizeof **t, "tokenizer");
    if (*t == NULL)
        return -1;
    if (source_load_folder(*t, model_dir, e) == 0)
        return 0;
    tokenizer_close(t);
    return -1;
}

int tokenizer_open_memory(struct tokenizer **t, const char *json, size_t bytes, const char *what, struct err *e)
{
    *t = err_calloc(e, 1, sizeof **t, "tokenizer");
    if (*t == NULL)
        return -1;
    if (source_load_text(*t, json, bytes, what, e) == 0)
        return 0;
    tokenizer_close(t);
    return -1;
}

/* The working memory of one call of tokenizer_encode; zeroed = empty. */
struct scratch {
    struct pieces a, b;
    struct pretokenize_scratch split;
    struct bpe_scratch bpe;
    struct spans special; /* spans of the input in which special tokens are recognised */
};

static void scratch_close(struct scratch *s)
{
    pieces_close(&s->a);
    pieces_close(&s->b);
    pretokenize_scratch_close(&s->split);
    bpe_scratch_close(&s->bpe);
    free(s->special.span);
}

static void swap_pieces(struct scratch *s)
{
    struct pieces c = s->a;
    s->a = s->b;
    s->b = c;
}

/* Cut the added tokens of one kind out of the pieces that are still text. special: as in added_split. */
static int cut_added(const struct tokenizer *t, const struct added_trie *trie, const struct spans *special,
                     struct scratch *s, struct err *e)
{
    if (trie->n == 0)
        return 0;
    s->b.n = 0;
    for (size_t i = 0; i < s->a.n; i++) {
        const struct text_piece *p = &s->a.piece[i];
        int rc = p->id >= 0 ? pieces_add(&s->b, p->start, p->bytes, p->id, false, e)
                            : added_split(&t->added, trie, &s->a, p, special, &s->b, e);
        if (rc != 0)
            return -1;
    }
    pieces_take_text(&s->b, &s->a);
    swap_pieces(s);
    return 0;
}

static int normalize_pieces(const struct tokenizer *t, struct scratch *s, struct err *e)
{
    if (t->normalizer.n == 0)
        return 0;
    pieces_clear(&s->b);
    for (size_t i = 0; i < s->a.n; i++) {
        const struct text_piece *p = &s->a.piece[i];
        size_t start = s->b.text.bytes;
        if (p->id < 0 &&
            normalize_run(&t->normalizer, &s->split.matcher, s->a.text.data + p->start, p->bytes, &s->b.text, e) != 0)
            return -1;
        if (pieces_add(&s->b, start, s->b.text.bytes - start, p->id, p->first, e) != 0)
            return -1;
    }
    swap_pieces(s);
    return 0;
}

/* The parts joined in s->a.text, and the spans of those that are not plain. */
static int join_parts(struct scratch *s, const struct text_part *part, size_t n, struct err *e)
{
    pieces_clear(&s->a);
    s->special.n = 0;
    for (size_t i = 0; i < n; i++) {
        size_t start = s->a.text.bytes, stop = start + part[i].bytes;
        struct spans *special = &s->special;
        buffer_add(&s->a.text, part[i].text, part[i].bytes);
        if (part[i].plain || part[i].bytes == 0)
            continue;
        if (special->n > 0 && special->span[special->n - 1].stop == start) {
            special->span[special->n - 1].stop = stop;
            continue;
        }
        if (buffer_grow_array((void **)&special->span, &special->capacity, special->n + 1, sizeof *special->span, e) !=
            0)
            return -1;
        special->span[special->n++] = (struct span){start, stop};
    }
    if (buffer_check(&s->a.text, e) != 0)
        return -1;
    return pieces_add(&s->a, 0, s->a.text.bytes, -1, true, e);
}

/* Append the ids of the text, without the template. After the normalizer the spans are meaningless: special tokens are
 * then recognised everywhere or nowhere (see check_parts). */
static int encode_text(const struct tokenizer *t, struct scratch *s, const struct text_part *part, size_t n,
                       struct token_list *out, struct err *e)
{
    static const struct spans nowhere = {0};
    bool mixed = false;
    for (size_t i = 0; i < n; i++)
        mixed |= part[i].plain;
    if (join_parts(s, part, n, e) != 0 || cut_added(t, &t->added.raw, mixed ? &s->special : NULL, s, e) != 0 ||
        normalize_pieces(t, s, e) != 0 || cut_added(t, &t->added.normalized, mixed ? &nowhere : NULL, s, e) != 0 ||
        pretokenize_run(&t->pretokenizer, &s->split, &s->a, &s->b, e) != 0)
        return -1;
    for (size_t i = 0; i < s->a.n; i++) {
        const struct text_piece *p = &s->a.piece[i];
        int rc = p->id >= 0 ? bpe_append(out, p->id, e)
                            : bpe_encode(&t->bpe, &s->bpe, s->a.text.data + p->start, p->bytes,
                                         t->pretokenizer.byte_level, out, e);
        if (rc != 0)
            return -1;
    }
    return 0;
}

/* Whether every part is valid and its special tokens can be distinguished from the same text in a plain part. */
static int check_parts(const struct tokenizer *t, const struct text_part *part, size_t n, struct err *e)
{
    size_t total = 0, n_plain = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = part[i].bytes;
        n_plain += part[i].plain;
        if (bytes > TOKENIZER_MAX_TEXT_BYTES || (total += bytes) > TOKENIZER_MAX_TEXT_BYTES)
            return ERR(e, ERR_INPUT, "the text has %zu bytes, at most %zu are accepted", total > bytes ? total : bytes,
                       TOKENIZER_MAX_TEXT_BYTES);
        size_t invalid = utf8_invalid_at(part[i].text, bytes);
        if (invalid < bytes)
            return ERR(e, ERR_INPUT, "the text is not valid UTF-8: byte 0x%02X at offset %zu",
                       (unsigned char)part[i].text[invalid], invalid);
    }
    for (size_t k = 0; n_plain > 0 && n_plain < n && k < t->added.n; k++) {
        const struct added_token *token = &t->added.token[k];
        size_t bytes = 0;
        const char *content = vocab_text(&t->added.content, token->id, &bytes);
        for (size_t i = 0; token->special && token->normalized && i < n; i++)
            if (!part[i].plain && memmem(part[i].text, part[i].bytes, content, bytes) != NULL)
                return ERR(
                    e, ERR_UNSUPPORTED,
                    "special token \"%.*s\" is marked \"normalized\" in tokenizer.json: it cannot be told from the "
                    "same characters in a user's text",
                    (int)bytes, content);
    }
    return 0;
}

int tokenizer_encode_parts(const struct tokenizer *t, const struct text_part *part, size_t n, unsigned flags,
                           struct token_list *out, struct err *e)
{
    struct scratch s = {0};
    size_t before = out->n;
    int rc = check_parts(t, part, n, e);
    if (rc == 0 && ((flags & TOKENIZER_ADD_SPECIAL) == 0 || t->template.item == NULL))
        rc = encode_text(t, &s, part, n, out, e);
    else
        for (size_t i = 0; rc == 0 && i < t->template.n; i++)
            rc = t->template.item[i] == TEMPLATE_TEXT ? encode_text(t, &s, part, n, out, e)
                                                      : bpe_append(out, t->template.item[i], e);
    scratch_close(&s);
    if (rc != 0)
        out->n = before;
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags, struct token_list *out,
                     struct err *e)
{
    struct text_part part = {text, bytes, (flags & TOKENIZER_PLAIN) != 0};
    return tokenizer_encode_parts(t, &part, 1, flags, out, e);
}

static bool is_kept(const char *const *kept, const struct added_token *token)
{
    for (; kept != NULL && *kept != NULL; kept++)
        if (strlen(*kept) == token->decoded_bytes && memcmp(*kept, token->decoded, token->decoded_bytes) == 0)
            return true;
    return false;
}

/* The text that an id decodes to, NULL: none. kept: as in struct detokenizer. */
static const char *decoded_text(const struct tokenizer *t, int32_t id, bool skip_special, const char *const *kept,
                                size_t *bytes)
{
    const struct added_token *token = added_get(&t->added, id);
    if (token == NULL)
        return vocab_text(&t->bpe.vocab, id, bytes);
    if (skip_special && token->skipped && !is_kept(kept, token))
        return NULL;
    *bytes = token->decoded_bytes;
    return token->decoded_bytes > 0 ? token->decoded : "";
}

int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special, char **text,
                     size_t *bytes, struct err *e)
{
    struct decoder_run run = {.decoder = &t->decoder};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        size_t token_bytes = 0;
        const char *token = decoded_text(t, ids[i], skip_special, NULL, &token_bytes);
        if (token != NULL)
            rc = decoder_push(&run, token, token_bytes, e);
    }
    if (rc == 0)
        rc = decoder_finish(&run, e);
    if (rc == 0) {
        buffer_add(&run.out, "", 1);
        rc = buffer_check(&run.out, e);
    }
    if (rc == 0) {
        *text = run.out.data;
        *bytes = run.out.bytes - 1;
        run.out = (struct buffer){0};
    }
    decoder_run_close(&run);
    return rc;
}

int detokenizer_open(struct detokenizer **d, const struct tokenizer *t, bool skip_special, struct err *e)
{
    *d = err_calloc(e, 1, sizeof **d, "detokenizer");
    if (*d == NULL)
        return -1;
    (*d)->t = t;
    (*d)->skip_special = skip_special;
    (*d)->run.decoder = &t->decoder;
    (*d)->run.eager = true;
    return 0;
}

void detokenizer_keep(struct detokenizer *d, const char *const *text)
{
    d->kept = text;
}

int detokenizer_push(struct detokenizer *d, int32_t id, const char **text, size_t *bytes, struct err *e)
{
    size_t token_bytes = 0;
    const char *token = decoded_text(d->t, id, d->skip_special, d->kept, &token_bytes);
    d->run.out.bytes = 0;
    if (token != NULL && decoder_push(&d->run, token, token_bytes, e) != 0)
        return -1;
    *text = d->run.out.bytes > 0 ? d->run.out.data : "";
    *bytes = d->run.out.bytes;
    return 0;
}

int detokenizer_finish(struct detokenizer *d, const char **text, size_t *bytes, struct err *e)
{
    d->run.out.bytes = 0;
    if (decoder_finish(&d->run, e) != 0)
        return -1;
    *bytes = d->run.out.bytes;
    decoder_reset(&d->run);
    *text = *bytes > 0 ? d->run.out.data : "";
    return 0;
}

void detokenizer_close(struct detokenizer **d)
{
    if (d == NULL || *d == NULL)
        return;
    decoder_run_close(&(*d)->run);
    free(*d);
    *d = NULL;
}

int32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->added.content.n_ids > t->bpe.vocab.n_ids ? t->added.content.n_ids : t->bpe.vocab.n_ids;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *content, size_t bytes)
{
    int32_t id = vocab_find(&t->added.content, content, bytes);
    return id >= 0 ? id : vocab_find(&t->bpe.vocab, content, bytes);
}

const char *tokenizer_token_text(const struct tokenizer *t, int32_t id, size_t *bytes)
{
    const char *text = vocab_text(&t->added.content, id, bytes);
    return text != NULL ? text : vocab_text(&t->bpe.vocab, id, bytes);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    const struct added_token *token = added_get(&t->added, id);
    return token != NULL && token->special;
}

int tokenizer_token_bytes(const struct tokenizer *t, int32_t id, struct text_buffer *out, struct err *e)
{
    const struct added_token *added = added_get(&t->added, id);
    size_t bytes = 0;
    const char *text = added != NULL ? added->decoded : tokenizer_token_text(t, id, &bytes);
    struct buffer form = {0};
    if (added != NULL)
        bytes = added->decoded_bytes;
    if (text == NULL || (added != NULL && (added->special || added->skipped)))
        return 0;
    int rc = decoder_token_bytes(&t->decoder, text, bytes, &form, e);
    if (rc == 0 && form.bytes > 0)
        rc = text_append(out, form.data, form.bytes, e);
    buffer_free(&form);
    return rc;
}
