/* text/template/lexer.c - see lexer.h. */
#include "text/template/lexer.h"

#include "base/utf8.h"

#include <string.h>

struct lexer {
    struct heap *w;
    struct text source;
    size_t at;
    struct token *token;
    size_t n, capacity;
};

static void emit(struct lexer *l, enum token_kind kind, struct text text)
{
    if (l->n == l->capacity) {
        size_t capacity = 2 * l->capacity + 256;
        struct token *token = heap_alloc(l->w, capacity, sizeof *token);
        if (l->n > 0)
            memcpy(token, l->token, l->n * sizeof *token);
        l->token = token;
        l->capacity = capacity;
    }
    l->token[l->n++] = (struct token){kind, l->w->line, text};
}

static bool looks_at(const struct lexer *l, size_t at, const char *what)
{
    size_t n = strlen(what);
    return at <= l->source.n && n <= l->source.n - at && memcmp(l->source.s + at, what, n) == 0;
}

static void go_to(struct lexer *l, size_t at)
{
    for (; l->at < at; l->at++)
        l->w->line += l->source.s[l->at] == '\n';
}

static size_t skip_blanks(const struct lexer *l, size_t at)
{
    while (at < l->source.n && text_is_blank(text_char(l->source, at)))
        at = text_next(l->source, at);
    return at;
}

/* Text up to the tag at `end`, of which `sign` is the white space control; a tag alone on its line takes its
 * indentation. */
static void emit_text(struct lexer *l, size_t end, char sign, bool lstrip)
{
    struct text t = text_slice(l->source, l->at, end);
    if (sign == '-') {
        t = text_strip(t, NULL, false, true);
    } else if (sign != '+' && lstrip) {
        size_t start = t.n;
        while (start > 0 && t.s[start - 1] != '\n')
            start--;
        bool at_line_start = start > 0 || l->at == 0 || l->source.s[l->at - 1] == '\n';
        if (at_line_start && text_strip(text_slice(t, start, t.n), NULL, true, false).n == 0)
            t.n = start;
    }
    if (t.n > 0)
        emit(l, TOKEN_TEXT, t);
    go_to(l, end);
}

/* Offset after the end of a tag at `at`, white space control included; 0: there is none. */
static size_t tag_end(const struct lexer *l, size_t at, const char *close)
{
    bool minus = looks_at(l, at, "-"), plus = looks_at(l, at, "+") && close[0] != '}';
    size_t mark = at + (minus || plus);
    if (!looks_at(l, mark, close))
        return 0;
    mark += 2;
    if (minus)
        return skip_blanks(l, mark);
    return mark + (!plus && close[0] != '}' && looks_at(l, mark, "\n"));
}

static void lex_comment(struct lexer *l, size_t start)
{
    size_t close = text_find(l->source, text_of("#}"), start);
    if (close > l->source.n)
        heap_fail(l->w, ERR_INPUT, "found a comment without end, expected \"#}\"");
    bool sign = close > start && (l->source.s[close - 1] == '-' || l->source.s[close - 1] == '+');
    go_to(l, tag_end(l, close - sign, "#}"));
}

/* If the tag at `at` consists of `word`, the offset after its end; otherwise 0. */
static size_t word_tag(const struct lexer *l, size_t at, const char *word, bool trim)
{
    at += 2;
    at += looks_at(l, at, "-") || looks_at(l, at, "+");
    at = skip_blanks(l, at);
    if (!looks_at(l, at, word))
        return 0;
    at = skip_blanks(l, at + strlen(word));
    return !trim && looks_at(l, at, "%}") ? at + 2 : tag_end(l, at, "%}");
}

static char sign_at(const struct lexer *l, size_t at)
{
    return looks_at(l, at, "-") ? '-' : looks_at(l, at, "+") ? '+' : '\0';
}

static void lex_raw(struct lexer *l, size_t start)
{
    go_to(l, start);
    for (size_t at = text_find(l->source, text_of("{%"), start); at < l->source.n;
         at = text_find(l->source, text_of("{%"), at + 2)) {
        size_t end = word_tag(l, at, "endraw", true);
        if (end == 0)
            continue;
        emit_text(l, at, sign_at(l, at + 2), true);
        go_to(l, end);
        return;
    }
    heap_fail(l->w, ERR_INPUT, "found {%% raw %%} without end, expected {%% endraw %%}");
}

