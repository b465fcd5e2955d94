/* rank/load/load_alone.c - see load_alone.h, partition/read_plan.h for the blocks.
 *
 * Every thread has its own slots, which stay in the caches of its core: it takes the next block, reads it into one of
 * them, unpacks quantised data, and marks the slot as full. The main thread has the device copy full slots in order of
 * arrival, one batch after the other, and returns the slots of a batch when the next batch has been enqueued. So no
 * thread waits for a slower one: where 60 threads share a machine, waiting for the blocks in order costs a quarter
 * (docs/log/2026-11-22.md). */
#include "rank/load/load_alone.h"
#include "rank/load/block_file.h"

#include <stdatomic.h>
#include <stdlib.h>

#define BATCH_BYTES ((size_t)4 << 20) /* at least */
#define BATCH_PART  8                 /* of all slots: two batches under way leave most to the threads */

static unsigned char *slot_memory(const struct alone *a, int slot)
{
    return a->window->memory + (size_t)slot * a->slot_bytes;
}

static void fail_alone(struct alone *a, const struct err *e)
{
    (void)pthread_mutex_lock(&a->lock);
    if (a->err.code == ERR_NONE)
        ERR(&a->err, e->code, "%s", e->text);
    (void)pthread_mutex_unlock(&a->lock);
    atomic_store(&a->stop, true);
}

/* False: another thread has failed, or another rank. */
static bool wait_for_room(const struct alone *a, int slot)
{
    double since = 0;
    while (atomic_load_explicit(&a->full[slot], memory_order_acquire) != 0) {
        if (atomic_load(&a->stop))
            return false;
        loader_pause(a->l, &since);
    }
    return true;
}

/* The slice to which a block of this rank's plan belongs. */
static const struct weight_slice *slice_of(const struct alone *a, int block, struct cells_source *from,
                                           const unsigned char *bytes)
{
    const struct read_plan *plan = a->l->plan;
    const struct read_segment *segment = &plan->segment[plan->block[block].first_segment];
    const struct weight_slice *s = &a->l->network->map.slice[segment->slice];
    *from = (struct cells_source){s, segment->row, segment->n_rows, bytes, segment->row_elements};
    return s;
}

