/* tests/unit/test_batch_apart.c - coordinator/batch/apart.c: two files of a batch must not be the same file. */
#include "tests/unit/unit.h"

#include "coordinator/batch/apart.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

#include <unistd.h>

/* first NULL: all differ; else the message contains these parts. */
static void expect_apart(const char *output, const char *status, const char *first, const char *second)
{
    const struct apart_file file[] = {{"--output", output}, {"the manifest", NULL}, {"--status-file", status}};
    struct inputs in;
    struct err e = {0};
    assert_int_equal(inputs_open(&in, (const char *[]){folder_path("in")}, 1, &e), 0);
    assert_int_equal(apart_check(file, 3, &in, &e), first != NULL ? -1 : 0);
    if (first != NULL)
        EXPECT_PARTS(&e, ERR_USAGE, first, "the same file as", second);
    inputs_close(&in);
}

static void apart(void **state)
{
    (void)state;
    files_write(folder, "in", "x\n", 2);
    files_write(folder, "there", "", 0);
    assert_int_equal(symlink("there", folder_path("link")), 0);
    assert_int_equal(symlink(".", folder_path("folder")), 0);
    expect_apart("-", "-", NULL, NULL);
    expect_apart("-", NULL, NULL, NULL);
    expect_apart(folder_path("out"), folder_path("out.status"), NULL, NULL);
    expect_apart(folder_path("there"), folder_path("out"), NULL, NULL);
    expect_apart(folder_path("there"), folder_path("link"), "--status-file", "--output");
    expect_apart(folder_path("out"), folder_path("./folder/out"), "--status-file", "--output");
    expect_apart(folder_path("folder/in"), NULL, "--output", "--input");
    expect_apart(folder_path("out"), folder_path("in"), "--status-file", "--input");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
