/* rank/bench.c - see bench.h. Loading is measured by the way when there is a checkpoint. The workloads: pp = one prompt of n tokens; tg = n tokens one by one (of each sequence of a
 * batch, from a context of any depth); latency = prompts in, outputs out, all of it. Each is warmed up once and repeated;
 * the median and the spread are shown. */
#include "rank/bench.h"
#include "base/clock.h"
#include "base/json.h"
#include "rank/device.h"
#include "rank/fatal.h"
#include "rank/instance.h"
#include "rank/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REPETITIONS 1001
#define STREAM_BYTES    ((size_t)512 << 20)

enum timed { TIME_PREFILL, TIME_DECODE, TIME_ALL };

/* What one measurement does: n_seqs prompts of n_prompt tokens, then n_steps decode steps of all of them. */
struct workload {
    enum timed timed;
    int n_seqs, n_prompt, n_steps;
};

/* Runs a workload as a client of the loop on rank 0. */
struct bench {
    struct workload work;
    int repetitions, vocab;
    struct limits limits;
    int repetition;    /* -1: warm-up */
    int64_t fed, done; /* progress of this repetition: prompt tokens, then decode steps; planned, and accepted */
    int64_t planned[ENGINE_FLIGHTS + 1]; /* `fed` after each of the steps under way; -1: it feeds nothing */
    double started, seconds[MAX_REPETITIONS];
};

static int64_t prompt_tokens(const struct workload *k)
{
    return (int64_t)k->n_seqs * k->n_prompt;
}

static void start_all(const struct bench *b, struct plan *p)
{
    int n_blocks = limits_blocks_per_slot(&b->limits);
    for (int s = 0; s < b->work.n_seqs; s++) {
        p->start[p->n_starts++] = (struct plan_start){
            .slot = s, .sampling = {.top_p = 1, .repetition_penalty = 1, .prompt_len = b->work.n_prompt}};
        for (int i = 0; i < n_blocks; i++)
            p->block[p->n_blocks++] = (struct plan_block){s, i, s * n_blocks + i};
    }
}

/* As much of the prompts as fits into a step. */
static void feed_prompts(struct bench *b, struct plan *p)
{
    int n_prompt = b->work.n_prompt;
    while (b->fed < prompt_tokens(&b->work) && p->n_tokens < b->limits.max_batch_tokens) {
        int seq = (int)(b->fed / n_prompt), pos = (int)(b->fed % n_prompt), left = n_prompt - pos;
        int room = b->limits.max_batch_tokens - p->n_tokens, n = left < room ? left : room, last = n == left;
        p->seq[p->n_seqs++] = (struct plan_seq){seq, n, pos, n_prompt, last, last};
        for (int i = 0; i < n; i++)
            p->token[p->n_tokens++] = (int32_t)((b->fed + i) * 7919 % b->vocab);
        b->fed += n;
    }
}

static void feed_decode(struct bench *b, struct plan *p)
{
    int pos = b->work.n_prompt + (int)(b->fed - prompt_tokens(&b->work));
    for (int s = 0; s < b->work.n_seqs; s++) {
        p->seq[p->n_seqs++] = (struct plan_seq){s, 1, pos, pos + 1, 1, 1};
        p->token[p->n_tokens++] = -1;
    }
    b->fed++;
}

static int next(void *context, struct plan *p, struct err *e)
{
    struct bench *b = context;
    int64_t prompts = prompt_tokens(&b->work);
    (void)e;
    if (b->repetition == b->repetitions) {
        p->kind = PLAN_STOP;
        return 0;
    }
    b->planned[p->step % (ENGINE_FLIGHTS + 1)] = -1;
    bool before_decode = b->work.timed == TIME_DECODE && b->fed == prompts;
    if (b->fed == prompts + b->work.n_steps || (before_decode && b->done < b->fed))
        return 0; /* a clock waits for the results of what is under way */
    if (before_decode || (b->work.timed != TIME_DECODE && b->fed == 0))
        b->started = seconds_now();
    if (b->fed == 0)
        start_all(b, p);
    if (b->fed < prompts)
        feed_prompts(b, p);
    else
        feed_decode(b, p);
    b->planned[p->step % (ENGINE_FLIGHTS + 1)] = b->fed;
    return 0;
}

