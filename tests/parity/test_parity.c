/* tests/parity/test_parity.c - every fixture against Hugging Face transformers, on as many ranks as mpirun gives. Each
 * case runs the prompt in chunks, or at once, and then 32 greedy tokens, each fed back on the device. Compared are:
 * every logit at every position, the score of every token of the prompt, every token, the bits of the last logits over
 * all ranks, the number of all-reduces, and the bytes read from the checkpoint. argv: nothing, or a part of the names
 * of the cases to run, and "cpu" or "cuda". */
#include "base/choices.h"
#include "partition/side_tensors.h"
#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/digest.h"
#include "tests/support/files.h"
#include "tests/support/tap.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIXTURES  "tests/parity/fixtures"
#define N_NEW     32
#define CHUNK     13 /* tokens of a prefill chunk; prompts are longer, and not a multiple of it */
#define MAX_LEN   80 /* tokens of a whole prompt at most; most prompts exceed the rows that GPUs multiply as a few */
#define N_TOP     4  /* likeliest alternatives beside every token of the prompt */
#define MAX_CASES 256
/* More ranks than these read a single file only: the split into files does not depend on the ranks. */
#define MOST_SHARDED 3

struct expected {
    char *file;
    int n_prompt, vocab;
    const int32_t *prompt, *tokens; /* [n_prompt], [N_NEW] */
    const float *logits;            /* [n_prompt + N_NEW - 1, vocab] */
};

/* The results of one run of a case. */
struct run {
    const struct expected *x;
    struct instance *instance;
    int fed, n_sampled;
    float *logits; /* [n_prompt + N_NEW - 1, vocab] */
    int32_t token[N_NEW];
    int n_scored;
    struct sampled *scored; /* [n_prompt - 1] */
};

static struct expected read_expected(const char *dir)
{
    struct expected x = {0};
    size_t bytes;
    long shape[2];
    x.file = files_read(dir, "expected.safetensors", &bytes);
    x.prompt = files_tensor(x.file, bytes, "prompt", shape);
    x.n_prompt = (int)shape[0];
    x.tokens = files_tensor(x.file, bytes, "tokens", shape);
    x.logits = files_tensor(x.file, bytes, "logits", shape);
    x.vocab = (int)shape[1];
    if (x.prompt == NULL || x.tokens == NULL || x.logits == NULL || shape[0] != x.n_prompt + N_NEW - 1)
        exit(98);
    return x;
}

static void fill_plan(struct run *r, struct plan *p)
{
    const struct expected *x = r->x;
    int chunk = r->instance->engine.limits.max_batch_tokens;
    int left = x->n_prompt - r->fed, n = left > chunk ? chunk : left > 0 ? left : 1;
    if (r->fed == 0) {
        p->start[p->n_starts++] = (struct plan_start){
            .slot = 1,
            .sampling = {.top_p = 1, .repetition_penalty = 1, .prompt_len = x->n_prompt, .n_prompt_top = N_TOP}};
        /* Blocks in descending order, so that a kernel that ignores the table fails. */
        for (int i = 0; i < limits_blocks_per_slot(&r->instance->engine.limits); i++)
            p->block[p->n_blocks++] = (struct plan_block){1, i, r->instance->engine.limits.n_blocks - 1 - i, KV_MAIN};
    }
    p->seq[p->n_seqs++] =
        (struct plan_seq){1, n, r->fed, left > 0 ? x->n_prompt : r->fed + 1, n, r->fed + n >= x->n_prompt, 0};
    if (left > 0)
        p->score[p->n_scores++] = (struct plan_score){0, left > n ? n : n - 1, left > n ? x->prompt[r->fed + n] : -1};
    for (int i = 0; i < n; i++)
        p->token[p->n_tokens++] = left > 0 ? x->prompt[r->fed + i] : -1;
}

/* Rows come sampled first: the last token's row, then the chunk's other rows in order, scored or not. */
static void keep_logits(struct run *r, const struct step_result *s, int n)
{
    const struct ops *ops = r->instance->ops;
    struct queue *q = &r->instance->q;
    size_t vocab = (size_t)r->x->vocab, row_bytes = vocab * dtype_bytes(q->act);
    unsigned char *in = malloc((size_t)n * row_bytes + 1);
    ops->download(q, in, s->logits, (size_t)n * row_bytes);
    ops->wait(q);
    for (int i = 0; i < n; i++) {
        int row = s->n_sampled == 0 ? i : i == n - 1 ? 0 : i + 1;
        for (size_t k = 0; k < vocab; k++)
            r->logits[(size_t)(r->fed + i) * vocab + k] = dtype_load(in + (size_t)row * row_bytes, q->act, k);
    }
    free(in);
    if (s->n_sampled == 1)
        r->token[r->n_sampled++] = s->sampled[0].token;
    memcpy(r->scored + r->n_scored, s->scored, (size_t)s->n_scored * sizeof *s->scored);
    r->n_scored += s->n_scored;
}

