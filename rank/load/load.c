/* rank/load/load.c - see load.h. Selects one of the two ways to read, and reports on it. */
#include "rank/load/load.h"
#include "base/clock.h"
#include "base/log.h"
#include "rank/load/cached.h"
#include "rank/load/load_alone.h"
#include "rank/load/load_together.h"
#include "rank/load/reorder.h"
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* Broadcast an array whose length only rank 0 knows; the others allocate. */
static int share_array(void *array, size_t bytes, struct world *w, struct err *e)
{
    void **p = array;
    if (w->rank != 0)
        *p = err_calloc(e, bytes, 1, "checkpoint header");
    if (agree_failed(w, e))
        return -1;
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
        c->kv_scale = NULL;
        c->scalar = NULL;
        c->input_scale = NULL;
        c->order_at = NULL;
        c->order = NULL;
        c->drafted = NULL;
    }
    bool shared =
        share_array(&c->tensor, (size_t)head.n_tensors * sizeof *c->tensor, w, e) == 0 &&
        share_array(&c->file, (size_t)head.n_files * sizeof *c->file, w, e) == 0 &&
        share_array(&c->text, head.text_bytes, w, e) == 0 &&
        (head.n_scalars == 0 || share_array(&c->scalar, (size_t)head.n_scalars * sizeof *c->scalar, w, e) == 0) &&
        (head.n_input_scales == 0 ||
         share_array(&c->input_scale, (size_t)head.n_input_scales * sizeof *c->input_scale, w, e) == 0) &&
        (head.n_orders == 0 || share_array(&c->order_at, (size_t)head.n_orders * sizeof *c->order_at, w, e) == 0) &&
        (head.n_drafted == 0 || share_array(&c->drafted, (size_t)head.n_drafted * sizeof *c->drafted, w, e) == 0) &&
        (head.n_order == 0 || share_array(&c->order, (size_t)head.n_order * sizeof *c->order, w, e) == 0) &&
        (head.n_kv_scales == 0 || share_array(&c->kv_scale, (size_t)head.n_kv_scales * sizeof *c->kv_scale, w, e) == 0);
    return shared ? 0 : -1;
}

#define SHARED_MEMORY    "/dev/shm"
#define SHARED_SPARE     (16.0 * 1048576.0) /* bytes of it that MPI itself may need meanwhile */
#define MIB              1048576.0
#define BUS_TEST_BYTES   ((size_t)1 << 30)
#define BUS_TEST_COPIES  1024 /* at most, where weights are small */
#define BUS_TEST_WARM_UP 4    /* copies */
#define HOST_SLOTS       4    /* a small window stays in the caches of the main thread, which copies */
/* If a device copies: 32 MiB, which stay in the host's caches from the read to the copy. 128 MiB took twice as long. */
#define DEVICE_BLOCK_BYTES ((size_t)4 << 20)
#define DEVICE_SLOTS       8
#define DEVICE_THREADS     15
#define PIECE_BYTES        ((size_t)512 << 10)
#define ALONE_BLOCK_BYTES  ((size_t)1 << 20)
#define ALONE_SLOTS        2 /* of a thread */
#define LONE_SLOTS         4 /* of a thread of a node's only rank: with two, a slot comes back late */
#define ALONE_BYTES        ((int64_t)256 << 20) /* most bytes of all slots; unpacked data take as much again */
#define SPIN               1e-3                 /* s, where a device copies and cores have nothing else to do */

/* The bytes per second from `memory`, this rank's read buffer, to its device while all ranks of the node copy: the
 * reference for the speed of loading. Copies 1 GiB, or less if weights are small, with the whole buffer in one copy,
 * since small copies are slower. The target is the largest weight, not loaded yet, whose bytes are zeroed afterwards,
 * since bytes that the checkpoint does not fill must be zero (base/codes.h). 0 if a rank holds no weights. */
