/* commands/models/identity.h - a fingerprint of a model's files, to detect other or changed files. */
#ifndef MODELS_IDENTITY_H
#define MODELS_IDENTITY_H

#include <stdint.h>

/* A number made of the names, sizes and times of a folder's files, and the text of config.json. 0: the folder cannot be
 * read, and nothing derived from its files should be cached. Any thread. */
uint64_t identity_of_folder(const char *dir);

#endif
