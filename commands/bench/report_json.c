/* commands/bench/report_json.c - the JSON of report.h. */
#include "base/json.h"
#include "commands/bench/report.h"

#include <math.h>
#include <stdio.h>

/* [median, lowest, highest] */
static json_t *json_times(const struct spread *s, double unit)
{
    return json_pack("[f, f, f]", unit * s->median, unit * s->lowest, unit * s->highest);
}

static json_t *json_rates(const struct figures *f, enum workload_kind kind, double n)
{
    struct spread rate = figures_rates(f, kind, n);
    return json_times(&rate, 1);
}

/* [mean, standard deviation], as in llama-bench */
static json_t *json_mean(const struct figures *f, enum workload_kind kind, double n)
{
    struct spread rate = figures_rates(f, kind, n);
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
    struct spread s = figures_total(f, WORK_PP);
    put_member(root, "prefill_tokens_per_second", json_rates(f, WORK_PP, f->work[WORK_PP].n_prompt));
    put_member(root, "prefill_mean_and_deviation", json_mean(f, WORK_PP, f->work[WORK_PP].n_prompt));
    put_member(root, "prefill_milliseconds", json_times(&s, 1e3));
}

static void put_tg(json_t *root, const struct figures *f)
{
    const struct workload *k = &f->work[WORK_TG];
    struct spread s = figures_total(f, WORK_TG);
    put_member(root, "decode_tokens_per_second", json_rates(f, WORK_TG, (double)k->n_seqs * k->n_steps));
    put_member(root, "decode_mean_and_deviation", json_mean(f, WORK_TG, (double)k->n_seqs * k->n_steps));
    put_member(root, "decode_milliseconds_per_step", json_times(&s, 1e3 / k->n_steps));
    put_member(root, "decode_share_of_read_limit", json_real(figures_read_share(f, k->n_steps, s.median)));
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
    struct spread s = figures_total(f, WORK_LATENCY), p = figures_prompts(f), d = figures_decode(f);
    json_t *l = json_pack("{s:i, s:i, s:i, s:o, s:f, s:f}", "batch", k->n_seqs, "input", k->n_prompt, "output",
                          k->n_steps + 1, "milliseconds", json_times(&s, 1e3), "mean_milliseconds", 1e3 * s.mean,
                          "deviation_milliseconds", 1e3 * s.deviation);
    if (s.n >= FIGURES_ENOUGH_FOR_PERCENTILES)
        put_member(l, "percentiles_milliseconds", json_percentiles(&s));
    put_member(l, "prompts_milliseconds", json_times(&p, 1e3));
    if (k->n_steps > 0) {
        put_member(l, "decode_milliseconds_per_step", json_times(&d, 1e3 / k->n_steps));
        put_member(l, "decode_share_of_read_limit", json_real(figures_read_share(f, k->n_steps, d.median)));
    }
    put_member(root, "latency", l);
}

/* The drafts of all runs; the number accepted at each position. */
static json_t *json_drafts(const struct draft_counts *c)
{
    json_t *places = json_array();
    for (int i = 0; i < c->n_places; i++)
        (void)json_array_append_new(places, json_integer(c->n_accepted[i]));
    return json_pack("{s:I, s:I, s:I, s:o}", "steps", (json_int_t)c->n_steps, "tokens", (json_int_t)c->n_tokens,
                     "accepted", (json_int_t)draft_counts_accepted(c), "accepted_by_place", places);
}

static void put_throughput(json_t *root, const struct figures *f)
{
    const struct workload *k = &f->work[WORK_THROUGHPUT];
    const struct repetitions *m = &f->samples[WORK_THROUGHPUT];
    struct spread s = figures_total(f, WORK_THROUGHPUT);
    double out = k->n_steps + 1, all = out + k->n_prompt, steps = figures_steps(m);
    put_member(root, "throughput",
               json_pack("{s:i, s:i, s:i, s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:f}", "requests", k->n_requests, "input",
                         k->n_prompt, "output", k->n_steps + 1, "max_batch", k->n_seqs, "most_at_once", m->most_seqs,
                         "steps", steps, "seconds", json_times(&s, 1), "requests_per_second",
                         json_rates(f, WORK_THROUGHPUT, k->n_requests), "output_tokens_per_second",
                         json_rates(f, WORK_THROUGHPUT, k->n_requests * out), "total_tokens_per_second",
                         json_rates(f, WORK_THROUGHPUT, k->n_requests * all), "share_of_read_limit",
                         figures_read_share(f, steps, s.median)));
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
    put_member(object, "host gap", json_real(1e6 * figures_host_gap(p)));
    put_member(object, "wall", json_real(1e6 * p->wall));
    return object;
}

/* The key is omitted if the value is unknown. */
static void put_energy(json_t *root, const struct figures *f)
{
    json_t *energy = json_object();
    for (int k = 0; k < N_WORKLOADS; k++)
        if (f->work[k].n_seqs > 0 && !isnan(f->joules[k]))
            put_member(energy, kind_name[k],
                       json_pack("{s:f, s:f}", "joules", f->joules[k], "joules_per_token",
                                 f->joules[k] / figures_tokens(f, (enum workload_kind)k)));
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
