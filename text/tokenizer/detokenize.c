/* text/tokenizer/detokenize.c - see detokenize.h. */
#include "text/tokenizer/detokenize.h"

#include "text/tokenizer/normalize.h"
#include "text/tokenizer/unicode.h"

#include <ctype.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

static int feed(struct decoder_run *run, size_t i, const char *text, size_t bytes, struct err *e);

/* Emits the complete characters of the held bytes, U+FFFD for each maximal invalid subpart; keeps an incomplete
 * character. */
static int feed_lossy(struct decoder_run *run, size_t i, bool end, struct err *e)
{
    struct buffer *held = &run->state[i].held;
    size_t done = 0, at = 0;
    int rc = 0;
    while (rc == 0 && at < held->bytes) {
        int32_t cp;
        int bad = 0, length = utf8_get(held->data + at, held->bytes - at, &cp, &bad);
        if (length > 0) {
            at += (size_t)length;
            continue;
        }
        if (bad < 0 && !end)
            break;
        if (at > done)
            rc = feed(run, i + 1, held->data + done, at - done, e);
        if (rc == 0)
            rc = feed(run, i + 1, replacement, 3, e);
        at += bad < 0 ? held->bytes - at : (size_t)bad;
        done = at;
    }
    if (rc == 0 && at > done)
        rc = feed(run, i + 1, held->data + done, at - done, e);
    if (held->bytes > 0)
        buffer_shift(held, at);
    return rc;
}

/* The bytes that a token's printable characters stand for; its own bytes if one character stands for none. */
static void add_token_bytes(struct buffer *to, const char *text, size_t bytes)
{
    size_t before = to->bytes;
    for (size_t i = 0; i < bytes;) {
        int32_t cp;
        i += (size_t)utf8_next(text + i, &cp);
        int byte = unicode_char_to_byte(cp);
        if (byte < 0) {
            to->bytes = before;
            buffer_add(to, text, bytes);
            return;
        }
        char c = (char)byte;
        buffer_add(to, &c, 1);
    }
}

