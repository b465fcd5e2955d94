/* tests/support/archive.c - see archive.h. */
#include "tests/support/archive.h"
#include "tests/support/files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define BLOCK 512

static unsigned char *grow(struct archive *a, size_t bytes)
{
    a->data = realloc(a->data, a->bytes + bytes + 1);
    if (a->data == NULL)
        exit(99);
    memset(a->data + a->bytes, 0, bytes);
    a->bytes += bytes;
    return a->data + a->bytes - bytes;
}

static void put_field(unsigned char *field, size_t bytes, const char *text)
{
    size_t n = strlen(text);
    memcpy(field, text, n < bytes ? n : bytes);
}

void archive_header(struct archive *a, char kind, const char *name, const char *link, uint64_t size)
{
    unsigned char *h = grow(a, BLOCK);
    char text[40];
    unsigned sum = 0;
    put_field(h, 100, name);
    put_field(h + 100, 8, "0000777");
    (void)snprintf(text, sizeof text, "%011llo", (unsigned long long)size);
    put_field(h + 124, 12, text);
    put_field(h + 136, 12, "00000000000");
    memset(h + 148, ' ', 8);
    h[156] = (unsigned char)kind;
    put_field(h + 157, 100, link);
    put_field(h + 257, 6, "ustar");
    put_field(h + 263, 2, "00");
    for (int i = 0; i < BLOCK; i++)
        sum += h[i];
    (void)snprintf(text, sizeof text, "%06o", sum);
    memcpy(h + 148, text, 7);
}

void archive_bytes(struct archive *a, const void *data, size_t bytes)
{
    unsigned char *to = grow(a, (bytes + BLOCK - 1) / BLOCK * BLOCK);
    if (bytes > 0)
        memcpy(to, data, bytes);
}

void archive_file(struct archive *a, const char *name, const void *data, size_t bytes)
{
    archive_header(a, '0', name, "", bytes);
    archive_bytes(a, data, bytes);
}

void archive_folder(struct archive *a, const char *dir, const char *prefix)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        exit(99);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        char path[600], name[400];
        struct stat info;
        size_t bytes = 0;
        (void)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        (void)snprintf(name, sizeof name, "%s%s", prefix, entry->d_name);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        char *data = files_read(dir, entry->d_name, &bytes);
        archive_file(a, name, data, bytes);
        free(data);
    }
    (void)closedir(d);
}

void archive_write(struct archive *a, bool end, const char *path)
{
    bool packed = strcmp(path + strlen(path) - 2, "gz") == 0;
    if (end)
        (void)grow(a, 2 * BLOCK);
    gzFile f = gzopen(path, packed ? "wb1" : "wbT");
    if (f == NULL || gzwrite(f, a->data, (unsigned)a->bytes) != (int)a->bytes || gzclose(f) != Z_OK)
        exit(99);
    free(a->data);
    *a = (struct archive){0};
}
