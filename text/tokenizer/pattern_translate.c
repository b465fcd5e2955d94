/* text/tokenizer/pattern_translate.c - from Oniguruma's Ruby syntax to PCRE2's. See pattern.h.
 *
 * Differences that matter, each measured against the reference library: \s has 25 members (PCRE2: also U+180E); newer
 * general categories; {m,n}+ repeats the group greedily (PCRE2: possessive); {n}? makes the group optional; {,n} counts
 * from 0; \h is a hexadecimal digit; \v is U+000B; [a[b]] is a union; ^ and $ are line anchors; (?m) is
 * dot-matches-all. */
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/unicode.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH  60
#define MAX_REPEAT 65535
#define NO_ATOM    SIZE_MAX

static const char spaces[] = "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
                             "\\x{205f}\\x{3000}";
static const char non_spaces[] =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";

struct translation {
    const struct source *l;
    const char *what, *s; /* s[n]: the pattern */
    size_t n, at;
    struct buffer *out;
    size_t atom;     /* where in *out the item starts that a quantifier would repeat; NO_ATOM: there is none */
    bool quantified; /* it has a quantifier already */
    bool caseless;
    int32_t last; /* previous literal, for multi-character case folding; 0: none */
};

static int refuse(struct translation *t, const char *part)
{
    return ERR(t->l->e, ERR_UNSUPPORTED, "%s: %s: %s at byte %zu of the pattern is not supported", t->l->file, t->what,
               part, t->at);
}

static int malformed(struct translation *t, const char *problem)
{
    return ERR(t->l->e, ERR_INPUT, "%s: %s: the pattern is malformed at byte %zu: %s", t->l->file, t->what, t->at,
               problem);
}

static int peek(const struct translation *t, size_t ahead)
{
    return t->at + ahead < t->n ? (unsigned char)t->s[t->at + ahead] : -1;
}

/* Append the members of a general category, for use inside brackets. PCRE2 has Unicode 14's; code points that got or
 * changed their category since are added. (U+1171E, which left Mn, stays in a bare \p{Mn}.) */
static int add_category(struct translation *t, const char *name)
{
    static const char known[] = " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl "
                                "Zp Cc Cf Co ";
    char spaced[8], part[96];
    (void)snprintf(spaced, sizeof spaced, " %.4s ", name);
    if (strlen(name) > 2 || strstr(known, spaced) == NULL) {
        (void)snprintf(part, sizeof part, "the property \\p{%s}", name);
        return refuse(t, part);
    }
    buffer_format(t->out, "\\p{%s}", name);
    size_t n;
    const struct unicode_range *r = unicode_category_changes(&n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(r[i].category, name, strlen(name)) == 0)
            buffer_format(t->out, "\\x{%x}-\\x{%x}", (unsigned)r[i].first, (unsigned)r[i].last);
    return 0;
}

/* \p{...} or \P{...} with t->at behind the letter p; `negated` on entry: \P. Appends members and moves on. */
static int read_property(struct translation *t, char *name, size_t room, bool *negated)
{
    size_t i = 0;
    if (peek(t, 0) != '{')
        return refuse(t, "a property without braces");
    t->at++;
    if (peek(t, 0) == '^') {
        *negated = !*negated;
        t->at++;
    }
    for (int c; (c = peek(t, 0)) != '}'; t->at++) {
        if (c < 0 || i + 1 >= room || !(isalnum(c) || c == '_'))
            return malformed(t, "\\p{...} expects a property name");
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
        return refuse(t, "a property in a case-insensitive part");
    if (r == NULL)
        return add_category(t, name);
    for (size_t i = 0; i < n; i++)
        buffer_format(t->out, "\\x{%x}-\\x{%x}", (unsigned)r[i].first, (unsigned)r[i].last);
    return 0;
}

/* A set escape (\s \d \w \h \p and their negations) with t->at behind the backslash: 1 and its members are appended, to
 * be put in brackets (in_class: into the surrounding ones) and negated if *negated; 0: not a set escape. */
static int set_escape(struct translation *t, bool in_class, bool *negated)
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
            return refuse(t, "a negated set inside a character class (\\P, \\D, \\W, \\H)");
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
        return malformed(t, "expected the hexadecimal digits of a code point");
    *cp = (int32_t)value;
    return 0;
}

