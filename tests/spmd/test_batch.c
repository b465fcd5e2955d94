/* tests/spmd/test_batch.c - a request's result does not depend on its batch, on its chunks, or (for tokens) on the
 * number of ranks. The real scheduler and engine on small checkpoints; on N ranks, compared with a single rank of its
 * own within rank 0. argument: "cuda" for batch-invariant GPUs and more kinds of checkpoints, mostly of 16 bits, whose
 * tokens may depend on the number of ranks. */
#include "coordinator/schedule/scheduler.h"
#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/digest.h"
#include "tests/support/fixture.h"
#include "tests/support/scheduled.h"
#include "tests/support/tap.h"
#include "tests/unit/letters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_REQUESTS 9
#define MAX_TOKENS 30
#define MAX_LEN    56 /* positions of the shortest model used here */

static struct tokenizer *tokenizer;
static bool on_device;

/* The result of a request. */
struct outcome {
    int n;
    int32_t token[MAX_TOKENS];
    uint64_t logits; /* digest of every row of logits that was sampled from (on the host), and of log-probabilities */
};

struct run {
    struct scheduler scheduler;
    struct request request[N_REQUESTS];
    struct outcome outcome[N_REQUESTS];
    int vocab, most_at_once;
};

static void make_rules(struct request_rules rules[N_REQUESTS])
{
    static const int max_tokens[N_REQUESTS] = {12, 20, 8, 30, 5, 16, 10, 26, 1};
    for (int i = 0; i < N_REQUESTS; i++) {
        rules[i] = (struct request_rules){.max_tokens = max_tokens[i], .skip_special = true};
        rules[i].sampling =
            (struct sampling){.top_p = 1, .repetition_penalty = 1, .seed = 40 + (uint64_t)i, .n_top = 3};
    }
    rules[1].sampling.temperature = 0.9f;
    rules[3].sampling.temperature = 1.3f;
    rules[3].sampling.top_k = 20;
    rules[4].sampling.temperature = 1;
    rules[4].sampling.top_p = 0.8f;
    rules[5].sampling.repetition_penalty = 1.3f;
    rules[5].sampling.presence_penalty = 0.2f;
    rules[5].sampling.frequency_penalty = 0.1f;
    rules[7].sampling.temperature = 0.7f;
    rules[7].sampling.min_p = 0.02f;
    rules[7].sampling.min_tokens = 20;
    rules[7].sampling.n_eos = 1;
    rules[7].sampling.eos[0] = 5;
    rules[7].n_stop_ids = 1;
    rules[7].stop_id[0] = 5;
}

static void make_prompt(struct request *r, int index, int vocab)
{
    static const int length[N_REQUESTS] = {1, 3, 17, 5, 33, 16, 9, 30, 48};
    int text = index >= 7 ? 4 : index; /* three prompts begin alike */
    r->index = index;
    r->slot = -1;
    r->prompt.n = r->prompt.capacity = (size_t)length[index];
    r->prompt.id = calloc(r->prompt.n, sizeof *r->prompt.id);
    for (int i = 0; i < length[index]; i++)
        r->prompt.id[i] = (i * i * 13 + i * 7 + text * 31) % vocab;
}

static int next(void *context, struct plan *plan, struct err *e)
{
    struct run *r = context;
    (void)scheduled_next(&r->scheduler, plan, e);
    if (plan->n_seqs > r->most_at_once)
        r->most_at_once = plan->n_seqs;
    return 0;
}

static int accept(void *context, const struct step_result *result, struct err *e)
{
    struct run *r = context;
    const struct flight *f = &r->scheduler.flight[result->step % SCHEDULER_FLIGHTS];
    const float *logits = result->logits;
    for (int i = 0; i < result->n_sampled; i++) {
        struct outcome *o = &r->outcome[f->request[i]->index];
        const struct sampled *s = &result->sampled[i];
        o->token[o->n++] = s->token;
        if (!on_device)
            o->logits = digest_add(o->logits, logits + (size_t)i * (size_t)r->vocab, (size_t)r->vocab * sizeof *logits);
        o->logits = digest_add(o->logits, &s->logprob, sizeof s->logprob);
        o->logits = digest_add(o->logits, s->top_id, 3 * sizeof s->top_id[0]);
        o->logits = digest_add(o->logits, s->top_logprob, 3 * sizeof s->top_logprob[0]);
    }
    return scheduler_accept(&r->scheduler, result, 0, e);
}

/* The division of a run into batches and chunks. */
struct shape {
    int max_batch_tokens, max_seqs, n_blocks;
};

static void open_instance(struct instance *i, struct world *w, const char *fixture, const struct shape *s)
{
    const struct instance_setup setup = {.limits = {.max_seqs = s->max_seqs,
                                                    .max_batch_tokens = s->max_batch_tokens,
                                                    .max_len = MAX_LEN,
                                                    .max_logit_rows = s->max_seqs,
                                                    .n_blocks = s->n_blocks},
                                         .kv_bytes = -1,
                                         .device = on_device ? DEVICE_CUDA : DEVICE_CPU,
                                         .step = STEP_SEPARATE,
                                         .batch_invariant = on_device,
                                         .threads = 1,
                                         .progress = PROGRESS_NEVER};
    fixture_open(i, w, fixture, &setup);
}

