/* coordinator/tasks/encode.c - see encode.h. */
#include "coordinator/tasks/encode.h"

#include <stdio.h>
#include <stdlib.h>

/* A failure of the tokenizer, caused by the client's text or internal. */
static int report(struct protocol_error *error, const char *field, const struct err *e)
{
    return protocol_fail(error, protocol_blame(e), field, "%s", e->text);
}

static int append_ids(const int32_t *id, size_t n, struct token_list *out, struct err *e)
{
    if (n > out->capacity - out->n) {
        int32_t *grown = realloc(out->id, (out->n + n) * sizeof *grown);
        if (grown == NULL)
            return ERR(e, ERR_MEMORY, "out of host memory: %zu token ids", out->n + n);
        out->id = grown;
        out->capacity = out->n + n;
    }
    for (size_t i = 0; i < n; i++)
        out->id[out->n++] = id[i];
    return 0;
}

static int encode_prompt(const struct protocol_generate *g, const struct protocol_prompt *p, const struct tokenizer *t,
                         int32_t bos, struct token_list *out, struct err *e)
{
    unsigned flags = (g->add_special_tokens ? TOKENIZER_ADD_SPECIAL : 0) | (g->parse_special ? 0 : TOKENIZER_PLAIN);
    size_t before = out->n;
    if (p->text == NULL)
        return append_ids(p->id, p->n_ids, out, e);
    if (tokenizer_encode(t, p->text, p->bytes, flags, out, e) != 0)
        return -1;
    return out->n == before && bos >= 0 && g->add_special_tokens ? append_ids(&bos, 1, out, e) : 0;
}

static int encode_chat(const struct protocol_generate *g, const struct tokenizer *t, const struct chat_template *chat,
                       struct token_list *out, struct protocol_error *error)
{
    struct jinja_text text = {0};
    struct text_part *part = NULL;
    struct err e = {0};
    int rc = chat_render(chat, &g->chat, &text, error);
    if (rc == 0) {
        part = err_calloc(&e, text.n, sizeof *part, "chat");
        for (size_t i = 0; part != NULL && i < text.n; i++)
            part[i] =
                (struct text_part){text.piece[i].text, text.piece[i].bytes, text.piece[i].foreign && !g->parse_special};
        if (part == NULL || tokenizer_encode_parts(t, part, text.n, 0, out, &e) != 0)
            rc = report(error, "messages", &e);
    }
    free(part);
    jinja_text_free(&text);
    return rc;
}

/* From number `first` on. */
static int check_ids(const struct token_list *ids, size_t first, int vocab, const char *field,
                     struct protocol_error *error)
{
    for (size_t i = first; i < ids->n; i++)
        if (ids->id[i] < 0 || ids->id[i] >= vocab)
            return protocol_fail(error, PROTOCOL_INTERNAL, field,
                                 "the tokenizer gives id %d, the model has %d: they do not belong together", ids->id[i],
                                 vocab);
    return 0;
}

int encode_request(const struct protocol_generate *g, int i, const struct tokenizer *t,
                   const struct chat_template *chat, int vocab, int32_t bos, struct token_list *out,
                   struct protocol_error *error)
{
    char field[32] = "messages";
    struct err e = {0};
    size_t before = out->n;
    if (g->prompt == NULL && chat == NULL)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, field,
                             "this server knows no chat template for its checkpoint: render the chat into \"prompt\"");
    if (g->prompt != NULL) {
        (void)snprintf(field, sizeof field, g->n_prompts > 1 ? "prompt[%d]" : "prompt", i);
        if (encode_prompt(g, &g->prompt[i], t, bos, out, &e) != 0)
            return report(error, field, &e);
    } else if (encode_chat(g, t, chat, out, error) != 0) {
        return -1;
    }
    if (out->n == before && !g->may_be_empty)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, field, "no token in it, expected at least one");
    return check_ids(out, before, vocab, field, error);
}

int encode_prediction(const struct protocol_generate *g, const struct tokenizer *t, int vocab, struct token_list *out,
                      struct protocol_error *error)
{
    static const char field[] = "prediction";
    struct err e = {0};
    if (g->prediction == NULL)
        return 0;
    if (tokenizer_encode(t, g->prediction, g->prediction_bytes, TOKENIZER_PLAIN, out, &e) != 0)
        return report(error, field, &e);
    return check_ids(out, 0, vocab, field, error);
}
