/* tests/e2e/test_serve_examples.c - every example of docs/protocol.md, against the real server on 1, 2 and 3 ranks. */
#include "tests/support/cases.h"
#include "tests/support/examples.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <string.h>
#include <zmq.h>

#define SECONDS 30.0

static struct serving s;

static void compare(const struct example *x, const json_t *found, int which)
{
    char why[400] = "";
    case_check(found != NULL && example_compare(found, x->reply[which], why, sizeof why), "reply %d: %s", which,
               found != NULL ? why : "no reply");
}

/* Receives all events; the document has the first ones and the last one. */
static void run_stream(const struct example *x, struct talk *t)
{
    int n = 0;
    for (bool last = false; !last; n++) {
        json_t *event = talk_hear(t, SECONDS);
        last = event == NULL || strcmp(talk_text(event, "event"), "tokens") != 0;
        if (last)
            compare(x, event, x->n_replies - 1);
        else if (n < x->n_replies - 1)
            compare(x, event, n);
        json_decref(event);
    }
    case_check(n >= x->n_replies, "%d events, expected %d or more", n, x->n_replies);
}

static void run_example(const struct example *x)
{
    struct talk t;
    case_begin("example %s on %d ranks", x->name, s.ranks);
    talk_open(&t, x->streams ? ZMQ_DEALER : ZMQ_REQ, s.endpoint, NULL, NULL);
    talk_send(&t, x->request_text, strlen(x->request_text), false);
    if (x->streams)
        run_stream(x, &t);
    else {
        json_t *reply = talk_hear(&t, SECONDS);
        compare(x, reply, 0);
        json_decref(reply);
    }
    talk_close(&t);
    case_end();
}

int main(void)
{
    struct examples examples;
    examples_read(&examples, "docs/protocol.md");
    for (int ranks = 1; ranks <= 3; ranks++) {
        if (!serving_start(&s, ranks, SERVING_IPC, NULL)) {
            case_begin("serve on %d ranks", ranks);
            case_check(false, "it does not start");
            case_end();
            continue;
        }
        for (int i = 0; i < examples.n; i++)
            run_example(&examples.example[i]);
        (void)serving_stop(&s);
    }
    examples_free(&examples);
    return cases_done();
}
