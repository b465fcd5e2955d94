/* text/chat_sources.c - the texts of a checkpoint's chat templates, from its files. See chat_parts.h. */
#include "base/files.h"
#include "text/chat_parts.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE_MAX_BYTES ((size_t)256 << 10)

/* The text is owned from here on. */
static int add_template(struct chat_sources *s, const char *name, char *text, size_t bytes, const char *path,
                        struct err *e)
{
    size_t n = strlen(name);
    if (s->n == CHAT_MAX_TEMPLATES || n >= sizeof s->item[0].name || bytes > TEMPLATE_MAX_BYTES) {
        free(text);
        return ERR(e, ERR_UNSUPPORTED,
                   "%s: found chat template %d, \"%.80s\", of %zu bytes, expected at most %d, names below %zu bytes "
                   "and %zu bytes",
                   path, s->n + 1, name, bytes, CHAT_MAX_TEMPLATES, sizeof s->item[0].name, TEMPLATE_MAX_BYTES);
    }
    struct chat_source *source = &s->item[s->n++];
    memcpy(source->name, name, n + 1);
    source->text = text;
    source->bytes = bytes;
    return 0;
}

int chat_sources_file(struct chat_sources *s, const char *path, const char *name, struct err *e)
{
    size_t bytes = 0;
    char *text = file_read(path, TEMPLATE_MAX_BYTES, &bytes, e);
    return text != NULL ? add_template(s, name, text, bytes, path, e) : -1;
}

static int add_json(struct chat_sources *s, const char *name, const json_t *value, const char *path, struct err *e)
{
    char *text = err_calloc(e, json_string_length(value) + 1, 1, "chat template");
    if (text == NULL)
        return -1;
    memcpy(text, json_string_value(value), json_string_length(value));
    return add_template(s, name, text, json_string_length(value), path, e);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct chat_source *)a)->name, ((const struct chat_source *)b)->name);
}

/* additional_chat_templates/NAME.jinja, in the order of their names. */
static int read_folder(struct chat_sources *s, const char *model_dir, struct err *e)
{
    char folder[4200], path[4600], name[256];
    int first = s->n;
    (void)snprintf(folder, sizeof folder, "%s/additional_chat_templates", model_dir);
    DIR *d = opendir(folder);
    if (d == NULL)
        return errno == ENOENT ? 0 : ERR(e, ERR_IO, "%s: %s", folder, strerror(errno));
    for (const struct dirent *entry = readdir(d); entry != NULL && e->code == ERR_NONE; entry = readdir(d)) {
        size_t n = strlen(entry->d_name);
        if (n <= 6 || strcmp(entry->d_name + n - 6, ".jinja") != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)snprintf(name, sizeof name, "%.*s", (int)(n - 6), entry->d_name);
        (void)chat_sources_file(s, path, name, e);
    }
    (void)closedir(d);
    qsort(s->item + first, (size_t)(s->n - first), sizeof s->item[0], by_name);
    return e->code == ERR_NONE ? 0 : -1;
}

static int read_list(struct chat_sources *s, const json_t *list, const char *path, struct err *e)
{
    size_t i;
    const json_t *item;
    json_array_foreach(list, i, item)
    {
        const json_t *name = json_object_get(item, "name"), *text = json_object_get(item, "template");
        if (!json_is_string(name) || !json_is_string(text))
            return ERR(e, ERR_INPUT,
                       "%s: \"chat_template\"[%zu] is %s, expected {\"name\": a string, \"template\": a string}", path,
                       i, json_type_name(item));
        if (add_json(s, json_string_value(name), text, path, e) != 0)
            return -1;
    }
    return 0;
}

/* The member "chat_template" of a file, which may be missing. */
static int read_member(struct chat_sources *s, const json_t *file, const char *path, struct err *e)
{
    const json_t *value = json_object_get(file, "chat_template");
    if (value == NULL || json_is_null(value))
        return 0;
    if (json_is_array(value))
        return read_list(s, value, path, e);
    if (!json_is_string(value))
        return ERR(e, ERR_INPUT, "%s: \"chat_template\" is %s, expected a string or a list of {\"name\", \"template\"}",
                   path, json_type_name(value));
    return add_json(s, "default", value, path, e);
}

/* chat_template.json, where multimodal checkpoints had their template before transformers 4.52. */
static int read_processor(struct chat_sources *s, const char *model_dir, struct err *e)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/chat_template.json", model_dir);
    if (!files_present(path))
        return 0;
    json_t *file = json_read_model_file(path, 4 * TEMPLATE_MAX_BYTES, e);
    int rc = file != NULL ? read_member(s, file, path, e) : -1;
    json_decref(file);
    return rc;
}

int chat_sources_read(struct chat_sources *s, const char *model_dir, const json_t *config, struct err *e)
{
    char path[4200];
    *s = (struct chat_sources){0};
    (void)snprintf(path, sizeof path, "%s/chat_template.jinja", model_dir);
    if (files_present(path) && chat_sources_file(s, path, "default", e) != 0)
        return -1;
    if (read_folder(s, model_dir, e) != 0 || s->n > 0)
        return e->code == ERR_NONE ? 0 : -1;
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model_dir);
    if (read_member(s, config, path, e) != 0)
        return -1;
    return s->n > 0 ? 0 : read_processor(s, model_dir, e);
}

const struct chat_source *chat_sources_find(const struct chat_sources *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->item[i].name, name) == 0)
            return &s->item[i];
    return NULL;
}

void chat_sources_close(struct chat_sources *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->item[i].text);
    s->n = 0;
}
