/* coordinator/archives/tar.c - see tar.h. Headers are POSIX ustar or GNU, with long names by GNU's entries or by
 * pax. */
#include "coordinator/archives/tar.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BLOCK         512
#define BUFFER_BYTES  (256 << 10)
#define MOST_MORE     65536     /* bytes of an extension header, which describes the next entry */
#define MOST_MORES    8         /* extension headers before one file */
#define MOST_TRAILING (1 << 20) /* padding after the end mark */

struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], time[12], sum[8], kind, link[100], magic[6], version[2],
        user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

/* The fields of extension headers that apply to the next file. */
struct more {
    char path[TAR_PATH_BYTES]; /* "": nothing */
    bool has_size;
    uint64_t size;
};

/* ---- bytes ---- */

static int read_error(struct tar *t, struct err *e)
{
    int code = 0;
    const char *why = gzerror(t->file, &code);
    if (code == Z_ERRNO)
        return ERR(e, ERR_IO, "%.200s: %s", t->what, strerror(errno));
    if (code == Z_MEM_ERROR)
        return ERR(e, ERR_MEMORY, "%.200s: out of host memory: unpacking", t->what);
    return ERR(e, ERR_INPUT, "%.200s: not a whole archive: %.60s", t->what,
               code == Z_OK || code == Z_BUF_ERROR ? "it is truncated" : why);
}

/* Reads n bytes, or fewer at the archive's end: *got. */
static int read_some(struct tar *t, void *to, size_t n, size_t *got, struct err *e)
{
    int code = 0, r = gzread(t->file, to, (unsigned)n);
    *got = r > 0 ? (size_t)r : 0;
    if (*got < n)
        (void)gzerror(t->file, &code);
    return r < 0 || code != Z_OK ? read_error(t, e) : 0;
}

static int read_all(struct tar *t, void *to, size_t n, struct err *e)
{
    size_t got = 0;
    if (read_some(t, to, n, &got, e) != 0)
        return -1;
    return got == n ? 0 : read_error(t, e);
}

static int skip(struct tar *t, uint64_t n, struct err *e)
{
    char dropped[8192];
    while (n > 0) {
        size_t some = n < sizeof dropped ? (size_t)n : sizeof dropped;
        if (read_all(t, dropped, some, e) != 0)
            return -1;
        n -= some;
    }
    return 0;
}

static uint64_t padding_of(uint64_t bytes)
{
    return (BLOCK - bytes % BLOCK) % BLOCK;
}

/* ---- numbers and texts of headers ---- */

/* Octal, with spaces or NUL around it, or GNU's big-endian bytes after 0x80. -1: neither, or 2^63 and more. */
static int64_t number_of(const char *field, size_t n)
{
    uint64_t value = 0;
    size_t i = 0;
    if ((unsigned char)field[0] == 0x80) {
        for (i = 1; i < n; i++) {
            if (value >> 55 != 0)
                return -1;
            value = value << 8 | (unsigned char)field[i];
        }
        return (int64_t)value;
    }
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++) /* 12 digits at most */
        value = value << 3 | (uint64_t)(field[i] - '0');
    for (; i < n; i++)
        if (field[i] != ' ' && field[i] != '\0')
            return -1;
    return (int64_t)value;
}

/* The checksum of a header, in which its own field counts as spaces. */
static bool sum_is_right(const struct header *h)
{
    const unsigned char *b = (const unsigned char *)h;
    int64_t sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= offsetof(struct header, sum) && i < offsetof(struct header, kind) ? ' ' : b[i];
    return number_of(h->sum, sizeof h->sum) == sum;
}

static bool is_zero(const void *block)
{
    static const char zero[BLOCK];
    return memcmp(block, zero, BLOCK) == 0;
}

/* The name in the header itself, with POSIX's prefix field. */
static void name_of(const struct header *h, char *path)
{
    size_t n = 0;
    if (memcmp(h->magic, "ustar", sizeof h->magic) == 0 && h->prefix[0] != '\0') {
        n = strnlen(h->prefix, sizeof h->prefix);
        memcpy(path, h->prefix, n);
        path[n++] = '/';
    }
    size_t rest = strnlen(h->name, sizeof h->name);
    memcpy(path + n, h->name, rest);
    path[n + rest] = '\0';
}

/* ---- extension headers ---- */

