/* commands/bench/bench.c - see bench.h: turns options into workloads and measures them in order. Loading is measured,
 * too, when there is a checkpoint. */
#include "commands/bench/bench.h"
#include "base/clock.h"
#include "commands/bench/profile.h"
#include "commands/bench/report.h"
#include "commands/bench/windows.h"
#include "commands/start/start.h"
#include "rank/instance/instance.h"
#include "rank/measure/energy.h"
#include "rank/measure/read_limit.h"
#include "rank/world/fatal.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAM_BYTES        ((size_t)512 << 20)
#define DEVICE_STREAM_BYTES ((size_t)8 << 30) /* large enough to hide launch latency */
#define STREAM_PASSES       5
#define MAX_TOKENS          (1 << 24)
#define DEFAULT_REPETITIONS 5
#define DEFAULT_WARMUPS     1
#define DEFAULT_PROMPTS     200
#define CLOCK_TICK          0.01 /* s, of seconds_since_exec */

/* The measurements, equal on all ranks. Flat: rank 0 broadcasts it. */
struct measurements {
    struct workload work[N_WORKLOADS];
    int32_t repetitions, warmups, profile;
    int64_t read_limit_bytes; /* negative: not given */
};

static int open_given(const struct bench_options *o, struct model_config *m, struct checkpoint *c, struct err *e)
{
    if ((o->run.model != NULL) == (o->config != NULL))
        return ERR(e, ERR_USAGE, "bench needs one of --model DIR and --config FILE");
    if (o->config != NULL && o->run.load_format != LOAD_DUMMY)
        return ERR(e, ERR_USAGE, "--config has no weights: add --load-format dummy");
    if (o->quantization != NULL && o->run.load_format != LOAD_DUMMY)
        return ERR(e, ERR_USAGE, "--quantization sets the format of random weights: add --load-format dummy");
    if (o->quantization != NULL && quantization_choose(&m->quantization, o->quantization, e) != 0)
        return -1; /* before opening, which replaces *m */
    if (start_open_model(&o->run, o->config, m, c, e) != 0)
        return -1;
    if (o->quantization != NULL && quantization_choose(&m->quantization, o->quantization, e) != 0)
        return -1;
    if (m->quantization.format == FORMAT_MXFP4 && m->experts.routing.n_experts == 0)
        return ERR(e, ERR_USAGE, "MXFP4 is a format of experts, and the model (%s) has none", m->model_type);
    return o->run.load_format == LOAD_DUMMY ? start_choose_inputs(&o->run, m, e) : 0;
}

/* "IN:OUT": two positive integers, and nothing else. */
static int read_pair(const char *option, const char *text, int32_t pair[2], struct err *e)
{
    const char *at = text;
    for (int i = 0; i < 2; i++) {
        char *end = NULL;
        long n = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (n < 1 || n > MAX_TOKENS || *end != (i == 0 ? ':' : '\0'))
            return ERR(e, ERR_USAGE, "%s: found \"%.40s\", expected IN:OUT, each from 1 to %d tokens, e.g. 32:128",
                       option, text, MAX_TOKENS);
        pair[i] = (int32_t)n;
        at = end + 1;
    }
    return 0;
}

