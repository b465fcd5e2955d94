/* tests/spmd/test_drafts.c - drafts change nothing: the real scheduler and engine get the same tokens with the same
 * bits of log-probability for every request, greedy or sampled, with penalties, biases and stop rules, whatever the
 * drafts are. The drafts here are the tokens that came without drafts, correct up to a random position: so the number
 * of accepted drafts is known, too. Guesses and draft models are tested as well: a model that drafts for itself is
 * right wherever likelihood alone decides; and draft heads (EAGLE-3), whose drafts follow from the text alone, whatever
 * was shared, preempted or fed in pieces before; and a draft model on fewer ranks than the model. argv: nothing, or
 * "cuda" for models of float32 on a GPU, whose tokens are the same under any close rounding, or "invariant" for all
 * models on a batch-invariant GPU; then nothing, or a part of the names of the fixtures to run. */
#include "base/choices.h"
#include "base/clock.h"
#include "coordinator/schedule/scheduler.h"
#include "partition/drafting.h"
#include "rank/instance/instance.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/process.h"
#include "tests/support/tap.h"
#include "tests/unit/letters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES   "tests/parity/fixtures"
#define HEADS      "tests/parity/heads"
#define N_REQUESTS 125 /* enough for drafts of all kinds, and preemption */
#define MAX_TOKENS 24
#define MAX_PROMPT 30
#define MAX_LEN    56 /* positions of the shortest model used here */
#define MAX_SEQS   6
#define MAX_DRAFTS 40
#define N_BLOCKS   9 /* so few that sequences are preempted */

static struct tokenizer *tokenizer;
static int n_requests;
static int32_t device = DEVICE_CPU;
static bool invariant;

struct outcome {
    int n;
    struct sampled token[MAX_TOKENS];
    enum finish_reason finish;
};

struct run {
    struct scheduler scheduler;
    struct request request[N_REQUESTS];
    struct request_rules rules[N_REQUESTS];
    struct outcome outcome[N_REQUESTS];
    const struct run *plain; /* the run whose outcomes are the drafts */
    uint64_t random;
    uint64_t n_expected;              /* drafts that will be accepted */
    uint64_t n_likeliest, n_unlikely; /* drafts where the likeliest token comes; those that differ from it */
    struct guess_rules guesses;
    int vocab;
    bool alone;                              /* sequences share no blocks */
    int n_unseen;                            /* drafts in plans that only the device knew */
    int32_t (*made)[MAX_TOKENS][DRAFTS_MAX]; /* [n_requests] drafts after each number of tokens, plus one; or NULL */
};

/* Too few requests to expect a certain number of accepted drafts: so it is under sanitizers. */
static bool too_few(void)
{
    return n_requests < N_REQUESTS / 2;
}

static int below(uint64_t *seed, int n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((*seed >> 33) % (uint64_t)n);
}

static void make_rules(struct request_rules *rules, uint64_t *seed, int vocab)
{
    struct sampling *p = &rules->sampling;
    *rules =
        (struct request_rules){.max_tokens = 1 + below(seed, MAX_TOKENS), .skip_special = true, .want_logprobs = true};
    *p = (struct sampling){.top_p = 1, .repetition_penalty = 1, .seed = (uint64_t)below(seed, 1000), .n_top = 3};
    p->temperature = below(seed, 3) == 0 ? 0 : 0.4f + 0.1f * (float)below(seed, 10);
    if (p->temperature > 0) {
        p->top_k = below(seed, 3) == 0 ? 1 + below(seed, 20) : 0;
        p->top_p = below(seed, 3) == 0 ? 0.8f : 1;
        p->min_p = below(seed, 4) == 0 ? 0.02f : 0;
    }
    p->repetition_penalty = below(seed, 3) == 0 ? 1.3f : 1;
    p->presence_penalty = below(seed, 3) == 0 ? 0.4f : 0;
    p->frequency_penalty = below(seed, 3) == 0 ? 0.3f : 0;
    if (below(seed, 4) == 0) {
        p->n_bias = 1;
        p->bias_id[0] = below(seed, vocab);
        p->bias[0] = 3;
    }
    if (below(seed, 2) == 0) { /* a quarter of the vocabulary is likely enough to be chosen */
        p->n_eos = rules->n_stop_ids = 8;
        for (int i = 0; i < 8; i++)
            p->eos[i] = rules->stop_id[i] = below(seed, vocab);
        p->min_tokens = below(seed, 2) == 0 ? below(seed, rules->max_tokens + 1) : 0;
    }
}

