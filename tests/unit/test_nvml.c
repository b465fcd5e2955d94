/* tests/unit/test_nvml.c - rank/measure/nvml.c and rank/measure/energy.c on a library with NVML's names (fake_nvml.c):
 * reported values arrive, unreported ones are absent, and a machine without the library is named as such. */
#include "tests/unit/unit.h"

#include "rank/measure/energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define GPU "0000:1A:00.0/aaaaaaaa"

static char library[4200];

static void says(const char *what)
{
    assert_int_equal(setenv("FAKE_NVML", what, 1), 0);
}

static void everything(void **state)
{
    (void)state;
    struct nvml n;
    struct nvml_state s;
    double memory, busy;
    struct err e = {0};
    says("sm=1755,max_sm=1980,memory=3201,max_memory=3202,celsius=41,reasons=4,power=612345,ecc=1,errors=2,rows=3,"
         "pending=1,"
         "failed=0,energy=123,mig=0,used=250,busy=75");
    assert_int_equal(nvml_open(&n, library, GPU, &e), 0);
    expect_none(&e);
    nvml_look(&n, &s);
    assert_true(s.sm_mhz == 1755 && s.max_sm_mhz == 1980 && s.memory_mhz == 3201 && s.max_memory_mhz == 3202);
    assert_true(s.celsius == 41 && s.reasons == NVML_POWER_CAP && s.milliwatts == 612345);
    assert_true(s.ecc == 1 && s.uncorrected_errors == 2 && s.rows_remapped == 4 && s.remap_pending == 1 &&
                s.remap_failed == 0);
    assert_true(nvml_energy(&n) == 123 && !n.is_slice);
    nvml_use(&n, &memory, &busy);
    assert_true(memory == 0.25 && busy == 0.75);
    nvml_close(&n);
    nvml_use(&n, &memory, &busy);
    assert_true(isnan(memory) && isnan(busy));
    nvml_look(&n, &s); /* closed: reports nothing, and does no harm */
    assert_true(s.sm_mhz == -1 && nvml_energy(&n) == -1);
    nvml_close(&n);
}

static void nothing(void **state)
{
    (void)state;
    struct nvml n;
    struct nvml_state s;
    double memory, busy;
    struct err e = {0};
    says("");
    assert_int_equal(nvml_open(&n, library, GPU, &e), 0);
    nvml_look(&n, &s);
    assert_true(s.sm_mhz == -1 && s.max_sm_mhz == -1 && s.memory_mhz == -1 && s.max_memory_mhz == -1 &&
                s.celsius == -1 && s.reasons == -1 && s.milliwatts == -1 && s.uncorrected_errors == -1 &&
                s.rows_remapped == -1 && s.remap_pending == -1 && s.remap_failed == -1 && s.ecc == -1);
    nvml_use(&n, &memory, &busy);
    assert_true(isnan(memory) && isnan(busy));
    nvml_close(&n);
}

static void refusals(void **state)
{
    (void)state;
    struct nvml n;
    struct err e = {0};
    says("");
    assert_int_equal(nvml_open(&n, library, "0000:1B:00.0", &e), -1);
    expect_text(&e, ERR_DEVICE, "NVML: GPU 0000:1B:00.0: Not Found");
    e = (struct err){0};
    says("init=9");
    assert_int_equal(nvml_open(&n, library, GPU, &e), -1);
    expect_text(&e, ERR_DEVICE, "NVML: cannot begin for 0000:1A:00.0: Driver Not Loaded");
    e = (struct err){0};
    assert_int_equal(nvml_open(&n, "libno-such-library.so.1", GPU, &e), -1);
    EXPECT_PARTS(&e, ERR_DEVICE, "NVML: libno-such-library.so.1: cannot open shared object file");
    e = (struct err){0};
    assert_int_equal(nvml_open(&n, "libm.so.6", GPU, &e), -1);
    expect_text(&e, ERR_DEVICE, "NVML: the driver's library has no nvmlInit_v2");
}

/* A slice of a card (MIG) is looked up by its card's address; the values are the card's, and only the fact that it is a
 * slice is reported of it. A driver without that call has no slices. */