static int set_path(struct tar *t, struct more *m, const char *text, size_t n, struct err *e)
{
    n = strnlen(text, n);
    if (n >= sizeof m->path)
        return ERR(e, ERR_INPUT, "%.200s: a path of %zu bytes, at most %d are accepted", t->what, n,
                   TAR_PATH_BYTES - 1);
    memcpy(m->path, text, n);
    m->path[n] = '\0';
    return 0;
}

/* A key and its value. */
static int take_pax(struct tar *t, struct more *m, const char *key, size_t n_key, const char *value, size_t n,
                    struct err *e)
{
    if (n_key == 4 && memcmp(key, "path", 4) == 0)
        return memchr(value, '\0', n) == NULL ? set_path(t, m, value, n, e)
                                              : ERR(e, ERR_INPUT, "%.200s: a path with NUL in it", t->what);
    if (n_key >= 10 && memcmp(key, "GNU.sparse", 10) == 0)
        return ERR(e, ERR_INPUT, "%.200s: holds a sparse file, expected plain files and folders", t->what);
    if (n_key != 4 || memcmp(key, "size", 4) != 0)
        return 0;
    m->size = 0;
    for (size_t i = 0; i < n; i++) {
        if (value[i] < '0' || value[i] > '9' || m->size > (uint64_t)INT64_MAX / 10 - 1)
            return ERR(e, ERR_INPUT, "%.200s: the size of a file is not a number", t->what);
        m->size = m->size * 10 + (uint64_t)(value[i] - '0');
    }
    m->has_size = n > 0;
    return 0;
}

/* Records "LENGTH KEY=VALUE\n", one after another. */
static int take_records(struct tar *t, struct more *m, const char *text, size_t bytes, struct err *e)
{
    for (size_t at = 0; at < bytes;) {
        size_t length = 0, i = at;
        while (i < bytes && text[i] >= '0' && text[i] <= '9' && length <= bytes)
            length = length * 10 + (size_t)(text[i++] - '0');
        const char *key = text + i + 1, *equals = NULL;
        bool right = i > at && i < bytes && text[i] == ' ' && length <= bytes - at && at + length > i + 1 &&
                     text[at + length - 1] == '\n';
        if (right)
            equals = memchr(key, '=', at + length - 1 - (i + 1));
        if (equals == NULL)
            return ERR(e, ERR_INPUT, "%.200s: a malformed pax header", t->what);
        if (take_pax(t, m, key, (size_t)(equals - key), equals + 1, (size_t)(text + at + length - 1 - (equals + 1)),
                     e) != 0)
            return -1;
        at += length;
    }
    return 0;
}

/* kind: 'x' of pax, 'L' of GNU; 'g' and 'K' are ignored. */
static int take_more(struct tar *t, struct more *m, char kind, uint64_t bytes, struct err *e)
{
    char *text = bytes <= MOST_MORE ? err_calloc(e, bytes + 1, 1, "header of an archive") : NULL;
    if (bytes > MOST_MORE)
        return ERR(e, ERR_INPUT, "%.200s: a header of %" PRIu64 " bytes, at most %d are accepted", t->what, bytes,
                   MOST_MORE);
    int rc = text != NULL ? read_all(t, text, (size_t)bytes, e) : -1;
    if (rc == 0 && kind == 'x')
        rc = take_records(t, m, text, (size_t)bytes, e);
    if (rc == 0 && kind == 'L')
        rc = set_path(t, m, text, (size_t)bytes, e);
    free(text);
    return rc == 0 ? skip(t, padding_of(bytes), e) : -1;
}

/* ---- paths ---- */

/* Turns "./a//b/" into "a/b". Returns the reason if the path is invalid, or NULL. The result "" is the archive's own
 * folder. */
static const char *clean(char *path)
{
    size_t n = strlen(path), to = 0;
    int depth = 0;
    if (path[0] == '/')
        return "is absolute";
    if (utf8_invalid_at(path, n) != n)
        return "is no UTF-8";
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
            return "has a control character";
    for (size_t at = 0, part; at < n; at += part + 1) {
        part = strcspn(path + at, "/");
        if (part == 2 && path[at] == '.' && path[at + 1] == '.')
            return "has a part ..";
        if (part > NAME_MAX || ++depth > TAR_MAX_DEPTH)
            return "is too long or too deep";
        if (part == 0 || (part == 1 && path[at] == '.'))
            continue;
        if (to > 0)
            path[to++] = '/';
        memmove(path + to, path + at, part);
        to += part;
    }
    path[to] = '\0';
    return NULL;
}

