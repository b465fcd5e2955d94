/* coordinator/tasks/histogram.c - see histogram.h. */
#include "coordinator/tasks/histogram.h"

#include <string.h>

const struct buckets buckets_first_token = {22, {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,  0.75,
                                                 1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160., 640., 2560.}};
const struct buckets buckets_token = {
    19, {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0}};
const struct buckets buckets_request = {21, {0.3,  0.5,  0.8,  1.0,  1.5,  2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                             30.0, 40.0, 50.0, 60.0, 120., 240.0, 480.0, 960.0, 1920.0, 7680.0}};
const struct buckets buckets_iteration = {13, {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}};
const struct buckets buckets_n = {5, {1, 2, 5, 10, 20}};

struct buckets buckets_up_to(int limit)
{
    static const double mantissa[] = {1, 2, 5};
    struct buckets b = {0, {0}};
    for (double ten = 1; b.n < HISTOGRAM_MAX; ten *= 10)
        for (int i = 0; i < 3 && b.n < HISTOGRAM_MAX; i++) {
            if (mantissa[i] * ten > limit)
                return b;
            b.bound[b.n++] = mantissa[i] * ten;
        }
    return b;
}

void histogram_add(struct histogram *h, double x)
{
    int i = 0;
    while (i < h->buckets->n && x > h->buckets->bound[i])
        i++;
    h->count[i]++;
    h->n++;
    h->sum += x;
}

void histogram_move(struct histogram *h, struct histogram *from)
{
    for (int i = 0; i <= h->buckets->n; i++)
        h->count[i] += from->count[i];
    h->n += from->n;
    h->sum += from->sum;
    memset(from->count, 0, sizeof from->count);
    from->n = 0;
    from->sum = 0;
}