/* One literal code point, escaped or not, in a class or outside. */
static int read_literal(struct translation *t, bool in_class, int32_t *cp)
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
        return malformed(t, "it ends with a backslash");
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
            return braces ? malformed(t, "\\x{...} is not closed") : refuse(t, "a raw byte \\xNN above 7F");
        t->at += braces;
        return 0;
    }
    if (isalnum(c)) {
        char part[] = "the escape \\?";
        part[sizeof part - 2] = (char)c;
        return refuse(t, part);
    }
    t->at += (size_t)utf8_next(t->s + t->at, cp);
    return 0;
}

/* The items of [...] up to and with its ']'. t->at is behind '[' and '^'. Nested classes are a union: flattened. */
static int class_items(struct translation *t, int depth)
{
    bool negated;
    if (depth > MAX_DEPTH)
        return malformed(t, "classes nested too deep");
    for (bool first = true;; first = false) {
        int c = peek(t, 0), rc;
        int32_t low = 0, high = 0;
        if (c < 0)
            return malformed(t, "a character class is not closed");
        if (c == ']' && first)
            return refuse(t, "an empty character class");
        if (c == ']') {
            t->at++;
            return 0;
        }
        if (c == '[') {
            if (peek(t, 1) == ':' || peek(t, 1) == '^')
                return refuse(t, peek(t, 1) == ':' ? "a POSIX bracket" : "a negated class inside a character class");
            t->at++;
            if (class_items(t, depth + 1) != 0)
                return -1;
            continue;
        }
        if (c == '&' && peek(t, 1) == '&')
            return refuse(t, "a class intersection (&&)");
        if (c == '\\') {
            t->at++;
            if ((rc = set_escape(t, true, &negated)) < 0)
                return -1;
            if (rc == 1)
                continue;
            t->at--;
        }
        if (read_literal(t, true, &low) != 0)
            return -1;
        high = low;
        if (peek(t, 0) == '-' && peek(t, 1) >= 0 && peek(t, 1) != ']') {
            t->at++;
            if (peek(t, 0) == '[' || (peek(t, 0) == '\\' && peek(t, 1) > 0 && strchr("sSdDwWhHpP", peek(t, 1)) != NULL))
                return refuse(t, "a range that ends in a set");
            if (read_literal(t, true, &high) != 0)
                return -1;
            if (high < low)
                return malformed(t, "a range runs backwards");
        }
        if (t->caseless && high > 0x7f)
            return refuse(t, "a character beyond ASCII in a case-insensitive part");
        buffer_format(t->out, high > low ? "\\x{%x}-\\x{%x}" : "\\x{%x}", (unsigned)low, (unsigned)high);
    }
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

/* {n}, {n,}, {,m}, {n,m} at t->at: 1 and t->at behind it; 0: the brace is an ordinary character. */
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
        return refuse(t, "a repeat count out of order or above 65535");
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
    if (t->atom == NO_ATOM)
        return malformed(t, "nothing to repeat");
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
    /* Lazy, or possessive; behind braces '+' (and behind {n} also '?') is a quantifier of its own in Ruby. */
    if ((peek(t, 0) == '?' && (c != '{' || low != high)) || (peek(t, 0) == '+' && c != '{')) {
        buffer_add(t->out, t->s + t->at, 1);
        t->at++;
    }
    return 1;
}

/* The options of (?imx-imx: or (?imx-imx) with t->at behind '?'; *scoped: it was ':'. */
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
            return refuse(t, "an extended pattern (?x)");
        } else if (c == ':' || c == ')') {
            *scoped = c == ':';
            t->at++;
            buffer_string(t->out, *scoped ? ":" : ")");
            return 0;
        } else if (c != 'x') {
            return refuse(t, "this kind of group");
        }
    }
}

static int translate_alternatives(struct translation *t, int depth);

