/* tests/attack/test_gateway_http.c - hostile clients of lockstep-gateway: requests that two programs could parse
 * differently, floods, slow and silent clients. None of these reaches a backend, and honest clients are served
 * meanwhile. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/fake_server.h"
#include "tests/support/front.h"
#include "tests/support/web.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST "Host: x\r\n"
#define POST "POST /v1/completions HTTP/1.1\r\n" HOST

static struct fake_server fake;
static struct web_gateway gate;

static void start_gateway(const char *const *more)
{
    const char *all[40] = {"--backend", fake.endpoint};
    int n = 2;
    for (; *more != NULL && n < 39; more++)
        all[n++] = *more;
    web_start(&gate, true, all);
}

#define START(...) start_gateway((const char *const[]){__VA_ARGS__, NULL})

static int n_generated(void)
{
    int n = 0;
    for (int i = 0; i < fake.n_received; i++)
        n += json_object_get(fake.received[i], "prompt") != NULL;
    return n;
}

/* An honest request is answered. */
static void check_alive(void)
{
    struct web_answer a;
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":1}", &a);
    case_check(a.status == 200, "an honest client gets %d %s", a.status, a.body);
    web_free(&a);
}

/* ---------------------------------------------------------------- refused requests, which end the connection */

#define BODY "{\"prompt\":\"smuggled\"}" /* 21 bytes */

