/* tests/unit/test_batch_input.c - coordinator/batch/input.c: the lines of files, patterns and pipes, and files that
 * are not inputs. */
#include "tests/unit/unit.h"

#include "coordinator/batch/input.h"
#include "coordinator/batch/journal.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Expects these lines, as "a:1:text|...". */
static void expect_lines(const char *const *pattern, int n, const char *wanted)
{
    struct inputs in;
    struct err e = {0};
    struct input_line line;
    enum input_got got;
    char all[1000] = "";
    assert_int_equal(inputs_open(&in, pattern, n, &e), 0);
    expect_none(&e);
    while ((got = inputs_next(&in, &line, &e)) == INPUT_LINE) {
        const char *name = strrchr(inputs_name(&in, line.file), '/');
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "%s:%lld/%lld:%.*s|", name + 1, (long long)line.number,
                       (long long)line.index, (int)line.bytes, line.text);
    }
    assert_int_equal(got, INPUT_END);
    assert_int_equal(in.bytes_read, in.bytes);
    inputs_close(&in);
    assert_string_equal(all, wanted);
}

static void input_lines(void **state)
{
    (void)state;
    files_write(folder, "b", "one\ntwo\r\n\n  \nlast", 17);
    files_write(folder, "a1", "\n\n", 2);
    files_write(folder, "a2", "x\n", 2);
    files_write(folder, "none", "", 0);
    files_write(folder, "a*", "star\n", 5);
    expect_lines((const char *[]){folder_path("b")}, 1, "b:1/0:one|b:2/1:two|b:5/4:last|");
    expect_lines((const char *[]){folder_path("none"), folder_path("a[12]"), folder_path("b")}, 3,
                 "a2:1/2:x|b:1/3:one|b:2/4:two|b:5/7:last|");
    expect_lines((const char *[]){folder_path("a*")}, 1, "a*:1/0:star|"); /* an existing name is not a pattern */
    expect_lines((const char *[]){folder_path("a?")}, 1, "a*:1/0:star|a2:1/3:x|");
}

/* Byte order marks at the beginning of a file; all bytes count. */
static void input_marks(void **state)
{
    (void)state;
    struct inputs in;
    struct err e = {0};
    files_write(folder, "m1",
                "\xef\xbb\xbf"
                "one\n\xef\xbb\xbf"
                "two\n",
                14);
    files_write(folder, "m2", "\xef\xbb\xbf\nthree", 9);
    expect_lines((const char *[]){folder_path("m?")}, 1,
                 "m1:1/0:one|m1:2/1:\xef\xbb\xbf"
                 "two|m2:2/3:three|");
    files_write(folder, "wide", "\xff\xfe{\0}\0\n\0", 8);
    const char *wide = folder_path("wide");
    assert_int_equal(inputs_open(&in, &wide, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, wide, ": a byte order mark of UTF-16, expected UTF-8");
    inputs_close(&in);
}

/* Files that users give by mistake are refused before a model is loaded for them. */
static void input_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *begin, *want;
    } cases[] = {
        {"\x1f\x8b\x08", ": a file of the format gzip, expected text: unpack it first (gunzip)"},
        {"\x28\xb5\x2f\xfd", ": a file of the format Zstandard, expected text: unpack it first (unzstd)"},
        {"\xfd\x37zXZ", ": a file of the format XZ, expected text: unpack it first (unxz)"},
        {"BZh91AY&SY", ": a file of the format bzip2, expected text: unpack it first (bunzip2)"},
        {"PK\x03\x04", ": a file of the format ZIP, expected text: unpack it first (unzip)"},
        {"PAR1\x15", ": a file of the format Parquet, expected text: convert it first"},
    };
    struct inputs in;
    const char *path = folder_path("packed");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e = {0};
        files_write(folder, "packed", cases[i].begin, strlen(cases[i].begin));
        assert_int_equal(inputs_open(&in, &path, 1, &e), -1);
        EXPECT_PARTS(&e, ERR_INPUT, path, cases[i].want);
        inputs_close(&in);
    }
    struct err e = {0};
    assert_int_equal(inputs_open(&in, (const char *[]){folder}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "--input ", folder, ": a folder, expected a file; quote \"", folder,
                 "/*.jsonl\" for its files");
    inputs_close(&in);
}