/* The value of a <0xNN> token, or -1. As in the library, a sign is a digit of sorts: "<0x+5>" is 5. */
static int hex_value(const char *text, size_t bytes)
{
    int value = 0;
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        int c = (unsigned char)text[i];
        if (!isxdigit(c) && !(i == 3 && c == '+'))
            return -1;
        value = value * 16 + (c == '+' ? 0 : isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    return value;
}

/* The end of a <0xNN> run: as text if all of it is valid, else one U+FFFD per byte. */
static int end_run(struct decoder_run *run, size_t i, struct err *e)
{
    struct decoder_state *state = &run->state[i];
    size_t n = state->held.bytes;
    int rc = 0;
    if (n > 0 && utf8_invalid_at(state->held.data, n) == n)
        rc = feed(run, i + 1, state->held.data, n, e);
    else
        for (size_t k = 0; rc == 0 && k < n; k++)
            rc = feed(run, i + 1, replacement, 3, e);
    state->held.bytes = 0;
    state->flag = false;
    return rc;
}

/* A run that is passed on early: complete characters as they arrive; after an invalid byte, one U+FFFD per byte. */
static int feed_run_early(struct decoder_run *run, size_t i, struct err *e)
{
    struct decoder_state *state = &run->state[i];
    int32_t cp;
    int bad = 0, rc = 0;
    if (!state->flag && utf8_get(state->held.data, state->held.bytes, &cp, &bad) > 0) {
        rc = feed(run, i + 1, state->held.data, state->held.bytes, e);
        state->held.bytes = 0;
    } else if (state->flag || bad > 0) {
        size_t n = state->held.bytes;
        state->flag = true;
        for (size_t k = 0; rc == 0 && k < n; k++)
            rc = feed(run, i + 1, replacement, 3, e);
        state->held.bytes = 0;
    }
    return rc;
}

static int feed_byte_fallback(struct decoder_run *run, size_t i, const char *text, size_t bytes, struct err *e)
{
    struct decoder_state *state = &run->state[i];
    if (run->decoder->step[i].joined) { /* a joined text: it is a byte token only if it has exactly six bytes */
        if (!state->flag) {
            buffer_add(&state->held, text, bytes);
            if (state->held.bytes <= 6)
                return 0;
            state->flag = true;
            return feed(run, i + 1, state->held.data, state->held.bytes, e);
        }
        return feed(run, i + 1, text, bytes, e);
    }
    int value = hex_value(text, bytes);
    if (value < 0)
        return end_run(run, i, e) != 0 ? -1 : feed(run, i + 1, text, bytes, e);
    char byte = (char)value;
    buffer_add(&state->held, &byte, 1);
    if (buffer_check(&state->held, e) != 0)
        return -1;
    return run->eager && run->decoder->step[i].to_joined ? feed_run_early(run, i, e) : 0;
}

/* The number of copies of the step's content at the beginning of text[0, bytes), or its end if `back`; at most
 * `most`. */
static size_t count_copies(const struct decoder_step *step, const char *text, size_t bytes, size_t most, bool back)
{
    size_t n = 0, w = step->content_bytes;
    while (n < most && (n + 1) * w <= bytes &&
           memcmp(text + (back ? bytes - (n + 1) * w : n * w), step->content, w) == 0)
        n++;
    return n;
}

static int feed_strip(struct decoder_run *run, size_t i, const char *text, size_t bytes, struct err *e)
{
    const struct decoder_step *step = &run->decoder->step[i];
    struct decoder_state *state = &run->state[i];
    size_t w = step->content_bytes;
    if (!state->flag) {
        size_t n = count_copies(step, text, bytes, step->start - state->count, false);
        state->count += n;
        text += n * w;
        bytes -= n * w;
        state->flag = bytes > 0 || state->count == step->start;
    }
    if (!step->joined) {
        state->flag = false;
        state->count = 0;
        return feed(run, i + 1, text, bytes - w * count_copies(step, text, bytes, step->stop, true), e);
    }
    /* Copies at the end are held back until more text comes. */
    size_t tail = count_copies(step, text, bytes, SIZE_MAX / 8, true);
    if (step->stop == 0)
        return bytes > 0 ? feed(run, i + 1, text, bytes, e) : 0;
    if (tail * w < bytes) {
        if (state->held.bytes > 0 && feed(run, i + 1, state->held.data, state->held.bytes, e) != 0)
            return -1;
        state->held.bytes = 0;
        if (feed(run, i + 1, text, bytes - tail * w, e) != 0)
            return -1;
    }
    buffer_add(&state->held, text + bytes - tail * w, tail * w);
    return buffer_check(&state->held, e);
}

/* Replaces in a text that arrives in parts. A literal is replaced as soon as it cannot extend into the next part; a
 * regular expression may look anywhere, so the text is held until the end. */
static int feed_replace_joined(struct decoder_run *run, size_t i, const char *text, size_t bytes, struct err *e)
{
    const struct decoder_step *step = &run->decoder->step[i];
    struct buffer *held = &run->state[i].held;
    buffer_add(held, text, bytes);
    if (buffer_check(held, e) != 0 || step->pattern.code != NULL || held->bytes == 0)
        return buffer_check(held, e);
    const char *literal = step->pattern.literal;
    size_t done = 0, n = step->pattern.literal_bytes;
    for (const char *found; (found = memmem(held->data + done, held->bytes - done, literal, n)) != NULL;) {
        size_t at = (size_t)(found - held->data);
        if ((at > done && feed(run, i + 1, held->data + done, at - done, e) != 0) ||
            feed(run, i + 1, step->content, step->content_bytes, e) != 0)
            return -1;
        done = at + n;
    }
    size_t keep = held->bytes - done < n ? held->bytes - done : n - 1;
    while (keep > 0 && memcmp(held->data + held->bytes - keep, literal, keep) != 0)
        keep--;
    if (held->bytes - keep > done && feed(run, i + 1, held->data + done, held->bytes - keep - done, e) != 0)
        return -1;
    buffer_shift(held, held->bytes - keep);
    return 0;
}

static int feed_replace(struct decoder_run *run, size_t i, const char *text, size_t bytes, struct err *e)
{
    const struct decoder_step *step = &run->decoder->step[i];
    struct buffer *form = &run->state[i].held;
    if (step->joined)
        return feed_replace_joined(run, i, text, bytes, e);
    form->bytes = 0;
    if (normalize_replace(&step->pattern, &run->matcher, text, bytes, step->content, step->content_bytes, form, e) != 0)
        return -1;
    return feed(run, i + 1, form->data, form->bytes, e);
}

/* The replacement becomes a space; in the first token it vanishes unless the scheme is "never". */
static int feed_metaspace(struct decoder_run *run, size_t i, const char *text, size_t bytes, struct err *e)
{
    const struct decoder_step *step = &run->decoder->step[i];
    struct decoder_state *state = &run->state[i];
    bool drop = (state->count == 0 || step->joined) && step->metaspace.prepend != METASPACE_NEVER;
    size_t w = step->metaspace.replacement_bytes;
    state->count++;
    state->held.bytes = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t cp;
        size_t length = (size_t)utf8_next(text + at, &cp);
        if (length != w || memcmp(text + at, step->metaspace.replacement, w) != 0)
            buffer_add(&state->held, text + at, length);
        else if (!drop)
            buffer_add(&state->held, " ", 1);
        at += length;
    }
    return buffer_check(&state->held, e) != 0 ? -1 : feed(run, i + 1, state->held.data, state->held.bytes, e);
}

