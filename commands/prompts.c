/* commands/prompts.c - see prompts.h. */
#include "commands/prompts.h"
#include "base/bom.h"
#include "base/json.h"
#include "commands/generation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE_BYTES   ((size_t)64 << 20)
#define MAX_ARGUMENT_IDS (1 << 20)

static struct prompt *add_prompt(struct prompt_list *list, int line, struct err *e)
{
    if (list->n == list->capacity) {
        int capacity = 2 * list->capacity + 16;
        struct prompt *p = realloc(list->prompt, (size_t)capacity * sizeof *p);
        if (p == NULL) {
            ERR(e, ERR_MEMORY, "out of host memory: %d prompts", capacity);
            return NULL;
        }
        list->prompt = p;
        list->capacity = capacity;
    }
    struct prompt *p = &list->prompt[list->n++];
    *p = (struct prompt){.line = line};
    return p;
}

static int set_text(struct prompt *p, const char *text, size_t bytes, struct err *e)
{
    p->text = err_calloc(e, bytes + 1, 1, "prompt");
    if (p->text == NULL)
        return -1;
    memcpy(p->text, text, bytes);
    p->text_bytes = bytes;
    return 0;
}

static int add_text(struct prompt_list *list, const char *text, size_t bytes, int line, struct err *e)
{
    struct prompt *p = add_prompt(list, line, e);
    return p == NULL ? -1 : set_text(p, text, bytes, e);
}

static int set_ids(struct prompt *p, const json_t *ids, int vocab, const char *what, struct err *e)
{
    size_t n = json_array_size(ids);
    p->ids.id = err_calloc(e, n, sizeof *p->ids.id, "prompt ids");
    if (p->ids.id == NULL)
        return -1;
    p->ids.capacity = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= vocab)
            return ERR(e, ERR_INPUT, "%s: \"prompt\" item %zu is %s, expected a token id in [0, %d]", what, i,
                       json_is_integer(id) ? "out of range" : json_type_name(id), vocab - 1);
        p->ids.id[p->ids.n++] = (int32_t)json_integer_value(id);
    }
    return 0;
}

static int add_json(struct prompt_list *list, const json_t *object, int vocab, int line, const char *what,
                    struct err *e)
{
    json_t *prompt = json_object_get(object, "prompt");
    for (void *at = json_object_iter((json_t *)object); at != NULL; at = json_object_iter_next((json_t *)object, at))
        if (strcmp(json_object_iter_key(at), "prompt") != 0)
            return ERR(e, ERR_UNSUPPORTED, "%s: \"%.40s\" is not supported in a line of prompts, only \"prompt\" is",
                       what, json_object_iter_key(at));
    struct prompt *p = add_prompt(list, line, e);
    if (p == NULL)
        return -1;
    if (json_is_string(prompt))
        return set_text(p, json_string_value(prompt), json_string_length(prompt), e);
    if (json_is_array(prompt))
        return set_ids(p, prompt, vocab, what, e);
    return ERR(e, ERR_INPUT, "%s: \"prompt\" is %s, expected a string or a list of token ids", what,
               json_type_name(prompt));
}

/* A file is JSON lines by its name, or if its first line begins like an object with members. */
static bool is_json_lines(const char *path, const char *line)
{
    size_t n = strlen(path);
    if (n > 6 && strcmp(path + n - 6, ".jsonl") == 0)
        return true;
    return line[0] == '{' && line[1 + strspn(line + 1, " \t")] == '"';
}

/* The next line without its end in *line (NUL-terminated, grown as needed): its length, or -1 at the end of the file
 * and on failure. Reads at most MAX_LINE_BYTES of it. */
static ssize_t next_line(FILE *f, char **line, size_t *capacity, const char *what, struct err *e)
{
    size_t n = 0;
    int c;
    while ((c = getc_unlocked(f)) != EOF && c != '\n') {
        if (n == MAX_LINE_BYTES)
            return ERR(e, ERR_INPUT, "%s: more than %zu bytes", what, MAX_LINE_BYTES);
        if (n + 2 > *capacity) {
            size_t wanted = 2 * *capacity + 4096;
            char *grown = realloc(*line, wanted);
            if (grown == NULL)
                return ERR(e, ERR_MEMORY, "out of host memory: %s, %zu bytes", what, wanted);
            *line = grown;
            *capacity = wanted;
        }
        (*line)[n++] = (char)c;
    }
    if (c == EOF && n == 0)
        return -1;
    while (n > 0 && (*line)[n - 1] == '\r')
        n--;
    if (*line != NULL)
        (*line)[n] = '\0';
    return (ssize_t)n;
}