static void make_request(struct run *r, int index, uint64_t *seed)
{
    struct request *q = &r->request[index];
    *q = (struct request){.rules = &r->rules[index], .index = index, .slot = -1};
    make_rules(&r->rules[index], seed, r->vocab);
    q->prompt.n = q->prompt.capacity = 1 + (size_t)below(seed, MAX_PROMPT);
    q->prompt.id = calloc(q->prompt.n, sizeof *q->prompt.id);
    for (size_t i = 0; i < q->prompt.n; i++)
        q->prompt.id[i] = i < 18 && index % 3 == 0 ? (int32_t)i : below(seed, r->vocab); /* some prompts begin alike */
}

static int propose(void *context, struct request *q, int n, int32_t *token)
{
    struct run *r = context;
    const struct outcome *plain = &r->plain->outcome[q->index];
    int at = (int)q->output.n, right = below(&r->random, 2) == 0 ? n : below(&r->random, n);
    n = below(&r->random, n + 1);
    for (int i = 0; i < n; i++) {
        int32_t next = at + i < plain->n ? plain->token[at + i].token : 0;
        token[i] = i < right ? next : (next + 1) % r->vocab;
    }
    return n;
}

static void on_release(void *context, struct request *q)
{
    struct run *r = context;
    struct outcome *o = &r->outcome[q->index];
    o->n = (int)q->output.n;
    o->finish = q->finish;
    memcpy(o->token, q->logprobs, q->output.n * sizeof *o->token);
    for (int i = 0; i < o->n; i++)
        o->token[i].slot = 0; /* any slot */
    request_close(q);
}

static int next(void *context, struct plan *plan, struct err *e)
{
    struct run *r = context;
    (void)e;
    if (!scheduler_busy(&r->scheduler))
        plan->kind = PLAN_STOP;
    else
        scheduler_plan(&r->scheduler, plan, seconds_now());
    for (int i = 0; i < plan->n_tokens; i++)
        r->n_unseen += plan->token[i] == PLAN_DRAFTED;
    return 0;
}

/* Tells whether the likeliest token comes; penalties may depend on tokens that a plan had no room for. */
static bool is_likeliest(const struct sampling *p)
{
    return p->temperature == 0 && p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0;
}

/* Records drafts of requests whose rules do not read the history, of which a plan may have less. */
static void note_drafts(struct run *r, const struct request *q)
{
    const struct sampling *p = &q->rules->sampling;
    if (r->made == NULL || p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0)
        return;
    for (int k = 0; k < q->n_drafts; k++)
        r->made[q->index][q->output.n][k] = q->draft[k] + 1;
}

/* Runs before the scheduler: counts the drafts that must be accepted, given the tokens that came without them. */
static int accept(void *context, const struct step_result *result, struct err *e)
{
    struct run *r = context;
    const struct flight *f = &r->scheduler.flight[result->step % SCHEDULER_FLIGHTS];
    for (int i = 0; i < f->n && r->plain != NULL; i++) {
        const struct request *q = f->request[i];
        int at = (int)q->output.n;
        note_drafts(r, q);
        for (int k = 0; k < q->n_drafts && at + k < r->plain->outcome[q->index].n && is_likeliest(&q->rules->sampling);
             k++, r->n_likeliest++)
            r->n_unlikely += q->draft[k] != r->plain->outcome[q->index].token[at + k].token;
        for (int k = 0; k < q->n_drafts && at + k + 1 < r->plain->outcome[q->index].n; k++, r->n_expected++)
            if (q->draft[k] != r->plain->outcome[q->index].token[at + k].token)
                break;
    }
    return scheduler_accept(&r->scheduler, result, seconds_now(), e);
}

/* Collective over w; outcomes on its rank 0. plain: the drafts if there are no guesses; NULL: no drafts. d: the draft
 * model that makes them, or NULL. */