static int accept_result(void *context, const struct step_result *result, struct err *e)
{
    struct bench *b = context;
    (void)e;
    int64_t fed = b->planned[result->step % (ENGINE_FLIGHTS + 1)];
    b->done = fed >= 0 ? fed : b->done;
    if (fed < prompt_tokens(&b->work) + b->work.n_steps)
        return 0;
    if (b->repetition >= 0)
        b->seconds[b->repetition] = seconds_now() - b->started;
    b->repetition++;
    b->fed = b->done = 0;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* {median, lowest, highest} seconds. */
static void spread(struct bench *b, double seconds[3])
{
    qsort(b->seconds, (size_t)b->repetitions, sizeof b->seconds[0], ascending);
    seconds[0] = b->seconds[b->repetitions / 2];
    seconds[1] = b->seconds[0];
    seconds[2] = b->seconds[b->repetitions - 1];
}

/* Bytes per second that all ranks read together: the best of five passes over memory that no cache holds. */
static double measure_read(struct world *w, const struct ops *ops, struct queue *q, struct err *e)
{
    double best = 0;
    size_t bytes = STREAM_BYTES;
    for (int i = 0; i < 4 && ops->async != NULL && 4 * bytes <= ops->free_memory(q); i++)
        bytes *= 2; /* so much that no launch's latency shows */
    void *data = ops->alloc(q, bytes);
    if (data == NULL)
        ERR(e, ERR_MEMORY, "%s", q->err.text);
    fatal_agree(w, e);
    struct weight all = {data, DTYPE_F32, 16, (int)(bytes / 64)};
    ops->fill_noise(q, &all, 1, 0, 1);
    for (int i = 0; i < 5; i++) {
        MPI_CHECK(MPI_Barrier(w->comm));
        double started = seconds_now(), mine, slowest;
        volatile uint64_t sink = ops->read_stream(q, data, bytes);
        (void)sink;
        mine = seconds_now() - started;
        MPI_CHECK(MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, w->comm));
        double rate = (double)bytes * w->n_ranks / slowest;
        best = rate > best ? rate : best;
    }
    ops->free(q, data);
    return best;
}

static int open_model(const struct options *o, struct model_config *m, struct checkpoint *c, struct err *e)
{
    bool dummy = o->load_format == LOAD_DUMMY;
    size_t bytes = 0;
    if (device_check((enum device_choice)o->device, e) != 0)
        return -1;
    if ((o->model != NULL) == (o->config != NULL))
        return ERR(e, ERR_USAGE, "bench needs one of --model DIR and --config FILE");
    if (o->config != NULL && !dummy)
        return ERR(e, ERR_USAGE, "--config has no weights: add --load-format dummy");
    if (o->model != NULL)
        return model_config_read(m, o->model, e) == 0 && !dummy ? checkpoint_open(c, o->model, e)
                                                                : -(e->code != ERR_NONE);
    char *text = file_read(o->config, (size_t)4 << 20, &bytes, e);
    int rc = text == NULL ? -1 : model_config_parse(m, text, bytes, o->config, e);
    free(text);
    return rc;
}

/* What is measured, and in the same order the results. */
enum { PP, TG, LATENCY, N_WORKLOADS };

struct figures {
    struct workload work[N_WORKLOADS]; /* n_seqs == 0: not measured */
    double seconds[N_WORKLOADS][3];    /* median, lowest, highest */
    double read_rate;                  /* bytes/s of all ranks */
    double weight_bytes;               /* of all ranks: what one decode step reads */
    double ready_seconds;              /* from the command's start to weights and memory in place */
};

