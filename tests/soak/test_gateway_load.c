/* tests/soak/test_gateway_load.c - the cost of lockstep-gateway, in front of a server that generates no text: time
 * added to the first token compared with a raw ZeroMQ client, taken in turns; events per second of its CPU time; memory
 * of a waiting stream. GATEWAY_STREAMS, GATEWAY_TOKENS in the environment: streams at once, tokens of each; 256 and 200
 * by default. GATEWAY_ENDPOINT: a running server, in place of the one that generates no text. GATEWAY_BESIDE: HOST:PORT
 * of another HTTP server that streams completions, measured in the same turns with the same client;
 * GATEWAY_BESIDE_PIDS: its processes, "12,13", whose CPU time counts (scripts/echo-server.py). */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/fake_server.h"
#include "tests/support/front.h"
#include "tests/support/talk.h"
#include "tests/support/web.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#define N_TIMES      400
#define N_ROUNDS     5
#define PACED_SPEED  16700.0 /* tokens per second */
#define N_WAITING    2000
#define STREAM_BYTES 65536.0 /* of memory for each stream, at most */
#define DONE         "data: [DONE]"

static struct fake_server fake;
static struct web_gateway gate, beside; /* address "": there is no other */
static const char *endpoint;

static long from_environment(const char *name, long missing)
{
    const char *text = getenv(name);
    return text != NULL ? atol(text) : missing;
}

/* Returns the resident bytes of the gateway. */
static double resident(void)
{
    char path[64];
    long pages = 0, skipped = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)gate.p.pid);
    FILE *f = fopen(path, "r");
    if (f != NULL && fscanf(f, "%ld %ld", &skipped, &pages) != 2)
        pages = 0;
    if (f != NULL)
        (void)fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Returns the seconds of CPU time that the processes have used, in all their threads. pids: "12,13". */
