/* coordinator/batch/retry.c - see retry.h. */
#include "coordinator/batch/retry.h"
#include "coordinator/batch/result.h"
#include "coordinator/batch/rewrite.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct sieve {
    struct ids *ids;
    int64_t n_kept, bytes; /* of what is kept */
    struct err *e;         /* memory; the rest is errno */
};

/* A line, its newline included. */
static int sift(struct sieve *s, const char *line, size_t bytes, FILE *out)
{
    char id[LINE_MAX_ID_BYTES + 1];
    bool failed = false;
    if (!result_read(line, bytes - 1, id, &failed)) { /* it was one when the journal was recovered */
        errno = EBADMSG;
        return -1;
    }
    if (failed)
        return 0;
    struct id_entry *entry = ids_get(s->ids, id, s->e);
    if (entry == NULL || fwrite(line, 1, bytes, out) != bytes)
        return -1;
    entry->offset = s->bytes;
    s->bytes += (int64_t)bytes;
    s->n_kept++;
    return 0;
}

static int write_kept(void *context, int from, FILE *out)
{
    struct sieve *s = context;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes = 0;
    int own = dup(from), rc = 0;
    FILE *in = own >= 0 ? fdopen(own, "r") : NULL;
    if (in == NULL) {
        if (own >= 0)
            (void)close(own);
        return -1;
    }
    rewind(in);
    ids_forget_results(s->ids);
    while (rc == 0 && (bytes = getline(&line, &capacity, in)) > 0)
        rc = sift(s, line, (size_t)bytes, out);
    if (rc == 0 && ferror(in) != 0)
        rc = -1;
    int why = errno;
    free(line);
    (void)fclose(in);
    errno = why;
    return rc;
}

int retry_take_out(struct journal *j, struct ids *ids, int64_t *n_kept, struct err *e)
{
    struct sieve s = {.ids = ids, .e = e};
    const struct rewrite w = {"cleared of errors", write_kept, &s};
    int rc = rewrite_run(j, &w, e);
    *n_kept = s.n_kept;
    return rc;
}
