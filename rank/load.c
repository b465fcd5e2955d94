/* rank/load.c - see load.h, and partition/read_plan.h for the blocks.
 *
 * Round i of the reading: rank r of the node reads block i * n + r into its own half of a shared-memory window, a barrier,
 * then every rank takes its slices out of all n blocks. Two halves a rank, so that one barrier a round suffices: a half is
 * read into again two rounds later, after a barrier that everybody enters only when done with it. */
#include "rank/load.h"
#include "base/clock.h"
#include "base/log.h"
#include "rank/fatal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

struct reader {
    const struct checkpoint *c;
    const struct read_plan *plan;
    struct network *network;
    const struct ops *ops;
    struct queue *q;
    struct progress progress;
    int fd, file; /* the file that is open; -1: none */
    MPI_Win window;
    size_t half_bytes;    /* of one half: a status word, then the block */
    unsigned char **base; /* [n_node_ranks] start of each rank's two halves */
    bool registered;      /* with the device, for copies at full speed */
    struct load_stats *stats;
};

#define STATUS_BYTES    64 /* keeps the block that follows aligned */
#define MAX_PIECES      8
#define MIN_PIECE_BYTES ((size_t)1 << 20)

static unsigned char *half(const struct reader *r, int node_rank, int round)
{
    return r->base[node_rank] + (size_t)(round & 1) * r->half_bytes;
}

static int open_file(struct reader *r, int file, struct err *e)
{
    char path[sizeof r->c->dir + 300];
    if (r->file == file)
        return 0;
    if (r->fd >= 0)
        (void)close(r->fd);
    (void)snprintf(path, sizeof path, "%s/%s", r->c->dir, checkpoint_file_name(r->c, file));
    r->file = file;
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0)
        return ERR(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    return 0;
}

/* A stretch of a block that one thread reads. */
struct piece {
    size_t begin, end, done;
    int error; /* errno; 0 with done < end: the file is shorter */
};

static void read_piece(struct piece *p, int fd, unsigned char *to, uint64_t offset)
{
    for (p->done = p->begin; p->done < p->end;) {
        ssize_t n = pread(fd, to + p->done, p->end - p->done, (off_t)(offset + p->done));
        if (n < 0 && errno == EINTR)
            continue;
        p->error = n < 0 ? errno : 0;
        if (n <= 0)
            return;
        p->done += (size_t)n;
    }
}

/* With several threads where the bytes then go to a device: one is slower than the bus. */
static int read_block(struct reader *r, int block, unsigned char *to, struct err *e)
{
    const struct read_block *b = &r->plan->block[block];
    struct piece piece[MAX_PIECES] = {{0}};
    if (open_file(r, b->file, e) != 0)
        return -1;
    int most = r->ops->async != NULL ? (int)(b->bytes / MIN_PIECE_BYTES) + 1 : 1;
    int n = most < MAX_PIECES ? most : MAX_PIECES;
    n = n < r->q->n_threads ? n : r->q->n_threads;
    for (int i = 0; i < n; i++) {
        piece[i].begin = b->bytes / (size_t)n * (size_t)i;
        piece[i].end = i + 1 < n ? b->bytes / (size_t)n * (size_t)(i + 1) : b->bytes;
    }
#pragma omp parallel for num_threads(n) schedule(static, 1)
    for (int i = 0; i < n; i++)
        read_piece(&piece[i], r->fd, to, b->offset);
    for (int i = 0; i < n; i++) {
        const struct piece *p = &piece[i];
        r->stats->bytes_read += p->done - p->begin;
        if (p->done < p->end)
            return ERR(e, ERR_IO, "%s/%s: read at byte %llu: %s, expected %zu more bytes", r->c->dir,
                       checkpoint_file_name(r->c, b->file), (unsigned long long)(b->offset + p->done),
                       p->error != 0 ? strerror(p->error) : "end of file", b->bytes - p->done);
    }
    return 0;
}

static void place(void *context, int slot, int64_t dst_row, int64_t dst_col, const void *src, int64_t src_ld,
                  int64_t rows, int64_t cols, bool transpose)
{
    struct reader *r = context;
    const struct weight *w = &r->network->weight[slot];
    size_t size = dtype_bytes(w->type), ld = (size_t)w->cols;
    char *dst = (char *)w->data + ((size_t)dst_row * ld + (size_t)dst_col) * size;
    if (transpose)
        r->ops->upload_transposed(r->q, dst, ld, src, (size_t)src_ld, (size_t)rows, (size_t)cols, w->type);
    else
        r->ops->upload(r->q, dst, ld * size, src, (size_t)src_ld * size, (size_t)cols * size, (size_t)rows);
}

