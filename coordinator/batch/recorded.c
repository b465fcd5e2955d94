/* coordinator/batch/recorded.c - see recorded.h. */
#include "coordinator/batch/recorded.h"
#include "base/log.h"
#include "coordinator/batch/prefix.h"
#include "protocol/reply_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SAID_BYTES ((int64_t)4 << 30) /* reading this much takes some seconds */

static int64_t bytes_of(const json_t *prefix)
{
    return json_integer_value(json_object_get(prefix, "bytes"));
}

static json_t *read_of(const struct input_file *f)
{
    if (f->prefix != NULL && !S_ISREG(f->stat.st_mode))
        return json_false();
    if (f->prefix != NULL && (f->earlier == NULL || prefix_bytes(f->prefix) >= bytes_of(f->earlier)))
        return prefix_json(f->prefix);
    return f->earlier != NULL ? json_incref((json_t *)f->earlier) : json_null();
}

json_t *recorded_inputs(const struct inputs *in)
{
    json_t *list = json_array();
    for (int i = 0; i < in->n; i++) {
        const struct input_file *f = &in->file[i];
        json_t *one = json_pack("{s:o, s:I, s:o}", "path", reply_text(f->path), "bytes", (json_int_t)f->stat.st_size,
                                "read", read_of(f));
        if (json_array_append_new(list, one) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Inputs by their paths in a manifest: {path: index}. NULL: out of memory. */
static json_t *index_of(const struct inputs *in)
{
    json_t *index = json_object();
    for (int i = 0; i < in->n; i++) {
        json_t *path = reply_text(in->file[i].path);
        if (json_object_set_new_nocheck(index, json_string_value(path), json_integer(i)) != 0) {
            json_decref(index);
            index = NULL;
        }
        json_decref(path);
    }
    return index;
}

/* How the file has changed, in words that follow its name; "": not at all. */
static int compare_prefix(const json_t *was, struct input_file *f, char *change, size_t bytes, struct err *e)
{
    struct prefix_change c;
    int fd = strcmp(f->path, "-") == 0 ? dup(STDIN_FILENO) : open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ERR(e, ERR_IO, "--input %.200s: cannot open: %s", f->path, strerror(errno));
    int rc = prefix_check(was, fd, f->path, &c, e);
    (void)close(fd);
    if (rc == 0 && c.to < 0)
        (void)snprintf(change, bytes, "has become shorter than the %lld bytes that were read of it",
                       (long long)bytes_of(was));
    if (rc == 0 && c.to > 0)
        (void)snprintf(change, bytes, "has changed between bytes %lld and %lld, lines %lld and %lld", (long long)c.from,
                       (long long)c.to, (long long)c.first_line, (long long)c.last_line);
    f->earlier = was;
    return rc;
}

static int check_one(const json_t *was, struct inputs *in, const json_t *index, char *change, size_t bytes,
                     struct err *e)
{
    const json_t *read = json_object_get(was, "read");
    const json_t *at = json_object_get(index, json_string_value(json_object_get(was, "path")));
    struct input_file *f = at != NULL ? &in->file[json_integer_value(at)] : NULL;
    if (json_is_null(read))
        return 0;
    if (f == NULL)
        (void)snprintf(change, bytes, "is no longer an input");
    else if (read == NULL)
        (void)snprintf(change, bytes, "is recorded in a format that this version does not know");
    else if (!json_is_object(read) || !S_ISREG(f->stat.st_mode))
        (void)snprintf(change, bytes, "is not a file that can be read again");
    else
        return compare_prefix(read, f, change, bytes, e);
    return 0;
}

int recorded_check(const json_t *was, struct inputs *in, const char *output, struct err *e)
{
    json_t *index = index_of(in);
    const json_t *one;
    size_t i;
    int64_t all = 0;
    if (index == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: names of inputs");
    json_array_foreach(was, i, one) all += bytes_of(json_object_get(one, "read"));
    if (all > SAID_BYTES)
        log_note("reading %.1f GB of inputs again to check that they have not changed", (double)all / 1e9);
    json_array_foreach(was, i, one)
    {
        const char *path = json_string_value(json_object_get(one, "path"));
        char change[160] = "";
        if (check_one(one, in, index, change, sizeof change, e) == 0 && change[0] != '\0')
            ERR(e, ERR_INPUT,
                "--output %.80s has results of lines without an id, which are identified by their position, and the "
                "input %.100s %s: use --force to continue all the same, or another --output",
                output, path != NULL ? path : "?", change);
        if (e->code != ERR_NONE)
            break;
    }
    json_decref(index);
    return e->code == ERR_NONE ? 0 : -1;
}
