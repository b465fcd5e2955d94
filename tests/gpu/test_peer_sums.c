/* tests/gpu/test_peer_sums.c - sums over memory that the ranks' GPUs share: every element against a sum in the order of
 * the ranks computed here, in every type, of odd and large sizes, many in a row of changing sizes while ranks are
 * delayed, replayed in graphs, with values that are not numbers; sums of pieces, several of them under way; the ranks'
 * columns side by side; and the time of sums beside NCCL's. argv: "quick" leaves that out, "pieces" and "times" do
 * nothing but that. */
#include "base/clock.h"
#include "rank/comm/comm.h"
#include "rank/comm/peers.h"
#include "rank/world/device.h"
#include "rank/world/fatal.h"
#include "tests/support/digest.h"
#include "tests/support/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD   64 /* elements before and after */
#define N_STORM 201

static struct world w;
static const struct ops *ops;
static struct queue q;
static struct comm comm, nccl;

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Returns element i of rank r's part: all bits in use, of mixed sign and size, so that the order of addition shows. */
static float awkward(int r, uint64_t seed, size_t i)
{
    uint64_t x = mix(seed * 1000003 + i * 64 + (uint64_t)r + 1);
    return ldexpf((float)(int32_t)(x >> 32) / 2147483648.0f, (int)(x % 12) - 6);
}

static void fill(void *data, int r, uint64_t seed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dtype_store(data, q.act, i, awkward(r, seed, i));
}

/* Returns the number of the n elements that are not the rounded sum in the order of the ranks. */
static size_t wrong(const void *data, uint64_t seed, size_t n)
{
    size_t bad = 0, size = dtype_bytes(q.act);
    for (size_t i = 0; i < n; i++) {
        float sum = 0, part, expected[1];
        for (int r = 0; r < w.n_ranks; r++) {
            dtype_store(expected, q.act, 0, awkward(r, seed, i));
            part = dtype_load(expected, q.act, 0);
            sum = r == 0 ? part : sum + part;
        }
        dtype_store(expected, q.act, 0, sum);
        bad += memcmp(expected, (const char *)data + i * size, size) != 0;
    }
    return bad;
}

static void *take_memory(size_t bytes)
{
    void *p = malloc(bytes);
    if (p == NULL)
        exit(99);
    return p;
}

/* ---- sums one by one ---- */

static size_t wrong_guards(const unsigned char *at, size_t bytes)
{
    size_t bad = 0;
    for (size_t i = 0; i < bytes; i++)
        bad += at[i] != 0xA5;
    return bad;
}

static void check_size(size_t n)
{
    size_t size = dtype_bytes(q.act), guard = GUARD * size, bytes = n * size + 2 * guard;
    unsigned char *host = take_memory(bytes), *device = ops->alloc(&q, bytes);
    memset(host, 0xA5, bytes);
    fill(host + guard, w.rank, n, n);
    ops->upload(&q, device, bytes, host, bytes, bytes, 1);
    comm_all_reduce(&comm, &q, device + guard, n);
    ops->download(&q, host, device, bytes);
    ops->wait(&q);
    char reason[120];
    size_t bad = wrong(host + guard, n, n),
           beside = wrong_guards(host, guard) + wrong_guards(host + guard + n * size, guard);
    snprintf(reason, sizeof reason, "%zu other sums, %zu bytes beside them", bad, beside);
    tap_all(bad + beside == 0 && q.err.code == ERR_NONE, reason, "sum of %zu %s on %d cuda ranks", n, dtype_name(q.act),
            w.n_ranks);
    ops->free(&q, device);
    free(host);
}

