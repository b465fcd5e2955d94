/* tests/unit/test_repository.c - base/repository.h: repositories in a cache such as the Hub's tools leave it. */
#include "tests/unit/unit.h"

#include "base/repository.h"
#include "commands/models/discover.h"
#include "coordinator/drafts/draft_options.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define QWEN "models--Qwen--Qwen3-8B"
#define HASH "0123456789abcdef0123456789abcdef01234567"

static char cache[256];
static struct repository found;

static void make_folder(const char *below)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", cache, below);
    assert_return_code(mkdir(path, 0700), 0);
}

static void write_at(const char *below, const char *name, const char *text)
{
    char dir[600];
    (void)snprintf(dir, sizeof dir, "%s/%s", cache, below);
    files_write_text(dir, name, text);
}

/* A repository with the revision HASH, and one without refs. */
static int open_cache(void **state)
{
    (void)state;
    files_make_dir(cache);
    (void)setenv("HF_HUB_CACHE", cache, 1);
    (void)unsetenv("HUGGINGFACE_HUB_CACHE");
    make_folder(QWEN);
    make_folder(QWEN "/refs");
    make_folder(QWEN "/snapshots");
    make_folder(QWEN "/snapshots/" HASH);
    make_folder(QWEN "/snapshots/older");
    write_at(QWEN "/refs", "main", HASH);
    write_at(QWEN "/snapshots/" HASH, "config.json", "{}");
    make_folder("models--gpt2");
    make_folder("models--gpt2/snapshots");
    make_folder("models--gpt2/snapshots/aa");
    write_at("models--gpt2/snapshots/aa", "config.json", "{}");
    return 0;
}

static int close_cache(void **state)
{
    (void)state;
    files_remove_dir(cache);
    return 0;
}

static void expect_found(const char *model, const char *name, const char *below)
{
    struct err e = {0};
    char folder[600];
    (void)snprintf(folder, sizeof folder, "%s/%s", cache, below);
    assert_int_equal(repository_find(&found, model, NULL, &e), 1);
    assert_string_equal(found.name, name);
    assert_string_equal(found.folder, folder);
}

static void names_are_found(void **state)
{
    char home[256], below[600];
    (void)state;
    expect_found("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", QWEN "/snapshots/" HASH);
    expect_found("gpt2", "gpt2", "models--gpt2/snapshots/aa");
    files_make_dir(home); /* HF_HOME counts where HF_HUB_CACHE is empty */
    (void)setenv("HF_HUB_CACHE", "", 1);
    (void)setenv("HF_HOME", home, 1);
    (void)snprintf(below, sizeof below, "%s/hub", home);
    assert_return_code(symlink(cache, below), 0);
    struct err e = {0};
    assert_int_equal(repository_find(&found, "gpt2", NULL, &e), 1);
    assert_non_null(strstr(found.folder, "/hub/models--gpt2/snapshots/aa"));
    assert_return_code(unlink(below), 0);
    files_remove_dir(home);
    (void)unsetenv("HF_HOME");
    (void)setenv("HF_HUB_CACHE", cache, 1);
}

static void folders_are_found(void **state)
{
    char path[600];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/" QWEN, cache);
    expect_found(path, "Qwen/Qwen3-8B", QWEN "/snapshots/" HASH);
    struct err e = {0};
    (void)snprintf(path, sizeof path, "%s/" QWEN "/snapshots/" HASH, cache); /* a model's folder is used as it is */
    assert_int_equal(repository_find(&found, path, NULL, &e), 0);
    assert_string_equal(found.folder, "");
}

static void others_are_not(void **state)
{
    static const char *const names[] = {"../Qwen3-8B", "Qwen/../x", "a/b/c", "/etc", "", ".hidden/x", "a b/c", "x/"};
    struct err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(repository_find(&found, names[i], NULL, &e), 0);
        assert_string_equal(found.folder, "");
    }
    assert_int_equal(repository_find(&found, "gpt3", NULL, &e), 0);
    assert_int_equal(repository_find(&found, "Qwen/Qwen3-9B", NULL, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "no such folder", "/models--Qwen--Qwen3-9B)", "hf download Qwen/Qwen3-9B");
}

