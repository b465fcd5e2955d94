/* tests/unit/test_archives.c - archives of models: the accepted parts of tar, refusals, no file outside the folder; and
 * the folder of unpacked archives: bounds, order of removal, partial folders of an earlier job. */
#include "coordinator/archives/cache.h"
#include "coordinator/archives/tar.h"
#include "coordinator/archives/unpack.h"
#include "tests/support/archive.h"
#include "tests/support/files.h"
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[256], cache_dir[300];

static const char *in(const char *name)
{
    static char path[2][400];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static int setup(void **state)
{
    (void)state;
    files_make_dir(dir);
    (void)snprintf(cache_dir, sizeof cache_dir, "%s/cache", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    files_remove_dir(dir);
    return 0;
}

static int allow(void *context, int64_t bytes, int64_t more, struct err *e)
{
    (void)more;
    return bytes <= *(int64_t *)context ? 0 : ERR(e, ERR_MEMORY, "no room for %lld bytes", (long long)bytes);
}

/* Writes the archive and unpacks it into a new folder "out". */
static int unpack(struct archive *a, bool end, const char *name, struct err *e)
{
    static atomic_bool cancel;
    int64_t limit = (int64_t)1 << 40, bytes = 0;
    const struct unpack_owner owner = {&limit, allow, &cancel};
    archive_write(a, end, in(name));
    files_remove_dir(in("out"));
    assert_int_equal(mkdir(in("out"), 0700), 0);
    int fd = open(in("out"), O_RDONLY | O_DIRECTORY);
    int rc = unpack_archive(in(name), fd, &owner, &bytes, e);
    (void)close(fd);
    assert_int_equal(rc == 0, e->code == ERR_NONE);
    return rc;
}

static void expect_file(const char *path, const char *text)
{
    size_t bytes = 0;
    char *found = files_read(in("out"), path, &bytes);
    assert_string_equal(found, text);
    free(found);
}

/* ---- accepted archives ---- */

static void files_and_folders(void **state)
{
    (void)state;
    static const char *const name[] = {"a.tar.gz", "a.tar"};
    for (int k = 0; k < 2; k++) {
        struct archive a = {0};
        struct err e = {0};
        archive_header(&a, '5', "./", "", 0);
        archive_file(&a, "./config.json", "{}", 2);
        archive_file(&a, "deep/er/x", "", 0); /* no entry creates its folders */
        archive_header(&a, '5', "deep/empty/", "", 0);
        archive_header(&a, 'g', "pax_global_header", "", 4);
        archive_bytes(&a, "junk", 4);
        (void)unpack(&a, true, name[k], &e);
        expect_none(&e);
        expect_file("config.json", "{}");
        expect_file("deep/er/x", "");
        assert_int_equal(access(in("out/deep/empty"), F_OK), 0);
    }
}

static void long_names(void **state)
{
    (void)state;
    struct archive a = {0};
    struct err e = {0};
    char name[200], record[300], path[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    archive_header(&a, 'L', "././@LongLink", "", sizeof name);
    archive_bytes(&a, name, sizeof name);
    archive_file(&a, "cut", "gnu", 3);
    name[0] = 'p';
    int n = snprintf(record, sizeof record, "30 mtime=1700000000.123456789\n%zu path=%s\n", strlen(name) + 10, name);
    archive_header(&a, 'x', "pax", "", (uint64_t)n);
    archive_bytes(&a, record, (size_t)n);
    archive_file(&a, "cut", "pax", 3);
    (void)unpack(&a, true, "a.tar.gz", &e);
    expect_none(&e);
    expect_file(name, "pax");
    name[0] = 'n';
    (void)snprintf(path, sizeof path, "%s", name);
    expect_file(path, "gnu");
}

/* ---- refused archives ---- */

static void strange_entries(void **state)
{
    (void)state;
    static const struct {
        char kind;
        const char *name, *link, *part;
    } bad[] = {{'0', "/etc/x", "", "is absolute"},
               {'0', "../x", "", "has a part .."},
               {'0', "a/../../x", "", "has a part .."},
               {'0', "a/..", "", "has a part .."},
               {'5', "..", "", "has a part .."},
               {'0', "a\nb", "", "has a control character"},
               {'0', "a\xff", "", "is no UTF-8"},
               {'0', ".", "", "is not a file name"},
               {'0', "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", "", "too deep"},
               {'1', "x", "/etc/passwd", "a link"},
               {'2', "x", "..", "a link"},
               {'3', "x", "", "a device"},
               {'4', "x", "", "a device"},
               {'6', "x", "", "a pipe"},
               {'S', "x", "", "a sparse file"},
               {'V', "x", "", "something"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct archive a = {0};
        struct err e = {0};
        archive_file(&a, "config.json", "{}", 2);
        archive_header(&a, bad[i].kind, bad[i].name, bad[i].link, 0);
        (void)unpack(&a, true, "a.tar.gz", &e);
        EXPECT_PARTS(&e, ERR_INPUT, "a.tar.gz", bad[i].part);
        assert_int_not_equal(access(in("x"), F_OK), 0);
    }
}

static void damage(void **state)
{
    (void)state;
    struct archive a = {0};
    struct err e = {0};
    archive_file(&a, "x", "12", 2);
    (void)unpack(&a, false, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "it is truncated");
    e = (struct err){0};
    archive_header(&a, '0', "x", "", 1 << 20);
    (void)unpack(&a, false, "a.tar.gz", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "it is truncated");
    e = (struct err){0};
    archive_file(&a, "x", "12", 2);
    a.data[3] ^= 1;
    (void)unpack(&a, true, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "the checksum of a header is wrong");
    e = (struct err){0};
    archive_file(&a, "x", "12", 2);
    archive_file(&a, "x", "34", 2);
    (void)unpack(&a, true, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "\"x\" is in it twice");
    e = (struct err){0};
    archive_file(&a, "x", "12", 2);
    archive_file(&a, "x/y", "34", 2);
    (void)unpack(&a, true, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "a file and a folder");
    e = (struct err){0};
    (void)unpack(&a, true, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "it is empty");
    e = (struct err){0};
    archive_header(&a, 'x', "pax", "", 12);
    archive_bytes(&a, "999 path=xx\n", 12);
    archive_file(&a, "x", "12", 2);
    (void)unpack(&a, true, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "a malformed pax header");
    e = (struct err){0};
    archive_header(&a, 'L', "long", "", 1 << 20);
    (void)unpack(&a, true, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "a header of 1048576 bytes");
    e = (struct err){0};
    for (int i = 0; i < 20; i++)
        archive_header(&a, 'x', "pax", "", 0);
    (void)unpack(&a, true, "a.tar", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "headers for one file");
}

/* Every truncation and every changed byte of a valid archive ends in a message or in files, never outside the
 * folder. */
static void bytes_changed(void **state)
{
    (void)state;
    struct archive a = {0};
    struct err e = {0};
    size_t bytes = 0;
    archive_file(&a, "a/config.json", "{\"model_type\":\"llama\"}", 22);
    archive_header(&a, '5', "b", "", 0);
    (void)unpack(&a, true, "good.tar.gz", &e);
    expect_none(&e);
    char *good = files_read(dir, "good.tar.gz", &bytes);
    uint64_t seed = 5;
    static atomic_bool cancel;
    int64_t limit = 1 << 20, got = 0;
    const struct unpack_owner owner = {&limit, allow, &cancel};
    for (size_t i = 0; i < bytes; i++) {
        for (int cut = 0; cut < 2; cut++) {
            char *bad = malloc(bytes);
            memcpy(bad, good, bytes);
            bad[i] ^= (char)(1 << random_below(&seed, 8));
            files_write(dir, "bad.tar.gz", cut ? good : bad, cut ? i : bytes);
            free(bad);
            e = (struct err){0};
            files_remove_dir(in("out"));
            assert_int_equal(mkdir(in("out"), 0700), 0);
            int fd = open(in("out"), O_RDONLY | O_DIRECTORY);
            int rc = unpack_archive(in("bad.tar.gz"), fd, &owner, &got, &e);
            (void)close(fd);
            assert_int_equal(rc == 0, e.code == ERR_NONE);
            if (cut)
                assert_int_not_equal(rc, 0);
        }
    }
    free(good);
}

/* A gigabyte of zeros in a megabyte is refused before it is written. */
static void bomb(void **state)
{
    (void)state;
    struct archive a = {0};
    struct err e = {0};
    archive_header(&a, '0', "model.safetensors", "", (uint64_t)1 << 30);
    a.data = realloc(a.data, a.bytes + (1 << 20));
    memset(a.data + a.bytes, 0, 1 << 20);
    a.bytes += 1 << 20;
    (void)unpack(&a, true, "a.tar.gz", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "more than 100 times its own", "model.safetensors");
    assert_int_not_equal(access(in("out/model.safetensors"), F_OK), 0);
}

static void no_regular_file(void **state)
{
    (void)state;
    struct tar t;
    struct err e = {0};
    assert_int_equal(mkfifo(in("p.tar"), 0600), 0);
    assert_int_equal(tar_open(&t, in("p.tar"), &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "not a regular file");
    e = (struct err){0};
    assert_int_equal(tar_open(&t, "/dev/zero", &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "not a regular file");
}

/* ---- the folder of unpacked archives ---- */

/* Writes NAME.tar.gz with config.json and this many incompressible bytes. */
static const char *write_model(const char *name, size_t bytes, const char *prefix)
{
    struct archive a = {0};
    char file[100];
    unsigned char *noise = malloc(bytes);
    uint64_t seed = 7;
    for (size_t i = 0; i < bytes; i++)
        noise[i] = (unsigned char)random_next(&seed);
    (void)snprintf(file, sizeof file, "%sconfig.json", prefix);
    archive_file(&a, file, "{}", 2);
    (void)snprintf(file, sizeof file, "%sweights", prefix);
    archive_file(&a, file, noise, bytes);
    free(noise);
    (void)snprintf(file, sizeof file, "%s.tar.gz", name);
    archive_write(&a, true, in(file));
    return in(file);
}

static int n_folders(void)
{
    int n = 0;
    DIR *d = opendir(cache_dir);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;)
        n += entry->d_name[0] != '.' || strcmp(entry->d_name, ".half") == 0 || strcmp(entry->d_name, ".leaving") == 0;
    (void)closedir(d);
    return n;
}

static struct archive_folder *take_folder(struct archive_cache *c, const char *name, bool unpacked, struct err *e)
{
    char path[PATH_MAX], file[100];
    double seconds = -1;
    (void)snprintf(file, sizeof file, "%s.tar.gz", name);
    struct archive_folder *f = archive_cache_take(c, in(file), name, path, &seconds, e);
    if (f != NULL) {
        assert_int_equal(seconds > 0, unpacked);
        char *config = files_read(path, "config.json", &(size_t){0});
        assert_string_equal(config, "{}");
        free(config);
    }
    return f;
}

static void once_and_for_the_next_job(void **state)
{
    (void)state;
    struct archive_cache c;
    struct err e = {0};
    (void)write_model("m", 100, "");
    (void)write_model("inner", 100, "m-7b/"); /* as if the folder itself had been packed */
    assert_int_equal(archive_cache_open(&c, cache_dir, 1 << 20, &e), 0);
    struct archive_folder *f = take_folder(&c, "m", true, &e), *g = take_folder(&c, "inner", true, &e);
    assert_ptr_equal(take_folder(&c, "m", false, &e), f);
    assert_non_null(g);
    assert_int_equal(archive_cache_check(cache_dir, c.token, &e), 0);
    archive_cache_close(&c);
    char half[400], beside[400];
    (void)snprintf(half, sizeof half, "%s/.half", cache_dir);
    (void)snprintf(beside, sizeof beside, "%s/.half/x", cache_dir);
    assert_int_equal(mkdir(half, 0700), 0);
    assert_int_equal(mkdir(beside, 0700), 0);
    assert_int_equal(archive_cache_open(&c, cache_dir, 1 << 20, &e), 0);
    assert_int_not_equal(access(half, F_OK), 0);
    assert_non_null(take_folder(&c, "m", false, &e));
    assert_int_equal(n_folders(), 2);
    (void)write_model("m", 200, ""); /* another model of the same name */
    assert_non_null(take_folder(&c, "m", true, &e));
    assert_int_equal(n_folders(), 3);
    expect_none(&e);
    archive_cache_close(&c);
}

static void one_job(void **state)
{
    (void)state;
    struct archive_cache c, d;
    struct err e = {0};
    assert_int_equal(archive_cache_open(&c, cache_dir, -1, &e), 0);
    assert_true(c.limit > 0);
    assert_int_equal(archive_cache_open(&d, cache_dir, -1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "another job uses it");
    archive_cache_close(&d);
    e = (struct err){0};
    assert_int_equal(archive_cache_check(dir, c.token, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "a file system that all hosts share");
    archive_cache_close(&c);
    e = (struct err){0};
    assert_int_equal(chmod(cache_dir, 0777), 0);
    assert_int_equal(archive_cache_open(&c, cache_dir, -1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "mode 777");
    archive_cache_close(&c);
}

static void least_recently_used(void **state)
{
    (void)state;
    static const char *const name[] = {"a", "b", "c", "large"};
    struct archive_cache c;
    struct err e = {0};
    for (int i = 0; i < 4; i++)
        (void)write_model(name[i], i < 3 ? 100000 : 900000, "");
    assert_int_equal(archive_cache_open(&c, cache_dir, 300000, &e), 0);
    struct archive_folder *a = take_folder(&c, "a", true, &e), *b = take_folder(&c, "b", true, &e);
    struct err full = {0};
    assert_null(take_folder(&c, "c", true, &full)); /* both are in use */
    EXPECT_PARTS(&full, ERR_MEMORY, "may hold 300000", "in use");
    assert_int_equal(n_folders(), 2);
    archive_cache_release(&c, b);
    archive_cache_release(&c, a); /* used more recently than b */
    full = (struct err){0};
    assert_null(take_folder(&c, "large", true, &full));
    EXPECT_PARTS(&full, ERR_MEMORY, "may hold 300000");
    assert_int_equal(n_folders(), 2); /* nothing is removed for a model that cannot fit */
    archive_cache_release(&c, take_folder(&c, "c", true, &e));
    archive_cache_release(&c, take_folder(&c, "a", false, &e));
    archive_cache_release(&c, take_folder(&c, "b", true, &e));
    archive_cache_release(&c, take_folder(&c, "a", false, &e));
    archive_cache_release(&c, take_folder(&c, "c", true, &e));
    assert_true(archive_cache_bytes(&c) <= 300000);
    assert_int_equal(n_folders(), 2);
    expect_none(&e);
    archive_cache_close(&c);
}

/* A failure leaves no partial folder. */
static void failures_leave_nothing(void **state)
{
    (void)state;
    struct archive_cache c;
    struct err e = {0};
    char path[PATH_MAX];
    double seconds;
    (void)write_model("m", 500000, "");
    assert_int_equal(truncate(in("m.tar.gz"), 300000), 0);
    assert_int_equal(archive_cache_open(&c, cache_dir, 1 << 20, &e), 0);
    assert_null(archive_cache_take(&c, in("m.tar.gz"), "m", path, &seconds, &e));
    EXPECT_PARTS(&e, ERR_INPUT, "it is truncated");
    assert_int_equal(n_folders(), 0);
    assert_int_equal(archive_cache_bytes(&c), 0);
    (void)write_model("m", 500000, "");
    e = (struct err){0};
    atomic_store(&c.cancel, true);
    assert_null(archive_cache_take(&c, in("m.tar.gz"), "m", path, &seconds, &e));
    EXPECT_PARTS(&e, ERR_IO, "given up");
    assert_int_equal(n_folders(), 0);
    atomic_store(&c.cancel, false);
    e = (struct err){0};
    assert_null(archive_cache_take(&c, in("none.tar.gz"), "none", path, &seconds, &e));
    EXPECT_PARTS(&e, ERR_IO, "No such file");
    archive_cache_close(&c);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {CASE(files_and_folders),
                                       CASE(long_names),
                                       CASE(strange_entries),
                                       CASE(damage),
                                       CASE(bytes_changed),
                                       CASE(bomb),
                                       CASE(no_regular_file),
                                       CASE(once_and_for_the_next_job),
                                       CASE(one_job),
                                       CASE(least_recently_used),
                                       CASE(failures_leave_nothing)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