static void slices(void **state)
{
    (void)state;
    struct nvml n;
    struct err e = {0};
    says("mig=1,sm=1755");
    assert_int_equal(nvml_open(&n, library, "0000:1A:00.0/12345678", &e), 0);
    assert_true(n.is_slice);
    nvml_close(&n);
    assert_int_equal(nvml_open(&n, library, "0000:1A:00.0/87654321", &e), 0);
    assert_true(n.is_slice);
    nvml_close(&n);
    says("sm=1755"); /* "not supported" */
    assert_int_equal(nvml_open(&n, library, "0000:1A:00.0/12345678", &e), 0);
    assert_true(!n.is_slice);
    nvml_close(&n);
    expect_none(&e);
}

static void reasons(void **state)
{
    (void)state;
    char text[100];
    nvml_reasons(text, sizeof text, NVML_HW_SLOWDOWN | NVML_HW_THERMAL);
    assert_string_equal(text, "hw slowdown, hw thermal");
    nvml_reasons(text, sizeof text, NVML_IDLE | NVML_DISPLAY);
    assert_string_equal(text, "idle, display");
    nvml_reasons(text, sizeof text, 0);
    assert_string_equal(text, "none");
    nvml_reasons(text, sizeof text, -1);
    assert_string_equal(text, "?");
    nvml_reasons(text, 9, NVML_HW_SLOWDOWN | NVML_HW_THERMAL);
    assert_string_equal(text, "hw slowd");
}

static void counter(void **state)
{
    (void)state;
    struct energy g;
    says("energy=5000,power=100000");
    energy_open_gpu(&g, library, GPU);
    assert_true(energy_joules(&g) == 0 && !energy_is_integral(&g));
    says("energy=7500,power=100000");
    assert_true(energy_joules(&g) == 2.5);
    says("energy=10,power=100000");
    assert_true(isnan(energy_joules(&g)));
    says("power=100000"); /* the energy is no longer reported */
    assert_true(isnan(energy_joules(&g)));
    energy_close(&g);
    assert_true(isnan(energy_joules(&g)));
}

/* 100 W at one end, 300 W at the other: 200 J for each second between them. */
static void integral(void **state)
{
    (void)state;
    struct energy g;
    const struct timespec wait = {0, 20000000};
    says("power=100000");
    energy_open_gpu(&g, library, GPU);
    assert_true(energy_is_integral(&g));
    double begin = g.at;
    (void)nanosleep(&wait, NULL);
    says("power=300000");
    double joules = energy_joules(&g), seconds = g.at - begin;
    assert_true(seconds > 0.019 && fabs(joules - 200 * seconds) < 1e-9 * joules);
    says(""); /* missing once: the interval counts at the next call */
    assert_true(energy_joules(&g) == joules);
    says("power=300000");
    (void)nanosleep(&wait, NULL);
    assert_true(energy_joules(&g) > joules + 0.019 * 300);
    energy_close(&g);
}

/* Devices without a known energy: a slice of a card, a card that reports nothing, a CPU, a machine without the
 * library. */
static void unknown(void **state)
{
    (void)state;
    struct energy g;
    struct queue q = {0};
    says("energy=5000,power=100000,mig=1");
    energy_open_gpu(&g, library, GPU);
    assert_true(isnan(energy_joules(&g)) && !energy_is_integral(&g));
    energy_close(&g);
    says("");
    energy_open_gpu(&g, library, GPU);
    assert_true(isnan(energy_joules(&g)));
    energy_close(&g);
    energy_open_gpu(&g, "libno-such-library.so.1", GPU);
    assert_true(isnan(energy_joules(&g)));
    energy_close(&g);
    energy_open(&g, &ops_cpu, &q);
    assert_true(isnan(energy_joules(&g)));
    energy_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything), cmocka_unit_test(nothing), cmocka_unit_test(refusals), cmocka_unit_test(slices),
        cmocka_unit_test(reasons),    cmocka_unit_test(counter), cmocka_unit_test(integral), cmocka_unit_test(unknown)};
    const char *build = getenv("LOCKSTEP_BUILD");
    (void)snprintf(library, sizeof library, "%s/tests/fake_nvml.so", build != NULL ? build : "build/cpu");
    return cmocka_run_group_tests_name("nvml", tests, NULL, NULL);
}