/* Files and folders of the same name come first. */
static void what_exists_is_no_name(void **state)
{
    char before[600];
    struct err e = {0};
    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    assert_return_code(chdir(cache), 0);
    make_folder("gpt2");
    make_folder("Qwen");
    write_at("Qwen", "Qwen3-8B", "");
    assert_int_equal(repository_find(&found, "gpt2", NULL, &e), 0);
    assert_int_equal(repository_find(&found, "Qwen/Qwen3-8B", NULL, &e), 0);
    assert_string_equal(found.folder, "");
    assert_return_code(chdir(before), 0);
}

/* The folder gpt2 has the name of the repository gpt2. */
static void names_of_a_folder_are_taken_once(void **state)
{
    struct err e = {0};
    struct discovered all;
    (void)state;
    write_at("gpt2", "config.json", "{}");
    assert_int_equal(discover_models(cache, false, &all, &e), 0);
    assert_int_equal(all.n, 2);
    assert_string_equal(all.name[0], "Qwen/Qwen3-8B");
    assert_string_equal(all.below[0], QWEN "/snapshots/" HASH);
    assert_string_equal(all.name[1], "gpt2");
    assert_null(all.below[1]);
    discover_close(&all);
}

/* With --speculative off nothing is looked for. */
static void drafts_are_found(void **state)
{
    char folder[DRAFT_FOLDER_BYTES];
    struct guess_rules rules;
    struct err e = {0};
    struct run_options o = {.draft_model = "Qwen/Qwen3-8B", .num_speculative_tokens = 4};
    (void)state;
    assert_int_equal(draft_folder(folder, &o, &e), 0);
    assert_non_null(strstr(folder, QWEN "/snapshots/" HASH));
    o.draft_model = "Qwen/Qwen3-9B";
    assert_int_equal(draft_folder(folder, &o, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "hf download Qwen/Qwen3-9B");
    e = (struct err){0};
    o.speculative = SPECULATIVE_OFF;
    assert_int_equal(draft_folder(folder, &o, &e), 0);
    assert_int_equal(draft_rules(&rules, &o, &e), 0);
}

static void revisions_must_be_known(void **state)
{
    struct err e = {0};
    (void)state;
    make_folder("models--gpt2/snapshots/bb");
    assert_int_equal(repository_find(&found, "gpt2", NULL, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "gpt2: 2 revisions", "/models--gpt2/snapshots/");
    make_folder("models--gpt2/refs");
    write_at("models--gpt2/refs", "main", "bb");
    e = (struct err){0};
    assert_int_equal(repository_find(&found, "gpt2", NULL, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "no config.json", "/snapshots/bb", "hf download gpt2");
    write_at("models--gpt2/refs", "main", "../../../etc"); /* no commit */
    e = (struct err){0};
    assert_int_equal(repository_find(&found, "gpt2", NULL, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "2 revisions");
}

static void revisions_are_chosen(void **state)
{
    static const char *const bad[] = {"", "/etc", "a/../../b"};
    struct err e = {0};
    (void)state;
    write_at(QWEN "/refs", "v1", "older");
    write_at(QWEN "/snapshots/older", "config.json", "{}");
    assert_int_equal(repository_find(&found, "Qwen/Qwen3-8B", "v1", &e), 1); /* a tag or a branch */
    assert_non_null(strstr(found.folder, "/snapshots/older"));
    assert_int_equal(repository_find(&found, "Qwen/Qwen3-8B", "older", &e), 1); /* a commit */
    assert_non_null(strstr(found.folder, "/snapshots/older"));
    assert_int_equal(repository_find(&found, "Qwen/Qwen3-8B", "v2", &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "no revision v2", "hf download Qwen/Qwen3-8B --revision v2");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        e = (struct err){0};
        assert_int_equal(repository_find(&found, "Qwen/Qwen3-8B", bad[i], &e), -1);
        EXPECT_PARTS(&e, ERR_USAGE, "--revision", "a branch, a tag or a commit");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),         cmocka_unit_test(folders_are_found),
        cmocka_unit_test(others_are_not),          cmocka_unit_test(drafts_are_found),
        cmocka_unit_test(what_exists_is_no_name),  cmocka_unit_test(names_of_a_folder_are_taken_once),
        cmocka_unit_test(revisions_must_be_known), cmocka_unit_test(revisions_are_chosen),
    };
    return cmocka_run_group_tests(tests, open_cache, close_cache);
}
