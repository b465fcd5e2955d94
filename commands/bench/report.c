/* commands/bench/report.c - the table of report.h. */
#include "commands/bench/report.h"

#include <math.h>
#include <stdio.h>

static void workload_name(const struct workload *k, enum workload_kind kind, char *name, size_t bytes)
{
    if (kind == WORK_PP)
        (void)snprintf(name, bytes, "pp%d", k->n_prompt);
    else if (kind == WORK_TG)
        (void)snprintf(name, bytes, "tg%d @ %d x %d", k->n_steps, k->n_prompt, k->n_seqs);
    else if (kind == WORK_LATENCY)
        (void)snprintf(name, bytes, "latency %d:%d x %d", k->n_prompt, k->n_steps + 1, k->n_seqs);
    else
        (void)snprintf(name, bytes, "throughput %d:%d x %d", k->n_prompt, k->n_steps + 1, k->n_requests);
}

static void print_rate(const char *name, const struct spread *rate, const char *note)
{
    printf("%-28s %12.2f %10.2f .. %10.2f   %s\n", name, rate->median, rate->lowest, rate->highest, note);
}

static void print_pp(const struct figures *f, const char *name)
{
    struct spread s = figures_total(f, WORK_PP), rate = figures_rates(f, WORK_PP, f->work[WORK_PP].n_prompt);
    char note[128];
    (void)snprintf(note, sizeof note, "mean %.2f +- %.2f, %.1f ms", rate.mean, rate.deviation, 1e3 * s.median);
    print_rate(name, &rate, note);
}

static void print_tg(const struct figures *f, const char *name)
{
    const struct workload *k = &f->work[WORK_TG];
    struct spread s = figures_total(f, WORK_TG), rate = figures_rates(f, WORK_TG, (double)k->n_seqs * k->n_steps);
    char note[160];
    (void)snprintf(note, sizeof note,
                   "mean %.2f +- %.2f, %.3f ms per step, %.1f GB/s of weights, %.1f %% of the read limit", rate.mean,
                   rate.deviation, 1e3 * s.median / k->n_steps, k->n_steps / s.median * f->weight_bytes / 1e9,
                   100 * figures_read_share(f, k->n_steps, s.median));
    print_rate(name, &rate, note);
}

static void print_latency(const struct figures *f, const char *name)
{
    const struct workload *k = &f->work[WORK_LATENCY];
    struct spread s = figures_total(f, WORK_LATENCY), p = figures_prompts(f), d = figures_decode(f);
    printf("%s: %.1f ms (%.1f .. %.1f), mean %.1f +- %.1f\n", name, 1e3 * s.median, 1e3 * s.lowest, 1e3 * s.highest,
           1e3 * s.mean, 1e3 * s.deviation);
    if (s.n >= FIGURES_ENOUGH_FOR_PERCENTILES) {
        printf("  ");
        for (size_t i = 0; i < SPREAD_N_PERCENTILES; i++)
            printf("p%d %.1f%s", spread_percentile[i], 1e3 * s.at[i], i + 1 < SPREAD_N_PERCENTILES ? ", " : " ms\n");
    }
    if (k->n_steps > 0)
        printf("  prompts %.1f ms, then %.3f ms per step, %.1f %% of the read limit\n", 1e3 * p.median,
               1e3 * d.median / k->n_steps, 100 * figures_read_share(f, k->n_steps, d.median));
}

static void print_drafts(const struct draft_counts *c)
{
    int64_t n = draft_counts_accepted(c);
    if (c->n_steps == 0)
        return;
    printf("  drafts: %lld of %lld accepted, %.2f tokens per step of a sequence; by position:", (long long)n,
           (long long)c->n_tokens, 1 + (double)n / (double)c->n_steps);
    for (int i = 0; i < c->n_places; i++)
        printf(" %.1f", 100 * (double)c->n_accepted[i] / (double)c->n_steps);
    printf(" %%\n");
}

static void print_throughput(const struct figures *f, const char *name)
{
    const struct workload *k = &f->work[WORK_THROUGHPUT];
    const struct repetitions *m = &f->samples[WORK_THROUGHPUT];
    struct spread s = figures_total(f, WORK_THROUGHPUT);
    double steps = figures_steps(m), out = k->n_steps + 1, all = out + k->n_prompt;
    printf("%s: %.3f s (%.3f .. %.3f), up to %d at once\n", name, s.median, s.lowest, s.highest, m->most_seqs);
    const double n[] = {k->n_requests, k->n_requests * out, k->n_requests * all};
    static const char *const what[] = {"  requests/s", "  output tokens/s", "  prompt and output tokens/s"};
    for (int i = 0; i < 3; i++) {
        struct spread rate = figures_rates(f, WORK_THROUGHPUT, n[i]);
        print_rate(what[i], &rate, "");
    }
    printf("  %.0f steps, %.3f ms each, %.1f %% of the read limit\n", steps, 1e3 * s.median / steps,
           100 * figures_read_share(f, steps, s.median));
    waits_print(&m->waits);
    if (k->n_shared > 0)
        printf("  %d of %d tokens shared: %.1f %% of all prompts' tokens came from the prefix cache\n", k->n_shared,
               k->n_prompt, 100 * f->cached);
    print_drafts(&f->drafts);
    if (f->n_late > 0)
        printf("  masks of the form during the step: %llu steps, of which the device waited for them in %llu\n",
               (unsigned long long)f->n_late, (unsigned long long)f->n_waited);
}

