/* text/grammar/decimal.c - see decimal.h. */
#include "text/grammar/decimal.h"

#include "base/json.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FRACTION 40 /* digits after the point of a bound */

/* A bound's sign and digits: n_before before the point, "0" has one, n_after behind it. */
struct decimal {
    bool negative, huge; /* huge: 10^DECIMAL_DIGITS or more, digits not set */
    int n_before, n_after;
    char digit[DECIMAL_DIGITS + FRACTION];
};

/* Numbers from 0 on, of which decimal_graph puts the range together. A missing bound is NULL. */
struct magnitudes {
    struct graph *g;
    const struct decimal *low, *high;
    bool low_open, high_open, integer;
    int next;
    /* The digits before the point, and the limit of all digits. */
    int n, n_digits;
    char lowest[DECIMAL_DIGITS + FRACTION], highest[DECIMAL_DIGITS + FRACTION];
    int n_bound; /* digits of these two */
    int memo[DECIMAL_DIGITS + FRACTION + 1][2][2];
};

static bool is_zero(const struct decimal *d)
{
    for (int i = 0; !d->huge && i < d->n_before + d->n_after; i++)
        if (d->digit[i] != 0)
            return false;
    return !d->huge;
}

/* digits[0, n) with the point behind the first `point` of them, which may be outside. */
static int place_point(struct decimal *d, const char *digits, int n, int point, struct err *e)
{
    while (n > 0 && digits[0] == 0) {
        digits++;
        n--;
        point--;
    }
    while (n > 0 && digits[n - 1] == 0)
        n--;
    if (n == 0)
        point = 0;
    d->huge = point > DECIMAL_DIGITS;
    d->n_before = point > 1 ? point : 1;
    d->n_after = n > point ? n - point : 0;
    if (d->huge)
        return 0;
    if (d->n_after > FRACTION)
        return ERR(e, ERR_UNSUPPORTED, "a bound with %d digits after the point, expected at most %d", d->n_after,
                   FRACTION);
    for (int i = 0; i < d->n_before + d->n_after; i++) {
        int at = i + point - d->n_before;
        d->digit[i] = at >= 0 && at < n ? digits[at] : 0;
    }
    return 0;
}

