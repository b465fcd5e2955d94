/* tests/unit/unit.h - cmocka with the headers that it requires first, and checks of errors that calls return. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

#include <string.h>

/* Expects the code, and exactly this text. */
static inline void expect_text(const struct err *e, enum err_code code, const char *text)
{
    if (e->code != code)
        print_error("code %d \"%s\", expected %d \"%s\"\n", e->code, e->text, code, text);
    assert_int_equal(e->code, code);
    assert_string_equal(e->text, text);
}

/* Expects the code, and one line that contains every one of the texts, which end with NULL. */
static inline void expect_parts(const struct err *e, enum err_code code, const char *const *part)
{
    if (e->code != code)
        print_error("code %d \"%s\", expected %d\n", e->code, e->text, code);
    assert_int_equal(e->code, code);
    assert_null(strchr(e->text, '\n'));
    for (; *part != NULL; part++) {
        if (strstr(e->text, *part) == NULL)
            print_error("\"%s\" is not in \"%s\"\n", *part, e->text);
        assert_non_null(strstr(e->text, *part));
    }
}

#define EXPECT_PARTS(e, code, ...) expect_parts((e), (code), (const char *const[]){__VA_ARGS__, NULL})

/* Expects no failure; prints one if there is. */
static inline void expect_none(const struct err *e)
{
    if (e->code != ERR_NONE)
        print_error("unexpected: %s\n", e->text);
    assert_int_equal(e->code, ERR_NONE);
}

/* splitmix64 */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* In [0, n). */
static inline int random_below(uint64_t *state, int n)
{
    return (int)(random_next(state) % (uint64_t)n);
}

#endif
