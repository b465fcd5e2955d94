/* tests/unit/test_step_model.c - coordinator/schedule/step_model.c on machines of random speeds: after a few observed
 * steps, steps with a bound keep the bound and use it. */
#include "tests/unit/unit.h"

#include "coordinator/schedule/step_model.h"

#include <math.h>

enum { LEARN = 60, STEPS = 1500 }; /* steps; those of LEARN are not checked */

static uint64_t seed;

static double uniform(double low, double high)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(seed >> 11) * 0x1p-53;
}

static double by_powers(double low, double high)
{
    return exp(uniform(log(low), log(high)));
}

struct machine {
    double token, pair, row, key, step; /* seconds */
    double floor;                       /* seconds: a step takes this plus a part of the rest */
    double noise;                       /* relative */
};

static double true_seconds(const struct machine *m, const struct step_work *w)
{
    double busy = m->token * w->tokens + m->row * w->rows;
    return m->step + fmax(m->floor, busy) + m->pair * w->pairs + m->key * w->keys;
}

static double measured(const struct machine *m, const struct step_work *w)
{
    return true_seconds(m, w) * (1 + m->noise * uniform(-1, 1));
}

/* Returns a machine between a CPU of a few cores and a large GPU. */
static struct machine any_machine(void)
{
    double token = by_powers(5e-6, 1e-2);
    return (struct machine){.token = token,
                            .pair = token * by_powers(1e-6, 1e-4),
                            .row = token * uniform(0.5, 2),
                            .key = token * by_powers(1e-5, 1e-3),
                            .step = token * uniform(0, 20),
                            .floor = token * uniform(0, 300),
                            .noise = uniform(0, 0.04)};
}

struct load {
    int n_decode, pos;
    double context;
};

static struct step_work decode_work(const struct load *l)
{
    return (struct step_work){.rows = l->n_decode, .keys = l->n_decode * l->context};
}

/* Sequences come and go, prompts progress and begin anew. */
static void change(struct load *l, int fed)
{
    l->n_decode += (int)uniform(-3, 4);
    l->n_decode = l->n_decode < 1 ? 1 : l->n_decode > 256 ? 256 : l->n_decode;
    l->context = fmin(fmax(l->context * uniform(0.98, 1.02), 100), 4000);
    l->pos = uniform(0, 1) < 0.2 ? 0 : l->pos + fed;
}

/* Returns a bound in which decode steps leave room. */
static double any_bound(const struct machine *m)
{
    struct step_work most = {.rows = 256, .keys = 256 * 4000.0}, with = step_work_with(&most, 0, 256);
    return true_seconds(m, &with) * uniform(1, 4);
}

struct outcome {
    int n_bounded, n_late;
    double fed, best; /* tokens: those fed, and those that would have fitted */
};

static int ideal(const struct machine *m, const struct step_work *w, int pos, int n, double seconds)
{
    int fits = 0;
    for (int step = 4096; step > 0; step /= 2) {
        struct step_work with = step_work_with(w, pos, fits + step);
        if (fits + step <= n && true_seconds(m, &with) <= seconds)
            fits += step;
    }
    return fits;
}

/* Runs steps, some of which feed prompts. The results of a step are known after the next one was planned. */
static struct outcome run_steps(struct step_model *model, const struct machine *m, double bound, double prompts,
                                int n_steps)
{
    struct outcome o = {0};
    struct load l = {.n_decode = 1 + (int)uniform(0, 200), .context = uniform(100, 4000)};
    struct step_work before = {0};
    double seconds = 0;
    for (int i = 0; i < n_steps; i++) {
        struct step_work work = decode_work(&l);
        int n = uniform(0, 1) < prompts ? step_model_fit(model, &work, l.pos, 8192, bound) : 0;
        int best = ideal(m, &work, l.pos, 8192, bound);
        assert_true(n >= 0 && n <= 8192);
        step_model_add(model, &before, true, seconds);
        if (n > 0)
            work = step_work_with(&work, l.pos, n);
        before = work;
        seconds = measured(m, &work);
        if (n > 0 && i >= n_steps - STEPS + LEARN) {
            o.n_bounded++;
            o.n_late += seconds > bound;
            o.fed += n;
            o.best += best;
        }
        change(&l, n);
    }
    return o;
}

/* One step in twenty may be late; at least this share of the tokens that fit is used. */
static void check_outcome(uint64_t first, struct outcome o, double share)
{
    if (o.n_late > 1 + 0.05 * o.n_bounded || o.fed < share * o.best)
        fail_msg("seed %llu: %d of %d late, %.0f tokens of %.0f", (unsigned long long)first, o.n_late, o.n_bounded,
                 o.fed, o.best);
}

