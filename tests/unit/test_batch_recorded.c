/* tests/unit/test_batch_recorded.c - coordinator/batch/recorded.c and prefix.c: detects whether the part of an input
 * that an earlier run has read is unchanged. */
#include "tests/unit/unit.h"

#include "coordinator/batch/input.h"
#include "coordinator/batch/prefix.h"
#include "coordinator/batch/recorded.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* NULL: no relevant change. */
static void expect_recorded(const json_t *was, const char *name, const char *change)
{
    struct inputs in;
    struct err e = {0};
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path(name)}, 1, &e), 0);
    assert_int_equal(recorded_check(was, &in, "out", &e), change != NULL ? -1 : 0);
    if (change != NULL)
        EXPECT_PARTS(&e, ERR_INPUT, "--output out", change, "--force");
    else
        expect_none(&e);
    inputs_close(&in);
}

/* Returns the record of the file after this many lines were read. */
static json_t *record(const char *name, int lines)
{
    struct inputs in;
    struct input_line line;
    struct err e = {0};
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path(name)}, 1, &e), 0);
    for (int i = 0; i < lines && inputs_next(&in, &line, &e) == INPUT_LINE; i++)
        continue;
    json_t *list = recorded_inputs(&in);
    assert_non_null(list);
    inputs_close(&in);
    return list;
}

static void recorded(void **state)
{
    (void)state;
    files_write(folder, "a", "one\ntwo\n", 8);
    files_write(folder, "b", "one\ntwo\n", 8);
    json_t *was = record("a", 2);
    expect_recorded(was, "a", NULL);
    expect_recorded(was, "b", "/a is no longer an input");
    files_write(folder, "a", "one\ntwo\nthree\n", 14);
    expect_recorded(was, "a", NULL);
    files_write(folder, "a", "new\none\ntwo\n", 12);
    expect_recorded(was, "a", "/a has changed between bytes 0 and 8, lines 1 and 2");
    files_write(folder, "a", "one\n", 4);
    expect_recorded(was, "a", "/a has become shorter than the 8 bytes");
    assert_int_equal(unlink(folder_path("a")) | mkfifo(folder_path("a"), 0600), 0);
    expect_recorded(was, "a", "/a is not a file that can be read again");
    json_decref(was);
    int fd = open(folder_path("a"), O_RDWR | O_CLOEXEC);
    assert_int_equal(write(fd, "one\n", 4), 4);
    was = record("a", 1);
    assert_int_equal(close(fd), 0);
    expect_recorded(was, "a", "/a is not a file that can be read again");
    json_decref(was);
    was = record("b", 0); /* no line of it was read */
    files_write(folder, "b", "other\n", 6);
    expect_recorded(was, "b", NULL);
    expect_recorded(was, "a", NULL);
    json_decref(was);
    was = json_loads("[{\"path\": \"x\", \"bytes\": 3, \"sha256\": \"00\"}]", 0, NULL);
    (void)json_object_set_new(json_array_get(was, 0), "path", json_string(folder_path("b")));
    expect_recorded(was, "b", "/b is recorded in a format that this version does not know");
    json_decref(was);
}

/* A last line may receive its missing newline, but no further bytes. */
static void recorded_last_line(void **state)
{
    (void)state;
    files_write(folder, "a", "one\ntwo", 7);
    json_t *was = record("a", 2);
    expect_recorded(was, "a", NULL);
    files_write(folder, "a", "one\ntwo\nthree", 13);
    expect_recorded(was, "a", NULL);
    files_write(folder, "a", "one\ntwofold\n", 12);
    expect_recorded(was, "a", "/a has changed between bytes 0 and 8, lines 1 and 2");
    files_write(folder, "a", "one\ntw", 6);
    expect_recorded(was, "a", "/a has become shorter");
    json_decref(was);
}

