/* text/chat.c - see chat.h. Which format a checkpoint has, and its files. */
#include "text/chat_parts.h"

#include "base/files.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPLATE_MAX_BYTES ((size_t)1 << 20)
#define CONFIG_MAX_BYTES   ((size_t)64 << 20)

uint64_t chat_template_digest(const char *text, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    if (bytes > 0 && text[bytes - 1] == '\n') /* Jinja drops it */
        bytes--;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

static const struct chat_format *find_digest(uint64_t digest)
{
    for (const struct chat_format *f = chat_formats; f->name != NULL; f++)
        for (int i = 0; i < CHAT_MAX_DIGESTS && f->digest[i] != 0; i++)
            if (f->digest[i] == digest)
                return f;
    return NULL;
}

const char *chat_template_recognise(uint64_t digest)
{
    const struct chat_format *f = find_digest(digest);
    return f != NULL ? f->name : NULL;
}

const char *chat_template_name(const struct chat_template *chat)
{
    return chat->format->name;
}

static void list_names(char *text, size_t bytes)
{
    size_t n = 0;
    for (const struct chat_format *f = chat_formats; f->name != NULL && n < bytes; f++)
        n += (size_t)snprintf(text + n, bytes - n, "%s%s", n > 0 ? ", " : "", f->name);
}

static const struct chat_format *find_name(const char *name, struct err *e)
{
    char all[300];
    for (const struct chat_format *f = chat_formats; f->name != NULL; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    list_names(all, sizeof all);
    ERR(e, ERR_USAGE, "--chat-template: found \"%.40s\", expected one of %s", name, all);
    return NULL;
}

/* A token of tokenizer_config.json: a string or {"content": a string}; NULL: none. malloc'ed. */
static char *read_token(const json_t *config, const char *key, const char *path, struct err *e)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (value == NULL || json_is_null(value))
        return NULL;
    if (!json_is_string(value)) {
        ERR(e, ERR_INPUT, "%s: \"%s\" is %s, expected a string", path, key, json_type_name(value));
        return NULL;
    }
    char *text = strdup(json_string_value(value));
    if (text == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: %s", key);
    return text;
}

/* The template in tokenizer_config.json, or that named "default"; NULL: none. */
static const json_t *config_template(const json_t *config, const char *path, struct err *e)
{
    const json_t *value = json_object_get(config, "chat_template"), *item;
    size_t i;
    json_array_foreach(value, i, item)
    {
        const json_t *name = json_object_get(item, "name");
        if (json_is_string(name) && strcmp(json_string_value(name), "default") == 0 &&
            json_is_string(json_object_get(item, "template")))
            return json_object_get(item, "template");
    }
    if (value == NULL || json_is_null(value) || json_is_array(value))
        return NULL;
    if (!json_is_string(value))
        ERR(e, ERR_INPUT, "%s: \"chat_template\" is %s, expected a string or a list of {\"name\", \"template\"}", path,
            json_type_name(value));
    return json_is_string(value) ? value : NULL;
}

/* Digest of the checkpoint's template; false: it has none. */
static bool read_digest(const char *model_dir, const json_t *config, uint64_t *digest, struct err *e)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/chat_template.jinja", model_dir);
    if (files_present(path)) {
        size_t bytes = 0;
        char *text = file_read(path, TEMPLATE_MAX_BYTES, &bytes, e);
        *digest = text != NULL ? chat_template_digest(text, bytes) : 0;
        free(text);
        return e->code == ERR_NONE;
    }
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model_dir);
    const json_t *text = config_template(config, path, e);
    if (text != NULL)
        *digest = chat_template_digest(json_string_value(text), json_string_length(text));
    return text != NULL;
}

static const struct chat_format *choose(const char *model_dir, const json_t *config, const char *name, char *why,
                                        size_t why_bytes, struct err *e)
{
    uint64_t digest = 0;
    if (name != NULL)
        return find_name(name, e);
    if (!read_digest(model_dir, config, &digest, e)) {
        (void)snprintf(why, why_bytes, "the checkpoint has no chat template");
        return NULL;
    }
    const struct chat_format *format = find_digest(digest);
    if (format == NULL)
        (void)snprintf(why, why_bytes, "the checkpoint's chat template (digest %016llx) is none of those built in",
                       (unsigned long long)digest);
    return format;
}

/* A format that ends turns by a token wants to know which. */
static bool needs_eos(const struct chat_format *f)
{
    return f->kind == CHAT_INST || f->role[0].eos || f->role[1].eos;
}

static int fill(struct chat_template **chat, const struct chat_format *format, const json_t *config, const char *path,
                struct err *e)
{
    *chat = err_calloc(e, 1, sizeof **chat, "chat template");
    if (*chat == NULL)
        return -1;
    (*chat)->format = format;
    (*chat)->bos = read_token(config, "bos_token", path, e);
    (*chat)->eos = read_token(config, "eos_token", path, e);
    bool needs_bos = format->bos || format->inst.bos_each;
    if (e->code == ERR_NONE && ((needs_bos && (*chat)->bos == NULL) || (needs_eos(format) && (*chat)->eos == NULL)))
        ERR(e, ERR_INPUT, "%s: no \"%s\", which the chat format %s has in it", path,
            needs_bos && (*chat)->bos == NULL ? "bos_token" : "eos_token", format->name);
    return e->code == ERR_NONE ? 0 : -1;
}

int chat_template_open(struct chat_template **chat, const char *model_dir, const char *name, char *why,
                       size_t why_bytes, struct err *e)
{
    char path[4200];
    json_t *config = NULL;
    *chat = NULL;
    if (why_bytes > 0)
        why[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model_dir);
    if (files_present(path))
        config = json_read_model_file(path, CONFIG_MAX_BYTES, e);
    if (config != NULL && !json_is_object(config))
        ERR(e, ERR_INPUT, "%s: %s, expected an object", path, json_type_name(config));
    const struct chat_format *format = e->code == ERR_NONE ? choose(model_dir, config, name, why, why_bytes, e) : NULL;
    if (format != NULL && fill(chat, format, config, path, e) != 0)
        chat_template_close(chat);
    json_decref(config);
    return e->code == ERR_NONE ? 0 : -1;
}

void chat_template_close(struct chat_template **chat)
{
    if (*chat == NULL)
        return;
    free((*chat)->bos);
    free((*chat)->eos);
    free(*chat);
    *chat = NULL;
}
