/* text/tokenizer/pattern_translate.c - from Oniguruma's Ruby syntax to PCRE2's. See pattern.h.
 *
 * Differences that matter, each measured against the reference library: \s has 25 members (PCRE2: also U+180E); newer
 * general categories; {m,n}+ repeats the group greedily (PCRE2: possessive); {n}? makes the group optional; {,n} counts
 * from 0; \h is a hexadecimal digit; \v is U+000B; [a[b]] is a union; ^ and $ are line anchors; (?m) is
 * dot-matches-all. */
#include "text/tokenizer/pattern_parts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPEAT 65535

int pattern_refuse(struct translation *t, const char *part)
{
    return ERR(t->l->e, ERR_UNSUPPORTED, "%s: %s: %s at byte %zu of the pattern is not supported", t->l->file, t->what,
               part, t->at);
}

int pattern_malformed(struct translation *t, const char *problem)
{
    return ERR(t->l->e, ERR_INPUT, "%s: %s: the pattern is malformed at byte %zu: %s", t->l->file, t->what, t->at,
               problem);
}

static void wrap_atom(struct translation *t)
{
    static const char open[] = "(?:";
    if (!buffer_reserve(t->out, sizeof open))
        return;
    memmove(t->out->data + t->atom + 3, t->out->data + t->atom, t->out->bytes - t->atom);
    memcpy(t->out->data + t->atom, open, 3);
    t->out->bytes += 3;
    buffer_string(t->out, ")");
}

/* {n}, {n,}, {,m}, {n,m} at t->at: 1, and t->at is after it; 0: the brace is an ordinary character. */
static int read_interval(struct translation *t, int *low, int *high)
{
    size_t i = t->at + 1, start = i;
    bool comma = false;
    long bound[2] = {-1, -1};
    for (; i < t->n && t->s[i] != '}'; i++) {
        if (t->s[i] == ',' && !comma) {
            comma = true;
        } else if (isdigit((unsigned char)t->s[i]) && i - start < 16) {
            long *b = &bound[comma];
            *b = (*b < 0 ? 0 : *b * 10) + (t->s[i] - '0');
        } else {
            return 0;
        }
    }
    if (i >= t->n || (bound[0] < 0 && bound[1] < 0))
        return 0;
    if (bound[0] > MAX_REPEAT || bound[1] > MAX_REPEAT || (bound[1] >= 0 && bound[1] < bound[0]))
        return pattern_refuse(t, "a repeat count out of order or above 65535");
    t->at = i + 1;
    *low = bound[0] < 0 ? 0 : (int)bound[0];
    *high = !comma ? *low : (int)bound[1]; /* -1: no upper bound */
    return 1;
}

/* A quantifier at t->at: 1; 0: '{' that is an ordinary character. */
static int quantifier(struct translation *t)
{
    int c = peek(t, 0), low = 0, high = 0;
    if (c == '{') {
        int rc = read_interval(t, &low, &high);
        if (rc != 1)
            return rc;
    }
    if (t->atom == PATTERN_NO_ATOM)
        return pattern_malformed(t, "nothing to repeat");
    if (t->quantified)
        wrap_atom(t);
    t->quantified = true;
    t->last = 0;
    if (c != '{') {
        char mark = (char)c;
        buffer_add(t->out, &mark, 1);
        t->at++;
    } else if (high < 0) {
        buffer_format(t->out, "{%d,}", low);
    } else {
        buffer_format(t->out, "{%d,%d}", low, high);
    }
    /* Lazy or possessive. In Ruby a '+' after braces (and after {n} also a '?') is another quantifier. */
    if ((peek(t, 0) == '?' && (c != '{' || low != high)) || (peek(t, 0) == '+' && c != '{')) {
        buffer_add(t->out, t->s + t->at, 1);
        t->at++;
    }
    return 1;
}

/* The options of (?imx-imx: or (?imx-imx) with t->at after '?'; *scoped: it ended with ':'. */
static int options(struct translation *t, bool *scoped)
{
    bool on = true;
    for (;; t->at++) {
        int c = peek(t, 0);
        if (c == '-' && on) {
            on = false;
            buffer_string(t->out, "-");
        } else if (c == 'i') {
            t->caseless = on;
            buffer_string(t->out, "i");
        } else if (c == 'm') {
            buffer_string(t->out, "s");
        } else if (c == 'x' && on) {
            return pattern_refuse(t, "an extended pattern (?x)");
        } else if (c == ':' || c == ')') {
            *scoped = c == ':';
            t->at++;
            buffer_string(t->out, *scoped ? ":" : ")");
            return 0;
        } else if (c != 'x') {
            return pattern_refuse(t, "this kind of group");
        }
    }
}

static int translate_alternatives(struct translation *t, int depth);