static int read_decimal(struct decimal *d, const json_t *number, struct err *e)
{
    char digits[64];
    int n = 0, point = -1;
    char *text = json_text(number, JSON_ENCODE_ANY);
    if (text == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory");
    const char *c = text;
    *d = (struct decimal){.negative = *c == '-'};
    for (c += d->negative; isdigit((unsigned char)*c) || *c == '.'; c++)
        if (*c == '.')
            point = n;
        else if (n < (int)sizeof digits)
            digits[n++] = (char)(*c - '0');
    point = point < 0 ? n : point;
    long exponent = *c == 'e' || *c == 'E' ? strtol(c + 1, NULL, 10) : 0;
    free(text);
    return place_point(d, digits, n, point + (int)exponent, e);
}

/* Whether a number whose digits from i on are all 0 is within those bounds whose digits it equals so far. */
static bool may_end(const struct magnitudes *m, int i, bool at_low, bool at_high)
{
    bool low_rest = false, high_rest = false;
    for (; i < m->n_bound; i++) {
        low_rest = low_rest || m->lowest[i] != 0;
        high_rest = high_rest || m->highest[i] != 0;
    }
    if (at_low && (low_rest || m->low_open))
        return false;
    return !at_high || high_rest || !m->high_open;
}

static int emit_digit(struct magnitudes *m, int i, bool at_low, bool at_high);

/* After i digits: the end, the point, or another digit. */
static int emit_rest(struct magnitudes *m, int i, bool at_low, bool at_high)
{
    if (m->g->e->code != ERR_NONE)
        return -1;
    int *known = &m->memo[i][at_low][at_high];
    if (*known != INT_MIN)
        return *known;
    int start = i >= m->n && may_end(m, i, at_low, at_high) ? m->next : -1;
    if (i < m->n_digits && !(i == m->n && m->integer)) {
        int digit = emit_digit(m, i, at_low, at_high);
        if (i == m->n && digit >= 0)
            digit = graph_bytes(m->g, '.', '.', digit);
        start = graph_either(m->g, digit, start);
    }
    return *known = start;
}

static int emit_digit(struct magnitudes *m, int i, bool at_low, bool at_high)
{
    int low = at_low && i < m->n_bound ? m->lowest[i] : 0, high = !at_high ? 9 : i < m->n_bound ? m->highest[i] : 0;
    int start = -1;
    if (i == 0 && m->n > 1 && low == 0)
        low = 1; /* no leading zeros */
    for (int first = low, last; first <= high; first = last + 1) {
        bool on_low = at_low && first == (i < m->n_bound ? m->lowest[i] : 0), on_high = at_high && first == high;
        int rest = emit_rest(m, i + 1, on_low, on_high);
        last = on_low || on_high ? first : at_high ? high - 1 : high;
        if (rest >= 0)
            start = graph_either(m->g, start, graph_bytes(m->g, '0' + first, '0' + last, rest));
    }
    return start;
}

/* A bound's digits, aligned with numbers that have n digits before the point. */
static void align(char *to, const struct decimal *d, int n, int n_bound)
{
    memset(to, 0, (size_t)n_bound);
    if (d != NULL && d->n_before <= n)
        memcpy(to + n - d->n_before, d->digit, (size_t)d->n_before + (size_t)d->n_after);
}

/* Emits the numbers with n digits before the point. */
static int emit_length(struct magnitudes *m, int n)
{
    const struct decimal *low = m->low, *high = m->high;
    int fraction = 15 - n > 0 ? 15 - n : 1;
    if ((low != NULL && (low->huge || low->n_before > n)) || (high != NULL && !high->huge && high->n_before < n))
        return -1;
    bool at_high = high != NULL && !high->huge && high->n_before == n;
    m->n = n;
    if (low != NULL && low->n_after > fraction)
        fraction = low->n_after;
    if (at_high && high->n_after > fraction)
        fraction = high->n_after;
    fraction = fraction < FRACTION ? fraction : FRACTION;
    m->n_bound = m->n_digits = n + fraction;
    align(m->lowest, low, n, m->n_bound);
    align(m->highest, at_high ? high : NULL, n, m->n_bound);
    for (int i = 0; i <= m->n_digits; i++)
        for (int k = 0; k < 4; k++)
            m->memo[i][k / 2][k % 2] = INT_MIN;
    return emit_digit(m, 0, low != NULL && low->n_before == n, at_high);
}

static int emit_magnitudes(struct magnitudes *m)
{
    int start = -1;
    for (int n = 1; n <= DECIMAL_DIGITS; n++)
        start = graph_either(m->g, start, emit_length(m, n));
    return start;
}

/* The numbers of the range from 0 on; then the negative ones, by their magnitudes. */
static int emit_positive(struct magnitudes m, const struct decimal *low, const struct decimal *high,
                         const struct decimal_range *range)
{
    if (high != NULL && high->negative && !is_zero(high))
        return -1;
    m.low = low != NULL && !low->negative ? low : NULL;
    m.high = high;
    m.low_open = m.low != NULL && range->low_open;
    m.high_open = range->high_open;
    return emit_magnitudes(&m);
}

static int emit_negative(struct magnitudes m, const struct decimal *low, const struct decimal *high,
                         const struct decimal_range *range)
{
    static const struct decimal zero = {.n_before = 1};
    if (low != NULL && (!low->negative || is_zero(low)))
        return -1;
    bool bounded = high != NULL && high->negative;
    m.low = bounded ? high : &zero; /* -0 is left out */
    m.high = low;
    m.low_open = bounded ? range->high_open || is_zero(high) : true;
    m.high_open = range->low_open;
    int start = emit_magnitudes(&m);
    return start < 0 ? -1 : graph_bytes(m.g, '-', '-', start);
}

int decimal_graph(struct graph *g, const struct decimal_range *range, bool integer, int next)
{
    struct decimal low, high;
    const struct magnitudes m = {.g = g, .integer = integer, .next = next};
    if (g->e->code != ERR_NONE || (range->low != NULL && read_decimal(&low, range->low, g->e) != 0) ||
        (range->high != NULL && read_decimal(&high, range->high, g->e) != 0))
        return -1;
    const struct decimal *l = range->low != NULL ? &low : NULL, *h = range->high != NULL ? &high : NULL;
    int start = emit_positive(m, l, h, range);
    start = graph_either(g, start, emit_negative(m, l, h, range));
    return start >= 0 ? start : graph_add(g, (struct graph_node){.kind = GRAPH_FAIL, .next = -1, .other = -1});
}
