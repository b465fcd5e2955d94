/* tests/support/chat_family.c - see chat_family.h. */
#include "tests/support/chat_family.h"

#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/unit/fixtures/"

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(99);
}

json_t *chat_families(void)
{
    json_error_t error;
    json_t *all = json_load_file(FIXTURES "chat/families.json", 0, &error);
    if (all == NULL)
        die(FIXTURES "chat/families.json", error.text);
    return all;
}

/* Writes the vocabulary with the family's own tokens before its other special ones. As text, since jansson cannot store
 * the key "\0". */
static void write_tokenizer(const json_t *family, const char *dir)
{
    static const char mark[] = "\"added_tokens\":[";
    char name[100];
    size_t bytes;
    (void)snprintf(name, sizeof name, "%s.json", json_string_value(json_object_get(family, "vocabulary")));
    char *whole = files_read(FIXTURES "tokenizer", name, &bytes), *at = strstr(whole, mark);
    char *added = json_dumps(json_object_get(family, "added"), 0), *text = NULL;
    if (at == NULL || added == NULL)
        die(name, "no added tokens");
    added[strlen(added) - 1] = '\0'; /* drops the list's own end */
    at += sizeof mark - 1;
    if (asprintf(&text, "%.*s%s,%s", (int)(at - whole), whole, added + 1, at) < 0)
        die(name, "no memory");
    files_write_text(dir, "tokenizer.json", text);
    free(text);
    free(added);
    free(whole);
}

void chat_family_write(const json_t *family, const char *dir)
{
    write_tokenizer(family, dir);
    json_t *config = json_pack("{s:O, s:O, s:O}", "bos_token", json_object_get(family, "bos"), "eos_token",
                               json_object_get(family, "eos"), "chat_template", json_object_get(family, "template"));
    char *text = json_dumps(config, 0);
    files_write_text(dir, "tokenizer_config.json", text);
    free(text);
    json_decref(config);
}

void chat_family_model(const json_t *family, char *dir)
{
    char from[300];
    (void)snprintf(from, sizeof from, FIXTURES "chat/%s", json_string_value(json_object_get(family, "name")));
    files_make_dir(dir);
    files_copy(from, dir, "config.json");
    files_copy(from, dir, "model.safetensors");
    chat_family_write(family, dir);
}