/* Give step i a token, or a part of the joined text. */
static int feed(struct decoder_run *run, size_t i, const char *text, size_t bytes, struct err *e)
{
    if (i == run->decoder->n) {
        buffer_add(&run->out, text, bytes);
        return buffer_check(&run->out, e);
    }
    const struct decoder_step *step = &run->decoder->step[i];
    if (bytes == 0 && step->joined)
        return 0;
    if (bytes == 0)
        text = ""; /* never NULL */
    switch (step->kind) {
    case DECODER_BYTE_LEVEL:
        if (step->joined)
            buffer_add(&run->state[i].held, text, bytes);
        else
            add_token_bytes(&run->state[i].held, text, bytes);
        if (buffer_check(&run->state[i].held, e) != 0)
            return -1;
        return step->joined ? 0 : feed_lossy(run, i, false, e);
    case DECODER_BYTE_FALLBACK:
        return feed_byte_fallback(run, i, text, bytes, e);
    case DECODER_FUSE:
        return feed(run, i + 1, text, bytes, e);
    case DECODER_STRIP:
        return feed_strip(run, i, text, bytes, e);
    case DECODER_REPLACE:
        return feed_replace(run, i, text, bytes, e);
    case DECODER_METASPACE:
        return feed_metaspace(run, i, text, bytes, e);
    }
    return ERR(e, ERR_INTERNAL, "decoder kind %d", (int)step->kind);
}

/* Passes on the text that step i still holds, at the end. */
static int end_step(struct decoder_run *run, size_t i, struct err *e)
{
    const struct decoder_step *step = &run->decoder->step[i];
    struct decoder_state *state = &run->state[i];
    struct buffer *held = &state->held;
    if (held->bytes == 0)
        return 0;
    if (step->kind == DECODER_BYTE_FALLBACK && step->joined) {
        int value = state->flag ? -2 : hex_value(held->data, held->bytes);
        if (value == -2)
            return 0;
        if (value < 0)
            return feed(run, i + 1, held->data, held->bytes, e);
        char byte = (char)value;
        return value < 0x80 ? feed(run, i + 1, &byte, 1, e) : feed(run, i + 1, replacement, 3, e);
    }
    if (step->kind == DECODER_BYTE_FALLBACK)
        return end_run(run, i, e);
    if (step->kind == DECODER_BYTE_LEVEL && step->joined) {
        struct buffer text = *held;
        *held = (struct buffer){0};
        add_token_bytes(held, text.data, text.bytes);
        buffer_free(&text);
        if (buffer_check(held, e) != 0)
            return -1;
    }
    if (step->kind == DECODER_BYTE_LEVEL)
        return feed_lossy(run, i, true, e);
    if (step->kind == DECODER_STRIP && step->joined) {
        size_t n = count_copies(step, held->data, held->bytes, step->stop, true) * step->content_bytes;
        return held->bytes > n ? feed(run, i + 1, held->data, held->bytes - n, e) : 0;
    }
    if (step->kind != DECODER_REPLACE || !step->joined)
        return 0;
    if (step->pattern.code == NULL) /* the start of a literal that was not completed */
        return feed(run, i + 1, held->data, held->bytes, e);
    struct buffer form = {0};
    int rc = normalize_replace(&step->pattern, &run->matcher, held->data, held->bytes, step->content,
                               step->content_bytes, &form, e);
    if (rc == 0)
        rc = feed(run, i + 1, form.data, form.bytes, e);
    buffer_free(&form);
    return rc;
}