/* Runs requests [first, first + n) together. Collective over w; outcomes on its rank 0. */
static void run_some(struct instance *i, struct run *r, int first, int n)
{
    struct err e = {0};
    struct request_rules rules[N_REQUESTS];
    const struct loop_client client = {.context = r, .next = next, .accept = accept};
    const struct scheduler_setup setup = {.limits = i->engine.limits, .tokenizer = tokenizer};
    make_rules(rules);
    r->vocab = i->network.config.vocab;
    if (i->engine.world->rank == 0) {
        if (scheduler_open(&r->scheduler, &setup, &e) != 0)
            fatal(&e);
        for (int k = first; k < first + n; k++) {
            r->request[k].rules = &rules[k];
            make_prompt(&r->request[k], k, r->vocab);
            if (scheduler_add(&r->scheduler, &r->request[k], 0, &e) != 0)
                fatal(&e);
        }
    }
    loop_run(&i->engine, &client, &e);
    for (int k = first; k < first + n; k++)
        request_close(&r->request[k]);
    scheduler_close(&r->scheduler);
}

/* Runs all of them twice in the same memory, with the prefix cache: the outcome is the second round's. *n_found: tokens
 * of the second round that were found in the cache. */
static void run_twice(struct world *w, const char *fixture, struct run *r, int *n_found)
{
    struct err e = {0};
    struct instance i;
    struct request_rules rules[N_REQUESTS];
    const struct loop_client client = {.context = r, .next = next, .accept = accept};
    memset(r, 0, sizeof *r);
    make_rules(rules);
    open_instance(&i, w, fixture, &(struct shape){64, 9, 36});
    const struct rope *rope = &i.network.config.rope;
    const struct scheduler_setup setup = {.limits = i.engine.limits,
                                          .tokenizer = tokenizer,
                                          .prefix_caching = true,
                                          .rope_changes_at = rope->growth != ROPE_FIXED ? rope->long_from : 0};
    r->vocab = i.network.config.vocab;
    if (w->rank == 0)
        (void)scheduler_open(&r->scheduler, &setup, &e);
    fatal_agree(w, &e);
    for (int round = 0; round < 2; round++) {
        *n_found = -(int)r->scheduler.stats.prefix_hits;
        memset(r->outcome, 0, sizeof r->outcome);
        for (int k = 0; k < N_REQUESTS && w->rank == 0; k++) {
            r->request[k] = (struct request){.rules = &rules[k]};
            make_prompt(&r->request[k], k, r->vocab);
            (void)scheduler_add(&r->scheduler, &r->request[k], 0, &e);
        }
        fatal_agree(w, &e);
        loop_run(&i.engine, &client, &e);
        for (int k = 0; k < N_REQUESTS; k++)
            request_close(&r->request[k]);
    }
    *n_found += (int)r->scheduler.stats.prefix_hits;
    scheduler_close(&r->scheduler);
    instance_close(&i);
}

static void run_shape(struct run *r, struct world *w, const char *fixture, const struct shape *s)
{
    struct instance i;
    memset(r, 0, sizeof *r);
    open_instance(&i, w, fixture, s);
    run_some(&i, r, 0, N_REQUESTS);
    instance_close(&i);
}

/* Runs each request alone, one after the other in the same memory. */
static void run_alone(struct run *r, struct world *w, const char *fixture)
{
    struct instance i;
    memset(r, 0, sizeof *r);
    open_instance(&i, w, fixture, &(struct shape){64, 1, 4});
    for (int k = 0; k < N_REQUESTS; k++)
        run_some(&i, r, k, 1);
    instance_close(&i);
}

static bool same_tokens(const struct run *a, const struct run *b)
{
    bool same = true;
    for (int k = 0; k < N_REQUESTS; k++)
        same = same && a->outcome[k].n == b->outcome[k].n && a->outcome[k].n > 0 &&
               memcmp(a->outcome[k].token, b->outcome[k].token, sizeof a->outcome[k].token) == 0;
    return same;
}

static bool same_logits(const struct run *a, const struct run *b)
{
    bool same = true;
    for (int k = 0; k < N_REQUESTS; k++)
        same = same && a->outcome[k].logits == b->outcome[k].logits;
    return same;
}

/* Tells whether all ranks' devices agree: their histories hold every token that was ever fed. */
static bool same_history(const struct instance *i)
{
    const struct sampler *s = &i->engine.sampler;
    uint64_t mine = digest_add(DIGEST_BEGIN, s->history, (size_t)s->n_slots * (size_t)s->max_len * sizeof *s->history);
    mine = digest_add(mine, s->last_token, (size_t)s->n_slots * sizeof *s->last_token);
    return digest_same_everywhere(mine);
}

