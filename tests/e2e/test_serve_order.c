/* tests/e2e/test_serve_order.c - the order of requests: they run by their priorities, and one that is cancelled, or
 * whose client leaves, is out of the engine within two steps, counted by another stream's tokens. One of a dozen may
 * take longer: on a busy machine the server's I/O thread may be delayed between two polls within a step. */
#include "tests/support/cases.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

static struct serving s;

/* One request runs at a time. The first one holds the engine until all others wait; then the lowest value goes first,
 * and equal ones by arrival. */
static void priorities(void)
{
    static const int priority[] = {5, 1, 3, 1, -2, 5, 0};
    static const int want[] = {4, 6, 1, 3, 2, 0, 5};
    enum { N = sizeof priority / sizeof priority[0] };
    struct talk t;
    char order[64] = "", expected[64] = "";
    case_begin("priorities: the lower value first, then by arrival, on %d ranks", s.ranks);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "{\"prompt\": \"Long ago\", \"max_tokens\": 900, \"ignore_eos\": true, \"request_id\": \"first\"}");
    for (int i = 0; i < N; i++)
        talk_say(
            &t,
            "{\"prompt\": \"Tom\", \"max_tokens\": 3, \"ignore_eos\": true, \"priority\": %d, \"request_id\": \"%d\"}",
            priority[i], i);
    double waiting = 0;
    for (int i = 0; i < 1000 && waiting < N; i++)
        waiting = serving_metric(&s, "num_requests_waiting");
    case_check(waiting == N, "%g of %d wait: nothing is tested", waiting, N);
    talk_say(&t, "{\"op\": \"cancel\", \"request_id\": \"first\"}"); /* refused: another connection's request */
    int n_cancelled = 0;
    for (int i = 0; i < N + 2; i++) { /* the answer to `cancel`, the end of the cancelled one, and all others */
        json_t *reply = talk_hear(&t, 30);
        case_check(reply != NULL, "%d of %d answers came", i, N + 2);
        if (strcmp(talk_text(reply, "request_id"), "first") != 0)
            (void)snprintf(order + strlen(order), sizeof order - strlen(order), "%s ", talk_text(reply, "request_id"));
        else
            n_cancelled += talk_number(reply, "code") == 499;
        json_decref(reply);
    }
    case_check(n_cancelled == 1, "%d answers say that the first one was cancelled", n_cancelled);
    for (int i = 0; i < N; i++)
        (void)snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%d ", want[i]);
    case_check(strcmp(order, expected) == 0, "they ended in the order %s, expected %s", order, expected);
    talk_close(&t);
    case_end();
}

/* Both are streams of one connection, so their messages arrive in the order in which the server sends them: every step
 * brings a token of the other stream. The answer to `cancel` is sent when the server has read it, the last event of the
 * cancelled stream when its slot and blocks are free. */
static int steps_to_free(struct talk *t, int round)
{
    int between = -1, seen = 0;
    talk_say(t,
             "{\"prompt\": \"Long ago\", \"max_tokens\": 900, \"ignore_eos\": true, \"stream\": true, \"request_id\": "
             "\"a-%d\"}",
             round);
    for (bool over = false; !over;) {
        json_t *o = talk_hear(t, 30);
        const char *event = talk_text(o, "event"), *id = talk_text(o, "request_id");
        bool other = strcmp(id, "other") == 0, tokens = strcmp(event, "tokens") == 0;
        if (!case_check(o != NULL && (tokens || !other), "a stream ends too early"))
            over = true;
        else if (!other && tokens && ++seen == 3)
            talk_say(t, "{\"op\": \"cancel\", \"request_id\": \"a-%d\"}", round);
        else if (!other && event[0] == '\0') /* the answer to cancel */
            between = 0;
        else if (other && between >= 0)
            between++;
        else if (!other && !tokens) {
            case_check(between >= 0 && talk_number(o, "code") == 499, "code %g", talk_number(o, "code"));
            over = true;
        }
        json_decref(o);
    }
    return between;
}

static void cancel(void)
{
    enum { ROUNDS = 12 };
    struct talk t;
    int most = 0, late = 0;
    case_begin("a cancelled request is out of the engine within 2 steps, on %d ranks", s.ranks);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "{\"prompt\": \"The fox\", \"max_tokens\": 1000, \"ignore_eos\": true, \"stream\": true, "
                 "\"request_id\": \"other\"}");
    for (int i = 0; i < ROUNDS; i++) {
        int steps = steps_to_free(&t, i);
        case_check(steps >= 0, "round %d does not end", i);
        most = steps > most ? steps : most;
        late += steps > 2;
    }
    printf("# at most %d steps in %d rounds\n", most, ROUNDS);
    case_check(late <= 1, "%d of %d took more than 2 steps", late, ROUNDS);
    talk_close(&t);
    case_check(serving_await(&s, "kv_blocks_used", 0, 30), "blocks are still held");
    case_end();
}

/* Returns a bucket of the histogram: the number of cancellations that took up to this many steps; all of them for
 * "+Inf". */
static int within(const char *steps)
{
    char line[64];
    int n = -1;
    json_t *metrics = talk_ask(s.endpoint, "{\"op\": \"metrics\"}");
    (void)snprintf(line, sizeof line, "le=\"%s\"} ", steps);
    const char *at = strstr(talk_text(metrics, "text"), "lockstep_cancellation_steps_bucket");
    at = at != NULL ? strstr(at, line) : NULL;
    if (at != NULL)
        n = atoi(at + strlen(line));
    json_decref(metrics);
    return n;
}

/* The server itself counts steps between its reports; another stream makes it report every step. */
static void leave(void)
{
    enum { ROUNDS = 12 };
    struct talk t, other;
    case_begin("requests of clients that leave are out of the engine within 2 steps, on %d ranks", s.ranks);
    talk_open(&other, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&other, "{\"prompt\": \"The fox\", \"max_tokens\": 1000, \"ignore_eos\": true, \"stream\": true}");
    json_decref(talk_hear(&other, 30));
    int before = within("+Inf");
    for (int i = 0; i < ROUNDS; i++) {
        talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
        talk_say(&t, "{\"prompt\": \"Long ago\", \"max_tokens\": 900, \"ignore_eos\": true, \"stream\": true}");
        json_decref(talk_hear(&t, 30));
        talk_close(&t);
    }
    case_check(serving_await(&s, "num_requests_running", 1, 30), "requests of clients that left run on");
    int all = within("+Inf") - before;
    case_check(all == ROUNDS, "%d of %d cancellations are counted", all, ROUNDS);
    case_check(within("2") >= within("+Inf") - 1, "%d of %d took up to 2 steps", within("2"), within("+Inf"));
    talk_close(&other);
    case_check(serving_await(&s, "kv_blocks_used", 0, 30), "blocks are still held");
    case_end();
}

int main(void)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        if (serving_start(&s, ranks, NULL, (const char *[]){"--max-batch", "1", "--max-priority", "-2", NULL})) {
            priorities();
            (void)serving_stop(&s);
        }
        if (serving_start(&s, ranks, NULL, NULL)) {
            cancel();
            leave();
            (void)serving_stop(&s);
        }
    }
    return cases_done();
}