static double cpu_seconds(const char *pids)
{
    double all = 0;
    for (const char *at = pids; *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
        char path[64];
        unsigned long user = 0, kernel = 0;
        (void)snprintf(path, sizeof path, "/proc/%d/stat", atoi(at));
        FILE *f = fopen(path, "r");
        if (f != NULL &&
            fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel) != 2)
            user = kernel = 0;
        if (f != NULL)
            (void)fclose(f);
        all += (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
    }
    return all;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_raw(struct talk *t, int i)
{
    double began = seconds_now();
    talk_say(t, "{\"prompt\":\"a\",\"max_tokens\":1,\"stream\":true,\"request_id\":\"r%d\"}", i);
    json_decref(talk_hear(t, WEB_SECONDS));
    double seconds = seconds_now() - began;
    json_decref(talk_hear(t, WEB_SECONDS)); /* the final event */
    return seconds;
}

static double time_http(int fd)
{
    char all[4096] = "";
    double began = seconds_now();
    web_post(fd, "/v1/completions", "", "{\"prompt\":\"a\",\"max_tokens\":1,\"stream\":true}");
    (void)web_await(fd, "data: ", all, sizeof all);
    double seconds = seconds_now() - began;
    case_check(web_await(fd, "\r\n0\r\n\r\n", all, sizeof all), "a stream does not end: %s", all);
    return seconds;
}

static double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

static void first_token(void)
{
    static double raw[N_TIMES], http[N_TIMES], other[N_TIMES];
    struct talk t;
    case_begin("time to the first token, beside a raw client");
    talk_open(&t, ZMQ_DEALER, endpoint, NULL, NULL);
    int fd = web_connect(&gate), fd_other = beside.address[0] != '\0' ? web_connect(&beside) : -1;
    (void)time_raw(&t, -1);
    for (int i = 0; i < N_TIMES; i++) {
        raw[i] = time_raw(&t, i);
        http[i] = time_http(fd);
        other[i] = fd_other >= 0 ? time_http(fd_other) : 0;
    }
    double without = 1e3 * median(raw, N_TIMES), with = 1e3 * median(http, N_TIMES);
    printf("# first token, median of %d: raw ZeroMQ %.3f ms, through the gateway %.3f ms, added %.3f ms\n", N_TIMES,
           without, with, with - without);
    if (fd_other >= 0)
        printf("# the same for the other server: %.3f ms\n", 1e3 * median(other, N_TIMES));
    talk_close(&t);
    (void)close(fd);
    (void)close(fd_other);
    case_end();
}

/* A stream's last bytes, to detect an end that is split over two pieces. */
struct reader {
    char tail[2 * sizeof DONE];
    size_t n;
    bool done;
};

static void take_text(struct reader *r, const char *text, size_t n)
{
    char all[70000];
    memcpy(all, r->tail, r->n);
    memcpy(all + r->n, text, n);
    n += r->n;
    r->done = memmem(all, n, DONE, strlen(DONE)) != NULL;
    r->n = n < sizeof DONE ? n : sizeof DONE;
    memcpy(r->tail, all + n - r->n, r->n);
}

/* Reads all streams to their ends. */
static long read_all(struct pollfd *p, struct reader *r, long n)
{
    char piece[65536];
    long done = 0;
    for (double until = seconds_now() + 20 * WEB_SECONDS; done < n && seconds_now() < until;) {
        if (poll(p, (nfds_t)n, 1000) <= 0)
            continue;
        for (long i = 0; i < n; i++) {
            ssize_t got = p[i].revents != 0 ? recv(p[i].fd, piece, sizeof piece, 0) : -1;
            if (got > 0)
                take_text(&r[i], piece, (size_t)got);
            if (p[i].fd >= 0 && (got == 0 || r[i].done)) {
                done += r[i].done;
                p[i].fd = -1 - p[i].fd; /* poll ignores negative descriptors */
            }
        }
    }
    return done;
}

/* Reads the same streams without a gateway, on one connection. Returns tokens per second. */
static double read_raw(long n, long tokens)
{
    struct talk t;
    double began = seconds_now();
    long finals = 0;
    talk_open(&t, ZMQ_DEALER, endpoint, NULL, NULL);
    for (long i = 0; i < n; i++)
        talk_say(&t,
                 "{\"prompt\":\"a\",\"max_tokens\":%ld,\"ignore_eos\":true,\"stream\":true,\"request_id\":\"e%ld\"}",
                 tokens, i);
    for (json_t *reply; finals < n && (reply = talk_hear(&t, WEB_SECONDS)) != NULL; json_decref(reply))
        finals += strcmp(talk_text(reply, "event"), "final") == 0;
    talk_close(&t);
    case_check(finals == n, "%ld raw streams ended, expected %ld", finals, n);
    return (double)(n * tokens) / (seconds_now() - began);
}

struct speed {
    double by_wall, by_cpu; /* tokens per second; tokens per second of CPU time of the measured server */
};

/* Reads the streams of a server, all at once. pids: processes whose CPU time counts. */
static struct speed read_http(const struct web_gateway *at, const char *pids, long n, long tokens)
{
    struct pollfd *p = calloc((size_t)n, sizeof *p);
    struct reader *r = calloc((size_t)n, sizeof *r);
    char body[200];
    (void)snprintf(body, sizeof body, "{\"prompt\":\"a\",\"max_tokens\":%ld,\"ignore_eos\":true,\"stream\":true}",
                   tokens);
    for (long i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = web_connect(at), .events = POLLIN};
    double cpu = cpu_seconds(pids), began = seconds_now();
    for (long i = 0; i < n; i++)
        web_post(p[i].fd, "/v1/completions", "", body);
    long done = read_all(p, r, n);
    double used = cpu_seconds(pids) - cpu, wall = seconds_now() - began;
    case_check(done == n, "%ld of %ld streams of %s ended", done, n, at->address);
    for (long i = 0; i < n; i++)
        (void)close(p[i].fd < 0 ? -1 - p[i].fd : p[i].fd);
    free(p);
    free(r);
    return (struct speed){(double)(n * tokens) / wall, used > 0 ? (double)(n * tokens) / used : 0};
}

static void print_speed(const char *what, double *wall, double *cpu)
{
    double middle = median(wall, N_ROUNDS);
    printf("# %s: %.0f tokens/s (%.0f .. %.0f)", what, middle, wall[0], wall[N_ROUNDS - 1]);
    if (cpu != NULL) {
        middle = median(cpu, N_ROUNDS);
        printf("; %.0f per second of its CPU time (%.0f .. %.0f)", middle, cpu[0], cpu[N_ROUNDS - 1]);
    }
    printf("\n");
}

/* Measures in turns: other load on the machine affects them alike. */
static void events(void)
{
    long n = from_environment("GATEWAY_STREAMS", 256), tokens = from_environment("GATEWAY_TOKENS", 200);
    const char *pids = getenv("GATEWAY_BESIDE_PIDS");
    double wall[3][N_ROUNDS], cpu[2][N_ROUNDS] = {{0}};
    char own[32];
    (void)snprintf(own, sizeof own, "%d", (int)gate.p.pid);
    case_begin("%ld streams of %ld tokens, %d times in turns", n, tokens, N_ROUNDS);
    for (int i = 0; i < N_ROUNDS; i++) {
        wall[0][i] = read_raw(n, tokens);
        struct speed s = read_http(&gate, own, n, tokens);
        wall[1][i] = s.by_wall;
        cpu[0][i] = s.by_cpu;
        if (beside.address[0] == '\0')
            continue;
        s = read_http(&beside, pids != NULL ? pids : "", n, tokens);
        wall[2][i] = s.by_wall;
        cpu[1][i] = s.by_cpu;
    }
    print_speed("raw ZeroMQ", wall[0], NULL);
    print_speed("gateway", wall[1], cpu[0]);
    if (beside.address[0] != '\0')
        print_speed("the other server", wall[2], cpu[1]);
    case_end();
}

/* The same in front of a server that makes tokens in steps, as a model of 8 billion parameters does on one GPU:
 * measures the loss of its speed. */
static void paced(void)
{
    enum { N = 256, TOKENS = 100 };
    double wall[2][N_ROUNDS];
    char own[32];
    (void)snprintf(own, sizeof own, "%d", (int)gate.p.pid);
    case_begin("%d streams from a server that makes %.0f tokens/s", N, PACED_SPEED);
    fake.step_seconds = N / PACED_SPEED;
    for (int i = 0; i < N_ROUNDS; i++) {
        wall[0][i] = read_raw(N, TOKENS);
        wall[1][i] = read_http(&gate, own, N, TOKENS).by_wall;
    }
    fake.step_seconds = 0;
    print_speed("raw ZeroMQ", wall[0], NULL);
    print_speed("gateway", wall[1], NULL);
    printf("# lost: %.1f %%\n", 100 * (1 - wall[1][N_ROUNDS / 2] / wall[0][N_ROUNDS / 2]));
    case_end();
}

/* Streams that have received their head, and wait. */
static void memory(void)
{
    static int fd[N_WAITING];
    char all[4096];
    struct rlimit limit;
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    int n = limit.rlim_cur < N_WAITING + 200 ? (int)limit.rlim_cur - 200 : N_WAITING;
    case_begin("memory of %d streams", n);
    double before = resident();
    for (int i = 0; i < n; i++) {
        fd[i] = web_connect(&gate);
        web_post(fd[i], "/v1/completions", "", "{\"prompt\":\"silence\",\"max_tokens\":1,\"stream\":true}");
    }
    for (int i = 0; i < n; i++) {
        all[0] = '\0';
        case_check(web_await(fd[i], ": waiting", all, sizeof all), "stream %d has no comment: %s", i, all);
    }
    double each = (resident() - before) / n;
    printf("# %d waiting streams: %.1f KiB of memory each\n", n, each / 1024);
    case_check(process_sanitized() || each < STREAM_BYTES, "%.0f bytes a stream, expected fewer than %.0f", each,
               STREAM_BYTES);
    for (int i = 0; i < n; i++)
        (void)close(fd[i]);
    case_end();
}

int main(void)
{
    endpoint = getenv("GATEWAY_ENDPOINT");
    bool real = endpoint != NULL;
    const char *other = getenv("GATEWAY_BESIDE");
    (void)snprintf(beside.address, sizeof beside.address, "%s", other != NULL ? other : "");
    if (!real) {
        front_serve(&fake, NULL);
        endpoint = fake.endpoint;
    }
    web_start(&gate, true, (const char *const[]){"--backend", endpoint, "--comment-interval", "2", NULL});
    first_token();
    events();
    if (!real)
        paced();
    if (!real)
        memory();
    front_stop(&gate);
    if (!real)
        front_end(&fake);
    return cases_done();
}
