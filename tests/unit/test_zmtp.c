/* tests/unit/test_zmtp.c - ZMTP's server end on bytes alone: whole messages for any split into pieces, and the end of a
 * connection after anything forbidden, before memory is allocated for it. tests/e2e and tests/attack let it talk to
 * libzmq. */
#include "coordinator/net/zmtp.h"
#include "tests/unit/unit.h"

#include <malloc.h>
#include <stdlib.h>

#define LIMIT 1000

static const unsigned char greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1, 'N', 'U', 'L', 'L'};

static size_t make_ready(unsigned char *out, const char *type)
{
    size_t n = strlen(type), at = 0;
    unsigned char head[] = {4, (unsigned char)(6 + 12 + 4 + n), 5, 'R', 'E', 'A', 'D', 'Y', 11};
    memcpy(out, head, sizeof head);
    at = sizeof head;
    memcpy(out + at, "socket-TYPE", 11); /* names are case-insensitive */
    at += 11;
    memset(out + at, 0, 3);
    out[at + 3] = (unsigned char)n;
    memcpy(out + at + 4, type, n);
    return at + 4 + n;
}

static void open_connection(struct zmtp *z, size_t piece)
{
    unsigned char bytes[256];
    memcpy(bytes, greeting, sizeof greeting);
    size_t n = sizeof greeting + make_ready(bytes + sizeof greeting, "DEALER");
    zmtp_open(z, NULL, LIMIT);
    for (size_t i = 0; i < n; i += piece)
        assert_int_equal(zmtp_feed(z, bytes + i, piece < n - i ? piece : n - i), 0);
    assert_int_equal(z->state, ZMTP_OPEN);
    z->n_out = 0;
}

static void messages(void **state)
{
    (void)state;
    /* An empty delimiter and "ab"; "c" alone; two parts; an empty message; 300 bytes with a long length. */
    unsigned char bytes[400] = {1,   0,   0, 2, 'a', 'b', 0, 1, 'c', 1, 1, 'x', 0, 2,
                                'y', 'z', 0, 0, 2,   0,   0, 0, 0,   0, 0, 1,   44};
    const size_t n = 27 + 300;
    memset(bytes + 27, 'L', 300);
    for (size_t piece = 1; piece <= n; piece = piece < 40 ? piece + 1 : piece * 2) {
        struct zmtp z;
        open_connection(&z, piece);
        for (size_t i = 0; i < n; i += piece)
            assert_int_equal(zmtp_feed(&z, bytes + i, piece < n - i ? piece : n - i), 0);
        static const struct {
            bool delimiter;
            int n_frames;
            size_t bytes;
            const char *begin;
        } expected[] = {
            {true, 1, 2, "ab"}, {false, 1, 1, "c"}, {false, 2, 1, "x"}, {false, 1, 0, ""}, {false, 1, 300, "LL"}};
        for (size_t i = 0; i < 5; i++) {
            struct zmtp_message *m = zmtp_take(&z);
            assert_non_null(m);
            assert_int_equal(m->delimiter, expected[i].delimiter);
            assert_int_equal(m->n_frames, expected[i].n_frames);
            assert_int_equal(m->bytes, expected[i].bytes);
            if (m->bytes > 0)
                assert_memory_equal(m->body, expected[i].begin, strlen(expected[i].begin));
            zmtp_message_free(m);
        }
        assert_null(zmtp_take(&z));
        zmtp_close(&z);
    }
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        size_t n;
        unsigned char bytes[24];
    } bad[] = {{"a reserved flag", 2, {8, 0}},
               {"a command with more parts", 2, {5, 0}},
               {"more than the limit", 9, {2, 0, 0, 0, 0, 0, 0, 3, 0xe9}},
               {"the largest possible length", 9, {2, 255, 255, 255, 255, 255, 255, 255, 255}},
               {"a large command", 9, {6, 0, 0, 0, 0, 0, 0, 0x20, 0}},
               {"a command without a name", 2, {4, 0}},
               {"a name longer than the command", 4, {4, 2, 9, 'A'}}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct zmtp z;
        open_connection(&z, 64);
        size_t held = zmtp_pending(&z);
        if (zmtp_feed(&z, bad[i].bytes, bad[i].n) != -1)
            print_error("%s is accepted\n", bad[i].what);
        assert_int_equal(z.state, ZMTP_REFUSED);
        assert_true(zmtp_pending(&z) <= held + 4096);
        assert_int_equal(zmtp_feed(&z, "\0\1x", 3), -1); /* nothing is accepted afterwards */
        assert_null(zmtp_take(&z));
        zmtp_close(&z);
    }
    struct zmtp z;
    open_connection(&z, 64);
    for (int i = 0; i < ZMTP_MAX_FRAMES; i++)
        assert_int_equal(zmtp_feed(&z, "\1\1x", 3), 0);
    assert_int_equal(zmtp_feed(&z, "\1\1x", 3), -1);
    zmtp_close(&z);
    open_connection(&z, 64); /* the limit applies to all parts together */
    unsigned char part[9 + 600] = {3, 0, 0, 0, 0, 0, 0, 2, 88};
    assert_int_equal(zmtp_feed(&z, part, sizeof part), 0);
    assert_int_equal(zmtp_feed(&z, part, sizeof part), -1);
    zmtp_close(&z);
}

