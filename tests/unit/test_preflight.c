/* tests/unit/test_preflight.c - commands/preflight/judge.c and preflight_report.c on invented figures: refused ranks
 * with reasons, in the table and the JSON; rank/measure/file_rate.c on files of its own; the rank that
 * rank/watch/deadline.c blames. */
#include "tests/unit/unit.h"

#include "commands/preflight/report.h"
#include "rank/measure/file_rate.h"
#include "rank/watch/deadline.h"
#include "tests/support/files.h"

#include <jansson.h>
#include <stdlib.h>

#define N 4

static struct preflight_rank rank[N];
static unsigned char links[N * N];

/* Two hosts of two GPUs each, all healthy. */
static struct preflight fill(bool gpus)
{
    struct preflight p = {
        N, gpus ? "cuda" : "cpu", "/models/m", rank, links, {{8192, 6e-6}, {1 << 24, 2e-4}}, 2, 16e12, 30e-6, 4.5};
    for (int r = 0; r < N; r++) {
        rank[r] = (struct preflight_rank){.n_cpus = 16,
                                          .n_threads = 8,
                                          .read_rate = 4e12 + r * 1e10,
                                          .ping = r * 1e-6,
                                          .file_bytes = 1e9,
                                          .file_cold_bytes = 5e8,
                                          .file_seconds = 1 + r};
        rank[r].gpu = (struct nvml_state){1755, 1980, 3201, 3201, 41, NVML_POWER_CAP, 600000, 0, 0, 0, 0, 1};
        (void)snprintf(rank[r].place.host, sizeof rank[r].place.host, "node%d", r / 2 + 1);
        if (gpus)
            (void)snprintf(rank[r].place.id, sizeof rank[r].place.id, "0000:1%d:00.0", r);
        for (int to = 0; to < N; to++)
            links[r * N + to] = PEER_NVLINK;
    }
    return p;
}

static int judge(const struct preflight *p, struct preflight_problem *problem)
{
    const struct preflight_limits limits = {.read_share = 0.85, .broadcast_us = 1000, .file_rate = 1e8};
    return preflight_judge(p, &limits, problem);
}

static void fit(void **state)
{
    (void)state;
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    struct preflight p = fill(true);
    assert_int_equal(judge(&p, problem), 0);
    p.n_ranks = 1;
    p.broadcast = 0;
    assert_int_equal(judge(&p, problem), 0);
    rank[0].read_rate = 0; /* nothing to compare with */
    assert_int_equal(judge(&p, problem), 0);
}

static void slow_memory(void **state)
{
    (void)state;
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    char text[400];
    struct preflight p = fill(true);
    rank[1].read_rate = 2e12;
    assert_int_equal(judge(&p, problem), 1);
    assert_true(problem[0].rank == 1 && problem[0].refuses);
    preflight_say(text, sizeof text, &p, &problem[0]);
    assert_string_equal(text, "rank 1 on node1: its memory is read at 2000.0 GB/s, 50 % of the 4030.0 GB/s of rank 3 "
                              "on node2: at least 85 % are required (--min-read-share)");
    p = fill(false); /* one of a host's CPU ranks got less: the memory is the same */
    rank[1].read_rate = 3.5e12;
    assert_int_equal(judge(&p, problem), 0);
    rank[2].read_rate = rank[3].read_rate = 1e12; /* a slow host, reported once */
    assert_int_equal(judge(&p, problem), 1);
    assert_int_equal(problem[0].rank, 2);
}

static void slowed_clocks(void **state)
{
    (void)state;
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    struct preflight p = fill(true);
    rank[3].gpu.reasons = NVML_HW_SLOWDOWN | NVML_HW_THERMAL | NVML_POWER_CAP;
    rank[3].gpu.celsius = 91;
    assert_int_equal(judge(&p, problem), 1);
    assert_true(problem[0].rank == 3 && problem[0].refuses);
    assert_string_equal(problem[0].text,
                        "its GPU's clocks are slowed (hw slowdown, hw thermal) at 1755 MHz of 1980, 91 C "
                        "(--accept-throttling)");
    const struct preflight_limits lenient = {.accept_throttle = true};
    assert_int_equal(preflight_judge(&p, &lenient, problem), 1);
    assert_false(problem[0].refuses);
    for (int64_t bit = NVML_IDLE; bit <= NVML_DISPLAY; bit *= 2) { /* the reasons that count */
        rank[3].gpu.reasons = bit;
        bool bad =
            bit == NVML_HW_SLOWDOWN || bit == NVML_SW_THERMAL || bit == NVML_HW_THERMAL || bit == NVML_POWER_BRAKE;
        assert_int_equal(judge(&p, problem), bad);
    }
    rank[3].gpu.reasons = -1; /* no reasons are reported, so none are claimed */
    assert_int_equal(judge(&p, problem), 0);
}

