/* coordinator/server/files.h - small files that others read while they change: replaced whole, never half written. */
#ifndef SERVER_FILES_H
#define SERVER_FILES_H

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>
#include <sys/types.h>

/* Write PATH.PID.tmp with this mode, then rename it to PATH. */
int files_replace(const char *path, const char *text, size_t bytes, mode_t mode, struct err *e);

/* The same with an object (NULL: out of memory) and a newline. */
int files_replace_json(const char *path, const json_t *object, mode_t mode, struct err *e);

#endif
