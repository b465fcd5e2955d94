/* tests/support/batching.c - see batching.h. */
#include "tests/support/batching.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void batching_prompts(const char *dir, const char *name, int n, int max_tokens)
{
    static const char *const begin[] = {"Once upon a time", "Long ago, in a small village", "The little dragon",
                                        "Every evening the old clock"};
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    for (int i = 0; i < n; i++)
        fprintf(f, "{\"id\":\"r%d\",\"prompt\":\"%s\",\"max_tokens\":%d}\n", i, begin[i % 4], max_tokens);
    fclose(f);
    files_write(dir, name, text, bytes);
    free(text);
}

#define MAX_WORDS 40
#define MAX_PATHS 8

void batching_run(struct process *p, const char *dir, int ranks, const char *input, const char *const *words)
{
    const char *all[MAX_WORDS] = {"batch", "--model", models_demo(), "--threads", "1", "--progress", "never"};
    char path[MAX_PATHS][400];
    const struct process_setup setup = {.ranks = ranks, .input = input};
    int n = 7, n_paths = 0;
    for (; *words != NULL && n < MAX_WORDS - 1; words++) {
        all[n] = *words;
        if (**words == '@' && n_paths < MAX_PATHS) {
            (void)snprintf(path[n_paths], sizeof path[0], "%s/%s", dir, *words + 1);
            all[n] = path[n_paths++];
        }
        n++;
    }
    process_run(p, &setup, all);
}

void batching_forget(const char *dir, const char *output)
{
    static const char *const suffix[] = {"", ".manifest.json", ".status.json"};
    char path[400];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s%s", dir, output, suffix[i]);
        (void)unlink(path);
    }
}

static void take_result(struct batch_results *r, const char *line, size_t bytes)
{
    json_t *object = json_loadb(line, bytes, JSON_ALLOW_NUL, NULL), *id = json_object_get(object, "custom_id");
    char number[32];
    id = id != NULL ? id : json_object_get(object, "id");
    const char *name = json_string_value(id);
    if (json_is_integer(id)) {
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(id));
        name = number;
    }
    if (name == NULL) {
        r->n_strange++;
        json_decref(object);
        return;
    }
    r->n_twice += json_object_get(r->by_id, name) != NULL;
    (void)json_object_set_new(r->by_id, name, object);
    r->order = realloc(r->order, ((size_t)r->n + 1) * sizeof *r->order);
    r->order[r->n++] = json_object_iter_key(json_object_iter_at(r->by_id, name));
}

void batching_read(struct batch_results *r, const char *dir, const char *name)
{
    char path[600];
    size_t bytes = 0;
    *r = (struct batch_results){.by_id = json_object()};
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    char *text = access(path, F_OK) == 0 ? files_read(dir, name, &bytes) : NULL;
    char *at = text, *end = text + bytes;
    for (char *newline; at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1)
        take_result(r, at, (size_t)(newline - at));
    r->torn = (size_t)(end - at);
    free(text);
}

void batching_free(struct batch_results *r)
{
    json_decref(r->by_id);
    free(r->order);
    memset(r, 0, sizeof *r);
}

const char *batching_text(const json_t *result)
{
    const json_t *body = json_object_get(json_object_get(result, "response"), "body");
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
    const char *text = json_string_value(json_object_get(body != NULL ? choice : result, "text"));
    if (text == NULL)
        text = json_string_value(json_object_get(json_object_get(choice, "message"), "content"));
    return text != NULL ? text : "";
}

int batching_differences(const struct batch_results *a, const struct batch_results *b)
{
    int n = 0;
    const char *id;
    json_t *result;
    json_object_foreach(a->by_id, id, result)
    {
        const json_t *other = json_object_get(b->by_id, id);
        n += other == NULL || strcmp(batching_text(result), batching_text(other)) != 0;
    }
    return n;
}

json_t *batching_manifest(const char *dir, const char *output, const char *path)
{
    char file[600], key[128];
    (void)snprintf(file, sizeof file, "%s/%s.manifest.json", dir, output);
    json_t *all = json_load_file(file, 0, NULL), *at = all;
    while (at != NULL && *path != '\0') {
        size_t n = strcspn(path, "/");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        at = json_object_get(at, key);
        path += n + (path[n] == '/');
    }
    json_incref(at);
    json_decref(all);
    return at;
}