static int read_lines(struct prompt_list *list, FILE *f, const char *path, int vocab, struct err *e)
{
    char *line = NULL, what[600];
    size_t capacity = 0;
    bool json_lines = false, first = true;
    for (int number = 1; e->code == ERR_NONE; number++) {
        (void)snprintf(what, sizeof what, "%.500s: line %d", path, number);
        ssize_t got = next_line(f, &line, &capacity, what, e);
        if (got < 0)
            break;
        int mark = number == 1 && line != NULL ? bom_bytes(line, (size_t)got, path, e) : 0;
        if (mark < 0 || got == mark || line == NULL)
            continue;
        const char *text = line + mark;
        size_t bytes = (size_t)(got - mark);
        if (first)
            json_lines = is_json_lines(path, text);
        first = false;
        if (!json_lines) {
            (void)add_text(list, text, bytes, number, e);
            continue;
        }
        json_t *object = json_parse(text, bytes, what, e);
        if (object != NULL && !json_is_object(object))
            ERR(e, ERR_INPUT, "%s: %s, expected an object with \"prompt\"", what, json_type_name(object));
        else if (object != NULL)
            (void)add_json(list, object, vocab, number, what, e);
        json_decref(object);
    }
    if (ferror(f) != 0)
        ERR(e, ERR_IO, "%s: cannot read: %s", path, strerror(errno));
    free(line);
    if (e->code == ERR_NONE && list->n == 0)
        ERR(e, ERR_INPUT, "%s: no prompt, expected one prompt per line", path);
    return e->code == ERR_NONE ? 0 : -1;
}

static int read_file(struct prompt_list *list, const char *path, int vocab, struct err *e)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "re");
    if (f == NULL)
        return ERR(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    int rc = read_lines(list, f, standard ? "standard input" : path, vocab, e);
    if (!standard)
        (void)fclose(f);
    return rc;
}

static int read_ids(struct prompt_list *list, const char *text, int vocab, struct err *e)
{
    struct prompt *p = add_prompt(list, 0, e);
    if (p == NULL)
        return -1;
    size_t most = 1;
    for (const char *c = text; *c != '\0'; c++)
        most += *c == ',';
    if (most > MAX_ARGUMENT_IDS)
        return ERR(e, ERR_USAGE, "--prompt-ids: %zu ids, at most %d are accepted", most, MAX_ARGUMENT_IDS);
    p->ids.id = err_calloc(e, most, sizeof *p->ids.id, "prompt ids");
    if (p->ids.id == NULL)
        return -1;
    p->ids.capacity = most;
    int n = generation_parse_ids(text, p->ids.id, (int)most, vocab, "prompt-ids", e);
    p->ids.n = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}

int prompts_read(struct prompt_list *list, const struct generate_options *o, int vocab, struct err *e)
{
    *list = (struct prompt_list){0};
    if ((o->prompt != NULL) + (o->prompts != NULL) + (o->prompt_ids != NULL) != 1)
        return ERR(e, ERR_USAGE, "expected exactly one of --prompt, --prompts and --prompt-ids");
    if (o->prompt != NULL)
        return add_text(list, o->prompt, strlen(o->prompt), 0, e);
    if (o->prompt_ids != NULL)
        return read_ids(list, o->prompt_ids, vocab, e);
    return read_file(list, o->prompts, vocab, e);
}

int prompt_encode(struct prompt *p, const struct tokenizer *t, const struct generate_options *o, int vocab, int32_t bos,
                  struct err *e)
{
    unsigned flags = (o->no_special ? 0 : TOKENIZER_ADD_SPECIAL) | (o->plain_text ? TOKENIZER_PLAIN : 0);
    if (p->text != NULL && tokenizer_encode(t, p->text, p->text_bytes, flags, &p->ids, e) != 0)
        return -1;
    if (p->ids.n == 0 && bos >= 0 && p->text != NULL && !o->no_special) {
        p->ids.id = err_calloc(e, 1, sizeof *p->ids.id, "prompt ids");
        if (p->ids.id == NULL)
            return -1;
        p->ids.id[0] = bos;
        p->ids.n = p->ids.capacity = 1;
    }
    if (p->ids.n == 0)
        return ERR(e, ERR_INPUT, "the prompt is empty: expected at least one token");
    for (size_t i = 0; i < p->ids.n; i++)
        if (p->ids.id[i] < 0 || p->ids.id[i] >= vocab)
            return ERR(e, ERR_INPUT, "tokenizer gives id %d, the model has %d: they do not belong together",
                       p->ids.id[i], vocab);
    return 0;
}

void prompts_free(struct prompt_list *list)
{
    for (int i = 0; i < list->n; i++) {
        free(list->prompt[i].text);
        token_list_free(&list->prompt[i].ids);
    }
    free(list->prompt);
    *list = (struct prompt_list){0};
}
