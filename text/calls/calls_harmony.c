/* text/calls/calls_harmony.c - messages in channels. An answer begins within the header of its first message:
 * <|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json
 * <|message|>{..}<|call|>, or <|channel|>final<|message|>..<|return|>. */
#include "text/calls/calls_parts.h"

#include <string.h>

#define HEADER_BYTES 1024

static const char *const header_markers[] = {"<|message|>"};
/* The last two markers have no text of their own. */
static const char *const body_markers[] = {"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
enum { N_BODY_MARKERS = sizeof body_markers / sizeof body_markers[0], BODY_CHANNEL = N_BODY_MARKERS - 1 };

/* The word of the header behind this text, up to a space or a marker; *n 0: there is none. */
static const char *word_behind(const struct calls_reader *r, const char *text, size_t *n)
{
    size_t bytes = strlen(text), at = 0;
    *n = 0;
    while (at + bytes <= r->n_raw && memcmp(r->raw + at, text, bytes) != 0)
        at++;
    if (at + bytes > r->n_raw)
        return NULL;
    const char *word = r->raw + at + bytes;
    while (at + bytes + *n < r->n_raw && strchr(" \n\t\r<", word[*n]) == NULL)
        ++*n;
    return word;
}

static bool is_word(const char *word, size_t n, const char *expected)
{
    return n == strlen(expected) && memcmp(word, expected, n) == 0;
}

static void begin_body(struct calls_reader *r)
{
    static const char functions[] = "functions.";
    size_t n, n_to;
    const char *channel = word_behind(r, "<|channel|>", &n), *to = word_behind(r, "to=", &n_to);
    r->had_text = true;
    r->mode = MODE_BODY;
    r->channel = n > 0 && is_word(channel, n, "analysis") ? CALLS_REASONING : CALLS_CONTENT;
    if (n_to > 0) {
        bool is_function = n_to > sizeof functions - 1 && memcmp(to, functions, sizeof functions - 1) == 0;
        size_t before = is_function ? sizeof functions - 1 : 0;
        calls_begin(r, to + before, n_to - before);
        r->channel = CALLS_ARGUMENTS;
    }
    r->n_raw = r->n_argument = 0;
}

static void put_body(struct calls_reader *r, char c)
{
    r->n_argument++;
    calls_put(r, r->channel, c);
}

/* A header that is invalid or too long is content. */
static void give_header_back(struct calls_reader *r)
{
    r->channel = CALLS_CONTENT;
    r->mode = MODE_BODY;
    for (size_t i = 0; i < r->n_raw; i++)
        put_body(r, r->raw[i]);
    r->n_raw = 0;
}

static void take_loose(struct calls_reader *r, char c)
{
    if (r->mode == MODE_BODY) {
        put_body(r, c);
        return;
    }
    r->raw[r->n_raw++] = c;
    if (r->n_raw == HEADER_BYTES)
        give_header_back(r);
}

/* A call without a text has no arguments. */
static void end_body(struct calls_reader *r)
{
    if (r->channel == CALLS_ARGUMENTS && r->n_argument == 0) {
        calls_put(r, CALLS_ARGUMENTS, '{');
        calls_put(r, CALLS_ARGUMENTS, '}');
    }
    r->mode = MODE_HEADER;
}

/* The next held byte, which cannot be part of a marker. */
static char shift(struct calls_reader *r)
{
    char c = r->held[0];
    memmove(r->held, r->held + 1, --r->n_held);
    return c;
}

void calls_take_harmony(struct calls_reader *r, char c)
{
    r->held[r->n_held++] = c;
    while (r->n_held > 0) {
        bool body = r->mode == MODE_BODY;
        int found = body ? calls_match(r, body_markers, N_BODY_MARKERS) : calls_match(r, header_markers, 1);
        if (found == MARKER_MORE)
            return;
        if (found == MARKER_NONE) {
            take_loose(r, shift(r));
        } else if (!body) {
            begin_body(r);
        } else {
            end_body(r);
            r->n_raw = found == BODY_CHANNEL ? strlen(body_markers[found]) : 0;
            memcpy(r->raw, body_markers[found], r->n_raw);
        }
    }
}

void calls_end_harmony(struct calls_reader *r)
{
    size_t n;
    while (r->n_held > 0)
        take_loose(r, shift(r));
    if (r->mode == MODE_BODY)
        end_body(r);
    else if (!r->had_text && word_behind(r, "<|channel|>", &n) == NULL) /* there was no message */
        give_header_back(r);
}
