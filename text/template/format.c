/* text/template/format.c - "%s" % x and "{}".format(x): the conversions of texts and numbers. The format's text and
 * inserted texts keep their marks. See strings.h. */
#include "text/template/strings.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_WIDTH     1000
#define MOST_PRECISION 50

struct spec {
    char align, sign, type; /* '<' '>' '^' '='; '+' ' ' '-'; "sdifxX%"; '\0': not given */
    char fill[8];           /* one character */
    int width, precision;   /* precision < 0: not given */
};

/* The position in a format that is being read. */
struct format_reader {
    struct renderer *m;
    struct builder *out;
    const struct arguments *given;
    struct text t;
    size_t at;
    int next;      /* argument */
    bool numbered; /* a numbered place has occurred */
};

_Noreturn static void bad_format(struct format_reader *f, const char *expected)
{
    struct text rest = text_slice(f->t, f->at < f->t.n ? f->at : f->t.n, f->t.n);
    renderer_fail(f->m, "found the format \"%.*s\", expected %s", (int)(rest.n < 40 ? rest.n : 40), rest.s, expected);
}

static char peek(const struct format_reader *f)
{
    return f->at < f->t.n ? f->t.s[f->at] : '\0';
}

static bool take_char(struct format_reader *f, char c)
{
    bool is = f->at < f->t.n && peek(f) == c;
    f->at += is;
    return is;
}

/* A number, or `missing`. */
static int take_number(struct format_reader *f, int most, int missing)
{
    int n = 0;
    if (!isdigit((unsigned char)peek(f)))
        return missing;
    for (; isdigit((unsigned char)peek(f)); f->at++) {
        n = 10 * n + (peek(f) - '0');
        if (n > most)
            bad_format(f, "a width of at most 1000, a precision of at most 50");
    }
    return n;
}

static struct value next_argument(struct format_reader *f)
{
    if (f->next >= f->given->n)
        bad_format(f, "as many arguments as there are places");
    return f->given->value[f->next++];
}

static struct value named_argument(struct format_reader *f, struct text name)
{
    for (int i = 0; i < f->given->n_named; i++)
        if (text_equal(f->given->name[i], name))
            return f->given->named[i];
    bad_format(f, "arguments of the names that it has");
}

/* ---------------------------------------------------------------- one value */

static void fill(struct format_reader *f, const struct spec *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        build_string(f->out, s->fill, f->t.foreign);
}

/* sign: "", or the text before the padding of '='. */
static void pad(struct format_reader *f, const struct spec *s, const char *sign, struct text body)
{
    size_t n = text_characters(body) + strlen(sign);
    size_t more = s->width > 0 && (size_t)s->width > n ? (size_t)s->width - n : 0;
    size_t before = s->align == '>' ? more : s->align == '^' ? more / 2 : 0;
    size_t inside = s->align == '=' ? more : 0;
    renderer_step(f->m, body.n + more);
    fill(f, s, before);
    build_string(f->out, sign, true);
    fill(f, s, inside);
    build(f->out, body);
    fill(f, s, more - before - inside);
}

static void put_text(struct format_reader *f, struct spec s, struct value v)
{
    struct text t = value_print(f->m, v);
    size_t end = 0;
    for (int i = 0; s.precision >= 0 && i < s.precision && end < t.n; i++)
        end = text_next(t, end);
    s.align = s.align == '\0' ? '<' : s.align;
    pad(f, &s, "", s.precision >= 0 ? text_slice(t, 0, end) : t);
}

/* Digits without a sign; out: 400 bytes. */
static void write_digits(struct format_reader *f, const struct spec *s, struct value v, char *out)
{
    bool whole = v.kind != VALUE_FLOAT;
    double x = fabs(value_to_real(v));
    if (s->type == 'f')
        (void)snprintf(out, 400, "%.*f", s->precision < 0 ? 6 : s->precision, x);
    else if (!whole && s->type == '\0' && s->precision < 0)
        print_real(out, x);
    else if (!whole || s->precision >= 0)
        bad_format(f, "\"f\" for a number with a fraction");
    else {
        int64_t i = value_to_integer(v);
        unsigned long long n = i < 0 ? 0ULL - (unsigned long long)i : (unsigned long long)i;
        (void)snprintf(out, 400, s->type == 'x' ? "%llx" : s->type == 'X' ? "%llX" : "%llu", n);
    }
}

