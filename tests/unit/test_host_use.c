/* tests/unit/test_host_use.c - the figures of a host for metrics: GPUs of a library with NVML's names
 * (fake_nvml.c), its disk. */
#include "commands/models/host_use.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static char library[4200];

static void figures(void **state)
{
    (void)state;
    struct host_cache cache = {0};
    struct host_use m = {.disk = "/", .host_cache = &cache};
    struct host_figures f;
    host_use_look(&m, &f);
    assert_true(isnan(f.gpu_memory) && isnan(f.gpu_busy) && f.archives == 0 && f.host_cache == 0);
    assert_true(f.disk > 0 && f.disk <= 1);
    atomic_store(&cache.locked, 4096);
    assert_int_equal(setenv("FAKE_NVML", "mig=0,used=250,busy=75", 1), 0);
    host_use_add_gpu(&m, library, "0000:1A:00.0/x");
    host_use_add_gpu(&m, library, "0000:1A:00.0/x");
    host_use_add_gpu(&m, library, "0000:FF:00.0/x"); /* no such GPU */
    assert_int_equal(m.n_gpus, 2);
    host_use_look(&m, &f);
    assert_true(f.gpu_memory == 0.5 && f.gpu_busy == 1.5 && f.host_cache == 4096);
    assert_int_equal(setenv("FAKE_NVML", "mig=0", 1), 0);
    host_use_look(&m, &f);
    assert_true(isnan(f.gpu_memory) && isnan(f.gpu_busy));
    assert_int_equal(setenv("FAKE_NVML", "mig=1,used=250,busy=75", 1), 0);
    host_use_add_gpu(&m, library, "0000:1A:00.0/x"); /* a slice reports its card's numbers */
    assert_int_equal(m.n_gpus, 2);
    m.disk = "/no/such/path";
    host_use_look(&m, &f);
    assert_true(isnan(f.disk));
    host_use_close(&m);
    assert_int_equal(m.n_gpus, 0);
}

int main(void)
{
    const char *build = getenv("LOCKSTEP_BUILD");
    (void)snprintf(library, sizeof library, "./%s/tests/fake_nvml.so", build != NULL ? build : "build/cpu");
    const struct CMUnitTest tests[] = {cmocka_unit_test(figures)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
