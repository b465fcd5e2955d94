/* tests/soak/test_loading.c - loading as rank/load/load.c does it, together and alone, compared with a plain program in
 * which every rank reads the pieces that it needs, with one request for each row of a matrix that is cut along its
 * inputs: all give the same bytes, and the time of each with a cold page cache is printed. Run under mpirun;
 * $LOADING_MODEL is a folder, otherwise the demo model is loaded. LOADING_ROUNDS (1) repeats it; LOADING_AHEAD=0 reads
 * the pieces without the kernel's read-ahead, which hides small requests on a local disk but not on many shared file
 * systems. */
#include "base/clock.h"
#include "rank/load/load.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The weights loaded one way, and its cost: this rank's, then all ranks'. */
struct way {
    struct network network;
    double seconds, bytes, requests;
};

static struct world w;
static struct queue q;
static struct checkpoint c;
static struct model_config m;
static bool no_ahead;

static int open_file(int file)
{
    char path[sizeof c.dir + 300];
    (void)snprintf(path, sizeof path, "%s/%s", c.dir, checkpoint_file_name(&c, file));
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Drops the files from the page cache, as far as the kernel allows. */
static void forget_files(void)
{
    MPI_CHECK(MPI_Barrier(w.comm));
    for (int file = 0; file < c.n_files && w.rank == 0; file++) {
        int fd = open_file(file);
        (void)fdatasync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        (void)close(fd);
    }
    MPI_CHECK(MPI_Barrier(w.comm));
}

static void read_all(int fd, void *to, size_t bytes, uint64_t offset, struct way *way, struct err *e)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (n <= 0) {
            ERR(e, ERR_IO, "%s: cannot read", c.dir);
            return;
        }
        done += (size_t)n;
        way->requests++;
    }
    way->bytes += (double)bytes;
}

/* Reads a slice of a tensor: whole rows in one request, parts of rows in one each. */
static void read_slice(const struct weight_slice *s, int fd, char *scratch, struct way *way, struct err *e)
{
    const struct tensor_info *t = &c.tensor[s->tensor];
    const struct weight *to = &way->network.weight[s->slot];
    int64_t in_row = t->shape[t->n_dims - 1];
    size_t size = dtype_bytes(to->type), ld = (size_t)to->cols;
    char *dst = (char *)to->data + ((size_t)s->dst_row * ld + (size_t)s->dst_col) * size;
    uint64_t from = t->offset + (uint64_t)(s->row * in_row + s->col) * size;
    bool dense = s->cols == in_row && (s->transpose || s->cols == to->cols || s->rows == 1);
    char *at = s->transpose ? scratch : dst;
    size_t pitch = s->transpose ? (size_t)s->cols * size : ld * size;
    for (int64_t r = 0; !dense && r < s->rows; r++)
        read_all(fd, at + (size_t)r * pitch, (size_t)s->cols * size, from + (uint64_t)(r * in_row) * size, way, e);
    if (dense)
        read_all(fd, at, (size_t)(s->rows * s->cols) * size, from, way, e);
    if (s->transpose)
        ops_cpu.upload_transposed(&q, dst, ld, scratch, (size_t)s->cols, (size_t)s->rows, (size_t)s->cols, to->type);
}

