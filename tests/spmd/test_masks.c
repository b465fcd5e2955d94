/* tests/spmd/test_masks.c - sequences whose text must have a form, among free ones, on an engine with one step in
 * flight or two: with two the masks arrive late, between a step's logits and its tokens. With drafts, each of which has
 * its own mask, too. The tokens are the same, and every form is kept. argument: a device; on it the demo runs in
 * float32, whose tokens are the same under any close rounding. */
#include "coordinator/schedule/scheduler.h"
#include "rank/instance/instance.h"
#include "rank/measure/meter.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/scheduled.h"
#include "tests/support/tap.h"

#include <stdlib.h>
#include <string.h>

#define MODEL      "demo/lockstep-stories"
#define N_REQUESTS 14
#define MAX_TOKENS 60
#define MAX_DRAFTS 12

struct run {
    struct scheduler scheduler;
    struct request request[N_REQUESTS];
    const struct run *plain; /* the run whose tokens are the drafts; NULL: no drafts */
    uint64_t random;
    int n_here, n_late, n_late_steps;
    uint64_t n_metered, n_waited; /* on every rank: steps with late masks according to the meter */
};

static struct tokenizer *tokenizer;
static struct lexicon_keeper keeper;
static struct form *form[3];

static void open_forms(int32_t vocab)
{
    static const struct {
        enum form_kind kind;
        const char *source;
    } rows[3] = {
        {FORM_SCHEMA, "{\"type\":\"object\",\"properties\":{\"little_dragon\":{\"type\":\"integer\",\"maximum\":99},"
                      "\"story\":{\"type\":\"string\",\"maxLength\":20},\"end\":{\"const\":\"once upon a time\"}},"
                      "\"required\":[\"little_dragon\",\"story\",\"end\"],\"additionalProperties\":false}"},
        {FORM_REGEX, "\"[a-c]{3}-[0-9]{2} and so on\""},
        {FORM_CHOICE, "[\"a little dragon\",\"a little cloud\",\"nobody\"]"},
    };
    struct err e = {0};
    if (tokenizer_open(&tokenizer, MODEL, &e) != 0)
        fatal(&e);
    lexicon_keeper_open(&keeper, tokenizer, vocab);
    for (int i = 0; i < 3; i++)
        if (form_open_text(&form[i], rows[i].kind, rows[i].source, strlen(rows[i].source), &e) != 0)
            fatal(&e);
}

static int below(uint64_t *seed, int n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((*seed >> 33) % (uint64_t)n);
}

/* Drafts the tokens that came without drafts, up to a random position, and then arbitrary ones, which a form may
 * forbid. */
static int propose(void *context, struct request *q, int n, int32_t *token)
{
    struct run *r = context;
    const struct token_list *plain = &r->plain->request[q->index].output;
    int n_right = below(&r->random, 2) == 0 ? n : below(&r->random, n);
    for (int i = 0; i < n; i++) {
        size_t at = q->output.n + (size_t)i;
        token[i] = i < n_right && at < plain->n ? plain->id[at] : 1 + below(&r->random, keeper.n_tokens - 1);
    }
    return n;
}

static int next(void *context, struct plan *plan, struct err *e)
{
    struct run *r = context;
    (void)scheduled_next(&r->scheduler, plan, e);
    r->n_here += plan->n_masks;
    r->n_late += plan->n_late;
    r->n_late_steps += plan->n_late > 0;
    return 0;
}

static int accept(void *context, const struct step_result *result, struct err *e)
{
    return scheduler_accept(&((struct run *)context)->scheduler, result, 0, e);
}

static void masks(void *context, struct plan *plan)
{
    scheduler_masks(&((struct run *)context)->scheduler, plan);
}

/* Every second request is free; some are scored, some want log-probabilities of a form's tokens. */
static void make_rules(struct request_rules *rules)
{
    for (int i = 0; i < N_REQUESTS; i++)
        rules[i] = (struct request_rules){
            .max_tokens = i == 5 ? 7 : MAX_TOKENS,
            .skip_special = true,
            .want_logprobs = i % 4 == 3,
            .want_prompt_logprobs = i % 5 == 4,
            .form = i % 2 == 1 ? form[i / 2 % 3] : NULL,
            .n_stop_ids = 1,
            .stop_id = {0},
            .sampling = {
                .temperature = i % 3 == 0 ? 0 : 1.5f, .top_p = 1, .repetition_penalty = i == 7 ? 1.2f : 1, .seed = 5}};
}

static void on_report(void *context, const struct rank_report *report)
{
    struct run *r = context;
    for (int i = 0; i < report->n_ranks; i++) {
        r->n_metered += report->recent[i].n_late;
        r->n_waited += report->recent[i].n_waited;
    }
}

static void play(struct instance *i, struct run *r, const struct request_rules *rules, int flights,
                 const struct run *plain)
{
    struct err e = {0};
    const struct loop_client client = {.context = r, .next = next, .accept = accept, .masks = masks};
    struct scheduler_setup setup = {.limits = i->engine.limits, .tokenizer = tokenizer, .lexicon = &keeper};
    *r = (struct run){.plain = plain, .random = 9};
    if (plain != NULL) {
        setup.guesses.most = 5;
        setup.drafts = (struct draft_source){propose, r};
    }
    if (i->engine.world->rank == 0 && scheduler_open(&r->scheduler, &setup, &e) != 0)
        fatal(&e);
    for (int k = 0; k < N_REQUESTS && i->engine.world->rank == 0; k++) {
        struct request *q = &r->request[k];
        int n = 3 + 5 * (k % 4);
        *q = (struct request){.rules = &rules[k], .index = k};
        q->prompt = (struct token_list){calloc((size_t)n, sizeof(int32_t)), (size_t)n, (size_t)n};
        for (int t = 0; t < n; t++)
            q->prompt.id[t] = 40 + (k * 7 + t * 11) % 900;
        if (scheduler_add(&r->scheduler, q, 0, &e) != 0)
            fatal(&e);
    }
    struct meter m;
    i->engine.n_flights = flights;
    if (meter_open(&m, &i->engine, 1, on_report, r, &e) != 0)
        fatal(&e);
    loop_run(&i->engine, &client, &e);
    meter_close(&m);
}

