/* tests/e2e/test_serve_ranks.c - data that the server collects from its ranks: scores of prompts, also after a cached
 * prefix; figures of every rank; and the deadline of a step, which does not end an idle server. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define STORY "Once upon a time there was a little fox who lived in the green forest by the river with her mother"

static json_t *ask_scores(const struct serving *s, int k, const char *more)
{
    char request[600];
    (void)snprintf(request, sizeof request,
                   "{\"prompt\": \"" STORY "\", \"max_tokens\": 3, \"temperature\": 0, \"prompt_logprobs\": %d%s}", k,
                   more);
    return talk_ask(s->endpoint, request);
}

/* The scores equal those that `generate` prints: for every token, and its 2 likeliest alternatives. */
static void compare(const json_t *choice, const json_t *printed)
{
    const json_t *got = json_object_get(choice, "prompt_logprobs"), *want = json_object_get(printed, "prompt_logprobs");
    case_check(json_equal(json_object_get(choice, "prompt_token_ids"), json_object_get(printed, "prompt_ids")),
               "the tokens differ");
    case_check(json_array_size(got) == json_array_size(want) && json_array_size(got) > 20 &&
                   json_is_null(json_array_get(got, 0)),
               "%zu entries, expected %zu", json_array_size(got), json_array_size(want));
    for (size_t i = 1; i < json_array_size(want) && i < json_array_size(got); i++) {
        const json_t *a = json_array_get(got, i), *b = json_array_get(want, i);
        const json_t *top = json_object_get(a, "top_logprobs"), *other = json_object_get(b, "top");
        case_check(json_equal(json_object_get(a, "token_id"), json_object_get(b, "token_id")) &&
                       fabs(json_number_value(json_object_get(a, "logprob")) -
                            json_number_value(json_object_get(b, "logprob"))) < 1e-6 &&
                       json_array_size(top) == 2 &&
                       json_equal(json_object_get(json_array_get(top, 1), "token_id"),
                                  json_array_get(json_array_get(other, 1), 0)),
                   "entry %zu", i);
    }
}

static void scores(const struct serving *s)
{
    struct process_setup setup = {.ranks = s->ranks};
    struct process p;
    case_begin("scores of a prompt, %d rank(s)", s->ranks);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", STORY, "--max-tokens", "3",
                                 "--temperature", "0", "--json", "--prompt-logprobs", "2", NULL});
    json_t *printed = json_loads(p.text[PROCESS_OUT], 0, NULL), *plain = ask_scores(s, 2, ", \"n\": 1");
    json_t *choice = json_array_get(json_object_get(plain, "choices"), 0);
    case_check(p.status == 0 && printed != NULL, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    compare(choice, printed);
    /* Again, now that the cache has the whole prompt: no score is missing. And several choices share one prompt. */
    json_t *again = ask_scores(s, 2, ""), *many = ask_scores(s, 2, ", \"n\": 3");
    json_t *other = json_array_get(json_object_get(again, "choices"), 0);
    case_check(json_equal(json_object_get(other, "prompt_logprobs"), json_object_get(choice, "prompt_logprobs")),
               "the scores differ after a cached prefix");
    case_check(json_array_size(json_object_get(many, "choices")) == 3, "not 3 choices");
    for (size_t i = 0; i < 3; i++)
        case_check(json_equal(json_object_get(json_array_get(json_object_get(many, "choices"), i), "prompt_logprobs"),
                              json_object_get(choice, "prompt_logprobs")),
                   "choice %zu has other scores", i);
    case_end();
    json_decref(printed);
    json_decref(plain);
    json_decref(again);
    json_decref(many);
    process_free(&p);
}

/* The figures arrive about once a second, as long as there are steps. */
static void figures(const struct serving *s)
{
    double until = seconds_now() + process_patience(20);
    case_begin("figures of %d rank(s)", s->ranks);
    while (!(serving_metric(s, "rank_steps_total") >= 20 * s->ranks) && seconds_now() < until)
        free(serving_story(s, "Once upon a time", 8));
    case_check(serving_await(s, "rank_compute_seconds", 100, 30) &&
                   serving_metric(s, "rank_steps_total") >= 20 * s->ranks,
               "%g steps", serving_metric(s, "rank_steps_total"));
    double wait = serving_metric(s, "rank_all_reduce_wait_seconds"), sum = serving_metric(s, "rank_all_reduce_seconds");
    case_check(s->ranks == 1 ? !(wait > 0) : wait >= 0 && wait < sum, "%g s of %g s are waiting", wait, sum);
    double slowest = serving_metric(s, "slowest_rank");
    case_check(s->ranks == 1 ? isnan(slowest) : slowest >= 0 && slowest < s->ranks, "slowest rank %g", slowest);
    case_end();
}

static bool start_server(struct serving *s, int ranks, const char *timeout)
{
    return serving_start(s, ranks, NULL, (const char *[]){"--step-timeout", timeout, NULL});
}

/* Checks the line and the status, and that no process is left. */
static void check_end(struct serving *s, int rank, double stopped)
{
    char name[60];
    serving_wait(s);
    double took = s->p.started + s->p.seconds - stopped;
    (void)snprintf(name, sizeof name, "lockstep: fatal: rank %d/%d on ", rank, s->ranks);
    case_check(strstr(s->p.text[PROCESS_ERR], name) != NULL &&
                   strstr(s->p.text[PROCESS_ERR], "no sign of life") != NULL,
               "standard error: %s", s->p.text[PROCESS_ERR]);
    case_check(s->p.status == ERR_COMM, "status %d", s->p.status);
    case_check((took > 0.5 || process_sanitized()) && process_in_time(took, 5), "%.1f s", took);
    case_check(s->p.n_left == 0, "%d processes are left running", s->p.n_left);
}

/* The server still answers after idling for longer than the deadline. Then a rank is stopped: during a step, or (rank
 * 0) while it waits. */
static void deadline(int rank, bool busy)
{
    struct serving s;
    struct talk t;
    case_begin("a server idles beyond its deadline; then rank %d is stopped%s", rank, busy ? " while it works" : "");
    if (!start_server(&s, 2, "1.5")) {
        case_check(false, "no server");
        case_end();
        return;
    }
    process_watch(&s.p, 4, 1 << 20);
    char *story = serving_story(&s, "Once upon a time", 8);
    case_check(story != NULL, "no answer after a pause: %s", s.p.text[PROCESS_ERR]);
    free(story);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    if (busy) {
        talk_say(&t, "{\"prompt\": \"Once\", \"max_tokens\": 1000, \"ignore_eos\": true, \"stream\": true}");
        json_t *event = talk_hear(&t, 20);
        case_check(strcmp(talk_text(event, "status"), "error") != 0, "no story: %s", talk_text(event, "error/message"));
        json_decref(event);
    }
    double stopped = seconds_now();
    (void)process_signal_rank(&s.p, rank, SIGSTOP);
    check_end(&s, rank, stopped);
    talk_close(&t);
    (void)serving_stop(&s);
    case_end();
}

int main(void)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct serving s;
        if (!start_server(&s, ranks, "300")) {
            case_begin("a server on %d rank(s)", ranks);
            case_check(false, "it does not start");
            case_end();
            continue;
        }
        scores(&s);
        figures(&s);
        (void)serving_stop(&s);
    }
    deadline(1, true);
    deadline(0, true);
    deadline(0, false);
    return cases_done();
}
