/* tests/unit/test_stop.c - text/stop.c, by hand and compared with a search over the whole text. */
#include "tests/unit/unit.h"

#include "tests/support/process.h"
#include "text/stop.h"

#include <stdlib.h>

struct trial {
    struct text_buffer text;
    struct stop_state state;
    size_t released;
    struct err e;
};

/* Pushes the pieces, split at '|'; true if a stop string was found, which must happen with the last piece. */
static bool push(struct trial *t, const struct stop_strings *s, const char *pieces, bool keep)
{
    bool found = false;
    *t = (struct trial){0};
    for (const char *at = pieces; *at != '\0';) {
        size_t n = strcspn(at, "|");
        assert_false(found);
        found = stop_append(s, &t->state, &t->text, &t->released, at, n, keep, &t->e);
        expect_none(&t->e);
        at += n + (at[n] == '|');
    }
    return found;
}

#define CASE(pieces, keep, want_found, want_text, want_released, ...)                              \
    do {                                                                                           \
        const char *const stops_[] = {__VA_ARGS__};                                                \
        struct err e_ = {0};                                                                       \
        struct stop_strings *s_ = stop_open((int)(sizeof stops_ / sizeof stops_[0]), stops_, &e_); \
        struct trial t_;                                                                           \
        bool found_ = push(&t_, s_, pieces, keep);                                                 \
        stop_close(s_);                                                                            \
        assert_int_equal(found_, want_found);                                                      \
        assert_int_equal(t_.state.found > 0, want_found);                                          \
        assert_string_equal(t_.text.data, want_text);                                              \
        assert_int_equal(t_.text.bytes, strlen(want_text));                                        \
        assert_int_equal(t_.released, want_released);                                              \
        text_free(&t_.text);                                                                       \
    } while (0)

static void by_hand(void **state)
{
    (void)state;
    CASE("hello STOP more", false, true, "hello ", 6, "STOP");
    CASE("hello STOP more", true, true, "hello STOP", 10, "STOP");
    CASE("STOP", false, true, "", 0, "STOP");
    CASE("hello S|TO|P!", false, true, "hello ", 6, "STOP");
    CASE("h|S|T|O|P", true, true, "hSTOP", 5, "STOP");
    CASE("hello ST", false, false, "hello ST", 6, "STOP");
    CASE("hello ST|ART", false, false, "hello START", 11, "STOP");
    CASE("aaab", false, true, "a", 1, "aab");
    CASE("a|a|a|b", false, true, "a", 1, "aab");
    CASE("aa|a", false, false, "aaa", 1, "aab");
    CASE("a|a|a|a|c", false, false, "aaaac", 5, "aab");
    CASE("abab|ab|c", false, true, "ab", 2, "ababc");
    CASE("xyz", false, true, "x", 1, "z", "yz");  /* leftmost */
    CASE("xyz", true, true, "xyz", 3, "y", "yz"); /* longest of those that begin there */
    CASE("xyz", true, true, "xyz", 3, "yz", "y");
    CASE("x|y", true, true, "xy", 2, "yz", "y"); /* a complete match counts, not one that might become longer */
}

static void which_string(void **state)
{
    static const char *const stops[] = {"y", "zz", "yz"};
    struct trial t;
    (void)state;
    struct stop_strings *s = stop_open(3, stops, &(struct err){0});
    assert_true(push(&t, s, "x|yz", false));
    assert_int_equal(t.state.found, 3); /* the longest of the leftmost ones */
    text_free(&t.text);
    assert_true(push(&t, s, "xzz", false));
    assert_int_equal(t.state.found, 2);
    text_free(&t.text);
    stop_close(s);
}

static void by_hand_more(void **state)
{
    (void)state;
    CASE("abc|de", false, false, "abcde", 2, "cdefgh", "efg", "dx");
    CASE("ab||cd", false, true, "ab", 2, "cd"); /* an empty piece */
    CASE("n\n|\nq", false, true, "n", 1, "\n\n");
    CASE("na\xc3|\xa9 x", false, true, "na", 2, "\xc3\xa9");
    struct trial t = {0};
    assert_false(stop_append(NULL, &t.state, &t.text, &t.released, "any", 3, false, &t.e));
    assert_int_equal(t.released, 3);
    assert_false(stop_append(NULL, &t.state, &t.text, &t.released, "\0x", 2, false, &t.e)); /* NUL is text */
    assert_int_equal(t.released, 5);
    assert_memory_equal(t.text.data, "any\0x", 6);
    text_free(&t.text);
    assert_null(t.text.data);
}

