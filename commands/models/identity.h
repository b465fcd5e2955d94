/* commands/models/identity.h - a model's files told from others, and from what they were before. */
#ifndef MODELS_IDENTITY_H
#define MODELS_IDENTITY_H

#include <stdint.h>

/* A number made of the names, sizes and times of a folder's files, and the text of config.json. 0: the folder cannot be
 * read, and nothing that depends on its files should be kept. Any thread. */
uint64_t identity_of_folder(const char *dir);

#endif
