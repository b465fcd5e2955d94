/* coordinator/archives/cache.c - see cache.h. A folder is unpacked under a name that begins with a dot, and renamed
 * when it is complete; before it is removed, it is renamed back. So a folder with a model's name is always complete,
 * whenever a job ends. */
#include "coordinator/archives/cache.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "coordinator/archives/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#define LOCK     ".lock"
#define HALF     ".half"    /* being unpacked */
#define LEAVING  ".leaving" /* being removed */
#define DIGITS   16
#define MOST_FDS 16

/* ---- folders ---- */

static _Thread_local int64_t summed;

static int add_size(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)path;
    (void)at;
    summed += unpack_on_disk(kind == FTW_F ? (int64_t)info->st_size : 0);
    return 0;
}

static int64_t bytes_of(const char *path)
{
    summed = 0;
    (void)nftw(path, add_size, MOST_FDS, FTW_PHYS);
    return summed;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

static void remove_folder(const struct archive_cache *c, const char *name)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", c->dir, name);
    if (nftw(path, remove_one, MOST_FDS, FTW_PHYS | FTW_DEPTH) != 0 && errno != ENOENT)
        log_warn("--models-cache: %s cannot be removed: %s", path, strerror(errno));
}

static int64_t free_bytes(const struct archive_cache *c)
{
    struct statvfs s;
    if (statvfs(c->dir, &s) != 0)
        return INT64_MAX;
    return (int64_t)s.f_bavail * (int64_t)s.f_frsize;
}

/* ---- the list ---- */

static struct archive_folder *find_folder(struct archive_cache *c, const char *name)
{
    struct archive_folder *f = c->first;
    while (f != NULL && strcmp(f->name, name) != 0)
        f = f->next;
    return f;
}

static struct archive_folder *add_folder(struct archive_cache *c, const char *name, int64_t bytes, struct err *e)
{
    struct archive_folder *f = err_calloc(e, 1, sizeof *f, "unpacked archive");
    if (f == NULL)
        return NULL;
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    f->bytes = bytes;
    f->used = ++c->n_uses;
    f->next = c->first;
    c->first = f;
    c->bytes += bytes;
    return f;
}

/* Removes the least recently used folder that is not in use; false: there is none. Called with the mutex. */
static bool evict(struct archive_cache *c)
{
    struct archive_folder **at = NULL;
    for (struct archive_folder **f = &c->first; *f != NULL; f = &(*f)->next)
        if ((*f)->n_users == 0 && (at == NULL || (*f)->used < (*at)->used))
            at = f;
    if (at == NULL)
        return false;
    struct archive_folder *gone = *at;
    char from[PATH_MAX], to[PATH_MAX];
    (void)snprintf(from, sizeof from, "%s/%s", c->dir, gone->name);
    (void)snprintf(to, sizeof to, "%s/" LEAVING, c->dir);
    (void)rename(from, to);
    remove_folder(c, LEAVING);
    log_note("--models-cache: %s is removed: %lld bytes", gone->name, (long long)gone->bytes);
    *at = gone->next;
    c->bytes -= gone->bytes;
    free(gone);
    return true;
}

/* struct unpack_owner: while an archive is unpacked, its bytes are added to those of the list. */
static int make_room(void *context, int64_t bytes, int64_t more, struct err *e)
{
    struct archive_cache *c = context;
    (void)pthread_mutex_lock(&c->mutex);
    while (bytes <= c->limit && (bytes > c->limit - c->bytes || free_bytes(c) < more) && evict(c))
        continue;
    int64_t others = c->bytes, spare = free_bytes(c);
    (void)pthread_mutex_unlock(&c->mutex);
    if (bytes > c->limit - others)
        return ERR(
            e, ERR_MEMORY,
            "unpacked it takes at least %lld bytes; --models-cache may hold %lld, of which models that are in use "
            "have %lld",
            (long long)bytes, (long long)c->limit, (long long)others);
    if (more > spare)
        return ERR(e, ERR_MEMORY,
                   "unpacked it takes at least %lld bytes, %lld of them now; the file system of "
                   "--models-cache has %lld free",
                   (long long)bytes, (long long)more, (long long)spare);
    return 0;
}

/* ---- opening ---- */

static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    return name[0] != '.' && n > DIGITS + 1 && n < ARCHIVES_NAME_BYTES && name[n - DIGITS - 1] == '.' &&
           strspn(name + n - DIGITS, "0123456789abcdef") == DIGITS;
}

/* The contents of the folder, in the order of use. */
struct found {
    char name[ARCHIVES_NAME_BYTES];
    struct timespec used;
};

