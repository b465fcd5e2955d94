/* rank/load.c - see load.h, partition/read_plan.h for the blocks and rank/reader.h for their reading.
 *
 * Those that read together are the ranks of a node, or each rank alone. Round i: every one of them has one block read into
 * slot i % n_slots of its part of a shared-memory window, and takes its slices out of the blocks of all. No barrier holds
 * the rounds together: words in the window say which block lies in a slot and how many rounds each rank has done with, so a
 * rank may be n_slots rounds ahead of the slowest, and its reader's threads as far ahead of it. */
#include "rank/load.h"
#include "base/clock.h"
#include "base/log.h"
#include "rank/cached.h"
#include "rank/fatal.h"
#include "rank/reader.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Broadcast an array whose length only rank 0 knows; the others allocate. */
static int share_array(void *array, size_t bytes, struct world *w, struct err *e)
{
    void **p = array;
    if (w->rank != 0)
        *p = err_calloc(e, bytes, 1, "checkpoint header");
    fatal_agree(w, e);
    for (size_t at = 0; at < bytes; at += 1u << 30) {
        size_t n = bytes - at < (1u << 30) ? bytes - at : 1u << 30;
        MPI_CHECK(MPI_Bcast((char *)*p + at, (int)n, MPI_BYTE, 0, w->comm));
    }
    return 0;
}

int load_share_headers(struct model_config *m, struct checkpoint *c, struct world *w, struct err *e)
{
    struct checkpoint head = *c;
    MPI_CHECK(MPI_Bcast(m, sizeof *m, MPI_BYTE, 0, w->comm));
    MPI_CHECK(MPI_Bcast(&head, sizeof head, MPI_BYTE, 0, w->comm));
    if (w->rank != 0) {
        *c = head;
        c->tensor = NULL;
        c->file = NULL;
        c->text = NULL;
    }
    (void)share_array(&c->tensor, (size_t)head.n_tensors * sizeof *c->tensor, w, e);
    (void)share_array(&c->file, (size_t)head.n_files * sizeof *c->file, w, e);
    (void)share_array(&c->text, head.text_bytes, w, e);
    return 0;
}

struct loader {
    const struct checkpoint *c;
    const struct read_plan *plan;
    struct network *network;
    const struct ops *ops;
    struct queue *q;
    struct progress progress;
    struct reader reader;
    int released;   /* rounds */
    MPI_Comm mates; /* that read together; this one is number `self` of the n */
    int n, self;
    MPI_Win window;
    struct load_setup *setup;
    struct load_stats *stats;
    double spin;  /* s to look for what is awaited before sleeping */
    double since; /* when the part of the time that is under way began */
    size_t slot_bytes;
    unsigned char **base; /* [n] each rank's part of the window: its head, then its slots */
    bool registered;      /* with the device, for copies at full speed */
};

/* Of a rank, as the others see it. */
struct window_head {
    _Atomic int ready[READER_MAX_SLOTS]; /* the reader's: the block in each slot, counted in rounds */
    _Atomic int done;                    /* rounds whose blocks, of all ranks, it no longer needs */
    _Atomic int failed;
};

#define HEAD_BYTES       ((size_t)4096)
#define BUS_TEST_BYTES   ((size_t)1 << 30)
#define BUS_TEST_COPIES  1024 /* at most, where weights are small */
#define BUS_TEST_WARM_UP 4    /* copies */
#define HOST_SLOTS       4    /* where the main thread copies itself, a small window stays in its caches */
/* Where a device copies: 32 MiB, which stay in the host's caches from the read to the copy. 128 took twice as long. */
#define DEVICE_BLOCK_BYTES ((size_t)4 << 20)
#define DEVICE_SLOTS       8
#define DEVICE_THREADS     15
#define PIECE_BYTES        ((size_t)512 << 10)
#define SPIN               1e-3 /* s, where a device copies and cores have nothing else to do */

/* What has passed since the last call belongs to this part. */
static void spent(struct loader *l, enum load_part part)
{
    double now = seconds_now();
    l->stats->part[part] += now - l->since;
    l->since = now;
}

