/* tests/e2e/test_serve_network.c - access to `lockstep serve`: refused endpoints, CURVE with its keys and list of
 * clients, messages that are too large or have unexpected frames, clients that hang up at once. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

static struct serving s;

static void check_refused(const char *endpoint, const char *more, const char *file, int status, const char *words)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    process_run(&p, &setup,
                (const char *[]){"serve", "--model", models_demo(), "--progress", "never", "--endpoint", endpoint, more,
                                 file, NULL});
    case_check(p.status == status && strstr(p.text[PROCESS_ERR], words) != NULL &&
                   process_count_lines(p.text[PROCESS_ERR]) == 1,
               "%s: status %d, expected %d and \"%s\": %s", endpoint, p.status, status, words, p.text[PROCESS_ERR]);
    case_check(p.n_left == 0 && !p.core, "processes or a core file are left");
    process_free(&p);
}

static void endpoints(void)
{
    char folder[256], endpoint[400], rendezvous[400], list[300];
    files_make_dir(folder);
    files_write(folder, "taken", "x", 1);
    files_write(folder, "list", "no key\n", 7);
    (void)snprintf(endpoint, sizeof endpoint, "ipc://%s/taken", folder);
    (void)snprintf(list, sizeof list, "%s/list", folder);
    (void)snprintf(rendezvous, sizeof rendezvous, "--rendezvous=%s/r", folder);
    case_begin("without CURVE endpoints that others can reach are refused, and so are invalid endpoints");
    check_refused("tcp://*:0", NULL, NULL, 2, "other hosts could connect");
    check_refused("tcp://0.0.0.0:5555", NULL, NULL, 2, "other hosts could connect");
    check_refused("tcp://192.0.2.1:5555", NULL, NULL, 2, "other hosts could connect");
    check_refused("ipc://@lockstep-test", NULL, NULL, 2, "every user of this host could connect");
    check_refused("udp://127.0.0.1:5555", NULL, NULL, 2, "expected tcp://ADDRESS:PORT or ipc://PATH");
    check_refused("tcp://127.0.0.1:port", NULL, NULL, 2, "found the port \"port\"");
    check_refused("tcp://127.0.0.1:99999", NULL, NULL, 2, "found the port \"99999\"");
    check_refused("tcp://127.0.0.1:5555x", NULL, NULL, 2, "found the port \"5555x\"");
    check_refused("tcp://127.0.0.1:-1", NULL, NULL, 2, "found the port \"-1\"");
    check_refused("tcp://127.0.0.1:", NULL, NULL, 2, "found the port \"\"");
    check_refused("tcp://127.0.0.1", NULL, NULL, 2, "has no port");
    check_refused("tcp://no-such-host.invalid:1", "--insecure", NULL, 5, "cannot bind");
    check_refused(endpoint, NULL, NULL, 2, "exists and is not a socket");
    check_refused("tcp://127.0.0.1:*", "--curve", NULL, 2, "--curve needs --rendezvous");
    check_refused("tcp://127.0.0.1:*", "--access-log-prompts", NULL, 2, "needs --access-log");
    check_refused("tcp://127.0.0.1:*", "--curve", "--insecure", 2, "--insecure and --curve");
    check_refused("tcp://127.0.0.1:*", "--curve", "--rendezvous=\xff", 2, "a path that is not UTF-8");
    check_refused("ipc://\xff", "--rendezvous=file", NULL, 2, "a path that is not UTF-8");
    case_end();
    case_begin("a list of clients with a bad key is refused");
    struct process_setup setup = {.ranks = 1};
    struct process p;
    process_run(&p, &setup,
                (const char *[]){"serve", "--model", models_demo(), "--curve", "--curve-clients", list, rendezvous,
                                 "--endpoint", "tcp://127.0.0.1:*", NULL});
    case_check(p.status == 3 && strstr(p.text[PROCESS_ERR], "line 1: found \"no key\"") != NULL, "status %d: %s",
               p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
    files_remove_dir(folder);
}

static bool answers(const struct talk_keys *keys, double seconds)
{
    struct talk t;
    talk_open(&t, ZMQ_REQ, s.endpoint, NULL, keys);
    talk_say(&t, "{\"op\": \"health\"}");
    json_t *reply = talk_hear(&t, seconds);
    bool ready = strcmp(talk_text(reply, "state"), "ready") == 0;
    json_decref(reply);
    talk_close(&t);
    return ready;
}

static void curve(void)
{
    char folder[256], list[300], line[64], wrong[2][41], other[2][41], client[400];
    struct stat st;
    files_make_dir(folder);
    (void)snprintf(list, sizeof list, "%s/clients", folder);
    (void)zmq_curve_keypair(wrong[0], wrong[1]);
    (void)zmq_curve_keypair(other[0], other[1]);
    (void)snprintf(line, sizeof line, "# a friend\n%s\n", other[0]);
    files_write(folder, "clients", line, strlen(line));
    case_begin("CURVE admits only the clients on the list");
    if (!case_check(serving_start(&s, 2, "tcp://*:0", (const char *[]){"--curve", "--curve-clients", list, NULL}),
                    "the server does not start")) {
        case_end();
        return;
    }
    (void)snprintf(client, sizeof client, "%s.client", s.rendezvous);
    json_t *r = json_load_file(s.rendezvous, 0, NULL), *k = json_load_file(client, 0, NULL);
    case_check(lstat(client, &st) == 0 && (st.st_mode & 07777) == 0600, "the keys' file has mode %o",
               st.st_mode & 07777);
    case_check(strncmp(s.endpoint, "tcp://", 6) == 0 && strstr(s.endpoint, "0.0.0.0") == NULL &&
                   atoi(strrchr(s.endpoint, ':') + 1) > 0,
               "endpoint %s", s.endpoint);
    /* The host's name may not resolve on the test machine. */
    (void)snprintf(s.endpoint, sizeof s.endpoint, "tcp://127.0.0.1%s", strrchr(talk_text(r, "endpoint"), ':'));
    const char *server = talk_text(r, "public_key");
    case_check(strcmp(server, talk_text(k, "server_public_key")) == 0 && strlen(server) == 40, "another server key");
    struct talk_keys right = {server, talk_text(k, "client_public_key"), talk_text(k, "client_secret_key")};
    struct talk_keys listed = {server, other[0], other[1]}, unknown = {server, wrong[0], wrong[1]},
                     impostor = {wrong[0], right.public_key, right.secret_key};
    case_check(answers(&right, 20), "the job's client is not admitted");
    case_check(answers(&listed, 20), "a client of the list is not admitted");
    case_check(!answers(&unknown, 1), "an unknown client is admitted");
    case_check(!answers(&impostor, 1), "a client with another server's key is answered");
    case_check(!answers(NULL, 1), "a client without keys is admitted");
    case_check(answers(&right, 20), "the job's client is no longer admitted");
    case_check(strstr(s.p.text[PROCESS_ERR] != NULL ? s.p.text[PROCESS_ERR] : "", right.secret_key) == NULL,
               "a secret key is on standard error");
    struct talk t;
    talk_open(&t, ZMQ_REQ, s.endpoint, NULL, &right);
    talk_say(&t, "{\"op\": \"metrics\"}");
    json_t *metrics = talk_hear(&t, 20);
    const char *refused = strstr(talk_text(metrics, "text"), "\nlockstep_refused_connections_total{");
    case_check(refused != NULL && atof(strchr(refused, '}') + 1) >= 2, "refused connections are not counted");
    json_decref(metrics);
    talk_say(&t, "{\"op\": \"shutdown\"}");
    json_decref(talk_hear(&t, 20));
    talk_close(&t);
    serving_wait(&s);
    case_check(s.p.status == 0 && access(client, F_OK) != 0, "status %d, or the keys are still there", s.p.status);
    case_end();
    json_decref(r);
    json_decref(k);
    (void)serving_stop(&s);
    files_remove_dir(folder);
}

