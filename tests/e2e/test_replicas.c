/* tests/e2e/test_replicas.c - replicas of `lockstep serve` and `lockstep batch` under mpirun with the demo model: the
 * same answers as from one replica, work for all of them; events of one replica neither wait for the others nor get
 * lost. */
#include "base/clock.h"
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

static struct serving s;

/* Requests that use every field of an order or a report. */
static const char *const requests[] = {
    "\"prompt\": \"Once upon a time\", \"max_tokens\": 40, \"temperature\": 0",
    "\"prompt\": \"Once upon a time\", \"max_tokens\": 40, \"temperature\": 0.9, \"top_p\": 0.95, \"seed\": 7",
    "\"prompt\": \"The little fox\", \"max_tokens\": 30, \"temperature\": 1, \"seed\": 3, \"n\": 3",
    "\"prompt\": \"The little fox\", \"max_tokens\": 20, \"temperature\": 1, \"seed\": 4, \"n\": 2, \"best_of\": 4",
    "\"prompt\": \"In a village by the sea there was a boy\", \"max_tokens\": 16, \"num_beams\": 3, \"n\": 2",
    "\"prompt\": \"Tom had a ball\", \"max_tokens\": 12, \"temperature\": 0, \"logprobs\": 4",
    "\"prompt\": \"Tom had a red ball and a blue one\", \"max_tokens\": 3, \"temperature\": 0, \"prompt_logprobs\": 2",
    "\"prompt\": \"Once upon a time\", \"max_tokens\": 60, \"temperature\": 0, \"stop\": [\"village\", \". \"]",
    "\"prompt\": [5, 17, 99, 400], \"max_tokens\": 20, \"temperature\": 0, \"ignore_eos\": true",
    "\"prompt\": [\"Ann\", \"Ben and\", \"Carl went to\"], \"max_tokens\": 9, \"temperature\": 0, \"echo\": true",
    "\"prompt\": \"Long ago\", \"max_tokens\": 24, \"temperature\": 0, \"logit_bias\": {\"12\": -100, \"30\": 2.5}",
    "\"prompt\": \"Long ago\", \"max_tokens\": 24, \"temperature\": 0.7, \"seed\": 1, \"min_tokens\": 20, "
    "\"repetition_penalty\": 1.2, \"presence_penalty\": 0.3, \"top_k\": 50",
};
#define N_REQUESTS ((int)(sizeof requests / sizeof requests[0]))

/* Sends all requests at once; stores their replies in order. */
static void ask_all(json_t *reply[N_REQUESTS])
{
    struct talk t;
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    memset(reply, 0, N_REQUESTS * sizeof *reply);
    for (int i = 0; i < N_REQUESTS; i++)
        talk_say(&t, "{%s, \"request_id\": \"%d\"}", requests[i], i);
    for (int i = 0; i < N_REQUESTS; i++) {
        json_t *o = talk_hear(&t, 60);
        int which = atoi(talk_text(o, "request_id"));
        if (o != NULL && which >= 0 && which < N_REQUESTS && reply[which] == NULL)
            reply[which] = o;
        else
            json_decref(o);
    }
    talk_close(&t);
}

/* Sums over two ranks differ from one rank's by rounding: then only tokens and texts are compared, else every bit. */
static bool same_choices(const json_t *a, const json_t *b, bool bits)
{
    const json_t *x = json_object_get(a, "choices"), *y = json_object_get(b, "choices");
    static const char *const names[] = {"token_ids", "text", "finish_reason", "index"};
    bool same = json_array_size(x) > 0 && json_array_size(x) == json_array_size(y);
    if (bits)
        return same && json_equal(x, y);
    for (size_t i = 0; same && i < json_array_size(x); i++)
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
            same = same && json_equal(json_object_get(json_array_get(x, i), names[k]),
                                      json_object_get(json_array_get(y, i), names[k]));
    return same;
}

static bool start_server(int ranks, const char *size, const char *timeout)
{
    return case_check(serving_start(&s, ranks, NULL,
                                    (const char *[]){"--tensor-parallel", size, "--step-timeout", timeout,
                                                     "--drain-seconds", "600", NULL}),
                      "no server");
}

static double of_engine(const char *name, int engine)
{
    char value[16];
    (void)snprintf(value, sizeof value, "%d", engine);
    return serving_metric_of(&s, name, "engine", value);
}

