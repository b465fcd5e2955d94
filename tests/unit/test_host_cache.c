/* tests/unit/test_host_cache.c - files of unloaded models in memory: locked bytes by the system's own count, the order
 * of eviction, files that change, and the message if locking is not permitted. */
#include "base/clock.h"
#include "commands/models/host_cache.h"
#include "tests/support/files.h"
#include "tests/support/process.h"
#include "tests/unit/unit.h"

#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIB 1024

static char dir[256];

/* Returns the bytes that this process has locked, by the system's count. */
static long locked(void)
{
    char line[200];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL)
        (void)sscanf(line, "VmLck: %ld", &kib);
    (void)fclose(f);
    return kib * KIB;
}

/* Makes the checkpoint of a model of this name, with one file of this many bytes. */
static struct checkpoint write_model(const char *name, size_t bytes)
{
    static uint32_t offset[1];
    static char file[] = "model.safetensors";
    struct checkpoint c = {.n_files = 1, .file = offset, .text = file, .text_bytes = sizeof file};
    char *data = calloc(1, bytes);
    (void)snprintf(c.dir, sizeof c.dir, "%s/%s", dir, name);
    (void)mkdir(c.dir, 0700);
    files_write(c.dir, file, data, bytes);
    free(data);
    return c;
}

static void await(const struct host_cache *c, long bytes)
{
    for (double until = seconds_now() + process_patience(10);
         atomic_load(&c->locked) != bytes && seconds_now() < until;)
        (void)usleep(1000);
    assert_int_equal(atomic_load(&c->locked), bytes);
    assert_int_equal(locked(), bytes);
}

static void unload(struct host_cache *cache, int slot, const struct checkpoint *c)
{
    host_cache_loaded(cache, slot, c);
    host_cache_dropped(cache, slot);
}

static int setup(void **state)
{
    (void)state;
    files_make_dir(dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    files_remove_dir(dir);
    return 0;
}

static void unloaded_models_are_kept(void **state)
{
    (void)state;
    struct host_cache cache;
    struct err e = {0};
    const struct checkpoint a = write_model("a", 400 * KIB), b = write_model("b", 300 * KIB - 1),
                            d = write_model("c", 600 * KIB), large = write_model("large", 2000 * KIB);
    assert_int_equal(host_cache_open(&cache, 1000 * KIB, &e), 0);
    host_cache_loaded(&cache, 0, &a);
    await(&cache, 0);
    host_cache_dropped(&cache, 0);
    await(&cache, 400 * KIB);
    unload(&cache, 1, &b);
    await(&cache, 700 * KIB);
    unload(&cache, 0, &a); /* still cached, and now the younger one */
    await(&cache, 700 * KIB);
    unload(&cache, 2, &d); /* b is evicted */
    await(&cache, 1000 * KIB);
    host_cache_loaded(&cache, 3, &d); /* it is on the device: its files are the first to be evicted */
    unload(&cache, 1, &b);
    await(&cache, 700 * KIB);
    unload(&cache, 4, &large);
    unload(&cache, 1, &b);
    await(&cache, 700 * KIB);
    host_cache_close(&cache);
    assert_int_equal(locked(), 0);
}

static void files_that_change(void **state)
{
    (void)state;
    struct host_cache cache;
    struct err e = {0};
    const struct checkpoint a = write_model("a", 400 * KIB), b = write_model("b", 100 * KIB);
    assert_int_equal(host_cache_open(&cache, 1000 * KIB, &e), 0);
    unload(&cache, 0, &a);
    await(&cache, 400 * KIB);
    (void)write_model("a", 200 * KIB);
    unload(&cache, 0, &a);
    await(&cache, 200 * KIB);
    files_remove_dir(a.dir); /* as when an unpacked archive makes room */
    unload(&cache, 1, &b);
    await(&cache, 100 * KIB);
    host_cache_close(&cache);
}

/* Limits this process's right to lock memory from here on. */
static void not_permitted(void **state)
{
    (void)state;
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct cap[2] = {0};
    const struct rlimit few = {64 * KIB, 64 * KIB};
    struct host_cache cache;
    struct err e = {0};
    assert_int_equal(host_cache_check(32 * KIB, &e), 0);
    assert_int_equal(host_cache_check(INT64_MAX / 2, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, "--host-cache", "this host has");
    assert_int_equal(syscall(SYS_capget, &head, cap), 0);
    cap[0].effective &= ~(1u << CAP_IPC_LOCK);
    assert_int_equal(syscall(SYS_capset, &head, cap), 0);
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &few), 0);
    e = (struct err){0};
    assert_int_equal(host_cache_check(32 * KIB, &e), 0);
    assert_int_equal(host_cache_check(1000 * KIB, &e), -1);
    EXPECT_PARTS(&e, ERR_MEMORY, "--host-cache 1024000", "RLIMIT_MEMLOCK is 65536 bytes", "ulimit -l");
    assert_int_equal(locked(), 0);
    /* It goes on without the part that cannot be locked. */
    const struct checkpoint a = write_model("a", 400 * KIB), b = write_model("b", 16 * KIB);
    e = (struct err){0};
    assert_int_equal(host_cache_open(&cache, 1000 * KIB, &e), 0);
    unload(&cache, 0, &a);
    unload(&cache, 1, &b);
    await(&cache, 16 * KIB);
    host_cache_close(&cache);
}

int main(void)
{
#ifdef __SANITIZE_ADDRESS__ /* its mlock does nothing */
    puts("1..1\nok 1 - files in memory # SKIP AddressSanitizer ignores mlock");
    return 0;
#endif
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {CASE(unloaded_models_are_kept), CASE(files_that_change), CASE(not_permitted)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