static void run_case(struct run *r)
{
    struct plan plan;
    struct err e = {0};
    struct engine *g = &r->instance->engine;
    if (plan_open(&plan, &g->limits, &e) != 0)
        fatal(&e);
    for (uint64_t step = 0; r->n_sampled < N_NEW; step++) {
        struct step_result result;
        plan_reset(&plan, step);
        if (g->world->rank == 0)
            fill_plan(r, &plan);
        loop_share(&plan, g->world, r->x->vocab);
        engine_step(g, &plan, &result);
        keep_logits(r, &result, plan.n_tokens);
        r->fed += plan.n_tokens;
    }
    plan_close(&plan);
}

/* Returns max |difference|, or for 16-bit weights the relative 2-norm of the worst row; infinite if an element is not a
 * number. */
static double difference(const struct run *r, bool wide)
{
    double worst = 0;
    size_t vocab = (size_t)r->x->vocab;
    for (int row = 0; row < r->x->n_prompt + N_NEW - 1; row++) {
        double error = 0, norm = 0;
        for (size_t i = 0; i < vocab; i++) {
            double got = r->logits[(size_t)row * vocab + i], want = r->x->logits[(size_t)row * vocab + i];
            double d = fabs(got - want);
            if (!isfinite(got))
                return INFINITY;
            error = wide ? fmax(error, d) : error + d * d;
            norm += want * want;
        }
        worst = fmax(worst, wide ? error : sqrt(error / norm));
    }
    return worst;
}

/* Returns the distance of x from log_softmax(logits)[id]; infinite if it is not a number. */
static double beside(double x, const float *logits, int vocab, int id)
{
    double max = logits[0], sum = 0;
    for (int i = 1; i < vocab; i++)
        max = fmax(max, logits[i]);
    for (int i = 0; i < vocab; i++)
        sum += exp(logits[i] - max);
    double d = fabs(x - (logits[id] - max - log(sum)));
    return isfinite(d) ? d : INFINITY;
}

/* Returns the largest distance of the prompt's scores from log_softmax of these logits; infinite if one is missing, of
 * another token, or out of order. */
static double score_difference(const struct run *r, const float *logits)
{
    double worst = r->n_scored == r->x->n_prompt - 1 ? 0 : INFINITY;
    for (int i = 0; i < r->n_scored; i++) {
        const struct sampled *s = &r->scored[i];
        const float *row = logits + (size_t)i * (size_t)r->x->vocab;
        if (s->token != r->x->prompt[i + 1])
            return INFINITY;
        worst = fmax(worst, beside(s->logprob, row, r->x->vocab, s->token));
        for (int k = 0; k < N_TOP; k++) {
            if (s->top_id[k] < 0 || s->top_id[k] >= r->x->vocab ||
                (k > 0 && !(s->top_logprob[k] <= s->top_logprob[k - 1])))
                return INFINITY;
            worst = fmax(worst, beside(s->top_logprob[k], row, r->x->vocab, s->top_id[k]));
        }
    }
    return worst;
}

static bool same_bits_everywhere(const struct run *r)
{
    const float *last = r->logits + (size_t)(r->x->n_prompt + N_NEW - 2) * (size_t)r->x->vocab;
    return digest_same_everywhere(digest_add(DIGEST_BEGIN, last, (size_t)r->x->vocab * sizeof *last));
}

static int32_t device = DEVICE_AUTO; /* enum device_choice */

/* chunk: tokens of a prompt at a time; whole: ranks hold whole experts; inputs: activations are quantised as the
 * checkpoint declares. */
static void open_instance(struct instance *i, struct world *w, const char *dir, int vocab, int chunk, bool whole,
                          bool inputs)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits = {.max_seqs = 3,
                                              .max_batch_tokens = chunk,
                                              .max_len = MAX_LEN,
                                              .max_logit_rows = chunk,
                                              .n_blocks = 17},
                                   .kv_bytes = -1,
                                   .threads = -1,
                                   .progress = PROGRESS_NEVER,
                                   .device = device,
                                   .step = STEP_SEPARATE}; /* tests/gpu/test_persistent_fixtures.c has both ways */
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0 && (!whole || model_hold_whole_experts(&m, &e) == 0)) {
        m.quantised_inputs = inputs;
        (void)(checkpoint_open(&c, dir, &e) == 0 && side_tensors_read(&c, &m, &e) == 0);
    }
    fatal_agree(w, &e);
    instance_open(i, w, &m, &c, &setup, &e);
    if (i->network.config.vocab != vocab)
        exit(97);
    if (i->network.config.whole_experts != whole || i->network.config.quantised_inputs != inputs)
        exit(95);
}

