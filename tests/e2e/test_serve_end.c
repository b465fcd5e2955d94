/* tests/e2e/test_serve_end.c - the end of `lockstep serve`: signals, draining, the failure of a rank. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static struct serving s;

static bool start_server(int ranks, const char *endpoint, const char *const *more)
{
    return case_check(serving_start(&s, ranks, endpoint, more), "the server does not start");
}

/* Starts a model whose context no reply fills during a test. */
static bool start_endless(int ranks, const char *endpoint, const char *name, const char *value)
{
    const char *more[] = {"--kv-cache-memory-bytes", "2G", name, value, NULL};
    return case_check(serving_start_model(&s, models_endless(), ranks, endpoint, more), "the server does not start");
}

/* Numbers of tokens: a reply that ends soon, and one that does not end during a test. */
enum { FINITE = 100, ENDLESS = 100000 };

/* Waits until the server has taken this many requests of a connection that sends nothing else. */
static void await_taken(int n)
{
    double taken = 0;
    for (double until = seconds_now() + process_patience(20); taken < n && seconds_now() < until && !s.p.ended;)
        taken = serving_metric_of(&s, "messages_total", "op", "generate");
    case_check(taken == n, "%g of %d requests were taken: %s", taken, n,
               s.p.text[PROCESS_ERR] != NULL ? s.p.text[PROCESS_ERR] : "");
}

/* Asks for n replies, every second one a stream, and waits until the server has taken all. */
static void keep_busy(struct talk *t, int n, int n_tokens)
{
    talk_open(t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < n; i++)
        talk_say(t, "{\"prompt\": \"Long ago\", \"max_tokens\": %d, \"ignore_eos\": true, \"stream\": %s}", n_tokens,
                 i % 2 == 0 ? "true" : "false");
    await_taken(n);
}

/* Waits until the server ends by itself; expects this status. */
static void end_with(struct talk *t, int status)
{
    serving_wait(&s);
    case_check(s.p.status == status && !s.p.timed_out, "status %d, expected %d", s.p.status, status);
    talk_close(t);
    (void)serving_stop(&s);
}

/* Returns the number of last replies with the code (200: without one); all n must come. */
static int count_last(struct talk *t, int n, int code, double *last)
{
    int good = 0;
    for (int got = 0; got < n;) {
        json_t *o = talk_hear(t, 5);
        if (o == NULL)
            break;
        if (strcmp(talk_text(o, "event"), "tokens") != 0) {
            got++;
            good += code == 200 ? strcmp(talk_text(o, "status"), "ok") == 0 : talk_number(o, "code") == code;
            *last = seconds_now();
        }
        json_decref(o);
    }
    return good;
}

/* Sends the ranks SIGTERM as mpirun passes it on, which then leaves them a second. SIGHUP, from a closing terminal,
 * acts alike. */
static void terminate(int ranks, int number, const char *name)
{
    struct talk t;
    double last = 0;
    case_begin("%s: open requests are answered within a second, on %d ranks", name, ranks);
    if (!start_endless(ranks, NULL, NULL, NULL)) {
        case_end();
        return;
    }
    keep_busy(&t, 6, ENDLESS);
    double began = seconds_now();
    for (int r = 0; r < ranks; r++)
        (void)process_signal_rank(&s.p, r, number);
    int answered = count_last(&t, 6, 503, &last);
    case_check(answered == 6, "%d of 6 were answered with 503", answered);
    case_check(process_in_time(last - began, 1), "the last one after %.3f s", last - began);
    while (process_of_rank(&s.p, 0) != 0 && seconds_now() - began < 20)
        continue;
    case_check(process_in_time(seconds_now() - began, 1), "rank 0 ended after %.3f s", seconds_now() - began);
    serving_wait(&s);
    case_check(s.p.status == 1, "status %d, expected 1: requests were cut short", s.p.status);
    case_check(s.p.n_left == 0 && !s.p.core, "processes or a core file are left");
    case_check(access(s.rendezvous, F_OK) != 0, "the rendezvous file is still there");
    case_end();
    talk_close(&t);
    (void)serving_stop(&s);
}

