/* tests/unit/test_suffixes.c - coordinator/drafts/suffixes.c compared with a search of the whole text, after every
 * token. */
#include "tests/unit/unit.h"

#include "coordinator/drafts/suffixes.h"

#include <stdbool.h>
#include <string.h>

#define MOST 600

/* Returns the length of the longest end of text[0, n) that occurs before; *place: the end of its last occurrence. */
static int longest_end(const int32_t *text, int n, int *place)
{
    int best = 0;
    for (int end = n - 1; end > 0; end--) {
        int length = 0;
        while (length < end && text[end - 1 - length] == text[n - 1 - length])
            length++;
        if (length > best) {
            best = length;
            *place = end;
        }
    }
    return best;
}

static void check_longest(const struct suffixes *x, const int32_t *text, int n)
{
    int32_t token[20];
    int n_equal = -1, place = 0, want = longest_end(text, n, &place);
    int got = suffixes_follow(x, 1, MOST, 20, token, &n_equal);
    assert_int_equal(n_equal, want);
    assert_int_equal(got, want > 0 ? 20 : 0);
    for (int i = 0; i < got; i++) /* the last occurrence, and the text repeats itself */
        assert_int_equal(token[i], place + i < n ? text[place + i] : token[place + i - n]);
    if (want > 0) {
        assert_int_equal(suffixes_follow(x, want + 1, MOST, 20, token, &n_equal), 0);
        assert_int_equal(n_equal, 0);
        assert_int_equal(suffixes_follow(x, want, MOST, 3, token, &n_equal), 3);
    }
}

/* Fewer letters, longer ends. */
static void finds_the_longest_end(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int trial = 0; trial < 60; trial++) {
        struct suffixes *x;
        struct err e = {0};
        int32_t text[MOST];
        int letters = 1 + random_below(&seed, trial % 2 == 0 ? 3 : 40),
            n = 1 + random_below(&seed, trial < 50 ? 120 : MOST);
        assert_int_equal(suffixes_open(&x, n, &e), 0);
        for (int i = 0; i < n; i++) {
            bool copies = i > 10 && random_below(&seed, 4) != 0;
            text[i] = copies ? text[i - 7] : random_below(&seed, letters);
            suffixes_add(x, text[i]);
            check_longest(x, text, i + 1);
        }
        suffixes_close(&x);
        suffixes_close(&x); /* harmless */
    }
}

/* An occurrence of the maximum length ends the search: nearer ones may continue differently. */
static void stops_at_the_longest(void **state)
{
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 9, 3, 4, 8, 1, 2, 3, 4};
    struct suffixes *x;
    struct err e = {0};
    int32_t token[2];
    int n_equal = 0;
    assert_int_equal(suffixes_open(&x, 12, &e), 0);
    for (int i = 0; i < 12; i++)
        suffixes_add(x, text[i]);
    assert_int_equal(suffixes_follow(x, 1, 4, 2, token, &n_equal), 2);
    assert_int_equal(token[0], 9);
    assert_int_equal(n_equal, 4);
    assert_int_equal(suffixes_follow(x, 1, 2, 2, token, &n_equal), 2);
    assert_int_equal(token[0], 8);
    assert_int_equal(n_equal, 2);
    suffixes_close(&x);
}

static void does_not_go_over_a_border(void **state)
{
    (void)state;
    static const int32_t text[] = {5, 6, 7, -1, 1, 6};
    struct suffixes *x;
    struct err e = {0};
    int32_t token[4];
    int n_equal = 0;
    assert_int_equal(suffixes_open(&x, 6, &e), 0);
    for (int i = 0; i < 6; i++)
        suffixes_add(x, text[i]);
    assert_int_equal(suffixes_follow(x, 1, 9, 4, token, &n_equal), 1);
    assert_int_equal(token[0], 7);
    suffixes_add(x, 7);
    assert_int_equal(suffixes_follow(x, 1, 9, 4, token, &n_equal), 0);
    suffixes_close(&x);
}

/* More tokens than there is room for: the remembered part is correct, and at least half of the room. */
static void forgets_the_beginning(void **state)
{
    (void)state;
    enum { ROOM = 64 };
    uint64_t seed = 8;
    struct suffixes *x;
    struct err e = {0};
    int32_t text[MOST], token[4];
    assert_int_equal(suffixes_open(&x, ROOM, &e), 0);
    for (int i = 0; i < MOST; i++) {
        int n_equal = 0, place = 0, from = i + 1 > ROOM / 2 ? i + 1 - ROOM / 2 : 0, longest = 0;
        text[i] = random_below(&seed, 3);
        suffixes_add(x, text[i]);
        (void)suffixes_follow(x, 1, MOST, 4, token, &n_equal);
        longest = longest_end(text + from, i + 1 - from, &place);
        assert_true(n_equal >= longest);
        assert_true(n_equal <= longest_end(text, i + 1, &place));
    }
    suffixes_close(&x);
}

static void the_largest_room(void **state)
{
    (void)state;
    struct suffixes *x;
    struct err e = {0};
    int32_t token[15];
    int n_equal = 0;
    assert_int_equal(suffixes_open(&x, INT64_MAX, &e), 0);
    for (int i = 0; i < 2 * SUFFIXES_MOST + 9; i++) /* one token repeated: the longest links */
        suffixes_add(x, 7);
    assert_int_equal(suffixes_follow(x, 5, 5, 15, token, &n_equal), 15);
    assert_true(n_equal >= 5);
    assert_int_equal(token[14], 7);
    suffixes_close(&x);
    assert_int_equal(suffixes_open(&x, 0, &e), 0);
    assert_int_equal(suffixes_follow(x, 1, 9, 15, token, &n_equal), 0);
    suffixes_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_longest_end),     cmocka_unit_test(stops_at_the_longest),
        cmocka_unit_test(does_not_go_over_a_border), cmocka_unit_test(forgets_the_beginning),
        cmocka_unit_test(the_largest_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
