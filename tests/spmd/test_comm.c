/* tests/spmd/test_comm.c - rank/comm/comm_mpi.c: exact sums, equal bits, and sums that do not depend on the message's
 * size; sums of pieces; a transport that is lent. */
#include "rank/comm/comm.h"
#include "rank/observe/observer.h"
#include "rank/world/fatal.h"
#include "tests/support/digest.h"
#include "tests/support/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART (1 << 20) /* elements that are exchanged at once */
#define MOST (2 * PART + 20003)

static struct queue q = {.act = DTYPE_F32, .n_threads = 1};

/* Returns a number with all its bits in use, of mixed sign and size, so that the order of a sum shows. */
static float awkward(int rank, size_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(rank + 1) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 30) * 0x94d049bb133111ebu;
    return ldexpf((float)(int32_t)(x >> 32) / 2147483648.0f, (int)(x % 24) - 12);
}

static void check_exact(struct comm *c, float *x, size_t n)
{
    bool exact = true, guarded = true;
    double ranks = c->n_ranks;
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)(i % 1000) * (c->rank + 1) - 300);
    x[n] = 12345; /* one beyond the end */
    uint64_t calls = c->n_all_reduces;
    comm_all_reduce(c, &q, x, n);
    for (size_t i = 0; i < n; i++)
        exact = exact && (double)x[i] == (double)(i % 1000) * ranks * (ranks + 1) / 2 - 300 * ranks;
    guarded = x[n] == 12345;
    tap_all(exact && guarded && c->n_all_reduces == calls + 1, guarded ? "another sum" : "wrote beyond the end",
            "all-reduce of %zu integers on %d ranks", n, c->n_ranks);
    for (size_t i = 0; i < n; i++)
        x[i] = awkward(c->rank, i);
    comm_all_reduce(c, &q, x, n);
    tap_all(digest_same_everywhere(digest_add(DIGEST_BEGIN, x, n * sizeof *x)), "other bits",
            "all-reduce of %zu numbers gives every rank the same bits", n);
}

/* For every size, element i is the sum in rank order, so it does not depend on other elements. */
static void check_order(struct comm *c, float *x)
{
    static const size_t size[] = {1, 7, 4096, 16383, 16384, 16385, 40000, PART, PART + 1, MOST};
    for (size_t k = 0; k < sizeof size / sizeof size[0]; k++) {
        bool same = true;
        for (size_t i = 0; i < size[k]; i++)
            x[i] = awkward(c->rank, i);
        comm_all_reduce(c, &q, x, size[k]);
        for (size_t i = 0; i < size[k]; i++) {
            float sum = awkward(0, i);
            for (int r = 1; r < c->n_ranks; r++)
                sum += awkward(r, i);
            same = same && memcmp(&sum, &x[i], sizeof sum) == 0;
        }
        tap_all(same, "another sum", "an element's sum among %zu is the one in rank order", size[k]);
    }
}

/* Pieces follow each other, none is empty, and there are more than one where there is enough. */
static void check_cuts(struct comm *c)
{
    static const struct comm_cut cut[] = {{COMM_PIECES, 1, 1, 1 << 20},
                                          {COMM_PIECES, 3, 64, 1 << 20},
                                          {2, 7, 1, 1 << 20},
                                          {COMM_PIECES, 1024, 4 << 20, 32 << 20}};
    const struct comm_cut was = c->cut;
    int n_bad = 0, n_cut = 0, n_whole = 0;
    for (size_t k = 0; k < sizeof cut / sizeof cut[0]; k++)
        for (int rows = 0; rows < 20000; rows = rows * 9 / 8 + 1)
            for (size_t row = 4; row <= 16384; row *= 8) {
                c->cut = cut[k];
                int n = comm_pieces(c, rows, row), end = comm_piece_begin(c, rows, n, 0);
                bool enough = c->n_ranks > 1 && rows >= 2 * cut[k].rows && (size_t)rows * row >= 2 * cut[k].bytes;
                n_bad += n < 1 || n > cut[k].pieces || end != 0 || (n > 1 && !enough);
                n_bad += n > 1 && (size_t)rows * row > cut[k].most;
                for (int i = 0; i < n && n > 1; i++) {
                    int begin = end;
                    end = comm_piece_begin(c, rows, n, i + 1);
                    n_bad += end <= begin;
                }
                n_bad += comm_piece_begin(c, rows, n, n) != rows;
                n_cut += n > 1;
                n_whole += n == 1 && enough && row % 16 == 0 && (size_t)rows * row <= cut[k].most;
            }
    c->cut = was;
    char reason[80];
    (void)snprintf(reason, sizeof reason, "%d wrong, %d in pieces, %d not", n_bad, n_cut, n_whole);
    tap_all(n_bad == 0 && n_whole == 0 && (n_cut > 0) == (c->n_ranks > 1), reason, "rows are cut into pieces");
}

