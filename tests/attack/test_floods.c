/* tests/attack/test_floods.c - clients that try to take the whole server: ten thousand requests at once, replies of
 * tens of megabytes to a small message, megabytes of work for a client that has left, priorities above the limit,
 * prompts hidden from the log. An honest client asks meanwhile and must be answered in time. Memory returns to its
 * former size. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#define FLOOD   10000
#define HONEST  10
#define SECONDS 240.0 /* for steps that may take a minute on a busy machine */
#define SLACK   ((double)(96 << 20))

static struct serving s;

static void open_greedy(struct talk *t)
{
    const int unlimited = 0;
    talk_open(t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    (void)zmq_setsockopt(t->socket, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
    (void)zmq_setsockopt(t->socket, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
    (void)zmq_disconnect(t->socket, s.endpoint); /* limits apply to later connections only */
    (void)zmq_connect(t->socket, s.endpoint);
}

/* Sends requests of an honest client, one after the other. Returns the longest wait; *good counts correct answers. */
static double ask_honestly(int n, int *good)
{
    double longest = 0;
    *good = 0;
    for (int i = 0; i < n; i++) {
        double asked = seconds_now();
        json_t *m = talk_ask(s.endpoint, "{\"prompt\": \"Once upon a time\", \"max_tokens\": 4, \"temperature\": 0}");
        double waited = seconds_now() - asked;
        *good += strcmp(talk_text(m, "status"), "ok") == 0 && talk_number(m, "usage/completion_tokens") == 4;
        longest = waited > longest ? waited : longest;
        json_decref(m);
    }
    return longest;
}

/* Limits on the damage that a demanding client can do to the others. */
static void flood(void)
{
    struct talk greedy[2];
    int good = 0, n_ok = 0, n_busy = 0, n_other = 0;
    case_begin("%d requests of one client do not starve the others", FLOOD);
    for (int g = 0; g < 2; g++)
        open_greedy(&greedy[g]);
    for (int i = 0; i < FLOOD; i++)
        talk_say(&greedy[0],
                 "{\"prompt\": \"Long ago\", \"max_tokens\": 12, \"ignore_eos\": true, \"request_id\": \"%d\"}", i);
    for (int i = 0; i < 200; i++) /* 64 completions each */
        talk_say(&greedy[1], "{\"prompt\": \"Long ago\", \"max_tokens\": 12, \"n\": 64, \"ignore_eos\": true}");
    double longest = ask_honestly(HONEST, &good);
    case_check(good == HONEST, "%d of %d honest requests were answered", good, HONEST);
    case_check(process_in_time(longest, 5), "an honest request took %.1f s", longest);
    json_t *m = NULL;
    for (int i = 0; i < FLOOD && (m = talk_hear(&greedy[0], SECONDS)) != NULL; i++, json_decref(m)) {
        n_ok += strcmp(talk_text(m, "status"), "ok") == 0;
        n_busy += talk_number(m, "code") == 429;
        n_other += strcmp(talk_text(m, "status"), "ok") != 0 && talk_number(m, "code") != 429;
    }
    case_check(n_ok + n_busy == FLOOD && n_ok > 0 && n_other == 0, "the flood: %d done, %d refused, %d others", n_ok,
               n_busy, n_other);
    printf(
        "# flood of %d: %d of %d honest requests answered, the longest in %.2f s; %d of the flood done, %d refused\n",
        FLOOD, good, HONEST, longest, n_ok, n_busy);
    for (int g = 0; g < 2; g++)
        talk_close(&greedy[g]);
    case_check(serving_await(&s, "kv_blocks_used", 0, SECONDS), "KV blocks are still in use");
    case_end();
}

static void limit_of_a_client(void)
{
    struct talk t;
    int n_busy = 0;
    case_begin("--max-queue-per-client, --max-priority: refused by name");
    open_greedy(&t);
    for (int i = 0; i < 100; i++)
        talk_say(&t, "{\"prompt\": \"Long ago\", \"max_tokens\": 60, \"ignore_eos\": true}");
    json_t *m = NULL;
    for (int i = 0; i < 100 && (m = talk_hear(&t, SECONDS)) != NULL; i++, json_decref(m))
        n_busy +=
            talk_number(m, "code") == 429 && strstr(talk_text(m, "error/message"), "--max-queue-per-client") != NULL;
    case_check(n_busy > 50, "%d of 100 were refused", n_busy);
    m = talk_ask(s.endpoint, "{\"prompt\": \"x\", \"priority\": -1}");
    case_check(talk_number(m, "code") == 400 && strcmp(talk_text(m, "error/field"), "priority") == 0 &&
                   strstr(talk_text(m, "error/message"), "--max-priority") != NULL,
               "priority -1: %s", talk_text(m, "error/message"));
    json_decref(m);
    talk_close(&t);
    case_end();
}

static char *make_prompt(size_t words)
{
    char *text = malloc(words * 2 + 1);
    for (size_t i = 0; i < words; i++)
        memcpy(text + 2 * i, " a", 3);
    return text;
}

/* A message of kilobytes asks for a reply of megabytes. */
static void oversized(void)
{
    int good = 0;
    case_begin("too large replies are refused with both sizes, large ones delay nobody");
    struct talk t;
    open_greedy(&t);
    double before = 0;
    static const char *const large[] = {
        "\"prompt_logprobs\": 20, \"max_tokens\": 1",
        "\"logprobs\": 20, \"n\": 64, \"max_tokens\": 400, \"ignore_eos\": true",
        "\"logprobs\": 20, \"n\": 1, \"best_of\": 64, \"max_tokens\": 400, \"prompt_logprobs\": 20"};
    static const char *const field[] = {"prompt_logprobs", "logprobs", "prompt_logprobs"};
    char *words = make_prompt(500), *list = malloc(64 * 1100);
    size_t at = 0;
    for (int i = 0; i < 60; i++)
        at += (size_t)sprintf(list + at, "%s\"%s\"", i > 0 ? ", " : "", words);
    for (int i = 0; i < 3; i++) {
        talk_say(&t, "{\"prompt\": [%s], %s}", list, large[i]);
        json_t *m = talk_hear(&t, SECONDS);
        case_check(talk_number(m, "code") == 413 && strcmp(talk_text(m, "error/field"), field[i]) == 0 &&
                       strstr(talk_text(m, "error/message"), "--max-reply-bytes") != NULL,
                   "%s: %g %s: %s", large[i], talk_number(m, "code"), talk_text(m, "error/field"),
                   talk_text(m, "error/message"));
        json_decref(m);
    }
    size_t bytes = 0;
    double longest = 0;
    for (int round = 0; round < 2; round++) { /* the first round touches the KV cache, whose memory stays */
        before = serving_resident(&s, 0);
        for (int i = 0; i < 3; i++) /* within the limits, about 8 MB each, however late this client reads */
            talk_say(
                &t,
                "{\"prompt\": \"Long ago\", \"n\": 16, \"logprobs\": 20, \"max_tokens\": 400, \"ignore_eos\": true}");
        longest = ask_honestly(HONEST, &good);
        for (int i = 0; i < 3; i++) {
            json_t *m = talk_hear(&t, SECONDS);
            char *text = m != NULL ? json_dumps(m, JSON_COMPACT) : NULL;
            bytes += text != NULL ? strlen(text) : 0;
            case_check(strcmp(talk_text(m, "status"), "ok") == 0, "%s", talk_text(m, "error/message"));
            free(text);
            json_decref(m);
        }
    }
    case_check(good == HONEST, "%d of %d honest requests were answered", good, HONEST);
    talk_close(&t);
    case_check(serving_await(&s, "open_requests", 1, SECONDS), "requests are still open");
    double grown = serving_resident(&s, 0) - before;
    printf("# replies of %zu bytes: honest requests took %.2f s at most; rank 0 grew by %.1f MiB\n", bytes, longest,
           grown / (1 << 20));
    case_check(grown < SLACK || process_sanitized(), "rank 0 grew by %.1f MiB", grown / (1 << 20));
    free(words);
    free(list);
    case_end();
}

/* Work of disconnected clients is dropped. */
static void gone_clients(void)
{
    enum { CLIENTS = 8, EACH = 8 };
    int good = 0;
    case_begin("requests of disconnected clients delay nobody");
    double before = serving_resident(&s, 0);
    char *words = make_prompt(4 << 20);
    for (int i = 0; i < CLIENTS; i++) {
        struct talk t;
        open_greedy(&t);
        for (int k = 0; k < EACH; k++)
            talk_say(&t, "{\"op\": \"tokenize\", \"prompt\": \"%s\"}", words);
        json_decref(talk_hear(&t, 0.05));
        talk_close(&t);
    }
    double begun = seconds_now(), longest = ask_honestly(HONEST, &good);
    char *large = make_prompt(100 << 10); /* goes through the worker for large messages, behind all the others */
    struct talk t;
    open_greedy(&t);
    talk_say(&t, "{\"op\": \"tokenize\", \"prompt\": \"%s\"}", large);
    json_t *m = talk_hear(&t, SECONDS);
    double seconds = seconds_now() - begun;
    case_check(talk_number(m, "count") > 1000, "a large message is not answered: %s", talk_text(m, "error/message"));
    json_decref(m);
    talk_close(&t);
    case_check(good == HONEST, "%d of %d honest requests were answered", good, HONEST);
    case_check(process_in_time(seconds, 10), "%.1f s until a large message was answered", seconds);
    case_check(serving_await(&s, "open_requests", 1, SECONDS), "requests are still open");
    double grown = serving_resident(&s, 0) - before;
    printf("# %d messages of 8 MB from clients that left: honest requests took %.2f s at most, a large message %.2f s; "
           "rank 0 grew by %.1f MiB\n",
           CLIENTS * EACH, longest, seconds, grown / (1 << 20));
    case_check(grown < SLACK || process_sanitized(), "rank 0 grew by %.1f MiB", grown / (1 << 20));
    free(words);
    free(large);
    case_end();
}

/* Tells whether the server closes this connection before it greets. */
static bool is_closed(int fd)
{
    char byte;
    const struct timeval patience = {60, 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ssize_t n = recv(fd, &byte, 1, 0);
    (void)close(fd);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static double turned_away(struct talk *t)
{
    talk_say(t, "{\"op\": \"metrics\"}");
    json_t *m = talk_hear(t, SECONDS);
    const char *found = strstr(talk_text(m, "text"), "\nlockstep_turned_away_connections_total{");
    double n = found != NULL ? atof(strchr(found, '}') + 1) : -1;
    json_decref(m);
    return n;
}

/* Connections up to the limit are served; further ones are closed and counted, at little cost. */
static void crowd(int most)
{
    enum { COMERS = 300 };
    struct talk *t = calloc((size_t)most, sizeof *t);
    int n_answered = 0, n_closed = 0, fd[COMERS];
    case_begin("--max-connections %d: further ones are closed and counted", most);
    for (int i = 0; i < most; i++) {
        talk_open(&t[i], ZMQ_DEALER, s.endpoint, NULL, NULL);
        talk_say(&t[i], "{\"op\": \"health\"}");
        json_t *m = talk_hear(&t[i], SECONDS);
        n_answered += strcmp(talk_text(m, "state"), "ready") == 0;
        json_decref(m);
    }
    double begun = seconds_now(), before = turned_away(&t[0]);
    for (int i = 0; i < COMERS; i++)
        fd[i] = talk_connect(s.endpoint);
    for (int i = 0; i < COMERS; i++)
        n_closed += fd[i] >= 0 && is_closed(fd[i]);
    double seconds = seconds_now() - begun, counted = turned_away(&t[0]) - before;
    printf("# %d connections: %d served, %d of %d more closed in %.1f s, %.0f counted\n", most, n_answered, n_closed,
           COMERS, seconds, counted);
    case_check(n_answered == most && n_closed == COMERS && counted == COMERS, "%d served, %d closed, %.0f counted",
               n_answered, n_closed, counted);
    case_check(counted <= 64 * (seconds / 0.1 + 1), "%.0f in %.1f s: the listener did not pause", counted, seconds);
    for (int i = 0; i < most; i++)
        talk_close(&t[i]);
    json_t *m = talk_ask(s.endpoint, "{\"op\": \"health\"}"); /* the others have left */
    case_check(strcmp(talk_text(m, "state"), "ready") == 0, "no new client is admitted after others have left");
    json_decref(m);
    free(t);
    case_end();
}

/* Heartbeats of a client that does not read: their answers would pile up without end. */
static void pings(void)
{
    enum { PINGS = 7000, ROUNDS = 400 };
    static unsigned char ping[9] = {4, 7, 4, 'P', 'I', 'N', 'G'}, all[PINGS * sizeof ping];
    const struct timeval patience = {60, 0};
    int good = 0;
    size_t n_sent = 0;
    case_begin("%d heartbeats of a client that does not read its answers take no memory", PINGS * ROUNDS);
    for (size_t i = 0; i < PINGS; i++)
        memcpy(all + i * sizeof ping, ping, sizeof ping);
    double before = serving_resident(&s, 0);
    int fd = talk_connect(s.endpoint);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    (void)send(fd, talk_greeting, TALK_GREETING_BYTES, MSG_NOSIGNAL);
    (void)send(fd, talk_ready, TALK_READY_BYTES, MSG_NOSIGNAL);
    for (int i = 0; i < ROUNDS; i++) {
        ssize_t n = send(fd, all, sizeof all, MSG_NOSIGNAL);
        n_sent += n > 0 ? (size_t)n : 0;
    }
    double longest = ask_honestly(HONEST, &good), grown = serving_resident(&s, 0) - before;
    printf("# %zu of %zu bytes of heartbeats: rank 0 grew by %.2f MiB, honest requests took %.2f s at most\n", n_sent,
           ROUNDS * sizeof all, grown / (1 << 20), longest);
    case_check(n_sent == ROUNDS * sizeof all, "%zu bytes were sent", n_sent);
    case_check(good == HONEST, "%d of %d honest requests were answered", good, HONEST);
    case_check(grown < (1 << 20) || process_sanitized(), "rank 0 grew by %.2f MiB", grown / (1 << 20));
    (void)close(fd);
    case_end();
}

/* Empty messages, thousands in every packet, on many connections: each costs the server more than its two bytes. */
static void crumbs(void)
{
    enum { CONNECTIONS = 200, MESSAGES = 32000, ROUNDS = 15 };
    static unsigned char empty[2 * MESSAGES];
    int fd[CONNECTIONS], good = 0;
    size_t n_sent = 0;
    double before = serving_resident(&s, 0), most = 0, longest = 0;
    case_begin("packets of %d empty messages on %d connections delay nobody", MESSAGES, CONNECTIONS);
    for (int i = 0; i < CONNECTIONS; i++) {
        fd[i] = talk_connect(s.endpoint);
        (void)send(fd[i], talk_greeting, TALK_GREETING_BYTES, MSG_NOSIGNAL);
        (void)send(fd[i], talk_ready, TALK_READY_BYTES, MSG_NOSIGNAL);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int answered = 0;
        for (int i = 0; i < CONNECTIONS; i++) {
            ssize_t n = send(fd[i], empty, sizeof empty, MSG_NOSIGNAL | MSG_DONTWAIT);
            n_sent += n > 0 ? (size_t)n : 0;
        }
        double waited = ask_honestly(1, &answered), now = serving_resident(&s, 0);
        good += answered;
        longest = waited > longest ? waited : longest;
        most = now > most ? now : most;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        (void)close(fd[i]);
    case_check(good == ROUNDS, "%d of %d honest requests were answered", good, ROUNDS);
    case_check(process_in_time(longest, 1), "an honest request took %.2f s", longest);
    case_check(serving_await(&s, "clients", 1, SECONDS), "clients are still connected");
    double grown = serving_resident(&s, 0) - before;
    printf("# %zu empty messages: honest requests took %.2f s at most; rank 0 grew by %.0f MiB at most, by %.1f MiB in "
           "the end\n",
           n_sent / 2, longest, (most - before) / (1 << 20), grown / (1 << 20));
    case_check(most - before < SLACK || process_sanitized(), "rank 0 grew by %.0f MiB", (most - before) / (1 << 20));
    case_check(grown < SLACK / 8 || process_sanitized(), "rank 0 kept %.1f MiB", grown / (1 << 20));
    case_end();
}

/* Small texts whose parsed JSON takes twenty times their size: variables of a chat template that never reads them. */
static void hoards(void)
{
    enum { MESSAGES = 10, NUMBERS = 1000000 };
    static const char begin[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 200, "
                                "\"ignore_eos\": true, \"chat_template_kwargs\": {\"x\": [";
    size_t n = sizeof begin - 1, bytes = n + 2 * NUMBERS + 8;
    char *text = malloc(bytes);
    double before = serving_resident(&s, 0), most = 0;
    int n_answers = 0;
    case_begin("%d waiting messages of a million numbers each take no more memory than their text", MESSAGES);
    memcpy(text, begin, n);
    for (int i = 0; i < NUMBERS; i++, n += 2)
        memcpy(text + n, "1,", 2);
    memcpy(text + n - 1, "]}}", 3);
    struct talk t;
    open_greedy(&t);
    for (int i = 0; i < MESSAGES; i++)
        talk_send(&t, text, n + 2, false);
    for (double until = seconds_now() + 3 * SECONDS; n_answers < MESSAGES && seconds_now() < until;) {
        json_t *m = talk_hear(&t, 0.02);
        double now = serving_resident(&s, 0);
        most = now > most ? now : most;
        n_answers += m != NULL && strcmp(talk_text(m, "status"), "ok") == 0;
        json_decref(m);
    }
    talk_close(&t);
    case_check(n_answers == MESSAGES, "%d of %d were answered", n_answers, MESSAGES);
    case_check(serving_await(&s, "open_requests", 1, SECONDS), "requests are still open");
    double grown = serving_resident(&s, 0) - before;
    printf("# %d messages of %zu bytes: rank 0 grew by %.0f MiB at most, by %.1f MiB in the end\n", MESSAGES, n + 2,
           (most - before) / (1 << 20), grown / (1 << 20));
    case_check(most - before < 256 << 20 || process_sanitized(), "rank 0 grew by %.0f MiB",
               (most - before) / (1 << 20));
    case_check(grown < SLACK || process_sanitized(), "rank 0 kept %.1f MiB", grown / (1 << 20));
    free(text);
    case_end();
}

static void stop_texts(void)
{
    case_begin("stop texts: at most 16 of 1,024 bytes");
    char text[1100];
    memset(text, 'a', sizeof text);
    text[1025] = '\0';
    struct talk t;
    open_greedy(&t);
    talk_say(&t, "{\"prompt\": \"x\", \"stop\": [\"y\", \"%s\"]}", text);
    json_t *m = talk_hear(&t, SECONDS);
    case_check(talk_number(m, "code") == 400 && strcmp(talk_text(m, "error/field"), "stop[1]") == 0 &&
                   strstr(talk_text(m, "error/message"), "1025 bytes, expected at most 1024") != NULL,
               "%s: %s", talk_text(m, "error/field"), talk_text(m, "error/message"));
    json_decref(m);
    talk_close(&t);
    case_end();
}

/* Characters of every length across the byte at which the log truncates. */
static void hidden_prompts(const char *folder, const char *log)
{
    static const char *const characters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\xb8"};
    static char text[4200], line[4300];
    int n = 0;
    size_t bytes = 0;
    case_begin("no prompt is hidden from the access log by a character across the cut");
    for (int c = 0; c < 4; c++)
        for (int before = 4090; before <= 4096; before++, n++) {
            memset(text, 'x', sizeof text);
            (void)snprintf(text, sizeof text, "hidden-%02d", n);
            text[9] = 'x';
            (void)snprintf(text + before, sizeof text - (size_t)before, "%s tail", characters[c]);
            (void)snprintf(line, sizeof line, "{\"prompt\": \"%s\", \"max_tokens\": 1}", text);
            struct talk t;
            open_greedy(&t);
            talk_say(&t, "%s", line);
            json_decref(talk_hear(&t, SECONDS));
            talk_close(&t);
        }
    (void)serving_stop(&s);
    char *all = files_read(folder, log, &bytes);
    int found = 0;
    for (int i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "hidden-%02d", i);
        found += all != NULL && strstr(all, name) != NULL;
    }
    printf("# %d prompts of 4 KiB, %d in the log\n", n, found);
    case_check(found == n, "%d of %d are in the log", found, n);
    free(all);
    case_end();
}

int main(void)
{
    char folder[256], log[300];
    files_make_dir(folder);
    (void)snprintf(log, sizeof log, "%s/log", folder);
    case_begin("serve");
    bool started = serving_start_model(&s, models_shallow(), 1, NULL,
                                       (const char *[]){"--max-reply-bytes", "16M", "--max-client-backlog", "64M",
                                                        "--kv-cache-memory-bytes", "128M", NULL});
    case_check(started, "the server did not start");
    case_end();
    if (started) {
        flood();
        oversized();
        gone_clients();
        stop_texts();
        pings();
        crumbs();
        (void)serving_stop(&s);
    }
    started = serving_start(&s, 1, NULL, (const char *[]){"--max-batch", "1", "--kv-cache-memory-bytes", "64M", NULL});
    if (started) {
        hoards();
        (void)serving_stop(&s);
    }
    started = serving_start(&s, 2, NULL,
                            (const char *[]){"--max-queue-per-client", "8", "--max-batch", "4", "--access-log", log,
                                             "--access-log-prompts", NULL});
    if (started) {
        limit_of_a_client();
        hidden_prompts(folder, "log");
    }
    started = serving_start(&s, 1, NULL, (const char *[]){"--max-connections", "8", NULL});
    if (started) {
        crowd(8);
        case_begin("it ends with status 0");
        case_check(serving_stop(&s) == 0, "status %d: %s", s.p.status, s.p.text[PROCESS_ERR]);
        case_end();
    }
    files_remove_dir(folder);
    return cases_done();
}