static double measure_bus(const struct loader *l, const struct world *w, const unsigned char *memory, size_t all)
{
    const struct weight *to = NULL;
    size_t bytes = 0;
    for (int i = 0; i < l->network->map.n_slots; i++)
        if (weight_slot_bytes(&l->network->map.slot[i]) > bytes) {
            to = &l->network->weight[i];
            bytes = weight_slot_bytes(&l->network->map.slot[i]);
        }
    bytes = bytes < all ? bytes : all;
    size_t n = bytes > 0 ? BUS_TEST_BYTES / bytes : 0;
    n = n < BUS_TEST_COPIES ? n : BUS_TEST_COPIES;
    for (int i = 0; to != NULL && i < BUS_TEST_WARM_UP; i++)
        l->ops->upload(l->q, to->data, bytes, memory, bytes, bytes, 1);
    l->ops->wait(l->q);
    MPI_CHECK(MPI_Barrier(w->node));
    double started = seconds_now();
    for (size_t i = 0; to != NULL && i < n; i++)
        l->ops->upload(l->q, to->data, bytes, memory, bytes, bytes, 1);
    l->ops->wait(l->q);
    double seconds = seconds_now() - started;
    if (to != NULL)
        l->ops->clear(l->q, to->data, bytes);
    return (double)n * (double)bytes / seconds;
}

/* The process's largest resident memory so far (VmHWM: without the page cache); 0 if it cannot be read. */
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

/* The number of reading threads: one if the main thread copies with the others; if a device copies, all but one, up to
 * the number that saturates its bus with some margin: 8 threads were seen to read 50 GB/s from the page cache, 15 read
 * 90. lone: no other rank of the node reads, and no steps run beside. */
static void fill_in(struct load_setup *s, const struct ops *ops, const struct queue *q, bool lone)
{
    bool device = ops->async != NULL, alone = s->way == LOAD_ALONE;
    if (s->n_threads <= 0)
        s->n_threads = !device || q->n_threads < 3         ? 1
                       : q->n_threads - 1 < DEVICE_THREADS ? q->n_threads - 1
                                                           : DEVICE_THREADS;
    if (s->n_slots <= 0)
        s->n_slots = alone    ? (device && lone ? LONE_SLOTS : ALONE_SLOTS) * s->n_threads
                     : device ? DEVICE_SLOTS
                              : HOST_SLOTS;
    s->n_slots = s->n_slots < ALONE_MAX_SLOTS ? s->n_slots : ALONE_MAX_SLOTS;
    if (s->piece_bytes <= 0)
        s->piece_bytes = (int64_t)(alone ? ALONE_BLOCK_BYTES : PIECE_BYTES);
    if (alone && s->piece_bytes > ALONE_BYTES / s->n_slots)
        s->piece_bytes = ALONE_BYTES / s->n_slots;
}

static void warn_unquantised(const struct weight_map *whole, const struct model_config *m)
{
    for (int i = 0; i < whole->n_slots; i++)
        if (whole->slot[i].form.codes != CODES_NONE)
            return;
    if (m->quantization.format != FORMAT_NONE)
        log_warn("config.json says that weights are quantised (%s), but none is: they are read as they are",
                 m->quantization.method);
}

static void warn_unknown(const struct weight_map *whole, const struct model_config *m, const struct checkpoint *c)
{
    warn_unquantised(whole, m);
    char names[200];
    int n = weight_unknown(whole, m, c, names, sizeof names);
    if (n > 0)
        log_warn("%d tensor%s of the checkpoint %s not used by %s: %s", n, n == 1 ? "" : "s", n == 1 ? "is" : "are",
                 m->model_type, names);
}

/* The blocks of the whole node. Also reports unused tensors. */
static int plan_together(struct loader *l, struct err *e)
{
    const struct model_config *m = &l->network->config;
    size_t block_bytes = l->ops->async != NULL ? DEVICE_BLOCK_BYTES : READ_PLAN_BLOCK_BYTES;
    struct weight_map whole = {0};
    struct shard one;
    shard_make(&one, m, 0, 1);
    if (weight_map_build(&whole, m, &one, l->c, e) == 0 &&
        read_plan_build(l->plan, l->c, &whole, block_bytes, e) == 0 &&
        read_plan_deal(l->plan, l->network->shard.n_ranks, e) == 0)
        warn_unknown(&whole, m, l->c);
    weight_map_free(&whole);
    return e->code == ERR_NONE ? 0 : -1;
}

static int plan_alone(struct loader *l, struct err *e)
{
    read_plan_free(l->plan);
    return read_plan_build_own(l->plan, l->c, &l->network->map, (size_t)l->setup->piece_bytes, e);
}

/* Whether /dev/shm, where MPI creates the window that ranks read into, has room for it. Containers have 64 MiB there
 * by default. why: the reason as text if it has not. Collective over the node. */
