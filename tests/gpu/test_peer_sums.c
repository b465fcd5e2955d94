/* tests/gpu/test_peer_sums.c - sums over memory that the ranks' GPUs share: every element against a sum in the order of
 * the ranks computed here, in every type, of odd and large sizes, many in a row of changing sizes while ranks are
 * delayed, replayed in graphs, with values that are not numbers; the ranks' columns side by side; and the time of sums
 * beside NCCL's. argv: "quick" leaves that out, "times" does nothing else. */
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
    (void)comm_open(&comm, &w, ops, &q, &e);
    fatal_agree(&w, &e);
    tap_all(w.n_ranks == 1 || strcmp(comm.ops->name, "peer") == 0, comm.ops->name,
            "sums over peer memory on %d cuda ranks", w.n_ranks);
    for (q.act = 0; q.act < DTYPE_COUNT && strcmp(part, "times") != 0; q.act++) {
        for (size_t i = 0; i < sizeof size / sizeof size[0]; i++)
            check_size(size[i]);
        check_not_numbers();
        check_storm();
        check_all_columns();
    }
    if (strcmp(part, "quick") != 0 && w.n_ranks > 1) {
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
