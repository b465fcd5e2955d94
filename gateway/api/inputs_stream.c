/* gateway/api/inputs_stream.c - streams a text token by token. The last piece has the whole text and its finish reason,
 * so the last token is held back for the end, which follows at once. */
#include "base/json.h"
#include "gateway/api/inputs.h"

#include <string.h>

/* The part of the event's text that belongs to token i of n: the token's own text as far as the event's text matches
 * it; the last token gets the rest. (Incomplete characters are held back, so their tokens have no text to match.) */
static json_t *cut(const char **rest, size_t *bytes, const json_t *token, bool last)
{
    const json_t *own = json_object_get(token, "text");
    size_t n = json_string_length(own);
    if (last)
        n = *bytes;
    else if (n > *bytes || memcmp(*rest, json_string_value(own), n) != 0)
        n = 0;
    json_t *text = json_stringn(n > 0 ? *rest : "", n);
    *rest += n;
    *bytes -= n;
    return text;
}

/* token is stolen. end: the reply after the last token; NULL: it is not the last. */
static void send_token(struct exchange *x, struct inputs_call *in, json_t *token, json_t *top, const json_t *end)
{
    json_t *piece =
        json_pack("{s:I, s:o, s:n, s:n}", "index", ++in->n_tokens, "token", token, "generated_text", "details");
    if (in->n_top > 0)
        (void)json_object_set(piece, "top_tokens", top);
    if (end != NULL) {
        (void)json_object_set_new(
            piece, "generated_text",
            json_stringn(bytes_count(&in->text) > 0 ? bytes_start(&in->text) : "", bytes_count(&in->text)));
        (void)json_object_set_new(piece, "details", inputs_details(in, in->held, end));
    }
    in->style->piece(x, piece);
}

static void send_tokens(struct exchange *x, struct inputs_call *in, const json_t *choice, const json_t *end)
{
    json_t *tokens = inputs_tokens(in, choice), *tops = inputs_top_tokens(in, choice), *token;
    const json_t *text = json_object_get(choice, "text");
    const char *rest = json_is_string(text) ? json_string_value(text) : "";
    size_t bytes = json_is_string(text) ? json_string_length(text) : 0, i, n = json_array_size(tokens);
    bytes_append(&in->text, rest, bytes);
    json_array_foreach(tokens, i, token)
    {
        (void)json_object_set_new(token, "text", cut(&rest, &bytes, token, i + 1 == n));
        send_token(x, in, json_incref(token), json_array_get(tops, i), i + 1 == n ? end : NULL);
    }
    json_decref(tokens);
    json_decref(tops);
}

static void finish_stream(struct exchange *x, struct inputs_call *in, const json_t *reply)
{
    if (in->held != NULL)
        send_tokens(x, in, in->held, reply);
    exchange_end_events(x, "");
}

void inputs_stream_reply(struct exchange *x, void *context, json_t *reply, bool last)
{
    struct inputs_call *in = context;
    json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    if (!exchange_is_good(reply)) {
        struct fault f = fault_of_reply(reply);
        inputs_rename(in, &f);
        if (!x->has_begun || x->framing != NULL) {
            exchange_fail_anywhere(x, &f);
            return;
        }
        in->style->fail(x, &f);
        exchange_end_events(x, "");
        return;
    }
    if (in->full_text && in->n_tokens == 0 && bytes_count(&in->text) == 0)
        bytes_append(&in->text, json_string_value(json_array_get(in->prompts, 0)),
                     json_string_length(json_array_get(in->prompts, 0)));
    if (last)
        finish_stream(x, in, reply);
    else if (json_is_string(json_object_get(choice, "finish_reason")))
        in->held = json_incref(choice);
    else
        send_tokens(x, in, choice, NULL);
}