static const struct {
    const char *what;
    int status;
    const char *bytes;
    size_t n; /* 0: the length of the text */
} malformed[] = {
    {"two lengths that differ", 400, POST "Content-Length: 21\r\nContent-Length: 0\r\n\r\n" BODY, 0},
    {"two lengths that are the same", 400, POST "Content-Length: 21\r\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"a list of lengths", 400, POST "Content-Length: 21, 21\r\n\r\n" BODY, 0},
    {"a signed length", 400, POST "Content-Length: +21\r\n\r\n" BODY, 0},
    {"a negative length", 400, POST "Content-Length: -1\r\n\r\n" BODY, 0},
    {"a hexadecimal length", 400, POST "Content-Length: 0x15\r\n\r\n" BODY, 0},
    {"an empty length", 400, POST "Content-Length:\r\n\r\n" BODY, 0},
    {"a length of 20 digits", 400, POST "Content-Length: 00000000000000000021\r\n\r\n" BODY, 0},
    {"a length beside chunks", 400,
     POST "Content-Length: 21\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"chunks beside a length", 400,
     POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"two codings", 400,
     POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a list of codings", 400, POST "Transfer-Encoding: gzip, chunked\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"an unknown coding", 400, POST "Transfer-Encoding: xchunked\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a coding with a vertical tab", 400, POST "Transfer-Encoding: \vchunked\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"chunks in HTTP/1.0", 400,
     "POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a blank before the colon", 400, POST "Content-Length : 21\r\n\r\n" BODY, 0},
    {"a field over two lines", 400, POST "X: a\r\n b\r\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"a continued first field", 400, "POST /v1/completions HTTP/1.1\r\n Host: x\r\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"a field without a colon", 400, POST "Content-Length\r\n\r\n" BODY, 0},
    {"a field without a name", 400, POST ": 21\r\n\r\n" BODY, 0},
    {"LF alone", 400, "POST /v1/completions HTTP/1.1\nHost: x\nContent-Length: 21\n\n" BODY, 0},
    {"LF alone in one place", 400, POST "X: a\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"CR alone", 400, POST "X: a\rContent-Length: 21\r\n\r\n" BODY, 0},
    {"a NUL", 400, POST "X: a\0b\r\nContent-Length: 21\r\n\r\n" BODY,
     sizeof(POST "X: a\0b\r\nContent-Length: 21\r\n\r\n" BODY) - 1},
    {"a control character in a value", 400, POST "X: a\001b\r\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"two hosts", 400, POST "Host: y\r\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"no host", 400, "POST /v1/completions HTTP/1.1\r\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"two blanks in the first line", 400, "POST  /v1/completions HTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n" BODY,
     0},
    {"a tab in the first line", 400, "POST\t/v1/completions\tHTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n" BODY, 0},
    {"no version", 400, "POST /v1/completions\r\n" HOST "Content-Length: 21\r\n\r\n" BODY, 0},
    {"HTTP/1.2", 505, "POST /v1/completions HTTP/1.2\r\n" HOST "Content-Length: 21\r\n\r\n" BODY, 0},
    {"HTTP/2", 505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
    {"a target that is not a path", 400, "POST v1/completions HTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n" BODY, 0},
    {"half a percent code", 400, "POST /v1/completions%4 HTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n" BODY, 0},
    {"a NUL by percent code", 400, "POST /v1/completions%00 HTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n" BODY, 0},
    {"another expectation", 417, POST "Expect: money\r\nContent-Length: 21\r\n\r\n" BODY, 0},
    {"a chunk without a size", 400, POST "Transfer-Encoding: chunked\r\n\r\n\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a signed chunk", 400, POST "Transfer-Encoding: chunked\r\n\r\n+15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a chunk with 0x", 400, POST "Transfer-Encoding: chunked\r\n\r\n0x15\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a chunk of nine digits", 400, POST "Transfer-Encoding: chunked\r\n\r\n000000015\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a chunk's size with a blank", 400, POST "Transfer-Encoding: chunked\r\n\r\n15 \r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a chunk that is longer", 400, POST "Transfer-Encoding: chunked\r\n\r\n14\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a chunk that ends with LF", 400, POST "Transfer-Encoding: chunked\r\n\r\n15\r\n" BODY "\n0\r\n\r\n", 0},
    {"a chunk's size that ends with LF", 400, POST "Transfer-Encoding: chunked\r\n\r\n15\n" BODY "\r\n0\r\n\r\n", 0},
    {"an extension with LF", 400, POST "Transfer-Encoding: chunked\r\n\r\n15;a\nb\r\n" BODY "\r\n0\r\n\r\n", 0},
    {"a trailer without a colon", 400, POST "Transfer-Encoding: chunked\r\n\r\n15\r\n" BODY "\r\n0\r\nbad\r\n\r\n", 0},
    {"a body that is too large", 413, POST "Content-Length: 999999999\r\n\r\n", 0},
    {"a chunk that is too large", 413, POST "Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n", 0},
};

static void refuses(void)
{
    int before = n_generated();
    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        struct web_answer a;
        int fd = web_connect(&gate);
        case_begin("refused: %s", malformed[i].what);
        web_say(fd, malformed[i].bytes, malformed[i].n > 0 ? malformed[i].n : strlen(malformed[i].bytes));
        web_hear(fd, &a, WEB_SECONDS);
        case_check(a.status == malformed[i].status, "%d %s, expected %d", a.status, a.body, malformed[i].status);
        case_check(a.closed, "the connection stays open");
        case_check(strncmp(a.body, "{\"error\":{\"message\":\"", 21) == 0, "%s", a.body);
        web_free(&a);
        (void)close(fd);
        case_end();
    }
    case_begin("none of them was forwarded");
    case_check(n_generated() == before, "%d were forwarded", n_generated() - before);
    check_alive();
    case_end();
}

/* ---------------------------------------------------------------- unusual but valid requests */

static const char *const right[] = {
    POST "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0014;a=b\r\n\"prompt\":\"smuggled\"}\r\n0\r\nX-Check: 1\r\n\r\n",
    "\r\n" POST "Transfer-Encoding:\tCHUNKED \r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n",
    POST "content-LENGTH: 21\r\nX: \xe9\r\n\r\n" BODY,
    "POST http://elsewhere/v1/completions?x=1 HTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n" BODY,
    "POST /v1/%63ompletions HTTP/1.1\r\n" HOST "Content-Length: 21\r\n\r\n" BODY,
};

static void accepts(void)
{
    case_begin("unusual but valid requests on one connection");
    int fd = web_connect(&gate);
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        struct web_answer a;
        web_say_text(fd, right[i]);
        web_hear(fd, &a, 0);
        case_check(a.status == 200, "%zu: %d %s", i, a.status, a.body);
        web_free(&a);
    }
    (void)close(fd);
    case_end();
}

/* Requests byte by byte, and many at once, are answered in order. */
static void pipelines(void)
{
    char all[20000] = "", path[60];
    size_t n = 0;
    case_begin("200 requests at once, answered in order");
    int fd = web_connect(&gate);
    for (int i = 0; i < 200; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "GET /v1/models/m%d HTTP/1.1\r\n" HOST "\r\n", i);
    web_say(fd, all, n);
    for (int i = 0; i < 200; i++) {
        struct web_answer a;
        web_hear(fd, &a, 0);
        (void)snprintf(path, sizeof path, "\\\"m%d\\\"", i);
        case_check(a.status == 404 && strstr(a.body, path) != NULL, "%d: %d %s", i, a.status, a.body);
        web_free(&a);
    }
    case_end();
    case_begin("a request byte by byte");
    struct web_answer a;
    for (const char *c = POST "Transfer-Encoding: chunked\r\n\r\n15\r\n" BODY "\r\n0\r\n\r\n"; *c != '\0'; c++)
        web_say(fd, c, 1);
    web_hear(fd, &a, 0);
    case_check(a.status == 200, "%d %s", a.status, a.body);
    web_free(&a);
    (void)close(fd);
    case_end();
}

/* ---------------------------------------------------------------- slow and silent clients */

static void floods(void)
{
    struct web_answer a;
    case_begin("a head without an end");
    int fd = web_connect(&gate);
    web_say_text(fd, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 70; i++) {
        char line[1100];
        (void)snprintf(line, sizeof line, "A%d: %01000d\r\n", i, 0);
        web_say_text(fd, line);
    }
    web_hear(fd, &a, WEB_SECONDS);
    case_check(a.status == 431 && a.closed, "%d %s", a.status, a.body);
    web_free(&a);
    (void)close(fd);
    fd = web_connect(&gate);
    web_say_text(fd, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 200; i++)
        web_say_text(fd, "A: b\r\n");
    web_say_text(fd, "\r\n");
    web_hear(fd, &a, WEB_SECONDS);
    case_check(a.status == 431 && a.closed, "%d %s", a.status, a.body);
    web_free(&a);
    (void)close(fd);
    case_end();
}

static void slow(void)
{
    struct web_answer a;
    case_begin("a head, a body and a first byte that do not arrive in time");
    int head = web_connect(&gate), body = web_connect(&gate), silent = web_connect(&gate);
    web_say_text(head, "GET / HTTP/1.1\r\nHost:");
    web_say_text(body, POST "Content-Length: 21\r\n\r\n{");
    web_hear(head, &a, WEB_SECONDS);
    case_check(a.status == 408 && a.closed, "head: %d %s", a.status, a.body);
    web_free(&a);
    web_hear(body, &a, WEB_SECONDS);
    case_check(a.status == 408 && a.closed, "body: %d %s", a.status, a.body);
    web_free(&a);
    case_check(web_ends(silent, WEB_SECONDS), "the silent connection stays open");
    (void)close(head);
    (void)close(body);
    (void)close(silent);
    check_alive();
    case_end();
}

/* Further bytes do not extend the deadline: they arrive one by one until the connection ends. */
static void drips(const char *what, const char *begin, const char *drop)
{
    double until = seconds_now() + WEB_SECONDS;
    struct pollfd p = {.fd = web_connect(&gate), .events = POLLIN};
    case_begin("a %s that arrives byte by byte", what);
    web_say_text(p.fd, begin);
    do
        web_say_text(p.fd, drop);
    while (poll(&p, 1, 20) == 0 && seconds_now() < until);
    struct web_answer a;
    web_hear(p.fd, &a, WEB_SECONDS);
    case_check(a.status == 408 && a.closed, "%d %s", a.status, a.body);
    web_free(&a);
    (void)close(p.fd);
    case_end();
}

/* Streams that nobody reads are bounded and cancelled; the others are served. */
static void never_read(void)
{
    enum { N = 8 };
    int fd[N];
    const int small = 4096;
    struct web_answer a;
    case_begin("streams that nobody reads");
    for (int i = 0; i < N; i++) {
        fd[i] = web_connect(&gate);
        (void)setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        web_post(fd[i], "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":20000,\"stream\":true}");
    }
    check_alive();
    bool gone = false;
    for (double until = seconds_now() + WEB_SECONDS; !gone && seconds_now() < until; web_free(&a)) {
        web_ask(&gate, "GET", "/metrics", "", "", &a);
        gone = strstr(a.body, "lockstep_gateway_slow_clients_total 8\n") != NULL;
    }
    case_check(gone, "they are still open");
    for (int i = 0; i < N; i++)
        (void)close(fd[i]);
    check_alive();
    case_end();
}

/* Answers that nobody reads are kept whole, but their sum is bounded. */
static void hoards(void)
{
    enum { N = 2 };
    int fd[N];
    const int small = 4096;
    struct web_answer a;
    bool gone = false;
    case_begin("large answers that nobody reads: the largest are dropped, the others are served");
    for (int i = 0; i < N; i++) {
        fd[i] = web_connect(&gate);
        (void)setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        web_post(fd[i], "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":600000}");
    }
    for (double until = seconds_now() + 2 * WEB_SECONDS; !gone && seconds_now() < until; web_free(&a)) {
        check_alive();
        web_ask(&gate, "GET", "/metrics", "", "", &a);
        const char *slow = strstr(a.body, "\nlockstep_gateway_slow_clients_total ");
        gone = slow != NULL && atof(strchr(slow + 1, ' ')) > 0;
    }
    case_check(gone, "none of them was dropped");
    for (int i = 0; i < N; i++)
        (void)close(fd[i]);
    check_alive();
    case_end();
}

static void ask_small(int fd, int n)
{
    for (int i = 0; i < n; i++) {
        struct web_answer a;
        web_say_text(fd, "GET /version HTTP/1.1\r\n" HOST "\r\n");
        web_hear(fd, &a, 0);
        case_check(a.status == 200, "the small request: %d", a.status);
        web_free(&a);
    }
}

static int n_readable(struct pollfd *p, int n)
{
    int readable = 0;
    (void)poll(p, (nfds_t)n, 0);
    for (int i = 0; i < n; i++)
        readable += (p[i].revents & POLLIN) != 0;
    return readable;
}

/* Large bodies that arrive at the same time: small requests are served in between. */
static void large_bodies(void)
{
    enum { N = 24, NUMBERS = 1000000 };
    struct pollfd p[N];
    char head[200], *body = malloc(2 * NUMBERS + 16);
    case_begin("%d large bodies at once do not delay small requests", N);
    size_t n = (size_t)sprintf(body, "{\"x\":[1");
    for (int i = 1; i < NUMBERS; i++, n += 2)
        memcpy(body + n, ",1", 2);
    n += (size_t)sprintf(body + n, "],!"); /* invalid JSON at the end */
    (void)snprintf(head, sizeof head, POST "Content-Length: %zu\r\n\r\n", n);
    int small = web_connect(&gate);
    for (int i = 0; i < N; i++) {
        p[i] = (struct pollfd){.fd = web_connect(&gate), .events = POLLIN};
        web_say_text(p[i].fd, head);
        web_say(p[i].fd, body, n - 1);
    }
    ask_small(small, 50); /* meanwhile every round reads a part of each large body */
    for (int i = 0; i < N; i++)
        web_say(p[i].fd, body + n - 1, 1);
    int before = n_readable(p, N);
    ask_small(small, 3);
    int n_answered = n_readable(p, N) - before;
    case_check(n_answered < N / 2, "%d of %d were answered meanwhile", n_answered, N);
    printf("# %d of %d large bodies were answered before, %d during three small requests\n", before, N, n_answered);
    (void)close(small);
    for (int i = 0; i < N; i++) {
        struct web_answer a;
        web_hear(p[i].fd, &a, 0);
        case_check(a.status == 400, "%d %s", a.status, a.body);
        web_free(&a);
        (void)close(p[i].fd);
    }
    free(body);
    case_end();
}

/* A page whose DNS name briefly points to this host (rebinding): its Origin equals its Host. */
static void renamed(void)
{
    static const struct {
        const char *host;
        int status;
    } cases[] = {{"127.0.0.1:8080", 200},     {"localhost:8080", 200}, {"LOCALHOST", 200},
                 {"[::1]:8080", 200},         {"evil.example", 403},   {"evil:8080", 403},
                 {"127.0.0.1.evil.com", 403}, {"localhost.evil", 403}};
    case_begin("a page of a foreign host name is refused, although Host and Origin agree");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char request[300];
        struct web_answer a;
        int fd = web_connect(&gate);
        (void)snprintf(request, sizeof request, "GET /version HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\n\r\n",
                       cases[i].host, cases[i].host);
        web_say_text(fd, request);
        web_hear(fd, &a, 0);
        case_check(a.status == cases[i].status, "%s: %d %s", cases[i].host, a.status, a.body);
        web_free(&a);
        (void)close(fd);
    }
    case_end();
}

