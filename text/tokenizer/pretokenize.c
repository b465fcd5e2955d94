/* text/tokenizer/pretokenize.c - see pretokenize.h. */
#include "text/tokenizer/pretokenize.h"

#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

void pretokenize_scratch_close(struct pretokenize_scratch *s)
{
    matcher_close(&s->matcher);
    free(s->span);
    *s = (struct pretokenize_scratch){0};
}

static int add_span(struct pretokenize_scratch *s, size_t start, size_t end, bool match, struct err *e)
{
    if (s->n == s->capacity && buffer_grow_array((void **)&s->span, &s->capacity, s->n + 1, sizeof *s->span, e) != 0)
        return -1;
    s->span[s->n++] = (struct pretokenize_span){start, end, match};
    return 0;
}

static bool is_match(const struct pretokenize_step *step, int32_t cp, const char *c, size_t length)
{
    if (step->kind == PRETOKENIZE_DIGITS)
        return unicode_is_numeric(cp);
    if (step->kind == PRETOKENIZE_PUNCTUATION)
        return unicode_is_punctuation(cp);
    return length == step->replacement_bytes && memcmp(c, step->replacement, length) == 0;
}

/* Every matching character is a match of its own; the text between matches is a gap. */
static int find_characters(const struct pretokenize_step *step, struct pretokenize_scratch *s, const char *text,
                           size_t bytes, struct err *e)
{
    size_t done = 0;
    for (size_t i = 0, length; i < bytes; i += length) {
        int32_t cp;
        length = (size_t)utf8_next(text + i, &cp);
        if (!is_match(step, cp, text + i, length))
            continue;
        if (done < i && add_span(s, done, i, false, e) != 0)
            return -1;
        if (add_span(s, i, i + length, true, e) != 0)
            return -1;
        done = i + length;
    }
    return done < bytes ? add_span(s, done, bytes, false, e) : 0;
}

/* s->span becomes the matches and gaps of text[0, bytes), in order, covering it. */
static int find_spans(const struct pretokenize_step *step, struct pretokenize_scratch *s, const char *text,
                      size_t bytes, struct err *e)
{
    s->n = 0;
    if (step->kind != PRETOKENIZE_SPLIT && step->kind != PRETOKENIZE_BYTE_LEVEL)
        return find_characters(step, s, text, bytes, e);
    struct pattern_walk walk = {.text = text, .bytes = bytes, .last_end = SIZE_MAX};
    size_t done = 0, start, end;
    int rc;
    while ((rc = pattern_next(&step->pattern, &s->matcher, &walk, &start, &end, e)) == 1) {
        if (done < start && add_span(s, done, start, step->invert, e) != 0)
            return -1;
        if (add_span(s, start, end, !step->invert, e) != 0)
            return -1;
        done = end;
    }
    if (rc < 0)
        return -1;
    return done < bytes ? add_span(s, done, bytes, step->invert, e) : 0;
}

/* Join spans as the behavior says; Isolated leaves them, Removed drops the matches. */
static void join_spans(enum pretokenize_behavior behavior, struct pretokenize_scratch *s)
{
    struct pretokenize_span *span = s->span;
    size_t n = s->n, k = 0;
    bool previous = false;
    if (behavior == BEHAVIOR_ISOLATED)
        return;
    if (behavior == BEHAVIOR_NEXT) { /* from the back: a match joins the gap after it, unless another match follows */
        k = n;
        for (size_t i = n; i-- > 0;) {
            if (span[i].match && !previous && k < n)
                span[k].start = span[i].start;
            else
                span[--k] = span[i];
            previous = span[i].match;
        }
        memmove(span, span + k, (n - k) * sizeof *span);
        s->n = n - k;
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct pretokenize_span next = span[i];
        bool join = behavior == BEHAVIOR_CONTIGUOUS ? next.match == previous : next.match && !previous;
        if (behavior == BEHAVIOR_REMOVED) {
            if (!next.match)
                span[k++] = next;
        } else if (join && k > 0) {
            span[k - 1].end = next.end;
        } else {
            span[k++] = next;
        }
        previous = next.match;
    }
    s->n = k;
}