/* Parts with the bits that mark an empty place: they are NaNs, so is the sum, and no rank waits for ever. */
static void check_not_numbers(void)
{
    size_t size = dtype_bytes(q.act), n = 1000, bytes = n * size, bad = 0;
    unsigned char *host = take_memory(bytes), *device = ops->alloc(&q, bytes);
    fill(host, w.rank, 1, n);
    for (size_t i = 0; i < n; i++)
        if (i % 7 == 0 && (int)(i % (size_t)w.n_ranks) == w.rank)
            memset(host + i / 2 * 2 * size, 0xff, 2 * size);
    ops->upload(&q, device, bytes, host, bytes, bytes, 1);
    comm_all_reduce(&comm, &q, device, n);
    ops->download(&q, host, device, bytes);
    ops->wait(&q);
    for (size_t i = 0; i < n; i++)
        bad += (i / 2 * 2 % 7 == 0 || (i / 2 * 2 + 1) % 7 == 0) != (isnan(dtype_load(host, q.act, i)) != 0);
    bool equal = digest_same_everywhere(digest_add(DIGEST_BEGIN, host, bytes));
    tap_all(bad == 0 && equal, equal ? "other elements are NaN" : "other bits", "sums of NaN, %s on %d cuda ranks",
            dtype_name(q.act), w.n_ranks);
    ops->free(&q, device);
    free(host);
}

/* ---- many in a row ---- */

/* Sums of changing sizes, one after the other in one piece of memory, each at a multiple of 256 bytes. */
struct storm {
    size_t n[N_STORM], at[N_STORM], bytes;
    unsigned char *host, *device; /* host: pinned, the rank's parts */
    void *weights;                /* keep the device busy */
};

static void open_storm(struct storm *s)
{
    size_t size = dtype_bytes(q.act);
    s->bytes = 0;
    for (int k = 0; k < N_STORM; k++) {
        uint64_t x = mix((uint64_t)k + 77);
        s->n[k] = 1 + x / 8 % ((size_t[]){7, 100, 4096, 16384, 65536, 70000, 200000, 400000})[x % 8];
        s->at[k] = s->bytes;
        s->bytes += (s->n[k] * size + 255) / 256 * 256;
    }
    s->host = ops->async->host_alloc(&q, s->bytes);
    s->device = ops->alloc(&q, s->bytes);
    s->weights = ops->alloc(&q, 64 << 20);
    if (s->host == NULL || s->device == NULL || s->weights == NULL)
        exit(99);
    for (int k = 0; k < N_STORM; k++)
        fill(s->host + s->at[k], w.rank, (uint64_t)k, s->n[k]);
}

/* One of the ranks is late from time to time. */
static void enqueue_storm(struct storm *s)
{
    struct weight held = {.data = s->weights, .type = DTYPE_F32, .rows = 1024, .cols = 16384};
    ops->upload(&q, s->device, s->bytes, s->host, s->bytes, s->bytes, 1);
    for (int k = 0; k < N_STORM; k++) {
        if (mix((uint64_t)k) % (uint64_t)(3 * w.n_ranks) == (uint64_t)w.rank)
            ops->fill_noise(&q, &held, 1, 0, 1);
        comm_all_reduce(&comm, &q, s->device + s->at[k], s->n[k]);
    }
}

static size_t wrong_in_storm(struct storm *s)
{
    size_t bad = 0;
    unsigned char *sums = take_memory(s->bytes);
    ops->download(&q, sums, s->device, s->bytes);
    ops->wait(&q);
    for (int k = 0; k < N_STORM; k++)
        bad += wrong(sums + s->at[k], (uint64_t)k, s->n[k]);
    free(sums);
    return bad;
}

static void check_storm(void)
{
    struct storm s;
    char reason[80];
    open_storm(&s);
    enqueue_storm(&s);
    size_t bad = wrong_in_storm(&s);
    snprintf(reason, sizeof reason, "%zu other sums", bad);
    tap_all(bad == 0, reason, "%d sums in a row, of changing sizes, %s on %d cuda ranks", N_STORM, dtype_name(q.act),
            w.n_ranks);
    ops->async->begin_capture(&q);
    enqueue_storm(&s);
    void *graph = ops->async->end_capture(&q);
    bad = graph == NULL;
    for (int i = 0; i < 20; i++) /* an odd number of sums: each replay begins with the other half of the memory */
        ops->async->launch_graph(&q, graph);
    bad += wrong_in_storm(&s);
    snprintf(reason, sizeof reason, "%zu other sums", bad);
    tap_all(bad == 0 && q.err.code == ERR_NONE, reason, "the same in a graph, 20 times, %s on %d cuda ranks",
            dtype_name(q.act), w.n_ranks);
    ops->async->free_graph(&q, graph);
    ops->async->host_free(&q, s.host);
    ops->free(&q, s.device);
    ops->free(&q, s.weights);
}

