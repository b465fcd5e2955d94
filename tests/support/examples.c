/* tests/support/examples.c - see examples.h. */
#include "tests/support/examples.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- reading */

static void give_up(const char *path, int line, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)fprintf(stderr, "%s:%d: ", path, line);
    (void)vfprintf(stderr, format, list);
    (void)fputc('\n', stderr);
    va_end(list);
    exit(1);
}

static struct example *find_example(struct examples *e, const char *name)
{
    for (int i = 0; i < e->n; i++)
        if (strcmp(e->example[i].name, name) == 0)
            return &e->example[i];
    return NULL;
}

static void add_request(struct examples *e, const char *name, const char *text, const char *path, int line)
{
    if (find_example(e, name) != NULL)
        give_up(path, line, "example \"%s\" has two requests", name);
    e->example = realloc(e->example, (size_t)(e->n + 1) * sizeof *e->example);
    struct example *one = &e->example[e->n++];
    *one = (struct example){.request = json_loads(text, 0, NULL), .request_text = strdup(text)};
    (void)snprintf(one->name, sizeof one->name, "%s", name);
}

static void add_block(struct examples *e, const char *kind, const char *name, const char *text, const char *path,
                      int line)
{
    json_error_t error;
    struct example *one = find_example(e, name);
    if (strcmp(kind, "request") == 0) {
        add_request(e, name, text, path, line);
        return;
    }
    bool event = strcmp(kind, "event") == 0;
    if (!event && strcmp(kind, "reply") != 0)
        give_up(path, line, "block of kind \"%s\", expected request, reply or event", kind);
    if (one == NULL || one->n_replies == EXAMPLE_MAX_BLOCKS || (one->n_replies > 0 && (!event || !one->streams)))
        give_up(path, line, "%s of \"%s\": no request before it, or too many replies", kind, name);
    one->streams = event;
    one->reply[one->n_replies] = json_loads(text, 0, &error);
    if (one->reply[one->n_replies++] == NULL)
        give_up(path, line, "%s of \"%s\" is not JSON: line %d: %s", kind, name, error.line, error.text);
}

/* Returns the lines up to the closing fence, joined. */
static char *read_block(FILE *f, int *line)
{
    char *text = calloc(1, 1), *part = NULL;
    size_t n = 0, capacity = 0;
    ssize_t got;
    while ((got = getline(&part, &capacity, f)) >= 0 && strncmp(part, "```", 3) != 0) {
        ++*line;
        text = realloc(text, n + (size_t)got + 1);
        memcpy(text + n, part, (size_t)got + 1);
        n += (size_t)got;
    }
    ++*line;
    free(part);
    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    return text;
}

void examples_read(struct examples *e, const char *path)
{
    char *text = NULL, kind[16], name[64];
    size_t capacity = 0;
    *e = (struct examples){0};
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        perror(path);
        exit(1);
    }
    for (int line = 1; getline(&text, &capacity, f) >= 0; line++) {
        if (strncmp(text, "```json ", 8) != 0)
            continue;
        int first = line;
        if (sscanf(text, "```json %15s %63s", kind, name) != 2)
            give_up(path, line, "expected ```json KIND NAME");
        char *block = read_block(f, &line);
        add_block(e, kind, name, block, path, first);
        free(block);
    }
    (void)fclose(f);
    free(text);
    for (int i = 0; i < e->n; i++)
        if (e->example[i].n_replies == 0)
            give_up(path, 0, "example \"%s\" has no reply", e->example[i].name);
}

void examples_free(struct examples *e)
{
    for (int i = 0; i < e->n; i++) {
        json_decref(e->example[i].request);
        free(e->example[i].request_text);
        for (int k = 0; k < e->example[i].n_replies; k++)
            json_decref(e->example[i].reply[k]);
    }
    free(e->example);
    *e = (struct examples){0};
}

/* ---------------------------------------------------------------- comparing */

struct comparison {
    char path[256], *why;
    size_t why_bytes;
};

static bool is_any(const json_t *expected)
{
    return json_is_string(expected) && strcmp(json_string_value(expected), "...") == 0;
}

static bool differ(const struct comparison *c, const json_t *found, const json_t *expected)
{
    char *is = found != NULL ? json_dumps(found, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    char *should = json_dumps(expected, JSON_ENCODE_ANY | JSON_COMPACT);
    (void)snprintf(c->why, c->why_bytes, "%s: found %.300s, expected %.300s", c->path[0] != '\0' ? c->path : "reply",
                   is != NULL ? is : "nothing", should);
    free(is);
    free(should);
    return false;
}

static bool compare(struct comparison *c, const json_t *found, const json_t *expected);

/* Compares with `step` appended to the path meanwhile. */
static bool compare_inside(struct comparison *c, const char *step, const json_t *found, const json_t *expected)
{
    size_t n = strlen(c->path);
    (void)snprintf(c->path + n, sizeof c->path - n, "%s", step);
    bool same = compare(c, found, expected);
    c->path[n] = '\0';
    return same;
}

static bool compare_objects(struct comparison *c, const json_t *found, const json_t *expected)
{
    char step[80];
    for (void *at = json_object_iter((json_t *)expected); at != NULL;
         at = json_object_iter_next((json_t *)expected, at)) {
        const char *key = json_object_iter_key(at);
        (void)snprintf(step, sizeof step, ".%.70s", key);
        if (!compare_inside(c, step, json_object_get(found, key), json_object_iter_value(at)))
            return false;
    }
    return true;
}

static bool compare_lists(struct comparison *c, const json_t *found, const json_t *expected)
{
    char step[24];
    size_t n = json_array_size(expected);
    bool open = n > 1 && is_any(json_array_get(expected, n - 1)) && !is_any(json_array_get(expected, n - 2));
    if (open)
        n--;
    if (json_array_size(found) < n || (!open && json_array_size(found) != n))
        return differ(c, found, expected);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(step, sizeof step, "[%zu]", i);
        if (!compare_inside(c, step, json_array_get(found, i), json_array_get(expected, i)))
            return false;
    }
    return true;
}

static bool compare(struct comparison *c, const json_t *found, const json_t *expected)
{
    if (found != NULL && is_any(expected))
        return true;
    if (json_is_object(found) && json_is_object(expected))
        return compare_objects(c, found, expected);
    if (json_is_array(found) && json_is_array(expected))
        return compare_lists(c, found, expected);
    bool same = json_is_number(found) && json_is_number(expected)
                    ? json_number_value(found) == json_number_value(expected)
                    : found != NULL && json_equal(found, expected);
    return same ? true : differ(c, found, expected);
}

bool example_compare(const json_t *found, const json_t *expected, char *why, size_t why_bytes)
{
    struct comparison c = {.why = why, .why_bytes = why_bytes};
    why[0] = '\0';
    return compare(&c, found, expected);
}
