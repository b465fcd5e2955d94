/* text/tokenizer/pattern.c - see pattern.h. */
#include "text/tokenizer/pattern.h"

#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

#define PATTERN_MAX_BYTES ((size_t)16384)
/* Limit of steps per search: above the need of 4 million spaces in a row, far below that of a hostile pattern. */
#define MATCH_LIMIT     20000000
#define JIT_STACK_START 32768
#define JIT_STACK_MAX   ((size_t)64 << 20) /* reserved, not touched unless needed */
#define HEAP_LIMIT_KIB  (1 << 20) /* memory of the interpreter, which takes over when the JIT stack is exhausted */

int pattern_open(struct pattern *p, const struct source *l, const char *regex, size_t bytes, const char *what)
{
    struct buffer translated = {0};
    pcre2_compile_context *context = NULL;
    int rc = -1, code;
    size_t offset;
    if (bytes > PATTERN_MAX_BYTES) {
        ERR(l->e, ERR_INPUT, "%s: %s has a pattern of %zu bytes, at most %zu are accepted", l->file, what, bytes,
            PATTERN_MAX_BYTES);
        goto out;
    }
    if (pattern_translate(&translated, l, regex, bytes, what) != 0)
        goto out;
    context = pcre2_compile_context_create(NULL);
    if (context == NULL || translated.failed) {
        ERR(l->e, ERR_MEMORY, "out of host memory: %s", what);
        goto out;
    }
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    p->code = pcre2_compile((PCRE2_SPTR)translated.data, translated.bytes,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &offset, context);
    if (p->code == NULL) {
        unsigned char text[160];
        (void)pcre2_get_error_message(code, text, sizeof text);
        ERR(l->e, ERR_INPUT, "%s: %s: the pattern \"%.*s\" does not compile: %s", l->file, what,
            bytes < 120 ? (int)bytes : 120, regex, (const char *)text);
        goto out;
    }
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without it the interpreter runs: slower, same matches */
    rc = 0;
out:
    pcre2_compile_context_free(context);
    buffer_free(&translated);
    return rc;
}

int pattern_load(struct pattern *p, const struct source *l, const json_t *value, const char *what)
{
    const json_t *literal = json_object_get(value, "String"), *regex = json_object_get(value, "Regex");
    if (json_object_size(value) != 1 || (!json_is_string(literal) && !json_is_string(regex)))
        return ERR(l->e, ERR_INPUT, "%s: %s: \"pattern\" must be {\"String\": ...} or {\"Regex\": ...}", l->file, what);
    size_t bytes;
    char *text = source_string(l, literal != NULL ? literal : regex, what, &bytes);
    if (text == NULL)
        return -1;
    if (bytes == 0) {
        free(text);
        return ERR(l->e, ERR_UNSUPPORTED, "%s: %s has an empty pattern, which is not supported", l->file, what);
    }
    if (literal != NULL) {
        p->literal = text;
        p->literal_bytes = bytes;
        return 0;
    }
    int rc = pattern_open(p, l, text, bytes, what);
    free(text);
    return rc;
}

void pattern_close(struct pattern *p)
{
    pcre2_code_free(p->code);
    free(p->literal);
    *p = (struct pattern){0};
}

int matcher_open(struct matcher *m, struct err *e)
{
    m->data = pcre2_match_data_create(1, NULL); /* only the whole match is needed */
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (m->data == NULL || m->context == NULL) {
        matcher_close(m);
        return ERR(e, ERR_MEMORY, "out of host memory: pattern matcher");
    }
    (void)pcre2_set_match_limit(m->context, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(m->context, HEAP_LIMIT_KIB);
    if (m->stack != NULL)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return 0;
}

void matcher_close(struct matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    *m = (struct matcher){0};
}

static int search(const struct pattern *p, struct matcher *m, const struct pattern_walk *walk, size_t *start,
                  size_t *end, struct err *e)
{
    if (p->code == NULL) {
        const char *found = memmem(walk->text + walk->at, walk->bytes - walk->at, p->literal, p->literal_bytes);
        if (found == NULL)
            return 0;
        *start = (size_t)(found - walk->text);
        *end = *start + p->literal_bytes;
        return 1;
    }
    if (m->data == NULL && matcher_open(m, e) != 0)
        return -1;
    int rc =
        pcre2_match(p->code, (PCRE2_SPTR)walk->text, walk->bytes, walk->at, PCRE2_NO_UTF_CHECK, m->data, m->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        unsigned char text[160];
        (void)pcre2_get_error_message(rc, text, sizeof text);
        return ERR(e, ERR_INPUT, "the tokenizer's pattern failed at byte %zu of the text: %s", walk->at,
                   (const char *)text);
    }
    const PCRE2_SIZE *match = pcre2_get_ovector_pointer(m->data);
    *start = match[0];
    *end = match[1];
    if (*end < *start)
        return ERR(e, ERR_INPUT, "the tokenizer's pattern matched backwards at byte %zu of the text", walk->at);
    return 1;
}

int pattern_next(const struct pattern *p, struct matcher *m, struct pattern_walk *walk, size_t *start, size_t *end,
                 struct err *e)
{
    while (walk->at <= walk->bytes) {
        int rc = search(p, m, walk, start, end, e);
        if (rc != 1)
            return rc;
        if (*start != *end || *end != walk->last_end) {
            walk->at = *end;
            walk->last_end = *end;
            return 1;
        }
        int32_t cp;
        walk->at += walk->at < walk->bytes ? (size_t)utf8_next(walk->text + walk->at, &cp) : 1;
    }
    return 0;
}
