/* tests/soak/test_gateway_crowd.c - lockstep-gateway with a crowd: 10,000 idle connections, and 2,000 streams at once,
 * 1 % of which are never read. Honest clients are served, and the crowd's memory is returned. GATEWAY_IDLE,
 * GATEWAY_CROWD in the environment: other numbers. */
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

#define SECONDS    (4 * WEB_SECONDS)
#define N_TOKENS   30
#define MANY       20000 /* tokens of a stream that is never read: more than the kernel buffers */
#define ONE_IN     100
#define IDLE_BYTES 4096.0 /* of memory for each idle connection, at most */
#define END        "data: [DONE]\n\n\r\n0\r\n\r\n"

static struct fake_server fake;
static struct web_gateway gate;

static int from_environment(const char *name, int missing)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : missing;
}

/* Returns the most connections that this process and the gateway may open, besides their other descriptors. */
static int at_most(int wanted)
{
    struct rlimit r;
    (void)getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    return r.rlim_cur < (rlim_t)wanted + 200 ? (int)r.rlim_cur - 200 : wanted;
}

static double resident(void)
{
    char path[64];
    long all = 0, pages = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)gate.p.pid);
    FILE *f = fopen(path, "r");
    if (f != NULL && fscanf(f, "%ld %ld", &all, &pages) != 2)
        pages = 0;
    if (f != NULL)
        (void)fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void check_alive(void)
{
    struct web_answer a;
    web_ask(&gate, "POST", "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":1}", &a);
    case_check(a.status == 200, "an honest client gets %d %s", a.status, a.body);
    web_free(&a);
}

/* Waits until its metrics have this line. */
static void await_line(const char *line)
{
    struct web_answer a = {0};
    bool found = false;
    for (double until = seconds_now() + SECONDS; !found && seconds_now() < until; web_free(&a)) {
        web_ask(&gate, "GET", "/metrics", "", "", &a);
        found = strstr(a.body, line) != NULL;
    }
    case_check(found, "its metrics never had %s", line);
}

static void idle(int n)
{
    int *fd = calloc((size_t)n, sizeof *fd);
    char line[80];
    case_begin("%d idle connections", n);
    double before = resident(), began = seconds_now();
    for (int i = 0; i < n; i++)
        fd[i] = web_connect(&gate);
    (void)snprintf(line, sizeof line, "lockstep_gateway_connections %d\n", n + 1);
    await_line(line);
    check_alive();
    double each = (resident() - before) / n;
    printf("# %d idle connections after %.1f s: %.0f bytes each\n", n, seconds_now() - began, each);
    case_check(process_sanitized() || each < IDLE_BYTES, "%.0f bytes each, expected fewer than %.0f", each, IDLE_BYTES);
    for (int i = 0; i < n; i++)
        (void)close(fd[i]);
    free(fd);
    await_line("lockstep_gateway_connections 1\n");
    case_end();
}

struct stream {
    char tail[sizeof END];
    size_t n;
    int n_tokens;
    bool whole;
};

/* Counts events; keeps the last bytes, to detect the end. */
static void take_text(struct stream *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        memmove(s->tail, s->tail + 1, sizeof END - 2);
        s->tail[sizeof END - 2] = text[i];
        s->n_tokens += memcmp(s->tail + sizeof END - 1 - 7, "\"text\":", 7) == 0;
    }
    s->whole = memcmp(s->tail, END, sizeof END - 1) == 0;
}

/* Reads the streams that are read, to their ends. Returns the number of complete ones. */
static int read_all(struct pollfd *p, struct stream *s, int n, int n_read)
{
    static char piece[65536];
    int done = 0;
    for (double until = seconds_now() + SECONDS; done < n_read && seconds_now() < until;) {
        if (poll(p, (nfds_t)n, 1000) <= 0)
            continue;
        for (int i = 0; i < n; i++) {
            ssize_t got = p[i].fd >= 0 && p[i].revents != 0 ? recv(p[i].fd, piece, sizeof piece, 0) : -1;
            if (got > 0)
                take_text(&s[i], piece, (size_t)got);
            if (p[i].fd >= 0 && (got == 0 || s[i].whole)) {
                done++;
                (void)close(p[i].fd);
                p[i].fd = -1;
            }
        }
    }
    return done;
}

static void begin_stream(int fd, int tokens)
{
    char body[100];
    (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"max_tokens\":%d,\"stream\":true}", tokens);
    web_post(fd, "/v1/completions", "", body);
}

static void crowd(int n)
{
    const int small = 4096;
    int n_silent = n / ONE_IN, n_whole = 0;
    struct pollfd *p = calloc((size_t)n, sizeof *p);
    struct stream *s = calloc((size_t)n, sizeof *s);
    int *silent = calloc((size_t)n_silent, sizeof *silent);
    char line[80];
    case_begin("%d streams at once, %d of them are never read", n, n_silent);
    double began = seconds_now();
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = web_connect(&gate), .events = POLLIN};
    for (int i = 0, k = 0; i < n; i++) {
        bool reads = i % ONE_IN != 0 || k == n_silent;
        if (!reads) {
            (void)setsockopt(p[i].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
            silent[k++] = p[i].fd;
        }
        begin_stream(p[i].fd, reads ? N_TOKENS : MANY);
        p[i].fd = reads ? p[i].fd : -1;
    }
    int done = read_all(p, s, n, n - n_silent);
    for (int i = 0; i < n; i++)
        n_whole += s[i].whole && s[i].n_tokens == N_TOKENS + 1; /* the last event has the finish reason, and no text */
    printf("# %d streams to their ends in %.1f s\n", done, seconds_now() - began);
    case_check(n_whole == n - n_silent, "%d of the %d streams that are read are complete", n_whole, n - n_silent);
    (void)snprintf(line, sizeof line, "lockstep_gateway_slow_clients_total %d\n", n_silent);
    await_line(line);
    for (int i = 0; i < n_silent; i++)
        (void)close(silent[i]);
    await_line("lockstep_gateway_requests_running 1\n"); /* the request for metrics itself */
    check_alive();
    free(p);
    free(s);
    free(silent);
    case_end();
}

int main(void)
{
    int n_idle = at_most(from_environment("GATEWAY_IDLE", 10000)), n_crowd = from_environment("GATEWAY_CROWD", 2000);
    front_serve(&fake, NULL);
    web_start(&gate, true,
              (const char *const[]){"--backend", fake.endpoint, "--max-connections", "12000", "--max-client-backlog",
                                    "64K", NULL});
    idle(n_idle);
    crowd(at_most(n_crowd));
    return front_finish(&fake, &gate);
}