static void by_pieces(struct way *way, struct err *e)
{
    const struct weight_map *map = &way->network.map;
    size_t largest = 1;
    int file = -1, fd = -1;
    for (int i = 0; i < map->n_slices; i++)
        if (map->slice[i].transpose) {
            size_t bytes = (size_t)(map->slice[i].rows * map->slice[i].cols) * 4;
            largest = bytes > largest ? bytes : largest;
        }
    char *scratch = malloc(largest);
    for (int i = 0; i < map->n_slices && e->code == ERR_NONE; i++) {
        int wanted = c.tensor[map->slice[i].tensor].file;
        if (wanted != file) {
            if (fd >= 0)
                (void)close(fd);
            fd = open_file(wanted);
            file = wanted;
            if (no_ahead)
                (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        }
        read_slice(&map->slice[i], fd, scratch, way, e);
    }
    (void)close(fd);
    free(scratch);
}

static void by_blocks(struct way *way, struct err *e)
{
    struct load_setup setup = {.way = LOAD_TOGETHER};
    struct load_stats stats;
    (void)load_weights(&way->network, &c, &w, &ops_cpu, &q, &setup, PROGRESS_NEVER, false, &stats, e);
    way->bytes = (double)stats.bytes_read;
    way->requests = way->bytes / READ_PLAN_BLOCK_BYTES;
}

/* Each rank uses several threads, which also share parts of rows. */
static void alone(struct way *way, struct err *e)
{
    struct load_setup setup = {.way = LOAD_ALONE, .n_threads = 3, .piece_bytes = 10000};
    struct load_stats stats;
    (void)load_weights(&way->network, &c, &w, &ops_cpu, &q, &setup, PROGRESS_NEVER, false, &stats, e);
    way->bytes = (double)stats.bytes_read;
    way->requests = 0; /* not counted */
}

static void run_way(struct way *way, void (*load)(struct way *, struct err *), struct err *e)
{
    struct shard shard;
    double sum[2], mine[2];
    memset(way, 0, sizeof *way);
    shard_make(&shard, &m, w.rank, w.n_ranks);
    (void)network_open(&way->network, &m, &shard, &c, false, &ops_cpu, &q, e);
    fatal_agree(&w, e);
    forget_files();
    double started = seconds_now();
    load(way, e);
    double seconds = seconds_now() - started;
    fatal_agree(&w, e);
    mine[0] = way->bytes;
    mine[1] = way->requests;
    MPI_CHECK(MPI_Allreduce(mine, sum, 2, MPI_DOUBLE, MPI_SUM, w.comm));
    MPI_CHECK(MPI_Allreduce(&seconds, &way->seconds, 1, MPI_DOUBLE, MPI_MAX, w.comm));
    way->bytes = sum[0];
    way->requests = sum[1];
}

/* Returns the number of weights that differ, on all ranks. */
static int differences(const struct network *a, const struct network *b)
{
    int n = 0, all = 0;
    for (int i = 0; i < a->map.n_slots; i++)
        n += memcmp(a->weight[i].data, b->weight[i].data, weight_slot_bytes(&a->map.slot[i])) != 0;
    MPI_CHECK(MPI_Allreduce(&n, &all, 1, MPI_INT, MPI_SUM, w.comm));
    return all;
}

static void say(const char *name, const struct way *way, double held)
{
    char requests[60] = "";
    if (way->requests > 0)
        (void)snprintf(requests, sizeof requests, " in about %.0f requests", way->requests);
    if (w.rank == 0)
        printf("# %d ranks, %s: %.2f s, %.2f GB/s of weights in place; read %.2f GB%s\n", w.n_ranks, name, way->seconds,
               held / 1e9 / way->seconds, way->bytes / 1e9, requests);
}

static void compare(struct err *e)
{
    static const struct {
        const char *name;
        void (*load)(struct way *, struct err *);
    } ways[] = {{"every rank its own pieces   ", by_pieces},
                {"blocks of 8 MiB, once a node", by_blocks},
                {"the same loader, alone      ", alone}};
    struct way pieces, way;
    double held = 0;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct way *to = i == 0 ? &pieces : &way;
        run_way(to, ways[i].load, e);
        double mine = (double)weight_map_bytes(&to->network.map);
        MPI_CHECK(MPI_Allreduce(&mine, &held, 1, MPI_DOUBLE, MPI_SUM, w.comm));
        say(ways[i].name, to, held);
        if (i == 0)
            continue;
        int n = differences(&pieces.network, &way.network);
        tap_all(n == 0 && held > 0, "some weights differ", "%s: the same weights as read plainly on %d ranks",
                ways[i].name, w.n_ranks);
        network_close(&way.network, &ops_cpu, &q);
    }
    network_close(&pieces.network, &ops_cpu, &q);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    const char *dir = getenv("LOADING_MODEL"), *rounds = getenv("LOADING_ROUNDS");
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    const char *ahead = getenv("LOADING_AHEAD");
    no_ahead = ahead != NULL && strcmp(ahead, "0") == 0;
    dir = dir != NULL ? dir : "demo/lockstep-stories";
    if (w.rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(&w, &e);
    (void)load_share_headers(&m, &c, &w, &e);
    (void)ops_cpu.open(&q, 0, m.dtype, w.n_threads, &e);
    fatal_agree(&w, &e);
    for (int i = 0; i < (rounds != NULL ? atoi(rounds) : 1); i++)
        compare(&e);
    checkpoint_close(&c);
    int status = tap_done();
    world_close(&w);
    return status;
}
