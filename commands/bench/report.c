/* commands/bench/report.c - see report.h. */
#include "commands/bench/report.h"
#include "base/json.h"
#include "commands/bench/spread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH_FOR_PERCENTILES 10

static struct spread total_of(const struct figures *f, enum workload_kind kind)
{
    return spread_of(f->samples[kind].total, f->samples[kind].n);
}

/* n of something a repetition, per second. */
static struct spread rates_of(const struct figures *f, enum workload_kind kind, double n)
{
    double rate[WORKLOAD_MAX_REPETITIONS];
    const struct samples *s = &f->samples[kind];
    for (int i = 0; i < s->n; i++)
        rate[i] = n / s->total[i];
    return spread_of(rate, s->n);
}

/* The parts of the latency: up to the last first token, and from there. */
static struct spread prompts_of(const struct figures *f)
{
    double seconds[WORKLOAD_MAX_REPETITIONS];
    const struct samples *s = &f->samples[WORK_LATENCY];
    for (int i = 0; i < s->n; i++)
        seconds[i] = s->total[i] - s->decode[i];
    return spread_of(seconds, s->n);
}

static struct spread decode_of(const struct figures *f)
{
    return spread_of(f->samples[WORK_LATENCY].decode, f->samples[WORK_LATENCY].n);
}

/* Reading all weights once a step, as a share of what the memory can do. */
static double read_share(const struct figures *f, double steps, double seconds)
{
    return steps / seconds * f->weight_bytes / f->read_rate;
}

static double steps_a_repetition(const struct samples *s)
{
    return (double)s->n_steps / s->n;
}

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

/* Tokens that a workload's energy is for: of the prompt, or those that came out, of all repetitions. */
static double tokens_of(const struct figures *f, enum workload_kind kind)
{
    const struct workload *k = &f->work[kind];
    double once = kind == WORK_PP           ? k->n_prompt
                  : kind == WORK_TG         ? (double)k->n_seqs * k->n_steps
                  : kind == WORK_THROUGHPUT ? (double)k->n_requests * (k->n_steps + 1)
                                            : (double)k->n_seqs * (k->n_steps + 1);
    return once * f->samples[kind].n;
}

/* ---- table ---- */

static void print_rate(const char *name, const struct spread *rate, const char *note)
{
    printf("%-28s %12.2f %10.2f .. %10.2f   %s\n", name, rate->median, rate->lowest, rate->highest, note);
}

static void print_pp(const struct figures *f, const char *name)
{
    struct spread s = total_of(f, WORK_PP), rate = rates_of(f, WORK_PP, f->work[WORK_PP].n_prompt);
    char note[128];
    (void)snprintf(note, sizeof note, "mean %.2f +- %.2f, %.1f ms", rate.mean, rate.deviation, 1e3 * s.median);
    print_rate(name, &rate, note);
}

static void print_tg(const struct figures *f, const char *name)
{
    const struct workload *k = &f->work[WORK_TG];
    struct spread s = total_of(f, WORK_TG), rate = rates_of(f, WORK_TG, (double)k->n_seqs * k->n_steps);
    char note[160];
    (void)snprintf(note, sizeof note,
                   "mean %.2f +- %.2f, %.3f ms per step, %.1f GB/s of weights, %.1f %% of the read limit", rate.mean,
                   rate.deviation, 1e3 * s.median / k->n_steps, k->n_steps / s.median * f->weight_bytes / 1e9,
                   100 * read_share(f, k->n_steps, s.median));
    print_rate(name, &rate, note);
}

static void print_latency(const struct figures *f, const char *name)
{
    const struct workload *k = &f->work[WORK_LATENCY];
    struct spread s = total_of(f, WORK_LATENCY), p = prompts_of(f), d = decode_of(f);
    printf("%s: %.1f ms (%.1f .. %.1f), mean %.1f +- %.1f\n", name, 1e3 * s.median, 1e3 * s.lowest, 1e3 * s.highest,
           1e3 * s.mean, 1e3 * s.deviation);
    if (s.n >= ENOUGH_FOR_PERCENTILES) {
        printf("  ");
        for (size_t i = 0; i < SPREAD_N_PERCENTILES; i++)
            printf("p%d %.1f%s", spread_percentile[i], 1e3 * s.at[i], i + 1 < SPREAD_N_PERCENTILES ? ", " : " ms\n");
    }
    if (k->n_steps > 0)
        printf("  prompts %.1f ms, then %.3f ms per step, %.1f %% of the read limit\n", 1e3 * p.median,
               1e3 * d.median / k->n_steps, 100 * read_share(f, k->n_steps, d.median));
}

static int64_t accepted_drafts(const struct draft_counts *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_places; i++)
        n += c->n_accepted[i];
    return n;
}

