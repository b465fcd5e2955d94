/* commands/preflight/preflight.c - see preflight.h. The measurements, in order, on all ranks. */
#include "commands/preflight/preflight.h"
#include "base/clock.h"
#include "base/log.h"
#include "commands/preflight/report.h"
#include "rank/comm/comm.h"
#include "rank/load/load.h"
#include "rank/measure/file_rate.h"
#include "rank/measure/read_limit.h"
#include "rank/watch/deadline.h"
#include "rank/world/device.h"
#include "rank/world/fatal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT           60.0 /* s per part: a hanging GPU or link shows here first */
#define DEVICE_READ_BYTES ((size_t)2 << 30)
#define HOST_READ_BYTES   ((size_t)128 << 20)
#define READ_PASSES       5
#define BROADCAST_BYTES   4096 /* as the first part of a plan */
#define BROADCASTS        50
#define PINGS             20
#define SUM_SECONDS       0.1 /* for each size of all-reduce, */
#define MAX_SUMS          200 /* but at most this many */
#define BUSY_FILLS        200
#define FILE_BYTES        (256.0 * (1 << 20)) /* of a rank, */
#define FILE_SECONDS      1.5                 /* read for at most this many seconds, */
#define FILE_THREADS      8                   /* by at most this many threads */
#define MIN_READ_SHARE    0.85
#define MAX_BROADCAST_US  1000.0

/* The options of rank 0. Flat: broadcast. */
struct preflight_wishes {
    struct preflight_limits limits;
    int32_t device, threads, files; /* files: there is a checkpoint to read */
    int32_t wanted;
    double timeout; /* s */
};

/* From a decoded token's size to a long prompt's; the last one on GPUs only. */
static const size_t sum_bytes[] = {8 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20};
#define N_SUMS (sizeof sum_bytes / sizeof sum_bytes[0])

struct preflight_run {
    struct world *w;
    const struct ops *ops;
    struct queue q;
    struct preflight_wishes wishes;
    struct checkpoint checkpoint;
    struct preflight_rank mine;
    struct preflight found; /* complete on rank 0 */
    struct deadline deadline;
};

enum part { OPENING, PLACES, MESSAGES, MEMORY, SUMS, FILES, GATHERING };
static const char *const part_name[] = {
    "opening the devices", "comparing places", "exchanging messages", "reading memory", "all-reduce",
    "reading files",       "gathering"};

/* A rank that waits for others here is one part ahead of them. */
static void begin_part(struct preflight_run *r, enum part part)
{
    deadline_part(&r->deadline, (int)part);
    MPI_CHECK(MPI_Barrier(r->w->comm));
    log_info("preflight: %s", part_name[part]);
}

/* ---- places ---- */

static void find_places(struct preflight_run *r, struct err *e)
{
    size_t n = (size_t)r->w->n_ranks;
    struct rank_place *all = err_calloc(e, n, sizeof *all, "places");
    enum peer_link *link = err_calloc(e, n, sizeof *link, "P2P");
    unsigned char *row = err_calloc(e, n, 1, "P2P");
    r->found.rank = err_calloc(e, r->w->rank == 0 ? n : 1, sizeof *r->found.rank, "preflight");
    r->found.link = err_calloc(e, r->w->rank == 0 ? n * n : 1, 1, "P2P");
    fatal_agree(r->w, e);
    device_places(all, link, r->ops, &r->q, r->w, true);
    for (size_t i = 0; i < n; i++)
        row[i] = (unsigned char)link[i];
    MPI_CHECK(MPI_Gather(row, (int)n, MPI_BYTE, r->found.link, (int)n, MPI_BYTE, 0, r->w->comm));
    r->mine.place = all[r->w->rank];
    r->mine.n_cpus = r->w->n_cpus;
    r->mine.n_threads = r->q.n_threads;
    free(all);
    free(link);
    free(row);
}

