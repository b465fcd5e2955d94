/* commands/bench/figures.c - see figures.h. */
#include "commands/bench/figures.h"

struct spread figures_total(const struct figures *f, enum workload_kind kind)
{
    return spread_of(f->samples[kind].total, f->samples[kind].n);
}

struct spread figures_rates(const struct figures *f, enum workload_kind kind, double n)
{
    double rate[WORKLOAD_MAX_REPETITIONS];
    const struct repetitions *s = &f->samples[kind];
    for (int i = 0; i < s->n; i++)
        rate[i] = n / s->total[i];
    return spread_of(rate, s->n);
}

struct spread figures_prompts(const struct figures *f)
{
    double seconds[WORKLOAD_MAX_REPETITIONS];
    const struct repetitions *s = &f->samples[WORK_LATENCY];
    for (int i = 0; i < s->n; i++)
        seconds[i] = s->total[i] - s->decode[i];
    return spread_of(seconds, s->n);
}

struct spread figures_decode(const struct figures *f)
{
    return spread_of(f->samples[WORK_LATENCY].decode, f->samples[WORK_LATENCY].n);
}

double figures_read_share(const struct figures *f, double steps, double seconds)
{
    return steps / seconds * f->weight_bytes / f->read_rate;
}

double figures_steps(const struct repetitions *s)
{
    return (double)s->n_steps / s->n;
}

double figures_tokens(const struct figures *f, enum workload_kind kind)
{
    const struct workload *k = &f->work[kind];
    double once = kind == WORK_PP           ? k->n_prompt
                  : kind == WORK_TG         ? (double)k->n_seqs * k->n_steps
                  : kind == WORK_THROUGHPUT ? (double)k->n_requests * (k->n_steps + 1)
                                            : (double)k->n_seqs * (k->n_steps + 1);
    return once * f->samples[kind].n;
}

double figures_host_gap(const struct phases *p)
{
    double gap = p->wall;
    for (int i = 0; i < N_PHASES; i++)
        gap -= p->mean[i];
    return gap;
}
