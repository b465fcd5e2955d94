/* client/samples.c - see samples.h. */
#include "client/samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BUCKETS 128

static const char *without_prefix(const char *name)
{
    static const char *const prefix[] = {"lockstep_", "vllm:"};
    for (size_t i = 0; i < 2; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0)
            return name + strlen(prefix[i]);
    return name;
}

/* The end of the labels: the first '}' outside quotes; NULL: none. */
static const char *end_of_labels(const char *at)
{
    bool quoted = false;
    for (; *at != '\0' && *at != '\n'; at++) {
        if (quoted && *at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (*at == '}' && !quoted)
            return at;
    }
    return NULL;
}

static bool copy(char *to, size_t bytes, const char *from, size_t length)
{
    if (length >= bytes)
        return false;
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

/* name{labels} value */
static bool read_sample(struct sample *s, const char *line)
{
    const char *name = without_prefix(line), *at = name + strcspn(name, "{ \t\n");
    char *end = NULL;
    memset(s, 0, sizeof *s);
    if (at == name || !copy(s->name, sizeof s->name, name, (size_t)(at - name)))
        return false;
    if (*at == '{') {
        const char *close = end_of_labels(at);
        if (close == NULL || !copy(s->labels, sizeof s->labels, at + 1, (size_t)(close - at) - 1))
            return false;
        at = close + 1;
    }
    if (*at != ' ' && *at != '\t')
        return false;
    s->value = strtod(at, &end);
    return end != at && strchr(" \t\r\n", *end) != NULL; /* the NUL is found, too */
}

int samples_read(struct samples *m, const char *text, struct err *e)
{
    *m = (struct samples){0};
    for (const char *line = text; *line != '\0';) {
        struct sample s;
        if (*line != '#' && read_sample(&s, line)) {
            if (m->n == m->capacity) {
                size_t capacity = m->capacity > 0 ? 2 * m->capacity : 256;
                struct sample *grown = realloc(m->sample, capacity * sizeof *grown);
                if (grown == NULL)
                    return ERR(e, ERR_MEMORY, "out of host memory: metrics");
                m->sample = grown;
                m->capacity = capacity;
            }
            m->sample[m->n++] = s;
        }
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}

void samples_close(struct samples *m)
{
    free(m->sample);
    *m = (struct samples){0};
}

void samples_label(const struct sample *sample, const char *label, char *text, size_t bytes)
{
    size_t n = strlen(label), used = 0;
    const char *at = sample->labels;
    text[0] = '\0';
    while (at != NULL && !(strncmp(at, label, n) == 0 && at[n] == '=' && at[n + 1] == '"')) {
        at = strchr(at, '"'); /* past this label's value */
        for (at = at != NULL ? at + 1 : NULL; at != NULL && *at != '"';)
            at = *at == '\0' ? NULL : *at == '\\' && at[1] != '\0' ? at + 2 : at + 1;
        at = at != NULL ? at + 1 + strspn(at + 1, ", ") : NULL;
    }
    for (at = at != NULL ? at + n + 2 : NULL; at != NULL && *at != '"' && *at != '\0' && used + 1 < bytes; at++) {
        bool escaped = *at == '\\' && at[1] != '\0';
        at += escaped;
        text[used++] = escaped && *at == 'n' ? '\n' : *at;
    }
    text[used] = '\0';
}

static bool fits(const struct sample *s, const char *name, const char *label, const char *value)
{
    char found[SAMPLE_LABELS_BYTES];
    if (strcmp(s->name, name) != 0)
        return false;
    if (label == NULL)
        return true;
    samples_label(s, label, found, sizeof found);
    return strcmp(found, value) == 0;
}

double samples_sum(const struct samples *m, const char *name, const char *label, const char *value)
{
    double sum = NAN;
    for (size_t i = 0; m != NULL && i < m->n; i++)
        if (fits(&m->sample[i], name, label, value))
            sum = (isnan(sum) ? 0 : sum) + m->sample[i].value;
    return sum;
}

/* Growth of a name's sum between two snapshots. */
static double growth(const struct samples *now, const struct samples *before, const char *name, const char *suffix,
                     const char *label, const char *value)
{
    char full[SAMPLE_NAME_BYTES + 16];
    (void)snprintf(full, sizeof full, "%s%s", name, suffix);
    double then = samples_sum(before, full, label, value);
    return samples_sum(now, full, label, value) - (isnan(then) ? 0 : then);
}

double samples_mean(const struct samples *now, const struct samples *before, const char *name)
{
    double n = growth(now, before, name, "_count", NULL, NULL);
    return n > 0 ? growth(now, before, name, "_sum", NULL, NULL) / n : NAN;
}

/* Upper bounds of a histogram's buckets, as text, in their ascending order; returns their number. */
static size_t find_bounds(const struct samples *m, const char *name, char bound[][32])
{
    size_t n = 0;
    char full[SAMPLE_NAME_BYTES + 16], le[32];
    (void)snprintf(full, sizeof full, "%s_bucket", name);
    for (size_t i = 0; i < m->n && n < MAX_BUCKETS; i++) {
        if (strcmp(m->sample[i].name, full) != 0)
            continue;
        samples_label(&m->sample[i], "le", le, sizeof le);
        size_t k = 0;
        while (k < n && strcmp(bound[k], le) != 0)
            k++;
        if (k == n)
            memcpy(bound[n++], le, sizeof le);
    }
    return n;
}

double samples_quantile(const struct samples *now, const struct samples *before, const char *name, double q,
                        bool *below)
{
    char bound[MAX_BUCKETS][32];
    double all = growth(now, before, name, "_count", NULL, NULL), low = 0, so_far = 0;
    size_t n = all > 0 ? find_bounds(now, name, bound) : 0;
    *below = false;
    for (size_t i = 0; i < n; i++) {
        double high = strtod(bound[i], NULL), until = growth(now, before, name, "_bucket", "le", bound[i]);
        if (until >= q * all) {
            *below = i == 0;
            return *below ? high : isinf(high) ? low : low + (high - low) * (q * all - so_far) / (until - so_far);
        }
        low = high;
        so_far = until;
    }
    return NAN;
}