static struct window_head *head(const struct loader *l, int mate)
{
    return (struct window_head *)(void *)l->base[mate];
}

static unsigned char *slot(const struct loader *l, int mate, int round)
{
    return l->base[mate] + HEAD_BYTES + (size_t)(round % l->setup->n_slots) * l->slot_bytes;
}

static void place(void *context, int slot, int64_t dst_row, int64_t dst_col, const void *src, int64_t src_ld,
                  int64_t rows, int64_t cols, bool transpose)
{
    struct loader *l = context;
    const struct weight *w = &l->network->weight[slot];
    size_t size = dtype_bytes(w->type), ld = (size_t)w->cols;
    char *dst = (char *)w->data + ((size_t)dst_row * ld + (size_t)dst_col) * size;
    if (transpose)
        l->ops->upload_transposed(l->q, dst, ld, src, (size_t)src_ld, (size_t)rows, (size_t)cols, w->type);
    else
        l->ops->upload(l->q, dst, ld * size, src, (size_t)src_ld * size, (size_t)cols * size, (size_t)rows);
}

/* Rounds that no mate needs any more; their slots may be read into again. */
static int release(struct loader *l)
{
    int done = INT_MAX;
    for (int i = 0; i < l->n; i++) {
        int theirs = atomic_load_explicit(&head(l, i)->done, memory_order_acquire);
        done = theirs < done ? theirs : done;
    }
    if (done > l->released) /* else the lock is left alone: this is called while waiting */
        reader_release(&l->reader, done);
    l->released = done;
    return done;
}

static bool anyone_failed(const struct loader *l)
{
    bool failed = false;
    for (int i = 0; i < l->n; i++)
        failed = failed || atomic_load(&head(l, i)->failed) != 0;
    return failed;
}

/* What a rank may wait for: that others are done with the slot that a round's block of its own goes to, ... */
static bool has_room(struct loader *l, int owner, int round)
{
    (void)owner;
    return release(l) > round - l->setup->n_slots;
}

/* ... and that a block of another rank is there. */
static bool is_ready(struct loader *l, int owner, int round)
{
    bool ready = atomic_load_explicit(&head(l, owner)->ready[round % l->setup->n_slots], memory_order_acquire) == round;
    if (!ready)
        (void)release(l); /* meanwhile this rank's own threads may go on */
    return ready;
}

/* Looking all the time at first, where cores have nothing else to do, then in naps. False: a mate has failed. */
static bool wait_for(struct loader *l, bool (*is)(struct loader *, int, int), int owner, int round)
{
    const struct timespec nap = {0, 50000};
    double until = l->spin > 0 ? seconds_now() + l->spin : 0;
    while (!is(l, owner, round)) {
        if (anyone_failed(l))
            return false;
        if (until == 0 || seconds_now() > until)
            (void)nanosleep(&nap, NULL);
    }
    return true;
}

/* This rank no longer needs the blocks of the first n rounds. */
static void finish_rounds(const struct loader *l, int n)
{
    if (n > 0)
        atomic_store_explicit(&head(l, l->self)->done, n, memory_order_release);
}

static bool wait_for_own(struct loader *l, int round, struct err *e)
{
    if (round * l->n + l->self >= l->plan->n_blocks)
        return true; /* the last round has none for it */
    bool going_on = wait_for(l, has_room, l->self, round);
    spent(l, LOAD_RANKS);
    if (going_on && reader_wait(&l->reader, round, e) != 0) {
        atomic_store(&head(l, l->self)->failed, 1);
        going_on = false;
    }
    spent(l, LOAD_READING);
    return going_on;
}

