/* tests/unit/test_units.c - coordinator/schedule/units.c: models that share one arena of KV memory. Each rule in
 * isolation; then thousands of random schedules, in which every request must get exactly the tokens that it gets alone
 * although all models read and write the same memory (tests/support/schedule.h): no unit is held twice, none is lost,
 * no block of a running sequence goes to another model, and every request finishes. */
#include "coordinator/schedule/units.h"
#include "tests/unit/unit.h"

#include "tests/support/process.h"
#include "tests/support/schedule.h"
#include "tests/unit/letters.h"

#include <stdlib.h>
#include <string.h>

#define PER_UNIT 3
#define LEAST    3 /* units: blocks for SCHEDULE_MAX_LEN tokens */

_Static_assert(LEAST *PER_UNIT *KV_BLOCK_TOKENS >= SCHEDULE_MAX_LEN, "one request can always run");

/* ---- rules, one by one ---- */

/* A list of blocks with units, without a scheduler. */
struct block_list {
    struct blocks blocks;
    int taken[200], n;
};

static void join(struct units *u, int i, struct block_list *p, int least, int most)
{
    struct err e = {0};
    struct blocks_source source[KV_KINDS];
    const struct unit_share share[KV_KINDS] = {{PER_UNIT, least, most}, {0}};
    memset(p, 0, sizeof *p);
    assert_int_equal(units_join(u, i, &p->blocks, share, source, &e), 0);
    assert_int_equal(blocks_open_shared(&p->blocks, PER_UNIT * most, &source[KV_MAIN], &e), 0);
}

/* Takes n blocks; returns the number available. */
static int take_many(struct block_list *p, int n)
{
    int got = 0;
    for (int block; got < n && (block = blocks_take(&p->blocks)) >= 0; got++)
        p->taken[p->n++] = block;
    return got;
}

/* Gives back the blocks that were taken first. */
static void give_back(struct block_list *p, int n)
{
    for (int i = 0; i < n; i++)
        blocks_give_back(&p->blocks, p->taken[i]);
    p->n -= n;
    memmove(p->taken, p->taken + n, (size_t)p->n * sizeof *p->taken);
}

static void leave_arena(struct units *u, int i, struct block_list *p)
{
    units_leave(u, i);
    blocks_close(&p->blocks);
}

static void grows_until_the_arena_is_full(void **state)
{
    (void)state;
    struct units u;
    struct block_list a;
    struct err e = {0};
    assert_int_equal(units_open(&u, 4, &e), 0);
    join(&u, 0, &a, 1, 10);
    units_note(&u, 0, true);
    assert_int_equal(a.blocks.n, 0);
    assert_int_equal(take_many(&a, 1), 1);
    assert_int_equal(a.blocks.n, PER_UNIT);
    assert_int_equal(take_many(&a, 100), 4 * PER_UNIT - 1);
    assert_int_equal(u.n_free, 0);
    leave_arena(&u, 0, &a);
    assert_int_equal(u.n_free, 4);
    join(&u, 0, &a, 1, 2); /* its own limit */
    units_note(&u, 0, true);
    assert_int_equal(take_many(&a, 100), 2 * PER_UNIT);
    assert_int_equal(u.n_free, 2);
    leave_arena(&u, 0, &a);
    units_close(&u);
}

/* The least recently used unit goes first, and its cached content is no longer found. */
static void idle_models_give_what_they_used_least(void **state)
{
    (void)state;
    struct units u;
    struct block_list a, b;
    struct err e = {0};
    int32_t token[KV_BLOCK_TOKENS] = {0};
    assert_int_equal(units_open(&u, 4, &e), 0);
    join(&u, 0, &a, 1, 10);
    join(&u, 1, &b, 1, 10);
    units_note(&u, 0, true);
    assert_int_equal(take_many(&a, 4 * PER_UNIT), 4 * PER_UNIT);
    for (int i = 0; i < 4 * PER_UNIT; i++) {
        token[0] = i;
        (void)blocks_share(&a.blocks, a.taken[i], 0, token, 1);
    }
    int block[4 * PER_UNIT];
    memcpy(block, a.taken, sizeof block);
    give_back(&a, 4 * PER_UNIT);
    units_note(&u, 0, false);
    units_note(&u, 1, true);
    assert_int_equal(take_many(&b, 1), 1);
    for (int i = 0; i < 4 * PER_UNIT; i++) {
        token[0] = i;
        assert_int_equal(blocks_find(&a.blocks, 0, token, 9), i < PER_UNIT ? -1 : block[i]);
    }
    assert_int_equal(take_many(&b, 100), 3 * PER_UNIT - 1); /* all but a's `least` */
    assert_int_equal(a.blocks.n, PER_UNIT);
    leave_arena(&u, 0, &a);
    leave_arena(&u, 1, &b);
    units_close(&u);
}