/* ---- messages of the host ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, ascending);
    return x[n / 2];
}

/* Half the round trip to this rank; rank 0 pings one after the other. */
static void ping(struct preflight_run *r)
{
    MPI_Comm comm = r->w->comm;
    double seconds[PINGS];
    char byte = 0;
    for (int to = 1; to < r->w->n_ranks; to++) {
        for (int i = -2; i < PINGS && (r->w->rank == 0 || r->w->rank == to); i++) {
            int other = r->w->rank == 0 ? to : 0;
            double started = seconds_now();
            if (r->w->rank == 0)
                MPI_CHECK(MPI_Send(&byte, 1, MPI_BYTE, other, 0, comm));
            MPI_CHECK(MPI_Recv(&byte, 1, MPI_BYTE, other, 0, comm, MPI_STATUS_IGNORE));
            if (r->w->rank != 0)
                MPI_CHECK(MPI_Send(&byte, 1, MPI_BYTE, other, 0, comm));
            if (i >= 0)
                seconds[i] = (seconds_now() - started) / 2;
        }
        double half = r->w->rank == 0 ? median(seconds, PINGS) : 0;
        if (r->w->rank == 0)
            MPI_CHECK(MPI_Send(&half, 1, MPI_DOUBLE, to, 0, comm));
        if (r->w->rank == to)
            MPI_CHECK(MPI_Recv(&r->mine.ping, 1, MPI_DOUBLE, 0, 0, comm, MPI_STATUS_IGNORE));
    }
}

static void broadcast(struct preflight_run *r)
{
    char message[BROADCAST_BYTES] = {0};
    double seconds[BROADCASTS];
    for (int i = -5; i < BROADCASTS; i++) {
        int here = 1, heard = 0;
        MPI_CHECK(MPI_Barrier(r->w->comm));
        double started = seconds_now();
        MPI_CHECK(MPI_Bcast(message, BROADCAST_BYTES, MPI_BYTE, 0, r->w->comm));
        MPI_CHECK(MPI_Reduce(&here, &heard, 1, MPI_INT, MPI_SUM, 0, r->w->comm));
        if (i >= 0)
            seconds[i] = seconds_now() - started;
    }
    r->found.broadcast = median(seconds, BROADCASTS);
}

/* ---- sums ---- */

/* Seconds of one all-reduce of n elements by the slowest rank, `times` in a row. */
static double time_sums(struct preflight_run *r, struct comm *c, void *data, size_t n, int times)
{
    double slowest = 0;
    MPI_CHECK(MPI_Barrier(r->w->comm));
    double started = seconds_now();
    for (int i = 0; i < times; i++)
        comm_all_reduce(c, &r->q, data, n);
    r->ops->wait(&r->q);
    double mine = (seconds_now() - started) / times;
    MPI_CHECK(MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, r->w->comm));
    return slowest;
}

/* The GPU's clocks and throttle reasons are those under load, so they are read while it works. */
static void look_at_gpu(struct preflight_run *r, void *data, size_t bytes)
{
    struct nvml n;
    struct err missing = {0};
    struct weight all = {.data = data, .type = DTYPE_F32, .rows = 16, .cols = (int)(bytes / 64)};
    nvml_look(&(struct nvml){0}, &r->mine.gpu);
    if (r->ops->async == NULL)
        return;
    if (nvml_open(&n, NVML_LIBRARY, r->mine.place.id, &missing) != 0) {
        log_warn("%s: no clocks, temperatures and memory errors", missing.text);
        return;
    }
    for (int i = 0; i < BUSY_FILLS; i++)
        r->ops->fill_noise(&r->q, &all, (uint64_t)i, 0, 0);
    nvml_look(&n, &r->mine.gpu);
    r->ops->wait(&r->q);
    nvml_close(&n);
}

