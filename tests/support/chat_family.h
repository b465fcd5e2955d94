/* tests/support/chat_family.h - the families of tests/unit/fixtures/chat/families.json: the texts, token ids and
 * answers of transformers with their templates, vocabularies and tiny models. */
#ifndef TESTS_SUPPORT_CHAT_FAMILY_H
#define TESTS_SUPPORT_CHAT_FAMILY_H

#include <jansson.h>

/* Returns the list of families; dies on failure. The caller decrefs it. */
json_t *chat_families(void);

/* Writes the family's tokenizer.json and tokenizer_config.json into dir. Dies on failure. */
void chat_family_write(const json_t *family, const char *dir);

/* Writes these and the family's config.json and model.safetensors into a new folder. dir: at least 256 bytes, remove
 * with files_remove_dir. */
void chat_family_model(const json_t *family, char *dir);

#endif