/* Options that would not affect any measurement. */
static int check_unused(const struct bench_options *o, struct err *e)
{
    if (o->throughput == NULL && o->num_prompts >= 0)
        return ERR(e, ERR_USAGE, "--num-prompts belongs to --throughput, which is not given");
    if (o->throughput == NULL && o->max_batch >= 0)
        return ERR(e, ERR_USAGE, "--max-batch belongs to --throughput, which is not given (see --batch)");
    if (o->throughput == NULL && o->shared_prefix >= 0)
        return ERR(e, ERR_USAGE, "--shared-prefix belongs to --throughput, which is not given");
    if (o->throughput == NULL && o->run.max_step_ms > 0)
        return ERR(e, ERR_USAGE, "--max-step-ms belongs to --throughput, which is not given");
    if (o->throughput == NULL && (o->run.num_speculative_tokens > 0 || o->draft_acceptance >= 0))
        return ERR(e, ERR_USAGE,
                   "--num-speculative-tokens and --draft-acceptance belong to --throughput, which is not given");
    if (o->run.num_speculative_tokens <= 0 && o->run.draft_model != NULL)
        return ERR(e, ERR_USAGE, "--draft-model needs --num-speculative-tokens, which is not given");
    if (o->run.num_speculative_tokens <= 0 && o->draft_acceptance >= 0)
        return ERR(e, ERR_USAGE, "--draft-acceptance belongs to --num-speculative-tokens, which is not given");
    if (o->run.draft_model == NULL && o->drafts_rest != 0)
        return ERR(e, ERR_USAGE, "--speculative auto belongs to --draft-model, which is not given");
    if (o->json_schema != NULL && o->run.num_speculative_tokens > 0 &&
        (o->run.draft_model == NULL || o->draft_acceptance >= 0))
        return ERR(
            e, ERR_USAGE,
            "--json-schema: drafts with a simulated outcome do not follow a schema; give a --draft-model, and no "
            "--draft-acceptance");
    if (o->throughput == NULL && o->tokenizer != NULL)
        return ERR(e, ERR_USAGE, "--tokenizer belongs to --throughput, which is not given");
    if (o->tokenizer == NULL && o->json_schema != NULL)
        return ERR(e, ERR_USAGE, "--json-schema needs --tokenizer, which is not given");
    if (o->beside != NULL)
        return ERR(e, ERR_USAGE, "--beside needs --model-switch, which is not given");
    if (o->n_gen == 0 && o->latency == NULL && o->batch != 1)
        return ERR(e, ERR_USAGE, "--batch belongs to --n-gen and --latency, and neither is measured");
    if (o->n_gen == 0 && o->n_depth != 0)
        return ERR(e, ERR_USAGE, "--n-depth belongs to --n-gen, which is 0");
    if (o->run.load_format == LOAD_DUMMY && (o->run.load_way != LOAD_WAY_AUTO || o->run.load_threads > 0 ||
                                             o->run.load_slots > 0 || o->run.load_piece_bytes > 0))
        return ERR(e, ERR_USAGE,
                   "--load-way, --load-threads, --load-slots and --load-piece-bytes: nothing is loaded with "
                   "--load-format dummy");
    if (o->n_prompt != 0 || o->n_gen != 0 || o->latency != NULL || o->throughput != NULL)
        return 0;
    if (o->run.load_format == LOAD_DUMMY)
        return ERR(
            e, ERR_USAGE,
            "nothing to measure: nothing is loaded, --n-prompt and --n-gen are 0, --latency and --throughput are "
            "not given");
    if (o->profile || o->step_times)
        return ERR(e, ERR_USAGE,
                   "--%s belongs to --n-prompt, --n-gen, --latency and --throughput, and none is measured",
                   o->profile ? "profile" : "step-times");
    if (o->repetitions >= 0 || o->warmup >= 0)
        return ERR(e, ERR_USAGE, "--repetitions and --warmup: nothing but loading is measured, which happens once");
    return 0;
}

static int make_throughput(struct workload *k, const struct bench_options *o, struct err *e)
{
    int32_t shape[2] = {0};
    if (o->throughput == NULL)
        return 0;
    if (read_pair("--throughput", o->throughput, shape, e) != 0)
        return -1;
    int64_t n = o->num_prompts >= 0 ? o->num_prompts : DEFAULT_PROMPTS;
    int64_t most = o->max_batch >= 0 ? o->max_batch : o->run.usual_batch;
    if (most > o->run.max_batch_tokens)
        return ERR(e, ERR_USAGE, "--max-batch-tokens %lld is less than --max-batch %lld: each sequence needs one token",
                   (long long)o->run.max_batch_tokens, (long long)most);
    if (o->shared_prefix >= shape[0])
        return ERR(e, ERR_USAGE, "--shared-prefix %lld: found prompts of %d tokens, expected longer ones",
                   (long long)o->shared_prefix, shape[0]);
    *k = (struct workload){(int32_t)(most < n ? most : n), shape[0], shape[1] - 1, (int32_t)n,
                           o->shared_prefix > 0 ? (int32_t)o->shared_prefix : 0};
    return 0;
}