/* Returns false when a mate has failed. */
static bool copy_round(struct loader *l, int round, struct err *e)
{
    int n = l->n, first = round * n;
    if (l->ops->async != NULL && round >= 2) { /* what was taken out of the blocks two rounds ago is on the device */
        l->ops->async->wait_mark(l->q, round & 1);
        finish_rounds(l, round - 1);
    }
    spent(l, LOAD_DEVICE);
    if (!wait_for_own(l, round, e))
        return false;
    for (int k = 0; k < n; k++) { /* its own first, since that is there, and not all ranks the same one */
        int i = (l->self + k) % n;
        if (first + i >= l->plan->n_blocks)
            continue;
        if (!wait_for(l, is_ready, i, round))
            return false;
        spent(l, LOAD_RANKS);
        read_plan_scatter(l->plan, &l->network->map, l->c, first + i, slot(l, i, round), place, l);
        spent(l, LOAD_PLACING);
    }
    if (l->ops->async != NULL)
        l->ops->async->mark(l->q, round & 1);
    else
        finish_rounds(l, round + 1);
    (void)release(l);
    spent(l, LOAD_READING); /* with a core of its own for neither, the reader goes on right here */
    return true;
}

/* A device's driver would take new pages one by one while it pins them; all threads at once are quicker, and the pages then
 * lie near the cores that read into them. */
static void touch_pages(const struct loader *l, unsigned char *own, size_t bytes)
{
#pragma omp parallel for num_threads(l->q->n_threads) schedule(static)
    for (size_t at = 0; at < bytes; at += 4096)
        own[at] = 0;
}

static void open_window(struct loader *l)
{
    unsigned char *own = NULL;
    l->slot_bytes = (l->plan->max_block_bytes + 4095) / 4096 * 4096;
    size_t bytes_of_rank = HEAD_BYTES + (size_t)l->setup->n_slots * l->slot_bytes;
    MPI_CHECK(MPI_Win_allocate_shared((MPI_Aint)bytes_of_rank, 1, MPI_INFO_NULL, l->mates, &own, &l->window));
    MPI_CHECK(MPI_Win_lock_all(MPI_MODE_NOCHECK, l->window));
    for (int i = 0; i < l->n; i++) {
        MPI_Aint bytes = 0;
        int unit = 0;
        MPI_CHECK(MPI_Win_shared_query(l->window, i, &bytes, &unit, (void *)&l->base[i]));
    }
    /* MPI lays the ranks' parts one after the other unless told otherwise. */
    bool in_a_row = true;
    for (int i = 0; i < l->n; i++)
        in_a_row = in_a_row && l->base[i] == l->base[0] + (size_t)i * bytes_of_rank;
    if (l->ops->async != NULL)
        touch_pages(l, own, bytes_of_rank);
    memset(own, 0, HEAD_BYTES);
    for (int i = 0; i < READER_MAX_SLOTS; i++)
        atomic_store(&head(l, l->self)->ready[i], -1);
    MPI_CHECK(MPI_Barrier(l->mates));
    if (l->ops->async != NULL && in_a_row)
        l->registered = l->ops->async->host_register(l->q, l->base[0], (size_t)l->n * bytes_of_rank);
    if (l->ops->async != NULL && !l->registered)
        log_warn("the memory that weights are copied from cannot be pinned: loading is slower");
}

static void close_window(struct loader *l)
{
    if (l->registered)
        l->ops->async->host_unregister(l->q, l->base[0]);
    MPI_CHECK(MPI_Win_unlock_all(l->window));
    MPI_CHECK(MPI_Win_free(&l->window));
}

/* Bytes per second from this rank's slots to its device while all ranks of the node copy: what loading is judged by. 1 GiB,
 * less where weights are small, all slots in one copy: small copies are slower. The target is the largest weight, not loaded
 * yet; 0 where a rank holds none. */