static void run_all(struct instance *i, struct draft_model *d, struct run *r, const struct run *plain,
                    const struct guess_rules *guesses)
{
    struct err e = {0};
    uint64_t seed = 5;
    const struct loop_client client = {.context = r, .next = next, .accept = accept};
    const struct rope *rope = &i->network.config.rope;
    struct scheduler_setup setup = {.limits = i->engine.limits,
                                    .tokenizer = tokenizer,
                                    .prefix_caching = plain != NULL && !r->alone,
                                    .rope_changes_at = rope->growth != ROPE_FIXED ? rope->long_from : 0,
                                    .on_release = on_release,
                                    .context = r};
    r->vocab = i->network.config.vocab;
    r->plain = plain;
    r->random = 77;
    if (d == NULL)
        setup.limits.draft_len = 0;
    if (plain != NULL && guesses->longest == 0)
        setup.drafts = (struct draft_source){propose, r};
    setup.guesses = *guesses;
    if (i->engine.world->rank == 0) {
        if (scheduler_open(&r->scheduler, &setup, &e) != 0)
            fatal(&e);
        for (int k = 0; k < n_requests; k++) {
            make_request(r, k, &seed);
            if (scheduler_add(&r->scheduler, &r->request[k], 0, &e) != 0)
                fatal(&e);
        }
    }
    if (d != NULL)
        instance_run(i, d, &client, &e);
    else
        loop_run(&i->engine, &client, &e);
}

static bool is_head(const char *drafts)
{
    return drafts != NULL && (strncmp(drafts, "eagle3", 6) == 0 || strncmp(drafts, "mtp", 3) == 0);
}

static int open_drafts(struct draft_model *d, const struct model_config *m, const char *drafts, struct err *e)
{
    char dir[256];
    (void)snprintf(dir, sizeof dir, "%s/%s", is_head(drafts) ? HEADS : FIXTURES, drafts);
    if (strncmp(drafts, "mtp", 3) == 0)
        return model_predicting(&d->config, m, drafts, e) == 0 ? checkpoint_open(&d->checkpoint, dir, e) : -1;
    if (model_config_read(&d->config, dir, e) != 0 || checkpoint_open(&d->checkpoint, dir, e) != 0 ||
        drafting_read(&d->checkpoint, &d->config, e) != 0)
        return -1;
    return model_draft_for(&d->config, m, drafts, e);
}

/* drafts: the draft model's fixture, for sequences of draft_len tokens, on draft_ranks ranks (0: all); NULL: there is
 * none. */
static void open_instance(struct instance *i, struct draft_model *d, struct world *w, const char *fixture,
                          const char *drafts, int draft_len, int draft_ranks, int n_blocks)
{
    char dir[256];
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits = {.max_seqs = MAX_SEQS,
                                              .max_batch_tokens = 90,
                                              .max_len = MAX_LEN,
                                              .max_logit_rows = MAX_SEQS + MAX_DRAFTS,
                                              .n_blocks = n_blocks,
                                              .max_drafts = MAX_DRAFTS,
                                              .draft_len = draft_len,
                                              .draft_ranks = draft_ranks,
                                              .draft_skip = is_head(drafts)},
                                   .kv_bytes = -1,
                                   .threads = 1,
                                   .device = device,
                                   .step = invariant ? STEP_SEPARATE : STEP_AUTO,
                                   .batch_invariant = invariant,
                                   .progress = PROGRESS_NEVER};
    (void)snprintf(dir, sizeof dir, "%s/%s", FIXTURES, fixture);
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(w, &e);
    if (drafts != NULL && w->rank == 0)
        (void)open_drafts(d, &m, drafts, &e);
    fatal_agree(w, &e);
    instance_open_drafted(i, d, w, &m, &c, &setup, &e);
}

/* On a CPU and on an invariant device to the last bit. */
static bool same_tokens(const struct outcome *a, const struct outcome *b)
{
    bool same =
        (device != DEVICE_CPU && !invariant) || memcmp(a->token, b->token, (size_t)a->n * sizeof a->token[0]) == 0;
    for (int i = 0; i < a->n && same; i++)
        same = a->token[i].token == b->token[i].token;
    return same;
}

static int count_different(const struct run *a, const struct run *b)
{
    int n = 0;
    for (int k = 0; k < n_requests; k++) {
        const struct outcome *x = &a->outcome[k], *y = &b->outcome[k];
        n += x->n != y->n || x->n == 0 || x->finish != y->finish || !same_tokens(x, y);
    }
    return n;
}