static void same_answers(json_t *const want[N_REQUESTS], int ranks, int size)
{
    char text[16];
    json_t *got[N_REQUESTS];
    int n_replicas = ranks / size;
    case_begin("%d ranks in replicas of %d answer as one replica does, and all have work", ranks, size);
    (void)snprintf(text, sizeof text, "%d", size);
    if (start_server(ranks, text, "300")) {
        ask_all(got);
        for (int i = 0; i < N_REQUESTS; i++) {
            char *found = json_dumps(got[i], JSON_COMPACT), *wanted = json_dumps(want[i], JSON_COMPACT);
            case_check(same_choices(got[i], want[i], size == 1), "request %d: %.1500s, expected %.1500s", i, found,
                       wanted);
            free(found);
            free(wanted);
            json_decref(got[i]);
        }
        for (int g = 0; g < n_replicas; g++)
            case_check(of_engine("generation_tokens_total", g) > 0 && of_engine("engine_steps_total", g) > 0,
                       "replica %d had no work", g);
        json_t *health = talk_ask(s.endpoint, "{\"op\": \"health\"}");
        case_check(talk_number(health, "groups") == n_replicas && talk_number(health, "ranks") == ranks, "health");
        json_decref(health);
        case_check(serving_stop(&s) == 0, "it did not end well");
    }
    case_end();
}

static void answers(void)
{
    json_t *want[N_REQUESTS];
    case_begin("the answers of one rank");
    if (start_server(1, "1", "300")) {
        ask_all(want);
        for (int i = 0; i < N_REQUESTS; i++)
            case_check(strcmp(talk_text(want[i], "status"), "ok") == 0, "request %d: %s", i,
                       talk_text(want[i], "error/message"));
        (void)serving_stop(&s);
    }
    case_end();
    same_answers(want, 4, 2);
    same_answers(want, 3, 1);
    for (int i = 0; i < N_REQUESTS; i++)
        json_decref(want[i]);
}

/* Begins two long stories as streams, one in each replica. Each has four choices, so that it takes a while. */
static bool begin_two(struct talk *t, int n_tokens)
{
    talk_open(t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < 2; i++)
        talk_say(t,
                 "{\"prompt\": \"Once\", \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": 1, \"seed\": 1, "
                 "\"n\": 4, \"stream\": true, "
                 "\"request_id\": \"story-%d\"}",
                 n_tokens, i);
    bool both = false;
    for (double until = seconds_now() + process_patience(20); !both && seconds_now() < until && !s.p.ended;)
        both = of_engine("num_requests_running", 1) > 0 && of_engine("num_requests_running", 0) > 0;
    return case_check(both, "they do not run in both replicas");
}

/* Reads events until this many requests have had their last one; returns how many of these had the code (200: no
 * error). */
static int hear_last(struct talk *t, int n, int code)
{
    int good = 0;
    while (n > 0) {
        json_t *o = talk_hear(t, 30);
        if (!case_check(o != NULL, "no reply"))
            break;
        if (strcmp(talk_text(o, "event"), "tokens") != 0) {
            good += code == 200 ? strcmp(talk_text(o, "status"), "ok") == 0 : talk_number(o, "code") == code;
            n--;
        }
        json_decref(o);
    }
    return good;
}

static void cancelled(void)
{
    struct talk t;
    case_begin("cancelling reaches each replica, and so does a client's end");
    if (start_server(2, "1", "300")) {
        if (begin_two(&t, 1000)) {
            for (int i = 0; i < 2; i++)
                talk_say(&t, "{\"op\": \"cancel\", \"request_id\": \"story-%d\"}", i);
            case_check(hear_last(&t, 4, 499) == 2, "they are not both cancelled"); /* two are what cancel answers */
        }
        talk_close(&t);
        case_check(serving_await(&s, "num_requests_running", 0, 30), "a sequence runs on");
        if (begin_two(&t, 1000)) {
            talk_close(&t); /* nobody reads the stories any more */
            case_check(serving_await(&s, "num_requests_running", 0, 30), "the stories run on without their client");
            case_check(serving_metric(&s, "kv_blocks_used") == 0, "memory is still held");
        } else {
            talk_close(&t);
        }
        case_check(serving_stop(&s) == 0, "it did not end well");
    }
    case_end();
}

/* The second replica stops in the middle of a story: the first one's requests are answered meanwhile, and the story
 * goes on when the replica does. */
static void stuck(void)
{
    struct talk t;
    case_begin("a stopped replica does not delay the others");
    if (start_server(4, "2", "300")) {
        if (begin_two(&t, 900)) {
            (void)process_signal_rank(&s.p, 3, SIGSTOP);
            case_check(hear_last(&t, 1, 200) == 1, "the first replica's story does not end");
            for (int i = 0; i < 20; i++) { /* each goes to the less busy replica */
                char *story = serving_story(&s, "Long ago", 8);
                if (!case_check(story != NULL, "request %d was not answered", i))
                    i = 20;
                free(story);
            }
            case_check(of_engine("num_requests_running", 1) > 0, "the stopped replica is not the second one");
            (void)process_signal_rank(&s.p, 3, SIGCONT);
            case_check(hear_last(&t, 1, 200) == 1, "the story does not go on");
        }
        talk_close(&t);
        case_check(serving_stop(&s) == 0, "it did not end well");
    }
    case_end();
}