static double measure_bus(const struct loader *l, const struct world *w)
{
    const struct weight *to = NULL;
    size_t bytes = 0;
    for (int i = 0; i < l->network->map.n_slots; i++)
        if (weight_slot_bytes(&l->network->map.slot[i]) > bytes) {
            to = &l->network->weight[i];
            bytes = weight_slot_bytes(&l->network->map.slot[i]);
        }
    size_t all_slots = (size_t)l->setup->n_slots * l->slot_bytes;
    bytes = bytes < all_slots ? bytes : all_slots;
    size_t n = bytes > 0 ? BUS_TEST_BYTES / bytes : 0;
    n = n < BUS_TEST_COPIES ? n : BUS_TEST_COPIES;
    for (int i = 0; to != NULL && i < BUS_TEST_WARM_UP; i++)
        l->ops->upload(l->q, to->data, bytes, slot(l, l->self, 0), bytes, bytes, 1);
    l->ops->wait(l->q);
    MPI_CHECK(MPI_Barrier(w->node));
    double started = seconds_now();
    for (size_t i = 0; to != NULL && i < n; i++)
        l->ops->upload(l->q, to->data, bytes, slot(l, l->self, 0), bytes, bytes, 1);
    l->ops->wait(l->q);
    return (double)n * (double)bytes / (seconds_now() - started);
}

/* The process's largest resident memory so far (VmHWM: the page cache is none of it); 0 if it cannot be read. */
static double peak_host_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/self/status", "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
            break;
    if (f != NULL)
        (void)fclose(f);
    return 1024.0 * (double)kib;
}

/* Threads that read: one where the main thread copies with the others, all but one where a device copies, up to as many
 * as fill its bus with some to spare: 8 were seen to take 50 GB/s out of the page cache, 15 took 90. */
static void fill_in(struct load_setup *s, const struct ops *ops, const struct queue *q)
{
    bool device = ops->async != NULL;
    if (s->n_threads <= 0)
        s->n_threads = !device || q->n_threads < 3         ? 1
                       : q->n_threads - 1 < DEVICE_THREADS ? q->n_threads - 1
                                                           : DEVICE_THREADS;
    if (s->n_slots <= 0)
        s->n_slots = device ? DEVICE_SLOTS : HOST_SLOTS;
    if (s->piece_bytes <= 0)
        s->piece_bytes = (int64_t)PIECE_BYTES;
}

static void open_reader(struct loader *l, struct err *e)
{
    struct reader_setup s = {.c = l->c,
                             .plan = l->plan,
                             .first = l->self,
                             .stride = l->n,
                             .n_slots = l->setup->n_slots,
                             .ready = head(l, l->self)->ready,
                             .n_threads = l->setup->n_threads,
                             .piece_bytes = (size_t)l->setup->piece_bytes,
                             .spin = l->spin};
    for (int i = 0; i < s.n_slots; i++)
        s.bytes[i] = slot(l, l->self, i);
    if (reader_open(&l->reader, &s, e) != 0)
        atomic_store(&head(l, l->self)->failed, 1);
}

static void copy_rounds(struct loader *l, struct err *e)
{
    int n = l->n, rounds = (l->plan->n_blocks + n - 1) / n;
    uint64_t done = 0;
    open_reader(l, e);
    for (int round = 0; e->code == ERR_NONE && round < rounds && copy_round(l, round, e); round++) {
        for (int b = round * n; b < (round + 1) * n && b < l->plan->n_blocks; b++)
            done += l->plan->block[b].bytes;
        progress_update(&l->progress, done, NULL);
    }
    l->ops->wait(l->q);
    finish_rounds(l, rounds); /* those that are behind may still wait for that */
    spent(l, LOAD_DEVICE);
    reader_close(&l->reader);
}

static void warn_unknown(const struct weight_map *whole, const struct model_config *m, const struct checkpoint *c)
{
    char names[200];
    int n = weight_unknown(whole, m, c, names, sizeof names);
    if (n > 0)
        log_warn("%d tensor%s of the checkpoint %s not used by %s: %s", n, n == 1 ? "" : "s", n == 1 ? "is" : "are",
                 m->model_type, names);
}

/* The blocks of the whole node. The names that nothing takes are said on the way. */
static int plan_together(struct read_plan *plan, const struct network *n, const struct checkpoint *c,
                         size_t block_bytes, struct err *e)
{
    struct weight_map whole = {0};
    struct shard one;
    shard_make(&one, &n->config, 0, 1);
    if (weight_map_build(&whole, &n->config, &one, c, e) == 0 &&
        read_plan_build(plan, c, &whole, block_bytes, e) == 0 && read_plan_deal(plan, n->shard.n_ranks, e) == 0)
        warn_unknown(&whole, &n->config, c);
    weight_map_free(&whole);
    return e->code == ERR_NONE ? 0 : -1;
}