static void put_number(struct format_reader *f, struct spec s, struct value v)
{
    char digits[400];
    bool negative = v.kind == VALUE_FLOAT ? signbit(v.real) && !isnan(v.real) : value_to_integer(v) < 0;
    const char *sign = negative ? "-" : s.sign == '+' ? "+" : s.sign == ' ' ? " " : "";
    write_digits(f, &s, v, digits);
    struct text body = text_of(digits);
    body.foreign = true;
    s.align = s.align == '\0' ? '>' : s.align;
    pad(f, &s, sign, body);
}

/* ---------------------------------------------------------------- "%s" % x */

static void take_flags(struct format_reader *f, struct spec *s)
{
    for (; peek(f) != '\0' && strchr("-+ 0", peek(f)) != NULL; f->at++) {
        char c = peek(f);
        if (c == '-')
            s->align = '<';
        else if (c == '0' && s->align == '\0') {
            s->align = '=';
            s->fill[0] = '0';
        } else if (c != '0')
            s->sign = s->sign == '+' ? '+' : c;
    }
    if (s->align == '<')
        s->fill[0] = ' ';
}

static struct text take_name(struct format_reader *f, char end)
{
    size_t from = f->at;
    while (f->at < f->t.n && peek(f) != end)
        f->at++;
    struct text name = text_slice(f->t, from, f->at);
    if (!take_char(f, end))
        bad_format(f, "an end of the name");
    return name;
}

static void put_percent(struct format_reader *f)
{
    struct spec s = {.fill = " ", .precision = -1};
    struct text name = {0};
    bool named = take_char(f, '(');
    if (named)
        name = take_name(f, ')');
    take_flags(f, &s);
    s.width = take_number(f, MOST_WIDTH, 0);
    if (take_char(f, '.'))
        s.precision = take_number(f, MOST_PRECISION, 0);
    s.type = peek(f);
    if (s.type == '\0' || strchr("sdifxX", s.type) == NULL)
        bad_format(f, "one of %s, %d, %i, %f, %x, %X and %%");
    struct value v = named ? named_argument(f, name) : next_argument(f);
    f->at++;
    if (s.type == 's') {
        s.fill[0] = ' ';
        s.align = s.align == '<' ? '<' : '>';
        put_text(f, s, v);
        return;
    }
    if (!value_is_number(v) || (v.kind == VALUE_FLOAT && s.type != 'f'))
        renderer_fail(f->m, "found a value of type %s for %%%c, expected %s", value_type(v), s.type,
                      s.type == 'f' ? "a number" : "an integer");
    put_number(f, s, v);
}

struct text string_percent(struct renderer *m, struct text t, const struct arguments *given)
{
    struct builder out = {.w = &m->heap};
    struct format_reader f = {.m = m, .out = &out, .given = given, .t = t};
    renderer_step(m, t.n);
    while (f.at < t.n) {
        size_t from = f.at;
        while (f.at < t.n && peek(&f) != '%')
            f.at++;
        build(&out, text_slice(t, from, f.at));
        if (!take_char(&f, '%'))
            break;
        if (peek(&f) == '%')
            build(&out, text_slice(t, f.at, f.at + 1));
        if (!take_char(&f, '%'))
            put_percent(&f);
    }
    if (given->n_named == 0 && f.next < given->n)
        renderer_fail(m, "found %d arguments for %d places of a format, expected as many", given->n, f.next);
    return built(&out);
}

/* ---------------------------------------------------------------- "{}".format(x) */

static bool is_align(char c)
{
    return c != '\0' && strchr("<>^=", c) != NULL;
}

