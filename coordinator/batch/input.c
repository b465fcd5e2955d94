/* coordinator/batch/input.c - see input.h. */
#include "coordinator/batch/input.h"
#include "base/bom.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define BLOCK_BYTES        ((size_t)1 << 20)
#define MAX_MANIFEST_BYTES ((size_t)64 << 20)

const char *inputs_name(const struct inputs *in, int file)
{
    return strcmp(in->file[file].path, "-") == 0 ? "stdin" : in->file[file].path;
}

/* O_NONBLOCK, so that opening a pipe without a writer does not block. */
static int open_file(const char *path, struct err *e)
{
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return ERR(e, ERR_IO, "--input %.200s: cannot open: %s", path, strerror(errno));
    return fd;
}

/* Has the file been given before, perhaps under another name? */
static int check_new(const struct inputs *in, const struct input_file *f, struct err *e)
{
    for (int i = 0; i < in->n; i++)
        if (in->file[i].stat.st_dev == f->stat.st_dev && in->file[i].stat.st_ino == f->stat.st_ino)
            return ERR(e, ERR_USAGE, "--input %.200s: the same file as --input %.200s", f->path, in->file[i].path);
    return 0;
}

/* Before a model is loaded for it. */
static int check_text(const char *path, struct err *e)
{
    char first[16];
    int fd = open_file(path, e);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, first, sizeof first);
    (void)close(fd);
    return n > 0 && bom_bytes(first, (size_t)n, path, e) < 0 ? -1 : 0;
}

static int add_file(struct inputs *in, const char *path, struct err *e)
{
    struct input_file f = {.path = strdup(path)}, *grown = realloc(in->file, ((size_t)in->n + 1) * sizeof *grown);
    if (grown != NULL)
        in->file = grown;
    if (grown == NULL || f.path == NULL) {
        free(f.path);
        return ERR(e, ERR_MEMORY, "out of host memory: names of %d input files", in->n + 1);
    }
    bool standard = strcmp(path, "-") == 0;
    if ((standard ? fstat(STDIN_FILENO, &f.stat) : stat(path, &f.stat)) != 0 || (!standard && access(path, R_OK) != 0))
        ERR(e, ERR_IO, "--input %.200s: cannot open: %s", path, strerror(errno));
    else if (S_ISDIR(f.stat.st_mode))
        ERR(e, ERR_INPUT, "--input %.200s: a folder, expected a file; quote \"%.200s/%s\" for its files", path, path,
            "*.jsonl");
    if (e->code == ERR_NONE && check_new(in, &f, e) == 0 && S_ISREG(f.stat.st_mode) && !standard)
        (void)check_text(path, e);
    if (e->code != ERR_NONE) {
        free(f.path);
        return -1;
    }
    in->file[in->n++] = f;
    return 0;
}

/* Is it a file that a batch has written or is writing, such as another share's, even without a manifest so far? It is
 * refused if named as an input, and skipped in a pattern. */
static bool is_output(const char *path, const struct stat *st)
{
    char name[PATH_MAX];
    struct err e = {0};
    if (!S_ISREG(st->st_mode))
        return false;
    int n = snprintf(name, sizeof name, "%s.manifest.json", path);
    json_t *manifest =
        n < (int)sizeof name && access(name, F_OK) == 0 ? json_read_file(name, MAX_MANIFEST_BYTES, &e) : NULL;
    bool ours = json_object_get(manifest, "synced_bytes") != NULL && json_object_get(manifest, "format") != NULL;
    json_decref(manifest);
    int fd = ours ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        (void)close(fd);
    return ours || locked;
}

static int add_named(struct inputs *in, const char *path, struct err *e)
{
    struct stat st;
    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && is_output(path, &st))
        return ERR(e, ERR_USAGE, "--input %.200s: the output of a batch, expected lines of requests", path);
    return add_file(in, path, e);
}

static int add_match(struct inputs *in, const char *path, const char *pattern, struct err *e)
{
    struct stat st;
    if (stat(path, &st) != 0 || !is_output(path, &st))
        return add_file(in, path, e);
    log_note("--input %.200s: %.200s is the output of a batch and is skipped", pattern, path);
    return 0;
}

static int add_matches(struct inputs *in, const char *pattern, struct err *e)
{
    glob_t found = {0};
    int n_before = in->n, rc = glob(pattern, GLOB_ERR, NULL, &found);
    if (rc == GLOB_NOMATCH)
        ERR(e, ERR_IO, "--input %.200s: no file has this name or matches it", pattern);
    else if (rc != 0)
        ERR(e, ERR_IO, "--input %.200s: cannot be searched for: %s", pattern,
            rc == GLOB_NOSPACE ? "out of memory" : strerror(errno));
    for (size_t i = 0; rc == 0 && i < found.gl_pathc && e->code == ERR_NONE; i++)
        (void)add_match(in, found.gl_pathv[i], pattern, e);
    globfree(&found);
    if (e->code == ERR_NONE && in->n == n_before)
        ERR(e, ERR_IO, "--input %.200s: it matches only outputs of batches", pattern);
    return e->code == ERR_NONE ? 0 : -1;
}

int inputs_open(struct inputs *in, const char *const *pattern, int n, struct err *e)
{
    bool sized = true;
    memset(in, 0, sizeof *in);
    in->fd = -1;
    for (int i = 0; i < n; i++) {
        bool literal = strcmp(pattern[i], "-") == 0 || access(pattern[i], F_OK) == 0;
        if ((literal ? add_named(in, pattern[i], e) : add_matches(in, pattern[i], e)) != 0)
            return -1;
    }
    for (int i = 0; i < in->n; i++) {
        sized = sized && S_ISREG(in->file[i].stat.st_mode);
        in->bytes += in->file[i].stat.st_size;
    }
    in->bytes = sized ? in->bytes : 0;
    return 0;
}