static int earlier(const void *a, const void *b)
{
    const struct timespec *x = &((const struct found *)a)->used, *y = &((const struct found *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static int look_at(const struct archive_cache *c, const char *name, struct found **list, size_t *n, struct err *e)
{
    char path[PATH_MAX];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/%.255s", c->dir, name);
    if (!is_ours(name) || lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return 0;
    struct found *more = realloc(*list, (*n + 1) * sizeof *more);
    if (more == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: --models-cache %.200s", c->dir);
    *list = more;
    (void)snprintf(more[*n].name, sizeof more[*n].name, "%.191s", name);
    more[(*n)++].used = info.st_mtim;
    return 0;
}

static int scan(struct archive_cache *c, struct err *e)
{
    struct found *list = NULL;
    size_t n = 0;
    DIR *folder = opendir(c->dir);
    if (folder == NULL)
        return ERR(e, ERR_INPUT, "--models-cache %.200s: %s", c->dir, strerror(errno));
    for (struct dirent *entry; e->code == ERR_NONE && (entry = readdir(folder)) != NULL;)
        (void)look_at(c, entry->d_name, &list, &n, e);
    (void)closedir(folder);
    if (n > 0)
        qsort(list, n, sizeof *list, earlier);
    for (size_t i = 0; i < n && e->code == ERR_NONE; i++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/%s", c->dir, list[i].name);
        (void)add_folder(c, list[i].name, bytes_of(path), e);
    }
    free(list);
    return e->code == ERR_NONE ? 0 : -1;
}

/* Other users could put links or other weights into the folder. */
static int check_owner(const char *dir, struct err *e)
{
    struct stat info;
    if (stat(dir, &info) != 0)
        return ERR(e, ERR_INPUT, "--models-cache %.200s: %s", dir, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ERR(e, ERR_INPUT, "--models-cache %.200s: not a folder", dir);
    if (info.st_uid != geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return ERR(
            e, ERR_INPUT,
            "--models-cache %.200s: found owner %u and mode %03o, expected a folder that only user %u can write to",
            dir, (unsigned)info.st_uid, (unsigned)info.st_mode & 0777, (unsigned)geteuid());
    return 0;
}

static int take_lock(struct archive_cache *c, struct err *e)
{
    char path[PATH_MAX];
    uint64_t number[2] = {0};
    (void)snprintf(path, sizeof path, "%s/" LOCK, c->dir);
    c->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (c->lock < 0)
        return ERR(e, ERR_IO, "%.200s: cannot open: %s", path, strerror(errno));
    c->open = true;
    if (flock(c->lock, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? ERR(e, ERR_INPUT, "--models-cache %.200s: another job uses it", c->dir)
                                    : ERR(e, ERR_IO, "%.200s: cannot be locked: %s", path, strerror(errno));
    if (getrandom(number, sizeof number, 0) != (ssize_t)sizeof number)
        return ERR(e, ERR_IO, "--models-cache: no random number: %s", strerror(errno));
    (void)snprintf(c->token, sizeof c->token, "%016llx%016llx", (unsigned long long)number[0],
                   (unsigned long long)number[1]);
    if (ftruncate(c->lock, 0) != 0 || pwrite(c->lock, c->token, strlen(c->token), 0) != (ssize_t)strlen(c->token) ||
        fsync(c->lock) != 0)
        return ERR(e, ERR_IO, "%.200s: cannot be written: %s", path, strerror(errno));
    return 0;
}

int archive_cache_open(struct archive_cache *c, const char *dir, int64_t limit, struct err *e)
{
    memset(c, 0, sizeof *c);
    (void)pthread_mutex_init(&c->mutex, NULL);
    if (snprintf(c->dir, sizeof c->dir, "%s", dir) >= (int)sizeof c->dir)
        return ERR(e, ERR_INPUT, "--models-cache: the path has %zu bytes, at most %zu are accepted", strlen(dir),
                   sizeof c->dir - 1);
    if (mkdir(dir, 0755) != 0 && errno != EEXIST)
        return ERR(e, ERR_IO, "--models-cache %.200s: cannot be created: %s", dir, strerror(errno));
    if (check_owner(dir, e) != 0 || take_lock(c, e) != 0)
        return -1;
    remove_folder(c, HALF);
    remove_folder(c, LEAVING);
    if (scan(c, e) != 0)
        return -1;
    c->limit = limit >= 0 ? limit : (free_bytes(c) + c->bytes) / 10 * 9;
    return 0;
}

void archive_cache_close(struct archive_cache *c)
{
    if (!c->open)
        return;
    for (struct archive_folder *f; (f = c->first) != NULL; free(f))
        c->first = f->next;
    (void)close(c->lock);
    (void)pthread_mutex_destroy(&c->mutex);
    c->open = false;
}

int archive_cache_check(const char *dir, const char *token, struct err *e)
{
    char path[PATH_MAX], found[40] = "";
    (void)snprintf(path, sizeof path, "%.2047s/" LOCK, dir);
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, found, sizeof found - 1) : -1;
    if (fd >= 0)
        (void)close(fd);
    if (n == (ssize_t)strlen(token) && strcmp(found, token) == 0)
        return 0;
    return ERR(
        e, ERR_INPUT,
        "--models-cache %.200s: files that rank 0 has written are missing; expected a file system that all hosts share",
        dir);
}

/* ---- taking and releasing ---- */

/* The folder's name, which differs if another file has the archive's name. */
static int name_folder(const char *archive, const char *name, char *out, struct err *e)
{
    char text[PATH_MAX + 100];
    struct stat info;
    if (stat(archive, &info) != 0)
        return ERR(e, ERR_IO, "%.200s: %s", archive, strerror(errno));
    int n = snprintf(text, sizeof text, "%s\n%lld %lld.%09ld %llu", archive, (long long)info.st_size,
                     (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec, (unsigned long long)info.st_ino);
    if (n < 0 || n >= (int)sizeof text ||
        snprintf(out, ARCHIVES_NAME_BYTES, "%s.%016llx", name, (unsigned long long)XXH3_64bits(text, (size_t)n)) >=
            ARCHIVES_NAME_BYTES)
        return ERR(e, ERR_INPUT, "%.200s: the path is too long", archive);
    return 0;
}

/* The folder of config.json: this one, or the only one in it. */
static void find_files(const char *folder, char *path)
{
    char inner[PATH_MAX], only[NAME_MAX + 1] = "";
    int n = 0;
    (void)snprintf(path, PATH_MAX, "%s", folder);
    (void)snprintf(inner, sizeof inner, "%.3000s/config.json", folder);
    DIR *d = files_present(inner) ? NULL : opendir(folder);
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && n++ == 0)
            (void)snprintf(only, sizeof only, "%s", entry->d_name);
    if (d != NULL)
        (void)closedir(d);
    (void)snprintf(inner, sizeof inner, "%.3000s/%s/config.json", folder, only);
    if (n == 1 && files_present(inner))
        (void)snprintf(path, PATH_MAX, "%.3000s/%s", folder, only);
}

static int unpack_to(struct archive_cache *c, const char *archive, const char *name, int64_t *bytes, struct err *e)
{
    const struct unpack_owner owner = {c, make_room, &c->cancel};
    char half[PATH_MAX], whole[PATH_MAX];
    (void)snprintf(half, sizeof half, "%s/" HALF, c->dir);
    (void)snprintf(whole, sizeof whole, "%s/%s", c->dir, name);
    remove_folder(c, HALF);
    int fd = mkdir(half, 0755) == 0 ? open(half, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (fd < 0)
        return ERR(e, errno == ENOSPC || errno == EDQUOT ? ERR_MEMORY : ERR_IO, "%.200s: cannot be made: %s", half,
                   strerror(errno));
    int rc = unpack_archive(archive, fd, &owner, bytes, e);
    (void)close(fd);
    if (rc == 0 && rename(half, whole) != 0)
        rc = ERR(e, ERR_IO, "%.200s: cannot be renamed: %s", half, strerror(errno));
    if (rc == 0 && (rc = files_sync_folder(whole, e)) != 0)
        remove_folder(c, name);
    if (rc != 0)
        remove_folder(c, HALF);
    return rc;
}

/* Adds the user for whom the folder was found or unpacked. */
static struct archive_folder *use(struct archive_cache *c, const char *name, int64_t bytes, bool unpacked,
                                  struct err *e)
{
    (void)pthread_mutex_lock(&c->mutex);
    struct archive_folder *f = unpacked ? add_folder(c, name, bytes, e) : find_folder(c, name);
    if (f != NULL) {
        f->n_users++;
        f->used = ++c->n_uses;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return f;
}

struct archive_folder *archive_cache_take(struct archive_cache *c, const char *archive, const char *name, char *path,
                                          double *seconds, struct err *e)
{
    char folder[PATH_MAX], id[ARCHIVES_NAME_BYTES];
    double began = seconds_now();
    int64_t bytes = 0;
    *seconds = 0;
    if (name_folder(archive, name, id, e) != 0)
        return NULL;
    struct archive_folder *f = use(c, id, 0, false, e);
    if (f == NULL) {
        if (unpack_to(c, archive, id, &bytes, e) != 0 || (f = use(c, id, bytes, true, e)) == NULL)
            return NULL;
        *seconds = seconds_now() - began;
    }
    (void)snprintf(folder, sizeof folder, "%s/%s", c->dir, id);
    (void)utimensat(AT_FDCWD, folder, NULL, 0); /* the order of use, for the next job */
    find_files(folder, path);
    return f;
}

void archive_cache_release(struct archive_cache *c, struct archive_folder *f)
{
    if (f == NULL)
        return;
    (void)pthread_mutex_lock(&c->mutex);
    f->n_users--;
    f->used = ++c->n_uses;
    (void)pthread_mutex_unlock(&c->mutex);
}

int64_t archive_cache_bytes(struct archive_cache *c)
{
    (void)pthread_mutex_lock(&c->mutex);
    int64_t bytes = c->bytes;
    (void)pthread_mutex_unlock(&c->mutex);
    return bytes;
}
