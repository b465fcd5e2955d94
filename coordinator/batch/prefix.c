/* coordinator/batch/prefix.c - see prefix.h. */
#include "coordinator/batch/prefix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MOST_MARKS   64
#define FIRST_STRIDE ((int64_t)1 << 16)
#define BLOCK_BYTES  ((size_t)1 << 20)
#define HEX_BYTES    33

struct prefix {
    XXH3_state_t *state; /* NULL: the file has ended, */
    XXH128_hash_t whole; /* with this hash */
    int64_t bytes;
    char last; /* byte */
    int64_t stride;
    int n;                /* marks, fewer than MOST_MARKS */
    XXH128_hash_t mark[]; /* room for MOST_MARKS, at the end for n */
};

static size_t size_with(int n_marks)
{
    return sizeof(struct prefix) + (size_t)n_marks * sizeof(XXH128_hash_t);
}

static XXH128_hash_t hash_of(const struct prefix *p)
{
    return p->state != NULL ? XXH3_128bits_digest(p->state) : p->whole;
}

struct prefix *prefix_open(struct err *e)
{
    struct prefix *p = err_calloc(e, 1, size_with(MOST_MARKS), "a file's hash");
    XXH3_state_t *state = p != NULL ? XXH3_createState() : NULL;
    if (state == NULL) {
        free(p);
        ERR(e, ERR_MEMORY, "out of host memory: a file's hash"); /* the first failure wins */
        return NULL;
    }
    (void)XXH3_128bits_reset(state);
    p->state = state;
    p->stride = FIRST_STRIDE;
    return p;
}

void prefix_close(struct prefix *p)
{
    if (p != NULL)
        (void)XXH3_freeState(p->state);
    free(p);
}

int64_t prefix_bytes(const struct prefix *p)
{
    return p->bytes;
}

/* If there are too many marks, every second one is dropped. */
static void add_mark(struct prefix *p)
{
    p->mark[p->n++] = XXH3_128bits_digest(p->state);
    if (p->n < MOST_MARKS)
        return;
    for (int i = 0; i < MOST_MARKS / 2; i++)
        p->mark[i] = p->mark[2 * i + 1];
    p->n = MOST_MARKS / 2;
    p->stride *= 2;
}

void prefix_add(struct prefix *p, const char *text, size_t bytes)
{
    while (bytes > 0) {
        int64_t left = p->stride - p->bytes % p->stride;
        size_t n = (uint64_t)left < bytes ? (size_t)left : bytes;
        (void)XXH3_128bits_update(p->state, text, n);
        p->bytes += (int64_t)n;
        p->last = text[n - 1];
        if (p->bytes % p->stride == 0)
            add_mark(p);
        text += n;
        bytes -= n;
    }
}

struct prefix *prefix_end(struct prefix *p)
{
    if (p->bytes > 0 && p->last != '\n')
        prefix_add(p, "\n", 1);
    p->whole = hash_of(p);
    (void)XXH3_freeState(p->state);
    p->state = NULL;
    struct prefix *smaller = realloc(p, size_with(p->n));
    return smaller != NULL ? smaller : p;
}

static json_t *hex(XXH128_hash_t hash)
{
    char text[HEX_BYTES];
    (void)snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
    return json_string(text);
}

json_t *prefix_json(const struct prefix *p)
{
    json_t *marks = json_array();
    for (int i = 0; i < p->n; i++)
        (void)json_array_append_new(marks, hex(p->mark[i]));
    return json_pack("{s:I, s:o, s:I, s:o}", "bytes", (json_int_t)p->bytes, "hash", hex(hash_of(p)), "stride",
                     (json_int_t)p->stride, "marks", marks);
}

/* A file that is read again and compared with its earlier hash. */
struct check {
    int fd;
    struct prefix *now;
    int64_t n_newlines; /* before the last byte */
    char *block;        /* [BLOCK_BYTES] */
};

static void hash_bytes(struct check *c, const char *text, size_t bytes)
{
    c->n_newlines += c->now->bytes > 0 && c->now->last == '\n';
    for (const char *at = text, *end = text + bytes - 1; (at = memchr(at, '\n', (size_t)(end - at))) != NULL; at++)
        c->n_newlines++;
    prefix_add(c->now, text, bytes);
}

/* Reads up to this byte or the end of the file. -1: errno. */
static int read_to(struct check *c, int64_t until)
{
    for (ssize_t got = 1; got != 0 && c->now->state != NULL && c->now->bytes < until;) {
        int64_t left = until - c->now->bytes;
        size_t wanted = left < (int64_t)BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
        got = pread(c->fd, c->block, wanted, (off_t)c->now->bytes);
        if (got < 0 && errno != EINTR)
            return -1;
        if (got > 0)
            hash_bytes(c, c->block, (size_t)got);
    }
    if (c->now->bytes == until - 1) /* the newline that the last line lacked */
        c->now = prefix_end(c->now);
    return 0;
}

/* Is the file unchanged up to this byte? If not, *change begins after byte `from`, on line `first_line`. */
static int compare_at(struct check *c, int64_t until, const json_t *hash, struct prefix_change *change)
{
    int64_t from = c->now->bytes, first_line = c->n_newlines + 1 + (from > 0 && c->now->last == '\n');
    if (read_to(c, until) != 0)
        return -1;
    json_t *now = hex(hash_of(c->now));
    if (c->now->bytes < until)
        change->to = -1;
    else if (!json_equal(now, hash))
        *change = (struct prefix_change){from, until, first_line, c->n_newlines + 1};
    json_decref(now);
    return 0;
}

int prefix_check(const json_t *was, int fd, const char *name, struct prefix_change *change, struct err *e)
{
    int64_t bytes = json_integer_value(json_object_get(was, "bytes")),
            stride = json_integer_value(json_object_get(was, "stride"));
    const json_t *marks = json_object_get(was, "marks");
    struct check c = {.fd = fd};
    int rc = 0;
    *change = (struct prefix_change){0};
    if (bytes < 0 || stride < FIRST_STRIDE || (size_t)(bytes / stride) != json_array_size(marks))
        return ERR(e, ERR_INPUT, "the manifest's hash of %.200s is invalid", name);
    c.now = prefix_open(e);
    c.block = err_calloc(e, BLOCK_BYTES, 1, "reading a file again");
    if (e->code == ERR_NONE) {
        for (size_t i = 0; rc == 0 && change->to == 0 && i < json_array_size(marks); i++)
            rc = compare_at(&c, (int64_t)(i + 1) * stride, json_array_get(marks, i), change);
        if (rc == 0 && change->to == 0 && bytes > 0)
            rc = compare_at(&c, bytes, json_object_get(was, "hash"), change);
        if (rc != 0)
            ERR(e, ERR_IO, "%.200s: cannot read it again: %s", name, strerror(errno));
    }
    free(c.block);
    prefix_close(c.now);
    return e->code == ERR_NONE ? 0 : -1;
}