static uint64_t all_accepted(const struct scheduler_stats *s)
{
    uint64_t n = 0;
    for (int k = 0; k < DRAFTS_MAX; k++)
        n += s->n_accepted[k];
    return n;
}

/* Guesses from earlier text: small models repeat themselves. */
static void check_guesses(struct instance *i, const char *fixture, const struct run *plain)
{
    const struct world *w = i->engine.world;
    for (int always = 0; always < 2; always++) {
        const struct guess_rules rules = {.most = 7, .shortest = 1, .longest = 5, .always = always};
        struct run *guessed = calloc(1, sizeof *guessed);
        run_all(i, NULL, guessed, plain, &rules);
        const struct scheduler_stats *s = &guessed->scheduler.stats;
        int different = w->rank == 0 ? count_different(plain, guessed) : 0;
        const char *how = always ? "always" : "where it pays";
        tap_all(different == 0, "other tokens or bits", "%s, %d ranks, guesses %s: the same tokens", fixture,
                w->n_ranks, how);
        int some = n_requests / (device == DEVICE_CPU ? 5 : 10); /* with two steps in flight there are fewer guesses */
        tap_all(w->rank != 0 || !always || too_few() || s->n_accepted[0] > (uint64_t)some, "too few",
                "%s, %d ranks, guesses %s: some are right", fixture, w->n_ranks, how);
        uint64_t n_accepted = all_accepted(s);
        tap_all(w->rank != 0 || n_accepted == guessed->n_expected, "the numbers differ",
                "%s, %d ranks, guesses %s: all correct guesses are accepted, no others", fixture, w->n_ranks, how);
        if (w->rank == 0)
            printf("# %llu of %llu drafts accepted in %llu steps\n", (unsigned long long)n_accepted,
                   (unsigned long long)s->n_draft_tokens, (unsigned long long)s->n_drafts);
        scheduler_close(&guessed->scheduler);
        free(guessed);
    }
}

/* Acts as a device does, which has two steps in flight. */
static void take_two_flights(struct instance *i, struct draft_model *d)
{
    i->engine.n_flights = d->instance.engine.n_flights = ENGINE_FLIGHTS;
}

/* The ways in which a draft model runs: where it pays, always, and always on some of the ranks only. */
enum way { WHERE_IT_PAYS, ALWAYS, ON_FEWER_RANKS, WAYS };

/* A model drafts for itself or for another one. */
static void check_model(struct world *w, const char *fixture, const char *drafts, int draft_len,
                        const struct run *plain)
{
    static const char *const name[WAYS] = {"", " always", " always, on fewer ranks"};
    struct instance i;
    bool same = strcmp(fixture, drafts) == 0;
    for (int way = 0; way < (w->n_ranks > 1 && same ? WAYS : ON_FEWER_RANKS); way++) {
        bool always = way != WHERE_IT_PAYS, fewer = way == ON_FEWER_RANKS;
        const struct guess_rules rules = {.most = 1 + 5 * always, .longest = 1, .shortest = 1, .always = always};
        struct draft_model d = {0};
        struct run *run = calloc(1, sizeof *run);
        open_instance(&i, &d, w, fixture, drafts, draft_len, fewer ? (w->n_ranks + 1) / 2 : 0, N_BLOCKS);
        if (always)
            take_two_flights(&i, &d);
        run_all(&i, &d, run, plain, &rules);
        instance_close(&d.instance);
        instance_close(&i);
        const struct scheduler_stats *s = &run->scheduler.stats;
        uint64_t n_accepted = all_accepted(s);
        bool me = w->rank == 0;
        tap_all(!me || count_different(plain, run) == 0, "other tokens or bits",
                "%s, %d ranks, %s drafts%s: the same tokens", fixture, w->n_ranks, drafts, name[way]);
        tap_all(!me || n_accepted == run->n_expected, "the numbers differ",
                "%s, %d ranks: all correct drafts are accepted, no others", fixture, w->n_ranks);
        tap_all(!me || (device != DEVICE_CPU && !fewer) || (run->n_unseen > n_requests) == (always && !fewer),
                "another number", "%s, %d ranks: the last drafts of two steps in flight never leave the device%s",
                fixture, w->n_ranks, fewer ? ", unless other devices need them" : "");
        if (always)
            tap_all(!me || s->n_draft_tokens > 4 * (uint64_t)n_requests, "few drafts", "%s, %d ranks: drafts", fixture,
                    w->n_ranks);
        if (always && same) {
            /* fewer ranks round other sums: in 16 bits tokens of nearly the same likelihood change places */
            uint64_t may_differ = fewer && invariant ? run->n_likeliest / 10 : 0;
            bool enough = too_few() || run->n_likeliest > (uint64_t)n_requests / 5;
            tap_all(!me || (enough && run->n_unlikely <= may_differ), "a draft differs from the likeliest token",
                    "%s, %d ranks: the same model makes the same tokens", fixture, w->n_ranks);
        }
        if (always && !same)
            tap_all(!me || n_accepted < s->n_draft_tokens / 4, "too many",
                    "%s, %d ranks: another model's drafts are rarely accepted", fixture, w->n_ranks);
        if (me)
            printf("# %s for %s: %llu of %llu drafts accepted in %llu steps; %llu of %llu likeliest wrong\n", drafts,
                   fixture, (unsigned long long)n_accepted, (unsigned long long)s->n_draft_tokens,
                   (unsigned long long)s->n_drafts, (unsigned long long)run->n_unlikely,
                   (unsigned long long)run->n_likeliest);
        scheduler_close(&run->scheduler);
        free(run);
    }
}

