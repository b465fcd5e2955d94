/* rank/load/loader.h - shared by rank/load/load.c and its two ways of reading (rank/load/load_together.c,
 * rank/load/load_alone.c). */
#ifndef LOAD_LOADER_H
#define LOAD_LOADER_H

#include "kernels/uploads.h"
#include "partition/cells.h"
#include "rank/load/load.h"

struct loader {
    const struct checkpoint *c; /* borrowed, as all that follow are */
    struct read_plan *plan;
    struct network *network;
    const struct ops *ops;
    struct queue *q;
    struct load_setup *setup; /* filled in */
    struct load_stats *stats;
    struct progress progress;
    enum progress_mode shown; /* by rank 0 */
    bool with_bus;            /* the copy rate to the device is measured first */
    double spin;              /* s of polling before sleeping */
    double started, since;    /* when loading began, and the current part of the time */
    const struct world *world;
    MPI_Request listening;  /* receives the rank that could not read; MPI_REQUEST_NULL: a single rank, or it was
                              received */
    int failed_rank;        /* the failed rank of the job; -1: none known */
    unsigned char *scratch; /* of loader_place */
    size_t scratch_bytes;
    struct uploads *gathered;    /* contiguous copies that loader_flush enqueues; NULL: they are enqueued at once */
    struct err refused;          /* the first tensor with invalid data */
    const atomic_bool *cancel;   /* true: loading is abandoned; NULL: never. For loads beside steps, where `world` is
                                  NULL */
    const atomic_ulong *n_steps; /* steps of other models; NULL: no pauses for them. Used by loader_pace, like these: */
    unsigned long seen;
    double busy_until, due;
};

/* From here to loader_deaf this rank learns if another one, on any host, fails to read, so that it does not continue in
 * vain. For the main thread, like the next three. */
void loader_listen(struct loader *l, const struct world *w);
/* This rank has failed: informs all others. */
void loader_tell_failure(struct loader *l);
/* Has a rank failed, this or another one? */
bool loader_failed(struct loader *l);
void loader_deaf(struct loader *l);

/* Adds the time since the last call to this part. */
void loader_spent(struct loader *l, enum load_part part);

/* A read_sink whose context is the loader: copies a rectangle into its weight, or enqueues the copy. Invalid numbers
 * are recorded in l->refused; loading continues to its end. */
void loader_place(void *context, const struct weight_slice *s, int64_t row, const void *src, int64_t src_ld,
                  int64_t rows);

/* Records a refused tensor, with a reason that continues the sentence after its name. The first one counts. */
void loader_refuse(struct loader *l, int tensor, const struct err *why);

/* Enqueue the copy of an unpacked part of a quantised slice. */
void loader_upload(struct loader *l, const struct weight_slice *s, const struct cells_piece *piece);

/* Enqueue the copies gathered since the last call, at most UPLOADS_MOST. */
void loader_flush(struct loader *l);

/* Touches memory from which a device will copy. Its driver would fault new pages in one by one while pinning them; all
 * threads together are faster, and the pages are then local to the cores that read into them. */
void loader_touch(const struct loader *l, unsigned char *memory, size_t bytes);

/* Pin it; a refusal is warned of. Returns whether it is pinned. */
bool loader_pin(const struct loader *l, unsigned char *memory, size_t bytes);

/* Pauses if other models have steps, after this many further bytes were enqueued to the device. */
void loader_pace(struct loader *l, size_t bytes);

/* One turn of waiting since *since (0 at first: set here): polls at first if cores are otherwise idle, then naps. */
void loader_pause(const struct loader *l, double *since);

#endif