/* ---- sums of pieces ---- */

#define N_BESIDE  48 /* sums in a row */
#define N_OF_KIND 6  /* of them, whose pieces have the same sizes */

/* Sums of pieces, each of which has its own memory on host and device, between guards. */
struct beside {
    int n_pieces;
    size_t n[COMM_PIECES], at[N_BESIDE][COMM_PIECES], bytes;
    unsigned char *host, *device;
};

static uint64_t seed_of(int sum, int piece)
{
    return (uint64_t)(1000 + sum * COMM_PIECES + piece);
}

/* The sizes of the pieces of sum k. */
static void set_sizes(struct beside *b, int k)
{
    static const size_t shape[][COMM_PIECES] = {{5000, 7003},
                                                {1, 70001, 4096, 333},
                                                {1 << 20, 1 << 20, 262145},
                                                {8, 7, 16, 15},
                                                {300001, 300001, 300001, 300007}};
    const size_t *n = shape[k / N_OF_KIND % (int)(sizeof shape / sizeof shape[0])];
    b->n_pieces = 0;
    memcpy(b->n, n, sizeof b->n);
    while (b->n_pieces < COMM_PIECES && n[b->n_pieces] > 0)
        b->n_pieces++;
}

static void open_beside(struct beside *b, int n_sums)
{
    size_t size = dtype_bytes(q.act);
    b->bytes = 0;
    for (int k = 0; k < n_sums; k++) {
        set_sizes(b, k);
        for (int i = 0; i < b->n_pieces; i++) {
            b->at[k][i] = b->bytes + 256;
            b->bytes += 256 + (b->n[i] * size + 255) / 256 * 256 + 256;
        }
    }
    b->host = take_memory(b->bytes);
    b->device = ops->alloc(&q, b->bytes);
    memset(b->host, 0xA5, b->bytes);
    for (int k = 0; k < n_sums; k++) {
        set_sizes(b, k);
        for (int i = 0; i < b->n_pieces; i++)
            fill(b->host + b->at[k][i], w.rank, seed_of(k, i), b->n[i]);
    }
    ops->upload(&q, b->device, b->bytes, b->host, b->bytes, b->bytes, 1);
    ops->download(&q, b->host, b->device, b->bytes);
    ops->wait(&q);
}

/* The sums as a layer enqueues them: a piece of the sum before ends, then that of this one begins; where the sizes
 * change, all end. One of the ranks is late from time to time. */
static void enqueue_beside(const struct beside *b, int n_sums, struct weight *held)
{
    struct beside now = *b;
    for (int k = 0; k < n_sums; k++) {
        set_sizes(&now, k);
        if (k % N_OF_KIND == 0)
            comm_end_sums(&comm, &q);
        for (int i = 0; i < now.n_pieces; i++) {
            if (mix(seed_of(k, i)) % (uint64_t)(3 * w.n_ranks) == (uint64_t)w.rank)
                ops->fill_noise(&q, held, 1, 0, 1);
            comm_end_sum(&comm, &q, i);
            comm_begin_sum(&comm, &q, i, now.n_pieces, now.device + now.at[k][i], now.n[i]);
        }
    }
    for (int i = COMM_PIECES - 1; i >= 0; i--)
        comm_end_sum(&comm, &q, i);
}

/* Returns the number of elements that are other sums, or bytes beside them. */
static size_t wrong_beside(struct beside *b, int n_sums)
{
    size_t size = dtype_bytes(q.act), bad = 0;
    ops->download(&q, b->host, b->device, b->bytes);
    ops->wait(&q);
    for (int k = 0; k < n_sums; k++) {
        set_sizes(b, k);
        for (int i = 0; i < b->n_pieces; i++) {
            const unsigned char *at = b->host + b->at[k][i];
            size_t bytes = b->n[i] * size;
            bad += wrong(at, seed_of(k, i), b->n[i]) + wrong_guards(at - 256, 256) +
                   wrong_guards(at + bytes, (bytes + 255) / 256 * 256 - bytes + 256);
        }
    }
    return bad;
}

