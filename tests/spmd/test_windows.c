/* tests/spmd/test_windows.c - layers with a window keep only the window in the cache, and nothing else changes: the
 * real scheduler and engine get the same tokens and the same bits of logits from contexts of many windows as when all
 * layers keep everything; with chunks longer than the window, the prefix cache, too few blocks, drafts, a draft model,
 * and FP8 keys. argv: "cuda" for GPUs, batch-invariant. */
#include "coordinator/schedule/scheduler.h"
#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/digest.h"
#include "tests/support/process.h"
#include "tests/support/tap.h"
#include "tests/unit/letters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES   "tests/parity/fixtures"
#define N_REQUESTS 5
#define MAX_TOKENS 30
#define MAX_LEN    752
#define FAR        700 /* tokens: 100 windows of the smallest size */

static struct tokenizer *tokenizer;
static bool on_device;
static uint64_t n_preempted; /* in all runs with few blocks */

struct outcome {
    int n;
    int32_t token[MAX_TOKENS];
    uint64_t logits; /* digest of every row of logits that was sampled from (on the host), and of log-probabilities */
};

struct run {
    struct scheduler scheduler;
    struct draft_model draft_model;
    struct request request[N_REQUESTS];
    struct outcome outcome[N_REQUESTS];
    int vocab;
    int n_far, n_held; /* plans with a request far into its text; most windowed blocks that one of these held */
};

/* The division of a run into blocks and chunks, and its other features. */
struct shape {
    const char *name;
    int max_batch_tokens, max_seqs, n_blocks;
    bool kv_fp8, prefix_caching, drafts;
    int64_t kv_blocks; /* memory for this many blocks of each kind; 0: enough */
    bool draft_model;  /* the model itself drafts, and keeps everything */
};

static void make_request(struct run *r, int index, struct request_rules *rules)
{
    static const int length[N_REQUESTS] = {5, 701, 60, 33, 721}, n_out[N_REQUESTS] = {30, 15, 29, 9, 5};
    *rules = (struct request_rules){.max_tokens = n_out[index], .skip_special = true, .want_logprobs = true};
    rules->sampling = (struct sampling){.top_p = 1, .repetition_penalty = 1, .seed = 40 + (uint64_t)index};
    rules->sampling.temperature = index % 2 == 0 ? 0 : 0.9f;
    struct request *q = &r->request[index];
    *q = (struct request){.rules = rules, .index = index, .slot = -1};
    q->prompt.n = q->prompt.capacity = (size_t)length[index];
    q->prompt.id = calloc(q->prompt.n, sizeof *q->prompt.id);
    for (int i = 0; i < length[index]; i++) /* the last prompt begins like number 1 */
        q->prompt.id[i] = (i * i * 13 + i * 7 + (index == 4 && i < 700 ? 1 : index) * 31) % r->vocab;
}

static int next(void *context, struct plan *plan, struct err *e)
{
    struct run *r = context;
    (void)e;
    if (!scheduler_busy(&r->scheduler)) {
        plan->kind = PLAN_STOP;
        return 0;
    }
    scheduler_plan(&r->scheduler, plan, 0);
    int kind = r->scheduler.n_kinds - 1, window = limits_window(&r->scheduler.setup.limits, kind);
    for (int i = 0; i < plan->n_seqs && window > 0 && plan->model != PLAN_DRAFT_MODEL; i++)
        if (plan->seq[i].n_tokens == plan->seq[i].sample && plan->seq[i].pos > FAR)
            for (int k = 0; k < r->scheduler.n_running; k++) {
                const struct request *q = r->scheduler.running[k];
                int n = q->slot == plan->seq[i].slot ? q->held[kind].end - q->held[kind].begin : 0;
                r->n_far += q->slot == plan->seq[i].slot;
                r->n_held = n > r->n_held ? n : r->n_held;
            }
    return 0;
}

static int accept(void *context, const struct step_result *result, struct err *e)
{
    struct run *r = context;
    const struct flight *f = &r->scheduler.flight[result->step % SCHEDULER_FLIGHTS];
    const float *logits = result->logits;
    for (int i = 0; i < f->n && f->n == f->n_rows; i++) {
        struct outcome *o = &r->outcome[f->request[i]->index];
        if (!on_device) /* whose memory the host cannot read */
            o->logits = digest_add(o->logits, logits + (size_t)i * (size_t)r->vocab, (size_t)r->vocab * sizeof *logits);
        o->logits = digest_add(o->logits, &result->sampled[i].logprob, sizeof result->sampled[i].logprob);
    }
    return scheduler_accept(&r->scheduler, result, 0, e);
}

