/* text/tokenizer/pattern_class.c - the characters of a pattern: literals, sets (\s, \p{L}) and classes ([...]). See
 * pattern_parts.h. */
#include "text/tokenizer/pattern_parts.h"
#include "text/tokenizer/unicode.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char spaces[] = "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
                             "\\x{205f}\\x{3000}";
static const char non_spaces[] =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";

/* Append the members of a general category, for use inside brackets. PCRE2 has Unicode 14; code points whose category
 * was assigned or changed later are added. (U+1171E, which left Mn, stays in a bare \p{Mn}.) */
static int add_category(struct translation *t, const char *name)
{
    static const char known[] = " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl "
                                "Zp Cc Cf Co ";
    char spaced[8], part[96];
    (void)snprintf(spaced, sizeof spaced, " %.4s ", name);
    if (strlen(name) > 2 || strstr(known, spaced) == NULL) {
        (void)snprintf(part, sizeof part, "the property \\p{%s}", name);
        return pattern_refuse(t, part);
    }
    buffer_format(t->out, "\\p{%s}", name);
    size_t n;
    const struct unicode_range *r = unicode_category_changes(&n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(r[i].category, name, strlen(name)) == 0)
            buffer_format(t->out, "\\x{%x}-\\x{%x}", (unsigned)r[i].first, (unsigned)r[i].last);
    return 0;
}

/* \p{...} or \P{...} with t->at after the letter p; `negated` on entry: \P. Appends members and moves on. */
static int read_property(struct translation *t, char *name, size_t room, bool *negated)
{
    size_t i = 0;
    if (peek(t, 0) != '{')
        return pattern_refuse(t, "a property without braces");
    t->at++;
    if (peek(t, 0) == '^') {
        *negated = !*negated;
        t->at++;
    }
    for (int c; (c = peek(t, 0)) != '}'; t->at++) {
        if (c < 0 || i + 1 >= room || !(isalnum(c) || c == '_'))
            return pattern_malformed(t, "\\p{...} expects a property name");
        name[i++] = (char)c;
    }
    name[i] = '\0';
    t->at++;
    return 0;
}

static int add_property(struct translation *t, const char *name)
{
    size_t n;
    const struct unicode_range *r = unicode_script(name, &n);
    if (t->caseless)
        return pattern_refuse(t, "a property in a case-insensitive part");
    if (r == NULL)
        return add_category(t, name);
    for (size_t i = 0; i < n; i++)
        buffer_format(t->out, "\\x{%x}-\\x{%x}", (unsigned)r[i].first, (unsigned)r[i].last);
    return 0;
}

int pattern_set_escape(struct translation *t, bool in_class, bool *negated)
{
    int c = peek(t, 0), low = tolower(c);
    char name[40];
    if (c < 0 || strchr("sdwhp", low) == NULL)
        return 0;
    *negated = c != low;
    t->at++;
    if (low == 'p' && read_property(t, name, sizeof name, negated) != 0)
        return -1;
    if (in_class && *negated) {
        if (low != 's')
            return pattern_refuse(t, "a negated set inside a character class (\\P, \\D, \\W, \\H)");
        buffer_string(t->out, non_spaces);
        return 1;
    }
    if (!in_class)
        buffer_string(t->out, *negated ? "[^" : "[");
    int rc = 0;
    if (low == 's')
        buffer_string(t->out, spaces);
    else if (low == 'h')
        buffer_string(t->out, "0-9a-fA-F");
    else if (low == 'd')
        rc = add_category(t, "Nd");
    else if (low == 'w')
        rc = add_category(t, "L") != 0 || add_category(t, "M") != 0 || add_category(t, "Nd") != 0 ||
                     add_category(t, "Pc") != 0
                 ? -1
                 : 0;
    else
        rc = add_property(t, name);
    if (!in_class)
        buffer_string(t->out, "]");
    return rc != 0 ? -1 : 1;
}