static void handshakes(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned char byte;
    } wrong[] = {{0, 0}, {9, 0}, {10, 2}, {12, 'P'}, {12, 'C'}};
    static const char *const types[] = {"ROUTER", "PUB", "DEALERS", "", "REP", "dealer"};
    struct zmtp z;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        unsigned char bytes[64];
        memcpy(bytes, greeting, sizeof bytes);
        bytes[wrong[i].at] = wrong[i].byte;
        zmtp_open(&z, NULL, LIMIT);
        assert_int_equal(zmtp_feed(&z, bytes, sizeof bytes), -1);
        zmtp_close(&z);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        unsigned char ready[64];
        zmtp_open(&z, NULL, LIMIT);
        assert_int_equal(zmtp_feed(&z, greeting, sizeof greeting), 0);
        assert_int_equal(zmtp_feed(&z, ready, make_ready(ready, types[i])), -1);
        zmtp_close(&z);
    }
    zmtp_open(&z, NULL, LIMIT);
    assert_int_equal(zmtp_feed(&z, greeting, sizeof greeting), 0);
    assert_int_equal(zmtp_feed(&z, "\0\1x", 3), -1); /* a message before READY */
    zmtp_close(&z);
}

static void heartbeats(void **state)
{
    (void)state;
    static const unsigned char ping[] = {4, 9, 4, 'P', 'I', 'N', 'G', 0, 30, 'h', 'i'},
                               pong[] = {4, 7, 4, 'P', 'O', 'N', 'G', 'h', 'i'};
    struct zmtp z;
    open_connection(&z, 64);
    assert_int_equal(zmtp_feed(&z, ping, sizeof ping), 0);
    assert_int_equal(z.ttl_ms, 3000);
    assert_int_equal(z.n_out, sizeof pong);
    assert_memory_equal(z.out, pong, sizeof pong);
    for (int i = 0; i < 100000; i++) /* the peer does not read the answers */
        assert_int_equal(zmtp_feed(&z, ping, sizeof ping), 0);
    assert_true(z.n_out < 2 * ZMTP_MAX_COMMAND);
    z.n_out = 0;
    z.congested = true; /* pending output already shows that the server is alive */
    assert_int_equal(zmtp_feed(&z, ping, sizeof ping), 0);
    assert_int_equal(z.n_out, 0);
    z.congested = false;
    assert_int_equal(zmtp_feed(&z, ping, sizeof ping), 0);
    assert_int_equal(z.n_out, sizeof pong);
    zmtp_close(&z);
}

/* All memory of a connection is counted, and a small message does not keep the memory of a large frame before it. */
static void memory(void **state)
{
    (void)state;
    enum { LARGE = 100000, MANY = 1000 };
    static unsigned char empty[2 * MANY], part[3 + 9 + LARGE] = {1, 1, 'x', 2, 0, 0, 0, 0, 0, 1, 0x86, 0xa0};
    struct zmtp z;
    open_connection(&z, 64);
    size_t before = zmtp_pending(&z);
    assert_int_equal(zmtp_feed(&z, empty, sizeof empty), 0);
    assert_true(zmtp_pending(&z) >= before + MANY * sizeof(struct zmtp_message));
    for (int i = 0; i < MANY; i++)
        zmtp_message_free(zmtp_take(&z));
    assert_int_equal(zmtp_pending(&z), before);
    z.max_bytes = LARGE + 1;
    assert_int_equal(zmtp_wanted(&z), 0);
    assert_int_equal(zmtp_feed(&z, part, sizeof part - 1), 0);
    assert_int_equal(zmtp_wanted(&z), 1);
    assert_true(zmtp_pending(&z) >= LARGE);
    assert_int_equal(zmtp_feed(&z, part, 1), 0);
    zmtp_message_free(zmtp_take(&z)); /* of two frames */
    assert_int_equal(zmtp_feed(&z, "\0\1y", 3), 0);
    struct zmtp_message *m = zmtp_take(&z);
    assert_int_equal(m->bytes, 1);
    assert_true(malloc_usable_size(m->body) < LARGE);
    assert_true(zmtp_pending(&z) < LARGE);
    zmtp_message_free(m);
    zmtp_close(&z);
}

static void replies(void **state)
{
    (void)state;
    static char text[300];
    unsigned char head[ZMTP_REPLY_HEAD], *body;
    size_t n_body;
    struct zmtp z;
    open_connection(&z, 64);
    assert_int_equal(zmtp_reply(&z, true, "ab", 2, head, &body, &n_body), 4);
    assert_memory_equal(head, "\1\0\0\2", 4);
    assert_int_equal(n_body, 2);
    assert_int_equal(zmtp_reply(&z, false, text, sizeof text, head, &body, &n_body), 9);
    assert_memory_equal(head, "\2\0\0\0\0\0\0\1\54", 9);
    assert_ptr_equal(body, text);
    zmtp_close(&z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),   cmocka_unit_test(refused), cmocka_unit_test(handshakes),
        cmocka_unit_test(heartbeats), cmocka_unit_test(memory),  cmocka_unit_test(replies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