/* [[fill]align][sign][0][width][.precision][type] up to the brace. */
static void take_spec(struct format_reader *f, struct spec *s)
{
    size_t next = peek(f) != '\0' ? text_next(f->t, f->at) : f->at;
    if (next < f->t.n && is_align(f->t.s[next]) && next - f->at < sizeof s->fill && peek(f) != '{' && peek(f) != '}') {
        memset(s->fill, 0, sizeof s->fill);
        memcpy(s->fill, f->t.s + f->at, next - f->at);
        s->align = f->t.s[next];
        f->at = next + 1;
    } else if (is_align(peek(f)))
        s->align = f->t.s[f->at++];
    bool filled = next < f->at;
    if (peek(f) != '\0' && strchr("+- ", peek(f)) != NULL)
        s->sign = f->t.s[f->at++];
    if (take_char(f, '0') && !filled) {
        s->fill[0] = '0';
        s->align = s->align == '\0' ? '=' : s->align;
    }
    s->width = take_number(f, MOST_WIDTH, 0);
    if (take_char(f, '.') && (s->precision = take_number(f, MOST_PRECISION, -1)) < 0)
        bad_format(f, "a precision after the dot");
    if (peek(f) != '\0' && strchr("sdfxX", peek(f)) != NULL)
        s->type = f->t.s[f->at++];
}

static struct value choose_value(struct format_reader *f)
{
    size_t from = f->at;
    while (f->at < f->t.n && strchr(":!}", peek(f)) == NULL)
        f->at++;
    struct text name = text_slice(f->t, from, f->at);
    size_t digits = 0;
    for (; digits < name.n && isdigit((unsigned char)name.s[digits]);)
        digits++;
    if (digits < name.n)
        return named_argument(f, name);
    f->numbered = f->numbered || name.n > 0;
    if (name.n > 2 || (f->numbered && (f->next > 0 || name.n == 0)))
        bad_format(f, "places with numbers, or without");
    if (name.n == 0)
        return next_argument(f);
    int i = name.s[0] - '0';
    i = name.n == 2 ? 10 * i + name.s[1] - '0' : i;
    if (i >= f->given->n)
        bad_format(f, "as many arguments as there are places");
    return f->given->value[i];
}

static void put_braces(struct format_reader *f)
{
    struct spec s = {.fill = " ", .precision = -1};
    struct value v = choose_value(f);
    bool has_spec = take_char(f, ':') && peek(f) != '}';
    if (has_spec)
        take_spec(f, &s);
    if (!take_char(f, '}'))
        bad_format(f, "{}, {NUMBER} or {NAME}, and behind a colon [[FILL]ALIGN][SIGN][0][WIDTH][.PRECISION][sdfxX]");
    bool number = value_is_number(v) && s.type != 's' && (has_spec || v.kind != VALUE_BOOL);
    if (has_spec &&
        ((v.kind != VALUE_STRING && !number) || (v.kind == VALUE_STRING && (s.type != '\0' && s.type != 's')) ||
         (v.kind == VALUE_STRING && (s.align == '=' || s.sign != '\0'))))
        renderer_fail(f->m, "found a value of type %s, expected one that fits its format", value_type(v));
    if (number)
        put_number(f, s, v);
    else
        put_text(f, s, v);
}

struct text string_format(struct renderer *m, struct text t, const struct arguments *given)
{
    struct builder out = {.w = &m->heap};
    struct format_reader f = {.m = m, .out = &out, .given = given, .t = t};
    renderer_step(m, t.n);
    while (f.at < t.n) {
        size_t from = f.at;
        while (f.at < t.n && peek(&f) != '{' && peek(&f) != '}')
            f.at++;
        build(&out, text_slice(t, from, f.at));
        if (f.at == t.n)
            break;
        char brace = t.s[f.at++];
        if (peek(&f) == brace)
            build(&out, text_slice(t, f.at, f.at + 1));
        if (!take_char(&f, brace)) {
            if (brace == '}')
                bad_format(&f, "no \"}\" alone");
            put_braces(&f);
        }
    }
    return built(&out);
}
