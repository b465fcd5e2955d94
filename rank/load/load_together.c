/* rank/load/load_together.c - see load_together.h, partition/read_plan.h for the blocks and rank/load/reader.h for
 * their reading.
 *
 * Round i: every rank of the node reads one block into slot i % n_slots of its part of a shared-memory window, and
 * takes its slices out of the blocks of all ranks. Rounds have no barrier: counters in the window tell which block is
 * in a slot and how many rounds each rank has finished, so a rank may be n_slots rounds ahead of the slowest, and its
 * reader's threads as far ahead of it. */
#include "rank/load/load_together.h"
#include "rank/world/fatal.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* The state of a rank, as the others see it. */
struct window_head {
    _Atomic int ready[READER_MAX_SLOTS]; /* set by the reader: the block in each slot, counted in rounds */
    _Atomic int done;                    /* rounds whose blocks this rank no longer needs */
};

#define HEAD_BYTES ((size_t)4096)

static struct window_head *head(const struct together *t, int node_rank)
{
    return (struct window_head *)(void *)t->base[node_rank];
}

static unsigned char *slot(const struct together *t, int node_rank, int round)
{
    return t->base[node_rank] + HEAD_BYTES + (size_t)(round % t->l->setup->n_slots) * t->slot_bytes;
}

/* Rounds that no rank of the node needs any more; their slots may be read into again. */
static int release(struct together *t)
{
    int done = INT_MAX;
    for (int i = 0; i < t->w->n_node_ranks; i++) {
        int theirs = atomic_load_explicit(&head(t, i)->done, memory_order_acquire);
        done = theirs < done ? theirs : done;
    }
    if (done > t->released) /* otherwise avoids the lock, since this is called while waiting */
        reader_release(&t->reader, done);
    t->released = done;
    return done;
}

/* Conditions on which a rank waits: the others no longer need the slot for its own block of a round, ... */
static bool has_room(struct together *t, int owner, int round)
{
    (void)owner;
    return release(t) > round - t->l->setup->n_slots;
}

/* ... and a block of another rank has arrived. */
static bool is_ready(struct together *t, int owner, int round)
{
    int slot_of_round = round % t->l->setup->n_slots;
    bool ready = atomic_load_explicit(&head(t, owner)->ready[slot_of_round], memory_order_acquire) == round;
    if (!ready)
        (void)release(t); /* meanwhile this rank's own threads may continue */
    return ready;
}

/* False: a rank has failed. */
static bool wait_for(struct together *t, bool (*is)(struct together *, int, int), int owner, int round)
{
    double since = 0;
    while (!is(t, owner, round)) {
        if (loader_failed(t->l))
            return false;
        loader_pause(t->l, &since);
    }
    return true;
}

/* This rank no longer needs the blocks of the first n rounds. */
static void finish_rounds(const struct together *t, int n)
{
    if (n > 0)
        atomic_store_explicit(&head(t, t->w->node_rank)->done, n, memory_order_release);
}

static bool wait_for_own(struct together *t, int round, struct err *e)
{
    int own = t->w->node_rank;
    if (round * t->w->n_node_ranks + own >= t->l->plan->n_blocks)
        return true; /* the last round has none for it */
    bool going_on = wait_for(t, has_room, own, round);
    loader_spent(t->l, LOAD_RANKS);
    if (going_on && reader_wait(&t->reader, round, e) != 0) {
        loader_tell_failure(t->l);
        going_on = false;
    }
    loader_spent(t->l, LOAD_READING);
    return going_on;
}

/* Returns false when a rank has failed. */
static bool copy_round(struct together *t, int round, struct err *e)
{
    struct loader *l = t->l;
    int n = t->w->n_node_ranks, first = round * n;
    if (l->ops->async != NULL && round >= 2) { /* the data of the blocks of two rounds ago is on the device */
        l->ops->async->wait_mark(l->q, round & 1);
        finish_rounds(t, round - 1);
    }
    loader_spent(l, LOAD_DEVICE);
    if (loader_failed(l) || !wait_for_own(t, round, e))
        return false;
    for (int k = 0; k < n; k++) { /* its own first, since it has arrived, and so that ranks do not all read the same
                                     one */
        int i = (t->w->node_rank + k) % n;
        if (first + i >= l->plan->n_blocks)
            continue;
        if (!wait_for(t, is_ready, i, round))
            return false;
        loader_spent(l, LOAD_RANKS);
        read_plan_scatter(l->plan, &l->network->map, l->c, first + i, slot(t, i, round), loader_place, l);
        loader_spent(l, LOAD_PLACING);
    }
    if (l->ops->async != NULL)
        l->ops->async->mark(l->q, round & 1);
    else
        finish_rounds(t, round + 1);
    (void)release(t);
    loader_spent(l, LOAD_READING); /* without a core for each, the reader continues in this thread */
    return true;
}