/* Finds the stop string furthest to the left in the text so far, the longest if several begin there. */
static bool naive_find(const struct stop_strings *s, const char *text, size_t *begin, size_t *length)
{
    for (*begin = 0; text[*begin] != '\0'; (*begin)++) {
        *length = 0;
        for (int i = 0; i < s->n; i++)
            if (strncmp(text + *begin, s->string[i].text, s->string[i].bytes) == 0 && s->string[i].bytes > *length)
                *length = s->string[i].bytes;
        if (*length > 0)
            return true;
    }
    return false;
}

/* Returns the first byte of the longest tail that begins a stop string. */
static size_t naive_release(const struct stop_strings *s, const char *text)
{
    for (size_t at = 0; text[at] != '\0'; at++)
        for (int i = 0; i < s->n; i++)
            if (strncmp(text + at, s->string[i].text, strlen(text + at)) == 0)
                return at;
    return strlen(text);
}

static void random_trial(uint64_t *seed)
{
    char stop[3][8], whole[200] = "";
    const char *text[3] = {stop[0], stop[1], stop[2]};
    struct err e = {0};
    int n_stops = 1 + random_below(seed, 3);
    for (int i = 0; i < 3; i++) {
        int n = 1 + random_below(seed, 6);
        for (int k = 0; k < n; k++)
            stop[i][k] = (char)('a' + random_below(seed, 2));
        stop[i][n] = '\0';
    }
    struct stop_strings *s = stop_open(n_stops, text, &e);
    expect_none(&e);
    bool keep = random_below(seed, 2) == 0, found = false;
    struct trial t = {0};
    size_t previous = 0;
    for (int i = 0; i < 20 && !found; i++) {
        char piece[8] = "";
        for (int k = random_below(seed, 5); k > 0; k--)
            piece[k - 1] = (char)('a' + (random_below(seed, 12) == 0 ? 2 : random_below(seed, 2)));
        size_t n = strlen(piece), begin, length;
        char *copy = malloc(n); /* not terminated: no byte beyond it may be read */
        memcpy(copy, piece, n);
        found = stop_append(s, &t.state, &t.text, &t.released, copy, n, keep, &t.e);
        free(copy);
        strcat(whole, piece);
        assert_int_equal(found, naive_find(s, whole, &begin, &length));
        if (found) {
            whole[begin + (keep ? length : 0)] = '\0';
            assert_int_equal(t.released, strlen(whole));
            assert_true(begin >= previous); /* no part of the stop string had been released */
        } else {
            assert_int_equal(t.released, naive_release(s, whole));
        }
        assert_string_equal(t.text.data, whole);
        assert_true(t.released >= previous);
        previous = t.released;
    }
    text_free(&t.text);
    stop_close(s);
}

static void random_texts(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int i = 0; i < 100000; i++)
        random_trial(&seed);
}

/* Every string has the maximum length and differs from the text only in its last byte: the text consists of partial
 * matches. Prints the milliseconds of a step of all sequences: the worst and the mean. */
static void long_strings(void **state)
{
    (void)state;
    enum { SEQUENCES = 64, STRINGS = 15, STEPS = 600, PIECE = 4 };
    static char text[STRINGS][STOP_MAX_BYTES + 1];
    static struct trial t[SEQUENCES];
    const char *list[STRINGS];
    double worst = 0, sum = 0;
    struct err e = {0};
    for (int i = 0; i < STRINGS; i++) {
        memset(text[i], 'a', STOP_MAX_BYTES);
        text[i][STOP_MAX_BYTES - 1] = (char)('c' + i);
        list[i] = text[i];
    }
    struct stop_strings *s = stop_open(STRINGS, list, &e);
    expect_none(&e);
    for (int k = 0; k < STEPS; k++) {
        double begin = process_cpu_seconds();
        for (int i = 0; i < SEQUENCES; i++)
            assert_false(stop_append(s, &t[i].state, &t[i].text, &t[i].released, "aaaa", PIECE, false, &e));
        double took = process_cpu_seconds() - begin;
        worst = took > worst ? took : worst;
        sum += took;
    }
    for (int i = 0; i < SEQUENCES; i++) {
        assert_int_equal(t[i].text.bytes - t[i].released, STOP_MAX_BYTES - 1);
        assert_true(stop_append(s, &t[i].state, &t[i].text, &t[i].released, "q", 1, false, &e));
        assert_int_equal(t[i].text.bytes, STEPS * PIECE + 1 - STOP_MAX_BYTES);
        text_free(&t[i].text);
    }
    stop_close(s);
    print_message("# %d stop strings of %d bytes, %d sequences: %.3f ms per step, at worst %.3f ms\n", STRINGS,
                  STOP_MAX_BYTES, SEQUENCES, 1e3 * sum / STEPS, 1e3 * worst);
    assert_true(process_sanitized() || 1e3 * sum / STEPS < 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),      cmocka_unit_test(which_string), cmocka_unit_test(by_hand_more),
        cmocka_unit_test(random_texts), cmocka_unit_test(long_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