/* A group with t->at at its '('. */
static int group(struct translation *t, int depth)
{
    static const char *const header[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    size_t start = t->out->bytes, opened = t->at;
    bool scoped = true, repeatable = true, outer = t->caseless;
    if (depth > MAX_DEPTH)
        return malformed(t, "groups nested too deep");
    if (peek(t, 1) == '*')
        return refuse(t, "a verb (*...)");
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
                return refuse(t, "an option such as (?i) that is not at the start of the pattern");
        }
    }
    if (!scoped) {
        t->atom = NO_ATOM;
        return 0;
    }
    if (translate_alternatives(t, depth + 1) != 0)
        return -1;
    if (peek(t, 0) != ')')
        return malformed(t, "a group is not closed");
    t->at++;
    buffer_string(t->out, ")");
    t->caseless = outer;
    t->atom = repeatable ? start : NO_ATOM;
    t->quantified = false;
    t->last = 0;
    return 0;
}

/* Case folding joins some pairs into one character (ss and U+00DF): PCRE2 does not. */
static int check_folding(struct translation *t, int32_t cp)
{
    static const char *const pair[] = {"ss", "st", "ff", "fi", "fl"};
    if (!t->caseless)
        return 0;
    if (cp > 0x7f)
        return refuse(t, "a character beyond ASCII in a case-insensitive part");
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++)
        if (tolower(t->last) == pair[i][0] && tolower(cp) == pair[i][1])
            return refuse(t, "a letter pair with a ligature in a case-insensitive part");
    t->last = cp;
    return 0;
}

static int item(struct translation *t, int depth)
{
    int c = peek(t, 0), rc;
    bool negated;
    size_t start = t->out->bytes;
    if (c == '(')
        return group(t, depth);
    if (strchr("*+?{", c) != NULL && (rc = quantifier(t)) != 0)
        return rc < 0 ? -1 : 0;
    t->quantified = false;
    t->atom = start;
    if (c == '[') {
        bool inverted = peek(t, 1) == '^';
        t->at += inverted ? 2 : 1;
        t->last = 0;
        buffer_string(t->out, inverted ? "[^" : "[");
        if (class_items(t, depth) != 0)
            return -1;
        buffer_string(t->out, "]");
        return 0;
    }
    if (c == '^' || c == '$' || c == '.') {
        buffer_add(t->out, t->s + t->at++, 1);
        t->atom = c == '.' ? start : NO_ATOM;
        t->last = 0;
        return 0;
    }
    if (c == '\\' && peek(t, 1) > 0) {
        if (strchr("AzZ", peek(t, 1)) != NULL) {
            buffer_add(t->out, t->s + t->at, 2);
            t->at += 2;
            t->atom = NO_ATOM;
            return 0;
        }
        t->at++;
        if ((rc = set_escape(t, false, &negated)) != 0) {
            t->last = 0;
            return rc < 0 ? -1 : 0;
        }
        t->at--;
    }
    int32_t cp = 0;
    if (read_literal(t, false, &cp) != 0 || check_folding(t, cp) != 0)
        return -1;
    buffer_format(t->out, "\\x{%x}", (unsigned)cp);
    return 0;
}

static int translate_alternatives(struct translation *t, int depth)
{
    t->atom = NO_ATOM;
    t->last = 0;
    while (t->at < t->n && t->s[t->at] != ')') {
        if (t->s[t->at] == '\0')
            return refuse(t, "U+0000");
        if (t->s[t->at] == '|') {
            buffer_add(t->out, t->s + t->at++, 1);
            t->atom = NO_ATOM;
            t->last = 0;
        } else if (item(t, depth) != 0) {
            return -1;
        }
    }
    return 0;
}

int pattern_translate(struct buffer *out, const struct source *l, const char *regex, size_t bytes, const char *what)
{
    struct translation t = {.l = l, .what = what, .s = regex, .n = bytes, .out = out, .atom = NO_ATOM};
    if (translate_alternatives(&t, 0) != 0)
        return -1;
    return t.at < t.n ? malformed(&t, "unmatched ')'") : 0;
}