static int set_entry(struct tar *t, struct tar_entry *entry, const struct header *h, const struct more *m,
                     uint64_t bytes, struct err *e)
{
    if (m->path[0] != '\0')
        memcpy(entry->path, m->path, sizeof entry->path);
    else
        name_of(h, entry->path);
    size_t n = strlen(entry->path);
    bool slash = n > 0 && entry->path[n - 1] == '/';
    entry->is_folder = h->kind == '5' || (slash && (h->kind == '0' || h->kind == '\0'));
    entry->bytes = entry->is_folder ? 0 : bytes;
    const char *wrong = clean(entry->path);
    if (wrong == NULL && entry->path[0] == '\0' && !entry->is_folder)
        wrong = "is not a file name";
    if (wrong != NULL)
        return ERR(e, ERR_INPUT, "%.200s: the path \"%.100s\" in it %s", t->what, entry->path, wrong);
    if (++t->n_parts > TAR_MAX_PARTS)
        return ERR(e, ERR_INPUT, "%.200s: more than %d files and folders", t->what, TAR_MAX_PARTS);
    t->left = bytes;
    t->padding = padding_of(bytes);
    return 1;
}

static const char *kind_name(char kind)
{
    return kind == '1' || kind == '2'   ? "a link"
           : kind == '3' || kind == '4' ? "a device"
           : kind == '6'                ? "a pipe"
           : kind == 'S'                ? "a sparse file"
                                        : "something";
}

/* ---- the archive ---- */

int tar_open(struct tar *t, const char *path, struct err *e)
{
    struct stat info = {0};
    *t = (struct tar){.what = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would block until there is a writer */
    if (fd < 0)
        return ERR(e, ERR_IO, "%.200s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        ERR(e, ERR_INPUT, "%.200s: not a regular file", path);
    else if ((t->file = gzdopen(fd, "rb")) == NULL || gzbuffer(t->file, BUFFER_BYTES) != 0)
        ERR(e, ERR_MEMORY, "out of host memory: unpacking %.200s", path);
    t->archive_bytes = (uint64_t)info.st_size;
    if (t->file == NULL)
        (void)close(fd);
    if (e->code == ERR_NONE)
        return 0;
    tar_close(t);
    return -1;
}

void tar_close(struct tar *t)
{
    if (t->file != NULL)
        (void)gzclose(t->file);
    t->file = NULL;
}

/* After the first block of zeros there must be another one, and then only padding. */
static int finish_archive(struct tar *t, struct err *e)
{
    char dropped[8192];
    size_t got = 1, all = 0;
    while (got > 0 && all <= MOST_TRAILING) {
        if (read_some(t, dropped, sizeof dropped, &got, e) != 0)
            return -1;
        all += got;
    }
    if (all > MOST_TRAILING)
        return ERR(e, ERR_INPUT, "%.200s: more than %d bytes after its end", t->what, MOST_TRAILING);
    return 0;
}

int tar_next(struct tar *t, struct tar_entry *entry, struct err *e)
{
    struct header h;
    struct more more = {0};
    if (skip(t, t->left, e) != 0 || skip(t, t->padding, e) != 0)
        return -1;
    t->left = t->padding = 0;
    for (int n = 0; n <= MOST_MORES; n++) {
        if (read_all(t, &h, sizeof h, e) != 0)
            return -1;
        if (is_zero(&h))
            return finish_archive(t, e);
        int64_t bytes = number_of(h.size, sizeof h.size);
        if (!sum_is_right(&h) || bytes < 0)
            return ERR(e, ERR_INPUT, "%.200s: not a tar archive, or a damaged one: the checksum of a header is wrong",
                       t->what);
        if (strchr("05", h.kind) != NULL || h.kind == '7') /* NUL, too */
            return set_entry(t, entry, &h, &more, more.has_size ? more.size : (uint64_t)bytes, e);
        if (strchr("xgLK", h.kind) == NULL)
            return ERR(e, ERR_INPUT, "%.200s: \"%.100s\" in it is %s, expected plain files and folders", t->what,
                       h.name, kind_name(h.kind));
        if (take_more(t, &more, h.kind, (uint64_t)bytes, e) != 0)
            return -1;
    }
    return ERR(e, ERR_INPUT, "%.200s: more than %d headers for one file", t->what, MOST_MORES);
}

int tar_read(struct tar *t, void *to, size_t n, size_t *got, struct err *e)
{
    *got = n < t->left ? n : (size_t)t->left;
    if (read_all(t, to, *got, e) != 0)
        return -1;
    t->left -= *got;
    return 0;
}
