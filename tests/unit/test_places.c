/* tests/unit/test_places.c - rank/world/places.c: the table of the ranks' devices, and its refusals. */
#include "tests/unit/unit.h"

#include "rank/world/places.h"

#include <stdio.h>

#define N 5

/* Two hosts: ranks 0-2 on the first, whose GPUs 0 and 1 share NVLink, 3-4 on the second, each seeing one GPU. */
static void fill(struct rank_place place[N])
{
    static const char *const id[N] = {"0000:1A:00.0/aaaaaaaa", "0000:1B:00.0/bbbbbbbb", "0000:C1:00.0/cccccccc",
                                      "0000:1A:00.0/dddddddd", "0000:1B:00.0/eeeeeeee"};
    memset(place, 0, N * sizeof *place);
    for (int i = 0; i < N; i++) {
        (void)snprintf(place[i].host, sizeof place[i].host, "%s", i < 3 ? "node1" : "node2");
        (void)snprintf(place[i].model, sizeof place[i].model, "NVIDIA H200");
        (void)snprintf(place[i].id, sizeof place[i].id, "%s", id[i]);
        place[i].device = i < 3 ? i : 0;
        place[i].numa = i == 2 ? 1 : i == 3 ? -1 : 0;
        place[i].cpu_nodes = i == 1 ? 0x0e : i == 4 ? 0 : 3;
    }
    const enum peer_link link[N][N] = {{PEER_UNKNOWN, PEER_NVLINK, PEER_PCIE, PEER_NVLINK, PEER_NVLINK},
                                       {PEER_NVLINK, PEER_UNKNOWN, PEER_NONE},
                                       {PEER_PCIE, PEER_NONE, PEER_UNKNOWN}};
    for (int i = 0; i < N; i++)
        places_link(place, N, i, link[i]);
}

static void links(void **state)
{
    (void)state;
    struct rank_place place[N];
    fill(place);
    static const char *const peers[N] = {"NVLink to 1; PCIe to 2", "NVLink to 0; none to 2", "PCIe to 0; none to 1",
                                         "unknown to 4", "unknown to 3"};
    for (int i = 0; i < N; i++)
        assert_string_equal(place[i].peers, peers[i]);
    assert_int_equal(place[0].n_links[PEER_NVLINK], 1);
    assert_int_equal(place[3].n_links[PEER_UNKNOWN], 1);
    assert_true(places_apart(place, N));
    assert_false(places_apart(place, 1));
    assert_int_equal(places_n_hosts(place, N), 2);
    const enum peer_link all[N] = {PEER_NVLINK, PEER_NVLINK, PEER_NVLINK};
    places_link(place, N, 0, all);
    assert_string_equal(place[0].peers, "NVLink to 1-2");
    places_link(place, 1, 0, all);
    assert_string_equal(place[0].peers, "-");
}

static void rows(void **state)
{
    (void)state;
    struct rank_place place[N];
    char text[300];
    fill(place);
    static const char *const want[N + 1] = {
        "rank  host   GPU  model        PCI bus id    NUMA  cores  P2P",
        "   0  node1    0  NVIDIA H200  0000:1A:00.0     0    0-1  NVLink to 1; PCIe to 2",
        "   1  node1    1  NVIDIA H200  0000:1B:00.0     0    1-3  NVLink to 0; none to 2",
        "   2  node1    2  NVIDIA H200  0000:C1:00.0     1    0-1  PCIe to 0; none to 1",
        "   3  node2    0  NVIDIA H200  0000:1A:00.0  none    0-1  unknown to 4",
        "   4  node2    0  NVIDIA H200  0000:1B:00.0     0   none  unknown to 3"};
    for (int i = -1; i < N; i++) {
        places_row(text, sizeof text, place, N, i);
        assert_string_equal(text, want[i + 1]);
    }
    places_row(text, 20, place, N, 0);
    assert_string_equal(text, "   0  node1    0  N"); /* truncated, not overrun */
}

static void summary(void **state)
{
    (void)state;
    struct rank_place place[N];
    char text[300];
    fill(place);
    places_summary(text, sizeof text, place, N);
    assert_string_equal(text, "5 ranks on 2 hosts, each with a GPU of its own: NVIDIA H200; P2P of pairs: 1 NVLink, 1 "
                              "PCIe, 1 none, 1 unknown; --verbose lists them");
    (void)snprintf(place[4].model, sizeof place[4].model, "NVIDIA L4");
    places_summary(text, sizeof text, place, N);
    assert_non_null(strstr(text, "NVIDIA H200 (1 ranks have another model);"));
}

/* Ranks 3 and 4 report too little; rank 1's cores are on nodes 1-3, its GPU on 0. */
static void far_cores(void **state)
{
    (void)state;
    struct rank_place place[N];
    char text[100];
    fill(place);
    places_far(text, sizeof text, place, N);
    assert_string_equal(text, "1");
    place[2].cpu_nodes = 1;
    places_far(text, sizeof text, place, N);
    assert_string_equal(text, "1-2");
    place[1].cpu_nodes = place[2].cpu_nodes = 3;
    places_far(text, sizeof text, place, N);
    assert_string_equal(text, "");
}

