/* text/chat_tokens.c - the special tokens that chat templates see as variables, from a checkpoint's files. See
 * chat_parts.h. */
#include "base/files.h"
#include "text/chat_parts.h"

#include <stdio.h>
#include <string.h>

#define TOKENS_MAX_BYTES ((size_t)64 << 20)

/* A name that every tokenizer has; under other names ending in "_token" there may also be what is no token. */
static bool is_usual(const char *name)
{
    static const char *const usual[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (strcmp(name, usual[i]) == 0)
            return true;
    return false;
}

/* A token is a string or {"content": a string}. */
static void add_token(json_t *tokens, const char *name, json_t *value, const char *path, struct err *e)
{
    json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
    if (text == NULL || json_is_null(text))
        return;
    if (!json_is_string(text)) {
        if (is_usual(name))
            ERR(e, ERR_INPUT, "%s: \"%s\" is %s, expected a string", path, name, json_type_name(text));
    } else if (json_object_set(tokens, name, text) != 0) {
        ERR(e, ERR_MEMORY, "out of host memory: %s", name);
    }
}

/* The members NAME_token of a file, and those of its "extra_special_tokens" if that is an object. */
static void add_tokens(json_t *tokens, const json_t *file, const char *path, struct err *e)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)file, name, value)
    {
        size_t n = strlen(name);
        if (n > 6 && strcmp(name + n - 6, "_token") == 0)
            add_token(tokens, name, value, path, e);
    }
    json_object_foreach(json_object_get(file, "extra_special_tokens"), name, value)
        add_token(tokens, name, value, path, e);
}

json_t *chat_tokens_read(const char *model_dir, const json_t *config, struct err *e)
{
    char path[4200];
    json_t *tokens = json_object(), *map = NULL;
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model_dir);
    add_tokens(tokens, config, path, e);
    (void)snprintf(path, sizeof path, "%s/special_tokens_map.json", model_dir);
    if (e->code == ERR_NONE && json_object_get(config, "added_tokens_decoder") == NULL && files_present(path))
        map = json_read_model_file(path, TOKENS_MAX_BYTES, e);
    if (map != NULL && !json_is_object(map))
        ERR(e, ERR_INPUT, "%s: %s, expected an object", path, json_type_name(map));
    add_tokens(tokens, map, path, e);
    json_decref(map);
    return tokens;
}
