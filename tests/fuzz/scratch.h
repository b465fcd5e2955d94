/* tests/fuzz/scratch.h - a folder in memory for fuzzers of functions that read files by name; removed when the fuzzer
 * ends. */
#ifndef TESTS_FUZZ_SCRATCH_H
#define TESTS_FUZZ_SCRATCH_H

#include "tests/fuzz/fuzz.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char scratch[64];

static inline int scratch_remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void scratch_remove(void)
{
    (void)nftw(scratch, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Returns the path of a file in the folder. Valid for three further calls. */
static inline const char *scratch_path(const char *name)
{
    static char path[4][sizeof scratch + NAME_MAX + 2];
    static int next;
    if (scratch[0] == '\0') {
        strcpy(scratch, "/dev/shm/lockstep-fuzz-XXXXXX");
        must(mkdtemp(scratch) != NULL && atexit(scratch_remove) == 0);
    }
    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[next], "%s/%s", scratch, name);
    return path[next];
}

static inline void scratch_write(const char *name, const void *data, size_t bytes)
{
    FILE *f = fopen(scratch_path(name), "we");
    must(f != NULL && (bytes == 0 || fwrite(data, 1, bytes, f) == bytes) && fclose(f) == 0);
}

#endif