static void measure_sums(struct preflight_run *r, struct err *e)
{
    struct comm comm = {0};
    size_t n_sizes = r->ops->async != NULL ? N_SUMS : N_SUMS - 1, most = sum_bytes[n_sizes - 1],
           element = dtype_bytes(r->q.act);
    void *data = r->ops->alloc(&r->q, most);
    if (data == NULL)
        ERR(e, ERR_MEMORY, "%s", r->q.err.text);
    fatal_agree(r->w, e);
    look_at_gpu(r, data, most);
    if (r->w->n_ranks > 1) {
        (void)comm_open(&comm, r->w, r->ops, &r->q, 1, e);
        fatal_agree(r->w, e);
    }
    for (size_t i = 0; i < n_sizes && r->w->n_ranks > 1; i++) {
        (void)time_sums(r, &comm, data, sum_bytes[i] / element, 1); /* connections are made by the first */
        int times = (int)fmin(MAX_SUMS, SUM_SECONDS / time_sums(r, &comm, data, sum_bytes[i] / element, 1));
        times = times > 1 ? times : 1;
        MPI_CHECK(MPI_Bcast(&times, 1, MPI_INT, 0, r->w->comm));
        r->found.sum[r->found.n_sums++] =
            (struct preflight_sum){(double)sum_bytes[i], time_sums(r, &comm, data, sum_bytes[i] / element, times)};
    }
    comm_close(&comm);
    r->ops->free(&r->q, data);
    if (r->q.err.code != ERR_NONE)
        ERR(e, r->q.err.code, "%s", r->q.err.text);
    fatal_agree(r->w, e);
}

/* ---- files ---- */

static void read_files(struct preflight_run *r, struct err *e)
{
    struct model_config none = {0};
    struct file_rate f = {0};
    if (!r->wishes.files)
        return;
    (void)load_share_headers(&none, &r->checkpoint, r->w, e);
    MPI_CHECK(MPI_Barrier(r->w->comm));
    int threads = r->q.n_threads < FILE_THREADS ? r->q.n_threads : FILE_THREADS;
    (void)file_rate_measure(&f, &r->checkpoint, r->w->rank, r->w->n_ranks, FILE_BYTES, threads, FILE_SECONDS, e);
    checkpoint_close(&r->checkpoint);
    fatal_agree(r->w, e);
    r->mine.file_bytes = f.bytes;
    r->mine.file_cold_bytes = f.cold_bytes;
    r->mine.file_seconds = f.seconds;
}

/* ---- all of it ---- */

static int make_wishes(struct preflight_run *r, const struct run_options *o, bool wanted, struct err *e)
{
    struct preflight_wishes *s = &r->wishes;
    bool named = o->min_read_share >= 0 || o->max_broadcast_us >= 0 || o->min_file_rate >= 0 || o->accept_throttling ||
                 o->preflight_timeout >= 0;
    s->wanted = wanted;
    if (!s->wanted && named)
        return ERR(e, ERR_USAGE,
                   "--min-read-share, --max-broadcast-us, --min-file-rate, --accept-throttling and --preflight-timeout "
                   "belong to --preflight, which is not given");
    if (!s->wanted)
        return 0;
    s->limits =
        (struct preflight_limits){.read_share = o->min_read_share >= 0 ? o->min_read_share : MIN_READ_SHARE,
                                  .broadcast_us = o->max_broadcast_us >= 0 ? o->max_broadcast_us : MAX_BROADCAST_US,
                                  .file_rate = o->min_file_rate > 0 ? (double)o->min_file_rate : 0,
                                  .accept_throttle = o->accept_throttling};
    s->timeout = o->preflight_timeout >= 0 ? o->preflight_timeout : TIMEOUT;
    s->device = (int32_t)o->device;
    s->threads = (int32_t)o->threads;
    s->files = o->model != NULL && o->load_format != LOAD_DUMMY;
    if (o->min_file_rate > 0 && !s->files)
        return ERR(e, ERR_USAGE, "--min-file-rate needs --model DIR, whose files are read");
    if (device_check((enum device_choice)o->device, e) != 0)
        return -1;
    return s->files ? checkpoint_open(&r->checkpoint, o->model, e) : 0;
}

