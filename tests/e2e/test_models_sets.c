/* tests/e2e/test_models_sets.c - many models on sets of ranks (`--models-dir` with `--tensor-parallel` below the number
 * of ranks): sets load at once, a hot model has replicas, a failure on one set is only an answer, and a dead rank ends
 * the job. test_serve_models.c has the same traffic on one set. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/zoo.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define PATIENT 60.0 /* seconds */

/* ---- a server ---- */

/* size: of a set. more: up to four options; env: as in struct process_setup. */
static bool start_server(struct serving *s, int ranks, const char *size, const char *const *more,
                         const char *const *env)
{
    const char *option[20] = {"--tensor-parallel", size, "--max-batch",    "8",
                              "--max-model-len",   "96", "--model-memory", "64M"};
    for (int n = 8; more != NULL && *more != NULL; more++)
        option[n++] = *more;
    return case_check(serving_start_models(s, zoo.dir, ranks, option, env), "no server");
}

static void stop_server(struct serving *s)
{
    int status = serving_stop(s);
    case_check(status == 0, "status %d", status);
}

static bool comes_true(const struct serving *s, int i, const char *member, double value)
{
    for (double until = seconds_now() + PATIENT; seconds_now() < until;)
        if (zoo_number(s, i, member) == value)
            return true;
    return false;
}

/* ---- requests ---- */

