/* base/files.h - small files that others read while they change: replaced atomically, never partly written. */
#ifndef BASE_FILES_H
#define BASE_FILES_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

/* Whether anything exists at this path. A dangling link counts: opening it reports the error, so a file that a user
 * has put there is never taken for absent. */
bool files_present(const char *path);

/* Whether this path may be replaced, now and later: it is a regular file, or absent in a writable folder. A device or
 * pipe would be destroyed. option: "--metrics-file", for the message. */
int files_check_replaceable(const char *path, const char *option, struct err *e);

/* Write PATH.PID.tmp with this mode, then rename it to PATH, unless PATH is something other than a regular file. */
int files_replace(const char *path, const char *text, size_t bytes, mode_t mode, struct err *e);

/* The same for a JSON object (NULL: out of memory), followed by a newline. */
int files_replace_json(const char *path, const json_t *object, mode_t mode, struct err *e);

/* The same, and syncs file and folder before it returns. */
int files_replace_json_synced(const char *path, const json_t *object, mode_t mode, struct err *e);

/* Syncs the folder of this path, after a file was renamed or created in it. */
int files_sync_folder(const char *path, struct err *e);

/* The identity of the file at a path, which may be replaced at any time. All zero: unknown. */
struct file_mark {
    bool known;
    dev_t device;
    ino_t inode;
    struct timespec written; /* inode numbers of removed files are reused */
};

void files_mark(struct file_mark *m, const char *path);

/* Remove the file at the path if it is still the one of the mark, which is empty afterwards. */
void files_remove_marked(struct file_mark *m, const char *path);

#endif
