/* gateway/api/samples.c - see samples.h. */
#include "gateway/api/samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct samples_family *family(struct merged_samples *s, const char *name, size_t bytes)
{
    struct samples_family **at = &s->first;
    if (bytes == 0 || bytes >= sizeof(*at)->name)
        return NULL;
    while (*at != NULL && (strncmp((*at)->name, name, bytes) != 0 || (*at)->name[bytes] != '\0'))
        at = &(*at)->next;
    if (*at == NULL && (*at = calloc(1, sizeof **at)) != NULL)
        memcpy((*at)->name, name, bytes);
    return *at;
}

/* A label's value: quotes, backslashes and line ends are escaped. */
static void write_label(struct bytes *b, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '"' || *value == '\\')
            bytes_append(b, "\\", 1);
        bytes_append(b, *value == '\n' ? "\\n" : value, *value == '\n' ? 2 : 1);
    }
}

/* "name{labels} value" or "name value"; with a backend, its label comes first. */
static void add_sample(struct samples_family *f, const char *backend, const char *line, size_t bytes)
{
    const char *open = memchr(line, '{', bytes), *blank = memchr(line, ' ', bytes);
    if (f == NULL || blank == NULL)
        return;
    if (backend == NULL) {
        bytes_append(&f->lines, line, bytes);
        bytes_text(&f->lines, "\n");
        return;
    }
    size_t name = (size_t)((open != NULL && open < blank ? open : blank) - line);
    bytes_append(&f->lines, line, name);
    bytes_text(&f->lines, "{backend=\"");
    write_label(&f->lines, backend);
    bytes_text(&f->lines, open != NULL && open < blank ? "\"," : "\"}");
    name += open != NULL && open < blank ? 1 : 0;
    bytes_append(&f->lines, line + name, bytes - name);
    bytes_text(&f->lines, "\n");
}

/* A line "# HELP name ..." or "# TYPE name ..." begins a family, or repeats a known one, whose first one counts. */
static struct samples_family *take_head(struct merged_samples *s, const char *line, size_t bytes)
{
    size_t n = bytes > 7 ? strcspn(line + 7, " \n") : 0;
    struct samples_family *f = bytes > 7 ? family(s, line + 7, n) : NULL;
    bool *known = f == NULL ? NULL : line[2] == 'H' ? &f->has_help : &f->has_type;
    if (known != NULL && !*known) {
        bytes_append(&f->head, line, bytes);
        bytes_text(&f->head, "\n");
        *known = true;
    }
    return f;
}

void samples_add(struct merged_samples *s, const char *backend, const char *text)
{
    struct samples_family *f = NULL;
    while (*text != '\0') {
        size_t n = strcspn(text, "\n");
        if (text[0] == '#')
            f = take_head(s, text, n);
        else if (n > 0)
            add_sample(f, backend, text, n);
        text += n + (text[n] == '\n');
    }
}

void samples_write(const struct merged_samples *s, struct bytes *to)
{
    for (const struct samples_family *f = s->first; f != NULL; f = f->next) {
        bytes_append(to, bytes_start(&f->head), bytes_count(&f->head));
        bytes_append(to, bytes_start(&f->lines), bytes_count(&f->lines));
    }
}

void samples_free(struct merged_samples *s)
{
    while (s->first != NULL) {
        struct samples_family *f = s->first;
        s->first = f->next;
        bytes_free(&f->head);
        bytes_free(&f->lines);
        free(f);
    }
}