/* A busy model that has more than its part gives up units in use: they become free only when their blocks do. */
static void a_part_of_what_is_in_use(void **state)
{
    (void)state;
    struct units u;
    struct block_list a, b;
    struct err e = {0};
    assert_int_equal(units_open(&u, 4, &e), 0);
    join(&u, 0, &a, 1, 10);
    join(&u, 1, &b, 1, 10);
    units_note(&u, 0, true);
    units_note(&u, 1, true);
    assert_int_equal(take_many(&a, 100), 4 * PER_UNIT);
    assert_int_equal(take_many(&b, 1), 0);
    assert_int_equal(u.holder[KV_KINDS * 0].n_leaving, 1);
    assert_int_equal(take_many(&b, 1), 0);
    assert_int_equal(u.holder[KV_KINDS * 0].n_leaving, 1); /* no more than requested */
    while (take_many(&b, 1) == 0) {
        assert_true(a.n > 0);
        give_back(&a, 1);
        assert_int_equal(take_many(&a, 1), 0); /* returned blocks are not taken again while b waits for them */
    }
    assert_true(u.holder[KV_KINDS * 0].n_held == 3 && u.holder[KV_KINDS * 1].n_held == 1);
    assert_int_equal(take_many(&b, 100), PER_UNIT - 1); /* its part is one more unit */
    assert_int_equal(u.holder[KV_KINDS * 0].n_leaving, 1);
    give_back(&a, a.n);
    units_note(&u, 0, false);
    assert_int_equal(take_many(&b, 100), 2 * PER_UNIT);
    assert_int_equal(u.holder[KV_KINDS * 0].n_held, 1);
    leave_arena(&u, 0, &a);
    leave_arena(&u, 1, &b);
    assert_int_equal(u.n_free, 4);
    units_close(&u);
}

/* Three busy models hold everything: a fourth one gets its `least` before they get anything. */
static void least_goes_first(void **state)
{
    (void)state;
    struct units u;
    struct block_list part[4];
    struct err e = {0};
    assert_int_equal(units_open(&u, 8, &e), 0);
    for (int i = 0; i < 4; i++) {
        join(&u, i, &part[i], 2, 8);
        units_note(&u, i, true);
        if (i < 3)
            (void)take_many(&part[i], 100);
    }
    assert_int_equal(u.n_free, 0);
    assert_int_equal(take_many(&part[3], 1), 0);
    for (int round = 0; round < 1000 && u.holder[KV_KINDS * 3].n_held < 2; round++)
        for (int i = 0; i < 3; i++) { /* sequences end, and others begin at once */
            int n = part[i].n < 2 ? part[i].n : 2;
            give_back(&part[i], n);
            units_note(&u, 3, true);
            (void)take_many(&part[3], 1);
            units_note(&u, i, true);
            (void)take_many(&part[i], n + 1);
        }
    assert_int_equal(u.holder[KV_KINDS * 3].n_held, 2);
    for (int i = 0; i < 4; i++) {
        assert_true(u.holder[KV_KINDS * i].n_held - u.holder[KV_KINDS * i].n_leaving >= 0);
        leave_arena(&u, i, &part[i]);
    }
    units_close(&u);
}

/* Two kinds of blocks of a model, and another model. */
struct kinds {
    struct blocks blocks[KV_KINDS];
    int taken[KV_KINDS][100], n[KV_KINDS];
};

static void join_kinds(struct units *u, int i, struct kinds *k, const struct unit_share share[KV_KINDS])
{
    struct err e = {0};
    struct blocks_source source[KV_KINDS];
    memset(k, 0, sizeof *k);
    assert_int_equal(units_join(u, i, k->blocks, share, source, &e), 0);
    for (int kind = 0; kind < KV_KINDS; kind++)
        assert_int_equal(
            blocks_open_shared(&k->blocks[kind], share[kind].per_unit * share[kind].most, &source[kind], &e), 0);
}

static int take_kind(struct kinds *k, int kind, int n)
{
    int got = 0;
    for (int block; got < n && (block = blocks_take(&k->blocks[kind])) >= 0; got++)
        k->taken[kind][k->n[kind]++] = block;
    return got;
}

/* A unit has blocks of one kind; their number in it depends on the kind. Windows get up to half of a model's part, and
 * what one kind leaves unused goes to the other. */
