/* tests/unit/test_numa.c - rank/world/numa.c on a simulated /sys: four nodes, one without cores, and their devices. */
#include "tests/unit/unit.h"

#include "rank/world/numa.h"
#include "tests/support/files.h"

static char root[256];

static cpu_set_t cores(int first, int last)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = first; i <= last; i++)
        CPU_SET((size_t)i, &set);
    return set;
}

static int make_tree(void **state)
{
    (void)state;
    files_make_dir(root);
    files_write_below(root, "devices/system/node/node0/cpulist", "0-3,16-19\n");
    files_write_below(root, "devices/system/node/node1/cpulist", "4-7\n");
    files_write_below(root, "devices/system/node/node3/cpulist", "\n");
    files_write_below(root, "devices/system/node/node5/cpulist", "8-15,1000\n");
    files_write_below(root, "devices/system/node/node6/cpulist", "20-x\n");
    files_write_below(root, "bus/pci/devices/0000:1a:00.0/numa_node", "1\n");
    files_write_below(root, "bus/pci/devices/0000:c1:00.0/numa_node", "-1\n");
    files_write_below(root, "bus/pci/devices/0000:c2:00.0/numa_node", "no number\n");
    files_write_below(root, "bus/pci/devices/0000:c3:00.0/numa_node", "64\n");
    return 0;
}

static int remove_tree(void **state)
{
    (void)state;
    files_remove_dir(root);
    return 0;
}

static void node_of_a_device(void **state)
{
    (void)state;
    assert_int_equal(numa_of_device(root, "0000:1a:00.0"), 1);
    assert_int_equal(numa_of_device(root, "0000:1A:00.0"), 1);
    assert_int_equal(numa_of_device(root, "0000:1A:00.0/1234abcd"), 1);
    assert_int_equal(numa_of_device(root, "0000:C1:00.0"), -1);
    assert_int_equal(numa_of_device(root, "0000:C2:00.0"), -1);
    assert_int_equal(numa_of_device(root, "0000:C3:00.0"), -1);
    assert_int_equal(numa_of_device(root, "0000:ff:00.0"), -1);
    assert_int_equal(numa_of_device(root, ""), -1);
    assert_int_equal(numa_of_device(root, "/1234abcd"), -1);
    assert_int_equal(numa_of_device("/nowhere", "0000:1a:00.0"), -1);
}

static void nodes_of_cores(void **state)
{
    (void)state;
    const struct {
        int first, last;
        uint64_t nodes;
    } want[] = {{0, 0, 1}, {3, 4, 1 | 2}, {4, 7, 2}, {8, 8, 32}, {0, 19, 1 | 2 | 32}, {20, 30, 0}, {1000, 1000, 32}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        cpu_set_t set = cores(want[i].first, want[i].last);
        assert_true(numa_of_cpus(root, &set) == want[i].nodes);
        assert_true(numa_of_cpus("/nowhere", &set) == 0);
    }
}

static void lists(void **state)
{
    (void)state;
    const struct {
        const char *text;
        int count, first, last; /* count -1: malformed */
    } want[] = {{"0-3,8,10-11", 7, 0, 11}, {"5", 1, 5, 5},          {"5\n", 1, 5, 5},   {"", 0, 0, -1},
                {"\n", 0, 0, -1},          {"1023", 1, 1023, 1023}, {"1024", -1, 0, 0}, {"3-1", -1, 0, 0},
                {"1,", -1, 0, 0},          {",1", -1, 0, 0},        {"1-", -1, 0, 0},   {"-1", -1, 0, 0},
                {"1 2", -1, 0, 0},         {"0-3:1/2", -1, 0, 0},   {"a", -1, 0, 0}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        cpu_set_t set = cores(0, 9);
        assert_int_equal(numa_parse_cpulist(want[i].text, &set), want[i].count >= 0);
        assert_int_equal(CPU_COUNT(&set), want[i].count > 0 ? want[i].count : 0);
        if (want[i].count > 0)
            assert_true(CPU_ISSET((size_t)want[i].first, &set) && CPU_ISSET((size_t)want[i].last, &set));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(node_of_a_device), cmocka_unit_test(nodes_of_cores),
                                       cmocka_unit_test(lists)};
    return cmocka_run_group_tests_name("numa", tests, make_tree, remove_tree);
}
