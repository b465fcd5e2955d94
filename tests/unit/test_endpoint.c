/* tests/unit/test_endpoint.c - base/endpoint.c: endpoints that libzmq would silently accept; base/nearest.c: typing
 * errors. */
#include "tests/unit/unit.h"

#include "base/endpoint.h"
#include "base/nearest.h"

#include <stdio.h>

static void takes(const char *text, bool to_bind)
{
    struct err e = {0};
    if (endpoint_check(text, to_bind, "--endpoint", &e) != 0)
        print_error("refused: %s: %s\n", text, e.text);
    assert_int_equal(e.code, ERR_NONE);
}

static void refuses(const char *text, bool to_bind, const char *part)
{
    struct err e = {0};
    if (endpoint_check(text, to_bind, "--endpoint", &e) == 0)
        print_error("accepted: %s\n", text);
    EXPECT_PARTS(&e, ERR_USAGE, "--endpoint: ", part);
}

static void takes_endpoints(void **state)
{
    (void)state;
    static const char *const both[] = {"tcp://127.0.0.1:1",
                                       "tcp://127.0.0.1:65535",
                                       "tcp://[::1]:5555",
                                       "tcp://[fe80::1%eth0]:5555",
                                       "tcp://localhost:5555",
                                       "tcp://node-17.cluster:80",
                                       "tcp://eth0:80",
                                       "ipc:///tmp/s",
                                       "ipc://s",
                                       "ipc://@abstract"};
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++)
        for (int to_bind = 0; to_bind < 2; to_bind++)
            takes(both[i], to_bind != 0);
    takes("tcp://*:*", true);
    takes("tcp://0.0.0.0:0", true);
}

static void refuses_ports(void **state)
{
    (void)state;
    static const char *const ports[] = {"99999", "65536", "4294967297", "-1",   "+80", " 80", "80 ", "0x50",
                                        "080",   "00",    "",           "http", "80x", "5.5", "!",   "**"};
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "tcp://127.0.0.1:%s", ports[i]);
        for (int to_bind = 0; to_bind < 2; to_bind++)
            refuses(text, to_bind != 0, "expected an integer in [1, 65535]");
    }
    refuses("tcp://127.0.0.1:0", false, "found the port \"0\"");
    refuses("tcp://127.0.0.1:*", false, "found the port \"*\"");
}

static void refuses_addresses(void **state)
{
    (void)state;
    static const char *const addresses[] = {
        "",       "127.1", "2130706433", "256.0.0.1", "1.2.3",   "1.2.3.4.5", "::1",       "[::1", "[]",       "[::g]",
        "[::1%]", "a b",   "a/b",        "-a",        "eth0;lo", "a:80",      "user@host", "..",   "[1.2.3.4]"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "tcp://%s:80", addresses[i]);
        refuses(text, true, "");
        refuses(text, false, "");
    }
    refuses("tcp://*:80", false, "found the address \"*\"");
}

static void says_what_is_missing(void **state)
{
    (void)state;
    refuses("127.0.0.1:5555", false, "without tcp:// in front, expected tcp://127.0.0.1:5555");
    refuses("node-3:5555", false, "expected tcp://node-3:5555");
    refuses("/tmp/socket", false, "expected ipc:///tmp/socket");
    refuses("tcp://127.0.0.1", false, "no port");
    refuses("tcp://", true, "no port");
    refuses("tcp://[::1]", true, "no port");
    refuses("ipc://", true, "ipc://PATH");
    refuses("ipc://@", true, "ipc://PATH");
    refuses("", false, "expected tcp://ADDRESS:PORT or ipc://PATH");
    refuses("TCP://127.0.0.1:80", false, "expected tcp://ADDRESS:PORT or ipc://PATH");
    refuses("udp://127.0.0.1:80", false, "expected tcp://ADDRESS:PORT or ipc://PATH");
    refuses("inproc://x", true, "expected tcp://ADDRESS:PORT or ipc://PATH");
}

static void knows_loopback(void **state)
{
    (void)state;
    assert_true(endpoint_is_loopback("tcp://127.8.0.1:80"));
    assert_true(endpoint_is_loopback("tcp://[::1]:80"));
    assert_false(endpoint_is_loopback("tcp://127.evil.org:80"));
    assert_false(endpoint_is_loopback("tcp://128.0.0.1:80"));
}

static void finds_names(void **state)
{
    static const char *const without[] = {"tcp://127.0.0.1:80", "tcp://[fe80::1%eth0]:80", "ipc:///tmp/a:1"};
    char name[256];
    (void)state;
    assert_true(endpoint_name("tcp://node-3.example:80", name, sizeof name));
    assert_string_equal(name, "node-3.example");
    assert_true(endpoint_name("tcp://3com.example:80", name, sizeof name));
    assert_string_equal(name, "3com.example");
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++)
        assert_false(endpoint_name(without[i], name, sizeof name));
    assert_true(endpoint_is_ipv6(without[1]) && !endpoint_is_ipv6(without[0]));
}

static void counts_changes(void **state)
{
    (void)state;
    assert_int_equal(nearest_distance("drian", "drain"), 1);
    assert_int_equal(nearest_distance("DRAIN", "drain"), 0);
    assert_int_equal(nearest_distance("tokenise", "tokenize"), 1);
    assert_int_equal(nearest_distance("", "top"), 3);
    assert_true(nearest_distance("hello", "health") > nearest_limit("hello"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(takes_endpoints),   cmocka_unit_test(refuses_ports),
                                       cmocka_unit_test(refuses_addresses), cmocka_unit_test(says_what_is_missing),
                                       cmocka_unit_test(knows_loopback),    cmocka_unit_test(finds_names),
                                       cmocka_unit_test(counts_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