static void check_companies(struct world *w, const char *fixture, const struct run *alone)
{
    static const struct shape shape[] = {{5, 4, 16}, {16, 3, 12}, {64, 9, 36}, {9, 9, 36}, {64, 9, 7}};
    for (size_t k = 0; k < sizeof shape / sizeof shape[0]; k++) {
        struct run run;
        const struct shape *s = &shape[k];
        run_shape(&run, w, fixture, s);
        char name[120];
        (void)snprintf(name, sizeof name, "%s, %d ranks, %d tokens per step, %d at once, %d blocks", fixture,
                       w->n_ranks, s->max_batch_tokens, s->max_seqs, s->n_blocks);
        bool me = w->rank == 0;
        tap_all(!me || same_tokens(&run, alone), "the tokens differ", "%s: tokens as alone", name);
        tap_all(!me || same_logits(&run, alone), "the bits differ", "%s: logits as alone", name);
        tap_all(!me || run.most_at_once > 1, "one after the other", "%s: sequences ran together", name);
    }
}

static void check_found_again(struct world *w, const char *fixture, const struct run *alone)
{
    struct run run;
    int n_found = 0;
    run_twice(w, fixture, &run, &n_found);
    bool me = w->rank == 0;
    tap_all(!me || same_tokens(&run, alone), "the tokens differ",
            "%s, %d ranks, prompts from the prefix cache: tokens as alone", fixture, w->n_ranks);
    tap_all(!me || same_logits(&run, alone), "the bits differ",
            "%s, %d ranks, prompts from the prefix cache: logits as alone", fixture, w->n_ranks);
    tap_all(!me || n_found >= 16, "nothing was found", "%s, %d ranks: prompts were found", fixture, w->n_ranks);
}

static void check_ranks(struct world *w, const char *fixture)
{
    struct instance i;
    struct run run = {0};
    open_instance(&i, w, fixture, &(struct shape){32, 5, 20});
    int heads = range_length(i.network.shard.heads), fewest = 0;
    run_some(&i, &run, 0, N_REQUESTS);
    if (!on_device) /* whose memory the host cannot read */
        tap_all(same_history(&i), "the tokens differ", "%s, %d ranks: every rank fed and sampled the same tokens",
                fixture, w->n_ranks);
    MPI_CHECK(MPI_Allreduce(&heads, &fewest, 1, MPI_INT, MPI_MIN, w->comm));
    if (i.network.config.n_heads < w->n_ranks)
        tap_all(fewest == 0, "all ranks have heads", "%s, %d ranks: a rank without any head takes part", fixture,
                w->n_ranks);
    instance_close(&i);
}

static void check_fixture(struct world *w, struct world *self, const char *fixture)
{
    struct run alone, one = {0};
    run_alone(&alone, w, fixture);
    if (w->rank == 0 && !on_device)
        run_alone(&one, self, fixture);
    int differ = 0;
    for (int k = 0; k < N_REQUESTS && w->rank == 0; k++)
        for (int j = 0; j < k; j++)
            differ += alone.outcome[j].logits != alone.outcome[k].logits;
    tap_all(w->rank != 0 || differ == N_REQUESTS * (N_REQUESTS - 1) / 2, "equal digests",
            "%s: different requests have different logits", fixture);
    if (!on_device)
        tap_all(w->rank != 0 || same_tokens(&alone, &one), "the tokens differ",
                "%s: the tokens of %d ranks are those of one", fixture, w->n_ranks);
    check_companies(w, fixture, &alone);
    check_found_again(w, fixture, &alone);
    check_ranks(w, fixture);
}

int main(int argc, char **argv)
{
    static const char *const fixture[] = {"llama-14-2-gelu",     "gptj-3h",        "bloom-5h-postln-noprefix",
                                          "llama-dynamic-cross", "mistral-window", "opt-350m-noprefix"};
    static const char *const narrow[] = {
        "llama-heads128-f16", "llama-heads64-bf16",   "mistral-heads64-window-bf16", "gptoss-bf16",
        "qwen3moe-bf16",      "minimax-together-f16", "deepseek2-tied-bf16",         "gemma2-types-nocap-bf16",
        "bloom-6h-bf16",      "q-mxfp4-bf16",         "q-fp8-block128-bf16",         "q-fp8-tensor-bf16",
        "q-w4-g128-bf16",     "q-w4-asym-g64-f16"};
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    struct world self = w;
    self.comm = self.job = self.node = MPI_COMM_SELF; /* each rank is a job of its own */
    self.rank = self.job_rank = self.node_rank = 0;
    self.n_ranks = self.n_job_ranks = self.n_node_ranks = 1;
    self.on_one_host = true;
    tokenizer = letters_open();
    if (tokenizer == NULL)
        return 98;
    on_device = argc > 1 && strcmp(argv[1], "cuda") == 0;
    for (size_t i = 0; i < sizeof fixture / sizeof fixture[0]; i++)
        check_fixture(&w, &self, fixture[i]);
    for (size_t i = 0; i < sizeof narrow / sizeof narrow[0] && on_device; i++)
        check_fixture(&w, &self, narrow[i]);
    tokenizer_close(&tokenizer);
    int status = tap_done();
    world_close(&w);
    return status;
}
