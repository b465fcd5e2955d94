/* coordinator/batch/ordered.c - see ordered.h. */
#include "coordinator/batch/ordered.h"
#include "coordinator/batch/rewrite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_BYTES ((size_t)4 << 10) /* bytes that most lines fit into */
#define BLOCK_BYTES ((size_t)64 << 10)

struct line_spot {
    uint64_t position;
    int64_t offset;
};

static int compare(const void *a, const void *b)
{
    const struct line_spot *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Position 0, for lines that are no longer in the input, sorts to the end. */
static struct line_spot *sorted(const struct ids *ids, size_t *n, struct err *e)
{
    struct line_spot *spot = err_calloc(e, ids->n, sizeof *spot, "order of the results");
    *n = 0;
    for (size_t i = 0; spot != NULL && i < ids->capacity; i++) {
        const struct id_entry *entry = &ids->entry[i];
        if (entry->key[1] != 0 && entry->offset >= 0)
            spot[(*n)++] = (struct line_spot){entry->position != 0 ? entry->position : UINT64_MAX, entry->offset};
    }
    if (spot != NULL)
        qsort(spot, *n, sizeof *spot, compare);
    return spot;
}

/* Writes one complete line to the stream. */
static int copy_line(int fd, int64_t offset, FILE *out)
{
    char block[BLOCK_BYTES];
    for (size_t wanted = FIRST_BYTES;; wanted = sizeof block) {
        ssize_t got = pread(fd, block, wanted, offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? ENODATA : errno;
            return -1;
        }
        const char *newline = memchr(block, '\n', (size_t)got);
        size_t bytes = newline != NULL ? (size_t)(newline - block) + 1 : (size_t)got;
        if (fwrite(block, 1, bytes, out) != bytes)
            return -1;
        if (newline != NULL)
            return 0;
        offset += got;
    }
}

struct ordered_spots {
    const struct line_spot *spot; /* [n] */
    size_t n;
};

static int write_sorted(void *context, int from, FILE *out)
{
    const struct ordered_spots *order = context;
    for (size_t i = 0; i < order->n; i++)
        if (copy_line(from, order->spot[i].offset, out) != 0)
            return -1;
    return 0;
}

int ordered_rewrite(struct journal *j, const struct ids *ids, struct err *e)
{
    size_t n;
    struct line_spot *spot = sorted(ids, &n, e);
    if (spot == NULL)
        return -1;
    struct ordered_spots order = {spot, n};
    const struct rewrite w = {"put in order", write_sorted, &order};
    int rc = rewrite_run(j, &w, e);
    free(spot);
    return rc;
}