/* Health checks over TCP connect and hang up, many with a reset. */
static void probes(void)
{
    const struct linger reset = {.l_onoff = 1};
    case_begin("a client that hangs up without a byte is not a failed handshake, another protocol is");
    double before = serving_metric(&s, "refused_connections_total");
    for (int i = 0; i < 4; i++) {
        int fd = talk_connect(s.endpoint);
        if (i % 2 == 1)
            (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        case_check(fd >= 0 && close(fd) == 0, "cannot connect to %s", s.endpoint);
    }
    (void)serving_metric(&s, "refused_connections_total"); /* a round of the server's loop */
    double after = serving_metric(&s, "refused_connections_total");
    case_check(after == before, "%g after %g", after, before);
    int fd = talk_connect(s.endpoint);
    case_check(fd >= 0 && write(fd, "GET / HTTP/1.1\r\n", 16) == 16 && close(fd) == 0, "cannot write");
    double until = seconds_now() + 10;
    while (serving_metric(&s, "refused_connections_total") == before && seconds_now() < until)
        continue;
    after = serving_metric(&s, "refused_connections_total");
    case_check(after == before + 1, "%g after %g and a request by HTTP", after, before);
    case_end();
}

/* The socket itself enforces the limit: ZeroMQ drops the connection without an answer. */
static void too_large(void)
{
    enum { LIMIT = 65536 };
    struct talk t, other;
    static char text[2 * LIMIT];
    case_begin("a message above --max-message-bytes ends only its own connection");
    if (!case_check(serving_start(&s, 2, NULL, (const char *[]){"--max-message-bytes", "64K", NULL}), "no server")) {
        case_end();
        return;
    }
    memset(text, ' ', sizeof text);
    talk_open(&other, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&other, "{\"prompt\": \"Once\", \"max_tokens\": 200, \"ignore_eos\": true, \"stream\": true}");
    json_decref(talk_hear(&other, 20));
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    memcpy(text, "{\"op\":\"health\"}", 15);
    talk_send(&t, text, LIMIT, false); /* just within the limit */
    json_t *reply = talk_hear(&t, 20);
    case_check(strcmp(talk_text(reply, "state"), "ready") == 0, "a message of exactly the limit is not answered");
    json_decref(reply);
    talk_send(&t, text, LIMIT + 1, false);
    reply = talk_hear(&t, 1);
    case_check(reply == NULL, "a message above the limit is answered");
    json_decref(reply);
    talk_say(&t, "{\"op\": \"models\"}"); /* the socket has reconnected automatically */
    reply = talk_hear(&t, 20);
    case_check(talk_number(reply, "max_message_bytes") == LIMIT, "the reported limit is %g",
               talk_number(reply, "max_message_bytes"));
    json_decref(reply);
    bool final = false;
    for (int i = 0; i < 300 && !final; i++) {
        json_t *event = talk_hear(&other, 20);
        final = strcmp(talk_text(event, "event"), "final") == 0 && strcmp(talk_text(event, "status"), "ok") == 0;
        json_decref(event);
    }
    case_check(final, "another client's stream did not end well");
    talk_close(&other);
    case_end();

    case_begin("messages with unexpected frames are ignored and counted");
    double before = serving_metric(&s, "bad_messages_total");
    talk_send(&t, "{}", 2, true);
    talk_send(&t, "{}", 2, false);
    talk_send(&t, "", 0, true);
    talk_send(&t, "{}", 2, true);
    talk_send(&t, "{}", 2, false);
    talk_say(&t, "{\"op\": \"health\"}");
    reply = talk_hear(&t, 20);
    case_check(strcmp(talk_text(reply, "op"), "health") == 0, "another message was answered");
    json_decref(reply);
    case_check(serving_metric(&s, "bad_messages_total") == before + 2, "%g after %g",
               serving_metric(&s, "bad_messages_total"), before);
    case_end();
    talk_close(&t);
    probes();
    (void)serving_stop(&s);
}

/* Every connection needs a descriptor. The usual soft limit is far below the hard one. */
static void few_descriptors(void)
{
    enum { SOFT = 100, CLIENTS = 250 };
    static struct talk t[CLIENTS];
    struct rlimit limit, low;
    int answered = 0;
    case_begin("a low soft limit of open files does not keep clients away");
    case_check(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= 2000, "the hard limit is too low to test");
    low = (struct rlimit){.rlim_cur = SOFT, .rlim_max = limit.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &low);
    bool started = serving_start(&s, 1, NULL, NULL);
    low.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &low); /* this process needs as many for its clients */
    if (case_check(started, "no server")) {
        for (int i = 0; i < CLIENTS; i++) {
            talk_open(&t[i], ZMQ_DEALER, s.endpoint, NULL, NULL);
            talk_say(&t[i], "{\"op\": \"health\"}");
        }
        for (int i = 0; i < CLIENTS; i++) {
            json_t *o = talk_hear(&t[i], 20);
            answered += o != NULL;
            json_decref(o);
            if (o == NULL)
                break;
        }
        case_check(answered == CLIENTS, "%d of %d are answered", answered, CLIENTS);
        for (int i = 0; i < CLIENTS; i++)
            talk_close(&t[i]);
        (void)serving_stop(&s);
    }
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    case_end();
}

int main(void)
{
    endpoints();
    curve();
    too_large();
    few_descriptors();
    return cases_done();
}