/* Every place of a part that later sums use contains NaNs. */
static void poison_beside(void)
{
    const size_t n = ((size_t)15 << 20) / dtype_bytes(q.act), bytes = COMM_PIECES * n * dtype_bytes(q.act);
    unsigned char *host = take_memory(bytes), *device = ops->alloc(&q, bytes);
    size_t bad = 0;
    memset(host, 0xff, bytes);
    for (int sum = 0; sum < 2; sum++) {
        ops->upload(&q, device, bytes, host, bytes, bytes, 1);
        for (int i = 0; i < COMM_PIECES; i++)
            comm_begin_sum(&comm, &q, i, COMM_PIECES, device + (size_t)i * n * dtype_bytes(q.act), n);
        comm_end_sums(&comm, &q);
    }
    ops->download(&q, host, device, bytes);
    ops->wait(&q);
    for (size_t i = 0; i < COMM_PIECES * n; i++)
        bad += isnan(dtype_load(host, q.act, i)) == 0;
    tap_all(bad == 0 && q.err.code == ERR_NONE, "numbers", "sums of pieces of NaN, %s on %d cuda ranks",
            dtype_name(q.act), w.n_ranks);
    ops->free(&q, device);
    free(host);
}

static void check_beside(int n_sums)
{
    struct beside b;
    struct weight held = {.data = ops->alloc(&q, 64 << 20), .type = DTYPE_F32, .rows = 1024, .cols = 16384};
    char reason[80];
    uint64_t calls = comm.n_all_reduces;
    open_beside(&b, n_sums);
    enqueue_beside(&b, n_sums, &held);
    size_t bad = wrong_beside(&b, n_sums);
    (void)snprintf(reason, sizeof reason, "%zu other sums or bytes beside them", bad);
    tap_all(bad == 0 && q.err.code == ERR_NONE && comm.under_way == 0 && comm.n_all_reduces == calls + (uint64_t)n_sums,
            reason, "%d sums in pieces, %s on %d cuda ranks", n_sums, dtype_name(q.act), w.n_ranks);
    ops->free(&q, held.data);
    ops->free(&q, b.device);
    free(b.host);
}

/* A sum in pieces and whole sums take turns, and have the same bits. */
static void check_all_beside(void)
{
    if (w.n_ranks < 2)
        return;
    poison_beside();
    check_beside(1);
    check_size(70000);
    check_beside(N_BESIDE);
}

/* ---- columns side by side ---- */

static void check_columns(int n_rows, int unit, int uneven)
{
    int begin[PEER_MAX_RANKS + 1] = {0};
    for (int r = 0; r < w.n_ranks; r++)
        begin[r + 1] = begin[r] + unit * (r % 2 == 0 ? uneven : 1);
    size_t size = dtype_bytes(q.act), width = (size_t)(begin[w.rank + 1] - begin[w.rank]),
           vocab = (size_t)begin[w.n_ranks], rows = (size_t)n_rows, guard = GUARD * size, bytes = rows * vocab * size,
           bad = 0;
    unsigned char *host = take_memory(bytes + 2 * guard), *part = take_memory(rows * width * size), element[4];
    unsigned char *out = ops->alloc(&q, bytes + 2 * guard), *in = ops->alloc(&q, rows * width * size);
    memset(host, 0xA5, bytes + 2 * guard);
    ops->upload(&q, out, bytes + 2 * guard, host, bytes + 2 * guard, bytes + 2 * guard, 1);
    fill(part, w.rank, 9, rows * width);
    ops->upload(&q, in, rows * width * size, part, rows * width * size, rows * width * size, 1);
    bool takes = comm_all_gather_columns(&comm, &q, out + guard, in, begin, n_rows);
    ops->download(&q, host, out, bytes + 2 * guard);
    ops->wait(&q);
    for (size_t t = 0; t < rows && takes; t++)
        for (int r = 0; r < w.n_ranks; r++)
            for (int c = begin[r]; c < begin[r + 1]; c++) {
                dtype_store(element, q.act, 0,
                            awkward(r, 9, t * (size_t)(begin[r + 1] - begin[r]) + (size_t)(c - begin[r])));
                bad += memcmp(element, host + guard + (t * vocab + (size_t)c) * size, size) != 0;
            }
    size_t beside = wrong_guards(host, guard) + wrong_guards(host + guard + bytes, guard);
    tap_all(takes && bad + beside == 0 && q.err.code == ERR_NONE, takes ? "other elements" : "not taken",
            "columns of %d rows, %d and %d, %s on %d cuda ranks", n_rows, unit, unit * uneven, dtype_name(q.act),
            w.n_ranks);
    ops->free(&q, out);
    ops->free(&q, in);
    free(host);
    free(part);
}