static int split_pieces(const struct pretokenize_step *step, struct pretokenize_scratch *s, const struct pieces *in,
                        struct pieces *out, struct err *e)
{
    out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        const struct text_piece *p = &in->piece[i];
        if (p->id >= 0) {
            if (pieces_add(out, p->start, p->bytes, p->id, false, e) != 0)
                return -1;
            continue;
        }
        if (find_spans(step, s, in->text.data + p->start, p->bytes, e) != 0)
            return -1;
        join_spans(step->behavior, s);
        for (size_t k = 0; k < s->n; k++) {
            const struct pretokenize_span *span = &s->span[k];
            if (pieces_add(out, p->start + span->start, span->end - span->start, -1, p->first && span->start == 0, e) !=
                0)
                return -1;
        }
    }
    return 0;
}

/* Append the text of a piece as this step changes it before it splits. */
static void rewrite_text(const struct pretokenize_step *step, const struct text_piece *p, const char *text,
                         struct buffer *out)
{
    if (step->kind == PRETOKENIZE_BYTE_LEVEL) {
        if (text[0] != ' ')
            buffer_add(out, " ", 1);
        buffer_add(out, text, p->bytes);
        return;
    }
    bool starts = text[0] == ' ' || (p->bytes >= step->replacement_bytes &&
                                     memcmp(text, step->replacement, step->replacement_bytes) == 0);
    if (!starts && (step->prepend == METASPACE_ALWAYS || (step->prepend == METASPACE_FIRST && p->first)))
        buffer_add(out, step->replacement, step->replacement_bytes);
    for (size_t i = 0, next; i < p->bytes; i = next) {
        const char *space = memchr(text + i, ' ', p->bytes - i);
        next = space != NULL ? (size_t)(space - text) : p->bytes;
        buffer_add(out, text + i, next - i);
        if (space != NULL) {
            buffer_add(out, step->replacement, step->replacement_bytes);
            next++;
        }
    }
}

/* Replaces the text of every piece: map = each byte as its printable character (a ByteLevel that others follow). */
static int rewrite_pieces(const struct pretokenize_step *step, bool map, const struct pieces *in, struct pieces *out,
                          struct err *e)
{
    pieces_clear(out);
    for (size_t i = 0; i < in->n; i++) {
        const struct text_piece *p = &in->piece[i];
        const char *text = in->text.data + p->start;
        size_t start = out->text.bytes;
        if (p->id < 0 && map)
            for (size_t k = 0; k < p->bytes; k++)
                buffer_char(&out->text, unicode_byte_to_char((unsigned char)text[k]));
        else if (p->id < 0)
            rewrite_text(step, p, text, &out->text);
        if (pieces_add(out, start, out->text.bytes - start, p->id, p->first, e) != 0)
            return -1;
    }
    return buffer_check(&out->text, e);
}

static void swap_pieces(struct pieces *a, struct pieces *b)
{
    struct pieces c = *a;
    *a = *b;
    *b = c;
}

int pretokenize_run(const struct pretokenizer *p, struct pretokenize_scratch *s, struct pieces *a, struct pieces *b,
                    struct err *e)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct pretokenize_step *step = &p->step[i];
        bool byte_level = step->kind == PRETOKENIZE_BYTE_LEVEL, metaspace = step->kind == PRETOKENIZE_METASPACE;
        if (metaspace || (byte_level && step->add_prefix_space)) {
            if (rewrite_pieces(step, false, a, b, e) != 0)
                return -1;
            swap_pieces(a, b);
        }
        if (byte_level ? step->use_regex : !metaspace || step->split) {
            if (split_pieces(step, s, a, b, e) != 0)
                return -1;
            pieces_take_text(b, a);
            swap_pieces(a, b);
        }
        if (byte_level && i + 1 < p->n) {
            if (rewrite_pieces(step, true, a, b, e) != 0)
                return -1;
            swap_pieces(a, b);
        }
    }
    return 0;
}
