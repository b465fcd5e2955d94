/* tests/support/web.c - see web.h. */
#include "tests/support/web.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static _Noreturn void die(const char *what, const char *text)
{
    (void)fprintf(stderr, "web: %s: %s\n", what, text);
    exit(99);
}

void web_start(struct web_gateway *g, bool ready, const char *const *more)
{
    static const char said[] = "listening at ";
    const char *argument[60] = {"--listen", "127.0.0.1:0"};
    double until = seconds_now() + WEB_SECONDS;
    int n = 2;
    for (; *more != NULL && n < 59; more++)
        argument[n++] = *more;
    memset(g, 0, sizeof *g);
    process_start(&g->p, &(struct process_setup){.program = "lockstep-gateway", .limit = 300}, argument);
    const char *at = NULL;
    while ((at = strstr(g->p.text[PROCESS_ERR] != NULL ? g->p.text[PROCESS_ERR] : "", said)) == NULL ||
           strchr(at, '\n') == NULL) {
        if (g->p.ended || seconds_now() > until)
            die("the gateway does not listen", g->p.text[PROCESS_ERR]);
        process_watch(&g->p, 0.02, (size_t)-1);
    }
    (void)snprintf(g->address, sizeof g->address, "%.*s", (int)strcspn(at + strlen(said), "\n"), at + strlen(said));
    for (struct web_answer a = {0}; ready && a.status != 200; web_free(&a)) {
        if (seconds_now() > until)
            die("no backend is ready", g->p.text[PROCESS_ERR]);
        web_ask(g, "GET", "/health", "", "", &a);
        if (a.status == 200)
            ready = false;
        process_watch(&g->p, 0.02, (size_t)-1);
    }
}

int web_stop(struct web_gateway *g)
{
    (void)kill(g->p.pid, SIGTERM);
    process_wait(&g->p);
    int status = g->p.status;
    process_free(&g->p);
    return status;
}

bool web_says(struct web_gateway *g, const char *part)
{
    for (double until = seconds_now() + WEB_SECONDS; seconds_now() < until;) {
        if (strstr(g->p.text[PROCESS_ERR], part) != NULL)
            return true;
        process_watch(&g->p, 0.02, (size_t)-1);
    }
    return false;
}

int web_connect(const struct web_gateway *g)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int yes = 1;
    const char *port = strrchr(g->address, ':');
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_port = htons((uint16_t)(port != NULL ? atoi(port + 1) : 0));
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof a) != 0)
        die(g->address, strerror(errno));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

void web_say(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0)
            return; /* the other side no longer reads */
        bytes += sent;
        n -= (size_t)sent;
    }
}

void web_say_text(int fd, const char *text)
{
    web_say(fd, text, strlen(text));
}

static void say_request(int fd, const char *method, const char *path, const char *fields, const char *body)
{
    char head[2000];
    (void)snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: test\r\n%sContent-Length: %zu\r\n\r\n", method, path,
                   fields, strlen(body));
    web_say_text(fd, head);
    web_say_text(fd, body);
}

void web_post(int fd, const char *path, const char *fields, const char *body)
{
    say_request(fd, "POST", path, fields, body);
}

/* Appends more bytes to text; 0: the connection has ended; -1: the time is over. */
static int read_more(int fd, char **text, size_t *bytes, double until)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    double left = until - seconds_now();
    char piece[65536];
    if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
        return -1;
    ssize_t n = recv(fd, piece, sizeof piece, 0);
    if (n <= 0)
        return 0;
    *text = realloc(*text, *bytes + (size_t)n + 1);
    if (*text == NULL)
        die("memory", "none");
    memcpy(*text + *bytes, piece, (size_t)n);
    *bytes += (size_t)n;
    (*text)[*bytes] = '\0';
    return 1;
}

/* Reads one byte at a time up to the end of the head: the rest is left for the next answer. */
static char *read_until(int fd, const char *end, double until)
{
    char *text = NULL;
    size_t n = 0, capacity = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n < strlen(end) || memcmp(text + n - strlen(end), end, strlen(end)) != 0) {
        if (n + 2 > capacity && (text = realloc(text, capacity += 4096)) == NULL)
            die("memory", "none");
        text[n] = '\0';
        double left = until - seconds_now();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) <= 0 || recv(fd, text + n, 1, 0) != 1)
            break;
        text[++n] = '\0';
    }
    return text;
}

static void read_exactly(int fd, struct web_answer *a, size_t n, double until)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    a->body = realloc(a->body, a->bytes + n + 1);
    for (size_t done = 0; a->body != NULL && done < n;) {
        double left = until - seconds_now();
        ssize_t got =
            left > 0 && poll(&p, 1, (int)(left * 1000) + 1) > 0 ? recv(fd, a->body + a->bytes, n - done, 0) : 0;
        if (got <= 0)
            break;
        done += (size_t)got;
        a->bytes += (size_t)got;
    }
    if (a->body != NULL)
        a->body[a->bytes] = '\0';
}

static void read_chunks(int fd, struct web_answer *a, double until)
{
    for (size_t n = 1; n > 0;) {
        char *line = read_until(fd, "\r\n", until);
        n = line != NULL ? strtoul(line, NULL, 16) : 0;
        free(line);
        read_exactly(fd, a, n, until);
        free(read_until(fd, "\r\n", until));
    }
}

void web_hear(int fd, struct web_answer *a, double look)
{
    double until = seconds_now() + WEB_SECONDS;
    memset(a, 0, sizeof *a);
    a->head = read_until(fd, "\r\n\r\n", until);
    if (a->head == NULL || sscanf(a->head, "HTTP/1.1 %d", &a->status) != 1)
        a->status = 0;
    const char *length = a->head != NULL ? strcasestr(a->head, "\r\nContent-Length: ") : NULL;
    if (a->status != 0 && length != NULL)
        read_exactly(fd, a, strtoul(length + 18, NULL, 10), until);
    else if (a->status != 0 && strcasestr(a->head, "\r\nTransfer-Encoding: chunked\r\n") != NULL)
        read_chunks(fd, a, until);
    else if (a->status != 0 && a->status != 100 && a->status != 204)
        while (read_more(fd, &a->body, &a->bytes, until) == 1)
            continue;
    if (a->body == NULL)
        a->body = calloc(1, 1);
    a->closed = look > 0 && web_ends(fd, look);
}

void web_free(struct web_answer *a)
{
    free(a->head);
    free(a->body);
    memset(a, 0, sizeof *a);
}

void web_ask(const struct web_gateway *g, const char *method, const char *path, const char *fields, const char *body,
             struct web_answer *a)
{
    int fd = web_connect(g);
    say_request(fd, method, path, fields, body);
    web_hear(fd, a, 0);
    (void)close(fd);
}

bool web_await(int fd, const char *text, char *all, size_t all_bytes)
{
    double until = seconds_now() + WEB_SECONDS;
    size_t n = strlen(all);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (strstr(all, text) == NULL) {
        double left = until - seconds_now();
        if (left <= 0 || n + 1 >= all_bytes || poll(&p, 1, (int)(left * 1000) + 1) <= 0)
            return false;
        ssize_t got = recv(fd, all + n, all_bytes - n - 1, 0);
        if (got <= 0)
            return false;
        n += (size_t)got;
        all[n] = '\0';
    }
    return true;
}

bool web_ends(int fd, double seconds)
{
    double until = seconds_now() + seconds;
    char *text = NULL;
    size_t n = 0;
    int state = 1;
    while ((state = read_more(fd, &text, &n, until)) == 1)
        continue;
    free(text);
    return state == 0;
}
