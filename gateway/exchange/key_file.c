/* gateway/exchange/key_file.c - see key_file.h. */
#include "gateway/exchange/key_file.h"
#include "base/log.h"

#include <stdbool.h>
#include <string.h>

#define LOOK_SECONDS 1

/* false: it is as it was. A file that is absent for a moment, while an editor replaces it, has not changed. */
static bool has_changed(struct key_file *f)
{
    const struct stat before = f->seen;
    struct stat now;
    if (stat(f->path, &now) != 0)
        return false;
    f->seen = now;
    return now.st_dev != before.st_dev || now.st_ino != before.st_ino || now.st_size != before.st_size ||
           now.st_mode != before.st_mode || now.st_mtim.tv_sec != before.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != before.st_mtim.tv_nsec;
}

/* Takes over the keys. One that was there before keeps its number. */
static void take_keys(struct key_file *f, const struct keys *keys)
{
    for (struct key *k = keys->one; k < keys->one + keys->n; k++) {
        const struct key *old = f->keys.one, *end = f->keys.one + f->keys.n;
        while (old < end && strcmp(old->text, k->text) != 0)
            old++;
        k->number = old < end ? old->number : ++f->last_number;
    }
    keys_free(&f->keys);
    f->keys = *keys;
}

static void read_again(struct due *d)
{
    struct key_file *f = (struct key_file *)((char *)d - offsetof(struct key_file, look));
    struct keys keys;
    struct err e = {0};
    due_set(f->loop, &f->looks, &f->look);
    if (!has_changed(f))
        return;
    if (keys_read(&keys, f->path, &e) != 0) {
        log_warn("%s; the keys stay as they were", e.text);
        return;
    }
    take_keys(f, &keys);
    log_note("--api-keys %s: %zu keys are in force from now on", f->path, keys.n);
}

int key_file_open(struct key_file *f, const char *path, struct loop *l, struct err *e)
{
    struct keys keys;
    *f = (struct key_file){.path = path, .loop = l, .looks = {.seconds = LOOK_SECONDS, .come = read_again}};
    if (path == NULL)
        return 0;
    (void)has_changed(f);
    if (keys_read(&keys, path, e) != 0)
        return -1;
    take_keys(f, &keys);
    loop_add_list(l, &f->looks);
    due_set(l, &f->looks, &f->look);
    return 0;
}

void key_file_close(struct key_file *f)
{
    keys_free(&f->keys);
}