static bool window_fits(const struct loader *l, const struct world *w, char *why, size_t bytes)
{
    struct statvfs shm;
    int slots = l->setup->n_slots > 0 ? l->setup->n_slots : l->ops->async != NULL ? DEVICE_SLOTS : HOST_SLOTS;
    double needed = (double)w->n_node_ranks * (double)slots * (double)l->plan->max_block_bytes, room = needed;
    if (statvfs(SHARED_MEMORY, &shm) == 0)
        room = (double)shm.f_bavail * (double)shm.f_frsize - SHARED_SPARE;
    (void)snprintf(why, bytes, "%s has %.0f MiB left on %s, and reading together needs %.0f (docker run --shm-size 1g)",
                   SHARED_MEMORY, room > 0 ? room / MIB : 0, w->host, needed / MIB);
    int mine = room >= needed, all = 0;
    MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, w->node));
    return all != 0;
}

/* If a device copies from the page cache, most time is spent by ranks that wait for each other and devices that fetch
 * data which another rank has read, or by the one thread that unpacks quantised weights; otherwise by reading. Blocks
 * that a rank reads alone are copied in batches, too. Collective over the node. */
static enum load_way choose_way(const struct loader *l, const struct world *w, struct err *e)
{
    char why[300];
    int all = 0;
    if (l->setup->way == LOAD_ALONE)
        return LOAD_ALONE;
    bool fits = window_fits(l, w, why, sizeof why);
    if (!fits && l->setup->way == LOAD_TOGETHER)
        ERR(e, ERR_MEMORY, "--load-way together: %s", why);
    if (l->setup->way == LOAD_TOGETHER)
        return LOAD_TOGETHER;
    if (!fits && w->node_rank == 0)
        log_note("%s: each rank reads alone", why);
    bool replicas =
        w->n_node_ranks > l->network->shard.n_ranks; /* replicas hold the same weights, which would be read once per
                                                        replica */
    if (!fits)
        return LOAD_ALONE;
    if (l->ops->async == NULL || replicas)
        return LOAD_TOGETHER;
    int mine = cached_blocks(l->c, l->plan, w->node_rank, w->n_node_ranks);
    MPI_CHECK(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, w->node));
    return all ? LOAD_ALONE : LOAD_TOGETHER;
}

/* Everything is ready except the bytes. memory: this rank's read buffer. Measuring the bus does not count as
 * loading. */
static void begin_reading(struct loader *l, const struct world *w, const unsigned char *memory, size_t bytes)
{
    loader_spent(l, LOAD_WINDOW);
    if (l->with_bus && l->ops->async != NULL)
        l->stats->bus_rate = measure_bus(l, w, memory, bytes);
    loader_listen(l, w);
    double before = l->since;
    l->since = seconds_now();
    l->started += l->since - before;
    progress_open(&l->progress, w->rank == 0 ? l->shown : PROGRESS_NEVER, "loading", "B", l->plan->bytes);
}

/* Freeing the memory does not count. */
static void finish_stats(struct loader *l)
{
    l->stats->seconds = seconds_now() - l->started;
    l->stats->peak_host_bytes = peak_host_bytes();
    loader_deaf(l);
    progress_close(&l->progress);
}

static void run_together(struct loader *l, struct world *w, struct err *e)
{
    struct together t;
    size_t bytes = 0;
    together_open(&t, l, w, e);
    const unsigned char *memory = together_memory(&t, &bytes);
    begin_reading(l, w, memory, bytes);
    together_run(&t, e);
    finish_stats(l);
    together_close(&t);
}

static void run_alone(struct loader *l, struct world *w, struct err *e)
{
    struct alone a;
    if (plan_alone(l, e) == 0)
        (void)alone_open(&a, l, w, NULL, e);
    fatal_agree(w, e);
    /* NOLINTNEXTLINE(clang-analyzer-core.*): a failure has ended in fatal_agree() */
    begin_reading(l, w, a.window->memory, (size_t)a.n_slots * a.slot_bytes);
    alone_run(&a, e);
    finish_stats(l);
    alone_close(&a);
}

