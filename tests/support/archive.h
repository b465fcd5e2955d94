/* tests/support/archive.h - writes tar archives for tests, valid or malformed. */
#ifndef TESTS_SUPPORT_ARCHIVE_H
#define TESTS_SUPPORT_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct archive { /* zeroed initially */
    unsigned char *data;
    size_t bytes;
};

/* Adds a header: kind '0' a file, '5' a folder, '1' a hard link, ...; size: the declared number of bytes after it. */
void archive_header(struct archive *a, char kind, const char *name, const char *link, uint64_t size);
/* Adds bytes, padded with zeros to the next block. */
void archive_bytes(struct archive *a, const void *data, size_t bytes);
/* Adds header and bytes of a file. */
void archive_file(struct archive *a, const char *name, const void *data, size_t bytes);
/* Adds all plain files of a folder, with `prefix` before their names. */
void archive_folder(struct archive *a, const char *dir, const char *prefix);

/* Adds the two final blocks if `end`; compresses if the path ends in "gz". Dies on failure; frees the archive's
 * memory. */
void archive_write(struct archive *a, bool end, const char *path);

#endif