int decoder_push(struct decoder_run *run, const char *text, size_t bytes, struct err *e)
{
    if (!run->decoder->present && run->begun && feed(run, 0, " ", 1, e) != 0)
        return -1;
    run->begun = true;
    return feed(run, 0, text, bytes, e);
}

int decoder_finish(struct decoder_run *run, struct err *e)
{
    for (size_t i = 0; i < run->decoder->n; i++)
        if (end_step(run, i, e) != 0)
            return -1;
    return 0;
}

void decoder_reset(struct decoder_run *run)
{
    for (size_t i = 0; i < run->decoder->n; i++) {
        struct decoder_state *state = &run->state[i];
        state->held.bytes = state->count = 0;
        state->held.failed = state->flag = false;
    }
    run->out.bytes = 0;
    run->out.failed = run->begun = false;
}

void decoder_run_close(struct decoder_run *run)
{
    for (size_t i = 0; i < DECODER_MAX_STEPS; i++)
        buffer_free(&run->state[i].held);
    buffer_free(&run->out);
    matcher_close(&run->matcher);
    *run = (struct decoder_run){0};
}

/* One step of decoder_token_bytes: applies the step to *form. */
static int token_step(const struct decoder_step *step, struct buffer *form, struct err *e)
{
    struct buffer next = {0};
    const char *from = step->pattern.literal, *to = step->content;
    size_t from_bytes = step->pattern.literal_bytes, to_bytes = step->content_bytes;
    if (step->kind == DECODER_REPLACE && step->pattern.code != NULL)
        return ERR(e, ERR_UNSUPPORTED, "the tokenizer's decoder replaces by a regular expression");
    if (step->kind == DECODER_METASPACE) {
        from = step->metaspace.replacement;
        from_bytes = step->metaspace.replacement_bytes;
        to = " ";
        to_bytes = 1;
    } else if (step->kind != DECODER_REPLACE) {
        return 0;
    }
    for (size_t at = 0; at < form->bytes;) {
        bool found = from_bytes > 0 && at + from_bytes <= form->bytes && memcmp(form->data + at, from, from_bytes) == 0;
        buffer_add(&next, found ? to : form->data + at, found ? to_bytes : 1);
        at += found ? from_bytes : 1;
    }
    buffer_free(form);
    *form = next;
    return buffer_check(form, e);
}

int decoder_token_bytes(const struct decoder *d, const char *text, size_t bytes, struct buffer *out, struct err *e)
{
    struct buffer form = {0};
    int rc = d->present ? 0 : ERR(e, ERR_UNSUPPORTED, "the tokenizer joins tokens by spaces");
    buffer_add(&form, text, bytes);
    for (size_t i = 0; i < d->n && rc == 0; i++) {
        int byte = d->step[i].kind == DECODER_BYTE_FALLBACK ? hex_value(form.data, form.bytes) : -1;
        if (d->step[i].kind == DECODER_BYTE_LEVEL) {
            add_token_bytes(out, form.data, form.bytes);
            form.bytes = 0;
            break;
        }
        if (byte >= 0) {
            char value = (char)byte;
            buffer_add(out, &value, 1);
            form.bytes = 0;
            break;
        }
        rc = token_step(&d->step[i], &form, e);
    }
    if (rc == 0)
        buffer_add(out, form.data, form.bytes);
    buffer_free(&form);
    return rc == 0 ? buffer_check(out, e) : -1;
}