static void memory_errors(void **state)
{
    (void)state;
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    struct preflight p = fill(true);
    rank[0].gpu.remap_pending = 1;
    rank[1].gpu.uncorrected_errors = 3;
    rank[2].gpu.remap_failed = 1;
    assert_int_equal(judge(&p, problem), 3);
    for (int i = 0; i < 3; i++)
        assert_true(problem[i].rank == i && problem[i].refuses == (i == 2));
    nvml_look(&(struct nvml){0}, &rank[0].gpu); /* a GPU that reports nothing */
    rank[1].gpu = rank[2].gpu = rank[0].gpu;
    assert_int_equal(judge(&p, problem), 0);
}

static void slow_ways(void **state)
{
    (void)state;
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    struct preflight p = fill(true);
    const struct preflight_limits none = {0};
    p.broadcast = 2e-3;
    rank[2].ping = 1e-3;
    rank[3].file_seconds = 100; /* 2 GB of ranks 2 and 3 in 100 s */
    assert_int_equal(judge(&p, problem), 2);
    assert_true(problem[0].rank == 2 && problem[0].refuses && problem[1].rank == 2 && problem[1].refuses);
    assert_string_equal(problem[0].text, "a broadcast to all ranks takes 2000 us, at most 1000 are allowed "
                                         "(--max-broadcast-us); this rank has the longest ping, 1000 us");
    assert_string_equal(problem[1].text,
                        "its host reads the checkpoint at 0.02 GB/s, at least 0.10 are required (--min-file-rate)");
    assert_int_equal(preflight_judge(&p, &none, problem), 0);
}

static void too_many_problems(void **state)
{
    (void)state;
    static struct preflight_rank many[200];
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    struct preflight p = {.n_ranks = 200, .device = "cuda", .rank = many};
    for (int r = 0; r < 200; r++)
        many[r].gpu.remap_failed = 1;
    assert_int_equal(judge(&p, problem), PREFLIGHT_MAX_PROBLEMS);
    assert_non_null(strstr(problem[PREFLIGHT_MAX_PROBLEMS - 1].text, "the GPU should be replaced (and 136 more)"));
    /* Warnings never displace a refusal. */
    for (int r = 0; r < 200; r++)
        many[r].gpu = (struct nvml_state){.remap_pending = 1, .remap_failed = r == 199};
    assert_int_equal(judge(&p, problem), PREFLIGHT_MAX_PROBLEMS);
    int n_refuse = 0;
    for (int i = 0; i < PREFLIGHT_MAX_PROBLEMS; i++)
        n_refuse += problem[i].refuses && problem[i].rank == 199;
    assert_int_equal(n_refuse, 1);
    assert_non_null(strstr(problem[PREFLIGHT_MAX_PROBLEMS - 1].text, " (and 137 more)"));
}

/* Returns the output of a FILE function; the caller frees it. */
static char *printed(void (*print)(FILE *, const struct preflight *, const struct preflight_problem *, int),
                     const struct preflight *p, const struct preflight_problem *problem, int n)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    print(f, p, problem, n);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void words(void **state)
{
    (void)state;
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    struct preflight p = fill(true);
    links[1] = PEER_PCIE;
    char *text = printed(preflight_table, &p, problem, 0), line[400];
    static const char *const want[] = {
        "preflight of 4 ranks on cuda, 4.5 s\n",
        " 4000.0    99%",
        "1755/1980",
        "power cap\n",
        "P2P on node1\n            0      1\n     0      -   PCIe\n     1 NVLink      -\n",
        "P2P on node2\n            2      3\n",
        "all-reduce       8192 bytes        6.0 us      2.05 GB/s (bus)\n",
        "all have answered rank 0: 30.0 us\n",
        "files: node1 reads /models/m at 1.00 GB/s (2000.0 MB, 50 % of it cold)\n",
        "files: node2 reads /models/m at 0.50 GB/s",
        "\nfit\n"};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        if (strstr(text, want[i]) == NULL)
            fail_msg("no \"%s\" in\n%s", want[i], text);
    free(text);
    preflight_line(line, sizeof line, &p);
    assert_string_equal(line, "preflight: 4 ranks read at 4000.0 .. 4030.0 GB/s, sum 8 KiB in 6.0 us, 16 MiB at 125.8 "
                              "GB/s, broadcast 30.0 us, files on node1 at 1.00 GB/s; 4.5 s");
    rank[2].gpu.remap_failed = 1;
    text = printed(preflight_table, &p, problem, judge(&p, problem));
    assert_non_null(strstr(text, "UNFIT: rank 2 on node2: a bad row"));
    assert_non_null(strstr(text, "\nnot fit: see UNFIT above\n"));
    free(text);
}