/* Makes room after the contents of the buffer. */
static int make_room(struct inputs *in, struct err *e)
{
    if (in->begin > 0) {
        memmove(in->buffer, in->buffer + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    if (in->capacity - in->end >= BLOCK_BYTES / 4)
        return 0;
    size_t capacity = 2 * in->capacity + BLOCK_BYTES;
    char *grown = realloc(in->buffer, capacity);
    if (grown == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: a line of %.200s", inputs_name(in, in->at));
    in->buffer = grown;
    in->capacity = capacity;
    return 0;
}

/* Reads on. INPUT_LINE: the buffer has new bytes, or the file has ended. */
static enum input_got fill_buffer(struct inputs *in, struct err *e)
{
    struct pollfd ready = {.fd = in->fd, .events = POLLIN};
    if (in->fd < 0)
        in->fd = ready.fd = open_file(in->file[in->at].path, e);
    if (in->fd < 0 || make_room(in, e) != 0)
        return INPUT_FAILED;
    if (!S_ISREG(in->file[in->at].stat.st_mode) && poll(&ready, 1, 0) <= 0)
        return INPUT_WAIT;
    struct input_file *f = &in->file[in->at];
    if (f->prefix == NULL && (f->prefix = prefix_open(e)) == NULL)
        return INPUT_FAILED;
    ssize_t got = read(in->fd, in->buffer + in->end, in->capacity - in->end);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return INPUT_WAIT;
    if (got < 0) {
        ERR(e, ERR_IO, "%.200s: line %lld: cannot read: %s", inputs_name(in, in->at), (long long)in->number + 1,
            strerror(errno));
        return INPUT_FAILED;
    }
    in->ended = got == 0;
    prefix_add(f->prefix, in->buffer + in->end, (size_t)got);
    if (in->ended)
        f->prefix = prefix_end(f->prefix);
    in->end += (size_t)got;
    in->bytes_read += got;
    return INPUT_LINE;
}

static void next_file(struct inputs *in)
{
    if (in->fd >= 0)
        (void)close(in->fd);
    in->fd = -1;
    in->at++;
    in->number = 0;
    in->begin = in->end = 0;
    in->ended = in->skipping = false;
}

/* Takes a line from the buffer, up to its newline or to the end of the file. false: no newline so far. */
static bool take_next(struct inputs *in, struct input_line *line)
{
    char *from = in->buffer + in->begin;
    size_t there = in->end - in->begin;
    char *newline = there > 0 ? memchr(from, '\n', there) : NULL;
    if (newline == NULL && !in->ended && (there == 0 || (!in->skipping && there <= INPUT_MAX_LINE_BYTES)))
        return false;
    size_t bytes = newline != NULL ? (size_t)(newline - from) : there;
    in->begin += bytes + (newline != NULL);
    bool whole = newline != NULL || in->ended, wanted = !in->skipping;
    in->number += wanted;
    in->index += wanted;
    in->skipping = !whole;
    while (bytes > 0 && strchr(" \t\r", from[bytes - 1]) != NULL && from[bytes - 1] != '\0')
        bytes--;
    bool fits = whole && bytes <= INPUT_MAX_LINE_BYTES;
    *line = (struct input_line){
        fits ? from : NULL, fits ? bytes : 0, in->at,
        in->number,         in->index - 1,    prefix_bytes(in->file[in->at].prefix) - (int64_t)(in->end - in->begin)};
    if (!wanted)
        line->bytes = 0, line->text = from; /* the rest of a line that was reported already */
    return true;
}

/* A file's first line may begin with a byte order mark. */
static int drop_mark(const struct inputs *in, struct input_line *line, struct err *e)
{
    if (line->number != 1 || line->text == NULL)
        return 0;
    int mark = bom_bytes(line->text, line->bytes, inputs_name(in, line->file), e);
    line->text += mark > 0 ? mark : 0;
    line->bytes -= mark > 0 ? (size_t)mark : 0;
    return mark < 0 ? -1 : 0;
}

enum input_got inputs_next(struct inputs *in, struct input_line *line, struct err *e)
{
    while (in->at < in->n) {
        if ((in->end > in->begin || in->skipping) && take_next(in, line)) {
            if (drop_mark(in, line, e) != 0)
                return INPUT_FAILED;
            if (line->text != NULL && line->bytes == 0)
                continue;
            return INPUT_LINE;
        }
        if (in->ended) {
            next_file(in);
            continue;
        }
        enum input_got got = fill_buffer(in, e);
        if (got != INPUT_LINE)
            return got;
    }
    return INPUT_END;
}

int64_t inputs_read(const struct inputs *in, int *file)
{
    *file = in->at;
    return in->at < in->n && in->file[in->at].prefix != NULL ? prefix_bytes(in->file[in->at].prefix) : 0;
}

void inputs_close(struct inputs *in)
{
    for (int i = 0; i < in->n; i++) {
        prefix_close(in->file[i].prefix);
        free(in->file[i].path);
    }
    if (in->file != NULL && in->fd >= 0)
        (void)close(in->fd);
    free(in->file);
    free(in->buffer);
    memset(in, 0, sizeof *in);
}
