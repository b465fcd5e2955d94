/* tests/ops/check.h - shared by the tests of operations: seeded inputs, guarded outputs, comparison of every
 * element. */
#ifndef TESTS_OPS_CHECK_H
#define TESTS_OPS_CHECK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/ops.h"
#include "tests/support/backend.h"

#define GUARD_WORDS 16
#define GUARD       0xDEADBEEFu
#define POISON      0x7FC0BAD1u /* a NaN: an element that was not written fails every comparison */

/* An array of n floats between guard words. */
struct guarded {
    uint32_t *base;
    float *data;
    size_t n;
};

static inline struct guarded guarded_open(size_t n)
{
    if (n > INT32_MAX)
        abort();
    struct guarded g = {.base = malloc((n + 2 * GUARD_WORDS) * sizeof(uint32_t)), .n = n};
    assert_non_null(g.base);
    for (size_t i = 0; i < n + 2 * GUARD_WORDS; i++)
        g.base[i] = i < GUARD_WORDS || i >= GUARD_WORDS + n ? GUARD : POISON;
    g.data = (float *)(g.base + GUARD_WORDS);
    return g;
}

static inline void guarded_check(const struct guarded *g)
{
    for (size_t i = 0; i < GUARD_WORDS; i++) {
        if (g->base[i] != GUARD || g->base[GUARD_WORDS + g->n + i] != GUARD)
            fail_msg("a guard word %zu from an array of %zu was overwritten", i, g->n);
    }
}

static inline void guarded_close(struct guarded *g)
{
    guarded_check(g);
    free(g->base);
    g->base = NULL;
}

/* Returns n zeroed elements; a valid pointer also for n = 0. */
static inline void *zeroed(size_t n, size_t size)
{
    if (n > INT32_MAX)
        abort();
    void *p = calloc(n > 0 ? n : 1, size);
    assert_non_null(p);
    return p;
}

/* xorshift64*: the tests' own generator. */
static inline uint64_t random_bits(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545F4914F6CDD1Du;
}

static inline float random_float(uint64_t *state) /* in [-1, 1) */
{
    return (float)((double)(random_bits(state) >> 11) / 4503599627370496.0 - 1.0);
}

static inline int random_int(uint64_t *state, int n) /* in [0, n) */
{
    return (int)(random_bits(state) % (uint64_t)n);
}

static inline void random_fill(float *x, size_t n, uint64_t *state, float scale)
{
    for (size_t i = 0; i < n; i++)
        x[i] = as_act(scale * random_float(state));
}

/* Makes a weight of exactly its size on the heap, so that AddressSanitizer sees accesses beyond it. */
static inline struct weight random_weight(enum dtype type, int rows, int cols, uint64_t *state, float scale)
{
    size_t n = (size_t)rows * (size_t)cols;
    struct weight w = {.data = malloc(n * dtype_bytes(type) + (n == 0)), .type = type, .rows = rows, .cols = cols};
    assert_non_null(w.data);
    for (size_t i = 0; i < n; i++)
        dtype_store(w.data, type, i, scale * random_float(state));
    return w;
}

static inline double weight_at(const struct weight *w, int r, int c)
{
    return dtype_load(w->data, w->type, (size_t)r * w->cols + c);
}

/* For slow tools: LOCKSTEP_CASE_STRIDE=7 runs every seventh of a test's cases. The strides span all loops, so every
 * kind of case is among them. */
static inline int case_stride(void)
{
    const char *stride = getenv("LOCKSTEP_CASE_STRIDE");
    return stride != NULL && atoi(stride) > 1 ? atoi(stride) : 1;
}

static inline bool left_out(void)
{
    static int n_cases;
    return n_cases++ % case_stride() != 0;
}

/* Compares every element within atol + rtol |want|, plus a few roundings if activations have 16 bits; NaN on either
 * side fails. */
static inline void close_enough(const char *what, const float *got, const double *want, size_t n, double atol,
                                double rtol)
{
    size_t worst = n;
    double worst_excess = 0;
    double rounding = backend_act() == DTYPE_F32 ? 0 : 4 * (backend_act() == DTYPE_F16 ? 0x1p-12 : 0x1p-9);
    for (size_t i = 0; i < n; i++) {
        double excess = fabs((double)got[i] - want[i]) - (atol + rtol * fabs(want[i]) + rounding * (1 + fabs(want[i])));
        bool bad = !(excess <= 0);
        if (bad && (worst == n || !(excess <= worst_excess))) {
            worst = i;
            worst_excess = excess;
        }
    }
    if (worst < n)
        fail_msg("%s: element %zu of %zu is %.9g, expected %.9g", what, worst, n, (double)got[worst], want[worst]);
}

/* Runs the group once for every backend and activation type; the names of its tests contain "cuda f16", for example. */
static inline int run_everywhere(const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    const char *backend;
    for (int i = 0; (backend = backend_select(i)) != NULL; i++) {
        struct CMUnitTest named[32];
        static char name[32][80];
        if (n > 32)
            abort();
        for (size_t k = 0; k < n; k++) {
            named[k] = tests[k];
            snprintf(name[k], sizeof name[k], "%s: %s", backend, tests[k].name);
            named[k].name = name[k];
        }
        failed += _cmocka_run_group_tests(backend, named, n, NULL, NULL);
    }
    return failed;
}

#endif