static int read_hex(struct translation *t, int min, int max, int32_t *cp)
{
    int digits = 0;
    uint32_t value = 0; /* of 8 digits at most */
    for (int c; digits < max && (c = peek(t, 0)) >= 0 && isxdigit(c); digits++, t->at++)
        value = value * 16 + (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    if (digits < min || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        return pattern_malformed(t, "expected the hexadecimal digits of a code point");
    *cp = (int32_t)value;
    return 0;
}

int pattern_read_literal(struct translation *t, bool in_class, int32_t *cp)
{
    static const char letters[] = "nrtfvae", values[] = "\n\r\t\f\v\a\x1b";
    if (t->s[t->at] != '\\') {
        t->at += (size_t)utf8_next(t->s + t->at, cp);
        return 0;
    }
    t->at++;
    int c = peek(t, 0);
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    if (c < 0)
        return pattern_malformed(t, "it ends with a backslash");
    if (letter != NULL || (in_class && c == 'b')) {
        *cp = letter != NULL ? values[letter - letters] : '\b';
        t->at++;
        return 0;
    }
    if (c == 'u') {
        t->at++;
        return read_hex(t, 4, 4, cp);
    }
    if (c == 'x') {
        t->at++;
        bool braces = peek(t, 0) == '{';
        t->at += braces;
        if (read_hex(t, 1, braces ? 8 : 2, cp) != 0)
            return -1;
        if (braces ? peek(t, 0) != '}' : *cp > 0x7f)
            return braces ? pattern_malformed(t, "\\x{...} is not closed")
                          : pattern_refuse(t, "a raw byte \\xNN above 7F");
        t->at += braces;
        return 0;
    }
    if (isalnum(c)) {
        char part[] = "the escape \\?";
        part[sizeof part - 2] = (char)c;
        return pattern_refuse(t, part);
    }
    t->at += (size_t)utf8_next(t->s + t->at, cp);
    return 0;
}

int pattern_class_items(struct translation *t, int depth)
{
    bool negated;
    if (depth > PATTERN_MAX_DEPTH)
        return pattern_malformed(t, "classes nested too deep");
    for (bool first = true;; first = false) {
        int c = peek(t, 0), rc;
        int32_t low = 0, high = 0;
        if (c < 0)
            return pattern_malformed(t, "a character class is not closed");
        if (c == ']' && first)
            return pattern_refuse(t, "an empty character class");
        if (c == ']') {
            t->at++;
            return 0;
        }
        if (c == '[') {
            if (peek(t, 1) == ':' || peek(t, 1) == '^')
                return pattern_refuse(t, peek(t, 1) == ':' ? "a POSIX bracket"
                                                           : "a negated class inside a character class");
            t->at++;
            if (pattern_class_items(t, depth + 1) != 0)
                return -1;
            continue;
        }
        if (c == '&' && peek(t, 1) == '&')
            return pattern_refuse(t, "a class intersection (&&)");
        if (c == '\\') {
            t->at++;
            if ((rc = pattern_set_escape(t, true, &negated)) < 0)
                return -1;
            if (rc == 1)
                continue;
            t->at--;
        }
        if (pattern_read_literal(t, true, &low) != 0)
            return -1;
        high = low;
        if (peek(t, 0) == '-' && peek(t, 1) >= 0 && peek(t, 1) != ']') {
            t->at++;
            if (peek(t, 0) == '[' || (peek(t, 0) == '\\' && peek(t, 1) > 0 && strchr("sSdDwWhHpP", peek(t, 1)) != NULL))
                return pattern_refuse(t, "a range that ends in a set");
            if (pattern_read_literal(t, true, &high) != 0)
                return -1;
            if (high < low)
                return pattern_malformed(t, "a range runs backwards");
        }
        if (t->caseless && high > 0x7f)
            return pattern_refuse(t, "a character beyond ASCII in a case-insensitive part");
        buffer_format(t->out, high > low ? "\\x{%x}-\\x{%x}" : "\\x{%x}", (unsigned)low, (unsigned)high);
    }
}
