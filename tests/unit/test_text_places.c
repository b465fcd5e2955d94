/* tests/unit/test_text_places.c - base/text_places.c: characters at which tokens begin. */
#include "base/text_places.h"
#include "tests/unit/unit.h"

#include <string.h>

static void expect(struct text_places *p, const char *piece, int64_t place)
{
    assert_int_equal(text_place(p, piece, strlen(piece)), place);
}

static void expect_name(struct text_places *p, const char *name, int64_t place)
{
    assert_int_equal(text_place_of_name(p, name, strlen(name)), place);
}

static void counts_characters(void **state)
{
    (void)state;
    struct text_places p = {"a\xc3\xa9 b", 5, 0, 0};
    expect(&p, "a\xc3\xa9", 0);
    expect(&p, "", 2);
    expect(&p, " b", 2);
    expect(&p, "", 4);
}

/* All parts of a character are where it is, also if its first part is not known, or the next one begins with its
 * end. */
static void parts_of_characters(void **state)
{
    (void)state;
    struct text_places p = {"x\xf0\x9f\x98\x80\xc3\xa9!", 8, 0, 0};
    expect(&p, "x\xf0", 0);
    expect(&p, "\x9f\x98", 1);
    expect(&p, "\x80\xc3", 1);
    expect(&p, "\xa9!", 2);
    expect(&p, "", 4);
    p = (struct text_places){"\xc3\xa9!", 3, 0, 0};
    expect(&p, "\xa9", 0);
    expect(&p, "!", 1);
}

/* Special tokens count only where the text has their names. */
static void special_tokens(void **state)
{
    (void)state;
    struct text_places p = {"<s>a<s>", 7, 0, 0};
    expect_name(&p, "<b>", 0);
    expect_name(&p, "<s>", 0);
    expect_name(&p, "<s>", 3);
    expect(&p, "a", 3);
    expect_name(&p, "<s>", 4);
    expect_name(&p, "<s>", 7);
    p = (struct text_places){NULL, 0, 0, 5};
    expect_name(&p, "<s>", 5);
}

static void first_space(void **state)
{
    (void)state;
    struct text_places p = {"Once upon", 9, 0, 0};
    expect_name(&p, "<s>", 0);
    expect(&p, " Once", 0);
    expect(&p, " upon", 4);
    p = (struct text_places){" Once", 5, 0, 0};
    expect(&p, " Once", 0);
    expect(&p, "!", 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_characters),
        cmocka_unit_test(parts_of_characters),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(first_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