static void two_kinds_of_a_model(void **state)
{
    (void)state;
    struct units u;
    struct kinds a;
    struct block_list b;
    struct err e = {0};
    const struct unit_share share[KV_KINDS] = {{2, 2, 12}, {5, 1, 8}};
    struct plan_block block[2];
    struct plan plan = {.n_blocks = 2, .block = block};
    assert_int_equal(units_open(&u, 12, &e), 0);
    join_kinds(&u, 1, &a, share);
    units_note(&u, 1, true);
    assert_int_equal(take_kind(&a, KV_WINDOWED, 6), 6);
    assert_int_equal(take_kind(&a, KV_MAIN, 3), 3);
    assert_int_equal(units_held(&u, 1), 4);
    block[0] = (struct plan_block){.kind = KV_WINDOWED, .block = a.taken[KV_WINDOWED][5]};
    block[1] = (struct plan_block){.kind = KV_MAIN, .block = a.taken[KV_MAIN][0]};
    units_number(&u, 1, &plan);
    assert_int_equal(u.owner[block[0].block / 5], KV_KINDS * 1 + KV_WINDOWED);
    assert_int_equal(u.owner[block[1].block / 2], KV_KINDS * 1 + KV_MAIN);
    assert_int_equal(take_kind(&a, KV_WINDOWED, 100), 8 * 5 - 6); /* its own limit */
    assert_int_equal(take_kind(&a, KV_MAIN, 100), 2 * 4 - 3);
    for (int i = 0; i < a.n[KV_WINDOWED]; i++)
        blocks_give_up(&a.blocks[KV_WINDOWED], a.taken[KV_WINDOWED][i]);
    assert_int_equal(take_kind(&a, KV_MAIN, 100), 2 * 7); /* all but the other kind's `least` */
    assert_int_equal(u.holder[KV_KINDS + KV_WINDOWED].n_held, 1);
    join(&u, 2, &b, 2, 12);
    units_note(&u, 2, true);
    assert_int_equal(take_many(&b, 1), 0);
    for (int i = 0; i < a.n[KV_MAIN]; i++)
        blocks_give_back(&a.blocks[KV_MAIN], a.taken[KV_MAIN][i]);
    units_note(&u, 1, false);
    assert_int_equal(take_many(&b, 100), 9 * PER_UNIT); /* all but the `least` of both kinds */
    assert_int_equal(units_held(&u, 1), 3);
    leave_arena(&u, 2, &b);
    units_leave(&u, 1);
    for (int kind = 0; kind < KV_KINDS; kind++)
        blocks_close(&a.blocks[kind]);
    assert_int_equal(u.n_free, 12);
    units_close(&u);
}

/* ---- random schedules ---- */

static uint64_t n_taken,
    n_windowed; /* units that one holder has got from another; models with windows; in all schedules */

#define MODELS       3
#define MOST_WINDOW  40
#define LEAST_WINDOW 2 /* units: blocks for such a window */

/* Each unit has one holder or none, and each held block's unit is its holder's. */
static void check_units(const struct units *u, struct schedule *const run[MODELS])
{
    int held[64] = {0}, n_held = 0;
    for (int i = 0; i < KV_KINDS * MODELS; i++) {
        const struct unit_holder *h = &u->holder[i];
        const struct schedule *r = run[i / KV_KINDS];
        int mine = 0, leaving = 0;
        for (int k = 0; h->blocks != NULL && k < h->share.most; k++) {
            for (int b = k * PER_UNIT; b < (k + 1) * PER_UNIT; b++) {
                assert_true(h->unit[k] >= 0 || r->s.blocks[i % KV_KINDS].block[b].n_holders == 0);
                assert_int_equal(r->s.blocks[i % KV_KINDS].block[b].away, h->unit[k] < 0 || h->leaving[k]);
            }
            if (h->unit[k] < 0)
                continue;
            assert_int_equal(u->owner[h->unit[k]], i);
            assert_int_equal(held[h->unit[k]]++, 0);
            mine++;
            leaving += h->leaving[k];
        }
        assert_true(h->blocks == NULL || (mine == h->n_held && leaving == h->n_leaving));
        n_held += mine;
    }
    assert_int_equal(n_held + u->n_free, u->n);
}

