/* tests/unit/test_listen.c - gateway/http/listen.c: the addresses that a place of --listen means. */
#include "tests/unit/unit.h"

#include "gateway/http/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Has the machine IPv6? */
static bool has_six(void)
{
    const struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    if (fd >= 0)
        (void)close(fd);
    return has;
}

static bool connects(int family, int port)
{
    const struct sockaddr_in four = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(family, SOCK_STREAM, 0);
    bool good = fd >= 0 && (family == AF_INET ? connect(fd, (const struct sockaddr *)&four, sizeof four)
                                              : connect(fd, (const struct sockaddr *)&six, sizeof six)) == 0;
    if (fd >= 0)
        (void)close(fd);
    return good;
}

static void all_addresses(void **state)
{
    (void)state;
    char shown[HTTP_ADDRESS_BYTES];
    struct err e = {0};
    int fd = http_listen(":0", shown, &e);
    assert_true(fd >= 0);
    int port = atoi(strrchr(shown, ':') + 1);
    assert_true(connects(AF_INET, port));
    if (has_six())
        assert_true(connects(AF_INET6, port));
    (void)close(fd);
}

static void one_address(void **state)
{
    (void)state;
    char shown[HTTP_ADDRESS_BYTES], again[HTTP_ADDRESS_BYTES];
    struct err e = {0};
    int fd = http_listen("127.0.0.1:0", shown, &e);
    assert_true(fd >= 0);
    assert_true(connects(AF_INET, atoi(strrchr(shown, ':') + 1)));
    assert_false(has_six() && connects(AF_INET6, atoi(strrchr(shown, ':') + 1)));
    assert_int_equal(http_listen(shown, again, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, shown, "Address already in use");
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_addresses),
        cmocka_unit_test(one_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