/* The most bytes of a slot for unpacked data. */
static size_t unpacked_bytes(const struct alone *a)
{
    size_t most = 0;
    for (int b = 0; b < a->l->plan->n_blocks; b++) {
        struct cells_source from;
        const struct weight_slice *s = slice_of(a, b, &from, NULL);
        size_t bytes = s->cells.plane == PLANE_DENSE ? 0 : cells_scratch(&a->l->network->map.slot[s->slot], &from);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Called by the thread that has read the block, which is in its cache. */
static void unpack(struct alone *a, int slot, int block)
{
    struct unpacked_block *u = &a->unpacked[slot];
    struct cells_source from;
    const struct weight_slice *s = slice_of(a, block, &from, slot_memory(a, slot));
    u->refused.code = ERR_NONE;
    if (s->cells.plane != PLANE_DENSE)
        (void)cells_place(&u->piece, &a->l->network->map.slot[s->slot], &from, slot_memory(a, slot) + a->unpacked_at, 1,
                          &u->refused);
}

static void *read_blocks(void *context)
{
    const struct alone_thread *t = context;
    struct alone *a = t->a;
    const struct read_plan *plan = a->l->plan;
    struct block_file file;
    int slot = t->i;
    block_file_init(&file, a->l->c);
    for (int k = atomic_fetch_add(&a->next, 1); k < plan->n_blocks && !atomic_load(&a->stop);
         k = atomic_fetch_add(&a->next, 1)) {
        int b = (k + a->first) % plan->n_blocks;
        struct err e = {0};
        if (!wait_for_room(a, slot))
            break;
        if (block_file_read(&file, &plan->block[b], 0, plan->block[b].bytes, slot_memory(a, slot), &e) != 0) {
            fail_alone(a, &e);
            break;
        }
        unpack(a, slot, b);
        atomic_store_explicit(&a->full[slot], 1 + b, memory_order_release);
        slot = slot + a->n_threads < a->n_slots ? slot + a->n_threads : t->i;
    }
    block_file_close(&file);
    return NULL;
}

/* Wait until a batch is on the device; its slots are their threads' again. */
static void give_back(struct alone *a, struct slot_batch *g, int mark)
{
    if (g->n > 0 && a->l->ops->async != NULL)
        a->l->ops->async->wait_mark(a->l->q, mark);
    for (int i = 0; i < g->n; i++) {
        a->taken[g->slot[i]] = false;
        atomic_store_explicit(&a->full[g->slot[i]], 0, memory_order_release);
    }
    g->n = 0;
}

/* Enqueues the copies of the block in a slot. */
static void copy_block(struct alone *a, int slot, int block)
{
    struct loader *l = a->l;
    const struct unpacked_block *u = &a->unpacked[slot];
    struct cells_source from;
    const struct weight_slice *s = slice_of(a, block, &from, slot_memory(a, slot));
    if (s->cells.plane == PLANE_DENSE)
        loader_place(l, s, from.row, from.bytes, from.ld, from.rows);
    else if (u->refused.code != ERR_NONE)
        loader_refuse(l, s->tensor, &u->refused);
    else
        loader_upload(l, s, &u->piece);
}

/* Enqueues copies of full slots, thread by thread, so that every thread gets its slots back. Returns the bytes. */
static size_t copy_full(struct alone *a, struct slot_batch *g)
{
    struct loader *l = a->l;
    size_t bytes = 0;
    for (int i = 0; i < a->n_slots && bytes < a->batch_bytes; i++) {
        int slot = a->at, full = atomic_load_explicit(&a->full[slot], memory_order_acquire);
        a->at = (a->at + 1) % a->n_slots;
        if (full == 0 || a->taken[slot])
            continue;
        a->taken[slot] = true;
        g->slot[g->n++] = slot;
        bytes += l->plan->block[full - 1].bytes;
        copy_block(a, slot, full - 1);
    }
    loader_flush(l);
    return bytes;
}

/* Runs until all copies are enqueued, or a thread or another rank has failed. */
static void copy_all(struct alone *a)
{
    struct loader *l = a->l;
    uint64_t done = 0;
    double since = 0;
    size_t bytes = 0;
    for (int mark = 0; done < l->plan->bytes && !atomic_load(&a->stop) && !loader_failed(l); mark ^= 1) {
        struct slot_batch *g = &a->batch[mark];
        give_back(a, g, mark);
        loader_spent(l, bytes >= a->batch_bytes ? LOAD_DEVICE : LOAD_READING); /* the device finishes less too soon */
        bytes = copy_full(a, g);
        if (bytes == 0) {
            loader_pause(l, &since);
            continue;
        }
        if (l->ops->async != NULL)
            l->ops->async->mark(l->q, mark);
        loader_pace(l, bytes);
        loader_spent(l, LOAD_PLACING);
        since = 0;
        done += bytes;
        progress_update(&l->progress, done, NULL);
    }
    l->stats->bytes_read = done;
    if (atomic_load(&a->stop))
        loader_tell_failure(l);
    if (loader_failed(l))
        atomic_store(&a->stop, true);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

int alone_open(struct alone *a, struct loader *l, const struct world *w, struct window *lent, struct err *e)
{
    const struct load_setup *s = l->setup;
    *a = (struct alone){.l = l, .unpacked_at = whole_pages(l->plan->max_block_bytes), .n_slots = s->n_slots};
    a->slot_bytes = a->unpacked_at + whole_pages(unpacked_bytes(a));
    a->batch_bytes = (size_t)a->n_slots * l->plan->max_block_bytes / BATCH_PART;
    a->batch_bytes = a->batch_bytes > BATCH_BYTES ? a->batch_bytes : BATCH_BYTES;
    a->n_threads = s->n_threads < s->n_slots ? s->n_threads : s->n_slots;
    a->first = (int)((int64_t)l->plan->n_blocks * w->node_rank / w->n_node_ranks); /* ranks start at different
                                                                                      positions */
    (void)pthread_mutex_init(&a->lock, NULL);
    a->window = lent != NULL ? lent : &a->own;
    a->unpacked = err_calloc(e, (size_t)a->n_slots, sizeof *a->unpacked, "weights unpacked while they are loaded");
    if (a->unpacked == NULL || window_open(a->window, (size_t)a->n_slots * a->slot_bytes, l, e) != 0)
        return -1;
    if (a->window->pinned && l->n_steps == NULL) /* beside steps copies stay as short as they are */
        l->gathered = &a->uploads;
    return 0;
}

void alone_run(struct alone *a, struct err *e)
{
    int started = 0;
    for (bool more = true; more && started < a->n_threads; started += more) {
        struct alone_thread *t = &a->thread[started];
        *t = (struct alone_thread){.a = a, .i = started};
        more = pthread_create(&t->thread, NULL, read_blocks, t) == 0;
    }
    a->l->setup->n_threads = started;
    if (started > 0) { /* fewer threads than wanted are accepted, but not none */
        copy_all(a);
    } else {
        ERR(e, ERR_MEMORY, "cannot start a thread that reads the checkpoint");
        loader_tell_failure(a->l);
    }
    for (int i = 0; i < started; i++)
        (void)pthread_join(a->thread[i].thread, NULL);
    a->l->ops->wait(a->l->q);
    loader_spent(a->l, LOAD_DEVICE);
    if (a->err.code != ERR_NONE)
        ERR(e, a->err.code, "%s", a->err.text);
}

void alone_close(struct alone *a)
{
    if (a->l != NULL)
        window_close(&a->own, a->l->ops, a->l->q);
    free(a->unpacked);
    (void)pthread_mutex_destroy(&a->lock);
}
