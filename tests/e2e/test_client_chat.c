/* tests/e2e/test_client_chat.c - lockstep-client chat against a server of the test's own: the content of every turn,
 * commands, refusals, ^C, a server that is gone. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/client.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Returns the messages of request i as one text: "user:Hello|assistant:w0 w1|"; the caller frees it. */
static char *turns_of(const struct fake_server *s, int i)
{
    char *text = NULL;
    size_t bytes = 0, k;
    const json_t *turn;
    FILE *f = open_memstream(&text, &bytes);
    if (f == NULL)
        abort();
    json_array_foreach(i < s->n_received ? json_object_get(s->received[i], "messages") : NULL, k, turn)(void)
        fprintf(f, "%s:%s|", json_string_value(json_object_get(turn, "role")),
                json_string_value(json_object_get(turn, "content")));
    (void)fclose(f);
    return text;
}

static void check_turns(const struct fake_server *s, int i, const char *expected)
{
    char *found = turns_of(s, i);
    case_check(strcmp(found, expected) == 0, "message %d has the turns \"%s\", expected \"%s\"", i, found, expected);
    free(found);
}

struct talk_case {
    const char *name, *input, *system;
    const char *out, *error; /* standard output; words in standard error, NULL: it is empty */
    int status;
    const char *turns[4]; /* turns of each request */
};

static const struct talk_case talks[] = {
    {"earlier turns are sent along",
     "Hello\nAgain\n",
     NULL,
     "w0 w1\nw0 w1\n",
     NULL,
     0,
     {"user:Hello|", "user:Hello|assistant:w0 w1|user:Again|"}},
    {"a system's turn, and another one",
     "a\n/system  Be kind.\nb\n/system\nc\n",
     "Be brief.",
     "w0 w1\nw0 w1\nw0 w1\n",
     NULL,
     0,
     {"system:Be brief.|user:a|", "system:Be kind.|user:a|assistant:w0 w1|user:b|",
      "user:a|assistant:w0 w1|user:b|assistant:w0 w1|user:c|"}},
    {"/reset forgets", "a\n/reset\nb\n", NULL, "w0 w1\nw0 w1\n", NULL, 0, {"user:a|", "user:b|"}},
    {"/quit ends it", "a\n/quit\nb\n", NULL, "w0 w1\n", NULL, 0, {"user:a|"}},
    {"empty lines are not turns, and the last line needs no newline", "\n\na", NULL, "w0 w1\n", NULL, 0, {"user:a|"}},
    {"the content of a parsed answer",
     "call\na\n",
     NULL,
     "I look.\nw0 w1\n",
     NULL,
     0,
     {"user:call|", "user:call|assistant:I look.|user:a|"}},
    {"nothing at all", "", NULL, "", NULL, 0, {NULL}},
    {"an unknown command is not sent",
     "/rest\n /rest\n",
     NULL,
     "w0 w1\n",
     "no such command \"/rest\"",
     0,
     {"user: /rest|"}},
    {"a refused turn is removed",
     "a\nrefuse\nb\n",
     NULL,
     "w0 w1\nw0 w1\n",
     "error 400: prompt: a text that is refused",
     ERR_REQUEST,
     {"user:a|", "user:a|assistant:w0 w1|user:refuse|", "user:a|assistant:w0 w1|user:b|"}},
    {"a turn that is not UTF-8 is not sent", "\xff\xfe\na\n", NULL, "w0 w1\n", "not UTF-8", ERR_REQUEST, {"user:a|"}},
    {"a server that is gone ends it", "vanish\nb\n", NULL, NULL, "", ERR_COMM, {"user:vanish|"}},
};

static void run_talk(const struct talk_case *t)
{
    struct fake_server s = {0};
    struct process p;
    int n = 0;
    case_begin("%s", t->name);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, &(struct process_setup){.input = t->input},
                 t->system != NULL ? CLIENT_WORDS("chat", "-e", "E", "-n", "2", "--system", t->system)
                                   : CLIENT_WORDS("chat", "-e", "E", "-n", "2"));
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == t->status, "status %d, expected %d: %s", p.status, t->status, p.text[PROCESS_ERR]);
    case_check(t->out == NULL || strcmp(p.text[PROCESS_OUT], t->out) == 0, "standard output: %s", p.text[PROCESS_OUT]);
    case_check(t->error != NULL ? strstr(p.text[PROCESS_ERR], t->error) != NULL : *p.text[PROCESS_ERR] == '\0',
               "standard error: %s", p.text[PROCESS_ERR]);
    for (; n < 4 && t->turns[n] != NULL; n++)
        check_turns(&s, n, t->turns[n]);
    case_check(s.n_received == n, "%d messages, expected %d", s.n_received, n);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* ^C ends the answer; the part that came belongs to the conversation, which goes on. */
static void interrupted(int number, int status, int n_requests)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("signal %d while an answer comes", number);
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, &(struct process_setup){.input = "wait\nb\n"}, CLIENT_WORDS("chat", "-e", "E", "-n", "2"));
    for (double started = seconds_now(); s.n_received < 1 && !p.ended && seconds_now() - started < CLIENT_SECONDS;)
        process_watch(&p, 0.01, (size_t)-1);
    (void)kill(p.pid, number);
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == status, "status %d, expected %d: %s", p.status, status, p.text[PROCESS_ERR]);
    case_check(s.n_received == n_requests, "%d messages, expected %d", s.n_received, n_requests);
    case_check(s.n_received > 1 && strcmp(json_string_value(json_object_get(s.received[1], "op")), "cancel") == 0,
               "the second message is not a cancel");
    if (n_requests > 2)
        check_turns(&s, 2, "user:wait|assistant:w0 w1|user:b|");
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

/* Without a reader no further turn is sent. */
static void reader_gone(void)
{
    struct fake_server s = {0};
    struct process p;
    case_begin("a reader of the answers that is gone ends it");
    fake_server_start(&s, "tcp://127.0.0.1:*");
    client_start(&p, &s, &(struct process_setup){.input = "a\nb\n"}, CLIENT_WORDS("chat", "-e", "E", "-n", "2"));
    process_close_output(&p);
    process_wait(&p);
    fake_server_stop(&s);
    case_check(p.status == ERR_IO && strstr(p.text[PROCESS_ERR], "cannot write to standard output") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(s.n_received == 1, "%d messages", s.n_received);
    case_end();
    fake_server_free(&s);
    process_free(&p);
}

int main(void)
{
    for (size_t i = 0; i < sizeof talks / sizeof talks[0]; i++)
        run_talk(&talks[i]);
    interrupted(SIGINT, 0, 3);
    interrupted(SIGTERM, 130, 2);
    reader_gone();
    return cases_done();
}