/* pp and tg as in llama-bench, latency and throughput as in vLLM's `bench latency` and `bench throughput`. */
static int make_measurements(struct measurements *wanted, const struct bench_options *o, struct err *e)
{
    int32_t batch = (int32_t)o->batch, shape[2] = {0};
    if (check_unused(o, e) != 0 || make_throughput(&wanted->work[WORK_THROUGHPUT], o, e) != 0)
        return -1;
    if (o->latency != NULL && read_pair("--latency", o->latency, shape, e) != 0)
        return -1;
    if (o->run.max_batch_tokens < o->batch)
        return ERR(e, ERR_USAGE, "--max-batch-tokens %lld is less than --batch %d: each sequence needs one token",
                   (long long)o->run.max_batch_tokens, batch);
    if (o->n_prompt > 0)
        wanted->work[WORK_PP] = (struct workload){1, (int32_t)o->n_prompt, 0, 0, 0};
    if (o->n_gen > 0)
        wanted->work[WORK_TG] = (struct workload){batch, (int32_t)o->n_depth, (int32_t)o->n_gen, 0, 0};
    if (o->latency != NULL)
        wanted->work[WORK_LATENCY] = (struct workload){batch, shape[0], shape[1] - 1, 0, 0};
    wanted->repetitions = o->repetitions >= 0 ? (int32_t)o->repetitions : DEFAULT_REPETITIONS;
    wanted->warmups = o->warmup >= 0 ? (int32_t)o->warmup : DEFAULT_WARMUPS;
    wanted->profile = o->profile;
    wanted->read_limit_bytes = o->read_limit_bytes;
    return 0;
}

/* Learned positions limit the length; other models have no limit. */
static int check_positions(const struct workload *work, const struct model_config *m, struct err *e)
{
    for (int i = 0; i < N_WORKLOADS && m->positions_end; i++)
        if (work[i].n_seqs > 0 && (int64_t)work[i].n_prompt + work[i].n_steps > m->max_positions)
            return ERR(e, ERR_USAGE, "a measurement of %d + %d tokens: the model has %d positions", work[i].n_prompt,
                       work[i].n_steps, m->max_positions);
    return 0;
}

static struct instance_setup setup_of(const struct bench_options *o, const struct workload *work)
{
    int64_t len = 1;
    int32_t seqs = 1;
    for (int i = 0; i < N_WORKLOADS; i++) {
        if (work[i].n_seqs > 0 && (int64_t)work[i].n_prompt + work[i].n_steps + 1 > len)
            len = (int64_t)work[i].n_prompt + work[i].n_steps + 1;
        seqs = work[i].n_seqs > seqs ? work[i].n_seqs : seqs;
    }
    struct instance_setup setup = start_setup(&o->run, seqs, (int)len, false);
    setup.kv_whole = work[WORK_THROUGHPUT].n_seqs == 0;
    setup.with_bus = true;
    setup.dummy_seed = 1;
    return setup;
}

/* All sequences of a batch start together; requests of --throughput queue for a slot. */
static int check_room(const struct workload *work, const struct limits *l, struct err *e)
{
    for (int i = 0; i < WORK_THROUGHPUT; i++) {
        int64_t needed = (int64_t)work[i].n_seqs * limits_blocks_per_slot(l);
        if (l->n_blocks < needed)
            return ERR(e, ERR_MEMORY, "KV cache: %d blocks fit, %lld are needed for %d sequences of %d tokens",
                       l->n_blocks, (long long)needed, work[i].n_seqs, l->max_len);
        needed = windows_needed(l, work[i].n_seqs);
        if (l->n_window_blocks < needed)
            return ERR(e, ERR_MEMORY, "KV cache: %d blocks of windows fit, %lld are needed for %d sequences",
                       l->n_window_blocks, (long long)needed, work[i].n_seqs);
    }
    return 0;
}

