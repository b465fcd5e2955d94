/* client/bench_figures.c - see bench_figures.h. */
#include "client/bench_figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int bench_times_add(struct bench_times *t, double now, struct err *e)
{
    if (t->n_events == t->capacity) {
        int64_t capacity = t->capacity > 0 ? 2 * t->capacity : 64;
        double *grown = realloc(t->event, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return ERR(e, ERR_MEMORY, "out of host memory: times of %lld events", (long long)capacity);
        t->event = grown;
        t->capacity = capacity;
    }
    t->event[t->n_events++] = now;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(const double *value, int64_t n, double q)
{
    if (n == 0)
        return 0;
    double at = q * (double)(n - 1);
    int64_t low = (int64_t)floor(at), high = low + 1 < n ? low + 1 : low;
    return value[low] + (at - (double)low) * (value[high] - value[low]);
}

/* value: [n] seconds; it is sorted. */
static struct bench_spread spread_of(double *value, int64_t n)
{
    struct bench_spread s = {0};
    double sum = 0, squares = 0;
    if (n == 0)
        return s;
    qsort(value, (size_t)n, sizeof *value, ascending);
    for (int64_t i = 0; i < n; i++)
        sum += value[i];
    s.mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (value[i] - s.mean) * (value[i] - s.mean);
    s.deviation = 1000 * sqrt(squares / (double)n);
    s.mean *= 1000;
    s.p50 = 1000 * bench_percentile(value, n, 0.5);
    s.p90 = 1000 * bench_percentile(value, n, 0.9);
    s.p99 = 1000 * bench_percentile(value, n, 0.99);
    return s;
}

static bool counts(const struct bench_times *t)
{
    return t->succeeded && t->n_events > 0;
}

static double end_of(const struct bench_times *t)
{
    return t->event[t->n_events - 1];
}

/* Events of all requests in the best whole second, counted from when the first one was sent. bin: [n_bins] zeros. */
static double peak_rate(const struct bench_times *t, int64_t n, double from, int64_t *bin, int64_t n_bins)
{
    int64_t peak = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; counts(&t[i]) && k < t[i].n_events; k++) {
            int64_t second = (int64_t)(t[i].event[k] - from);
            if (second >= 0 && second < n_bins && ++bin[second] > peak)
                peak = bin[second];
        }
    return (double)peak;
}

/* Most requests between sending and last event at a time. start, end: [n], sorted here. */
static int64_t peak_concurrency(double *start, double *end, int64_t n)
{
    int64_t open = 0, peak = 0;
    qsort(start, (size_t)n, sizeof *start, ascending);
    qsort(end, (size_t)n, sizeof *end, ascending);
    for (int64_t i = 0, k = 0; i < n; i++) {
        for (; k < n && end[k] <= start[i]; k++)
            open--;
        open++;
        peak = open > peak ? open : peak;
    }
    return peak;
}

static void peaks(struct bench_figures *f, const struct bench_times *t, int64_t n, double *start, double *end,
                  struct err *e)
{
    int64_t k = 0;
    double from = INFINITY, to = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!counts(&t[i]))
            continue;
        start[k] = t[i].sent;
        end[k++] = end_of(&t[i]);
        from = fmin(from, t[i].sent);
        to = fmax(to, end_of(&t[i]));
    }
    int64_t n_bins = k > 0 ? (int64_t)ceil(to - from) + 1 : 1;
    int64_t *bin = err_calloc(e, (size_t)n_bins, sizeof *bin, "seconds of a bench");
    f->peak_concurrent = peak_concurrency(start, end, k);
    if (bin != NULL)
        f->peak_output_per_s = peak_rate(t, n, from, bin, n_bins);
    free(bin);
}

static void latencies(struct bench_figures *f, const struct bench_times *t, int64_t n, double *value)
{
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++)
        if (counts(&t[i]))
            value[k++] = t[i].event[0] - t[i].sent;
    f->ttft = spread_of(value, k);
    k = 0;
    for (int64_t i = 0; i < n; i++)
        if (counts(&t[i]))
            value[k++] = end_of(&t[i]) - t[i].sent;
    f->e2el = spread_of(value, k);
    k = 0;
    for (int64_t i = 0; i < n; i++)
        if (counts(&t[i]) && t[i].n_output > 1)
            value[k++] = (end_of(&t[i]) - t[i].event[0]) / (double)(t[i].n_output - 1);
    f->tpot = spread_of(value, k);
    k = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 1; counts(&t[i]) && j < t[i].n_events; j++)
            value[k++] = t[i].event[j] - t[i].event[j - 1];
    f->itl = spread_of(value, k);
}

int bench_figures(struct bench_figures *f, const struct bench_times *t, int64_t n, double seconds, struct err *e)
{
    size_t n_values = (size_t)n;
    memset(f, 0, sizeof *f);
    f->seconds = seconds;
    for (int64_t i = 0; i < n; i++) {
        n_values += (size_t)t[i].n_events;
        f->completed += counts(&t[i]);
        f->total_input += counts(&t[i]) ? t[i].n_input : 0;
        f->total_output += counts(&t[i]) ? t[i].n_output : 0;
    }
    f->failed = n - f->completed;
    f->requests_per_s = (double)f->completed / seconds;
    f->output_per_s = (double)f->total_output / seconds;
    f->tokens_per_s = (double)(f->total_input + f->total_output) / seconds;
    double *value = err_calloc(e, n_values, sizeof *value, "latencies");
    double *end = err_calloc(e, (size_t)n, sizeof *end, "ends");
    if (value != NULL && end != NULL) {
        peaks(f, t, n, value, end, e);
        latencies(f, t, n, value);
    }
    free(value);
    free(end);
    return e->code == ERR_NONE ? 0 : -1;
}
