/* rank/bench.c - see bench.h. The workloads are llama-bench's: pp = one prompt of n tokens, tg = n tokens one by one from
 * an empty context; each is warmed up once and repeated; the median and the spread are shown. */
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

/* One kind of measurement, driven as a client of the loop on rank 0. */
struct bench {
    int n_prompt, n_gen, repetitions; /* n_gen == 0: prefill alone */
    int vocab;
    struct limits limits;
    int repetition, fed, done;       /* -1: warm-up; tokens fed in this repetition, and those whose step was accepted */
    int planned[ENGINE_FLIGHTS + 1]; /* `fed` after each of the steps under way; -1: it feeds nothing */
    double started, seconds[MAX_REPETITIONS];
};

static int next(void *context, struct plan *p, struct err *e)
{
    struct bench *b = context;
    int total = b->n_prompt + b->n_gen, left = b->n_prompt - b->fed;
    (void)e;
    if (b->repetition == b->repetitions) {
        p->kind = PLAN_STOP;
        return 0;
    }
    b->planned[p->step % (ENGINE_FLIGHTS + 1)] = -1;
    if (b->fed == total || (b->fed == b->n_prompt && b->done < b->fed))
        return 0; /* a clock waits for the results of what is under way */
    if (b->fed == 0) {
        p->start[p->n_starts++] =
            (struct plan_start){.sampling = {.top_p = 1, .repetition_penalty = 1, .prompt_len = b->n_prompt}};
        for (int i = 0; i < limits_blocks_per_slot(&b->limits); i++)
            p->block[p->n_blocks++] = (struct plan_block){0, i, i};
        if (b->n_gen == 0)
            b->started = seconds_now();
    } else if (b->fed == b->n_prompt) {
        b->started = seconds_now(); /* the decode steps alone are timed */
    }
    int n = left > 0 ? (left < b->limits.max_batch_tokens ? left : b->limits.max_batch_tokens) : 1;
    bool sample = left <= n && b->fed + n <= total;
    p->seq[p->n_seqs++] = (struct plan_seq){0, n, b->fed, left > 0 ? b->n_prompt : b->fed + 1, sample, sample};
    for (int i = 0; i < n; i++)
        p->token[p->n_tokens++] = left > 0 ? (int32_t)(((int64_t)b->fed + i) * 7919 % b->vocab) : -1;
    b->fed += n;
    b->planned[p->step % (ENGINE_FLIGHTS + 1)] = b->fed;
    return 0;
}

