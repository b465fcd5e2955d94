/* tests/fuzz/fuzz_tar.c - libFuzzer target for archives of models: for any bytes, compressed or not, every extracted
 * path leads downwards, sizes equal the bytes read, and a refusal names its cause. */
#include "coordinator/archives/tar.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch.h"

#include <stdio.h>

static void check_path(const struct tar_entry *entry)
{
    char path[TAR_PATH_BYTES + 2];
    (void)snprintf(path, sizeof path, "/%s/", entry->path);
    must(entry->path[0] != '/' && strstr(path, "/../") == NULL && strstr(path, "/./") == NULL);
    must(entry->path[0] == '\0' || strstr(path, "//") == NULL);
    must(entry->path[0] != '\0' || entry->is_folder);
    for (const char *c = entry->path; *c != '\0'; c++)
        must((unsigned char)*c >= 0x20 && *c != 0x7f);
}

/* Reads the whole file, or up to a megabyte of it. */
static int read_file(struct tar *t, const struct tar_entry *entry, struct err *e)
{
    static char to[4096];
    uint64_t all = 0;
    for (size_t got = 1; got > 0 && all < 1 << 20; all += got)
        if (tar_read(t, to, sizeof to, &got, e) != 0)
            return -1;
    must(all >= 1 << 20 || all == entry->bytes);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[sizeof scratch + 20];
    struct tar t = {0};
    struct tar_entry entry;
    struct err e = {0};
    int n = 0, more = 1;
    scratch_write("x.tar.gz", data, size);
    (void)snprintf(path, sizeof path, "%s/x.tar.gz", scratch);
    if (tar_open(&t, path, &e) != 0)
        return 0;
    while (n++ < 1000 && more > 0 && (more = tar_next(&t, &entry, &e)) > 0) {
        check_path(&entry);
        if (!entry.is_folder && n % 2 == 0 && read_file(&t, &entry, &e) != 0)
            more = -1;
    }
    must((more < 0) == (e.code != ERR_NONE) && (more >= 0 || strstr(e.text, "x.tar.gz") != NULL));
    tar_close(&t);
    return 0;
}
