/* text/tokenizer/normalize.c - see normalize.h. */
#include "text/tokenizer/normalize.h"

#include "base/json.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_GROWTH 64 /* growth of a text by the whole normalizer; files in use stay below 4 */

void normalize_close(struct normalizer *n)
{
    for (size_t i = 0; i < n->n; i++) {
        pattern_close(&n->step[i].pattern);
        free(n->step[i].content);
    }
    free(n->step);
    *n = (struct normalizer){0};
}

int normalize_check_growth(double *growth, const struct source *l, size_t content_bytes, const char *what)
{
    *growth = (*growth > 0 ? *growth : 1) * (double)(content_bytes + 1);
    if (*growth <= 4096)
        return 0;
    return ERR(l->e, ERR_UNSUPPORTED,
               "%s: %s: replacements that make a text up to %.0f times as long are not supported", l->file, what,
               *growth);
}

static int load_step(struct normalizer *n, const struct source *l, const json_t *part, const char *type)
{
    struct normalize_step *step = &n->step[n->n];
    if (n->n == SOURCE_MAX_MEMBERS)
        return ERR(l->e, ERR_INPUT, "%s: the normalizer has more than %d parts", l->file, SOURCE_MAX_MEMBERS);
    if (strcmp(type, "NFC") == 0) {
        step->kind = NORMALIZE_NFC;
        n->n++;
        return 0;
    }
    if (strcmp(type, "Prepend") == 0) {
        step->kind = NORMALIZE_PREPEND;
        n->n++;
        step->content = source_member(l, part, "prepend", "normalizer Prepend", &step->content_bytes);
        if (step->content == NULL)
            return -1;
        return normalize_check_growth(&n->growth, l, step->content_bytes, "normalizer Prepend");
    }
    if (strcmp(type, "Replace") == 0) {
        step->kind = NORMALIZE_REPLACE;
        n->n++;
        step->content = source_member(l, part, "content", "normalizer Replace", &step->content_bytes);
        if (step->content == NULL ||
            normalize_check_growth(&n->growth, l, step->content_bytes, "normalizer Replace") != 0)
            return -1;
        return pattern_load(&step->pattern, l, json_object_get(part, "pattern"), "normalizer Replace");
    }
    return ERR(l->e, ERR_UNSUPPORTED,
               "%s: normalizer type \"%.40s\" is not supported; supported: NFC, Prepend, Replace, Sequence", l->file,
               type);
}

static int load_part(struct normalizer *n, const struct source *l, const json_t *part)
{
    const char *type = source_type(l, part, "normalizer");
    if (type == NULL)
        return -1;
    if (strcmp(type, "Sequence") != 0)
        return load_step(n, l, part, type);
    const json_t *list = source_sequence(l, part, "normalizers", "normalizer Sequence");
    if (list == NULL)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (load_part(n, l, json_array_get(list, i)) != 0)
            return -1;
    return 0;
}

int normalize_load(struct normalizer *n, const struct source *l, const json_t *part)
{
    if (part == NULL || json_is_null(part))
        return 0;
    n->step = err_calloc(l->e, SOURCE_MAX_MEMBERS + 1, sizeof *n->step, "normalizer");
    return n->step == NULL ? -1 : load_part(n, l, part);
}

/* Sorts a run of marks stably by combining class. Merge sort, since a hostile text may be one long run. */
static void sort_marks(int32_t *mark, int32_t *spare, size_t n)
{
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    sort_marks(mark, spare, half);
    sort_marks(mark + half, spare, n - half);
    while (i < half && j < n) {
        bool right = utf8proc_get_property(mark[j])->combining_class < utf8proc_get_property(mark[i])->combining_class;
        spare[k++] = mark[right ? j++ : i++];
    }
    while (i < half)
        spare[k++] = mark[i++];
    memcpy(mark, spare, k * sizeof *mark);
}