static bool is_name(unsigned char c, bool first)
{
    return c == '_' || c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (!first && c >= '0' && c <= '9');
}

static bool is_digit(const struct lexer *l, size_t at)
{
    return at < l->source.n && l->source.s[at] >= '0' && l->source.s[at] <= '9';
}

static size_t skip_digits(const struct lexer *l, size_t at)
{
    while (is_digit(l, at) || (looks_at(l, at, "_") && is_digit(l, at + 1)))
        at++;
    return at;
}

static void lex_number(struct lexer *l)
{
    size_t end = skip_digits(l, l->at), exponent;
    enum token_kind kind = TOKEN_INTEGER;
    bool member = l->at > 0 && l->source.s[l->at - 1] == '.'; /* a.0.1 */
    if (!member && looks_at(l, end, ".") && is_digit(l, end + 1)) {
        end = skip_digits(l, end + 1);
        kind = TOKEN_FLOAT;
    }
    exponent = end + 1 + (looks_at(l, end + 1, "+") || looks_at(l, end + 1, "-"));
    if (!member && (looks_at(l, end, "e") || looks_at(l, end, "E")) && is_digit(l, exponent)) {
        end = skip_digits(l, exponent);
        kind = TOKEN_FLOAT;
    }
    emit(l, kind, text_slice(l->source, l->at, end));
    go_to(l, end);
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The digits of \x, \u, \U and of an octal escape at t.s[*at]. */
static int32_t escaped_number(struct lexer *l, struct text t, size_t *at, int digits, int base)
{
    int32_t cp = 0;
    int n = 0;
    for (; n < digits && *at < t.n; n++, (*at)++) {
        int digit = hex_value(t.s[*at]);
        if (digit < 0 || digit >= base)
            break;
        cp = cp * base + digit;
        if (cp > 0x10ffff)
            break;
    }
    if ((base == 16 && n != digits) || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        heap_fail(l->w, ERR_INPUT, "found an escape that is not a character in \"%.*s\"", (int)(t.n < 60 ? t.n : 60),
                  t.s);
    return cp;
}

/* One escape after its backslash, as in Python's unicode-escape. */
static void unescape(struct lexer *l, struct builder *b, struct text t, size_t *at)
{
    static const char plain[] = "n\nt\tr\ra\ab\bf\fv\v\\\\''\"\"";
    char c = t.s[*at];
    const char *found = NULL;
    for (const char *p = plain; *p != '\0' && found == NULL; p += 2)
        found = *p == c ? p : NULL;
    if (c >= '0' && c <= '7') {
        build_char(b, escaped_number(l, t, at, 3, 8), false);
        return;
    }
    (*at)++;
    if (found != NULL)
        build_bytes(b, found + 1, 1, false);
    else if (c == 'x' || c == 'u' || c == 'U')
        build_char(b, escaped_number(l, t, at, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16), false);
    else if (c == 'N')
        heap_fail(l->w, ERR_UNSUPPORTED, "found the escape \\N, expected \\x, \\u or \\U");
    else if (c != '\n') {
        build_string(b, "\\", false);
        build_bytes(b, &c, 1, false);
    }
}

static void lex_string(struct lexer *l)
{
    char quote = l->source.s[l->at];
    size_t end = l->at + 1;
    while (end < l->source.n && l->source.s[end] != quote)
        end += l->source.s[end] == '\\' ? 2 : 1;
    if (end >= l->source.n)
        heap_fail(l->w, ERR_INPUT, "found a string without end, expected %c", quote);
    struct text t = text_slice(l->source, l->at + 1, end);
    if (text_find(t, text_of("\\"), 0) < t.n) {
        struct builder b = {.w = l->w};
        for (size_t at = 0; at < t.n;) {
            size_t next = text_find(t, text_of("\\"), at);
            build(&b, text_slice(t, at, next < t.n ? next : t.n));
            at = next + 1;
            if (at < t.n)
                unescape(l, &b, t, &at);
        }
        t = built(&b);
    }
    emit(l, TOKEN_STRING, t);
    go_to(l, end + 1);
}

static void lex_operator(struct lexer *l, int *open)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    char c = l->source.s[l->at];
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof two[0]; i++)
        if (looks_at(l, l->at, two[i]))
            n = 2;
    if (n == 1 && strchr("+-/*%~[](){}<>=.:|,;", c) == NULL)
        heap_fail(l->w, ERR_INPUT, "found the character \"%.*s\" in a tag, expected a name, a literal or an operator",
                  (int)(text_next(l->source, l->at) - l->at), l->source.s + l->at);
    *open += c == '(' || c == '[' || c == '{';
    *open -= (c == ')' || c == ']' || c == '}') && *open > 0;
    emit(l, TOKEN_OPERATOR, text_slice(l->source, l->at, l->at + n));
    go_to(l, l->at + n);
}

