/* text/grammar/regex_parse.c - see regex_tree.h. */
#include "text/grammar/regex_tree.h"

#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH  64
#define MAX_REPEAT 4096

struct regex_parser {
    struct regex_tree *tree;
    const char *text;
    size_t bytes, at;
    int depth;
    struct err *e;
};

static int refuse(struct regex_parser *p, enum err_code code, const char *what)
{
    return ERR(p->e, code, "regular expression, byte %zu: %s", p->at, what);
}

static int add_node(struct regex_parser *p, struct tree_node node)
{
    struct regex_tree *t = p->tree;
    if (p->e->code != ERR_NONE)
        return -1;
    if (t->n == t->capacity) {
        int capacity = 2 * t->capacity + 64;
        struct tree_node *grown = realloc(t->node, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return refuse(p, ERR_MEMORY, "out of host memory");
        t->node = grown;
        t->capacity = capacity;
    }
    t->node[t->n] = node;
    return t->n++;
}

static int add_set(struct regex_parser *p, struct charset *set)
{
    struct regex_tree *t = p->tree;
    if (p->e->code != ERR_NONE)
        return -1;
    if (t->n_sets == t->set_capacity) {
        int capacity = 2 * t->set_capacity + 8;
        struct charset *grown = realloc(t->set, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return refuse(p, ERR_MEMORY, "out of host memory");
        t->set = grown;
        t->set_capacity = capacity;
    }
    charset_sort(set);
    t->set[t->n_sets] = *set;
    return add_node(p, (struct tree_node){.kind = TREE_SET, .a = t->n_sets++});
}

static bool at_end(const struct regex_parser *p)
{
    return p->at >= p->bytes;
}

/* The next byte, 0 at the end. */
static char peek(const struct regex_parser *p)
{
    return at_end(p) ? '\0' : p->text[p->at];
}

static bool take_char(struct regex_parser *p, char c)
{
    if (at_end(p) || p->text[p->at] != c)
        return false;
    p->at++;
    return true;
}

static int32_t take_character(struct regex_parser *p)
{
    int32_t c = 0;
    p->at += (size_t)utf8_next(p->text + p->at, &c);
    return c;
}

/* Reads n hexadecimal digits; -1: missing. */
static int32_t take_hex(struct regex_parser *p, int n)
{
    int32_t value = 0;
    for (int i = 0; i < n; i++) {
        char c = peek(p);
        if (!isxdigit((unsigned char)c))
            return -1;
        value = value * 16 + (isdigit((unsigned char)c) ? c - '0' : tolower(c) - 'a' + 10);
        p->at++;
    }
    return value;
}

/* \u{...} after the brace. */
static int32_t take_braced_hex(struct regex_parser *p)
{
    int32_t value = 0;
    int n = 0;
    for (; isxdigit((unsigned char)peek(p)) && n < 6; n++)
        value = value * 16 + take_hex(p, 1);
    return n > 0 && take_char(p, '}') && value <= 0x10ffff ? value : -1;
}

/* \uHHHH, two of them for a pair of surrogates. */
static int32_t take_unicode(struct regex_parser *p)
{
    if (take_char(p, '{'))
        return take_braced_hex(p);
    int32_t high = take_hex(p, 4);
    if (high < 0xd800 || high > 0xdbff || p->at + 6 > p->bytes || memcmp(p->text + p->at, "\\u", 2) != 0)
        return high;
    p->at += 2;
    int32_t low = take_hex(p, 4);
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + (high - 0xd800) * 1024 + (low - 0xdc00);
}

struct char_span {
    int32_t first, last;
};

/* Characters beyond ASCII that may count as white space, and as decimal digits. */
static const struct char_span spaces[] = {{0x1c, 0x1f},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
                                          {0x180e, 0x180e}, {0x2000, 0x200d}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                          {0x205f, 0x2060}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const struct char_span digits[] = {
    {0x660, 0x669},     {0x6f0, 0x6f9},     {0x7c0, 0x7c9},     {0x966, 0x96f},     {0x9e6, 0x9ef},
    {0xa66, 0xa6f},     {0xae6, 0xaef},     {0xb66, 0xb6f},     {0xbe6, 0xbef},     {0xc66, 0xc6f},
    {0xce6, 0xcef},     {0xd66, 0xd6f},     {0xde6, 0xdef},     {0xe50, 0xe59},     {0xed0, 0xed9},
    {0xf20, 0xf29},     {0x1040, 0x1049},   {0x1090, 0x1099},   {0x17e0, 0x17e9},   {0x1810, 0x1819},
    {0x1946, 0x194f},   {0x19d0, 0x19d9},   {0x1a80, 0x1a99},   {0x1b50, 0x1b59},   {0x1bb0, 0x1bb9},
    {0x1c40, 0x1c59},   {0xa620, 0xa629},   {0xa8d0, 0xa8d9},   {0xa900, 0xa909},   {0xa9d0, 0xa9f9},
    {0xaa50, 0xaa59},   {0xabf0, 0xabf9},   {0xff10, 0xff19},   {0x104a0, 0x104a9}, {0x10d30, 0x11fff},
    {0x16a60, 0x16b59}, {0x1d7ce, 0x1d7ff}, {0x1e140, 0x1e959}, {0x1fbf0, 0x1fbf9}};
static const struct char_span not_ascii[] = {{0x80, 0x10ffff}};

static void add_spans(struct charset *s, const struct char_span *span, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        charset_add(s, span[i].first, span[i].last, e);
}

#define ADD_SPANS(s, spans, e) add_spans(s, spans, sizeof(spans) / sizeof *(spans), e)

/* Adds \d and the like to *set. Implementations disagree beyond ASCII: a character that only some count as a member
 * belongs neither to the class nor to its opposite; with `inverted` it is added to both, since the set will be
 * inverted. */
static bool class_escape(char c, struct charset *set, bool inverted, struct err *e)
{
    static const struct char_span digit[] = {{'0', '9'}}, space[] = {{'\t', '\r'}, {' ', ' '}},
                                  word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    struct charset s = {0};
    bool opposite = isupper((unsigned char)c) != 0, wide = opposite != inverted;
    char kind = (char)tolower(c);
    if (kind == 'd')
        ADD_SPANS(&s, digit, e);
    else if (kind == 's')
        ADD_SPANS(&s, space, e);
    else if (kind == 'w')
        ADD_SPANS(&s, word, e);
    else
        return false;
    if (wide && kind == 'd')
        ADD_SPANS(&s, digits, e);
    else if (wide && kind == 's')
        ADD_SPANS(&s, spaces, e);
    else if (wide)
        ADD_SPANS(&s, not_ascii, e);
    if (opposite)
        charset_invert(&s, 0x10ffff, e);
    charset_join(set, &s, e);
    return true;
}

/* The character of an escape after its backslash. -1: refused. */
static int32_t character_escape(struct regex_parser *p)
{
    static const char letters[] = "t\tn\nr\rf\fv\v";
    if (at_end(p))
        return refuse(p, ERR_INPUT, "a backslash at the end");
    char c = peek(p);
    const char *known = isalpha((unsigned char)c) ? strchr(letters, c) : NULL;
    if (known != NULL) {
        p->at++;
        return known[1];
    }
    if (take_char(p, 'x') || take_char(p, 'u')) {
        int32_t value = c == 'x' ? take_hex(p, 2) : take_unicode(p);
        return value >= 0 ? value : refuse(p, ERR_INPUT, "\\x and \\u need a code point in hexadecimal digits");
    }
    if (c == '0' && !(p->at + 1 < p->bytes && isdigit((unsigned char)p->text[p->at + 1]))) {
        p->at++;
        return 0;
    }
    if (isdigit((unsigned char)c) || c == 'k')
        return refuse(p, ERR_UNSUPPORTED, "references to groups are not supported");
    if (c == 'p' || c == 'P')
        return refuse(p, ERR_UNSUPPORTED, "\\p is not supported: name the characters in a class");
    if (c == 'b' || c == 'B')
        return refuse(p, ERR_UNSUPPORTED, "\\b is not supported");
    if (isalpha((unsigned char)c))
        return refuse(p, ERR_UNSUPPORTED, "this escape is not supported");
    return take_character(p);
}

/* One member of a class: a character, or a nested class, which is added (-2). -1: refused. */
static int32_t class_member(struct regex_parser *p, struct charset *set, bool inverted)
{
    if (!take_char(p, '\\'))
        return take_character(p);
    if (!at_end(p) && class_escape(peek(p), set, inverted, p->e)) {
        p->at++;
        return -2;
    }
    if (take_char(p, 'b'))
        return '\b';
    return character_escape(p);
}

static int add_range(struct regex_parser *p, struct charset *set, int32_t first, bool inverted)
{
    if (first < 0 || peek(p) != '-' || p->at + 1 >= p->bytes || p->text[p->at + 1] == ']')
        return first < 0 ? 0 : charset_add(set, first, first, p->e);
    p->at++;
    int32_t last = class_member(p, set, inverted);
    if (last == -1)
        return -1;
    if (last < first)
        return refuse(p, ERR_INPUT, "a range of characters ends before it begins");
    return charset_add(set, first, last, p->e);
}

static int parse_class(struct regex_parser *p)
{
    struct charset set = {0};
    bool inverted = take_char(p, '^');
    for (bool first = true; first || peek(p) != ']'; first = false) {
        if (at_end(p))
            return refuse(p, ERR_INPUT, "a class without its closing bracket");
        if (first && peek(p) == ']')
            break;
        int32_t member = class_member(p, &set, inverted);
        if (member == -1 || add_range(p, &set, member, inverted) != 0)
            return -1;
    }
    p->at++;
    charset_sort(&set);
    if (inverted && charset_invert(&set, 0x10ffff, p->e) != 0)
        return -1;
    return add_set(p, &set);
}

static int parse_dot(struct regex_parser *p)
{
    struct charset set = {0};
    charset_add(&set, '\n', '\n', p->e);
    charset_add(&set, '\r', '\r', p->e);
    charset_add(&set, 0x2028, 0x2029, p->e);
    charset_invert(&set, 0x10ffff, p->e);
    return add_set(p, &set);
}

static int parse_one_of(struct regex_parser *p, int32_t c)
{
    struct charset set = {0};
    charset_add(&set, c, c, p->e);
    return add_set(p, &set);
}

static int parse_either(struct regex_parser *p);

static int parse_group(struct regex_parser *p)
{
    if (take_char(p, '?') && !take_char(p, ':'))
        return refuse(p, ERR_UNSUPPORTED, "(? of this kind is not supported: only (?:...) and (...) are");
    if (++p->depth > MAX_DEPTH)
        return refuse(p, ERR_UNSUPPORTED, "groups are nested more than 64 deep");
    int inner = parse_either(p);
    p->depth--;
    return inner < 0 || take_char(p, ')') ? inner : refuse(p, ERR_INPUT, "a group without its closing parenthesis");
}

static int parse_atom(struct regex_parser *p)
{
    if (take_char(p, '('))
        return parse_group(p);
    if (take_char(p, '['))
        return parse_class(p);
    if (take_char(p, '.'))
        return parse_dot(p);
    if (take_char(p, '^'))
        return add_node(p, (struct tree_node){.kind = TREE_BEGIN});
    if (take_char(p, '$'))
        return add_node(p, (struct tree_node){.kind = TREE_END});
    if (strchr("*+?", peek(p)) != NULL)
        return refuse(p, ERR_INPUT, "there is nothing to repeat here");
    struct charset set = {0};
    if (!take_char(p, '\\'))
        return parse_one_of(p, take_character(p));
    if (!at_end(p) && class_escape(peek(p), &set, false, p->e)) {
        p->at++;
        return add_set(p, &set);
    }
    int32_t c = character_escape(p);
    return c < 0 ? -1 : parse_one_of(p, c);
}

/* A number of repetitions; -1: no digits. */
static int take_number(struct regex_parser *p)
{
    int n = -1;
    for (; isdigit((unsigned char)peek(p)) && n <= MAX_REPEAT; p->at++)
        n = (n < 0 ? 0 : n) * 10 + (peek(p) - '0');
    return n;
}

/* {m}, {m,}, {m,n}; false, and nothing taken: these are ordinary characters. */
static bool take_braces(struct regex_parser *p, int *min, int *max)
{
    size_t begin = p->at++;
    *min = *max = take_number(p);
    if (*min >= 0 && take_char(p, ','))
        *max = take_number(p);
    if (*min >= 0 && take_char(p, '}'))
        return true;
    p->at = begin;
    return false;
}

static int parse_repeats(struct regex_parser *p, int atom)
{
    while (atom >= 0 && !at_end(p)) {
        int min = 0, max = -1;
        char c = peek(p);
        if (c == '{') {
            if (!take_braces(p, &min, &max))
                break;
        } else if (c == '*' || c == '+' || c == '?') {
            p->at++;
            min = c == '+';
            max = c == '?' ? 1 : -1;
        } else {
            break;
        }
        if (min > MAX_REPEAT || max > MAX_REPEAT)
            return refuse(p, ERR_UNSUPPORTED, "more than 4096 repetitions");
        if (max >= 0 && max < min)
            return refuse(p, ERR_INPUT, "a number of repetitions whose maximum is below its minimum");
        if (!take_char(p, '?') && peek(p) == '+')
            return refuse(p, ERR_UNSUPPORTED, "possessive repetitions are not supported");
        atom = add_node(p, (struct tree_node){.kind = TREE_REPEAT, .a = atom, .min = min, .max = max});
    }
    return atom;
}

static int parse_join(struct regex_parser *p)
{
    int joined = -1;
    while (!at_end(p) && peek(p) != '|' && peek(p) != ')') {
        int next = parse_repeats(p, parse_atom(p));
        if (next < 0)
            return -1;
        joined = joined < 0 ? next : add_node(p, (struct tree_node){.kind = TREE_JOIN, .a = joined, .b = next});
    }
    return joined >= 0 ? joined : add_node(p, (struct tree_node){.kind = TREE_EMPTY});
}

static int parse_either(struct regex_parser *p)
{
    int either = parse_join(p);
    while (either >= 0 && take_char(p, '|')) {
        int other = parse_join(p);
        either = other < 0 ? -1 : add_node(p, (struct tree_node){.kind = TREE_EITHER, .a = either, .b = other});
    }
    return either;
}

int regex_parse(struct regex_tree *t, const char *regex, size_t bytes, struct err *e)
{
    struct regex_parser p = {.tree = t, .text = regex, .bytes = bytes, .e = e};
    *t = (struct regex_tree){0};
    t->root = parse_either(&p);
    if (t->root >= 0 && !at_end(&p))
        return refuse(&p, ERR_INPUT, "a closing parenthesis without its group");
    return e->code == ERR_NONE ? 0 : -1;
}

void regex_tree_close(struct regex_tree *t)
{
    free(t->node);
    free(t->set);
    *t = (struct regex_tree){0};
}