int load_beside(struct network *n, const struct checkpoint *c, const struct world *w, const struct ops *ops,
                struct queue *q, struct load_side *side, struct load_setup *setup, const atomic_bool *cancel,
                struct load_stats *stats, struct err *e)
{
    struct read_plan plan = {0};
    struct loader l = {.c = c,
                       .plan = &plan,
                       .network = n,
                       .ops = ops,
                       .q = q,
                       .setup = setup,
                       .stats = stats,
                       .started = seconds_now(),
                       .listening = MPI_REQUEST_NULL,
                       .failed_rank = -1,
                       .cancel = cancel,
                       .n_steps = ops->async != NULL ? &side->n_steps : NULL};
    struct alone a = {0};
    l.seen = atomic_load(&side->n_steps);
    *stats = (struct load_stats){0};
    setup->way = LOAD_ALONE;
    fill_in(setup, ops, q, false);
    if (plan_alone(&l, e) != 0 || alone_open(&a, &l, w, &side->window, e) != 0) {
        alone_close(&a);
        read_plan_free(&plan);
        return -1;
    }
    l.since = seconds_now();
    alone_run(&a, e);
    stats->seconds = seconds_now() - l.started;
    alone_close(&a);
    read_plan_free(&plan);
    free(l.scratch);
    if (e->code == ERR_NONE && l.refused.code != ERR_NONE)
        ERR(e, l.refused.code, "%s", l.refused.text);
    if (e->code == ERR_NONE && q->err.code != ERR_NONE)
        ERR(e, q->err.code, "%s", q->err.text);
    if (e->code == ERR_NONE && atomic_load(cancel))
        ERR(e, ERR_IO, "the server is ending");
    if (e->code == ERR_NONE)
        (void)load_reorder(n, ops, q, e);
    return e->code == ERR_NONE ? 0 : -1;
}

int load_weights(struct network *n, const struct checkpoint *c, struct world *w, const struct ops *ops, struct queue *q,
                 struct load_setup *setup, enum progress_mode progress, bool with_bus, struct load_stats *stats,
                 struct err *e)
{
    struct read_plan plan = {0};
    struct loader l = {.c = c,
                       .plan = &plan,
                       .network = n,
                       .ops = ops,
                       .q = q,
                       .setup = setup,
                       .stats = stats,
                       .shown = progress,
                       .with_bus = with_bus,
                       .spin = ops->async != NULL && q->n_threads > 1 ? SPIN : 0,
                       .started = seconds_now()};
    *stats = (struct load_stats){0};
    (void)plan_together(&l, e);
    fatal_agree(w, e);
    setup->way = choose_way(&l, w, e);
    fatal_agree(w, e);
    fill_in(setup, ops, q, w->n_node_ranks == 1);
    l.since = seconds_now();
    (setup->way == LOAD_ALONE ? run_alone : run_together)(&l, w, e);
    if (q->err.code != ERR_NONE)
        ERR(e, q->err.code, "%s", q->err.text);
    if (l.refused.code != ERR_NONE)
        ERR(e, l.refused.code, "%s", l.refused.text);
    free(l.scratch);
    read_plan_free(&plan);
    if (e->code == ERR_NONE)
        (void)load_reorder(n, ops, q, e);
    return e->code == ERR_NONE ? 0 : -1;
}

void load_report(const struct network *n, const struct load_stats *stats, const struct world *w, struct load_report *r)
{
    double held = (double)weight_map_bytes(&n->map), rate = stats->seconds > 0 ? held / stats->seconds : 0;
    double sums[2] = {(double)stats->bytes_read, held}, sum[2];
    /* Ranks without weights have no rate. Minima are computed as maxima of negative values, in one reduction. */
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

const char *load_way_name(const struct load_report *r)
{
    return r->setup.way == LOAD_ALONE ? "alone" : "together";
}

const char *load_part_name(enum load_part part)
{
    static const char *const name[N_LOAD_PARTS] = {"window", "reading", "device", "ranks", "placing"};
    return name[part];
}

/* The figures of one rank; flat: gathered. */
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
                       slot->id == WEIGHT_EMBED_NORM || slot->id == WEIGHT_TOKEN_NORM ||
                       slot->id == WEIGHT_STATE_NORM || slot->id == WEIGHT_PREDICT_NORM || slot->id == WEIGHT_Q_NORM ||
                       slot->id == WEIGHT_K_NORM;
        float scale = is_norm ? 0.1f : sqrtf(3.0f / (float)(w->cols > 0 ? w->cols : 1));
        ops->fill_noise(q, w, seed + (uint64_t)i, is_norm ? 1.0f : 0.0f, scale);
    }
    ops->wait(q);
}
