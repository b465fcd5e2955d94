/* coordinator/metrics/exposition.c - see exposition.h. */
#include "coordinator/metrics/exposition.h"
#include "base/number.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put_text(struct exposition *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_text(struct exposition *x, const char *format, ...)
{
    char line[2400];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        (void)text_append(x->out, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1, x->e);
}

void exposition_open(struct exposition *x, struct text_buffer *out, const char *prefix, struct err *e)
{
    *x = (struct exposition){.out = out, .e = e, .prefix = prefix};
}

void exposition_label(struct exposition *x, const char *name, const char *value)
{
    char valid[768], escaped[2 * sizeof valid];
    size_t n = 0, used = strlen(x->labels);
    valid[utf8_repair(valid, sizeof valid - 1, value, strlen(value))] = '\0';
    for (const char *c = valid; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"' || *c == '\n')
            escaped[n++] = '\\';
        escaped[n++] = *c == '\n' ? 'n' : *c;
    }
    escaped[n] = '\0';
    if (used + n + strlen(name) + 4 < sizeof x->labels) /* otherwise it is omitted completely */
        (void)snprintf(x->labels + used, sizeof x->labels - used, "%s%s=\"%s\"", used > 0 ? "," : "", name, escaped);
}

void exposition_head(struct exposition *x, const char *name, const char *type, const char *help)
{
    put_text(x, "# HELP %s%s %s\n# TYPE %s%s %s\n", x->prefix, name, help, x->prefix, name, type);
}

void exposition_sample(struct exposition *x, const char *name, const char *extra, double value)
{
    char text[NUMBER_BYTES];
    (void)number_text(text, value);
    put_text(x, "%s%s{%s%s} %s\n", x->prefix, name, x->labels, extra, text);
}

void exposition_one(struct exposition *x, const char *name, const char *type, double value, const char *help)
{
    exposition_head(x, name, type, help);
    exposition_sample(x, name, "", value);
}

void exposition_histogram(struct exposition *x, const char *name, const char *extra, const struct histogram *h)
{
    char text[NUMBER_BYTES];
    uint64_t below = 0;
    for (int i = 0; i < h->buckets->n; i++) {
        below += h->count[i];
        (void)number_text(text, h->buckets->bound[i]);
        put_text(x, "%s%s_bucket{%s%s,le=\"%s\"} %llu\n", x->prefix, name, x->labels, extra, text,
                 (unsigned long long)below);
    }
    put_text(x, "%s%s_bucket{%s%s,le=\"+Inf\"} %llu\n", x->prefix, name, x->labels, extra, (unsigned long long)h->n);
    (void)number_text(text, h->sum);
    put_text(x, "%s%s_sum{%s%s} %s\n", x->prefix, name, x->labels, extra, text);
    put_text(x, "%s%s_count{%s%s} %llu\n", x->prefix, name, x->labels, extra, (unsigned long long)h->n);
}