static void json(void **state)
{
    (void)state;
    struct preflight_problem problem[PREFLIGHT_MAX_PROBLEMS];
    struct preflight p = fill(true);
    rank[1].gpu.reasons = NVML_HW_THERMAL;
    rank[2].gpu.celsius = -1;
    char *text = printed(preflight_json, &p, problem, judge(&p, problem));
    json_t *root = json_loads(text, 0, NULL), *ranks = json_object_get(root, "ranks");
    assert_int_equal(json_array_size(ranks), N);
    const json_t *gpu = json_object_get(json_array_get(ranks, 1), "gpu"), *two = json_array_get(ranks, 2);
    assert_string_equal(json_string_value(json_object_get(gpu, "slowed_by")), "hw thermal");
    assert_int_equal(json_integer_value(json_object_get(gpu, "celsius")), 41);
    assert_null(json_object_get(json_object_get(two, "gpu"), "celsius")); /* not reported: no key */
    assert_true(json_is_false(json_object_get(root, "fit")));
    const json_t *first = json_array_get(json_object_get(root, "problems"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "rank")), 1);
    assert_true(json_is_true(json_object_get(first, "refuses")));
    const json_t *p2p = json_object_get(root, "p2p"), *node2 = json_array_get(p2p, 1);
    assert_int_equal(json_array_size(p2p), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(node2, "ranks"), 1)), 3);
    const json_t *row = json_array_get(json_object_get(node2, "links"), 0);
    assert_string_equal(json_string_value(json_array_get(row, 0)), "-");
    assert_string_equal(json_string_value(json_array_get(row, 1)), "NVLink");
    assert_int_equal(json_array_size(row), 2);
    json_decref(root);
    free(text);
}

/* Two files of 20 MiB and 1 MiB: all ranks together read most of them, and no byte twice. */
static void files(void **state)
{
    (void)state;
    struct checkpoint c = {.n_files = 2, .n_tensors = 2};
    static char text[] = "a.safetensors\0b.safetensors";
    uint32_t name[2] = {0, 14};
    struct tensor_info tensor[2] = {{.file = 0, .offset = 8, .bytes = (20 << 20) - 8},
                                    {.file = 1, .offset = 100, .bytes = (1 << 20) - 100}};
    char *data = calloc(1, 20 << 20);
    files_make_dir(c.dir);
    files_write(c.dir, "a.safetensors", data, 20 << 20);
    files_write(c.dir, "b.safetensors", data, 1 << 20);
    c.text = text;
    c.file = name;
    c.tensor = tensor;
    for (int n = 1; n <= 4; n += 3) {
        struct file_rate f;
        struct err e = {0};
        double bytes = 0;
        for (int r = 0; r < n; r++) {
            assert_int_equal(file_rate_measure(&f, &c, r, n, 1e9, 2, 10, &e), 0);
            assert_true(f.cold_bytes >= 0 && f.cold_bytes <= f.bytes && f.seconds > 0);
            bytes += f.bytes;
        }
        assert_true(bytes > 15.0 * (1 << 20) && bytes <= 21.0 * (1 << 20)); /* whole requests, cut at a file's end */
        bytes = 0;
        for (int r = 0; r < n; r++) { /* a sample does not exceed the request */
            assert_int_equal(file_rate_measure(&f, &c, r, n, (1 << 20), 1, 10, &e), 0);
            bytes += f.bytes;
        }
        assert_true(bytes > 0 && bytes <= (double)n * (1 << 20));
        expect_none(&e);
    }
    struct file_rate f;
    struct err e = {0};
    assert_int_equal(file_rate_measure(&f, &c, 0, 1, 1e9, 2, 0, &e), 0); /* no time: no byte is read */
    assert_true(f.bytes == 0);
    files_write(c.dir, "a.safetensors", data, 10 << 20);
    assert_int_equal(file_rate_measure(&f, &c, 0, 1, 1e9, 1, 10, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "a.safetensors: read of ", "the file is shorter than its header says");
    free(data);
    files_remove_dir(c.dir);
}

/* Ranks 4, 5, 6 of a larger job on one host; rank 4 asks. */
static void blame(void **state)
{
    (void)state;
    struct deadline_view v[3] = {{4, 3, 0.1}, {5, 3, 0.1}, {6, 3, 0}};
    assert_int_equal(deadline_judge(v, 3, 0, 60), 0); /* all in the same phase: no rank is visibly at fault */
    v[2].part = 2;
    assert_int_equal(deadline_judge(v, 3, 0, 60), 2); /* one rank is behind */
    v[1].silent = 29;
    assert_int_equal(deadline_judge(v, 3, 0, 60), 2);
    v[1].silent = 31; /* a silent rank matters more */
    assert_int_equal(deadline_judge(v, 3, 0, 60), 1);
    assert_int_equal(deadline_judge(v, 3, 1, 60), 2);
    assert_int_equal(deadline_judge(v, 1, 0, 60), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fit),           cmocka_unit_test(slow_memory),
                                       cmocka_unit_test(slowed_clocks), cmocka_unit_test(memory_errors),
                                       cmocka_unit_test(slow_ways),     cmocka_unit_test(too_many_problems),
                                       cmocka_unit_test(words),         cmocka_unit_test(json),
                                       cmocka_unit_test(files),         cmocka_unit_test(blame)};
    return cmocka_run_group_tests_name("preflight", tests, NULL, NULL);
}