static void close_run(struct run *r)
{
    for (int k = 0; k < N_REQUESTS; k++)
        request_close(&r->request[k]);
    scheduler_close(&r->scheduler);
}

static bool has_form(const struct request *r)
{
    struct err e = {0};
    const struct grammar *g = r->rules->form != NULL ? &r->rules->form->grammar : NULL;
    return r->finish == FINISH_LENGTH || g == NULL ||
           machine_matches(&g->graph, g->start, r->text.data, r->text.bytes, &e);
}

/* exact: to the last bit, as on CPUs. */
static bool same_output(const struct request *a, const struct request *b, bool exact)
{
    if (a->output.n != b->output.n || a->finish != b->finish ||
        memcmp(a->output.id, b->output.id, a->output.n * sizeof *a->output.id) != 0)
        return false;
    for (size_t i = 0; exact && i < a->output.n && a->logprobs != NULL; i++)
        if (a->logprobs[i].logprob != b->logprobs[i].logprob)
            return false;
    return true;
}

static void compare(const struct world *w, const struct run *one, const struct run *two, bool exact)
{
    int n_bad = 0, n_other = 0, n_stopped = 0;
    for (int k = 0; k < N_REQUESTS && w->rank == 0; k++) {
        const struct request *a = &one->request[k], *b = &two->request[k];
        n_bad += !has_form(a) || !has_form(b);
        n_stopped += a->rules->form != NULL && a->finish == FINISH_STOP;
        n_other += !same_output(a, b, exact);
    }
    tap_all(n_bad == 0, "a text differs", "texts have their forms on %d ranks", w->n_ranks);
    tap_all(n_other == 0, "the tokens differ", "two steps in flight make the tokens of one on %d ranks", w->n_ranks);
    tap_all(w->rank != 0 || (one->n_late == 0 && one->n_here > 50 && two->n_late > 50 && n_stopped > 3), "few masks",
            "masks arrive with the plan, or late");
    const struct run *run[2] = {one, two};
    for (int i = 0; i < 2; i++)
        tap_all(w->rank != 0 || (run[i]->n_metered == (uint64_t)run[i]->n_late_steps * (uint64_t)w->n_ranks &&
                                 run[i]->n_waited <= run[i]->n_metered),
                "other steps", "the meter counts steps with late masks, %d in flight", i + 1);
}

static void compare_drafted(const struct world *w, const struct run *plain, const struct run *drafted, bool exact)
{
    const struct scheduler_stats *s = &drafted->scheduler.stats;
    int n_other = 0;
    for (int k = 0; k < N_REQUESTS && w->rank == 0; k++)
        n_other += !same_output(&plain->request[k], &drafted->request[k], exact);
    tap_all(n_other == 0, "the tokens differ", "drafts change no token on %d ranks", w->n_ranks);
    tap_all(w->rank != 0 || (s->n_accepted[0] > 20 && s->n_accepted[2] > 5 && s->n_draft_tokens > s->n_accepted[0]),
            "few drafts", "drafts of all kinds have masks");
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance instance;
    struct request_rules rules[N_REQUESTS];
    struct run one, two, drafted[2];
    struct instance_setup setup = {.limits = {.max_seqs = 6,
                                              .max_batch_tokens = 40,
                                              .max_len = 96,
                                              .max_logit_rows = 24,
                                              .n_blocks = 44,
                                              .max_drafts = MAX_DRAFTS},
                                   .kv_bytes = -1,
                                   .threads = 1,
                                   .progress = PROGRESS_NEVER};
    char dir[256] = "";
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    setup.device = argc > 1 && strcmp(argv[1], "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    if (w.rank == 0)
        (void)models_for_device(dir, argc, argv, 0);
    if (w.rank == 0 && model_config_read(&m, models_demo(), &e) == 0)
        (void)checkpoint_open(&c, models_demo(), &e);
    fatal_agree(&w, &e);
    instance_open(&instance, &w, &m, &c, &setup, &e);
    open_forms(instance.network.config.vocab);
    make_rules(rules);
    play(&instance, &one, rules, 1, NULL);
    play(&instance, &two, rules, 2, NULL);
    compare(&w, &one, &two, setup.device == DEVICE_CPU);
    for (int i = 0; i < 2; i++) {
        play(&instance, &drafted[i], rules, 1 + i, &one);
        compare_drafted(&w, &one, &drafted[i], setup.device == DEVICE_CPU);
        close_run(&drafted[i]);
    }
    close_run(&one);
    close_run(&two);
    for (int i = 0; i < 3; i++)
        form_close(form[i]);
    lexicon_keeper_close(&keeper);
    tokenizer_close(&tokenizer);
    instance_close(&instance);
    if (dir[0] != '\0')
        files_remove_dir(dir);
    int status = tap_done();
    world_close(&w);
    return status;
}
