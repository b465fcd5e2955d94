/* commands/models/wishes.c - see wishes.h. */
#include "commands/models/wishes.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "commands/models/warmups.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

void wishes_leave(struct wishes *w, const char *key)
{
    size_t n = strlen(w->unread);
    if (strlen(key) + 3 < sizeof w->unread - n)
        (void)snprintf(w->unread + n, sizeof w->unread - n, "%s%.80s", n > 0 ? ", " : "", key);
}

static int read_number(const char *what, const char *key, const char *value, int64_t low, int64_t high, int64_t *out,
                       struct err *e)
{
    char *end = NULL;
    long long n = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || n < low || n > high)
        return ERR(e, ERR_INPUT, "%.200s: %.60s: found \"%.40s\", expected a number from %lld to %lld", what, key,
                   value, (long long)low, (long long)high);
    *out = n;
    return 0;
}

static int64_t lower(int64_t a, int64_t b)
{
    return a == 0 || b < a ? b : a;
}

/* ---- serving.properties ---- */

enum kind { LENGTH, BATCH, MEMORY, RANKS, PLACE, CODE, MEANT };

static const struct key {
    const char *name;
    enum kind kind;
} keys[] = {{"option.max_model_len", LENGTH},
            {"option.n_positions", LENGTH},
            {"batch_size", BATCH},
            {"option.max_rolling_batch_size", BATCH},
            {"required_memory_mb", MEMORY},
            {"gpu.required_memory_mb", MEMORY},
            {"option.tensor_parallel_degree", RANKS},
            {"option.model_id", PLACE},
            {"option.entryPoint", CODE},
            {"option.handler", CODE},
            {"engine", MEANT}, /* the following options ask for default behaviour */
            {"option.rolling_batch", MEANT},
            {"max_batch_delay", MEANT}};

/* The folder of the file, under the containers' name. */
static bool is_here(const char *place)
{
    static const char *const here[] = {".", "./", "/opt/ml/model", "/opt/ml/model/"};
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++)
        if (strcmp(place, here[i]) == 0)
            return true;
    return false;
}

static int take_number(struct wishes *w, enum kind kind, const char *what, const char *key, const char *value,
                       struct err *e)
{
    int64_t n = 0;
    if (read_number(what, key, value, 1, INT32_MAX, &n, e) != 0)
        return -1;
    if (kind == LENGTH)
        w->max_model_len = lower(w->max_model_len, n);
    else if (kind == BATCH)
        w->max_batch = lower(w->max_batch, n);
    else
        w->memory = n * MIB > w->memory ? n * MIB : w->memory;
    return 0;
}

static int take_line(struct wishes *w, const char *what, const char *key, const char *value, int n_ranks, struct err *e)
{
    const struct key *k = keys, *end = keys + sizeof keys / sizeof keys[0];
    char all[24];
    while (k < end && strcmp(k->name, key) != 0)
        k++;
    if (k == end) {
        wishes_leave(w, key);
        return 0;
    }
    switch (k->kind) {
    case LENGTH:
    case BATCH:
    case MEMORY:
        return take_number(w, k->kind, what, key, value, e);
    case RANKS:
        (void)snprintf(all, sizeof all, "%d", n_ranks);
        if (strcmp(value, "max") != 0 && strcmp(value, all) != 0)
            wishes_leave(w, key); /* the job determines the number of ranks per model */
        return 0;
    case PLACE:
        return is_here(value)
                   ? 0
                   : ERR(e, ERR_UNSUPPORTED,
                         "%.200s: %s: found \"%.80s\", expected the model's files beside this one, and \".\" "
                         "or no such key",
                         what, key, value);
    case CODE:
        return strncmp(value, "djl_python.", 11) == 0
                   ? 0
                   : ERR(e, ERR_UNSUPPORTED, "%.200s: %s: found \"%.80s\": Python code of a model is not run", what,
                         key, value);
    case MEANT:
        return 0;
    }
    return 0;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

int wishes_read_properties(struct wishes *w, char *text, const char *what, int n_ranks, struct err *e)
{
    for (char *line = text, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        line = trim(line);
        size_t n = strcspn(line, "=:");
        if (*line == '\0' || *line == '#' || *line == '!')
            continue;
        if (line[n] == '\0' || n == 0)
            return ERR(e, ERR_INPUT, "%.200s: found \"%.60s\", expected KEY=VALUE", what, line);
        line[n] = '\0';
        if (take_line(w, what, trim(line), trim(line + n + 1), n_ranks, e) != 0)
            return -1;
    }
    return 0;
}

/* ---- config.pbtxt ---- */

static int take_field(struct wishes *w, struct pbtxt *p, const char *key, const char *name, struct err *e)
{
    char value[PBTXT_VALUE_BYTES];
    int64_t n = 0;
    if (strcmp(key, "model_warmup") == 0)
        return warmups_read(w, p, e);
    if (strcmp(key, "name") != 0 && strcmp(key, "max_batch_size") != 0) {
        wishes_leave(w, key);
        return pbtxt_skip(p, e);
    }
    if (pbtxt_value(p, value, e) != 0)
        return -1;
    if (strcmp(key, "name") == 0) {
        if (strcmp(value, name) != 0)
            wishes_leave(w, key);
        return 0;
    }
    if (read_number(p->what, key, value, 0, INT32_MAX, &n, e) != 0)
        return -1;
    w->max_batch = n > 0 ? lower(w->max_batch, n) : w->max_batch; /* 0: it does not limit sequences */
    return 0;
}

int wishes_read_pbtxt(struct wishes *w, const char *text, const char *what, const char *name, struct err *e)
{
    struct pbtxt p = {text, what};
    char key[PBTXT_KEY_BYTES];
    while (pbtxt_field(&p, key, e))
        if (take_field(w, &p, key, name, e) != 0)
            return -1;
    if (e->code == ERR_NONE && *p.at != '\0')
        ERR(e, ERR_INPUT, "%.200s: found \"%.20s\", expected the name of a field", what, p.at);
    return e->code == ERR_NONE ? 0 : -1;
}

/* ---- both ---- */

/* The text of a file of the folder; NULL: there is none, or *e. */
static char *open_text(const char *dir, const char *file, char *path, struct err *e)
{
    size_t bytes = 0;
    int n = snprintf(path, PATH_MAX, "%s/%s", dir, file);
    if (n < 0 || n >= PATH_MAX || !files_present(path))
        return NULL;
    char *text = file_read_text(path, WISHES_MAX_BYTES, &bytes, e);
    if (text != NULL && strlen(text) != bytes)
        ERR(e, ERR_INPUT, "%.200s: found a NUL byte, expected text", path);
    return text;
}

int wishes_read(struct wishes *w, const char *dir, const char *name, int n_ranks, struct err *e)
{
    char path[PATH_MAX];
    *w = (struct wishes){0};
    char *text = open_text(dir, "serving.properties", path, e);
    if (text != NULL && e->code == ERR_NONE)
        (void)wishes_read_properties(w, text, path, n_ranks, e);
    free(text);
    text = e->code == ERR_NONE ? open_text(dir, "config.pbtxt", path, e) : NULL;
    if (text != NULL && e->code == ERR_NONE)
        (void)wishes_read_pbtxt(w, text, path, name, e);
    free(text);
    for (char *c = w->unread; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c >= 0x7f)
            *c = '?';
    if (w->unread[0] != '\0' && e->code == ERR_NONE)
        log_warn("model %s: its serving.properties or config.pbtxt has keys that have no effect: %s", name, w->unread);
    return e->code == ERR_NONE ? 0 : -1;
}