/* If the launcher leaves time (srun does), SIGTERM drains; all ranks get it, and it counts only once. */
static void terminate_slowly(void)
{
    struct talk t;
    double last = 0;
    case_begin("SIGTERM with --end-seconds: open requests finish, status 0");
    if (start_server(2, NULL, (const char *[]){"--end-seconds", "600", NULL})) {
        keep_busy(&t, 3, FINITE);
        for (int r = 0; r < 2; r++)
            (void)process_signal_rank(&s.p, r, SIGTERM);
        int answered = count_last(&t, 3, 200, &last);
        case_check(answered == 3, "%d of 3 finished", answered);
        end_with(&t, 0);
    }
    case_end();
}

/* Sends the launcher itself SIGTERM: it waits a second, passes SIGTERM on, and kills the ranks another second later; on
 * a busy machine, whose ranks have not answered by then, correspondingly later. */
static void terminate_launcher(void)
{
    struct talk t;
    double last = 0;
    case_begin("SIGTERM to mpirun: open requests are answered");
    process_delay_kill(1);
    bool started = start_endless(2, NULL, NULL, NULL);
    process_delay_kill(0);
    if (started) {
        keep_busy(&t, 4, ENDLESS);
        (void)kill(s.p.pid, SIGTERM);
        int answered = count_last(&t, 4, 503, &last);
        case_check(answered == 4, "%d of 4 were answered with 503", answered);
        serving_wait(&s); /* the status is mpirun's own */
        (void)serving_stop(&s);
        talk_close(&t);
    }
    case_end();
}

/* Waits until the server says that it drains. */
static void await_draining(void)
{
    bool draining = false;
    for (double until = seconds_now() + process_patience(10); !draining && seconds_now() < until && !s.p.ended;) {
        json_t *o = talk_ask(s.endpoint, "{\"op\": \"health\"}");
        draining = strcmp(talk_text(o, "state"), "draining") == 0;
        json_decref(o);
    }
    case_check(draining, "it does not drain");
}

/* One reply is held open until everything else was checked: the server cannot end before. */
static void drain(int ranks, bool by_message)
{
    struct talk t;
    double last = 0;
    case_begin("%s: open requests finish, new ones are refused, status 0, on %d ranks",
               by_message ? "op drain" : "SIGUSR1 to mpirun", ranks);
    if (!start_endless(ranks, by_message ? SERVING_IPC : NULL, "--drain-seconds", "600")) {
        case_end();
        return;
    }
    keep_busy(&t, 4, FINITE);
    talk_say(&t, "{\"prompt\": \"Long ago\", \"max_tokens\": %d, \"ignore_eos\": true, \"request_id\": \"held\"}",
             ENDLESS);
    await_taken(5);
    if (by_message)
        json_decref(talk_ask(s.endpoint, "{\"op\": \"drain\"}"));
    else
        (void)kill(s.p.pid, SIGUSR1);
    await_draining();
    json_t *refused = talk_ask(s.endpoint, "{\"prompt\": \"x\"}");
    case_check(talk_number(refused, "code") == 503, "a new request: code %g", talk_number(refused, "code"));
    json_decref(refused);
    int done = count_last(&t, 4, 200, &last);
    case_check(done == 4, "%d of 4 finished", done);
    talk_say(&t, "{\"op\": \"cancel\", \"request_id\": \"held\"}");
    serving_wait(&s);
    case_check(s.p.status == 0 && !s.p.timed_out, "status %d", s.p.status);
    case_end();
    talk_close(&t);
    (void)serving_stop(&s);
}

/* Requests that are still at the tokenizer when a drain begins have been admitted; earlier texts keep the tokenizer
 * busy meanwhile. */
