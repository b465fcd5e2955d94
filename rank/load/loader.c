/* rank/load/loader.c - see loader.h. */
#include "rank/load/loader.h"
#include "base/clock.h"
#include "base/log.h"
#include "rank/world/fatal.h"

#include <stdlib.h>
#include <time.h>

#define UNPACKING_THREADS 4
/* Bytes/s to the device beside steps: 16 GB cost the steps 21 ms at any rate (docs/log/2026-11-27.md), so they keep 95
 * % of their speed if the copy takes half a second. */
#define GENTLE_RATE 33e9
#define BUSY        0.05 /* s after a step in which more steps are expected */
#define LATE        1e-3 /* s of delay that may be caught up */
#define TAG         18   /* tag: a rank could not read; rank/watch/notice.c has 17 */

void loader_listen(struct loader *l, const struct world *w)
{
    l->world = w;
    l->failed_rank = -1;
    l->listening = MPI_REQUEST_NULL;
    if (w->n_job_ranks > 1)
        MPI_CHECK(MPI_Irecv(&l->failed_rank, 1, MPI_INT, MPI_ANY_SOURCE, TAG, w->job, &l->listening));
}

void loader_tell_failure(struct loader *l)
{
    const struct world *w = l->world;
    if (w == NULL) /* beside steps: failures are reported in another way */
        return;
    loader_deaf(l);
    l->failed_rank = w->job_rank;
    for (int r = 0; r < w->n_job_ranks; r++) /* four bytes, which MPI buffers until they are received */
        if (r != w->job_rank)
            MPI_CHECK(MPI_Send(&l->failed_rank, 1, MPI_INT, r, TAG, w->job));
}

bool loader_failed(struct loader *l)
{
    int came = 0;
    if (l->listening != MPI_REQUEST_NULL)
        MPI_CHECK(MPI_Test(&l->listening, &came, MPI_STATUS_IGNORE));
    return l->failed_rank >= 0 || (l->cancel != NULL && atomic_load(l->cancel));
}

void loader_deaf(struct loader *l)
{
    if (l->listening == MPI_REQUEST_NULL)
        return;
    MPI_CHECK(MPI_Cancel(&l->listening));
    MPI_CHECK(MPI_Wait(&l->listening, MPI_STATUS_IGNORE));
}

void loader_spent(struct loader *l, enum load_part part)
{
    double now = seconds_now();
    l->stats->part[part] += now - l->since;
    l->since = now;
}

/* Memory for `bytes` bytes in transit; NULL and l->refused without memory. */
static unsigned char *scratch(struct loader *l, size_t bytes)
{
    if (bytes <= l->scratch_bytes)
        return l->scratch;
    free(l->scratch);
    l->scratch = err_calloc(&l->refused, bytes, 1, "weights that are being unpacked");
    l->scratch_bytes = l->scratch != NULL ? bytes : 0;
    return l->scratch;
}

void loader_refuse(struct loader *l, int tensor, const struct err *why)
{
    ERR(&l->refused, why->code, "%s: tensor \"%.120s\" %s", checkpoint_short_path(l->c->dir),
        checkpoint_tensor_name(l->c, tensor), why->text);
}

static void upload(struct loader *l, char *dst, size_t pitch, const void *src, size_t src_pitch, size_t width,
                   size_t rows)
{
    struct uploads *u = l->gathered;
    if (u == NULL || width * rows == 0 || (rows > 1 && (pitch != width || src_pitch != width))) {
        l->ops->upload(l->q, dst, pitch, src, src_pitch, width, rows);
        return;
    }
    u->dst[u->n] = dst;
    u->src[u->n] = src;
    u->bytes[u->n++] = width * rows;
}

void loader_upload(struct loader *l, const struct weight_slice *s, const struct cells_piece *piece)
{
    upload(l, (char *)l->network->weight[s->slot].data + piece->at, piece->pitch, piece->bytes, piece->src_pitch,
           piece->width, piece->rows);
}

void loader_flush(struct loader *l)
{
    if (l->gathered == NULL)
        return;
    upload_all(l->ops, l->q, l->gathered);
    l->gathered->n = 0;
}

/* The number of threads that unpack a block; if a device copies, other threads read meanwhile. */
static int unpacking_threads(const struct loader *l)
{
    int n = l->q->n_threads;
    return l->ops->async == NULL || n < UNPACKING_THREADS ? n : UNPACKING_THREADS;
}

/* Unpacked bytes must have been copied before the next ones are unpacked. */
static void place_quantised(struct loader *l, const struct weight_slice *s, int64_t row, const void *src,
                            int64_t src_ld, int64_t rows)
{
    const struct cells_source from = {s, row, rows, src, src_ld};
    const struct weight_slot *slot = &l->network->map.slot[s->slot];
    struct cells_piece piece;
    struct err why = {0};
    size_t bytes = cells_scratch(slot, &from);
    unsigned char *to = scratch(l, bytes);
    if (l->refused.code != ERR_NONE)
        return;
    if (cells_place(&piece, slot, &from, to, unpacking_threads(l), &why) != 0) {
        loader_refuse(l, s->tensor, &why);
        return;
    }
    loader_upload(l, s, &piece);
    if (bytes > 0)
        l->ops->wait(l->q);
}

void loader_place(void *context, const struct weight_slice *s, int64_t row, const void *src, int64_t src_ld,
                  int64_t rows)
{
    struct loader *l = context;
    const struct weight *w = &l->network->weight[s->slot];
    int64_t cols = s->cols, dst_row, dst_col;
    if (s->cells.plane != PLANE_DENSE) {
        place_quantised(l, s, row, src, src_ld, rows);
        return;
    }
    read_target(s, row, &dst_row, &dst_col);
    size_t size = dtype_bytes(w->type), ld = (size_t)w->cols;
    char *dst = (char *)w->data + ((size_t)dst_row * ld + (size_t)dst_col) * size;
    if (s->transpose)
        l->ops->upload_transposed(l->q, dst, ld, src, (size_t)src_ld, (size_t)rows, (size_t)cols, w->type);
    else
        upload(l, dst, ld * size, src, (size_t)src_ld * size, (size_t)cols * size, (size_t)rows);
}

void loader_touch(const struct loader *l, unsigned char *memory, size_t bytes)
{
#pragma omp parallel for num_threads(l->q->n_threads) schedule(static)
    for (size_t at = 0; at < bytes; at += 4096)
        memory[at] = 0;
}

bool loader_pin(const struct loader *l, unsigned char *memory, size_t bytes)
{
    bool pinned = memory != NULL && l->ops->async->host_register(l->q, memory, bytes);
    if (!pinned)
        log_warn("the memory that weights are copied from cannot be pinned: loading is slower");
    return pinned;
}

void loader_pace(struct loader *l, size_t bytes)
{
    double now = seconds_now();
    if (l->n_steps == NULL)
        return;
    unsigned long n = atomic_load_explicit(l->n_steps, memory_order_relaxed);
    if (n != l->seen)
        l->busy_until = now + BUSY;
    l->seen = n;
    if (now >= l->busy_until || l->due < now - LATE)
        l->due = now;
    l->due += (double)bytes / GENTLE_RATE;
    const struct timespec rest = {0, (long)(1e9 * (l->due - now))};
    if (now < l->busy_until && l->due > now)
        (void)nanosleep(&rest, NULL);
}

void loader_pause(const struct loader *l, double *since)
{
    const struct timespec nap = {0, 50000};
    if (*since == 0)
        *since = seconds_now();
    if (l->spin == 0 || seconds_now() > *since + l->spin)
        (void)nanosleep(&nap, NULL);
    else
        relax();
}