/* Returns false when a rank of the node has failed: all of them see the same status words after the barrier. */
static bool read_round(struct reader *r, int round, const struct world *w, struct err *e)
{
    int n = w->n_node_ranks, mine = round * n + w->node_rank;
    unsigned char *own = half(r, w->node_rank, round);
    if (e->code == ERR_NONE && mine < r->plan->n_blocks)
        (void)read_block(r, mine, own + STATUS_BYTES, e);
    own[0] = e->code != ERR_NONE;
    r->ops->wait(r->q); /* for the copies out of the round before: their half may be read into after the barrier */
    MPI_CHECK(MPI_Win_sync(r->window));
    MPI_CHECK(MPI_Barrier(w->node));
    MPI_CHECK(MPI_Win_sync(r->window));
    bool failed = false;
    for (int i = 0; i < n; i++)
        failed = failed || half(r, i, round)[0] != 0;
    for (int i = 0; i < n && !failed && round * n + i < r->plan->n_blocks; i++)
        read_plan_scatter(r->plan, &r->network->map, r->c, round * n + i, half(r, i, round) + STATUS_BYTES, place, r);
    return !failed;
}

static void open_window(struct reader *r, const struct world *w)
{
    unsigned char *own = NULL;
    r->half_bytes = (STATUS_BYTES + r->plan->max_block_bytes + 4095) / 4096 * 4096;
    MPI_CHECK(MPI_Win_allocate_shared((MPI_Aint)(2 * r->half_bytes), 1, MPI_INFO_NULL, w->node, &own, &r->window));
    MPI_CHECK(MPI_Win_lock_all(MPI_MODE_NOCHECK, r->window));
    for (int i = 0; i < w->n_node_ranks; i++) {
        MPI_Aint bytes = 0;
        int unit = 0;
        MPI_CHECK(MPI_Win_shared_query(r->window, i, &bytes, &unit, (void *)&r->base[i]));
    }
    /* MPI lays the ranks' parts one after the other unless told otherwise. */
    bool in_a_row = true;
    for (int i = 0; i < w->n_node_ranks; i++)
        in_a_row = in_a_row && r->base[i] == r->base[0] + (size_t)i * 2 * r->half_bytes;
    if (r->ops->async != NULL && in_a_row)
        r->registered = r->ops->async->host_register(r->q, r->base[0], (size_t)w->n_node_ranks * 2 * r->half_bytes);
}

static void close_window(struct reader *r)
{
    if (r->registered)
        r->ops->async->host_unregister(r->q, r->base[0]);
    MPI_CHECK(MPI_Win_unlock_all(r->window));
    MPI_CHECK(MPI_Win_free(&r->window));
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
                 enum progress_mode progress, struct load_stats *stats, struct err *e)
{
    struct read_plan plan = {0};
    struct weight_map whole = {0};
    struct shard one;
    struct reader r = {.c = c, .plan = &plan, .network = n, .ops = ops, .q = q, .fd = -1, .file = -1, .stats = stats};
    double started = seconds_now();
    *stats = (struct load_stats){0};
    shard_make(&one, &n->config, 0, 1);
    if (weight_map_build(&whole, &n->config, &one, c, e) == 0)
        (void)read_plan_build(&plan, c, &whole, READ_PLAN_BLOCK_BYTES, e);
    if (e->code == ERR_NONE)
        warn_unknown(&whole, &n->config, c);
    r.base = err_calloc(e, (size_t)w->n_node_ranks, sizeof *r.base, "window table");
    fatal_agree(w, e);

    open_window(&r, w);
    progress_open(&r.progress, w->rank == 0 ? progress : PROGRESS_NEVER, "loading", "B", plan.bytes);
    int rounds = (plan.n_blocks + w->n_node_ranks - 1) / w->n_node_ranks;
    uint64_t done = 0;
    for (int round = 0; round < rounds && read_round(&r, round, w, e); round++) {
        for (int b = round * w->n_node_ranks; b < (round + 1) * w->n_node_ranks && b < plan.n_blocks; b++)
            done += plan.block[b].bytes;
        progress_update(&r.progress, done, NULL);
    }
    progress_close(&r.progress);
    ops->wait(q);
    if (q->err.code != ERR_NONE)
        ERR(e, q->err.code, "%s", q->err.text);
    close_window(&r);
    if (r.fd >= 0)
        (void)close(r.fd);
    free(r.base);
    read_plan_free(&plan);
    weight_map_free(&whole);
    stats->seconds = seconds_now() - started;
    return e->code == ERR_NONE ? 0 : -1;
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