/* Counts drafts that differ among those that both runs made at the same positions; *n: these positions. */
static int count_other_drafts(const struct run *a, const struct run *b, int *n)
{
    int other = 0;
    *n = 0;
    for (int i = 0; i < n_requests; i++)
        for (int at = 0; at < MAX_TOKENS; at++)
            for (int k = 0; k < DRAFTS_MAX; k++) {
                int32_t x = a->made[i][at][k], y = b->made[i][at][k];
                *n += x != 0 && y != 0;
                other += x != 0 && y != 0 && x != y;
            }
    return other;
}

/* A head makes the same drafts with little memory, so that sequences are preempted and share blocks, and with
 * enough. */
static void check_head(struct world *w, const char *fixture, const char *head, const struct run *plain)
{
    struct instance i;
    struct run *run[2];
    bool me = w->rank == 0;
    const struct guess_rules rules = {.most = 4, .longest = 1, .shortest = 1, .always = true};
    for (int roomy = 0; roomy < 2; roomy++) {
        struct draft_model d = {0};
        run[roomy] = calloc(1, sizeof *run[roomy]);
        run[roomy]->made = calloc((size_t)n_requests, sizeof *run[roomy]->made);
        run[roomy]->alone = roomy;
        open_instance(&i, &d, w, fixture, head, MAX_LEN, 0, roomy ? 40 : N_BLOCKS);
        if (roomy)
            take_two_flights(&i, &d);
        run_all(&i, &d, run[roomy], plain, &rules);
        instance_close(&d.instance);
        instance_close(&i);
    }
    int n = 0, other = me ? count_other_drafts(run[0], run[1], &n) : 0;
    const struct scheduler_stats *s = &run[0]->scheduler.stats;
    tap_all(!me || (other == 0 && n > 2 * n_requests), "others, or too few",
            "%s, %d ranks, %s: the same %d drafts in two schedules", fixture, w->n_ranks, head, n);
    tap_all(!me || n_requests < N_REQUESTS || (s->n_preemptions > 0 && s->prefix_hits > 0), "none",
            "%s, %d ranks, %s: with preemption and sharing", fixture, w->n_ranks, head);
    for (int k = 0; k < 2; k++) {
        tap_all(!me || count_different(plain, run[k]) == 0, "other tokens or bits", "%s, %d ranks, %s: the same tokens",
                fixture, w->n_ranks, head);
        scheduler_close(&run[k]->scheduler);
        free(run[k]->made);
        free(run[k]);
    }
}

