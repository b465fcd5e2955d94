/* coordinator/batch/recorded.c - see recorded.h. */
#include "coordinator/batch/recorded.h"
#include "coordinator/reply_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define WHOLE_BYTES ((int64_t)1 << 20)
#define PIECE_BYTES 16384
#define N_PIECES    64 /* of which WHOLE_BYTES are made */

static int add_piece(crypto_hash_sha256_state *state, int fd, const char *path, int64_t offset, size_t bytes,
                     struct err *e)
{
    unsigned char piece[PIECE_BYTES];
    size_t held = 0;
    for (ssize_t got = 1; held < bytes && got != 0;) {
        got = pread(fd, piece + held, bytes - held, (off_t)(offset + (int64_t)held));
        if (got < 0 && errno != EINTR)
            return ERR(e, ERR_IO, "--input %.200s: cannot read: %s", path, strerror(errno));
        held += got > 0 ? (size_t)got : 0;
    }
    if (held < bytes)
        return ERR(e, ERR_IO, "--input %.200s: cannot read: it has become shorter", path);
    (void)crypto_hash_sha256_update(state, piece, bytes);
    return 0;
}

static int add_pieces(crypto_hash_sha256_state *state, int fd, const char *path, int64_t bytes, struct err *e)
{
    int64_t last = bytes - PIECE_BYTES, gaps = N_PIECES - 1;
    int rc = 0;
    if (bytes <= WHOLE_BYTES)
        for (int64_t at = 0; rc == 0 && at < bytes; at += PIECE_BYTES)
            rc = add_piece(state, fd, path, at, (size_t)(bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES), e);
    else
        for (int64_t k = 0; rc == 0 && k < N_PIECES; k++)
            rc = add_piece(state, fd, path, last / gaps * k + last % gaps * k / gaps, PIECE_BYTES, e);
    return rc;
}

/* Of the first so many bytes. NULL and *e on failure. */
static json_t *hash_beginning(const char *path, int64_t bytes, struct err *e)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char text[2 * sizeof hash + 1];
    crypto_hash_sha256_state state;
    (void)crypto_hash_sha256_init(&state);
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        ERR(e, ERR_IO, "--input %.200s: cannot open: %s", path, strerror(errno));
        return NULL;
    }
    int rc = add_pieces(&state, fd, path, bytes, e);
    (void)close(fd);
    if (rc != 0)
        return NULL;
    (void)crypto_hash_sha256_final(&state, hash);
    return json_string(sodium_bin2hex(text, sizeof text, hash, sizeof hash));
}

json_t *recorded_inputs(const struct inputs *in, struct err *e)
{
    json_t *list = json_array();
    for (int i = 0; i < in->n; i++) {
        const struct input_file *f = &in->file[i];
        json_t *hash = S_ISREG(f->stat.st_mode) ? hash_beginning(f->path, f->stat.st_size, e) : json_null();
        json_t *one = json_pack("{s:o, s:I, s:o}", "path", reply_text(f->path), "bytes", (json_int_t)f->stat.st_size,
                                "sha256", hash);
        if (json_array_append_new(list, one) != 0) {
            json_decref(list);
            ERR(e, ERR_MEMORY, "out of host memory: manifest"); /* the first failure wins */
            return NULL;
        }
    }
    return list;
}

/* The input of the same path. NULL: there is none. */
static const struct input_file *find(const struct inputs *in, const json_t *path)
{
    const struct input_file *found = NULL;
    for (int i = 0; i < in->n && found == NULL; i++) {
        json_t *own = reply_text(in->file[i].path);
        if (json_equal(own, path))
            found = &in->file[i];
        json_decref(own);
    }
    return found;
}

/* What has happened to it; NULL: nothing but that it may have grown. */
static const char *change_of(const json_t *was, const struct inputs *in, struct err *e)
{
    const struct input_file *f = find(in, json_object_get(was, "path"));
    const json_t *hash = json_object_get(was, "sha256");
    int64_t bytes = json_integer_value(json_object_get(was, "bytes"));
    if (f == NULL)
        return "is no input any more";
    if (!json_is_string(hash) || !S_ISREG(f->stat.st_mode))
        return "is no file that can be read again";
    if (bytes < 0 || f->stat.st_size < bytes)
        return "has become shorter";
    json_t *now = hash_beginning(f->path, bytes, e);
    const char *change = e->code == ERR_NONE && !json_equal(now, hash) ? "does not begin as it did" : NULL;
    json_decref(now);
    return change;
}

int recorded_check(const json_t *was, const struct inputs *in, const char *output, struct err *e)
{
    const json_t *one;
    size_t i;
    json_array_foreach(was, i, one)
    {
        const char *path = json_string_value(json_object_get(one, "path")), *change = change_of(one, in, e);
        if (e->code != ERR_NONE)
            return -1;
        if (change != NULL)
            return ERR(e, ERR_INPUT,
                       "--output %.120s has results of lines without an id, which are known by their place, and the "
                       "input %.120s %s: --force goes on all the same, another --output begins anew",
                       output, path != NULL ? path : "?", change);
    }
    return 0;
}