static void print_phases(const char *name, enum phase_part part, const struct phases *p, int n_ranks)
{
    static const char *const what[N_PARTS] = {"all prompts", "a decode step", "a step"};
    if (p->wall <= 0)
        return;
    printf("profile of %s, %s: %.1f us with clocks between the phases\n", name, what[part], 1e6 * p->wall);
    for (int i = 0; i < N_PHASES; i++) {
        printf("  %-26s %12.1f us %5.1f %%", profile_phase_name((enum profile_phase)i), 1e6 * p->mean[i],
               100 * p->mean[i] / p->wall);
        if (n_ranks > 1)
            printf("   ranks %.1f .. %.1f", 1e6 * p->lowest[i], 1e6 * p->highest[i]);
        (void)putchar('\n');
    }
    printf("  %-26s %12.1f us %5.1f %%\n", "host gap", 1e6 * figures_host_gap(p), 100 * figures_host_gap(p) / p->wall);
}

static void print_load(const struct load_report *r)
{
    if (r->bytes_read <= 0)
        return;
    printf("load %.2f GB in %.2f s: %.1f GB/s together, %.1f GB/s on the slowest device", r->bytes_read / 1e9,
           r->seconds, r->bytes_read / 1e9 / r->seconds, r->device_rate / 1e9);
    if (r->bus_rate > 0)
        printf(", %.0f %% of the %.1f GB/s from pinned memory, all ranks at once", 100 * r->bus_share,
               r->bus_rate / 1e9);
    printf("; at most %.2f GiB of host memory per rank\n", r->peak_host_bytes / (1 << 30));
}

static void print_head(const struct figures *f)
{
    bool any = false;
    for (int k = 0; k < N_WORKLOADS; k++)
        any = any || f->work[k].n_seqs > 0;
    if (any)
        printf("%-28s %12s %24s   median of %d after %d warm-up%s\n", "test", "tokens/s", "lowest .. highest",
               f->repetitions, f->warmups, f->warmups == 1 ? "" : "s");
}

void report_table(const struct world *w, const struct instance *i, const struct figures *f)
{
    static void (*const print[N_WORKLOADS])(const struct figures *, const char *) = {print_pp, print_tg, print_latency,
                                                                                     print_throughput};
    char name[N_WORKLOADS][80];
    char quantised[140];
    quantization_describe(&i->network.config.quantization, quantised, sizeof quantised);
    printf("%s on %s, %.2f GB of %s weights%s, %d rank%s x %d thread%s", i->network.config.model_type, i->ops->name,
           f->weight_bytes / 1e9,
           i->network.config.quantization.format != FORMAT_NONE ? quantised : dtype_name(i->network.config.dtype),
           i->network.config.experts.routing.n_experts > 0 ? " a decode step, experts chosen equally often" : "",
           w->n_ranks, w->n_ranks == 1 ? "" : "s", i->q.n_threads, i->q.n_threads == 1 ? "" : "s");
    if (f->ready_seconds >= 0)
        printf(", ready %.2f s after exec", f->ready_seconds);
    (void)putchar('\n');
    print_load(&i->load);
    print_head(f);
    for (int k = 0; k < N_WORKLOADS; k++) {
        workload_name(&f->work[k], (enum workload_kind)k, name[k], sizeof name[k]);
        if (f->work[k].n_seqs == 0)
            continue;
        print[k](f, name[k]);
        if (f->step_times)
            step_times_print(&f->samples[k].steps);
        if (!isnan(f->joules[k]))
            printf("  %.3f J per token on all devices\n", f->joules[k] / figures_tokens(f, (enum workload_kind)k));
    }
    printf("read limit %.1f GB/s, all ranks together, this run\n", f->read_rate / 1e9);
    for (int k = 0; k < N_WORKLOADS; k++)
        for (int part = 0; part < N_PARTS; part++)
            print_phases(name[k], (enum phase_part)part, &f->phases[k][part], w->n_ranks);
}