/* n requests for model i at once are all answered correctly. */
static void crowd(const struct serving *s, int i, int n)
{
    struct talk t;
    int n_right = 0;
    talk_open(&t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    for (int k = 0; k < n; k++)
        zoo_ask(&t, k, i);
    for (int k = 0; k < n; k++) {
        json_t *reply = talk_hear(&t, PATIENT);
        n_right += reply != NULL && zoo_judge(reply, i);
        json_decref(reply);
    }
    talk_close(&t);
    case_check(n_right == n, "%d of %d answers of %s are right", n_right, n, zoo.model[i].name);
}

/* A model lives on one set, and two models on two. */
static void side_by_side(int ranks, const char *size)
{
    struct serving s;
    case_begin("two models on disjoint sets of %s of %d ranks", size, ranks);
    if (start_server(&s, ranks, size, NULL, NULL)) {
        crowd(&s, 0, 3);
        crowd(&s, 2, 3);
        double used = serving_metric(&s, "models_used_bytes"), first = zoo_number(&s, 0, "bytes"),
               second = zoo_number(&s, 2, "bytes");
        case_check(used > 0 && used == (first > second ? first : second),
                   "%g bytes are used on the set that has most, the models have %g and %g", used, first, second);
        case_check(serving_metric(&s, "models_sets") == 2, "%g sets", serving_metric(&s, "models_sets"));
        case_check(zoo_number(&s, 0, "replicas") == 1 && zoo_number(&s, 2, "replicas") == 1, "one replica each");
        case_check(zoo_operate(&s, "unload", 0, "") == 200 && zoo_operate(&s, "unload", 2, "") == 200, "unload");
        case_check(serving_metric(&s, "models_used_bytes") == 0, "bytes are still in use");
        stop_server(&s);
    }
    case_end();
}

/* A busy model gets more replicas, or all of them by `load`; requests run on all, and `unload` removes all. */
static void replicas(void)
{
    static char wish[120];
    static const char *const more[] = {"--replicas", wish, NULL};
    struct serving s;
    case_begin("a hot model has replicas on two of three sets");
    (void)snprintf(wish, sizeof wish, "%s=2,%s=1", zoo.model[0].name, zoo.model[2].name);
    if (start_server(&s, 3, "1", more, NULL)) {
        crowd(&s, 0, 1);
        case_check(zoo_number(&s, 0, "replicas") == 1, "one request needs one replica");
        crowd(&s, 0, 24);
        case_check(comes_true(&s, 0, "replicas", 2), "%g replicas", zoo_number(&s, 0, "replicas"));
        crowd(&s, 0, 24);
        crowd(&s, 2, 24);
        case_check(zoo_number(&s, 0, "replicas") == 2 && zoo_number(&s, 2, "replicas") == 1,
                   "%g and %g replicas, expected 2 and 1", zoo_number(&s, 0, "replicas"),
                   zoo_number(&s, 2, "replicas"));
        case_check(zoo_operate(&s, "load", 0, "") == 409, "it is loaded");
        case_check(zoo_operate(&s, "unload", 0, "") == 200 && zoo_number(&s, 0, "replicas") == 0 &&
                       zoo_is(&s, 0, "known"),
                   "unload takes both");
        case_check(zoo_operate(&s, "load", 0, "") == 200 && comes_true(&s, 0, "replicas", 2), "load brings both");
        case_check(zoo_operate(&s, "pin", 0, "") == 200 && zoo_operate(&s, "unload", 0, "") == 409, "pinned");
        crowd(&s, 0, 12);
        stop_server(&s);
    }
    case_end();
}

static bool await_state(const struct serving *s, int i, const char *state)
{
    for (double until = seconds_now() + PATIENT; seconds_now() < until;)
        if (zoo_is(s, i, state))
            return true;
    return false;
}

/* Two models whose reads are slow load at the same time. */
static void loads_at_once(struct serving *s, struct talk *t)
{
    talk_open(t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    zoo_ask(t, 0, 0);
    zoo_ask(t, 1, 2);
    case_check(await_state(s, 0, "loading") && await_state(s, 2, "loading") && zoo_is(s, 0, "loading"),
               "both are loading at once");
}

static void at_once(void)
{
    struct serving s;
    struct talk t;
    case_begin("two sets load at the same time, and SIGTERM ends both");
    if (start_server(&s, 2, "1", NULL, zoo_slow_reads("none", 0, "2"))) {
        loads_at_once(&s, &t);
        (void)process_signal_rank(&s.p, 0, SIGTERM);
        for (int k = 0; k < 2; k++) {
            json_t *reply = talk_hear(&t, PATIENT);
            case_check(talk_number(reply, "code") == 503, "code %g", talk_number(reply, "code"));
            json_decref(reply);
        }
        serving_wait(&s);
        case_check(!s.p.timed_out && s.p.status == 1, "status %d, expected 1", s.p.status);
        talk_close(&t);
        serving_free(&s);
    }
    case_end();
}

static void killed(void)
{
    struct serving s;
    struct talk t;
    case_begin("a rank of a set that is killed while it loads ends the job, by name");
    if (start_server(&s, 2, "1", NULL, zoo_slow_reads("none", 0, "2"))) {
        loads_at_once(&s, &t);
        (void)process_signal_rank(&s.p, 1, SIGKILL);
        serving_wait(&s);
        const char *said = s.p.text[PROCESS_ERR] != NULL ? s.p.text[PROCESS_ERR] : "";
        case_check(!s.p.timed_out && s.p.status != 0 && strstr(said, "rank 1/2") != NULL, "status %d: %s", s.p.status,
                   said);
        talk_close(&t);
        serving_free(&s);
    }
    case_end();
}

/* Rank 3 of four, in the second set of two, cannot read anything. */
static void set_cannot_read(void)
{
    struct serving s;
    case_begin("a load that fails on one rank of a set is an answer; the set and the others go on");
    if (start_server(&s, 4, "2", NULL, zoo_slow_reads("3", 0, "0"))) {
        crowd(&s, 0, 2);
        char text[200];
        (void)snprintf(text, sizeof text, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", zoo.model[2].name);
        json_t *reply = talk_ask(s.endpoint, text);
        case_check(talk_number(reply, "code") == 500 && strstr(talk_text(reply, "error/message"), "rank 3/4") != NULL,
                   "code %g: %s", talk_number(reply, "code"), talk_text(reply, "error/message"));
        json_decref(reply);
        case_check(zoo_is(&s, 2, "failed") && zoo_number(&s, 2, "replicas") == 0, "its state");
        crowd(&s, 0, 8);
        stop_server(&s);
    }
    case_end();
}

/* Models come and go on both sets, each with room for one. */
static void in_turn(void)
{
    static const char *const more[] = {"--max-models", "1", NULL};
    static const int model[] = {0, 2, 4, 0, 2, 4};
    struct serving s;
    struct talk t;
    int n_right = 0;
    case_begin("three models in turn on two sets with room for one each");
    if (start_server(&s, 2, "1", more, NULL)) {
        talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
        for (int k = 0; k < 36; k++)
            zoo_ask(&t, k, model[k % 6]);
        for (int k = 0; k < 36; k++) {
            int number = 0, i = 0;
            json_t *reply = talk_hear(&t, PATIENT);
            n_right += sscanf(talk_text(reply, "request_id"), "%d.%d", &number, &i) == 2 && zoo_judge(reply, i);
            json_decref(reply);
        }
        talk_close(&t);
        case_check(n_right == 36, "%d of 36 answers are right", n_right);
        case_check(serving_metric(&s, "LoadedModelCount") == 2, "%g models are loaded",
                   serving_metric(&s, "LoadedModelCount"));
        stop_server(&s);
    }
    case_end();
}

static void refused(void)
{
    static const struct {
        const char *option, *value, *says;
    } wrong[] = {{"--replicas", "nobody=2", "which is not a model in --models-dir"},
                 {"--replicas", "2", "expected NAME=N"},
                 {"--replicas", "", "is given twice"},
                 {"--replicas", NULL, "expected 1 to 2, the number of sets of 1 rank"},
                 {"--host-cache", "1G", "it works for one set of ranks"},
                 {"--tensor-parallel", "3", "--tensor-parallel"}};
    case_begin("options that do not fit sets of ranks");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char most[160];
        struct process p;
        const char *name = zoo.model[0].name, *value = wrong[i].value;
        (void)snprintf(most, sizeof most, value == NULL ? "%s=3" : "%s=1,%s=2", name, name);
        const char *const arguments[] = {"serve",
                                         "--models-dir",
                                         zoo.dir,
                                         "--tensor-parallel",
                                         "1",
                                         wrong[i].option,
                                         value != NULL && value[0] != '\0' ? value : most,
                                         NULL};
        process_run(&p, &(struct process_setup){.ranks = 2, .limit = PATIENT}, arguments);
        case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], wrong[i].says) != NULL, "%s: status %d: %s",
                   wrong[i].option, p.status, p.text[PROCESS_ERR]);
        process_free(&p);
    }
    case_end();
}

/* argv[1]: the most ranks (default 4), for machines with fewer GPUs; with it no failures of ranks are tested. */
int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 4;
    zoo_open();
    if (most >= 2)
        side_by_side(2, "1");
    if (most >= 4)
        side_by_side(4, "2");
    if (most >= 3)
        replicas();
    if (most == 4) {
        in_turn();
        at_once();
        killed();
        set_cannot_read();
        refused();
    }
    zoo_close();
    return cases_done();
}