/* Rank 0. Negative if the system does not report it, or reports less than the time since the command's start. */
static double ready_after_exec(double started)
{
    double seconds = seconds_since_exec();
    return seconds >= seconds_now() - started - 2 * CLOCK_TICK ? seconds : -1;
}

/* The energy of all devices so far; NAN: a device does not report it, or reports only power, which is read too rarely
 * here to integrate. Collective. */
static double joules_of_all(struct energy *mine, const struct world *w)
{
    double joules = energy_is_integral(mine) ? NAN : energy_joules(mine), sum = 0;
    MPI_CHECK(MPI_Allreduce(&joules, &sum, 1, MPI_DOUBLE, MPI_SUM, w->comm));
    return sum;
}

static uint64_t count_runs(const struct engine *g, const struct measurements *wanted)
{
    uint64_t n = 0;
    for (int i = 0; i < N_WORKLOADS; i++)
        if (wanted->work[i].n_seqs > 0)
            n += (uint64_t)(wanted->warmups + wanted->repetitions) +
                 (wanted->profile ? (uint64_t)bench_profile_runs(g, (enum workload_kind)i, wanted->repetitions) : 0);
    return n;
}

/* Runs all requested measurements, then once more under the profiler, so that its clocks do not disturb the
 * measurements. */
static void measure_all(struct bench_rig *rig, const struct measurements *wanted, struct figures *f, struct err *e)
{
    struct engine *g = rig->engine;
    struct profile profile = {0};
    struct energy energy;
    energy_open(&energy, g->ops, g->q);
    for (int i = 0; i < N_WORKLOADS; i++) {
        struct repetitions *s = &f->samples[i];
        if (wanted->work[i].n_seqs == 0)
            continue;
        workload_run(rig, (enum workload_kind)i, &wanted->work[i], wanted->warmups, s, e);
        double before = joules_of_all(&energy, g->world);
        workload_run(rig, (enum workload_kind)i, &wanted->work[i], wanted->repetitions, s, e);
        f->joules[i] = joules_of_all(&energy, g->world) - before;
    }
    energy_close(&energy);
    if (!wanted->profile)
        return;
    (void)profile_open(&profile, g, e);
    fatal_agree(g->world, e);
    for (int i = 0; i < N_WORKLOADS; i++)
        if (wanted->work[i].n_seqs > 0)
            bench_profile(&profile, rig, (enum workload_kind)i, &wanted->work[i], wanted->repetitions, f->phases[i], e);
    profile_close(&profile);
}

static int open_traffic(struct traffic *t, const struct bench_options *o, const struct workload *k,
                        const struct instance *i, struct err *e)
{
    struct limits limits = i->engine.limits;
    if (k->n_seqs == 0)
        return 0;
    limits.max_seqs = k->n_seqs;
    t->drafts.most = o->run.num_speculative_tokens > 0 ? (int)o->run.num_speculative_tokens : 0;
    t->drafts.acceptance = o->draft_acceptance > 0 ? o->draft_acceptance : 0;
    t->drafts.rest = o->drafts_rest != 0;
    t->drafts.come_true = limits.draft_len > 0 && o->draft_acceptance < 0;
    t->n_shared = k->n_shared;
    t->max_step = run_max_step(&o->run);
    if (o->tokenizer != NULL && traffic_speak(t, o->tokenizer, o->json_schema, i->network.config.vocab, e) != 0)
        return -1;
    return traffic_open(t, k->n_requests, k->n_prompt, k->n_steps + 1, &limits, i->network.config.vocab, e);
}