static void lex_token(struct lexer *l, int *open)
{
    unsigned char c = (unsigned char)l->source.s[l->at];
    size_t end = l->at;
    if (c >= '0' && c <= '9') {
        lex_number(l);
    } else if (c == '\'' || c == '"') {
        lex_string(l);
    } else if (is_name(c, true)) {
        while (end < l->source.n && is_name((unsigned char)l->source.s[end], false))
            end++;
        emit(l, TOKEN_NAME, text_slice(l->source, l->at, end));
        go_to(l, end);
    } else {
        lex_operator(l, open);
    }
}

/* Reads a tag from after its opening to its end. */
static void lex_tag(struct lexer *l, bool print)
{
    int open = 0;
    emit(l, print ? TOKEN_PRINT : TOKEN_BLOCK, text_of(""));
    for (;;) {
        go_to(l, skip_blanks(l, l->at));
        size_t end = open == 0 ? tag_end(l, l->at, print ? "}}" : "%}") : 0;
        if (end > 0) {
            emit(l, print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, text_of(""));
            go_to(l, end);
            return;
        }
        if (l->at >= l->source.n)
            heap_fail(l->w, ERR_INPUT, "found a tag without end, expected \"%s\"", print ? "}}" : "%}");
        lex_token(l, &open);
    }
}

/* The next of {{, {%, {#; source.n: none. */
static size_t find_tag(const struct lexer *l)
{
    for (size_t at = l->at; at + 1 < l->source.n; at++)
        if (l->source.s[at] == '{' && memchr("{%#", l->source.s[at + 1], 3) != NULL)
            return at;
    return l->source.n;
}

static void lex_next(struct lexer *l)
{
    size_t at = find_tag(l);
    if (at == l->source.n) {
        emit_text(l, at, '+', false);
        return;
    }
    char kind = l->source.s[at + 1], sign = sign_at(l, at + 2);
    size_t inside = at + 2 + (sign != '\0'), raw = kind == '%' ? word_tag(l, at, "raw", false) : 0;
    emit_text(l, at, sign, kind != '{');
    if (raw > 0) {
        lex_raw(l, raw);
        return;
    }
    if (kind == '#') {
        lex_comment(l, inside);
        return;
    }
    go_to(l, inside);
    lex_tag(l, kind == '{');
}

/* Line ends become line feeds; one at the end is dropped. */
static struct text normalise(struct heap *w, const char *source, size_t bytes)
{
    char *s = heap_alloc(w, bytes + 1, 1);
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\r' && i + 1 < bytes && source[i + 1] == '\n')
            continue;
        s[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    n -= n > 0 && s[n - 1] == '\n';
    return (struct text){s, n, NULL, false};
}

const struct token *lex(struct heap *w, const char *source, size_t bytes)
{
    size_t bad = utf8_invalid_at(source, bytes);
    w->line = 1;
    for (size_t i = 0; bad < bytes && i < bad; i++)
        w->line += source[i] == '\n';
    if (bad < bytes)
        heap_fail(w, ERR_INPUT, "found bytes at offset %zu that are not UTF-8, expected text", bad);
    struct lexer l = {.w = w, .source = normalise(w, source, bytes)};
    while (l.at < l.source.n)
        lex_next(&l);
    emit(&l, TOKEN_END, text_of(""));
    return l.token;
}
