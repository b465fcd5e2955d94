/* coordinator/batch/apart.c - see apart.h. */
#include "coordinator/batch/apart.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target of a path: a file, or a name that does not exist yet. */
struct target {
    bool used, exists;
    dev_t device;
    ino_t inode;
    char name[PATH_MAX + 256]; /* the resolved folder, and the name in it, if the file does not exist */
};

static void find_target(struct target *p, const char *path)
{
    char folder[PATH_MAX], real[PATH_MAX];
    struct stat st;
    *p = (struct target){.used = path != NULL && strcmp(path, "-") != 0};
    if (!p->used)
        return;
    if (stat(path, &st) == 0) {
        p->exists = true;
        p->device = st.st_dev;
        p->inode = st.st_ino;
        return;
    }
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    (void)snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1,
                   slash != NULL ? path : ".");
    bool found = realpath(folder, real) != NULL; /* otherwise writing there will fail */
    (void)snprintf(p->name, sizeof p->name, "%s/%.250s", found ? real : folder, name);
}

static bool same_target(const struct target *a, const struct target *b)
{
    if (!a->used || !b->used || a->exists != b->exists)
        return false;
    return a->exists ? a->device == b->device && a->inode == b->inode : strcmp(a->name, b->name) == 0;
}

static int refuse_same(const struct apart_file *a, const char *option, const char *path, struct err *e)
{
    return ERR(e, ERR_USAGE, "%s %.180s: the same file as %s %.180s", a->option, a->path, option, path);
}

int apart_check(const struct apart_file *file, int n, const struct inputs *in, struct err *e)
{
    struct target target[APART_MAX];
    for (int i = 0; i < n; i++) {
        find_target(&target[i], file[i].path);
        for (int k = 0; k < i; k++)
            if (same_target(&target[i], &target[k]))
                return refuse_same(&file[i], file[k].option, file[k].path, e);
        for (int k = 0; k < in->n && target[i].exists; k++)
            if (in->file[k].stat.st_dev == target[i].device && in->file[k].stat.st_ino == target[i].inode)
                return refuse_same(&file[i], "--input", in->file[k].path, e);
    }
    return 0;
}
