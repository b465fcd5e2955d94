/* tests/unit/test_memory_limit.c - base/memory_limit.c on simulated cgroups of both versions, and under ulimit -v. */
#include "tests/unit/unit.h"

#include "base/memory_limit.h"
#include "tests/support/files.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static char root[256];

static int make_tree(void **state)
{
    (void)state;
    files_make_dir(root);
    files_write_below(root, "none/cgroup", "0::/\n");
    /* A job of Slurm with --mem, version 2: the step has no limit of its own. */
    files_write_below(root, "v2/cgroup", "0::/slurm/job_7/step_0\n");
    files_write_below(root, "v2.fs/memory.stat", "anon 1\n");
    files_write_below(root, "v2.fs/slurm/memory.max", "max\n");
    files_write_below(root, "v2.fs/slurm/job_7/memory.max", "10000000\n");
    files_write_below(root, "v2.fs/slurm/job_7/memory.current", "7000000\n");
    files_write_below(root, "v2.fs/slurm/job_7/memory.stat",
                      "anon 1000000\nfile 6000000\ninactive_file 4000000\nactive_file 1000000\n");
    files_write_below(root, "v2.fs/slurm/job_7/step_0/memory.max", "max\n");
    files_write_below(root, "v2.fs/slurm/job_7/step_0/memory.current", "1\n");
    /* The same in version 1, beside other controllers, and above a limit that the kernel rounds down from "none". */
    files_write_below(root, "v1/cgroup", "11:cpuset:/x\n4:memory:/uid_0/job_7\n0::/\n");
    files_write_below(root, "v1.fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
    files_write_below(root, "v1.fs/memory/uid_0/memory.limit_in_bytes", "5000000\n");
    files_write_below(root, "v1.fs/memory/uid_0/memory.usage_in_bytes", "6000000\n");
    files_write_below(root, "v1.fs/memory/uid_0/memory.stat",
                      "inactive_file 7\ntotal_inactive_file 2000000\ntotal_active_file 0\n");
    files_write_below(root, "v1.fs/memory/uid_0/job_7/memory.limit_in_bytes", "9223372036854771712\n");
    files_write_below(root, "v1.fs/memory/uid_0/job_7/memory.usage_in_bytes", "6000000\n");
    /* A container shows the path of its host, which it does not have. */
    files_write_below(root, "inside/cgroup", "0::/machine/container-1\n");
    files_write_below(root, "inside.fs/memory.max", "3000000\n");
    files_write_below(root, "inside.fs/memory.current", "3500000\n");
    return 0;
}

static int remove_tree(void **state)
{
    (void)state;
    files_remove_dir(root);
    return 0;
}

static struct memory_limit read_tree_for(const char *name, int n)
{
    char proc[400], groups[400];
    (void)snprintf(proc, sizeof proc, "%s/%s", root, name);
    (void)snprintf(groups, sizeof groups, "%s/%s.fs", root, name);
    return memory_limit_read(proc, groups, n);
}

static struct memory_limit read_tree(const char *name)
{
    return read_tree_for(name, 1);
}

static void no_limit(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "absent"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct memory_limit l = read_tree(names[i]);
        assert_true(l.rest == SIZE_MAX);
        assert_null(l.by);
    }
}

static void cgroups(void **state)
{
    (void)state;
    struct memory_limit l = read_tree("v2");
    assert_int_equal(l.rest, 10000000 - 7000000 + 4000000 + 1000000);
    assert_string_equal(l.by, "memory.max of the job's cgroup");
    l = read_tree("v1");
    assert_int_equal(l.rest, 5000000 - 6000000 + 2000000);
    assert_string_equal(l.by, "memory.limit_in_bytes of the job's cgroup");
    assert_int_equal(read_tree_for("v1", 3).rest, l.rest);
    l = read_tree("inside");
    assert_int_equal(l.rest, 0);
    assert_string_equal(l.by, "memory.max of the job's cgroup");
}

static void address_space(void **state)
{
    (void)state;
    struct rlimit old, low = {.rlim_cur = (rlim_t)1 << 40, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low.rlim_max = old.rlim_max;
    files_write_below(root, "space/statm", "1000 500 1 1 1 1 1\n");
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    struct memory_limit l = read_tree("space"), of_three = read_tree_for("space", 3);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_true(l.rest == ((size_t)1 << 40) - 1000 * (size_t)sysconf(_SC_PAGESIZE));
    assert_string_equal(l.by, "ulimit -v");
    assert_true(of_three.rest == 3 * l.rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_limit),
        cmocka_unit_test(cgroups),
        cmocka_unit_test(address_space),
    };
    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
