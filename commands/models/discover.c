/* commands/models/discover.c - see discover.h. */
#include "commands/models/discover.h"
#include "base/files.h"
#include "base/log.h"
#include "base/repository.h"
#include "base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ENTRIES  65536 /* limit of examined entries of the folder */
#define MAX_WARNINGS 20    /* one by one; the others are counted */

/* While the folder is read. */
struct folder_search {
    const char *dir;
    bool archives;
    struct model {
        char *name, *archive, *below;
    } * model; /* [n] of DISCOVER_MAX_MODELS */
    int n, n_warnings;
};

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

/* S_IFDIR, S_IFREG, ..., of a link's target; S_IFLNK: it has none; 0: nothing. *strange: the link belongs to another
 * user. */
static mode_t kind_of(const char *dir, const char *name, bool *strange)
{
    char path[PATH_MAX];
    struct stat link, s;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    *strange = false;
    if (n <= 0 || n >= (int)sizeof path || lstat(path, &link) != 0)
        return 0;
    if (stat(path, &s) != 0)
        return link.st_mode & S_IFMT;
    *strange = S_ISLNK(link.st_mode) && link.st_uid != geteuid() && link.st_uid != 0;
    return s.st_mode & S_IFMT;
}

static bool is_model(const char *dir, const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s/config.json", dir, name);
    return n > 0 && n < (int)sizeof path && files_present(path);
}

/* Bytes of the name before its ".tar.gz" or ".tar"; 0: it is no archive. */
static size_t stem_of(const char *name)
{
    static const char *const end[] = {".tar.gz", ".tar"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof end / sizeof end[0]; i++)
        if (n > strlen(end[i]) && strcmp(name + n - strlen(end[i]), end[i]) == 0)
            return n - strlen(end[i]);
    return 0;
}

/* A name in the form for warnings. */
static void warn(struct folder_search *s, const char *name, const char *why)
{
    char shown[3 * NAME_MAX + 1];
    if (s->n_warnings++ >= MAX_WARNINGS)
        return;
    shown[utf8_repair(shown, sizeof shown - 1, name, strlen(name))] = '\0';
    for (char *c = shown; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    log_warn("--models-dir: %s is left out: %s", shown, why);
}

static int add_model(struct folder_search *s, const char *name, size_t bytes, const char *archive, const char *below,
                     struct err *e)
{
    struct model *m = &s->model[s->n];
    if (s->n == DISCOVER_MAX_MODELS)
        return ERR(e, ERR_UNSUPPORTED, "--models-dir: more than %d models", DISCOVER_MAX_MODELS);
    m->name = strndup(name, bytes);
    m->archive = archive != NULL ? strdup(archive) : NULL;
    m->below = below != NULL ? strdup(below) : NULL;
    if (m->name == NULL || (archive != NULL && m->archive == NULL) || (below != NULL && m->below == NULL))
        return ERR(e, ERR_MEMORY, "out of host memory: names of models");
    s->n++;
    return 0;
}

static int look_at_archive(struct folder_search *s, const char *name, size_t stem, struct err *e)
{
    char model[NAME_MAX + 1];
    (void)snprintf(model, sizeof model, "%.*s", (int)stem, name);
    if (!s->archives)
        warn(s, name, "it is an archive: give --models-cache DIR, or unpack it into a folder");
    else if (!is_good_name(model))
        warn(s, name, "a model's name must be UTF-8 without control characters, of less than 128 bytes");
    else
        return add_model(s, model, stem, name, NULL, e);
    return 0;
}

/* Adds the model of a repository's folder; false: it is none. */
static bool look_at_repository(struct folder_search *s, const char *name, struct err *e)
{
    char path[PATH_MAX];
    struct repository found;
    struct err why = {0};
    int n = snprintf(path, sizeof path, "%s/%s", s->dir, name);
    int rc = n > 0 && n < (int)sizeof path ? repository_find(&found, path, NULL, &why) : 0;
    if (rc == 0)
        return false;
    if (rc < 0)
        warn(s, name, why.text);
    else
        (void)add_model(s, found.name, strlen(found.name), NULL, found.folder + strlen(s->dir) + 1, e);
    return true;
}

static int look_at(struct folder_search *s, const char *name, struct err *e)
{
    bool strange = false;
    if (name[0] == '.')
        return 0;
    mode_t kind = kind_of(s->dir, name, &strange);
    size_t stem = kind == S_IFREG ? stem_of(name) : 0;
    if (kind != S_IFDIR && kind != S_IFLNK && stem == 0)
        return 0;
    if (kind == S_IFLNK)
        warn(s, name, "it is a link to nothing that can be read");
    else if (strange)
        warn(s, name, "it is a link that belongs to another user");
    else if (stem > 0)
        return look_at_archive(s, name, stem, e);
    else if (!is_good_name(name))
        warn(s, name, "a model's name must be UTF-8 without control characters, of less than 128 bytes");
    else if (is_model(s->dir, name))
        return add_model(s, name, strlen(name), NULL, NULL, e);
    else if (!look_at_repository(s, name, e))
        warn(s, name, "there is no config.json in it");
    return e->code == ERR_NONE ? 0 : -1;
}

static int order_of(const struct model *m)
{
    return m->archive != NULL ? 2 : m->below != NULL;
}

/* By name; a folder before a repository, and this before archives, "x.tar" before "x.tar.gz". */
static int compare(const void *a, const void *b)
{
    const struct model *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order == 0)
        order = order_of(x) - order_of(y);
    return order != 0 || x->archive == NULL ? order : strcmp(x->archive, y->archive);
}

