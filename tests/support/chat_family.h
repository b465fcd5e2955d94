/* tests/support/chat_family.h - the families of tests/unit/fixtures/chat/families.json: the texts, token ids and
 * answers of transformers with their templates, vocabularies and tiny models. */
#ifndef TESTS_SUPPORT_CHAT_FAMILY_H
#define TESTS_SUPPORT_CHAT_FAMILY_H

#include <jansson.h>

/* A list; dies on failure. The caller decrefs it. */
json_t *chat_families(void);

/* Its tokenizer.json and tokenizer_config.json, in dir. Dies on failure. */
void chat_family_write(const json_t *family, const char *dir);

/* With them its config.json and model.safetensors, in a new folder. dir: at least 256 bytes, remove with
 * files_remove_dir. */
void chat_family_model(const json_t *family, char *dir);

#endif