static void machines_keep_bounds(void **state)
{
    (void)state;
    for (seed = 1; seed < 200;) {
        uint64_t first = seed;
        struct machine m = any_machine();
        struct step_model model = {0};
        double bound = any_bound(&m);
        check_outcome(first, run_steps(&model, &m, bound, 0.75, STEPS), 0.75);
        seed = first + 1;
    }
}

static void scale(struct machine *m, double factor)
{
    m->token *= factor;
    m->pair *= factor;
    m->row *= factor;
    m->key *= factor;
    m->step *= factor;
    m->floor *= factor;
}

/* Another process takes a third of the machine, or three of them end. */
static void other_speeds_are_noticed(void **state)
{
    (void)state;
    for (seed = 1; seed < 100;) {
        uint64_t first = seed;
        struct machine m = any_machine();
        struct step_model model = {0};
        double bound = 1.5 * any_bound(&m);
        (void)run_steps(&model, &m, bound, 0.75, STEPS);
        scale(&m, first % 2 == 0 ? 1.5 : 0.25);
        check_outcome(first, run_steps(&model, &m, bound, 0.75, STEPS + 150), 0.75);
        seed = first + 1;
    }
}

/* A server that had no prompts for a long time remembers their cost. */
static void prompts_are_remembered(void **state)
{
    (void)state;
    for (seed = 1; seed < 100;) {
        uint64_t first = seed;
        struct machine m = any_machine();
        struct step_model model = {0};
        double bound = any_bound(&m);
        m.noise = 0.15;
        (void)run_steps(&model, &m, bound, 0.75, STEPS);
        (void)run_steps(&model, &m, bound, 0, STEPS);
        check_outcome(first, run_steps(&model, &m, bound, 0.02, STEPS), 0.5);
        seed = first + 1;
    }
}

static void nothing_is_known(void **state)
{
    (void)state;
    struct step_model m = {0};
    const struct step_work none = {0}, one = {.rows = 1, .keys = 10};
    assert_int_equal(step_model_fit(&m, &one, 0, 1000, 1), 32);
    assert_int_equal(step_model_fit(&m, &one, 0, 7, 1), 7);
    step_model_add(&m, &none, false, 0); /* a clock that does not advance */
    assert_true(step_model_seconds(&m, &one) == 0);
    struct step_work prompt = step_work_with(&none, 0, 100);
    step_model_add(&m, &prompt, false, 1);
    int n = step_model_fit(&m, &one, 0, 1000, 0.5); /* no more than one by one */
    assert_true(n > 0 && n <= 50);
    assert_int_equal(step_model_fit(&m, &one, 0, 1000, 0), 0);
}

/* One step that took a hundred times as long has little effect. */
static void an_accident_is_forgotten(void **state)
{
    (void)state;
    struct step_model model = {0};
    seed = 3;
    struct machine m = {.token = 1e-4, .row = 1e-4, .key = 1e-9, .step = 1e-3};
    (void)run_steps(&model, &m, 0.1, 0.75, STEPS);
    struct step_work work = {.rows = 50, .keys = 50000};
    int before = step_model_fit(&model, &work, 0, 8192, 0.1);
    struct step_work with = step_work_with(&work, 0, before);
    step_model_add(&model, &with, true, 10);
    int after = step_model_fit(&model, &work, 0, 8192, 0.1);
    assert_true(before > 700 && after > before * 8 / 10);
}

/* From time to time the host is late: the results of two steps come at once, those of the first after both of them. */
static void results_that_come_at_once(void **state)
{
    (void)state;
    for (seed = 1; seed < 60;) {
        uint64_t first = seed;
        struct machine m = any_machine();
        struct step_model model = {0};
        double bound = any_bound(&m);
        struct load l = {.n_decode = 50, .context = 500};
        struct step_work work = decode_work(&l);
        (void)run_steps(&model, &m, bound, 0.75, STEPS);
        for (int i = 0; i < 4; i++) {
            struct step_work with = step_work_with(&work, 0, ideal(&m, &work, 0, 8192, bound));
            double seconds = true_seconds(&m, &with);
            step_model_add(&model, &with, true, 2 * seconds);
            step_model_add(&model, &with, true, 1e-4 * seconds);
        }
        struct step_work with = step_work_with(&work, 0, step_model_fit(&model, &work, 0, 8192, bound));
        if (true_seconds(&m, &with) > 1.3 * bound)
            fail_msg("seed %llu: %g s, bound %g", (unsigned long long)first, true_seconds(&m, &with), bound);
        seed = first + 1;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_keep_bounds),     cmocka_unit_test(other_speeds_are_noticed),
        cmocka_unit_test(prompts_are_remembered),   cmocka_unit_test(nothing_is_known),
        cmocka_unit_test(an_accident_is_forgotten), cmocka_unit_test(results_that_come_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