void together_open(struct together *t, struct loader *l, struct world *w, struct err *e)
{
    unsigned char *own = NULL;
    int n = w->n_node_ranks;
    bool device = l->ops->async != NULL, in_a_row = true;
    *t = (struct together){.l = l, .w = w, .slot_bytes = (l->plan->max_block_bytes + 4095) / 4096 * 4096};
    size_t bytes_of_rank = HEAD_BYTES + (size_t)l->setup->n_slots * t->slot_bytes;
    t->base = err_calloc(e, (size_t)n, sizeof *t->base, "window table");
    fatal_agree(w, e); /* before the others wait for this rank in the window */
    MPI_CHECK(MPI_Win_allocate_shared((MPI_Aint)bytes_of_rank, 1, MPI_INFO_NULL, w->node, &own, &t->window));
    MPI_CHECK(MPI_Win_lock_all(MPI_MODE_NOCHECK, t->window));
    for (int i = 0; i < n; i++) {
        MPI_Aint bytes = 0;
        int unit = 0;
        MPI_CHECK(MPI_Win_shared_query(t->window, i, &bytes, &unit, (void *)&t->base[i]));
        /* By default MPI places the ranks' parts one after the other. */
        in_a_row = in_a_row && t->base[i] == t->base[0] + (size_t)i * bytes_of_rank;
    }
    if (device)
        loader_touch(l, own, bytes_of_rank);
    memset(own, 0, HEAD_BYTES);
    for (int i = 0; i < READER_MAX_SLOTS; i++)
        atomic_store(&head(t, w->node_rank)->ready[i], -1);
    MPI_CHECK(MPI_Barrier(w->node));
    t->registered = device && loader_pin(l, in_a_row ? t->base[0] : NULL, (size_t)n * bytes_of_rank);
}

unsigned char *together_memory(const struct together *t, size_t *bytes)
{
    *bytes = (size_t)t->l->setup->n_slots * t->slot_bytes;
    return slot(t, t->w->node_rank, 0);
}

void together_close(struct together *t)
{
    if (t->registered)
        t->l->ops->async->host_unregister(t->l->q, t->base[0]);
    MPI_CHECK(MPI_Win_unlock_all(t->window));
    MPI_CHECK(MPI_Win_free(&t->window));
    free(t->base);
}

static void open_reader(struct together *t, struct err *e)
{
    struct loader *l = t->l;
    int own = t->w->node_rank;
    struct reader_setup s = {.c = l->c,
                             .plan = l->plan,
                             .first = own,
                             .stride = t->w->n_node_ranks,
                             .n_slots = l->setup->n_slots,
                             .ready = head(t, own)->ready,
                             .n_threads = l->setup->n_threads,
                             .piece_bytes = (size_t)l->setup->piece_bytes,
                             .spin = l->spin};
    for (int i = 0; i < s.n_slots; i++)
        s.bytes[i] = slot(t, own, i);
    if (reader_open(&t->reader, &s, e) != 0)
        loader_tell_failure(t->l);
}

void together_run(struct together *t, struct err *e)
{
    struct loader *l = t->l;
    int n = t->w->n_node_ranks, rounds = (l->plan->n_blocks + n - 1) / n;
    uint64_t done = 0;
    open_reader(t, e);
    for (int round = 0; e->code == ERR_NONE && round < rounds && copy_round(t, round, e); round++) {
        for (int b = round * n; b < (round + 1) * n && b < l->plan->n_blocks; b++)
            done += l->plan->block[b].bytes;
        progress_update(&l->progress, done, NULL);
    }
    l->ops->wait(l->q);
    finish_rounds(t, rounds); /* slower ranks may still wait for it */
    loader_spent(l, LOAD_DEVICE);
    reader_close(&t->reader);
    l->stats->bytes_read = t->reader.bytes_read;
}