/* The number of sequences in the measurements' decode steps: the batch of those that generate, or --throughput's
 * maximum. */
static int step_sequences(const struct measurements *wanted)
{
    static const enum workload_kind order[] = {WORK_TG, WORK_LATENCY, WORK_THROUGHPUT};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (wanted->work[order[i]].n_seqs > 0)
            return wanted->work[order[i]].n_seqs;
    return 1;
}

/* Returns the rate at which all ranks together read their memory. */
static double measure_read_rate(struct world *w, const struct instance *i, struct queue *q, int64_t bytes,
                                struct err *e)
{
    struct read_limit limit;
    size_t least = STREAM_BYTES, most = i->ops->async != NULL ? DEVICE_STREAM_BYTES : STREAM_BYTES;
    if (bytes >= 0)
        least = most = (size_t)bytes / 64 * 64;
    read_limit_measure(&limit, w, i->ops, q, least, most, STREAM_PASSES, e);
    return limit.together;
}

static void report(const struct bench_options *o, const struct instance *i, const struct figures *f, struct err *e)
{
    if (o->run.json)
        report_json(i->engine.world, i, f);
    else
        report_table(i->engine.world, i, f);
    if (fflush(stdout) != 0 || ferror(stdout) != 0)
        ERR(e, ERR_IO, "standard output: cannot write");
}

int bench_run(struct world *w, const struct bench_options *o, struct err *e)
{
    struct traffic traffic = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance instance;
    struct draft_model draft = {0};
    struct measurements wanted = {0};
    struct figures f = {0};
    struct instance_setup setup = {0};
    struct bench_rig rig = {
        .engine = &instance.engine, .instance = &instance, .draft_model = &draft, .traffic = &traffic};
    double started = seconds_now();
    if (w->rank == 0 && make_measurements(&wanted, o, e) == 0 && open_given(o, &m, &c, e) == 0 &&
        check_positions(wanted.work, &m, e) == 0) {
        setup = setup_of(o, wanted.work);
        (void)start_open_draft_model(&draft, &setup, &o->run, &m, e);
    }
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(&wanted, sizeof wanted, MPI_BYTE, 0, w->comm));
    instance_open_drafted(&instance, &draft, w, &m, &c, &setup, e);
    f.ready_seconds = ready_after_exec(started);
    if (w->rank == 0 && check_room(wanted.work, &setup.limits, e) == 0)
        (void)open_traffic(&traffic, o, &wanted.work[WORK_THROUGHPUT], &instance, e);
    fatal_agree(w, e);
    memcpy(f.work, wanted.work, sizeof f.work);
    f.repetitions = wanted.repetitions;
    f.warmups = wanted.warmups;
    f.step_times = o->step_times;
    double mine = weight_map_step_bytes(&instance.network.map, &instance.network.config, step_sequences(&wanted));
    MPI_CHECK(MPI_Allreduce(&mine, &f.weight_bytes, 1, MPI_DOUBLE, MPI_SUM, w->comm));
    f.read_rate = measure_read_rate(w, &instance, &instance.q, wanted.read_limit_bytes, e);
    if (w->rank == 0)
        progress_open(&rig.bar, (enum progress_mode)o->run.progress, "measuring", "runs",
                      count_runs(rig.engine, &wanted));
    progress_update(&rig.bar, 0, NULL);
    measure_all(&rig, &wanted, &f, e);
    progress_close(&rig.bar);
    traffic_drafts(&traffic, &f.drafts);
    f.cached = traffic_cached(&traffic);
    f.n_late = rig.engine->n_late;
    f.n_waited = rig.engine->n_waited;
    if (w->rank == 0)
        report(o, &instance, &f, e);
    fatal_agree(w, e);
    traffic_close(&traffic);
    instance_close(&draft.instance);
    instance_close(&instance);
    return 0;
}