static void on_release(void *context, struct request *q)
{
    struct run *r = context;
    struct outcome *o = &r->outcome[q->index];
    o->n = (int)q->output.n;
    memcpy(o->token, q->output.id, q->output.n * sizeof *o->token);
    request_close(q);
}

static void open_instance(struct instance *i, struct draft_model *d, struct world *w, const char *fixture,
                          const struct shape *s)
{
    char dir[256];
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits = {.max_seqs = s->max_seqs,
                                              .max_batch_tokens = s->max_batch_tokens,
                                              .max_len = MAX_LEN,
                                              .max_logit_rows = s->max_seqs + (s->drafts ? 20 : 0),
                                              .n_blocks = s->n_blocks,
                                              .max_drafts = s->drafts ? 20 : 0,
                                              .draft_len = s->draft_model ? MAX_LEN : 0},
                                   .kv_bytes = -1,
                                   .threads = 1,
                                   .progress = PROGRESS_NEVER,
                                   .device = on_device ? DEVICE_CUDA : DEVICE_CPU,
                                   .batch_invariant = on_device};
    (void)snprintf(dir, sizeof dir, "%s/%s", FIXTURES, fixture);
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    if (s->draft_model && w->rank == 0 && e.code == ERR_NONE && model_config_read(&d->config, dir, &e) == 0)
        (void)checkpoint_open(&d->checkpoint, dir, &e);
    fatal_agree(w, &e);
    m.kv_fp8 = s->kv_fp8;
    for (int k = 0; k < w->n_ranks && s->kv_blocks > 0 && w->rank == 0; k++) { /* of the rank with the most heads */
        struct shard shard;
        shard_make(&shard, &m, k, w->n_ranks);
        int64_t block = (int64_t)network_kv_block_bytes(&m, &shard, 0, KV_MAIN, on_device ? m.dtype : DTYPE_F32);
        setup.kv_bytes = s->kv_blocks * block > setup.kv_bytes ? s->kv_blocks * block : setup.kv_bytes;
    }
    instance_open_drafted(i, d, w, &m, &c, &setup, &e);
}

static void run_round(struct instance *i, struct run *r)
{
    struct err e = {0};
    struct request_rules rules[N_REQUESTS];
    const struct loop_client client = {.context = r, .next = next, .accept = accept};
    memset(r->outcome, 0, sizeof r->outcome);
    if (i->engine.world->rank == 0 && scheduler_max_len(&r->scheduler) < FAR + 2 * MAX_TOKENS - 8)
        ERR(&e, ERR_INTERNAL, "too few blocks for the longest request");
    fatal_agree(i->engine.world, &e);
    for (int k = 0; k < N_REQUESTS && i->engine.world->rank == 0; k++) {
        make_request(r, k, &rules[k]);
        if (scheduler_add(&r->scheduler, &r->request[k], 0, &e) != 0)
            fatal(&e);
    }
    instance_run(i, &r->draft_model, &client, &e);
}

/* With the prefix cache there are two rounds in the same memory; the outcome is the second one's. */
static void run_shape(struct instance *i, struct run *r, struct world *w, const char *fixture, const struct shape *s)
{
    struct err e = {0};
    memset(r, 0, sizeof *r);
    open_instance(i, &r->draft_model, w, fixture, s);
    r->vocab = i->network.config.vocab;
    const struct rope *rope = &i->network.config.rope;
    const struct scheduler_setup setup = {
        .limits = i->engine.limits,
        .tokenizer = tokenizer,
        .prefix_caching = s->prefix_caching,
        .guesses = {.most = s->drafts ? 7 : 0, .shortest = 1, .longest = 5, .always = true},
        .rope_changes_at = rope->growth != ROPE_FIXED ? rope->long_from : 0,
        .on_release = on_release,
        .context = r};
    if (w->rank == 0)
        (void)scheduler_open(&r->scheduler, &setup, &e);
    fatal_agree(w, &e);
    for (int round = 0; round < (s->prefix_caching ? 2 : 1); round++)
        run_round(i, r);
}

static int count_different(const struct run *a, const struct run *b, bool logits)
{
    int n = 0;
    for (int k = 0; k < N_REQUESTS; k++) {
        const struct outcome *x = &a->outcome[k], *y = &b->outcome[k];
        n += x->n != y->n || x->n == 0 || memcmp(x->token, y->token, (size_t)x->n * sizeof x->token[0]) != 0 ||
             (logits && (x->logits == 0 || x->logits != y->logits));
    }
    return n;
}