/* A third of the models have windows in some of their layers. */
static struct schedule *begin(struct units *u, int i, uint64_t *seed, uint64_t *kv)
{
    struct err e = {0};
    struct schedule *run = calloc(1, sizeof *run);
    bool windowed = random_below(seed, 3) == 0;
    const struct unit_share share[KV_KINDS] = {
        {PER_UNIT, LEAST, LEAST + random_below(seed, 6)},
        {windowed ? PER_UNIT : 0, LEAST_WINDOW, LEAST_WINDOW + random_below(seed, 6)}};
    struct scheduler_setup setup = schedule_setup(1 + random_below(seed, 8), 0, PER_UNIT * share[KV_MAIN].most);
    if (windowed) {
        setup.limits.n_window_blocks = PER_UNIT * share[KV_WINDOWED].most;
        setup.limits.window = 2 + random_below(seed, MOST_WINDOW - 1);
        assert_true(limits_window_blocks(setup.limits.window) <= LEAST_WINDOW * PER_UNIT);
    }
    setup.limits.max_batch_tokens = setup.limits.max_seqs + random_below(seed, 40);
    setup.prefix_caching = random_below(seed, 4) != 0;
    assert_int_equal(units_join(u, i, run->s.blocks, share, setup.source, &e), 0);
    schedule_open_shared(run, &setup, u, i, kv);
    n_windowed += windowed;
    return run;
}

static void finish(struct units *u, struct schedule **run, int i)
{
    for (int kind = 0; kind < KV_KINDS; kind++)
        n_taken += u->holder[KV_KINDS * i + kind].n_taken;
    assert_int_equal((*run)->n_released, (*run)->n);
    units_leave(u, i);
    schedule_close_shared(*run);
    free(*run);
    *run = NULL;
}

static void add_request(struct schedule *run, uint64_t *seed)
{
    struct request_rules rules = schedule_plain;
    int n = 1 + random_below(seed, random_below(seed, 3) == 0 ? 100 : 30);
    rules.max_tokens = 1 + random_below(seed, SCHEDULE_MAX_LEN - n < 60 ? SCHEDULE_MAX_LEN - n : 60);
    (void)schedule_add(run, &rules, n, (uint64_t)random_below(seed, 5));
}

/* Models come, get requests, cancel some of them, finish and go. */
static void random_schedule(uint64_t seed)
{
    struct units u;
    struct err e = {0};
    struct schedule *run[MODELS] = {0};
    int depth = random_below(&seed, SCHEDULER_FLIGHTS), n_steps = 0;
    assert_int_equal(units_open(&u, (LEAST + LEAST_WINDOW) * MODELS + random_below(&seed, 6), &e), 0);
    uint64_t *kv = calloc((size_t)u.n * PER_UNIT * KV_BLOCK_TOKENS, sizeof *kv);
    for (bool last = false; !last || run[0] != NULL || run[1] != NULL || run[2] != NULL; n_steps++) {
        last = last || n_steps > 150 + random_below(&seed, 100);
        int i = random_below(&seed, MODELS);
        if (run[i] == NULL && !last)
            run[i] = begin(&u, i, &seed, kv);
        if (run[i] == NULL)
            continue;
        struct schedule *r = run[i];
        if (!last && r->n < SCHEDULE_MAX_REQUESTS && random_below(&seed, 3) == 0)
            add_request(r, &seed);
        if (r->n > 0 && random_below(&seed, 30) == 0 && r->request[r->n - 1] != NULL)
            scheduler_cancel(&r->s, r->request[r->n - 1], FINISH_CANCELLED, r->now);
        units_note(&u, i, scheduler_busy(&r->s));
        schedule_step(r, depth);
        check_units(&u, run);
        bool done = !scheduler_busy(&r->s) && r->n_queued == 0;
        if (done && (last || r->n == SCHEDULE_MAX_REQUESTS || random_below(&seed, 50) == 0))
            finish(&u, &run[i], i);
        assert_true(n_steps < 30000);
    }
    assert_int_equal(u.n_free, u.n);
    units_close(&u);
    free(kv);
}

static void random_schedules(void **state)
{
    (void)state;
    int n = process_sanitized() ? 200 : 600;
    for (int i = 0; i < n; i++)
        random_schedule((uint64_t)i + 1);
    assert_true(n_taken > (uint64_t)n && n_windowed > (uint64_t)n / 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_until_the_arena_is_full), cmocka_unit_test(idle_models_give_what_they_used_least),
        cmocka_unit_test(a_part_of_what_is_in_use),      cmocka_unit_test(least_goes_first),
        cmocka_unit_test(two_kinds_of_a_model),          cmocka_unit_test(random_schedules),
    };
    return cmocka_run_group_tests(tests, schedule_open_letters, schedule_close_letters);
}