/* As batch systems assign GPUs: all of the job's on the node to each rank, or one to each. */
static void choices(void **state)
{
    (void)state;
    struct err e = {0};
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(places_choose(4, rank, 4, "node1", "", &e), rank);
        assert_int_equal(places_choose(8, rank, 4, "node1", "", &e), rank); /* more GPUs than ranks */
        assert_int_equal(places_choose(1, rank, 4, "node1", "", &e), 0);    /* --gpus-per-task=1, a MIG slice each */
    }
    assert_int_equal(places_choose(1, 0, 1, "node1", "", &e), 0);
    expect_none(&e);
    assert_int_equal(places_choose(2, 0, 3, "node1", ", CUDA_VISIBLE_DEVICES is \"0,1\"", &e), -1);
    expect_text(&e, ERR_DEVICE,
                "3 ranks on this host, but 2 GPUs are visible, CUDA_VISIBLE_DEVICES is \"0,1\": start one rank per "
                "GPU, or --device cpu");
    e = (struct err){0};
    assert_int_equal(places_choose(0, 1, 2, "node1", "", &e), -1);
    expect_text(&e, ERR_DEVICE, "--device cuda: no GPU is visible on node1");
}

/* Ranks that see one GPU each take their number 0: only its id tells whether it is the same one. */
static void one_visible_each(void **state)
{
    (void)state;
    struct rank_place place[N];
    struct err e = {0};
    fill(place);
    for (int i = 0; i < 3; i++)
        place[i].device = 0;
    assert_int_equal(places_check(place, N, &e), 0);
    (void)snprintf(place[2].id, sizeof place[2].id, "%s", place[0].id);
    assert_int_equal(places_check(place, N, &e), -1);
    EXPECT_PARTS(&e, ERR_DEVICE, "ranks 0 and 2 have the same GPU 0000:1A:00.0/aaaaaaaa of node1");
    /* Two slices of one card (MIG) share its address, not its id; the same slice twice is refused. */
    e = (struct err){0};
    (void)snprintf(place[2].id, sizeof place[2].id, "0000:1A:00.0/12345678");
    assert_int_equal(places_check(place, N, &e), 0);
    expect_none(&e);
    (void)snprintf(place[1].id, sizeof place[1].id, "0000:1A:00.0/12345678");
    (void)snprintf(place[1].visible, sizeof place[1].visible, "MIG-12345678-0000-5000-8000-000000000000");
    memcpy(place[2].visible, place[1].visible, sizeof place[2].visible);
    assert_int_equal(places_check(place, N, &e), -1);
    EXPECT_PARTS(&e, ERR_DEVICE, "ranks 1 and 2 have the same GPU", "\"MIG-12345678-0000-5000-8000-000000000000\"",
                 "start one rank per GPU");
    /* A list of slices, if a batch system gives all of the job's to each rank. */
    for (int i = 1; i < 3; i++)
        (void)snprintf(place[i].visible, sizeof place[i].visible,
                       "MIG-12345678-0000-5000-8000-000000000000,MIG-87654321-0000-5000");
    e = (struct err){0};
    assert_int_equal(places_check(place, N, &e), -1);
    EXPECT_PARTS(&e, ERR_DEVICE, "ranks 1 and 2 have the same GPU 0000:1A:00.0/12345678 of node1",
                 "a process sees the first of several slices (MIG) only: give each rank one of them");
    /* With one each they are two devices without a link to each other, as the CUDA backend reports. */
    enum peer_link link[N] = {PEER_UNKNOWN, PEER_UNKNOWN, PEER_NONE};
    (void)snprintf(place[2].id, sizeof place[2].id, "0000:1A:00.0/87654321");
    assert_int_equal(places_check(place, N, &(struct err){0}), 0);
    places_link(place, N, 1, link);
    assert_string_equal(place[1].peers, "none to 2; unknown to 0");
    assert_true(places_apart(place, N));
}

static void refusals(void **state)
{
    (void)state;
    struct rank_place place[N];
    struct err e = {0};
    fill(place);
    assert_int_equal(places_check(place, N, &e), 0); /* the same address on two hosts is two GPUs */
    expect_none(&e);
    memcpy(place[2].id, place[1].id, sizeof place[1].id);
    assert_int_equal(places_check(place, N, &e), -1);
    expect_text(
        &e, ERR_DEVICE,
        "ranks 1 and 2 have the same GPU 0000:1B:00.0/bbbbbbbb of node1: start one rank per GPU, or --device cpu");
    e = (struct err){0};
    (void)snprintf(place[1].visible, sizeof place[1].visible, "1");
    (void)snprintf(place[2].visible, sizeof place[2].visible, "GPU-bbbb");
    assert_int_equal(places_check(place, N, &e), -1);
    expect_text(&e, ERR_DEVICE,
                "ranks 1 and 2 have the same GPU 0000:1B:00.0/bbbbbbbb of node1, CUDA_VISIBLE_DEVICES being \"1\" and "
                "\"GPU-bbbb\": start one rank per GPU, or --device cpu");
    e = (struct err){0};
    place[1].id[0] = place[2].id[0] = '\0'; /* two that failed to open have no device at all */
    assert_int_equal(places_check(place, N, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(links),   cmocka_unit_test(rows),
                                       cmocka_unit_test(summary), cmocka_unit_test(far_cores),
                                       cmocka_unit_test(choices), cmocka_unit_test(one_visible_each),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
