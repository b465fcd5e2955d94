/* commands/preflight/judge.c - the judgement of a preflight: see report.h. */
#include "commands/preflight/report.h"

#include <stdarg.h>
#include <string.h>

struct verdict {
    struct preflight_problem *problem;
    int n, n_left_out;
};

/* The entry for the next problem. A problem that refuses replaces one that is only reported; NULL: no entry is left. */
static struct preflight_problem *next_problem(struct verdict *v, bool refuses)
{
    if (v->n < PREFLIGHT_MAX_PROBLEMS)
        return &v->problem[v->n++];
    v->n_left_out++;
    for (int i = v->n - 1; refuses && i >= 0; i--)
        if (!v->problem[i].refuses)
            return &v->problem[i];
    return NULL;
}

__attribute__((format(printf, 4, 5))) static void add(struct verdict *v, int rank, bool refuses, const char *format,
                                                      ...)
{
    va_list args;
    struct preflight_problem *p = next_problem(v, refuses);
    if (p == NULL)
        return;
    *p = (struct preflight_problem){.rank = rank, .refuses = refuses};
    va_start(args, format);
    (void)vsnprintf(p->text, sizeof p->text, format, args);
    va_end(args);
}

static bool same_host(const struct preflight *p, int a, int b)
{
    return strcmp(p->rank[a].place.host, p->rank[b].place.host) == 0;
}

static bool first_of_host(const struct preflight *p, int rank)
{
    int first = 0;
    while (!same_host(p, first, rank))
        first++;
    return first == rank;
}

/* The read rate on which a rank is judged: its GPU's, or on CPUs the mean of the host's ranks, which share its
 * memory. */
static double read_rate(const struct preflight *p, int rank)
{
    double sum = 0;
    int n = 0;
    if (p->rank[rank].place.id[0] != '\0')
        return p->rank[rank].read_rate;
    for (int r = 0; r < p->n_ranks; r++)
        if (same_host(p, r, rank)) {
            sum += p->rank[r].read_rate;
            n++;
        }
    return sum / n;
}

static void judge_read(struct verdict *v, const struct preflight *p, const struct preflight_limits *l)
{
    int best = 0;
    for (int r = 1; r < p->n_ranks; r++)
        best = read_rate(p, r) > read_rate(p, best) ? r : best;
    double most = read_rate(p, best);
    for (int r = 0; r < p->n_ranks; r++)
        if (read_rate(p, r) < l->read_share * most && (p->rank[r].place.id[0] != '\0' || first_of_host(p, r)))
            add(v, r, true,
                "its memory is read at %.1f GB/s, %.0f %% of the %.1f GB/s of rank %d on %s: at least %.0f %% are "
                "required (--min-read-share)",
                read_rate(p, r) / 1e9, 100 * read_rate(p, r) / most, most / 1e9, best, p->rank[best].place.host,
                100 * l->read_share);
}

static void judge_gpu(struct verdict *v, const struct preflight *p, const struct preflight_limits *l, int r)
{
    const struct nvml_state *s = &p->rank[r].gpu;
    char why[120];
    if (s->reasons > 0 && (s->reasons & NVML_BAD_REASONS) != 0) {
        nvml_reasons(why, sizeof why, s->reasons & NVML_BAD_REASONS);
        add(v, r, !l->accept_throttle, "its GPU's clocks are slowed (%s) at %d MHz of %d, %d C (--accept-throttling)",
            why, s->sm_mhz, s->max_sm_mhz, s->celsius);
    }
    if (s->remap_failed == 1)
        add(v, r, true, "a bad row of its GPU's memory could not be remapped: the GPU should be replaced");
    if (s->remap_pending == 1)
        add(v, r, false, "a bad row of its GPU's memory is remapped at the next reset of the GPU");
    if (s->uncorrected_errors > 0)
        add(v, r, false, "its GPU's memory had %lld uncorrected errors since the driver was loaded",
            (long long)s->uncorrected_errors);
}

/* The rank with the longest ping. */
static void judge_broadcast(struct verdict *v, const struct preflight *p, const struct preflight_limits *l)
{
    int far = 0;
    for (int r = 1; r < p->n_ranks; r++)
        far = p->rank[r].ping > p->rank[far].ping ? r : far;
    if (l->broadcast_us > 0 && 1e6 * p->broadcast > l->broadcast_us)
        add(v, far, true,
            "a broadcast to all ranks takes %.0f us, at most %g are allowed (--max-broadcast-us); this rank has the "
            "longest ping, %.0f us",
            1e6 * p->broadcast, l->broadcast_us, 1e6 * p->rank[far].ping);
}

/* Per host: its ranks share the path to the files. */
static void judge_files(struct verdict *v, const struct preflight *p, const struct preflight_limits *l)
{
    for (int r = 0; r < p->n_ranks && l->file_rate > 0; r++) {
        double rate = 0;
        if (preflight_file_rate(p, r, &rate) && rate < l->file_rate)
            add(v, r, true, "its host reads the checkpoint at %.2f GB/s, at least %.2f are required (--min-file-rate)",
                rate / 1e9, l->file_rate / 1e9);
    }
}

bool preflight_file_rate(const struct preflight *p, int first, double *rate)
{
    double bytes = 0, seconds = 0;
    for (int r = 0; r < p->n_ranks; r++) {
        if (!same_host(p, r, first))
            continue;
        if (r < first)
            return false; /* reported with the host's first rank */
        bytes += p->rank[r].file_bytes;
        seconds = p->rank[r].file_seconds > seconds ? p->rank[r].file_seconds : seconds;
    }
    *rate = seconds > 0 ? bytes / seconds : 0;
    return bytes > 0;
}

/* Appended to the last text, which is truncated if need be. */
static void say_left_out(struct verdict *v)
{
    char more[40];
    if (v->n_left_out == 0)
        return;
    struct preflight_problem *last = &v->problem[v->n - 1];
    size_t bytes = (size_t)snprintf(more, sizeof more, " (and %d more)", v->n_left_out);
    size_t used = strlen(last->text), most = sizeof last->text - 1 - bytes;
    memcpy(last->text + (used < most ? used : most), more, bytes + 1);
}

int preflight_judge(const struct preflight *p, const struct preflight_limits *l, struct preflight_problem *problem)
{
    struct verdict v = {problem, 0, 0};
    judge_read(&v, p, l);
    for (int r = 0; r < p->n_ranks; r++)
        judge_gpu(&v, p, l, r);
    judge_broadcast(&v, p, l);
    judge_files(&v, p, l);
    say_left_out(&v);
    return v.n;
}

void preflight_say(char *text, size_t bytes, const struct preflight *p, const struct preflight_problem *problem)
{
    (void)snprintf(text, bytes, "rank %d on %s: %s", problem->rank, p->rank[problem->rank].place.host, problem->text);
}