/* Returns the bytes of a folder's weight files. */
static double file_bytes(const char *dir)
{
    double bytes = 0;
    DIR *d = opendir(dir);
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
        char path[600];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (strncmp(entry->d_name, "model", 5) == 0 && strstr(path, ".safetensors") != NULL && stat(path, &s) == 0)
            bytes += (double)s.st_size;
    }
    if (d != NULL)
        closedir(d);
    return bytes;
}

/* Compares the bytes that all ranks read: if they read together, with the bytes of the roles, which a single rank would
 * hold; if each reads for itself, with the bytes that they hold. Quantised weights have another size in memory than in
 * the files, and ranks that read for themselves repeat shared parts: there the larger of the two counts. */
static bool read_once(const struct instance *i, const char *dir)
{
    struct shard one;
    struct weight_map map = {0};
    struct err e = {0};
    double all = i->load.bytes_read, held = i->load.bytes_held;
    bool alone = i->load.setup.way == LOAD_ALONE;
    if (i->network.config.quantization.format != FORMAT_NONE)
        return all <= (alone ? 1.1 * fmax(held, file_bytes(dir)) : file_bytes(dir)) && all >= 0.6 * file_bytes(dir);
    if (alone)
        return all >= held && all <= 1.1 * held;
    shard_make(&one, &i->network.config, 0, 1);
    if (weight_map_build(&map, &i->network.config, &one, NULL, &e) != 0)
        return false;
    double whole = (double)weight_map_bytes(&map);
    weight_map_free(&map);
    return all <= 1.1 * whole && all >= whole;
}

static void check_case(struct world *w, const char *dir, const char *name, const char *layout, int chunk, bool whole)
{
    char reason[200], where[64];
    struct expected x = read_expected(dir);
    struct instance instance;
    open_instance(&instance, w, dir, x.vocab, chunk, whole, false);
    snprintf(where, sizeof where, "%s, %d %s rank%s", layout, w->n_ranks, instance.ops->name,
             w->n_ranks > 1 ? "s" : "");
    const struct model_config *m = &instance.network.config;
    bool wide = m->dtype == DTYPE_F32;
    struct run r = {.x = &x, .instance = &instance};
    r.scored = calloc((size_t)x.n_prompt, sizeof *r.scored);
    r.logits = calloc((size_t)(x.n_prompt + N_NEW) * (size_t)x.vocab, sizeof(float));
    run_case(&r);
    double worst = difference(&r, wide), most = wide ? 1e-3 : 2e-2;
    snprintf(reason, sizeof reason, "%s is %.3g, allowed %.3g", wide ? "max |difference|" : "relative error", worst,
             most);
    tap_all(worst <= most, reason, "%s, %s: logits within %.0e (%.1e)", name, where, most, worst);
    /* Compared with this run's own logits, and where these are float also with transformers'. */
    double scores = fmax(score_difference(&r, r.logits), wide ? score_difference(&r, x.logits) / 1e3 : 0);
    snprintf(reason, sizeof reason, "a score is %.3g beside log_softmax", scores);
    tap_all(scores <= 5e-6, reason, "%s, %s: scores of the prompt (%.1e)", name, where, scores);
    tap_all(memcmp(r.token, x.tokens, sizeof r.token) == 0, "the tokens differ", "%s, %s: greedy tokens", name, where);
    tap_all(same_bits_everywhere(&r), "hashes differ", "%s, %s: equal bits", name, where);
    int sums = (m->parallel_residual ? 1 : 2) + (m->qk_norm_row ? 1 : 0);
    uint64_t per_step = 1 + (uint64_t)m->n_layers * (uint64_t)sums;
    tap_all(instance.engine.comm.n_all_reduces == per_step * instance.engine.n_steps, "other number",
            "%s, %s: %d all-reduce(s) a layer", name, where, sums);
    tap_all(read_once(&instance, dir), "bytes read", "%s, %s: checkpoint read once", name, where);
    instance_close(&instance);
    free(r.logits);
    free(r.scored);
    free(x.file);
}

/* Returns the root of the mean square of a - b. */
static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return isfinite(sum) ? sqrt(sum / (double)n) : INFINITY;
}