static void print_drafts(const struct draft_counts *c)
{
    int64_t n = accepted_drafts(c);
    if (c->n_steps == 0)
        return;
    printf("  drafts: %lld of %lld accepted, %.2f tokens a step of a sequence; by place:", (long long)n,
           (long long)c->n_tokens, 1 + (double)n / (double)c->n_steps);
    for (int i = 0; i < c->n_places; i++)
        printf(" %.1f", 100 * (double)c->n_accepted[i] / (double)c->n_steps);
    printf(" %%\n");
}

static void print_throughput(const struct figures *f, const char *name)
{
    const struct workload *k = &f->work[WORK_THROUGHPUT];
    const struct samples *m = &f->samples[WORK_THROUGHPUT];
    struct spread s = total_of(f, WORK_THROUGHPUT);
    double steps = steps_a_repetition(m), out = k->n_steps + 1, all = out + k->n_prompt;
    printf("%s: %.3f s (%.3f .. %.3f), up to %d at once\n", name, s.median, s.lowest, s.highest, m->most_seqs);
    const double n[] = {k->n_requests, k->n_requests * out, k->n_requests * all};
    static const char *const what[] = {"  requests/s", "  output tokens/s", "  prompt and output tokens/s"};
    for (int i = 0; i < 3; i++) {
        struct spread rate = rates_of(f, WORK_THROUGHPUT, n[i]);
        print_rate(what[i], &rate, "");
    }
    printf("  %.0f steps, %.3f ms each, %.1f %% of the read limit\n", steps, 1e3 * s.median / steps,
           100 * read_share(f, steps, s.median));
    waits_print(&m->waits);
    if (k->n_shared > 0)
        printf("  %d of %d tokens shared: %.1f %% of all prompts' tokens came from the prefix cache\n", k->n_shared,
               k->n_prompt, 100 * f->cached);
    print_drafts(&f->drafts);
    if (f->n_late > 0)
        printf("  masks of the form during the step: %llu steps, of which the device waited for them in %llu\n",
               (unsigned long long)f->n_late, (unsigned long long)f->n_waited);
}

static double host_gap(const struct phases *p)
{
    double gap = p->wall;
    for (int i = 0; i < N_PHASES; i++)
        gap -= p->mean[i];
    return gap;
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
    printf("  %-26s %12.1f us %5.1f %%\n", "host gap", 1e6 * host_gap(p), 100 * host_gap(p) / p->wall);
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
            printf("  %.3f J per token on all devices\n", f->joules[k] / tokens_of(f, (enum workload_kind)k));
    }
    printf("read limit %.1f GB/s, all ranks together, this run\n", f->read_rate / 1e9);
    for (int k = 0; k < N_WORKLOADS; k++)
        for (int part = 0; part < N_PARTS; part++)
            print_phases(name[k], (enum phase_part)part, &f->phases[k][part], w->n_ranks);
}

/* ---- JSON ---- */

/* [median, lowest, highest] */
static json_t *json_times(const struct spread *s, double unit)
{
    return json_pack("[f, f, f]", unit * s->median, unit * s->lowest, unit * s->highest);
}

static json_t *json_rates(const struct figures *f, enum workload_kind kind, double n)
{
    struct spread rate = rates_of(f, kind, n);
    return json_times(&rate, 1);
}

/* [mean, standard deviation], which llama-bench shows */
static json_t *json_mean(const struct figures *f, enum workload_kind kind, double n)
{
    struct spread rate = rates_of(f, kind, n);
    return json_pack("[f, f]", rate.mean, rate.deviation);
}

static const char *const kind_name[N_WORKLOADS] = {"pp", "tg", "latency", "throughput"};