/* Where a device copies from the page cache, ranks that wait for each other, and devices that fetch what another rank has
 * read, are what takes time; from elsewhere it is the reading. Collective over the node. */
static enum load_way choose(const struct load_setup *setup, const struct checkpoint *c, const struct read_plan *plan,
                            const struct ops *ops, const struct world *w)
{
    int all = 0;
    if (setup->way != LOAD_WAY_AUTO)
        return (enum load_way)setup->way;
    if (ops->async == NULL || w->n_ranks == 1)
        return LOAD_TOGETHER;
    int mine = cached_blocks(c, plan, w->node_rank, w->n_node_ranks);
    MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, w->node));
    return all ? LOAD_ALONE : LOAD_TOGETHER;
}

/* Who reads what. Collective. */
static void make_plan(struct loader *l, struct read_plan *plan, struct world *w, struct err *e)
{
    size_t block_bytes = l->ops->async != NULL ? DEVICE_BLOCK_BYTES : READ_PLAN_BLOCK_BYTES;
    (void)plan_together(plan, l->network, l->c, block_bytes, e);
    fatal_agree(w, e);
    l->setup->way = choose(l->setup, l->c, plan, l->ops, w);
    bool alone = l->setup->way == LOAD_ALONE;
    l->mates = alone ? MPI_COMM_SELF : w->node;
    l->n = alone ? 1 : w->n_node_ranks;
    l->self = alone ? 0 : w->node_rank;
    if (alone) {
        read_plan_free(plan);
        (void)read_plan_build_own(plan, l->c, &l->network->map, block_bytes, e);
    }
    l->plan = plan;
    l->base = err_calloc(e, (size_t)l->n, sizeof *l->base, "window table");
    fatal_agree(w, e);
}

int load_weights(struct network *n, const struct checkpoint *c, struct world *w, const struct ops *ops, struct queue *q,
                 struct load_setup *setup, enum progress_mode progress, bool with_bus, struct load_stats *stats,
                 struct err *e)
{
    struct read_plan plan = {0};
    struct loader l = {.c = c, .network = n, .ops = ops, .q = q, .setup = setup, .stats = stats};
    double started = seconds_now();
    *stats = (struct load_stats){0};
    fill_in(setup, ops, q);
    make_plan(&l, &plan, w, e);
    l.spin = ops->async != NULL && q->n_threads > 1 ? SPIN : 0;
    l.since = seconds_now();
    open_window(&l);
    spent(&l, LOAD_WINDOW);
    double before = seconds_now();
    if (with_bus && ops->async != NULL)
        stats->bus_rate = measure_bus(&l, w);
    started += seconds_now() - before;
    progress_open(&l.progress, w->rank == 0 ? progress : PROGRESS_NEVER, "loading", "B", plan.bytes);
    l.since = seconds_now();
    copy_rounds(&l, e);
    progress_close(&l.progress);
    stats->bytes_read = l.reader.bytes_read;
    stats->seconds = seconds_now() - started;
    stats->peak_host_bytes = peak_host_bytes();
    if (q->err.code != ERR_NONE)
        ERR(e, q->err.code, "%s", q->err.text);
    close_window(&l);
    free(l.base);
    read_plan_free(&plan);
    return e->code == ERR_NONE ? 0 : -1;
}