/* NFC of a stretch without inert characters: decompose, order the marks, compose. */
static int compose_stretch(const char *text, size_t bytes, struct buffer *out, struct err *e)
{
    if (bytes > (SIZE_MAX >> 8))
        return ERR(e, ERR_INPUT, "text of %zu bytes is too long to normalize", bytes);
    size_t room = 4 * bytes + 4, n = 0; /* a character decomposes into at most four, and has at least as many bytes */
    int32_t *cp = err_calloc(e, room, 2 * sizeof *cp, "normalization");
    if (cp == NULL)
        return -1;
    int32_t *spare = cp + room;
    for (size_t i = 0; i < bytes;) {
        int32_t c;
        int boundary = 0;
        i += (size_t)utf8_next(text + i, &c);
        utf8proc_ssize_t more = utf8proc_decompose_char(c, cp + n, (utf8proc_ssize_t)(room - n),
                                                        UTF8PROC_STABLE | UTF8PROC_COMPOSE, &boundary);
        if (more < 0 || (size_t)more > room - n) {
            free(cp);
            return ERR(e, ERR_INTERNAL, "decomposition of U+%04X failed", (unsigned)c);
        }
        n += (size_t)more;
    }
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && utf8proc_get_property(cp[end])->combining_class != 0; end++)
            ;
        sort_marks(cp + i, spare, end - i);
    }
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(cp, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < composed; i++)
        buffer_char(out, cp[i]);
    free(cp);
    return buffer_check(out, e);
}

static int run_nfc(const char *text, size_t bytes, struct buffer *out, struct err *e)
{
    size_t i = 0;
    while (i < bytes && (unsigned char)text[i] < 0xcc) /* below U+0300 everything is NFC already */
        i++;
    if (i == bytes) {
        buffer_add(out, text, bytes);
        return buffer_check(out, e);
    }
    size_t start = 0;
    for (i = 0; i < bytes;) {
        int32_t c;
        size_t length = (size_t)utf8_next(text + i, &c);
        if (unicode_is_inert(c)) {
            if (compose_stretch(text + start, i - start, out, e) != 0)
                return -1;
            buffer_add(out, text + i, length);
            start = i + length;
        }
        i += length;
    }
    return compose_stretch(text + start, bytes - start, out, e);
}

int normalize_replace(const struct pattern *p, struct matcher *m, const char *text, size_t bytes, const char *content,
                      size_t content_bytes, struct buffer *out, struct err *e)
{
    struct pattern_walk walk = {.text = text, .bytes = bytes, .last_end = SIZE_MAX};
    size_t done = 0, start, end, limit = out->bytes + MAX_GROWTH * bytes + 65536;
    int rc = 0;
    if (bytes == 0)
        return 0;
    while ((rc = pattern_next(p, m, &walk, &start, &end, e)) == 1) {
        buffer_add(out, text + done, start - done);
        buffer_add(out, content, content_bytes);
        done = end;
        if (out->bytes > limit)
            return ERR(e, ERR_INPUT, "the tokenizer's Replace makes the text more than %d times as long", MAX_GROWTH);
    }
    buffer_add(out, text + done, bytes - done);
    return rc < 0 ? -1 : buffer_check(out, e);
}

static int run_step(const struct normalize_step *step, struct matcher *m, const char *text, size_t bytes,
                    struct buffer *out, struct err *e)
{
    if (bytes == 0)
        return 0;
    if (step->kind == NORMALIZE_NFC)
        return run_nfc(text, bytes, out, e);
    if (step->kind == NORMALIZE_REPLACE)
        return normalize_replace(&step->pattern, m, text, bytes, step->content, step->content_bytes, out, e);
    buffer_add(out, step->content, step->content_bytes);
    buffer_add(out, text, bytes);
    return buffer_check(out, e);
}

int normalize_run(const struct normalizer *n, struct matcher *m, const char *text, size_t bytes, struct buffer *out,
                  struct err *e)
{
    struct buffer a = {0}, b = {0};
    int rc = 0;
    size_t before = out->bytes;
    if (n->n == 0) {
        buffer_add(out, text, bytes);
        return buffer_check(out, e);
    }
    for (size_t i = 0; rc == 0 && i < n->n; i++) {
        struct buffer *to = i + 1 == n->n ? out : i % 2 == 0 ? &a : &b;
        const struct buffer *from = i % 2 == 0 ? &b : &a; /* the previous step's output */
        if (to != out)
            to->bytes = 0;
        rc = run_step(&n->step[i], m, i == 0 ? text : from->data, i == 0 ? bytes : from->bytes, to, e);
        if (rc == 0 && to->bytes - (to == out ? before : 0) > MAX_GROWTH * bytes + 65536)
            rc = ERR(e, ERR_INPUT, "the tokenizer's normalizer makes the text more than %d times as long", MAX_GROWTH);
    }
    buffer_free(&a);
    buffer_free(&b);
    return rc;
}