static char *make_large(size_t bytes, uint64_t *random)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = i % 1000 == 999 ? '\n' : (char)('a' + random_below(random, 26));
    return text;
}

/* Every byte counts, and the position of a change is reported as precisely as the marks allow. */
static void recorded_large(void **state)
{
    (void)state;
    size_t bytes = (9 << 20) + 77;
    uint64_t random = 3;
    char *text = make_large(bytes + 1, &random);
    files_write(folder, "large", text, bytes);
    json_t *was = record("large", INT_MAX);
    const json_t *read = json_object_get(json_array_get(was, 0), "read");
    assert_in_range(json_array_size(json_object_get(read, "marks")), 32, 63);
    files_write(folder, "large", text, bytes + 1);
    expect_recorded(was, "large", "has changed"); /* the last line continues */
    for (int i = 0; i < 40; i++) {
        size_t at = i == 0 ? 0 : i == 1 ? bytes - 1 : (size_t)random_below(&random, (int)bytes);
        struct prefix_change c;
        struct err e = {0};
        char before = text[at];
        text[at] = before == '#' ? '*' : '#';
        files_write(folder, "large", text, bytes);
        int fd = open(folder_path("large"), O_RDONLY | O_CLOEXEC);
        assert_int_equal(prefix_check(read, fd, "large", &c, &e), 0);
        (void)close(fd);
        assert_true(c.from <= (int64_t)at && (int64_t)at < c.to && c.to - c.from <= 256 << 10);
        assert_int_equal(c.first_line, c.from / 1000 + 1);
        assert_in_range(c.last_line, c.to / 1000, c.to / 1000 + 1);
        expect_recorded(was, "large", "has changed between bytes");
        text[at] = before;
    }
    json_decref(was);
    free(text);
}

/* Unread parts may change. */
static void recorded_part(void **state)
{
    (void)state;
    size_t bytes = 5 << 20;
    uint64_t random = 4;
    char *text = make_large(bytes, &random);
    files_write(folder, "large", text, bytes);
    json_t *was = record("large", 10);
    text[bytes - 5] = '#';
    files_write(folder, "large", text, bytes);
    expect_recorded(was, "large", NULL);
    text[9500] = '#';
    files_write(folder, "large", text, bytes);
    expect_recorded(was, "large", "has changed between bytes 0 and 65536, lines 1 and 66");
    json_decref(was);
    free(text);
}

/* A manifest is untrusted input. */
static void recorded_strange(void **state)
{
    (void)state;
    static const char *const strange[] = {
        "{}",
        "{\"bytes\":-1,\"hash\":\"0\",\"stride\":65536,\"marks\":[]}",
        "{\"bytes\":4,\"hash\":\"0\",\"stride\":0,\"marks\":[]}",
        "{\"bytes\":4,\"hash\":\"0\",\"stride\":65536,\"marks\":[\"0\"]}",
        "{\"bytes\":70000,\"hash\":\"0\",\"stride\":65536,\"marks\":7}",
    };
    files_write(folder, "a", "one\n", 4);
    int fd = open(folder_path("a"), O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        struct prefix_change c;
        struct err e = {0};
        json_t *was = json_loads(strange[i], 0, NULL);
        assert_int_equal(prefix_check(was, fd, "a", &c, &e), -1);
        EXPECT_PARTS(&e, ERR_INPUT, "the manifest's hash of a is invalid");
        json_decref(was);
    }
    json_t *was = json_loads("{\"bytes\":4,\"hash\":7,\"stride\":65536,\"marks\":[]}", 0, NULL);
    struct prefix_change c;
    struct err e = {0};
    assert_int_equal(prefix_check(was, fd, "a", &c, &e), 0);
    assert_int_equal(c.to, 4);
    json_decref(was);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(recorded),      FOLDER_TEST(recorded_large),   FOLDER_TEST(recorded_last_line),
        FOLDER_TEST(recorded_part), FOLDER_TEST(recorded_strange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