/* Rank 3 does not lead a replica, and is not in the first one. */
static void drained(void)
{
    struct talk t;
    case_begin("SIGUSR1 to a rank of the second replica drains both");
    if (start_server(4, "2", "300")) {
        if (begin_two(&t, process_sanitized() ? 100 : 600)) {
            (void)process_signal_rank(&s.p, 3, SIGUSR1);
            case_check(hear_last(&t, 2, 200) == 2, "the two stories do not both end");
        }
        serving_wait(&s);
        case_check(s.p.status == 0 && s.p.n_left == 0, "status %d, %d processes are left: %s", s.p.status, s.p.n_left,
                   s.p.text[PROCESS_ERR]);
        talk_close(&t);
        (void)serving_stop(&s);
    }
    case_end();
}

/* signal: SIGKILL, or SIGSTOP, after which the deadline has to expire. One story runs in each replica. */
static void failed(int ranks, const char *size, int rank, int signal, const char *const *words)
{
    struct talk t;
    case_begin("rank %d of %d in replicas of %s gets signal %d", rank, ranks, size, signal);
    if (start_server(ranks, size, "2")) {
        if (begin_two(&t, 1000)) {
            double sent = seconds_now();
            (void)process_signal_rank(&s.p, rank, signal);
            s.p.limit = sent - s.p.started + 60;
            process_wait(&s.p);
            double took = s.p.started + s.p.seconds - sent;
            for (; *words != NULL; words++)
                case_check(strstr(s.p.text[PROCESS_ERR], *words) != NULL, "no \"%s\": %s", *words,
                           s.p.text[PROCESS_ERR]);
            case_check(process_in_time(took, 10), "%.1f s", took);
            case_check(s.p.status != 0 && s.p.n_left == 0 && !s.p.core, "status %d, %d processes are left", s.p.status,
                       s.p.n_left);
        }
        talk_close(&t);
        (void)serving_stop(&s);
    }
    case_end();
}

static void refused(const char *command, int ranks, const char *size, const char *why)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    case_begin("%s on %d ranks with --tensor-parallel %s is refused", command, ranks, size);
    process_run(&p, &setup, (const char *[]){command, "--model", models_demo(), "--tensor-parallel", size, NULL});
    case_check(p.status == ERR_USAGE && strstr(p.text[PROCESS_ERR], why) != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    case_check(p.bytes[PROCESS_OUT] == 0 && p.n_left == 0, "another outcome");
    case_end();
    process_free(&p);
}

/* ---- batch ---- */

#define N_LINES 80

/* Returns the second after the start at which --verbose printed this line. */
static double said_at(const char *text, const char *what)
{
    const char *line = strstr(text, what);
    double seconds = NAN;
    while (line != NULL && line > text && line[-1] != '\n' && line[-1] != '\r')
        line--;
    (void)(line != NULL ? sscanf(line, "lockstep: %lf s:", &seconds) : 0);
    return seconds;
}

/* Each replica had its share of the lines, which are distributed one by one as there is room: so they worked at the
 * same time. */
static void check_work(const struct process *p, int n_replicas)
{
    const char *text = p->text[PROCESS_ERR];
    double read = NAN;
    const char *reading = strstr(text, "all ranks read ");
    case_check(reading != NULL && sscanf(reading, "all ranks read %lf MiB", &read) == 1 &&
                   read < 1.2 * (double)models_weight_bytes(models_demo()) / (1 << 20),
               "the replicas of a host read the checkpoint more than once: %g MiB", read);
    double worked = 0, took = said_at(text, " replica 0: ") - said_at(text, " KV cache: ");
    for (int g = 0; g < n_replicas; g++) {
        char what[40];
        double seconds = 0;
        int n = 0, steps = 0;
        (void)snprintf(what, sizeof what, "replica %d: ", g);
        const char *found = strstr(text, what);
        case_check(found != NULL &&
                       sscanf(found + strlen(what), "%d requests, %d steps in %lf s", &n, &steps, &seconds) == 3 &&
                       n > N_LINES / n_replicas / 4,
                   "replica %d had %d requests: %s", g, n, text);
        worked += seconds;
    }
    printf("# %d replicas worked %.2f s in total, within %.2f s\n", n_replicas, worked, took);
}

