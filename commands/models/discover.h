/* commands/models/discover.h - the models of a folder: its subfolders that have a config.json, by name. */
#ifndef MODELS_DISCOVER_H
#define MODELS_DISCOVER_H

#include "base/err.h"

#include <stddef.h>

#define DISCOVER_MAX_MODELS 4096
#define DISCOVER_NAME_BYTES 128 /* of a name, with its end */

struct discovered {
    char **name; /* [n] in ascending order of bytes; owned */
    int n;
};

/* Names are UTF-8 without control characters, do not begin with a point, and are no longer than above; what else
 * lies in the folder is named in a warning, but for files and hidden things. At least one model is there, or -1 and
 * *e. */
int discover_models(const char *dir, struct discovered *d, struct err *e);
void discover_close(struct discovered *d);

/* The number of this name, of `bytes` bytes; -1: there is no such model. */
int discover_find(const struct discovered *d, const char *name, size_t bytes);

#endif