/* Sums of pieces, which end in another order than they began, or are those of the whole. */
static void check_pieces(struct comm *c, float *x)
{
    const int n_rows = 900, columns = 1000;
    const struct comm_cut was = c->cut;
    uint64_t calls = c->n_all_reduces;
    bool same = true;
    c->cut = (struct comm_cut){COMM_PIECES, 1, 1, SIZE_MAX};
    int n = comm_pieces(c, n_rows, (size_t)columns * sizeof *x);
    for (size_t i = 0; i < (size_t)n_rows * (size_t)columns; i++)
        x[i] = awkward(c->rank, i);
    for (int i = 0; i < n; i++) {
        int begin = comm_piece_begin(c, n_rows, n, i), end = comm_piece_begin(c, n_rows, n, i + 1);
        comm_begin_sum(c, &q, i, n, x + (size_t)begin * (size_t)columns, (size_t)(end - begin) * (size_t)columns);
    }
    bool begun = c->under_way == (n > 1 ? (1u << n) - 1 : 0);
    comm_end_sum(c, &q, n - 1);
    comm_end_sum(c, &q, n - 1);
    comm_end_sums(c, &q);
    for (size_t i = 0; i < (size_t)n_rows * (size_t)columns; i++) {
        float sum = awkward(0, i);
        for (int r = 1; r < c->n_ranks; r++)
            sum += awkward(r, i);
        same = same && memcmp(&sum, &x[i], sizeof sum) == 0;
    }
    tap_all(same && begun && c->under_way == 0 && c->n_all_reduces == calls + 1 &&
                n == (c->n_ranks > 1 ? COMM_PIECES : 1),
            same ? "counted otherwise" : "another sum", "the sums of %d pieces are those of the whole", n);
    c->cut = was;
}

static void check_gather(struct comm *c, const size_t *n, const char *name)
{
    size_t total = 0, mine = 0;
    for (int r = 0; r < c->n_ranks; r++) {
        mine += r < c->rank ? n[r] : 0;
        total += n[r];
    }
    float *in = malloc((n[c->rank] + 1) * sizeof *in), *out = malloc((total + 1) * sizeof *out);
    for (size_t i = 0; i < n[c->rank]; i++)
        in[i] = awkward(7, mine + i);
    for (size_t i = 0; i <= total; i++)
        out[i] = NAN;
    out[total] = 12345;
    comm_all_gather(c, &q, out, in, n);
    bool same = out[total] == 12345;
    for (size_t i = 0; i < total; i++)
        same = same && out[i] == awkward(7, i);
    tap_all(same, "other elements", "all-gather on %d ranks: %s", c->n_ranks, name);
    free(in);
    free(out);
}