static void put_member(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

static void put_load(json_t *root, const struct load_report *r)
{
    if (r->bytes_read <= 0)
        return;
    json_t *load = json_pack("{s:f, s:f, s:f, s:f, s:f}", "bytes_read", r->bytes_read, "bytes_held", r->bytes_held,
                             "seconds", r->seconds, "slowest_device_bytes_per_second", r->device_rate,
                             "peak_host_bytes_per_rank", r->peak_host_bytes);
    json_t *parts = json_object();
    for (int i = 0; i < N_LOAD_PARTS; i++)
        put_member(parts, load_part_name((enum load_part)i), json_real(r->part[i]));
    put_member(load, "mean_seconds_of_a_rank", parts);
    put_member(load, "way", json_string(load_way_name(r)));
    put_member(load, "threads", json_integer(r->setup.n_threads));
    put_member(load, "slots", json_integer(r->setup.n_slots));
    put_member(load, "piece_bytes", json_integer(r->setup.piece_bytes));
    if (r->bus_rate > 0) {
        put_member(load, "host_to_device_bytes_per_second", json_real(r->bus_rate));
        put_member(load, "share_of_host_to_device", json_real(r->bus_share));
    }
    put_member(root, "load", load);
}

static void put_pp(json_t *root, const struct figures *f)
{
    struct spread s = total_of(f, WORK_PP);
    put_member(root, "prefill_tokens_per_second", json_rates(f, WORK_PP, f->work[WORK_PP].n_prompt));
    put_member(root, "prefill_mean_and_deviation", json_mean(f, WORK_PP, f->work[WORK_PP].n_prompt));
    put_member(root, "prefill_milliseconds", json_times(&s, 1e3));
}

static void put_tg(json_t *root, const struct figures *f)
{
    const struct workload *k = &f->work[WORK_TG];
    struct spread s = total_of(f, WORK_TG);
    put_member(root, "decode_tokens_per_second", json_rates(f, WORK_TG, (double)k->n_seqs * k->n_steps));
    put_member(root, "decode_mean_and_deviation", json_mean(f, WORK_TG, (double)k->n_seqs * k->n_steps));
    put_member(root, "decode_milliseconds_per_step", json_times(&s, 1e3 / k->n_steps));
    put_member(root, "decode_share_of_read_limit", json_real(read_share(f, k->n_steps, s.median)));
}

static json_t *json_percentiles(const struct spread *s)
{
    json_t *object = json_object();
    char name[16];
    for (size_t i = 0; i < SPREAD_N_PERCENTILES; i++) {
        (void)snprintf(name, sizeof name, "p%d", spread_percentile[i]);
        put_member(object, name, json_real(1e3 * s->at[i]));
    }
    return object;
}

static void put_latency(json_t *root, const struct figures *f)
{
    const struct workload *k = &f->work[WORK_LATENCY];
    struct spread s = total_of(f, WORK_LATENCY), p = prompts_of(f), d = decode_of(f);
    json_t *l = json_pack("{s:i, s:i, s:i, s:o, s:f, s:f}", "batch", k->n_seqs, "input", k->n_prompt, "output",
                          k->n_steps + 1, "milliseconds", json_times(&s, 1e3), "mean_milliseconds", 1e3 * s.mean,
                          "deviation_milliseconds", 1e3 * s.deviation);
    if (s.n >= ENOUGH_FOR_PERCENTILES)
        put_member(l, "percentiles_milliseconds", json_percentiles(&s));
    put_member(l, "prompts_milliseconds", json_times(&p, 1e3));
    if (k->n_steps > 0) {
        put_member(l, "decode_milliseconds_per_step", json_times(&d, 1e3 / k->n_steps));
        put_member(l, "decode_share_of_read_limit", json_real(read_share(f, k->n_steps, d.median)));
    }
    put_member(root, "latency", l);
}

/* The drafts of all runs; of those accepted, the number at each place. */
static json_t *json_drafts(const struct draft_counts *c)
{
    json_t *places = json_array();
    for (int i = 0; i < c->n_places; i++)
        (void)json_array_append_new(places, json_integer(c->n_accepted[i]));
    return json_pack("{s:I, s:I, s:I, s:o}", "steps", (json_int_t)c->n_steps, "tokens", (json_int_t)c->n_tokens,
                     "accepted", (json_int_t)accepted_drafts(c), "accepted_by_place", places);
}

static void put_throughput(json_t *root, const struct figures *f)
{
    const struct workload *k = &f->work[WORK_THROUGHPUT];
    const struct samples *m = &f->samples[WORK_THROUGHPUT];
    struct spread s = total_of(f, WORK_THROUGHPUT);
    double out = k->n_steps + 1, all = out + k->n_prompt, steps = steps_a_repetition(m);
    put_member(root, "throughput",
               json_pack("{s:i, s:i, s:i, s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:f}", "requests", k->n_requests, "input",
                         k->n_prompt, "output", k->n_steps + 1, "max_batch", k->n_seqs, "most_at_once", m->most_seqs,
                         "steps", steps, "seconds", json_times(&s, 1), "requests_per_second",
                         json_rates(f, WORK_THROUGHPUT, k->n_requests), "output_tokens_per_second",
                         json_rates(f, WORK_THROUGHPUT, k->n_requests * out), "total_tokens_per_second",
                         json_rates(f, WORK_THROUGHPUT, k->n_requests * all), "share_of_read_limit",
                         read_share(f, steps, s.median)));
    json_t *t = json_object_get(root, "throughput");
    put_member(t, "time_to_first_token_milliseconds", waits_json(&m->waits.first_token));
    put_member(t, "time_between_tokens_milliseconds", waits_json(&m->waits.between_tokens));
    if (k->n_shared > 0) {
        put_member(t, "shared_prefix", json_integer(k->n_shared));
        put_member(t, "share_of_prompts_cached", json_real(f->cached));
    }
    if (f->drafts.n_places > 0)
        put_member(t, "drafts", json_drafts(&f->drafts));
    if (f->n_late > 0)
        put_member(t, "late_masks",
                   json_pack("{s:I, s:I}", "steps", (json_int_t)f->n_late, "waited", (json_int_t)f->n_waited));
}

/* Microseconds: of phases [mean, lowest, highest over the ranks]. */
static json_t *json_phases(const struct phases *p)
{
    json_t *object = json_object();
    for (int i = 0; i < N_PHASES; i++)
        put_member(object, profile_phase_name((enum profile_phase)i),
                   json_pack("[f, f, f]", 1e6 * p->mean[i], 1e6 * p->lowest[i], 1e6 * p->highest[i]));
    put_member(object, "host gap", json_real(1e6 * host_gap(p)));
    put_member(object, "wall", json_real(1e6 * p->wall));
    return object;
}

/* Without a key where it is not known. */
static void put_energy(json_t *root, const struct figures *f)
{
    json_t *energy = json_object();
    for (int k = 0; k < N_WORKLOADS; k++)
        if (f->work[k].n_seqs > 0 && !isnan(f->joules[k]))
            put_member(energy, kind_name[k],
                       json_pack("{s:f, s:f}", "joules", f->joules[k], "joules_per_token",
                                 f->joules[k] / tokens_of(f, (enum workload_kind)k)));
    if (json_object_size(energy) > 0)
        put_member(root, "energy", energy);
    else
        json_decref(energy);
}

static void put_profile(json_t *root, const struct figures *f)
{
    static const char *const part_name[N_PARTS] = {"prompts", "decode_step", "step"};
    json_t *profile = json_object();
    for (int k = 0; k < N_WORKLOADS; k++)
        for (int part = 0; part < N_PARTS; part++) {
            json_t *parts = json_object_get(profile, kind_name[k]);
            if (f->phases[k][part].wall <= 0)
                continue;
            if (parts == NULL)
                put_member(profile, kind_name[k], parts = json_object());
            put_member(parts, part_name[part], json_phases(&f->phases[k][part]));
        }
    if (json_object_size(profile) > 0)
        put_member(root, "profile_microseconds", profile);
    else
        json_decref(profile);
}

static void put_step_times(json_t *root, const struct figures *f)
{
    json_t *times = json_object();
    for (int k = 0; k < N_WORKLOADS; k++)
        if (f->work[k].n_seqs > 0)
            put_member(times, kind_name[k], step_times_json(&f->samples[k].steps));
    put_member(root, "step_milliseconds", times);
}

static json_t *json_milliseconds(double seconds)
{
    return seconds > 0 ? json_real(1e3 * seconds) : json_null();
}

json_t *report_decode_steps(const struct decode_graph *decode, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, json_pack("{s:i, s:s, s:o, s:o}", "sequences", decode[i].n_tokens, "way",
                                                    decode[i].persistent ? "persistent" : "separate", "separate_ms",
                                                    json_milliseconds(decode[i].separate_seconds), "persistent_ms",
                                                    json_milliseconds(decode[i].persistent_seconds)));
    return list;
}

