/* commands/models/discover.h - the models of a folder, by name: its subfolders that have a config.json, repositories
 * where the folder is a cache of the Hub (base/repository.h), and archives. */
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
    char **below;   /* [n] of a repository in a cache of the Hub its revision's folder in the folder; NULL: its name */
    int n;
};

/* Names are UTF-8 without control characters, do not begin with a dot, and are no longer than above; other entries of
 * the folder are named in a warning, except for files and hidden ones. Links count if the server's user or root owns
 * them. archives: they are models, too; a folder takes precedence over an archive of its name. Returns -1 and *e if
 * there is no model. */
int discover_models(const char *dir, bool archives, struct discovered *d, struct err *e);
void discover_close(struct discovered *d);

/* The number of this name, of `bytes` bytes; -1: there is no such model. */
int discover_find(const struct discovered *d, const char *name, size_t bytes);

#endif