/* mixed: some layers see everything. */
static void check_shape(struct world *w, const char *fixture, const struct run *whole, const struct shape *s,
                        bool mixed)
{
    struct instance i;
    struct run *r = calloc(1, sizeof *r);
    run_shape(&i, r, w, fixture, s);
    const struct limits *l = &i.engine.limits;
    const struct scheduler_stats stats = scheduler_stats(&r->scheduler);
    bool me = w->rank == 0;
    char name[160];
    (void)snprintf(name, sizeof name, "%s, %d ranks, %s", fixture, w->n_ranks, s->name);
    tap_all(limits_kinds(l) == (mixed ? KV_KINDS : 1) && l->window > 0, "otherwise", "%s: kinds of blocks", name);
    tap_all(!me || count_different(whole, r, !s->drafts) == 0, "others", "%s: tokens%s as with full caches", name,
            s->drafts ? "" : " and logits");
    /* Keys of a window of fewer than 18 tokens are in at most two blocks; the next token's may be in a third one. */
    int most = l->window < 18 ? 2 : limits_window_blocks(l->window);
    tap_all(!me || (r->n_far > 0 && r->n_held <= most + (s->drafts ? 1 : 0)), "too many",
            "%s: at most %d blocks of a window are held after 700 tokens", name, most);
    tap_all(!me || stats.n_blocks_used + stats.n_window_blocks_used == 0, "some blocks are held",
            "%s: all blocks are free", name);
    if (s->prefix_caching && s->kv_blocks == 0)
        tap_all(!me || stats.prefix_hits > 1300, "too few", "%s: long beginnings are found", name);
    n_preempted += s->kv_blocks > 0 ? stats.n_preemptions : 0;
    if (s->drafts)
        tap_all(!me || stats.n_draft_tokens > 0, "none", "%s: there were drafts", name);
    if (me)
        printf("# %d and %d blocks, at most %d of a window held, %d tokens found, %d preemptions, %d drafts\n",
               l->n_blocks, l->n_window_blocks, r->n_held, (int)stats.prefix_hits, (int)stats.n_preemptions,
               (int)stats.n_draft_tokens);
    scheduler_close(&r->scheduler);
    instance_close(&r->draft_model.instance);
    instance_close(&i);
    free(r);
}

static void check_fixture(struct world *w, const char *fixture, bool mixed, bool kv_fp8)
{
    /* Steps so long that a second kind of blocks would not save memory. */
    const struct shape all = {"whole", MAX_LEN, 4, 110, kv_fp8, false, false, 0, false};
    const struct shape shape[] = {{"long steps", 64, 4, 188, kv_fp8, false, false, 0, false},
                                  {"prefix cache", 24, 4, 188, kv_fp8, true, false, 0, false},
                                  {"few blocks and drafts", 40, 4, 188, kv_fp8, false, true, 41, false},
                                  {"a draft model", 40, 4, 188, kv_fp8, false, true, 0, true}};
    struct instance i;
    struct run *whole = calloc(1, sizeof *whole);
    run_shape(&i, whole, w, fixture, &all);
    tap_all(limits_kinds(&i.engine.limits) == 1, "two kinds", "%s, %d ranks: one kind of blocks", fixture, w->n_ranks);
    scheduler_close(&whole->scheduler);
    instance_close(&i);
    for (size_t k = 0; k < sizeof shape / sizeof shape[0]; k++)
        check_shape(w, fixture, whole, &shape[k], mixed);
    free(whole);
}

int main(int argc, char **argv)
{
    static const char *const mixed[] = {"gptoss-5", "gemma3-6", "gemma2-6", "cohere2-pattern", "olmo3-types-f16"};
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    on_device = argc > 1 && strcmp(argv[1], "cuda") == 0;
    tokenizer = letters_open();
    if (tokenizer == NULL)
        return 98;
    enum { N_MIXED = sizeof mixed / sizeof mixed[0] };
    /* Under sanitizers only the one with preemption: the others apply the same to other layers. */
    for (int i = process_sanitized() ? N_MIXED - 1 : 0; i < N_MIXED; i++)
        check_fixture(&w, mixed[i], true, false);
    check_fixture(&w, "gemma3-6", true, true);
    check_fixture(&w, "mistral-window", false, false);
    tap_all(w.rank != 0 || n_preempted > 0, "none", "%d ranks: sequences were preempted", w.n_ranks);
    tokenizer_close(&tokenizer);
    int status = tap_done();
    world_close(&w);
    return status;
}