/* Tokens a workload is credited with. */
static double tokens_of(const struct workload *k)
{
    return k->timed == TIME_PREFILL ? (double)prompt_tokens(k) : (double)k->n_seqs * k->n_steps;
}

static double decode_share(const struct figures *f)
{
    return f->work[TG].n_steps / f->seconds[TG][0] * f->weight_bytes / f->read_rate;
}

static json_t *json_rates(const struct figures *f, int i)
{
    double n = tokens_of(&f->work[i]);
    return f->work[i].n_seqs == 0
               ? json_null()
               : json_pack("[f, f, f]", n / f->seconds[i][0], n / f->seconds[i][2], n / f->seconds[i][1]);
}

/* null: there was no checkpoint to load. */
static json_t *json_load(const struct load_report *r)
{
    if (r->bytes_read <= 0)
        return json_null();
    json_t *bus = r->bus_rate > 0 ? json_real(r->bus_rate) : json_null();
    json_t *share = r->bus_rate > 0 ? json_real(r->bus_share) : json_null();
    return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:f}", "bytes_read", r->bytes_read, "bytes_held", r->bytes_held,
                     "seconds", r->seconds, "slowest_device_bytes_per_second", r->device_rate,
                     "host_to_device_bytes_per_second", bus, "share_of_host_to_device", share,
                     "peak_host_bytes_per_rank", r->peak_host_bytes);
}

static void print_json(const struct world *w, const struct instance *i, const struct figures *f)
{
    const struct workload *k = &f->work[LATENCY];
    json_t *root = json_pack("{s:s, s:s, s:i, s:i, s:s, s:f, s:f, s:f}", "model_type", i->network.config.model_type,
                             "device", i->ops->name, "ranks", w->n_ranks, "threads_per_rank", i->q.n_threads, "dtype",
                             dtype_name(i->network.config.dtype), "weight_bytes", f->weight_bytes, "ready_seconds",
                             f->ready_seconds, "read_bytes_per_second", f->read_rate);
    (void)json_object_set_new(root, "load", json_load(&i->load));
    (void)json_object_set_new(root, "n_prompt", json_integer(f->work[PP].n_prompt));
    (void)json_object_set_new(root, "prefill_tokens_per_second", json_rates(f, PP));
    (void)json_object_set_new(root, "n_gen", json_integer(f->work[TG].n_steps));
    (void)json_object_set_new(root, "n_depth", json_integer(f->work[TG].n_prompt));
    (void)json_object_set_new(root, "batch", json_integer(f->work[TG].n_seqs));
    (void)json_object_set_new(root, "decode_tokens_per_second", json_rates(f, TG));
    (void)json_object_set_new(root, "decode_share_of_read_limit",
                              f->work[TG].n_seqs > 0 ? json_real(decode_share(f)) : json_null());
    if (k->n_seqs > 0)
        (void)json_object_set_new(root, "latency",
                                  json_pack("{s:i, s:i, s:i, s:[f, f, f]}", "batch", k->n_seqs, "input", k->n_prompt,
                                            "output", k->n_steps + 1, "milliseconds", 1e3 * f->seconds[LATENCY][0],
                                            1e3 * f->seconds[LATENCY][1], 1e3 * f->seconds[LATENCY][2]));
    (void)json_dumpf(root, stdout, JSON_INDENT(2));
    (void)putchar('\n');
    json_decref(root);
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
    printf("; at most %.2f GiB of host memory a rank\n", r->peak_host_bytes / (1 << 30));
}