static void drain_at_tokenizer(void)
{
    enum { BYTES = 60000, N_TEXTS = 30 };
    struct talk t;
    char *text = malloc(BYTES + 200);
    bool drained = false, finished = false;
    int n = snprintf(text, 100, "{\"op\": \"tokenize\", \"prompt\": \"");
    while (n < BYTES)
        n += snprintf(text + n, 100, "Once upon a time there was a little fox. ");
    n += snprintf(text + n, 100, "\"}");
    case_begin("a drain that begins while a request is being tokenized: it finishes");
    if (start_server(1, SERVING_IPC, NULL)) {
        talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
        for (int i = 0; i < N_TEXTS; i++)
            talk_send(&t, text, (size_t)n, false);
        talk_say(&t, "{\"prompt\": \"Long ago\", \"max_tokens\": 8, \"request_id\": \"late\"}");
        talk_say(&t, "{\"op\": \"drain\"}");
        for (int i = 0; i < N_TEXTS + 2; i++) {
            json_t *o = talk_hear(&t, 20);
            drained = drained || strcmp(talk_text(o, "state"), "draining") == 0;
            if (strcmp(talk_text(o, "request_id"), "late") == 0) {
                case_check(drained, "the drain came too late: nothing was tested");
                finished = strcmp(talk_text(o, "status"), "ok") == 0;
            }
            json_decref(o);
        }
        case_check(finished, "it did not finish");
        end_with(&t, 0);
    }
    case_end();
    free(text);
}

/* Some launchers pass a signal to one rank only. */
static void another_rank(int rank, int number, int status, bool busy)
{
    struct talk t;
    double last = 0;
    case_begin("signal %d to rank %d of 3 alone, which is %s: rank 0 is told", number, rank, busy ? "busy" : "idle");
    if (start_endless(3, NULL, "--drain-seconds", "600")) {
        keep_busy(&t, busy ? 2 : 0, number == SIGTERM ? ENDLESS : FINITE);
        (void)process_signal_rank(&s.p, rank, number);
        int answered = busy ? count_last(&t, 2, number == SIGTERM ? 503 : 200, &last) : 2;
        case_check(answered == 2, "%d of 2 were answered as expected", answered);
        end_with(&t, status);
    }
    case_end();
}

/* A stopped rank ends the job; clients get an error before they are disconnected. */
static void failure(void)
{
    struct talk t;
    double last = 0;
    case_begin("a failure of the engine: open requests are answered with 500");
    if (start_endless(2, NULL, "--step-timeout", "2")) {
        keep_busy(&t, 3, ENDLESS);
        (void)process_signal_rank(&s.p, 1, SIGSTOP);
        int answered = count_last(&t, 3, 500, &last);
        case_check(answered == 3, "%d of 3 were answered with 500", answered);
        serving_wait(&s);
        case_check(s.p.status == 8, "status %d, expected 8", s.p.status);
        case_check(access(s.rendezvous, F_OK) != 0, "the rendezvous file is still there");
        talk_close(&t);
        (void)serving_stop(&s);
    }
    case_end();
}

static void drain_too_long(void)
{
    struct talk t;
    double last = 0;
    case_begin("--drain-seconds expires: the rest is answered with 503, status 1");
    if (start_endless(2, NULL, "--drain-seconds", "0")) {
        keep_busy(&t, 4, ENDLESS);
        (void)kill(s.p.pid, SIGUSR1);
        int answered = count_last(&t, 4, 503, &last);
        case_check(answered == 4, "%d of 4 were answered with 503", answered);
        end_with(&t, 1);
    }
    case_end();
}

int main(void)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        terminate(ranks, SIGTERM, "SIGTERM");
        terminate(ranks, SIGHUP, "SIGHUP");
    }
    if (process_has_open_mpi_5())
        case_skip("SIGTERM to mpirun", "Open MPI 5 kills its ranks 0.3 s later");
    else
        terminate_launcher();
    terminate_slowly();
    drain(1, true);
    drain(2, false);
    drain(3, false);
    drain_at_tokenizer();
    another_rank(1, SIGUSR1, 0, true);
    another_rank(2, SIGTERM, 1, true);
    another_rank(2, SIGTERM, 0, false);
    drain_too_long();
    failure();
    return cases_done();
}