/* Outputs as inputs, for example of another share: with a manifest, or locked before it has one. */
static void input_outputs(void **state)
{
    (void)state;
    static const char manifest[] = "{\"format\":\"plain\",\"synced_bytes\":0}";
    struct inputs in;
    struct journal j;
    struct err e = {0};
    files_write(folder, "a.x", "one\n", 4);
    files_write(folder, "b.x", "{}\n", 3);
    files_write(folder, "b.x.manifest.json", manifest, strlen(manifest));
    files_write(folder, "c.x", "three\n", 6);
    files_write(folder, "c.x.manifest.json", "{\"state\":\"somebody's\"}", 22);
    assert_int_equal(journal_open(&j, folder_path("d.x"), 0, &e), 0);
    expect_lines((const char *[]){folder_path("*.x")}, 1, "a.x:1/0:one|c.x:1/1:three|");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(inputs_open(&in, (const char *[]){folder_path(i == 0 ? "b.x" : "d.x")}, 1, &e), -1);
        EXPECT_PARTS(&e, ERR_USAGE, i == 0 ? "/b.x" : "/d.x", "the output of a batch");
        inputs_close(&in);
        e = (struct err){0};
    }
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path("[bd].x")}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "only outputs of batches");
    inputs_close(&in);
    journal_close(&j);
    expect_lines((const char *[]){folder_path("d*")}, 1, "");
}

static void input_refused(void **state)
{
    (void)state;
    struct inputs in;
    struct err e = {0};
    files_write(folder, "a", "x\n", 2);
    assert_int_equal(symlink(folder_path("a"), folder_path("b")), 0);
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path("gone")}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "/gone", "no file has this name");
    inputs_close(&in);
    e = (struct err){0};
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path("*.jsonl")}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "*.jsonl", "matches it");
    inputs_close(&in);
    e = (struct err){0};
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path("a"), folder_path("b")}, 2, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, "/b", "the same file as", "/a");
    inputs_close(&in);
    e = (struct err){0};
    assert_int_equal(inputs_open(&in, (const char *[]){folder}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "a folder");
    inputs_close(&in);
}

/* A line above the limit is reported once, and the next one has the right number. */
static void input_long_line(void **state)
{
    (void)state;
    size_t bytes = INPUT_MAX_LINE_BYTES + (3 << 20);
    struct inputs in;
    struct err e = {0};
    struct input_line line;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'x', bytes);
    memcpy(text, "first\n", 6);
    memcpy(text + bytes - 5, "\nend\n", 5);
    files_write(folder, "long", text, bytes);
    free(text);
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path("long")}, 1, &e), 0);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_int_equal(line.bytes, 5);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_null(line.text);
    assert_int_equal(line.number, 2);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_memory_equal(line.text, "end", 3);
    assert_int_equal(line.number, 3);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_END);
    inputs_close(&in);
}

static void input_pipe(void **state)
{
    (void)state;
    struct inputs in;
    struct err e = {0};
    struct input_line line;
    assert_int_equal(mkfifo(folder_path("pipe"), 0600), 0);
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path("pipe")}, 1, &e), 0);
    assert_int_equal(in.bytes, 0);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_WAIT); /* no writer yet */
    int fd = open(folder_path("pipe"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_WAIT);
    assert_int_equal(write(fd, "ab\ncd", 5), 5);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_memory_equal(line.text, "ab", 2);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_WAIT); /* half a line */
    (void)close(fd);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_memory_equal(line.text, "cd", 2);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_END);
    inputs_close(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(input_lines),   FOLDER_TEST(input_refused), FOLDER_TEST(input_long_line), FOLDER_TEST(input_pipe),
        FOLDER_TEST(input_outputs), FOLDER_TEST(input_marks),   FOLDER_TEST(input_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
