/* rank/load.c - see load.h, partition/read_plan.h for the blocks and rank/reader.h for their reading.
 *
 * Round i: every rank of the node has read one block into slot i % READER_SLOTS of its part of a shared-memory window; after
 * a barrier each takes its slices out of the blocks of all. Before the barrier each waits until it has copied what it took
 * two rounds ago, so behind it the slots of that round may be read into again: while the device copies from two rounds,
 * the threads of the reader are two rounds ahead, and no barrier stops them. */
#include "rank/load.h"
#include "base/clock.h"
#include "base/log.h"
#include "rank/fatal.h"
#include "rank/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    MPI_Win window;
    size_t slot_bytes;    /* of one slot: a status word, then the block */
    unsigned char **base; /* [n_node_ranks] start of each rank's slots */
    bool registered;      /* with the device, for copies at full speed */
};

#define STATUS_BYTES     64 /* keeps the block that follows aligned */
#define BUS_TEST_BYTES   ((size_t)1 << 30)
#define BUS_TEST_COPIES  1024 /* at most, where weights are small */
#define BUS_TEST_WARM_UP 4    /* copies */

static unsigned char *slot(const struct loader *l, int node_rank, int round)
{
    return l->base[node_rank] + (size_t)(round % READER_SLOTS) * l->slot_bytes;
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

/* Until what was taken out of the blocks two rounds before this one is on the device. */
static void wait_for_copies(struct loader *l, int round)
{
    if (l->ops->async != NULL && round >= 2)
        l->ops->async->wait_mark(l->q, round & 1);
}

/* Returns false when a rank of the node has failed: all of them see the same status words after the barrier. */
static bool copy_round(struct loader *l, int round, const struct world *w, struct err *e)
{
    int n = w->n_node_ranks, first = round * n;
    if (e->code == ERR_NONE && first + w->node_rank < l->plan->n_blocks)
        (void)reader_wait(&l->reader, round, e);
    slot(l, w->node_rank, round)[0] = e->code != ERR_NONE;
    wait_for_copies(l, round);
    MPI_CHECK(MPI_Win_sync(l->window));
    MPI_CHECK(MPI_Barrier(w->node));
    MPI_CHECK(MPI_Win_sync(l->window));
    bool failed = false;
    for (int i = 0; i < n; i++)
        failed = failed || slot(l, i, round)[0] != 0;
    if (failed)
        return false;
    reader_release(&l->reader, round - 1);
    for (int i = 0; i < n && first + i < l->plan->n_blocks; i++)
        read_plan_scatter(l->plan, &l->network->map, l->c, first + i, slot(l, i, round) + STATUS_BYTES, place, l);
    if (l->ops->async != NULL)
        l->ops->async->mark(l->q, round & 1);
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

static void open_window(struct loader *l, const struct world *w)
{
    unsigned char *own = NULL;
    l->slot_bytes = (STATUS_BYTES + l->plan->max_block_bytes + 4095) / 4096 * 4096;
    size_t bytes_of_rank = READER_SLOTS * l->slot_bytes;
    MPI_CHECK(MPI_Win_allocate_shared((MPI_Aint)bytes_of_rank, 1, MPI_INFO_NULL, w->node, &own, &l->window));
    MPI_CHECK(MPI_Win_lock_all(MPI_MODE_NOCHECK, l->window));
    for (int i = 0; i < w->n_node_ranks; i++) {
        MPI_Aint bytes = 0;
        int unit = 0;
        MPI_CHECK(MPI_Win_shared_query(l->window, i, &bytes, &unit, (void *)&l->base[i]));
    }
    /* MPI lays the ranks' parts one after the other unless told otherwise. */
    bool in_a_row = true;
    for (int i = 0; i < w->n_node_ranks; i++)
        in_a_row = in_a_row && l->base[i] == l->base[0] + (size_t)i * bytes_of_rank;
    if (l->ops->async != NULL)
        touch_pages(l, own, bytes_of_rank);
    MPI_CHECK(MPI_Barrier(w->node));
    if (l->ops->async != NULL && in_a_row)
        l->registered = l->ops->async->host_register(l->q, l->base[0], (size_t)w->n_node_ranks * bytes_of_rank);
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
 * less where weights are small. The target is the largest weight, not loaded yet; 0 where a rank holds none. */
static double measure_bus(const struct loader *l, const struct world *w)
{
    const struct weight *to = NULL;
    size_t bytes = 0;
    for (int i = 0; i < l->network->map.n_slots; i++)
        if (weight_slot_bytes(&l->network->map.slot[i]) > bytes) {
            to = &l->network->weight[i];
            bytes = weight_slot_bytes(&l->network->map.slot[i]);
        }
    bytes = bytes < l->plan->max_block_bytes ? bytes : l->plan->max_block_bytes;
    size_t n = bytes > 0 ? BUS_TEST_BYTES / bytes : 0;
    n = n < BUS_TEST_COPIES ? n : BUS_TEST_COPIES;
    for (int i = 0; to != NULL && i < BUS_TEST_WARM_UP; i++)
        l->ops->upload(l->q, to->data, bytes, slot(l, w->node_rank, i), bytes, bytes, 1);
    l->ops->wait(l->q);
    MPI_CHECK(MPI_Barrier(w->node));
    double started = seconds_now();
    for (size_t i = 0; to != NULL && i < n; i++)
        l->ops->upload(l->q, to->data, bytes, slot(l, w->node_rank, (int)(i % READER_SLOTS)), bytes, bytes, 1);
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

/* Threads that read: one where the main thread copies with the others, all but one where a device copies. */
static int n_readers(const struct loader *l)
{
    return l->ops->async == NULL || l->q->n_threads < 3 ? 1 : l->q->n_threads - 1;
}

static void copy_rounds(struct loader *l, const struct world *w, struct err *e)
{
    unsigned char *bytes[READER_SLOTS];
    int n = w->n_node_ranks, rounds = (l->plan->n_blocks + n - 1) / n;
    uint64_t done = 0;
    for (int i = 0; i < READER_SLOTS; i++)
        bytes[i] = slot(l, w->node_rank, i) + STATUS_BYTES;
    (void)reader_open(&l->reader, l->c, l->plan, w->node_rank, n, bytes, n_readers(l), e);
    for (int round = 0; round < rounds && copy_round(l, round, w, e); round++) {
        for (int b = round * n; b < (round + 1) * n && b < l->plan->n_blocks; b++)
            done += l->plan->block[b].bytes;
        progress_update(&l->progress, done, NULL);
    }
    l->ops->wait(l->q);
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

int load_weights(struct network *n, const struct checkpoint *c, struct world *w, const struct ops *ops, struct queue *q,
                 enum progress_mode progress, bool with_bus, struct load_stats *stats, struct err *e)
{
    struct read_plan plan = {0};
    struct weight_map whole = {0};
    struct shard one;
    struct loader l = {.c = c, .plan = &plan, .network = n, .ops = ops, .q = q};
    double started = seconds_now();
    *stats = (struct load_stats){0};
    shard_make(&one, &n->config, 0, 1);
    if (weight_map_build(&whole, &n->config, &one, c, e) == 0)
        (void)read_plan_build(&plan, c, &whole, READ_PLAN_BLOCK_BYTES, e);
    if (e->code == ERR_NONE)
        warn_unknown(&whole, &n->config, c);
    l.base = err_calloc(e, (size_t)w->n_node_ranks, sizeof *l.base, "window table");
    fatal_agree(w, e);

    open_window(&l, w);
    double before = seconds_now();
    if (with_bus && ops->async != NULL)
        stats->bus_rate = measure_bus(&l, w);
    started += seconds_now() - before;
    progress_open(&l.progress, w->rank == 0 ? progress : PROGRESS_NEVER, "loading", "B", plan.bytes);
    copy_rounds(&l, w, e);
    progress_close(&l.progress);
    stats->bytes_read = l.reader.bytes_read;
    stats->seconds = seconds_now() - started;
    stats->peak_host_bytes = peak_host_bytes();
    if (q->err.code != ERR_NONE)
        ERR(e, q->err.code, "%s", q->err.text);
    close_window(&l);
    free(l.base);
    read_plan_free(&plan);
    weight_map_free(&whole);
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
    MPI_CHECK(MPI_Allreduce(sums, sum, 2, MPI_DOUBLE, MPI_SUM, w->comm));
    MPI_CHECK(MPI_Allreduce(highest, all, 5, MPI_DOUBLE, MPI_MAX, w->comm));
    *r = (struct load_report){.bytes_read = sum[0],
                              .bytes_held = sum[1],
                              .seconds = all[0],
                              .peak_host_bytes = all[1],
                              .device_rate = -all[2],
                              .bus_rate = -all[3],
                              .bus_share = -all[3] > 0 ? -all[4] : 0};
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
