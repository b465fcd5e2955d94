/* commands/models/identity.c - see identity.h. */
#include "commands/models/identity.h"
#include "base/json.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#define MAX_CONFIG_BYTES ((size_t)4 << 20)

/* A file whose time is that of its last change is another one after it was written, or replaced. */
static uint64_t identity_of_file(const char *name, const struct stat *s)
{
    const uint64_t part[] = {(uint64_t)s->st_dev,         (uint64_t)s->st_ino,          (uint64_t)s->st_size,
                             (uint64_t)s->st_mtim.tv_sec, (uint64_t)s->st_mtim.tv_nsec, (uint64_t)s->st_ctim.tv_sec,
                             (uint64_t)s->st_ctim.tv_nsec};
    return XXH3_64bits_withSeed(name, strlen(name), XXH3_64bits(part, sizeof part));
}

static uint64_t identity_of_config(const char *dir)
{
    char path[PATH_MAX];
    size_t bytes = 0;
    struct err e = {0};
    int n = snprintf(path, sizeof path, "%s/config.json", dir);
    char *text = n > 0 && n < (int)sizeof path ? file_read(path, MAX_CONFIG_BYTES, &bytes, &e) : NULL;
    uint64_t hash = text != NULL ? XXH3_64bits(text, bytes) : 0;
    free(text);
    return hash;
}

/* A sum: a folder has no order. */
uint64_t identity_of_folder(const char *dir)
{
    char path[PATH_MAX];
    struct stat s;
    uint64_t sum = identity_of_config(dir);
    DIR *folder = sum != 0 ? opendir(dir) : NULL;
    if (folder == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int n = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (n > 0 && n < (int)sizeof path && stat(path, &s) == 0 && !S_ISDIR(s.st_mode))
            sum += identity_of_file(entry->d_name, &s);
    }
    (void)closedir(folder);
    return sum;
}
