/* tests/support/archive.h - writes tar archives for tests, valid or malformed. */
#ifndef TESTS_SUPPORT_ARCHIVE_H
#define TESTS_SUPPORT_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct archive { /* zeroed at first */
    unsigned char *data;
    size_t bytes;
};

/* A header: kind '0' a file, '5' a folder, '1' a hard link, ...; size: the declared number of bytes that follow. */
void archive_header(struct archive *a, char kind, const char *name, const char *link, uint64_t size);
/* Bytes and zeros to the next block. */
void archive_bytes(struct archive *a, const void *data, size_t bytes);
/* Header and bytes of a file. */
void archive_file(struct archive *a, const char *name, const void *data, size_t bytes);
/* All plain files of a folder, their names behind `prefix`. */
void archive_folder(struct archive *a, const char *dir, const char *prefix);

/* The two blocks at the end if `end`; compressed if the path ends in "gz". Dies on failure; frees what there is. */
void archive_write(struct archive *a, bool end, const char *path);

#endif
