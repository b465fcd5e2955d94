/* commands/models/host_cache.c - see host_cache.h. The mapping is never read here: a file that becomes shorter is an
 * error of mlock, not a signal. */
#include "commands/models/host_cache.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)16 << 20) /* bytes locked at a time: then the thread checks whether it is to end */

struct kept_file {
    char *path;
    void *at; /* NULL: not mapped */
    size_t bytes;
    struct stat as; /* it was when it was mapped */
};

struct kept_model {
    struct kept_model *next;
    uint64_t used; /* higher: later */
    bool loaded, wanted;
    /* The thread's: */
    bool held;
    int64_t bytes;
    int n_files;
    char *dir;
    struct kept_file file[];
};

/* ---- mapping and locking; the thread's ---- */

static void let_go(struct host_cache *c, struct kept_model *m)
{
    for (int i = 0; i < m->n_files; i++) {
        if (m->file[i].at != NULL)
            (void)munmap(m->file[i].at, m->file[i].bytes);
        m->file[i].at = NULL;
    }
    if (m->held)
        (void)atomic_fetch_sub(&c->locked, m->bytes);
    m->held = false;
}

/* Gets its size, and checks that it is still the mapped file. */
static bool look_at(struct kept_file *f, bool *same)
{
    struct stat now;
    if (stat(f->path, &now) != 0 || !S_ISREG(now.st_mode))
        return false;
    *same = *same && f->at != NULL && now.st_ino == f->as.st_ino && now.st_dev == f->as.st_dev &&
            now.st_size == f->as.st_size && now.st_mtim.tv_sec == f->as.st_mtim.tv_sec &&
            now.st_mtim.tv_nsec == f->as.st_mtim.tv_nsec;
    f->as = now;
    return true;
}

/* -1: errno. */
static int lock_file(struct host_cache *c, struct kept_file *f)
{
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    f->bytes = (size_t)f->as.st_size;
    void *at = f->bytes > 0 ? mmap(NULL, f->bytes, PROT_READ, MAP_SHARED, fd, 0) : NULL;
    int why = errno;
    (void)close(fd);
    errno = why;
    if (at == MAP_FAILED)
        return -1;
    f->at = at;
    for (size_t done = 0; done < f->bytes && !atomic_load(&c->ending); done += PIECE) {
        size_t n = f->bytes - done < PIECE ? f->bytes - done : PIECE;
        if (mlock((char *)at + done, n) != 0)
            return -1;
    }
    return 0;
}

/* The least valuable one, other than m; NULL: nothing is held. */
static struct kept_model *choose_victim(struct host_cache *c, const struct kept_model *m)
{
    struct kept_model *worst = NULL;
    for (struct kept_model *k = c->first; k != NULL; k = k->next)
        if (k != m && k->held &&
            (worst == NULL || k->loaded > worst->loaded || (k->loaded == worst->loaded && k->used < worst->used)))
            worst = k;
    return worst;
}

static bool make_room(struct host_cache *c, const struct kept_model *m)
{
    while (m->bytes <= c->limit && atomic_load(&c->locked) > c->limit - m->bytes) {
        (void)pthread_mutex_lock(&c->mutex);
        struct kept_model *victim = choose_victim(c, m);
        (void)pthread_mutex_unlock(&c->mutex);
        if (victim == NULL)
            return false;
        let_go(c, victim);
    }
    return m->bytes <= c->limit;
}

static void keep_weights(struct host_cache *c, struct kept_model *m)
{
    bool same = m->held;
    int64_t bytes = 0;
    for (int i = 0; i < m->n_files; i++) {
        if (!look_at(&m->file[i], &same)) {
            let_go(c, m);
            return;
        }
        bytes += (m->file[i].as.st_size + 4095) / 4096 * 4096;
    }
    if (same)
        return;
    let_go(c, m);
    m->bytes = bytes;
    if (!make_room(c, m)) {
        log_info("--host-cache: %s has %" PRId64 " bytes, of %" PRId64 " in all: not kept", m->dir, bytes, c->limit);
        return;
    }
    for (int i = 0; i < m->n_files; i++)
        if (lock_file(c, &m->file[i]) != 0) {
            log_warn("--host-cache: %s is not kept in memory: %s", m->file[i].path, strerror(errno));
            let_go(c, m);
            return;
        }
    m->held = true;
    (void)atomic_fetch_add(&c->locked, bytes);
    log_info("--host-cache: %s: %" PRId64 " bytes are kept in memory, %lld of all models", m->dir, bytes,
             atomic_load(&c->locked));
}

/* ---- the thread ---- */

static void free_model(struct kept_model *m)
{
    for (int i = 0; i < m->n_files; i++)
        free(m->file[i].path);
    free(m->dir);
    free(m);
}

/* Drops files that are gone or replaced, which would waste memory and, if a removed archive's, disk space. With the
 * mutex. */
static void let_changed_go(struct host_cache *c)
{
    for (struct kept_model *m = c->first; m != NULL; m = m->next) {
        bool same = m->held;
        for (int i = 0; same && i < m->n_files; i++)
            same = look_at(&m->file[i], &same) && same;
        if (m->held && !same)
            let_go(c, m);
    }
}

