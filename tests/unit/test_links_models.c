/* tests/unit/test_links_models.c - orders and reports about models that come and go, between rank 0 and the leader of
 * another set of ranks, in one process over a real connection. The device is simulated. */
#include "tests/unit/links.h"

#include "coordinator/replicas/leader.h"
#include "coordinator/tasks/model_orders.h"

#define SLOTS 3 /* in each of two sets */

struct sets {
    struct rank0 r;
    void *control[2][2];
    struct leader_link link; /* of set 1 */
};

static void open_sets(struct sets *s)
{
    struct rank0 *r = &s->r;
    struct err e = {0};
    memset(s, 0, sizeof *s);
    r->context = zmq_ctx_new();
    r->card = (struct link_card){.n_replicas = 2, .replica_size = 2, .n_slots = SLOTS, .timeout = 300};
    assert_int_equal(replicas_open(&r->replicas, r->context, 2 * SLOTS, 2, 4, &e), 0);
    assert_int_equal(mailbox_open(r->context, "models-0", s->control[0], &e), 0);
    assert_int_equal(mailbox_open(r->context, "models-1", s->control[1], &e), 0);
    void *const ends[] = {s->control[0][1], s->control[1][1]};
    assert_int_equal(hub_open(&r->hub, &r->replicas, ends, &r->card, true, &e), 0);
    assert_int_equal(leader_link_open(&s->link, &r->card, 1, true, &e), 0);
    assert_int_equal(leader_link_start(&s->link, &e), 0);
}

static void *next(void *mailbox)
{
    assert_true(mailbox_wait(mailbox, (long)(1e3 * PATIENT)));
    return mailbox_take(mailbox);
}

static void order_model(struct sets *s, const struct model_order *what)
{
    struct model_order *o = malloc(sizeof *o);
    *o = *what;
    assert_true(mailbox_post(s->control[1][0], o));
}

static void say_word(struct sets *s, const struct model_word *what)
{
    struct model_word *w = malloc(sizeof *w);
    *w = *what;
    assert_true(mailbox_post(s->link.control[1], w));
}

/* An order to load goes out, the report about it comes back. */
static void load_there(struct sets *s)
{
    const struct model_order load = {
        .kind = MODEL_LOAD, .slot = 2, .handle = s, .name = "a model", .dir = "/models/a\nmodel", .vocab = 500};
    order_model(s, &load);
    struct model_order *o = next(s->link.control[1]);
    assert_true(o->kind == MODEL_LOAD && o->slot == 2 && o->vocab == 500 && o->handle == NULL);
    assert_string_equal(o->name, load.name);
    assert_string_equal(o->dir, load.dir);
    free(o);
    struct model_word failed = {.kind = MODEL_FAILED, .slot = 1};
    ERR(&failed.why, ERR_INPUT, "no such file");
    say_word(s, &failed);
    say_word(s, &(struct model_word){.kind = MODEL_READY, .slot = 2, .phases.seconds = {1, 2.5}});
    struct model_word *w = next(s->control[1][0]);
    assert_true(w->kind == MODEL_FAILED && w->slot == 1 && w->why.code == ERR_INPUT);
    assert_string_equal(w->why.text, "no such file");
    free(w);
    w = next(s->control[1][0]);
    assert_true(w->kind == MODEL_READY && w->slot == 2 && w->phases.seconds[1] == 2.5 && w->why.code == ERR_NONE);
    free(w);
}

/* A task goes to its model's slot, and comes back from there. */
static void run_there(struct sets *s)
{
    void *slot = s->link.slot[2].end[1];
    struct task *task = make_task(7, 5);
    struct report *r = calloc(2, sizeof *r);
    struct report *loaded = malloc(sizeof *loaded), *done = malloc(sizeof *done);
    r->between_tokens.buckets = &buckets_token;
    r->iteration.buckets = &buckets_iteration;
    *loaded = *done = *r;
    free(r);
    loaded->loaded = true;
    loaded->max_len = 100;
    assert_true(mailbox_post(slot, loaded));
    struct report *heard = hear(&s->r, SLOTS + 2);
    assert_non_null(heard);
    assert_true(heard->loaded && s->r.replicas.replica[SLOTS + 2].max_len == 100);
    steps_report_free(heard);
    replicas_submit(&s->r.replicas, task, SLOTS + 2);
    struct order *o = next(slot);
    assert_true(o->kind == ORDER_SUBMIT && o->task->number == 7);
    done->done = o->task;
    done->ended = true; /* the model has ended, the set has not */
    free(o);
    assert_true(mailbox_post(slot, done));
    heard = hear(&s->r, SLOTS + 2);
    assert_non_null(heard);
    assert_ptr_equal(heard->done, task);
    steps_report_free(heard);
    task_close(task);
}

static void models_there(void **state)
{
    (void)state;
    struct sets s;
    struct err e = {0};
    open_sets(&s);
    load_there(&s);
    run_there(&s);
    order_model(&s, &(struct model_order){.kind = MODEL_DROP, .slot = 2});
    struct model_order *o = next(s.link.control[1]);
    assert_true(o->kind == MODEL_DROP && o->slot == 2);
    free(o);
    say_word(&s, &(struct model_word){.kind = MODEL_GONE, .slot = 2, .free_before = 1000, .freed = -77});
    say_word(&s, &(struct model_word){.kind = MODEL_ENDED});
    struct model_word *w = next(s.control[1][0]);
    assert_true(w->kind == MODEL_GONE && w->free_before == 1000 && w->freed == -77);
    free(w);
    w = next(s.control[1][0]);
    assert_int_equal(w->kind, MODEL_ENDED);
    free(w);
    leader_link_close(&s.link);
    assert_int_equal(hub_close(&s.r.hub, &e), 0);
    for (int i = 0; i < 4; i++)
        mailbox_close(&s.control[i / 2][i % 2]);
    replicas_close(&s.r.replicas);
    (void)zmq_ctx_term(s.r.context);
}

/* A report about a slot that does not exist ends the job. */
static void nonsense_of_models(void **state)
{
    (void)state;
    struct sets s;
    struct err e = {0};
    open_sets(&s);
    say_word(&s, &(struct model_word){.kind = MODEL_READY, .slot = SLOTS});
    for (double until = seconds_now() + PATIENT; hub_check(&s.r.hub, &e) == 0 && seconds_now() < until;)
        (void)mailbox_wait(s.control[1][0], 5);
    EXPECT_PARTS(&e, ERR_COMM, "replica 1 of 2 (ranks 2-3, led by rank 2",
                 "a word of a model does not fit: a model's number");
    say_word(&s, &(struct model_word){.kind = MODEL_ENDED});
    free(next(s.control[1][0]));
    leader_link_close(&s.link);
    e = (struct err){0};
    assert_int_equal(hub_close(&s.r.hub, &e), -1);
    for (int i = 0; i < 4; i++)
        mailbox_close(&s.control[i / 2][i % 2]);
    replicas_close(&s.r.replicas);
    (void)zmq_ctx_term(s.r.context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_there),
        cmocka_unit_test(nonsense_of_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