static void print_table(const struct world *w, const struct instance *i, const struct figures *f)
{
    printf("%s on %s, %.2f GB of %s weights, %d rank%s x %d thread%s, ready in %.2f s\n", i->network.config.model_type,
           i->ops->name, f->weight_bytes / 1e9, dtype_name(i->network.config.dtype), w->n_ranks,
           w->n_ranks == 1 ? "" : "s", i->q.n_threads, i->q.n_threads == 1 ? "" : "s", f->ready_seconds);
    print_load(&i->load);
    if (f->work[PP].n_seqs > 0 || f->work[TG].n_seqs > 0)
        printf("%-20s %12s %23s   %s\n", "test", "tokens/s", "lowest .. highest", "");
    for (int k = PP; k <= TG; k++) {
        const struct workload *work = &f->work[k];
        const double *t = f->seconds[k];
        char name[64], note[64];
        double n = tokens_of(work);
        if (work->n_seqs == 0)
            continue;
        (void)snprintf(name, sizeof name, k == PP ? "pp%d" : "tg%d @ %d x %d", k == PP ? work->n_prompt : work->n_steps,
                       work->n_prompt, work->n_seqs);
        (void)snprintf(note, sizeof note, k == PP ? "%.1f ms" : "%.1f GB/s of weights, %.1f %% of the read limit",
                       k == PP ? 1e3 * t[0] : work->n_steps / t[0] * f->weight_bytes / 1e9, 100 * decode_share(f));
        printf("%-20s %12.2f %10.2f .. %9.2f   %s\n", name, n / t[0], n / t[2], n / t[1], note);
    }
    const struct workload *k = &f->work[LATENCY];
    if (k->n_seqs > 0)
        printf("latency %d:%d x %d: %.1f ms (%.1f .. %.1f)\n", k->n_prompt, k->n_steps + 1, k->n_seqs,
               1e3 * f->seconds[LATENCY][0], 1e3 * f->seconds[LATENCY][1], 1e3 * f->seconds[LATENCY][2]);
    printf("read limit %.1f GB/s, all ranks together, this run\n", f->read_rate / 1e9);
}

/* Weights that a decode step reads whole: all but the embedding table, of which one row is read (unless it is also the
 * head) and learned positions. */
static double decode_bytes(const struct network *n)
{
    double bytes = 0;
    for (int i = 0; i < n->map.n_slots; i++) {
        const struct weight_slot *slot = &n->map.slot[i];
        bool row_only = (slot->id == WEIGHT_EMBED && !n->config.tied_head) || slot->id == WEIGHT_POSITION;
        bytes += row_only ? 0 : (double)weight_slot_bytes(slot);
    }
    return bytes;
}

static void measure(struct engine *g, int repetitions, struct figures *f, struct err *e)
{
    for (int i = 0; i < N_WORKLOADS; i++) {
        struct bench b = {.work = f->work[i],
                          .repetitions = repetitions,
                          .repetition = -1,
                          .vocab = g->network->config.vocab,
                          .limits = g->limits};
        const struct loop_client client = {&b, next, accept_result};
        if (f->work[i].n_seqs == 0)
            continue;
        loop_run(g, &client, e);
        if (g->world->rank == 0)
            spread(&b, f->seconds[i]);
    }
}

/* The workloads of the options: pp and tg as llama-bench has them, latency as vLLM's `bench latency`. */
static int make_work(struct workload work[N_WORKLOADS], const struct options *o, struct err *e)
{
    int in = 0, out = 0, end = 0, batch = (int)o->batch, depth = (int)o->n_depth;
    if (o->latency != NULL && (sscanf(o->latency, "%9d:%9d%n", &in, &out, &end) != 2 || o->latency[end] != '\0' ||
                               in < 1 || out < 1 || in > 1 << 24 || out > 1 << 24))
        return ERR(e, ERR_USAGE, "--latency: found \"%.40s\", expected INPUT:OUTPUT tokens, e.g. 32:128", o->latency);
    if (o->n_prompt > 0)
        work[PP] = (struct workload){TIME_PREFILL, 1, (int)o->n_prompt, 0};
    if (o->n_gen > 0)
        work[TG] = (struct workload){TIME_DECODE, batch, depth, (int)o->n_gen};
    if (in > 0)
        work[LATENCY] = (struct workload){TIME_ALL, batch, in, out - 1};
    if (o->max_batch_tokens < o->batch)
        return ERR(e, ERR_USAGE, "--max-batch-tokens %lld is less than --batch %d", (long long)o->max_batch_tokens,
                   batch);
    if (o->n_prompt == 0 && o->n_gen == 0 && in == 0 && o->load_format == LOAD_DUMMY)
        return ERR(e, ERR_USAGE,
                   "nothing to measure: nothing is loaded, --n-prompt and --n-gen are 0 and --latency is not given");
    return 0;
}