/* Models that are neither loaded nor held are forgotten. With the mutex. */
static void forget(struct host_cache *c)
{
    for (struct kept_model **at = &c->first; *at != NULL;) {
        struct kept_model *m = *at;
        if (m->loaded || m->held || m->wanted) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        free_model(m);
    }
}

/* With the mutex. */
static struct kept_model *next_wanted(struct host_cache *c)
{
    struct kept_model *m = c->first;
    while (m != NULL && !m->wanted)
        m = m->next;
    return m;
}

static void *keep_wanted(void *context)
{
    struct host_cache *c = context;
    (void)pthread_mutex_lock(&c->mutex);
    while (!atomic_load(&c->ending)) {
        struct kept_model *m = next_wanted(c);
        if (m == NULL) {
            let_changed_go(c);
            forget(c);
            (void)pthread_cond_wait(&c->changed, &c->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&c->mutex);
        keep_weights(c, m);
        (void)pthread_mutex_lock(&c->mutex);
        m->wanted = false;
    }
    (void)pthread_mutex_unlock(&c->mutex);
    return NULL;
}

int host_cache_check(int64_t limit, struct err *e)
{
    struct rlimit may = {0};
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    if (limit > memory / 10 * 9)
        return ERR(e, ERR_USAGE, "--host-cache %" PRId64 ": this host has %" PRId64 " bytes of memory", limit, memory);
    /* Only reserved: pages are locked on access, and are never accessed. */
    void *at = mmap(NULL, (size_t)limit, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool good = at != MAP_FAILED && mlock2(at, (size_t)limit, MLOCK_ONFAULT) == 0;
    int why = errno;
    if (at != MAP_FAILED)
        (void)munmap(at, (size_t)limit);
    if (good)
        return 0;
    (void)getrlimit(RLIMIT_MEMLOCK, &may);
    return ERR(e, ERR_MEMORY,
               "--host-cache %" PRId64
               ": this process cannot lock that much memory: %s; RLIMIT_MEMLOCK is %llu bytes here "
               "(ulimit -l, memlock in limits.conf, LimitMEMLOCK= of systemd)",
               limit, strerror(why), (unsigned long long)may.rlim_cur);
}

int host_cache_open(struct host_cache *c, int64_t limit, struct err *e)
{
    memset(c, 0, sizeof *c);
    c->limit = limit;
    (void)pthread_mutex_init(&c->mutex, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    if (pthread_create(&c->thread, NULL, keep_wanted, c) != 0)
        return ERR(e, ERR_MEMORY, "cannot start a thread that keeps files in memory");
    c->running = true;
    return 0;
}

void host_cache_close(struct host_cache *c)
{
    if (!c->running)
        return;
    (void)pthread_mutex_lock(&c->mutex);
    atomic_store(&c->ending, true);
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->mutex);
    (void)pthread_join(c->thread, NULL);
    for (struct kept_model *m; (m = c->first) != NULL; free_model(m)) {
        c->first = m->next;
        let_go(c, m);
    }
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->mutex);
    c->running = false;
}

/* ---- what is loaded ---- */

static struct kept_model *new_model(const struct checkpoint *c)
{
    struct kept_model *m = calloc(1, sizeof *m + (size_t)c->n_files * sizeof m->file[0]);
    size_t bytes = strlen(c->dir) + 300;
    if (m == NULL)
        return NULL;
    m->dir = strdup(c->dir);
    bool good = m->dir != NULL;
    for (; good && m->n_files < c->n_files; m->n_files++) {
        char *path = m->file[m->n_files].path = malloc(bytes);
        good = path != NULL;
        if (good)
            (void)snprintf(path, bytes, "%s/%s", c->dir, checkpoint_file_name(c, m->n_files));
    }
    if (good)
        return m;
    free_model(m);
    return NULL;
}

void host_cache_loaded(void *context, int model, const struct checkpoint *files)
{
    struct host_cache *c = context;
    (void)pthread_mutex_lock(&c->mutex);
    struct kept_model *m = c->first;
    while (m != NULL && (strcmp(m->dir, files->dir) != 0 || m->n_files != files->n_files))
        m = m->next;
    if (m == NULL && (m = new_model(files)) != NULL) {
        m->next = c->first;
        c->first = m;
    }
    c->in_slot[model] = m; /* without memory for it, it is not kept */
    if (m != NULL) {
        m->loaded = true;
        m->wanted = false;
        m->used = ++c->n_uses;
    }
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->mutex);
}

void host_cache_dropped(void *context, int model)
{
    struct host_cache *c = context;
    (void)pthread_mutex_lock(&c->mutex);
    struct kept_model *m = c->in_slot[model];
    c->in_slot[model] = NULL;
    if (m != NULL) {
        m->loaded = false;
        m->wanted = true;
        m->used = ++c->n_uses;
        (void)pthread_cond_signal(&c->changed);
    }
    (void)pthread_mutex_unlock(&c->mutex);
}
