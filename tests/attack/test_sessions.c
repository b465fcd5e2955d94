/* tests/attack/test_sessions.c - whole sessions at random: hostile clients of several kinds beside one honest client,
 * whose answers must stay correct and in time. At the end the server holds nothing, and memory has its former size.
 * Each kind has a fixed number of sessions, whatever the machine's speed, and half of it under sanitizers; fast kinds
 * wait for slow ones, so that all are there until the end. SESSION_SECONDS in the environment: as many sessions as fit
 * into that time. SESSION_SEED: 1 by default. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#define MAX_HONEST 100000
#define SLACK      ((double)(96 << 20))
#define TELLS      50   /* messages of a session, at most */
#define AHEAD      0.05 /* share of its sessions by which a kind may be ahead of the slowest one */

static struct serving s;
static atomic_bool over;

struct siege;

struct hostile {
    const struct siege *siege;
    pthread_t thread;
    void (*session)(struct hostile *h);
    const char *name;
    long n_planned; /* number of sessions, unless a time is given */
    uint64_t random;
    atomic_long n_sessions;
};

/* The siege: its length in seconds (0: until all planned sessions are done), and its start. */
struct siege {
    double seconds, began;
    uint64_t seed;
    struct hostile *hostile;
    int n_hostile;
};

static unsigned below(struct hostile *h, unsigned n)
{
    uint64_t x = h->random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((x ^ x >> 31) % n);
}

/* Sends bytes: a valid beginning that breaks off or becomes invalid somewhere, whole or in pieces. */
static void send_bytes(struct hostile *h)
{
    unsigned char bytes[2048] = {0};
    size_t n = TALK_GREETING_BYTES + TALK_READY_BYTES;
    int fd = talk_connect(s.endpoint);
    if (fd < 0)
        return;
    memcpy(bytes, talk_greeting, TALK_GREETING_BYTES);
    memcpy(bytes + TALK_GREETING_BYTES, talk_ready, TALK_READY_BYTES);
    for (unsigned i = 0, frames = below(h, 8); i < frames && n + 200 < sizeof bytes; i++) {
        bytes[n++] = (unsigned char)below(h, 8);
        bytes[n] = (unsigned char)below(h, 120);
        for (unsigned char k = bytes[n++]; k > 0; k--)
            bytes[n++] = (unsigned char)below(h, 256);
    }
    for (unsigned i = below(h, 4); i > 0; i--)
        bytes[below(h, (unsigned)n)] = (unsigned char)below(h, 256);
    n = below(h, 3) == 0 ? below(h, (unsigned)n) : n;
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = 1 + below(h, 200);
        piece = piece < n - at ? piece : n - at;
        if (send(fd, bytes + at, piece, MSG_NOSIGNAL) < 0)
            break;
    }
    if (below(h, 2) == 0)
        usleep(1000 * below(h, 30));
    (void)close(fd);
}

static void say_random(struct hostile *h, struct talk *t)
{
    static const char *const messages[] = {
        "{\"prompt\": \"Long ago\", \"max_tokens\": %u, \"ignore_eos\": true, \"stream\": true, \"request_id\": "
        "\"r%u\"}",
        "{\"prompt\": \"Long ago\", \"max_tokens\": %u, \"n\": 8, \"logprobs\": 20, \"request_id\": \"r%u\"}",
        "{\"op\": \"cancel\", \"seed\": %u, \"request_id\": \"r%u\"}",
        "{\"op\": \"cancel\", \"request_id\": \"honest\"}",
        "{\"op\": \"tokenize\", \"prompt\": \"%u %u\"}",
        "{\"op\": \"metrics\"}",
        "{\"prompt\": [[1, 2, %u], [3]], \"max_tokens\": %u, \"num_beams\": 4}",
        "{\"prompt\": \"x\", \"priority\": -%u, \"timeout_ms\": %u}",
        "{\"prompt\": \"x\", \"max_tokens\": %u, \"timeout_ms\": %u}",
        "{\"op\": \"shutdown\"}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi %u\"}], \"max_tokens\": %u, \"tools\": [{\"x\": "
        "[[[[1]]]]}], \"chat_template_kwargs\": {\"y\": [1, 2, {\"z\": {}}]}}",
        "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
        "\"{\\\"a\\\": [%u, %u]}\"}}]}]}",
        "{\"prompt\": \"a\", \"echo\": true, \"stream\": true, \"n\": 3, \"seed\": %u, \"max_tokens\": %u, \"stop\": "
        "[\"the\", \" a\", \".\"]}",
        "{\"prompt\": \"a\", \"best_of\": 4, \"prompt_logprobs\": 20, \"logit_bias\": {\"%u\": 100}, \"max_tokens\": "
        "%u}",
        "{\"op\": \"detokenize\", \"token_ids\": [%u, %u, 511]}",
        "{\"prompt\": \"%u",
        "[[[[[[%u",
    };
    unsigned which = below(h, sizeof messages / sizeof messages[0]);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    talk_say(t, messages[which], 1 + below(h, 200), below(h, 40));
#pragma GCC diagnostic pop
}