static int likeliest(const float *logits, int vocab)
{
    int best = 0;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Quantised activations: an input that another order of summation moves across a code's edge becomes another code, so
 * logits are compared as a whole. They must be nearer to transformers' with quantised activations than to those
 * without, and name the same likeliest token at almost every position of the prompt. */
static void check_inputs(struct world *w, const char *dir, const char *name)
{
    char reason[200];
    long shape[2];
    size_t bytes;
    char *file = files_read(dir, "inputs.safetensors", &bytes);
    const float *want = files_tensor(file, bytes, "logits", shape);
    struct expected x = read_expected(dir);
    struct instance instance;
    size_t n = (size_t)x.n_prompt * (size_t)x.vocab;
    if (want == NULL || shape[0] != x.n_prompt || shape[1] != x.vocab)
        exit(96);
    open_instance(&instance, w, dir, x.vocab, CHUNK, false, true);
    struct run r = {.x = &x, .instance = &instance};
    r.scored = calloc((size_t)x.n_prompt, sizeof *r.scored);
    r.logits = calloc((size_t)(x.n_prompt + N_NEW) * (size_t)x.vocab, sizeof(float));
    run_case(&r);
    double off = distance(r.logits, want, n), moved = distance(want, x.logits, n);
    int same = 0;
    for (int i = 0; i < x.n_prompt; i++)
        same += likeliest(r.logits + (size_t)i * (size_t)x.vocab, x.vocab) ==
                likeliest(want + (size_t)i * (size_t)x.vocab, x.vocab);
    snprintf(reason, sizeof reason, "%.3g from transformers', which quantised activations moved by %.3g", off, moved);
    tap_all(moved > 0 && off <= moved / 2, reason, "%s, %d ranks: quantised activations (%.1e of %.1e)", name,
            w->n_ranks, off, moved);
    snprintf(reason, sizeof reason, "%d of %d", same, x.n_prompt);
    tap_all(same >= x.n_prompt - 1, reason, "%s, %d ranks: likeliest tokens, %d of %d", name, w->n_ranks, same,
            x.n_prompt);
    tap_all(same_bits_everywhere(&r), "hashes differ", "%s, %d ranks: equal bits", name, w->n_ranks);
    instance_close(&instance);
    free(r.logits);
    free(r.scored);
    free(x.file);
    free(file);
}

static bool has_inputs(const char *dir)
{
    char path[300];
    snprintf(path, sizeof path, "%s/inputs.safetensors", dir);
    return access(path, F_OK) == 0;
}

static bool has_experts(struct world *w, const char *dir)
{
    struct err e = {0};
    struct model_config m = {0};
    int n = 0;
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0)
        n = m.experts.routing.n_experts;
    fatal_agree(w, &e);
    MPI_CHECK(MPI_Bcast(&n, 1, MPI_INT, 0, w->comm));
    return n > 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int list_cases(char name[MAX_CASES][64], const char *part)
{
    int n = 0;
    DIR *d = opendir(FIXTURES);
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;)
        if (entry->d_name[0] != '.' && strstr(entry->d_name, part) != NULL && n < MAX_CASES)
            snprintf(name[n++], 64, "%.63s", entry->d_name);
    if (d != NULL)
        closedir(d);
    qsort(name, (size_t)n, 64, by_name);
    return n;
}

int main(int argc, char **argv)
{
    static char name[MAX_CASES][64];
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    if (argc > 2)
        device = strcmp(argv[2], "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    int n = list_cases(name, argc > 1 ? argv[1] : "");
    for (int i = 0; i < n; i++) {
        char dir[256], sharded[256] = "";
        snprintf(dir, sizeof dir, "%s/%.63s", FIXTURES, name[i]);
        check_case(&w, dir, name[i], "one file", CHUNK, false);
        if (has_experts(&w, dir))
            check_case(&w, dir, name[i], "whole experts", CHUNK, true);
        if (has_inputs(dir) && device != DEVICE_CUDA)
            check_inputs(&w, dir, name[i]);
        if (w.n_ranks > MOST_SHARDED)
            continue;
        if (w.rank == 0) {
            files_make_dir(sharded);
            files_copy(dir, sharded, "config.json");
            files_copy(dir, sharded, "expected.safetensors");
            files_shard(dir, sharded, 3);
        }
        MPI_CHECK(MPI_Bcast(sharded, sizeof sharded, MPI_BYTE, 0, w.comm));
        check_case(&w, sharded, name[i], "sharded, at once", MAX_LEN, false);
        if (w.rank == 0)
            files_remove_dir(sharded);
    }
    int status = tap_done();
    world_close(&w);
    return status;
}
