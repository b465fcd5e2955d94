/* tests/unit/test_batch_manifest.c - coordinator/batch/manifest.c: the origin of an output, and the settings that
 * another run must not change. */
#include "tests/unit/unit.h"

#include "coordinator/batch/manifest.h"
#include "tests/support/files.h"
#include "tests/support/folder.h"

#include <unistd.h>

static json_t *identity(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    return object;
}

static void expect_judged(const char *was, const char *is, const char *key, const char *found, const char *expected)
{
    struct manifest m;
    struct err e = {0};
    (void)unlink(folder_path("out.manifest.json"));
    assert_int_equal(manifest_open(&m, folder_path("out"), identity(was), &e), 0);
    assert_int_equal(manifest_check(&m, "out", &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "out", "--force");
    e = (struct err){0};
    assert_int_equal(
        manifest_write(
            &m, json_pack("{s:s, s:i, s:{s:i}}", "state", "running", "synced_bytes", 17, "tokens", "prompt", 5), &e),
        0);
    manifest_close(&m);
    assert_int_equal(manifest_open(&m, folder_path("out"), identity(is), &e), 0);
    assert_int_equal(manifest_synced(&m), 17);
    assert_int_equal(manifest_number(&m, "tokens", "prompt"), 5);
    assert_int_equal(manifest_check(&m, "out", &e), key != NULL ? -1 : 0);
    if (key != NULL)
        EXPECT_PARTS(&e, ERR_INPUT, "out", key, found, expected, "--force");
    manifest_close(&m);
}

static void manifests(void **state)
{
    (void)state;
    static const char was[] =
        "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":0,\"defaults\":{\"top_p\":0.5}}";
    expect_judged(was, was, NULL, NULL, NULL);
    expect_judged(was, "{\"model\":{\"config\":\"1\",\"weights\":\"3\"},\"seed\":0,\"defaults\":{\"top_p\":0.5}}",
                  "model.weights", "\"2\"", "\"3\"");
    expect_judged(was, "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":1,\"defaults\":{\"top_p\":0.5}}",
                  "seed", "0", "1");
    expect_judged(was, "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":0,\"defaults\":{}}", "defaults.top_p",
                  "0.5", "not set");
    expect_judged(
        was, "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":0,\"defaults\":{\"top_p\":0.5,\"top_k\":4}}",
        "defaults.top_k", "not set", "4");
    struct manifest m;
    struct err e = {0};
    files_write(folder, "out.manifest.json", "{\"model\"", 8);
    assert_int_equal(manifest_open(&m, folder_path("out"), identity("{}"), &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "out.manifest.json");
    manifest_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOLDER_TEST(manifests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
