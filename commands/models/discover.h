/* commands/models/discover.h - the models of a folder, by name: its subfolders that have a config.json, and
 * archives. */
#ifndef MODELS_DISCOVER_H
#define MODELS_DISCOVER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define DISCOVER_MAX_MODELS 4096
#define DISCOVER_NAME_BYTES 128 /* of a name, with its end */

struct discovered {
    char **name;    /* [n] in ascending order of bytes; owned */
    char **archive; /* [n] the file's name in the folder, owned; NULL: the model is a folder */
    int n;
};

/* Names are UTF-8 without control characters, do not begin with a dot, and are no longer than above; what else
 * lies in the folder is named in a warning, but for files and hidden things. Links count where they are the server's
 * user's, or root's. archives: they are models, too; a folder goes before an archive of its name. At least one model is
 * there, or -1 and *e. */
int discover_models(const char *dir, bool archives, struct discovered *d, struct err *e);
void discover_close(struct discovered *d);

/* The number of this name, of `bytes` bytes; -1: there is no such model. */
int discover_find(const struct discovered *d, const char *name, size_t bytes);

#endif
