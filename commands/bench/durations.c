/* commands/bench/durations.c - see durations.h. */
#include "commands/bench/durations.h"

#include <math.h>

#define LEAST 1e-6 /* s, and below: the first bin */
#define RATIO 1.01

static int bin_of(double seconds)
{
    double bin = seconds > LEAST ? log(seconds / LEAST) / log(RATIO) : 0;
    return bin < DURATIONS_BINS - 1 ? (int)bin : DURATIONS_BINS - 1;
}

void durations_add(struct durations *h, double seconds)
{
    h->bin[bin_of(seconds)]++;
    h->n++;
    h->sum += seconds;
    h->highest = seconds > h->highest ? seconds : h->highest;
}

void durations_merge(struct durations *h, const struct durations *other)
{
    for (int i = 0; i < DURATIONS_BINS; i++)
        h->bin[i] += other->bin[i];
    h->n += other->n;
    h->sum += other->sum;
    h->highest = other->highest > h->highest ? other->highest : h->highest;
}

double durations_at(const struct durations *h, double share)
{
    double rank = ceil(share * (double)h->n);
    uint64_t wanted = rank > 1 ? (uint64_t)rank : 1, seen = 0;
    for (int i = 0; i < DURATIONS_BINS; i++) {
        seen += h->bin[i];
        if (seen >= wanted)
            return fmin(LEAST * pow(RATIO, i + 0.5), h->highest);
    }
    return h->highest;
}

double durations_mean(const struct durations *h)
{
    return h->n > 0 ? h->sum / (double)h->n : 0;
}
