/* tests/unit/test_lifeline_connect.c - rank/watch/lifeline_connect.c: ranks are admitted by socket and by TCP,
 * strangers are not. */
#include "tests/unit/unit.h"

#include "rank/watch/lifeline_connect.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANKS 4

struct guest {
    pthread_t thread;
    const struct lifeline_invitation *invitation;
    int rank, fd;
    bool same_host;
};

static void *come(void *context)
{
    struct guest *g = context;
    g->fd = lifeline_connect(g->invitation, g->rank, g->same_host);
    return NULL;
}

/* A byte from each end arrives at the other one. */
static void check_connected(int a, int b)
{
    char byte = 'x';
    assert_true(a >= 0 && b >= 0);
    assert_int_equal(send(a, &byte, 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(b, &byte, 1, 0), 1);
    assert_int_equal(send(b, &byte, 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(a, &byte, 1, 0), 1);
}

/* All ranks come, the one named by `same_host` by the socket. */
static void admit_all(struct lifeline_listener *listener, const struct lifeline_invitation *i, int same_host)
{
    struct guest guest[RANKS] = {{.rank = 0}};
    int fd[RANKS];
    for (int r = 1; r < RANKS; r++) {
        guest[r] = (struct guest){.invitation = i, .rank = r, .same_host = r == same_host};
        assert_int_equal(pthread_create(&guest[r].thread, NULL, come, &guest[r]), 0);
    }
    lifeline_accept(listener, i, fd, RANKS);
    for (int r = 1; r < RANKS; r++) {
        (void)pthread_join(guest[r].thread, NULL);
        check_connected(fd[r], guest[r].fd);
        (void)close(fd[r]);
        (void)close(guest[r].fd);
    }
}

static void all_come(void **unused)
{
    (void)unused;
    struct lifeline_listener listener;
    struct lifeline_invitation i;
    char text[200];
    lifeline_listen(&listener, &i, true);
    assert_true(i.name != 0 && i.port != 0);
    i.n_addresses = 2; /* one without a listener, and one that works */
    i.address[0] = htonl(INADDR_LOOPBACK + 1);
    i.address[1] = htonl(INADDR_LOOPBACK);
    lifeline_addresses(text, sizeof text, &i);
    assert_non_null(strstr(text, "127.0.0.1 port "));
    admit_all(&listener, &i, 2);
}

/* A wrong token, a rank that does not exist, one that is already connected, one that sends nothing: the others are
 * unaffected. */
static void strangers(void **unused)
{
    (void)unused;
    struct lifeline_listener listener;
    struct lifeline_invitation i, wrong;
    struct guest guest[4];
    int fd[3];
    lifeline_listen(&listener, &i, false);
    assert_int_equal(i.n_addresses, 0);
    assert_int_equal(listener.tcp_fd, -1);
    wrong = i;
    wrong.token[1] ^= 1;
    guest[0] = (struct guest){.invitation = &wrong, .rank = 1, .same_host = true};
    guest[1] = (struct guest){.invitation = &i, .rank = 3, .same_host = true};
    guest[2] = (struct guest){.invitation = &i, .rank = -1, .same_host = true};
    guest[3] = (struct guest){.invitation = &i, .rank = 2, .same_host = true};
    for (int k = 0; k < 4; k++)
        assert_int_equal(pthread_create(&guest[k].thread, NULL, come, &guest[k]), 0);
    lifeline_accept(&listener, &i, fd, 3); /* rank 1 never comes: takes some seconds */
    for (int k = 0; k < 4; k++)
        (void)pthread_join(guest[k].thread, NULL);
    for (int k = 0; k < 3; k++)
        assert_int_equal(guest[k].fd, -1);
    assert_int_equal(fd[1], -1);
    check_connected(fd[2], guest[3].fd);
    (void)close(fd[2]);
    (void)close(guest[3].fd);
}

static void nobody_listens(void **unused)
{
    (void)unused;
    struct lifeline_invitation i = {
        .name = 4711, .n_addresses = 1, .port = htons(1), .address = {htonl(INADDR_LOOPBACK)}};
    assert_int_equal(lifeline_connect(&i, 1, true), -1);
    i = (struct lifeline_invitation){0};
    assert_int_equal(lifeline_connect(&i, 1, true), -1);
}

/* More silent connections than rank 0 keeps, before the ranks come: the silent ones are dropped. */
static void idle_strangers(void **unused)
{
    (void)unused;
    enum { IDLE = 200 };
    struct lifeline_listener listener;
    struct lifeline_invitation i;
    int idle[IDLE];
    lifeline_listen(&listener, &i, true);
    i.n_addresses = 1;
    i.address[0] = htonl(INADDR_LOOPBACK);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = i.port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int k = 0; k < IDLE; k++) {
        idle[k] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(idle[k], (struct sockaddr *)&to, sizeof to), 0);
    }
    admit_all(&listener, &i, -1);
    for (int k = 0; k < IDLE; k++)
        (void)close(idle[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_come), cmocka_unit_test(idle_strangers),
                                       cmocka_unit_test(strangers), cmocka_unit_test(nobody_listens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