/* other: a model with the same vocabulary, or NULL. draft_len: the positions before the rotation changes. */
static void check_fixture(struct world *w, const char *fixture, const char *other, const char *head, int draft_len)
{
    const struct guess_rules none = {0}, replayed = {.most = DRAFTS_MAX};
    struct instance i;
    struct run *plain = calloc(1, sizeof *plain), *drafted = calloc(1, sizeof *drafted);
    open_instance(&i, NULL, w, fixture, NULL, 0, 0, N_BLOCKS);
    run_all(&i, NULL, plain, NULL, &none);
    run_all(&i, NULL, drafted, plain, &replayed);
    check_guesses(&i, fixture, plain);
    instance_close(&i);
    const struct scheduler_stats *s = &drafted->scheduler.stats;
    uint64_t n_accepted = all_accepted(s), n_output = s->n_output_tokens;
    bool me = w->rank == 0;
    int different = me ? count_different(plain, drafted) : 0;
    tap_all(different == 0, "other tokens or bits", "%s, %d ranks: %d requests have the same tokens with drafts",
            fixture, w->n_ranks, n_requests);
    tap_all(!me || n_accepted == drafted->n_expected, "the numbers differ",
            "%s, %d ranks: all correct drafts are accepted, no others", fixture, w->n_ranks);
    bool few = n_requests < N_REQUESTS;
    tap_all(!me || few ||
                (n_accepted > n_output / 3 && s->n_draft_tokens > n_accepted * 5 / 4 && s->n_accepted[10] > 0),
            "too few or too many", "%s, %d ranks: drafts of all kinds", fixture, w->n_ranks);
    tap_all(!me || few || (s->n_preemptions > 0 && s->prefix_hits > 0), "none",
            "%s, %d ranks: with preemption and sharing", fixture, w->n_ranks);
    check_model(w, fixture, fixture, draft_len, plain);
    if (other != NULL)
        check_model(w, fixture, other, draft_len, plain);
    if (head != NULL) {
        check_model(w, fixture, head, MAX_LEN, plain);
        check_head(w, fixture, head, plain);
    }
    scheduler_close(&plain->scheduler);
    scheduler_close(&drafted->scheduler);
    free(plain);
    free(drafted);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name, *other, *head;
        int draft_len;
        bool halves; /* weights of 16 bits */
    } fixture[] = {{"llama-14-2-gelu", "qwen3-f16", NULL, 40, false},
                   {"llama-dynamic-cross", NULL, NULL, 24, false},
                   {"mistral-window", "qwen3-tied", NULL, MAX_LEN, false},
                   {"llama-f16", NULL, "eagle3-llama", MAX_LEN, true},
                   {"qwen3-f16", NULL, "eagle3-speculators-qwen3", MAX_LEN, true},
                   {"glm4moe-groups", NULL, "mtp-glm4moe-groups", MAX_LEN, false},
                   {"deepseek3-f16", NULL, "mtp-deepseek3", MAX_LEN, true}};
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    tokenizer = letters_open();
    if (tokenizer == NULL)
        return 98;
    /* Rank 0 alone plans and accepts, whatever the number of ranks: fewer requests suffice there, under sanitizers, and
     * for ranks that share a GPU, since the GPU changes between them at every sum. On 3 ranks every second model runs,
     * on 4 the others. */
    bool slow = process_sanitized() || (w.n_ranks > 1 && getenv("SHARE_GPUS") != NULL);
    n_requests = slow ? N_REQUESTS / 5 : w.n_ranks > 2 ? N_REQUESTS / 2 : N_REQUESTS;
    invariant = argc > 1 && strcmp(argv[1], "invariant") == 0;
    if (invariant || (argc > 1 && strcmp(argv[1], "cuda") == 0))
        device = DEVICE_CUDA;
    int first = device == DEVICE_CUDA ? 2 : 1;
    const char *part = argc > first ? argv[first] : "";
    for (size_t i = 0; i < sizeof fixture / sizeof fixture[0]; i++)
        if (!(device == DEVICE_CUDA && fixture[i].halves && !invariant) &&
            (w.n_ranks < 3 || i % 2 == (size_t)w.n_ranks % 2) && strstr(fixture[i].name, part) != NULL)
            check_fixture(&w, fixture[i].name, fixture[i].other, fixture[i].head, fixture[i].draft_len);
    tokenizer_close(&tokenizer);
    int status = tap_done();
    world_close(&w);
    return status;
}