static void check_gathers(struct comm *c)
{
    size_t even[64], uneven[64], zeros[64], last[64], none[64];
    for (int r = 0; r < c->n_ranks; r++) {
        even[r] = 1000;
        uneven[r] = (size_t)(r * r * 777 + 1);
        zeros[r] = r % 2 == 0 ? 0 : 50;
        last[r] = r == c->n_ranks - 1 ? 30000 : 0;
        none[r] = 0;
    }
    check_gather(c, even, "even counts");
    check_gather(c, uneven, "uneven counts");
    check_gather(c, zeros, "every other rank has nothing");
    check_gather(c, last, "only the last rank has something");
    check_gather(c, none, "no rank has elements");
}

static int n_heard;

static void hear(struct observer *o, enum collective kind)
{
    (void)o;
    n_heard += kind == COLLECTIVE_ALL_REDUCE;
}

/* Two users in turn: each has its own count and observers, and its own end, which does not close the transport. */
static void check_lent(struct comm *c, float *x)
{
    static const struct observer_hooks hooks = {.collective = hear};
    struct observer observer = {.hooks = &hooks};
    struct observers all = {0};
    struct comm first, second;
    uint64_t calls = c->n_all_reduces;
    char reason[80];
    observers_add(&all, &observer);
    comm_lend(&first, c);
    comm_lend(&second, c);
    second.observers = &all;
    check_exact(&first, x, 7);
    check_exact(&second, x, PART + 1);
    check_order(&first, x);
    (void)snprintf(reason, sizeof reason, "%llu, %llu, %llu more; %d heard", (unsigned long long)first.n_all_reduces,
                   (unsigned long long)second.n_all_reduces, (unsigned long long)(c->n_all_reduces - calls), n_heard);
    tap_all(first.n_all_reduces == 12 && second.n_all_reduces == 2 && c->n_all_reduces == calls &&
                n_heard == (c->n_ranks > 1 ? 2 : 0),
            reason, "each user of a transport counts for itself");
    comm_close(&first);
    check_exact(&second, x, 7);
    comm_close(&second);
    check_exact(c, x, PART + 1);
}

/* Ranks that cannot have pieces are refused, with the option's name, before they load anything. */
static void check_refused_pieces(void)
{
    static const struct ops host = {.shares_host_memory = true}, device = {.shares_host_memory = false};
    static const struct {
        const struct ops *ops;
        int n_ranks, pieces;
        enum err_code code;
    } cases[] = {{&device, 1, 0, ERR_NONE}, {&device, 8, 1, ERR_NONE}, {&device, 1, 2, ERR_USAGE},
                 {&device, 2, 4, ERR_NONE}, {&device, 4, 2, ERR_NONE}, {&device, 5, 2, ERR_UNSUPPORTED},
                 {&host, 1, 4, ERR_USAGE},  {&host, 8, 4, ERR_NONE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e = {0};
        int rc = comm_check_pieces(cases[i].ops, cases[i].n_ranks, cases[i].pieces, &e);
        bool named = e.code == ERR_NONE || strstr(e.text, "--sum-pieces") != NULL;
        tap_all(rc == (cases[i].code == ERR_NONE ? 0 : -1) && e.code == cases[i].code && named, e.text,
                "%d pieces on %d ranks with %s memory: code %d", cases[i].pieces, cases[i].n_ranks,
                cases[i].ops == &host ? "the host's" : "their own", (int)cases[i].code);
    }
}

int main(int argc, char **argv)
{
    static const size_t size[] = {1, 7, 16383, 16384, 16385, PART, PART + 1, MOST};
    struct err e = {0};
    struct world w;
    struct comm c;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    (void)comm_open_mpi(&c, &w, &e);
    fatal_agree(&w, &e);
    float *x = malloc((MOST + 1) * sizeof *x);
    for (size_t k = 0; k < sizeof size / sizeof size[0]; k++)
        check_exact(&c, x, size[k]);
    comm_all_reduce(&c, &q, x, 0);
    check_order(&c, x);
    check_cuts(&c);
    check_pieces(&c, x);
    check_gathers(&c);
    check_lent(&c, x);
    check_refused_pieces();
    comm_close(&c);
    comm_close(&c);
    free(x);
    int status = tap_done();
    world_close(&w);
    return status;
}