/* Sends heartbeats without end, and may read the answers. */
static void send_pings(struct hostile *h)
{
    static const unsigned char ping[9] = {4, 7, 4, 'P', 'I', 'N', 'G'};
    unsigned char pings[200 * sizeof ping], waste[4096];
    int fd = talk_connect(s.endpoint);
    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof pings; i += sizeof ping)
        memcpy(pings + i, ping, sizeof ping);
    (void)send(fd, talk_greeting, TALK_GREETING_BYTES, MSG_NOSIGNAL);
    (void)send(fd, talk_ready, TALK_READY_BYTES, MSG_NOSIGNAL);
    for (unsigned i = below(h, 400), reads = below(h, 2); i > 0; i--) {
        if (send(fd, pings, 1 + below(h, sizeof pings), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        if (reads)
            (void)recv(fd, waste, sizeof waste, MSG_DONTWAIT);
    }
    (void)close(fd);
}

/* Sends messages, some of them valid, and may read the answers; then leaves amid everything. */
static void send_messages(struct hostile *h)
{
    struct talk t;
    static const char *const ids[] = {NULL, "honest", "x"};
    talk_open(&t, ZMQ_DEALER, s.endpoint, ids[below(h, 3)], NULL);
    bool reads = below(h, 2) == 0;
    for (unsigned i = below(h, TELLS); i > 0 && !atomic_load(&over); i--) {
        say_random(h, &t);
        if (reads)
            json_decref(talk_hear(&t, 0.002));
    }
    talk_close(&t);
}

/* Sends any number of frames, and sometimes a large message. */
static void send_frames(struct hostile *h)
{
    struct talk t;
    size_t bytes = below(h, 4) == 0 ? 1u << (10 + below(h, 11)) : below(h, 300);
    char *text = malloc(bytes + 1);
    memset(text, ' ', bytes + 1);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (unsigned i = below(h, 6); i > 0; i--)
        talk_send(&t, text, bytes, below(h, 2) == 0);
    json_decref(talk_hear(&t, 0.001 * below(h, 20)));
    talk_close(&t);
    free(text);
}

/* Returns the part of a kind's planned sessions that are over. */
static double part_done(struct hostile *h)
{
    double whole = process_sanitized() ? 0.5 : 1;
    return (double)atomic_load(&h->n_sessions) / (whole * (double)h->n_planned);
}

/* Returns the part of the siege that is over; 1 or more: all of it. The slowest kind decides. */
static double part_over(const struct siege *g)
{
    if (g->seconds > 0)
        return (seconds_now() - g->began) / g->seconds;
    double least = 1;
    for (int i = 0; i < g->n_hostile; i++)
        least = fmin(least, part_done(&g->hostile[i]));
    return least;
}

static void *attack(void *context)
{
    struct hostile *h = context;
    for (; !atomic_load(&over); atomic_fetch_add(&h->n_sessions, 1)) {
        while (h->siege->seconds == 0 && !atomic_load(&over) && part_done(h) > part_over(h->siege) + AHEAD)
            usleep(2000);
        h->session(h);
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static json_t *ask(void)
{
    return talk_ask(s.endpoint,
                    "{\"prompt\": \"Once upon a time\", \"max_tokens\": 12, \"temperature\": 0, \"request_id\": "
                    "\"honest\"}");
}

static void besiege(int ranks, struct siege *g)
{
    static double waited[MAX_HONEST];
    struct hostile hostile[] = {{.session = send_bytes, .n_planned = 600, .name = "of bytes"},
                                {.session = send_messages, .n_planned = 150, .name = "of messages"},
                                {.session = send_messages, .n_planned = 150, .name = "of messages"},
                                {.session = send_pings, .n_planned = 3000, .name = "of heartbeats"},
                                {.session = send_frames, .n_planned = 300, .name = "of frames"}};
    enum { N = sizeof hostile / sizeof hostile[0] };
    int n = 0, n_right = 0;
    json_t *first = ask();
    char *text = strdup(talk_text(first, "choices/0/text"));
    json_decref(first);
    atomic_store(&over, false);
    g->hostile = hostile;
    g->n_hostile = N;
    g->began = seconds_now();
    for (int i = 0; i < N; i++) {
        hostile[i].siege = g;
        hostile[i].random = g->seed * 1000 + (uint64_t)i;
        (void)pthread_create(&hostile[i].thread, NULL, attack, &hostile[i]);
    }
    double resident = 0;
    for (double part = 0; (part < 1 || resident == 0) && n < MAX_HONEST; part = part_over(g)) {
        double asked = seconds_now();
        json_t *m = ask();
        waited[n++] = seconds_now() - asked;
        n_right += strcmp(talk_text(m, "choices/0/text"), text) == 0;
        json_decref(m);
        if (resident == 0 && part >= 0.3) /* every operation has been used once */
            resident = serving_resident(&s, 0);
    }
    atomic_store(&over, true);
    for (int i = 0; i < N; i++)
        (void)pthread_join(hostile[i].thread, NULL);
    qsort(waited, (size_t)n, sizeof *waited, compare);
    printf(
        "# %d ranks, seed %llu, %.0f s: %d honest requests, %d right, median %.1f ms, 99 %% %.1f ms, longest %.1f ms;",
        ranks, (unsigned long long)g->seed, seconds_now() - g->began, n, n_right, 1e3 * waited[n / 2],
        1e3 * waited[n * 99 / 100], 1e3 * waited[n - 1]);
    for (int i = 0; i < N; i++)
        printf(" %ld sessions %s%s", atomic_load(&hostile[i].n_sessions), hostile[i].name, i + 1 < N ? "," : "\n");
    case_check(n > 0 && n_right == n, "%d of %d honest answers are correct", n_right, n);
    case_check(process_in_time(waited[n * 99 / 100], 3), "99 %% of the answers came within %.2f s",
               waited[n * 99 / 100]);
    case_check(serving_await(&s, "open_requests", 1, 60), "requests are still open");
    case_check(serving_await(&s, "kv_blocks_used", 0, 60), "KV blocks are still in use");
    double grown = serving_resident(&s, 0) - resident;
    printf("# rank 0 grew by %.1f MiB\n", grown / (1 << 20));
    case_check(grown < SLACK || process_sanitized(), "rank 0 grew by %.1f MiB", grown / (1 << 20));
    free(text);
}

int main(void)
{
    const char *given = getenv("SESSION_SECONDS"), *seed = getenv("SESSION_SEED");
    struct siege g = {.seconds = given != NULL && atof(given) > 0 ? atof(given) : 0,
                      .seed = seed != NULL ? (uint64_t)atoll(seed) : 1};
    for (int ranks = 1; ranks <= 2; ranks++) {
        case_begin("%d ranks: an honest client among hostile ones", ranks);
        if (case_check(serving_start(&s, ranks, NULL, (const char *[]){"--kv-cache-memory-bytes", "64M", NULL}),
                       "no server")) {
            besiege(ranks, &g);
            process_watch(&s.p, 0.01, (size_t)-1);
            case_check(!s.p.ended, "the server ended with status %d: %s", s.p.status, s.p.text[PROCESS_ERR]);
            int status = serving_stop(&s);
            case_check(status == 0, "status %d: %s", status, s.p.text[PROCESS_ERR]);
        }
        case_end();
    }
    return cases_done();
}