/* Returns the result lines by id, without their times. */
static json_t *run_batch(int ranks, const char *size, int n_replicas)
{
    char dir[256], input[300], output[300];
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    json_t *results = json_object(), *line;
    files_make_dir(dir);
    (void)snprintf(input, sizeof input, "%s/in.jsonl", dir);
    (void)snprintf(output, sizeof output, "%s/out.jsonl", dir);
    FILE *f = fopen(input, "w");
    for (int i = 0; f != NULL && i < N_LINES; i++)
        (void)fprintf(f,
                      "{\"id\": \"line-%d\", \"prompt\": \"Once there were %d\", \"max_tokens\": %d, \"temperature\": "
                      "%g, \"ignore_eos\": true}\n",
                      i, i, 20 + i % 23, i % 3 == 0 ? 0.0 : 0.8);
    case_check(f != NULL && fclose(f) == 0, "no input");
    process_run(&p, &setup,
                (const char *[]){"batch", "--model", models_demo(), "--input", input, "--output", output, "--threads",
                                 "1", "--plain", "--max-batch", "8", "--tensor-parallel", size, "--verbose", NULL});
    case_check(p.status == 0 && p.n_left == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    if (n_replicas > 1)
        check_work(&p, n_replicas);
    f = fopen(output, "r");
    while (f != NULL && (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        const char *id = json_string_value(json_object_get(line, "id"));
        case_check(id != NULL && json_object_get(results, id) == NULL,
                   "a line without an id, or one that occurs twice");
        json_object_del(line, "total_ms");
        (void)json_object_set_new(results, id != NULL ? id : "", line);
    }
    case_check(f != NULL && fclose(f) == 0, "no output");
    case_check(json_object_size(results) == N_LINES, "%zu results", json_object_size(results));
    process_free(&p);
    files_remove_dir(dir);
    return results;
}

static void batches(void)
{
    static const struct {
        int ranks;
        const char *size;
        int n_replicas;
    } runs[] = {{2, "1", 2}, {3, "1", 3}, {4, "2", 2}};
    case_begin("a batch on one rank");
    json_t *want = run_batch(1, "1", 1);
    case_end();
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        case_begin("a batch on %d ranks in replicas of %s has the same results, and all replicas work", runs[i].ranks,
                   runs[i].size);
        json_t *got = run_batch(runs[i].ranks, runs[i].size, runs[i].n_replicas);
        case_check(json_equal(got, want), "the results differ");
        json_decref(got);
        case_end();
    }
    json_decref(want);
}

/* A rank of a replica holds the same share as a rank of that many ranks without replicas. */
static void inspected(void)
{
    struct process_setup setup = {.ranks = 0};
    struct process p[2];
    json_t *seen[2];
    case_begin("inspect shows a replica");
    process_run(&p[0], &setup,
                (const char *[]){"inspect", "--model", models_demo(), "--ranks", "6", "--tensor-parallel", "3",
                                 "--json", NULL});
    process_run(&p[1], &setup, (const char *[]){"inspect", "--model", models_demo(), "--ranks", "3", "--json", NULL});
    for (int i = 0; i < 2; i++)
        seen[i] = json_loads(p[i].text[PROCESS_OUT], 0, NULL);
    case_check(talk_number(seen[0], "groups") == 2 && talk_number(seen[1], "groups") == 1, "groups: %s",
               p[0].text[PROCESS_OUT]);
    case_check(json_array_size(json_object_get(seen[0], "ranks")) == 3 &&
                   json_equal(json_object_get(seen[0], "ranks"), json_object_get(seen[1], "ranks")),
               "other ranks: %s", p[0].text[PROCESS_OUT]);
    for (int i = 0; i < 2; i++) {
        json_decref(seen[i]);
        process_free(&p[i]);
    }
    case_end();
}

int main(void)
{
    inspected();
    answers();
    cancelled();
    stuck();
    drained();
    /* The watch names a rank that was killed, or that is stopped while others of its replica wait for it; otherwise
     * rank 0 names its replica. */
    failed(4, "2", 3, SIGKILL, (const char *[]){"lockstep: fatal: rank 3/4 on ", "its process ended", NULL});
    failed(2, "1", 1, SIGKILL, (const char *[]){"lockstep: fatal: rank 1/2 on ", "its process ended", NULL});
    failed(4, "2", 3, SIGSTOP, (const char *[]){"lockstep: fatal: rank 3/4 on ", "no sign of life", NULL});
    failed(2, "1", 1, SIGSTOP,
           (const char *[]){"lockstep: fatal: rank 0/2 on ", "replica 1 of 2 (rank 1 on ", "no sign of life for 2 s",
                            NULL});
    failed(2, "1", 0, SIGSTOP,
           (const char *[]){"lockstep: fatal: rank 1/2 on ", "the link to rank 0: no sign of life", NULL});
    refused("serve", 3, "2", "--tensor-parallel 2: 3 ranks do not make whole replicas of 2: 1 would be left over");
    refused("batch", 2, "4", "--tensor-parallel 4: there are only 2 ranks");
    refused("bench", 2, "1", "--tensor-parallel 1: bench runs one model on all 2 ranks");
    batches();
    return cases_done();
}