static int accept_result(void *context, const struct step_result *result, struct err *e)
{
    struct bench *b = context;
    (void)e;
    int fed = b->planned[result->step % (ENGINE_FLIGHTS + 1)];
    b->done = fed >= 0 ? fed : b->done;
    if (fed < b->n_prompt + b->n_gen)
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

/* Tokens per second: {median, lowest, highest}. */
static void rates(struct bench *b, int tokens, double rate[3])
{
    qsort(b->seconds, (size_t)b->repetitions, sizeof b->seconds[0], ascending);
    rate[0] = tokens / b->seconds[b->repetitions / 2];
    rate[1] = tokens / b->seconds[b->repetitions - 1];
    rate[2] = tokens / b->seconds[0];
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
    if (o->n_prompt == 0 && o->n_gen == 0)
        return ERR(e, ERR_USAGE, "nothing to measure: --n-prompt and --n-gen are both 0");
    if (o->model != NULL)
        return model_config_read(m, o->model, e) == 0 && !dummy ? checkpoint_open(c, o->model, e)
                                                                : -(e->code != ERR_NONE);
    char *text = file_read(o->config, (size_t)4 << 20, &bytes, e);
    int rc = text == NULL ? -1 : model_config_parse(m, text, bytes, o->config, e);
    free(text);
    return rc;
}

struct figures {
    double pp[3], tg[3], read_rate; /* tokens/s median, lowest, highest; bytes/s */
    double weight_bytes;            /* of all ranks: what one decode step reads */
    double load_seconds;
};

static void print_figures(const struct options *o, const struct world *w, const struct queue *q,
                          const struct model_config *m, const struct figures *f)
{
    double share = f->tg[0] * f->weight_bytes / f->read_rate;
    if (o->json) {
        json_t *root = json_pack(
            "{s:s, s:i, s:i, s:s, s:f, s:f, s:f, s:i, s:[f,f,f], s:i, s:[f,f,f], s:f}", "model_type", m->model_type,
            "ranks", w->n_ranks, "threads_per_rank", q->n_threads, "dtype", dtype_name(m->dtype), "weight_bytes",
            f->weight_bytes, "load_seconds", f->load_seconds, "read_bytes_per_second", f->read_rate, "n_prompt",
            (int)o->n_prompt, "prefill_tokens_per_second", f->pp[0], f->pp[1], f->pp[2], "n_gen", (int)o->n_gen,
            "decode_tokens_per_second", f->tg[0], f->tg[1], f->tg[2], "decode_share_of_read_limit", share);
        (void)json_dumpf(root, stdout, JSON_INDENT(2));
        (void)putchar('\n');
        json_decref(root);
        return;
    }
    printf("%s, %.2f GB of %s weights, %d rank%s x %d thread%s\n", m->model_type, f->weight_bytes / 1e9,
           dtype_name(m->dtype), w->n_ranks, w->n_ranks == 1 ? "" : "s", q->n_threads, q->n_threads == 1 ? "" : "s");
    printf("%-10s %12s %23s %22s\n", "test", "tokens/s", "lowest .. highest", "of the read limit");
    if (o->n_prompt > 0)
        printf("pp%-8lld %12.2f %12.2f .. %8.2f %22s\n", (long long)o->n_prompt, f->pp[0], f->pp[1], f->pp[2], "");
    if (o->n_gen > 0)
        printf("tg%-8lld %12.2f %12.2f .. %8.2f %12.1f GB/s %3.0f %%\n", (long long)o->n_gen, f->tg[0], f->tg[1],
               f->tg[2], f->tg[0] * f->weight_bytes / 1e9, 100 * share);
    printf("read limit %10.1f GB/s, all ranks together, this run\n", f->read_rate / 1e9);
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

static void measure(struct engine *g, const struct options *o, struct figures *f, struct err *e)
{
    int work[2] = {o->n_prompt > 0, o->n_gen > 0}; /* rank 0's options count */
    MPI_CHECK(MPI_Bcast(work, 2, MPI_INT, 0, g->world->comm));
    struct bench b = {.repetition = -1, .vocab = g->network->config.vocab, .limits = g->limits};
    const struct loop_client client = {&b, next, accept_result};
    b.repetitions = (int)o->repetitions;
    if (work[0] != 0) {
        b.n_prompt = (int)o->n_prompt;
        loop_run(g, &client, e);
        if (g->world->rank == 0)
            rates(&b, b.n_prompt, f->pp);
    }
    if (work[1] != 0) {
        b.repetition = -1;
        b.n_prompt = 1;
        b.n_gen = (int)o->n_gen;
        loop_run(g, &client, e);
        if (g->world->rank == 0)
            rates(&b, b.n_gen, f->tg);
    }
}

static struct instance_setup make_setup(const struct options *o)
{
    int64_t len = o->n_prompt > o->n_gen + 1 ? o->n_prompt : o->n_gen + 1;
    struct instance_setup setup = {.limits = {1, (int32_t)o->max_batch_tokens, (int32_t)len, 1, 0},
                                   .kv_bytes = o->kv_cache_bytes,
                                   .threads = (int32_t)o->threads,
                                   .progress = (int32_t)o->progress,
                                   .dummy = o->load_format == LOAD_DUMMY,
                                   .dummy_seed = 1,
                                   .device = (int32_t)o->device};
    setup.limits.n_blocks = limits_blocks_per_slot(&setup.limits);
    return setup;
}

int bench_run(struct world *w, const struct options *o, struct err *e)
{
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance instance;
    struct figures f = {0};
    struct instance_setup setup = {0};
    if (w->rank == 0 && open_model(o, &m, &c, e) == 0)
        setup = make_setup(o);
    fatal_agree(w, e);
    int wanted = limits_blocks_per_slot(&setup.limits);
    double started = seconds_now();
    instance_open(&instance, w, &m, &c, &setup, e);
    f.load_seconds = seconds_now() - started;
    if (w->rank == 0 && setup.limits.n_blocks < wanted)
        ERR(e, ERR_MEMORY, "KV cache: %d blocks fit, %d are needed", setup.limits.n_blocks, wanted);
    fatal_agree(w, e);
    double mine = decode_bytes(&instance.network);
    MPI_CHECK(MPI_Allreduce(&mine, &f.weight_bytes, 1, MPI_DOUBLE, MPI_SUM, w->comm));
    f.read_rate = measure_read(w, instance.ops, &instance.q, e);
    measure(&instance.engine, o, &f, e);
    if (w->rank == 0)
        print_figures(o, w, &instance.q, &m, &f);
    instance_close(&instance);
    return 0;
}