/* Learned positions end; other models go on. */
static int check_positions(const struct workload *work, const struct model_config *m, struct err *e)
{
    for (int i = 0; i < N_WORKLOADS && m->positions_end; i++)
        if (work[i].n_seqs > 0 && (int64_t)work[i].n_prompt + work[i].n_steps > m->max_positions)
            return ERR(e, ERR_USAGE, "a measurement of %d + %d tokens: the model has %d positions", work[i].n_prompt,
                       work[i].n_steps, m->max_positions);
    return 0;
}

static struct instance_setup make_setup(const struct options *o, const struct workload *work)
{
    int64_t len = 1;
    for (int i = 0; i < N_WORKLOADS; i++)
        if (work[i].n_seqs > 0 && (int64_t)work[i].n_prompt + work[i].n_steps + 1 > len)
            len = (int64_t)work[i].n_prompt + work[i].n_steps + 1;
    int32_t batch = (int32_t)o->batch;
    struct instance_setup setup = {.limits = {batch, (int32_t)o->max_batch_tokens, (int32_t)len, batch, 0},
                                   .kv_bytes = o->kv_cache_bytes,
                                   .kv_whole = true,
                                   .threads = (int32_t)o->threads,
                                   .progress = (int32_t)o->progress,
                                   .device = (int32_t)o->device,
                                   .with_bus = true,
                                   .dummy = o->load_format == LOAD_DUMMY,
                                   .dummy_seed = 1};
    int64_t blocks = (int64_t)batch * limits_blocks_per_slot(&setup.limits);
    setup.limits.n_blocks = blocks < INT32_MAX ? (int32_t)blocks : INT32_MAX;
    return setup;
}

int bench_run(struct world *w, const struct options *o, struct err *e)
{
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance instance;
    struct figures f = {0};
    struct instance_setup setup = {0};
    double started = seconds_now();
    int repetitions = (int)o->repetitions;
    if (w->rank == 0 && make_work(f.work, o, e) == 0 && open_model(o, &m, &c, e) == 0 &&
        check_positions(f.work, &m, e) == 0)
        setup = make_setup(o, f.work);
    fatal_agree(w, e);
    MPI_CHECK(MPI_Bcast(f.work, sizeof f.work, MPI_BYTE, 0, w->comm));
    MPI_CHECK(MPI_Bcast(&repetitions, 1, MPI_INT, 0, w->comm));
    int wanted = setup.limits.n_blocks;
    instance_open(&instance, w, &m, &c, &setup, e);
    f.ready_seconds = seconds_now() - started;
    if (w->rank == 0 && setup.limits.n_blocks < wanted)
        ERR(e, ERR_MEMORY, "KV cache: %d blocks fit, %d are needed", setup.limits.n_blocks, wanted);
    fatal_agree(w, e);
    double mine = decode_bytes(&instance.network);
    MPI_CHECK(MPI_Allreduce(&mine, &f.weight_bytes, 1, MPI_DOUBLE, MPI_SUM, w->comm));
    f.read_rate = measure_read(w, instance.ops, &instance.q, e);
    measure(&instance.engine, repetitions, &f, e);
    if (w->rank == 0 && o->json)
        print_json(w, &instance, &f);
    else if (w->rank == 0)
        print_table(w, &instance, &f);
    if (w->rank == 0 && (fflush(stdout) != 0 || ferror(stdout) != 0))
        ERR(e, ERR_IO, "standard output: cannot write");
    fatal_agree(w, e);
    instance_close(&instance);
    return 0;
}