/* Idle connections, as many as this process may open. */
static void idle(void)
{
    struct rlimit r;
    int most = 2000, n = 0;
    (void)getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    most = r.rlim_cur < 2200 ? (int)r.rlim_cur - 200 : most;
    int *fd = calloc((size_t)most, sizeof *fd);
    case_begin("%d idle connections", most);
    for (; fd != NULL && n < most; n++)
        fd[n] = web_connect(&gate);
    check_alive();
    for (int i = 0; i < n; i++)
        (void)close(fd[i]);
    free(fd);
    case_end();
}

int main(void)
{
    front_serve(&fake, NULL);
    START("--max-body", "1M", "--access-log", "/dev/null");
    refuses();
    accepts();
    pipelines();
    floods();
    idle();
    (void)web_stop(&gate);
    START("--head-timeout", "0.3", "--body-timeout", "0.3", "--idle-timeout", "0.6", "--max-client-backlog", "64K");
    slow();
    drips("head", "GET / HTTP/1.1\r\n", "A: b\r\n");
    drips("line", "GET /", "a");
    drips("body", POST "Content-Length: 100000\r\n\r\n", " ");
    drips("chunk", POST "Transfer-Encoding: chunked\r\n\r\nffff\r\n", " ");
    drips("body of small chunks", POST "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n");
    never_read();
    (void)web_stop(&gate);
    START("--max-buffered", "1M");
    hoards();
    (void)web_stop(&gate);
    START("--max-connections", "100");
    large_bodies();
    renamed();
    return front_finish(&fake, &gate);
}
