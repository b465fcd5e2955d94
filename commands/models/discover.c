/* commands/models/discover.c - see discover.h. */
#include "commands/models/discover.h"
#include "base/files.h"
#include "base/log.h"
#include "base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ENTRIES 65536 /* of the folder, that are looked at */
#define ARCHIVE     ".tar.gz"

static bool is_good_name(const char *name)
{
    size_t n = strlen(name);
    if (n >= DISCOVER_NAME_BYTES || utf8_invalid_at(name, n) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return true;
}

static bool is_folder(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat s;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && n < (int)sizeof path && stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static bool is_model(const char *dir, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s/config.json", dir, name);
    return n > 0 && n < (int)sizeof path && files_present(path);
}

static bool is_archive(const char *name)
{
    size_t n = strlen(name), tail = sizeof ARCHIVE - 1;
    return n > tail && strcmp(name + n - tail, ARCHIVE) == 0;
}

/* A name as a warning shows it. */
static void warn(const char *name, const char *why)
{
    char shown[3 * NAME_MAX + 1];
    shown[utf8_repair(shown, sizeof shown - 1, name, strlen(name))] = '\0';
    for (char *c = shown; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    log_warn("--models-dir: %s is left out: %s", shown, why);
}

static int add(struct discovered *d, const char *name, struct err *e)
{
    if (d->n == DISCOVER_MAX_MODELS)
        return ERR(e, ERR_UNSUPPORTED, "--models-dir: more than %d models", DISCOVER_MAX_MODELS);
    d->name[d->n] = strdup(name);
    if (d->name[d->n] == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: names of models");
    d->n++;
    return 0;
}

static int look_at(const char *dir, const char *name, struct discovered *d, struct err *e)
{
    if (name[0] == '.')
        return 0;
    if (is_archive(name))
        warn(name, "archives are not unpacked; unpack it into a folder");
    else if (!is_folder(dir, name))
        return 0;
    else if (!is_good_name(name))
        warn(name, "a model's name is UTF-8 without control characters, of less than 128 bytes");
    else if (!is_model(dir, name))
        warn(name, "there is no config.json in it");
    else
        return add(d, name, e);
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int discover_models(const char *dir, struct discovered *d, struct err *e)
{
    *d = (struct discovered){.name = err_calloc(e, DISCOVER_MAX_MODELS, sizeof *d->name, "names of models")};
    DIR *folder = d->name != NULL ? opendir(dir) : NULL;
    if (folder == NULL)
        return e->code != ERR_NONE ? -1 : ERR(e, ERR_INPUT, "--models-dir %s: %s", dir, strerror(errno));
    int n = 0;
    for (struct dirent *entry; e->code == ERR_NONE && n < MAX_ENTRIES && (entry = readdir(folder)) != NULL; n++)
        (void)look_at(dir, entry->d_name, d, e);
    (void)closedir(folder);
    if (e->code == ERR_NONE && n == MAX_ENTRIES)
        return ERR(e, ERR_INPUT, "--models-dir %s: more than %d entries", dir, MAX_ENTRIES);
    if (e->code == ERR_NONE && d->n == 0)
        return ERR(e, ERR_INPUT, "--models-dir %s: found no folder with a config.json, expected one for each model",
                   dir);
    qsort(d->name, (size_t)d->n, sizeof *d->name, compare);
    return e->code == ERR_NONE ? 0 : -1;
}

void discover_close(struct discovered *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->name[i]);
    free(d->name);
    *d = (struct discovered){0};
}

int discover_find(const struct discovered *d, const char *name, size_t bytes)
{
    for (int i = 0; i < d->n; i++)
        if (strlen(d->name[i]) == bytes && memcmp(d->name[i], name, bytes) == 0)
            return i;
    return -1;
}
