/* coordinator/archives/tar.h - a tar archive, compressed by gzip or not, read once from front to back. It may contain
 * only files and folders; everything in it is hostile until checked. */
#ifndef ARCHIVES_TAR_H
#define ARCHIVES_TAR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_PATH_BYTES 1024
#define TAR_MAX_DEPTH  16    /* nested folders */
#define TAR_MAX_PARTS  20000 /* files and folders of an archive */

struct tar_entry {
    char path[TAR_PATH_BYTES]; /* relative, UTF-8 without control characters, no part of it is "", "." or ".." */
    bool is_folder;
    uint64_t bytes; /* of a file */
};

struct tar {
    struct gzFile_s *file;
    const char *what;       /* the archive's name in messages; borrowed */
    uint64_t archive_bytes; /* on disk */
    uint64_t left, padding; /* bytes of the file still to be read, and zeros after them */
    int n_parts;
};

/* A regular file at this path, which is not followed if it is a pipe or a device. path is borrowed. */
int tar_open(struct tar *t, const char *path, struct err *e);
void tar_close(struct tar *t); /* safe on a zeroed struct */

/* The next file or folder; unread bytes of the previous one are skipped. 1: it is in *entry; 0: the end, and gzip's
 * checksum was right; -1: *e. */
int tar_next(struct tar *t, struct tar_entry *entry, struct err *e);

/* Up to n bytes of the file; *got 0: its end. */
int tar_read(struct tar *t, void *to, size_t n, size_t *got, struct err *e);

#endif
