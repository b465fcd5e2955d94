/* tests/spmd/test_load_ways.c - the same weights arrive in memory whether the ranks of a node read a checkpoint
 * together, in blocks of any size, or each one reads its own slices with several threads, also if the copy to a device
 * is measured first: the quantised fixtures of the parity tests and one whose matrices are transposed, or those whose
 * names contain the argument. Run under mpirun. */
#include "partition/side_tensors.h"
#include "rank/load/load.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/parity/fixtures"

static struct world w;
static struct queue q;

struct fixture {
    struct model_config config;
    struct checkpoint checkpoint;
};

/* Treats the host's memory as a device's: the copy is measured through the registered memory, which holds NaN codes. */
static bool register_poisoned(struct queue *of, void *p, size_t bytes)
{
    (void)of;
    memset(p, 0xff, bytes);
    return true;
}

static void unregister(struct queue *of, void *p)
{
    (void)of;
    (void)p;
}

static void pass_mark(struct queue *of, int which)
{
    (void)of;
    (void)which;
}

static const struct async_ops async = {
    .host_register = register_poisoned, .host_unregister = unregister, .mark = pass_mark, .wait_mark = pass_mark};

static void load(struct network *n, const struct fixture *f, enum load_way way, int64_t piece_bytes, bool as_device,
                 struct err *e)
{
    struct load_setup setup = {.way = way, .n_threads = 3, .piece_bytes = piece_bytes};
    struct ops device = ops_cpu;
    struct load_stats stats;
    struct shard shard;
    shard_make(&shard, &f->config, w.rank, w.n_ranks);
    memset(n, 0, sizeof *n);
    (void)network_open(n, &f->config, &shard, &f->checkpoint, false, &ops_cpu, &q, e);
    fatal_agree(&w, e);
    device.async = as_device ? &async : NULL;
    (void)load_weights(n, &f->checkpoint, &w, &device, &q, &setup, PROGRESS_NEVER, as_device, &stats, e);
    fatal_agree(&w, e);
}

/* Returns the first weight that differs, or -1. */
static int different(const struct network *a, const struct network *b)
{
    for (int i = 0; i < a->map.n_slots; i++) {
        size_t bytes = weight_slot_bytes(&a->map.slot[i]);
        if (bytes > 0 && memcmp(a->weight[i].data, b->weight[i].data, bytes) != 0)
            return i;
    }
    return -1;
}

static void compare(const struct network *together, const struct fixture *f, const char *name, int64_t piece_bytes,
                    bool as_device, struct err *e)
{
    struct network alone;
    char reason[80] = "";
    load(&alone, f, LOAD_ALONE, piece_bytes, as_device, e);
    int at = different(together, &alone);
    if (at >= 0)
        (void)snprintf(reason, sizeof reason, "weight %d of layer %d differs", (int)alone.map.slot[at].id,
                       alone.map.slot[at].layer);
    tap_all(at < 0, reason, "%s in blocks of %lld bytes%s, on %d ranks", name, (long long)piece_bytes,
            as_device ? ", as to a device" : "", w.n_ranks);
    network_close(&alone, &ops_cpu, &q);
}

static void try_fixture(const char *name, struct err *e)
{
    struct fixture f = {0};
    struct network together;
    char dir[300];
    (void)snprintf(dir, sizeof dir, FIXTURES "/%s", name);
    if (w.rank == 0 && model_config_read(&f.config, dir, e) == 0)
        if (checkpoint_open(&f.checkpoint, dir, e) == 0)
            (void)side_tensors_read(&f.checkpoint, &f.config, e);
    fatal_agree(&w, e);
    (void)load_share_headers(&f.config, &f.checkpoint, &w, e);
    fatal_agree(&w, e);
    (void)ops_cpu.open(&q, 0, f.config.dtype, w.n_threads, e);
    fatal_agree(&w, e);
    load(&together, &f, LOAD_TOGETHER, 0, false, e);
    compare(&together, &f, name, 100, false, e);
    compare(&together, &f, name, 1000, false, e);
    compare(&together, &f, name, 1 << 20, false, e);
    compare(&together, &f, name, 1 << 20, true, e);
    network_close(&together, &ops_cpu, &q);
    ops_cpu.close(&q);
    checkpoint_close(&f.checkpoint);
}

static bool is_wanted(const char *name, const char *part)
{
    if (part != NULL)
        return name[0] != '.' && strstr(name, part) != NULL;
    return strncmp(name, "q-", 2) == 0 || strcmp(name, "gpt2-3h") == 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct dirent **entry;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    int n = scandir(FIXTURES, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (is_wanted(entry[i]->d_name, argc > 1 ? argv[1] : NULL))
            try_fixture(entry[i]->d_name, &e);
        free(entry[i]);
    }
    free(entry);
    int status = tap_done();
    world_close(&w);
    return status;
}