void report_json(const struct world *w, const struct instance *i, const struct figures *f)
{
    static void (*const add[N_WORKLOADS])(json_t *, const struct figures *) = {put_pp, put_tg, put_latency,
                                                                               put_throughput};
    json_t *root =
        json_pack("{s:s, s:s, s:i, s:i, s:s, s:f, s:f, s:i, s:i}", "model_type", i->network.config.model_type, "device",
                  i->ops->name, "ranks", w->n_ranks, "threads_per_rank", i->q.n_threads, "dtype",
                  dtype_name(i->network.config.dtype), "weight_bytes", f->weight_bytes, "read_bytes_per_second",
                  f->read_rate, "repetitions", f->repetitions, "warmup", f->warmups);
    put_member(root, "ready_seconds", f->ready_seconds >= 0 ? json_real(f->ready_seconds) : json_null());
    put_load(root, &i->load);
    put_member(root, "decode_step", report_decode_steps(i->engine.decode, i->engine.n_decode));
    put_member(root, "max_batch_tokens", json_integer(i->engine.limits.max_batch_tokens));
    put_member(root, "n_prompt", json_integer(f->work[WORK_PP].n_prompt));
    put_member(root, "n_gen", json_integer(f->work[WORK_TG].n_steps));
    put_member(root, "n_depth", json_integer(f->work[WORK_TG].n_prompt));
    put_member(root, "batch", json_integer(f->work[WORK_TG].n_seqs));
    for (int k = 0; k < N_WORKLOADS; k++)
        if (f->work[k].n_seqs > 0)
            add[k](root, f);
    if (f->step_times)
        put_step_times(root, f);
    put_energy(root, f);
    put_profile(root, f);
    (void)json_print(root, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(root);
}