/* A group with t->at at its '('. */
static int translate_group(struct translation *t, int depth)
{
    static const char *const header[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    size_t start = t->out->bytes, opened = t->at;
    bool scoped = true, repeatable = true, outer = t->caseless;
    if (depth > PATTERN_MAX_DEPTH)
        return pattern_malformed(t, "groups nested too deep");
    if (peek(t, 1) == '*')
        return pattern_refuse(t, "a verb (*...)");
    if (peek(t, 1) != '?') {
        buffer_string(t->out, "(?:"); /* nothing refers to groups */
        t->at++;
    } else {
        size_t i = 0, n_header = sizeof header / sizeof header[0];
        while (i < n_header && strncmp(t->s + t->at, header[i], strlen(header[i])) != 0)
            i++;
        if (i < n_header) {
            buffer_string(t->out, header[i]);
            t->at += strlen(header[i]);
            repeatable = i == 0 || i == 5;
        } else {
            buffer_string(t->out, "(?");
            t->at += 2;
            if (options(t, &scoped) != 0)
                return -1;
            if (!scoped && opened > 0) /* Ruby: up to the end of the group, alternatives included */
                return pattern_refuse(t, "an option such as (?i) that is not at the start of the pattern");
        }
    }
    if (!scoped) {
        t->atom = PATTERN_NO_ATOM;
        return 0;
    }
    if (translate_alternatives(t, depth + 1) != 0)
        return -1;
    if (peek(t, 0) != ')')
        return pattern_malformed(t, "a group is not closed");
    t->at++;
    buffer_string(t->out, ")");
    t->caseless = outer;
    t->atom = repeatable ? start : PATTERN_NO_ATOM;
    t->quantified = false;
    t->last = 0;
    return 0;
}

/* Ruby's case folding also matches some pairs with one character (ss and U+00DF); PCRE2's does not. */
static int check_folding(struct translation *t, int32_t cp)
{
    static const char *const pair[] = {"ss", "st", "ff", "fi", "fl"};
    if (!t->caseless)
        return 0;
    if (cp > 0x7f)
        return pattern_refuse(t, "a character beyond ASCII in a case-insensitive part");
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++)
        if (tolower(t->last) == pair[i][0] && tolower(cp) == pair[i][1])
            return pattern_refuse(t, "a letter pair with a ligature in a case-insensitive part");
    t->last = cp;
    return 0;
}

static int item(struct translation *t, int depth)
{
    int c = peek(t, 0), rc;
    bool negated;
    size_t start = t->out->bytes;
    if (c == '(')
        return translate_group(t, depth);
    if (strchr("*+?{", c) != NULL && (rc = quantifier(t)) != 0)
        return rc < 0 ? -1 : 0;
    t->quantified = false;
    t->atom = start;
    if (c == '[') {
        bool inverted = peek(t, 1) == '^';
        t->at += inverted ? 2 : 1;
        t->last = 0;
        buffer_string(t->out, inverted ? "[^" : "[");
        if (pattern_class_items(t, depth) != 0)
            return -1;
        buffer_string(t->out, "]");
        return 0;
    }
    if (c == '^' || c == '$' || c == '.') {
        buffer_add(t->out, t->s + t->at++, 1);
        t->atom = c == '.' ? start : PATTERN_NO_ATOM;
        t->last = 0;
        return 0;
    }
    if (c == '\\' && peek(t, 1) > 0) {
        if (strchr("AzZ", peek(t, 1)) != NULL) {
            buffer_add(t->out, t->s + t->at, 2);
            t->at += 2;
            t->atom = PATTERN_NO_ATOM;
            return 0;
        }
        t->at++;
        if ((rc = pattern_set_escape(t, false, &negated)) != 0) {
            t->last = 0;
            return rc < 0 ? -1 : 0;
        }
        t->at--;
    }
    int32_t cp = 0;
    if (pattern_read_literal(t, false, &cp) != 0 || check_folding(t, cp) != 0)
        return -1;
    buffer_format(t->out, "\\x{%x}", (unsigned)cp);
    return 0;
}

static int translate_alternatives(struct translation *t, int depth)
{
    t->atom = PATTERN_NO_ATOM;
    t->last = 0;
    while (t->at < t->n && t->s[t->at] != ')') {
        if (t->s[t->at] == '\0')
            return pattern_refuse(t, "U+0000");
        if (t->s[t->at] == '|') {
            buffer_add(t->out, t->s + t->at++, 1);
            t->atom = PATTERN_NO_ATOM;
            t->last = 0;
        } else if (item(t, depth) != 0) {
            return -1;
        }
    }
    return 0;
}

int pattern_translate(struct buffer *out, const struct source *l, const char *regex, size_t bytes, const char *what)
{
    struct translation t = {.l = l, .what = what, .s = regex, .n = bytes, .out = out, .atom = PATTERN_NO_ATOM};
    if (translate_alternatives(&t, 0) != 0)
        return -1;
    return t.at < t.n ? pattern_malformed(&t, "unmatched ')'") : 0;
}
