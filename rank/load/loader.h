/* rank/load/loader.h - shared by rank/load/load.c and its two ways of reading (rank/load/load_together.c,
 * rank/load/load_alone.c). */
#ifndef LOAD_LOADER_H
#define LOAD_LOADER_H

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
    bool with_bus;            /* the way to the device is measured first */
    double spin;              /* s to look for what is awaited before sleeping */
    double started, since;    /* when loading began, and the part of the time that is under way */
    const struct world *world;
    MPI_Request listening;  /* for the rank that could not read; MPI_REQUEST_NULL: alone, or it was heard of */
    int failed_rank;        /* of the job; -1: none, as far as this rank knows */
    unsigned char *scratch; /* of loader_place */
    size_t scratch_bytes;
    struct err refused;          /* the first tensor that says what no checkpoint means */
    const atomic_bool *cancel;   /* true: loading is given up; NULL: it never is. Beside steps, where `world` is NULL */
    const atomic_ulong *n_steps; /* of other models; NULL: they need not be left anything. loader_pace's, as these: */
    unsigned long seen;
    double busy_until, due;
};

/* From here to loader_deaf this rank hears of another one's failure to read, of any host, so that it does not go on
 * for nothing. The main thread's, as the next three. */
void loader_listen(struct loader *l, const struct world *w);
/* This rank has failed: all others are to hear of it. */
void loader_tell_failure(struct loader *l);
/* Has a rank failed, this or another one? */
bool loader_failed(struct loader *l);
void loader_deaf(struct loader *l);

/* Adds the time since the last call to this part. */
void loader_spent(struct loader *l, enum load_part part);

/* A read_sink whose context is the loader: copies a rectangle into its weight, or has the device do so. A fault of its
 * numbers goes to l->refused; loading goes on to its end. */
void loader_place(void *context, const struct weight_slice *s, int64_t row, const void *src, int64_t src_ld,
                  int64_t rows);

/* A tensor is refused, for a reason that goes on after its name. The first of several reasons counts. */
void loader_refuse(struct loader *l, int tensor, const struct err *why);

/* Enqueue the copy of what was made of a part of a quantised slice. */
void loader_upload(struct loader *l, const struct weight_slice *s, const struct cells_piece *piece);

/* Touches memory from which a device will copy. Its driver would allocate new pages one by one while it pins them; all
 * threads together are quicker, and the pages are then near the cores that read into them. */
void loader_touch(const struct loader *l, unsigned char *memory, size_t bytes);

/* Pin it; a refusal is warned of. Returns whether it is pinned. */
bool loader_pin(const struct loader *l, unsigned char *memory, size_t bytes);

/* A pause, if other models have steps: so many bytes more are on their way to the device. */
void loader_pace(struct loader *l, size_t bytes);

/* A moment of waiting that began at *since (0 at first: set here): looking all the time at first, where cores have
 * nothing else to do, then in naps. */
void loader_pause(const struct loader *l, double *since);

#endif