static void check_all_columns(void)
{
    static const int shape[][3] = {{1, 1, 1},    {3, 5, 2},    {1, 32064, 1}, {8, 32064, 1},
                                   {7, 1000, 3}, {5, 1001, 2}, {6, 25000, 2}};
    for (size_t i = 0; i < sizeof shape / sizeof shape[0] && w.n_ranks > 1; i++)
        for (int again = 0; again < 3; again++)
            check_columns(shape[i][0], shape[i][1], shape[i][2]);
}

/* ---- timing ---- */

/* Returns the microseconds of one of many sums in a graph, on the slowest rank. */
static double time_sums(struct comm *c, void *data, size_t n)
{
    const int in_graph = 20, n_warm = 2, n_timed = 8;
    double started = 0, slowest = 0;
    ops->async->begin_capture(&q);
    for (int i = 0; i < in_graph; i++)
        comm_all_reduce(c, &q, data, n);
    void *graph = ops->async->end_capture(&q);
    for (int i = 0; i < n_warm + n_timed; i++) {
        if (i == n_warm) {
            ops->wait(&q);
            MPI_CHECK(MPI_Barrier(w.comm));
            started = seconds_now();
        }
        ops->async->launch_graph(&q, graph);
    }
    ops->wait(&q);
    double mine = (seconds_now() - started) / (in_graph * n_timed);
    MPI_CHECK(MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, w.comm));
    ops->async->free_graph(&q, graph);
    return 1e6 * slowest;
}

static void show_times(void)
{
    size_t most = (size_t)32 << 20;
    void *data = ops->alloc(&q, most);
    q.act = DTYPE_BF16;
    for (size_t bytes = 4 << 10; bytes <= most; bytes *= 2) {
        double theirs = time_sums(&nccl, data, bytes / 2), ours = time_sums(&comm, data, bytes / 2);
        if (w.rank == 0)
            printf("# sums of %5zu KiB on %d ranks: NCCL %6.1f us, peer memory %6.1f us\n", bytes >> 10, w.n_ranks,
                   theirs, ours);
    }
    ops->free(&q, data);
}

int main(int argc, char **argv)
{
    static const size_t size[] = {1,      7,      8,      4095,   4096,    65536,   65543,
                                  262144, 262145, 300001, 524288, 1048576, 2097152, 5000003};
    struct err e = {0};
    const char *part = argc > 1 ? argv[1] : "";
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    (void)device_open(&ops, &q, DEVICE_CUDA, DTYPE_BF16, 1, &w, &e);
    fatal_agree(&w, &e);
    (void)comm_open(&comm, &w, ops, &q, COMM_PIECES, &e);
    fatal_agree(&w, &e);
    tap_all(w.n_ranks == 1 || strcmp(comm.ops->name, "peer") == 0, comm.ops->name,
            "sums over peer memory on %d cuda ranks", w.n_ranks);
    for (q.act = 0; q.act < DTYPE_COUNT && strcmp(part, "times") != 0; q.act++) {
        check_all_beside();
        if (strcmp(part, "pieces") == 0)
            continue;
        for (size_t i = 0; i < sizeof size / sizeof size[0]; i++)
            check_size(size[i]);
        check_not_numbers();
        check_storm();
        check_all_columns();
    }
    if (strcmp(part, "quick") != 0 && strcmp(part, "pieces") != 0 && w.n_ranks > 1) {
        (void)comm_open_nccl(&nccl, &w, &e);
        fatal_agree(&w, &e);
        show_times();
        comm_close(&nccl);
    }
    comm_close(&comm);
    ops->close(&q);
    int status = tap_done();
    world_close(&w);
    return status;
}