void load_report(const struct network *n, const struct load_stats *stats, const struct world *w, struct load_report *r)
{
    double held = (double)weight_map_bytes(&n->map), rate = stats->seconds > 0 ? held / stats->seconds : 0;
    double sums[2] = {(double)stats->bytes_read, held}, sum[2];
    /* Ranks that hold nothing have no rate. Lowest values as highest negatives: one reduction. */
    double highest[5] = {stats->seconds, stats->peak_host_bytes, held > 0 ? -rate : -INFINITY,
                         held > 0 ? -stats->bus_rate : -INFINITY,
                         stats->bus_rate > 0 ? -rate / stats->bus_rate : -INFINITY};
    double all[5];
    double part[N_LOAD_PARTS];
    MPI_CHECK(MPI_Allreduce(sums, sum, 2, MPI_DOUBLE, MPI_SUM, w->comm));
    MPI_CHECK(MPI_Allreduce(stats->part, part, N_LOAD_PARTS, MPI_DOUBLE, MPI_SUM, w->comm));
    MPI_CHECK(MPI_Allreduce(highest, all, 5, MPI_DOUBLE, MPI_MAX, w->comm));
    *r = (struct load_report){.bytes_read = sum[0],
                              .bytes_held = sum[1],
                              .seconds = all[0],
                              .peak_host_bytes = all[1],
                              .device_rate = -all[2],
                              .bus_rate = -all[3],
                              .bus_share = -all[3] > 0 ? -all[4] : 0};
    for (int i = 0; i < N_LOAD_PARTS; i++)
        r->part[i] = part[i] / w->n_ranks;
}

const char *load_part_name(enum load_part part)
{
    static const char *const name[N_LOAD_PARTS] = {"window", "reading", "device", "ranks", "placing"};
    return name[part];
}

/* Of one rank; flat: gathered. */
struct host_share {
    char host[64];
    double bytes, seconds;
};

static int say_hosts(char *text, size_t bytes, struct host_share *share, int n_ranks)
{
    int n = 0;
    for (int r = 0; r < n_ranks; r++) {
        if (share[r].host[0] == '\0')
            continue; /* added to a rank before it */
        for (int k = r + 1; k < n_ranks; k++)
            if (strcmp(share[k].host, share[r].host) == 0) {
                share[r].bytes += share[k].bytes;
                share[r].seconds = fmax(share[r].seconds, share[k].seconds);
                share[k].host[0] = '\0';
            }
        (void)snprintf(text + (size_t)n++ * bytes, bytes, "%s read %.2f GB in %.2f s, %.2f GB/s", share[r].host,
                       share[r].bytes / 1e9, share[r].seconds,
                       share[r].bytes / 1e9 / (share[r].seconds > 0 ? share[r].seconds : 1));
    }
    return n;
}

int load_hosts(char **text, size_t bytes, const struct load_stats *stats, struct world *w, struct err *e)
{
    size_t n = w->rank == 0 ? (size_t)w->n_ranks : 1;
    struct host_share mine = {.bytes = (double)stats->bytes_read, .seconds = stats->seconds};
    struct host_share *all = err_calloc(e, n, sizeof *all, "rates of the hosts");
    *text = err_calloc(e, n, bytes, "rates of the hosts");
    memcpy(mine.host, w->host, sizeof mine.host);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Gather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, 0, w->comm));
    int lines = w->rank == 0 ? say_hosts(*text, bytes, all, w->n_ranks) : 0;
    free(all);
    return lines;
}

/* Matrices get the variance 1/inputs, so that activations keep their size through any depth; norms are around 1. */
void load_dummy(struct network *n, const struct ops *ops, struct queue *q, uint64_t seed)
{
    for (int i = 0; i < n->map.n_slots; i++) {
        const struct weight_slot *slot = &n->map.slot[i];
        struct weight *w = &n->weight[i];
        bool is_norm = slot->id == WEIGHT_ATTN_NORM || slot->id == WEIGHT_MLP_NORM || slot->id == WEIGHT_FINAL_NORM ||
                       slot->id == WEIGHT_EMBED_NORM || slot->id == WEIGHT_Q_NORM || slot->id == WEIGHT_K_NORM;
        float scale = is_norm ? 0.1f : sqrtf(3.0f / (float)(w->cols > 0 ? w->cols : 1));
        ops->fill_noise(q, w, seed + (uint64_t)i, is_norm ? 1.0f : 0.0f, scale);
    }
    ops->wait(q);
}