static void read_folder(struct folder_search *s, struct err *e)
{
    int n = 0;
    DIR *folder = opendir(s->dir);
    if (folder == NULL) {
        ERR(e, ERR_INPUT, "--models-dir %s: %s", s->dir, strerror(errno));
        return;
    }
    for (struct dirent *entry; e->code == ERR_NONE && n < MAX_ENTRIES && (entry = readdir(folder)) != NULL; n++)
        (void)look_at(s, entry->d_name, e);
    (void)closedir(folder);
    if (n == MAX_ENTRIES)
        ERR(e, ERR_INPUT, "--models-dir %s: more than %d entries", s->dir, MAX_ENTRIES);
    if (s->n == 0)
        ERR(e, ERR_INPUT, "--models-dir %s: found no folder with a config.json%s, expected one for each model", s->dir,
            s->archives ? " and no archive" : "");
    qsort(s->model, (size_t)s->n, sizeof *s->model, compare);
}

/* The first of each name. */
static void take_first(struct folder_search *s, struct discovered *d)
{
    for (int i = 0; i < s->n; i++) {
        struct model *m = &s->model[i];
        if (d->n > 0 && strcmp(d->name[d->n - 1], m->name) == 0) {
            warn(s, m->archive != NULL ? m->archive : m->below, "there is a folder or another archive of this name");
            free(m->name);
            free(m->archive);
            free(m->below);
            continue;
        }
        d->name[d->n] = m->name;
        d->below[d->n] = m->below;
        d->archive[d->n++] = m->archive;
    }
    if (s->n_warnings > MAX_WARNINGS)
        log_warn("--models-dir: %d more are left out", s->n_warnings - MAX_WARNINGS);
}

int discover_models(const char *dir, bool archives, struct discovered *d, struct err *e)
{
    struct folder_search s = {.dir = dir, .archives = archives};
    *d = (struct discovered){.name = err_calloc(e, DISCOVER_MAX_MODELS, sizeof *d->name, "names of models"),
                             .archive = err_calloc(e, DISCOVER_MAX_MODELS, sizeof *d->archive, "names of models"),
                             .below = err_calloc(e, DISCOVER_MAX_MODELS, sizeof *d->below, "names of models")};
    s.model = err_calloc(e, DISCOVER_MAX_MODELS, sizeof *s.model, "names of models");
    if (e->code == ERR_NONE) {
        read_folder(&s, e);
        take_first(&s, d);
    }
    free(s.model);
    return e->code == ERR_NONE ? 0 : -1;
}

void discover_close(struct discovered *d)
{
    for (int i = 0; i < d->n; i++) {
        free(d->name[i]);
        free(d->archive[i]);
        free(d->below[i]);
    }
    free(d->name);
    free(d->archive);
    free(d->below);
    *d = (struct discovered){0};
}

int discover_find(const struct discovered *d, const char *name, size_t bytes)
{
    for (int i = 0; i < d->n; i++)
        if (strlen(d->name[i]) == bytes && memcmp(d->name[i], name, bytes) == 0)
            return i;
    return -1;
}