static void measure_node(struct preflight_run *r, struct err *e)
{
    struct read_limit limit;
    double started = seconds_now();
    (void)deadline_open(&r->deadline, r->w, "preflight", part_name, r->wishes.timeout, e);
    fatal_agree(r->w, e);
    begin_part(r, OPENING);
    /* 16-bit activations, as for most checkpoints. */
    (void)device_open(&r->ops, &r->q, (enum device_choice)r->wishes.device, DTYPE_BF16,
                      r->wishes.threads > 0 ? r->wishes.threads : r->w->n_threads, r->w, e);
    fatal_agree(r->w, e);
    begin_part(r, PLACES);
    find_places(r, e);
    begin_part(r, MESSAGES);
    ping(r);
    broadcast(r);
    begin_part(r, MEMORY);
    bool host = r->ops->shares_host_memory;
    read_limit_measure(&limit, r->w, r->ops, &r->q, HOST_READ_BYTES, host ? HOST_READ_BYTES : DEVICE_READ_BYTES,
                       READ_PASSES, e);
    r->mine.read_rate = limit.mine;
    r->found.read_together = limit.together;
    begin_part(r, SUMS);
    measure_sums(r, e);
    begin_part(r, FILES);
    read_files(r, e);
    begin_part(r, GATHERING);
    MPI_CHECK(MPI_Gather(&r->mine, sizeof r->mine, MPI_BYTE, r->found.rank, sizeof r->mine, MPI_BYTE, 0, r->w->comm));
    r->ops->close(&r->q);
    deadline_close(&r->deadline);
    r->found.n_ranks = r->w->n_ranks;
    r->found.device = r->ops->name;
    r->found.seconds = seconds_now() - started;
}

/* All ranks get rank 0's verdict, and a refused rank reports it itself: then its name is in front. */
static int share_verdict(struct preflight_run *r, struct preflight_problem *problem, struct err *e)
{
    int n = r->w->rank == 0 ? preflight_judge(&r->found, &r->wishes.limits, problem) : 0;
    MPI_CHECK(MPI_Bcast(&n, 1, MPI_INT, 0, r->w->comm));
    MPI_CHECK(MPI_Bcast(problem, n * (int)sizeof *problem, MPI_BYTE, 0, r->w->comm));
    for (int i = 0; i < n; i++)
        if (problem[i].refuses && problem[i].rank == r->w->rank)
            ERR(e, ERR_PREFLIGHT, "preflight: %s", problem[i].text);
    return n;
}

/* Problems that no fatal message will name. */
static void warn(const struct preflight_run *r, const struct preflight_problem *problem, int n)
{
    char text[400];
    int first = -1;
    for (int i = 0; i < n; i++)
        if (problem[i].refuses && (first < 0 || problem[i].rank < problem[first].rank))
            first = i;
    for (int i = 0; i < n; i++)
        if (i != first) {
            preflight_say(text, sizeof text, &r->found, &problem[i]);
            log_warn("preflight: %s", text);
        }
}

static void run_close(struct preflight_run *r)
{
    free(r->found.rank);
    free(r->found.link);
}

int preflight_run(struct world *w, const struct run_options *o, struct err *e)
{
    struct preflight_run r = {.w = w};
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    w->told = true; /* the table is in the report */
    if (w->rank == 0)
        (void)make_wishes(&r, o, true, e);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&r.wishes, sizeof r.wishes, MPI_BYTE, 0, w->comm));
    measure_node(&r, e);
    int n = share_verdict(&r, problem, e);
    if (w->rank == 0) {
        r.found.model = r.wishes.files ? o->model : NULL;
        (o->json ? preflight_json : preflight_table)(stdout, &r.found, problem, n);
        if (fflush(stdout) != 0 || ferror(stdout) != 0)
            ERR(e, ERR_IO, "standard output: cannot write");
    }
    fatal_agree(w, e);
    run_close(&r);
    return 0;
}

void preflight_start(struct world *w, const struct run_options *o, struct err *e)
{
    struct preflight_run r = {.w = w};
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    char text[400];
    if (w->rank == 0)
        (void)make_wishes(&r, o, o->preflight, e);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&r.wishes, sizeof r.wishes, MPI_BYTE, 0, w->comm));
    if (!r.wishes.wanted)
        return;
    measure_node(&r, e);
    int n = share_verdict(&r, problem, e);
    if (w->rank == 0) {
        preflight_line(text, sizeof text, &r.found);
        log_note("%s", text);
        warn(&r, problem, n);
    }
    fatal_agree(w, e);
    run_close(&r);
}
