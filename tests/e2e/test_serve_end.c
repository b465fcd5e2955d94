/* tests/e2e/test_serve_end.c - the start, idle time and end of `lockstep serve`: the rendezvous file, signals,
 * draining, files. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

static struct serving s;

static bool start(int ranks, const char *endpoint, const char *const *more)
{
    return case_check(serving_start(&s, ranks, endpoint, more), "the server does not start");
}

/* Starts a model whose context no reply fills during a test. */
static bool start_endless(int ranks, const char *endpoint, const char *name, const char *value)
{
    const char *more[] = {"--kv-cache-memory-bytes", "2G", name, value, NULL};
    return case_check(serving_start_model(&s, models_endless(), ranks, endpoint, more), "the server does not start");
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

/* Numbers of tokens: a reply that ends soon, and one that does not end during a test. */
enum { FINITE = 300, ENDLESS = 100000 };

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

/* Waits for the server's end, at most a minute. */
static void wait_for_end(void)
{
    s.p.limit = seconds_now() - s.p.started + process_patience(60);
    process_wait(&s.p);
}

/* Waits until the server ends by itself; expects this status. */
static void end_with(struct talk *t, int status)
{
    wait_for_end();
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
    wait_for_end();
    case_check(s.p.status == 1, "status %d, expected 1: requests were cut short", s.p.status);
    case_check(s.p.n_left == 0 && !s.p.core, "processes or a core file are left");
    case_check(!exists(s.rendezvous), "the rendezvous file is still there");
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
    if (start(2, NULL, (const char *[]){"--end-seconds", "600", NULL})) {
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
        wait_for_end(); /* the status is mpirun's own */
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
    wait_for_end();
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
    if (start(1, SERVING_IPC, NULL)) {
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
        s.p.limit = seconds_now() - s.p.started + process_patience(60);
        int answered = count_last(&t, 3, 500, &last);
        case_check(answered == 3, "%d of 3 were answered with 500", answered);
        process_wait(&s.p);
        case_check(s.p.status == 8, "status %d, expected 8", s.p.status);
        case_check(!exists(s.rendezvous), "the rendezvous file is still there");
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

static void rendezvous_and_path(void)
{
    char folder[256], endpoint[400], path[300], message[400];
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    (void)snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
    case_begin("ipc: mode 0600, rendezvous, shutdown by message, no file is left");
    if (start(2, endpoint, NULL)) {
        json_t *o = json_load_file(s.rendezvous, 0, NULL);
        case_check(mode_of(path) == 0600, "the socket has mode %o", mode_of(path));
        case_check(strcmp(talk_text(o, "endpoint"), endpoint) == 0 &&
                       strcmp(talk_text(o, "model"), "lockstep-stories") == 0,
                   "another endpoint or model");
        case_check((pid_t)talk_number(o, "pid") == process_of_rank(&s.p, 0), "another process id");
        json_decref(o);
        /* Another server must not take the path away. */
        struct process_setup setup = {.ranks = 1};
        struct process p;
        process_run(
            &p, &setup,
            (const char *[]){"serve", "--model", models_demo(), "--endpoint", endpoint, "--progress", "never", NULL});
        (void)snprintf(message, sizeof message, "%s", p.text[PROCESS_ERR]);
        case_check(p.status == 5 && strstr(message, "another process listens on") != NULL, "status %d: %s", p.status,
                   message);
        process_free(&p);
        o = talk_ask(endpoint, "{\"op\": \"shutdown\"}");
        case_check(strcmp(talk_text(o, "state"), "stopping") == 0, "no answer to shutdown");
        json_decref(o);
        wait_for_end();
        case_check(s.p.status == 0, "status %d", s.p.status);
        case_check(!exists(path) && !exists(s.rendezvous), "the socket or the rendezvous file is left");
        (void)serving_stop(&s);
    }
    case_end();
    files_remove_dir(folder);
}

/* Waits until the rendezvous file names another endpoint than that of s, and copies it to `endpoint`. */
static bool await_newer(struct process *p, char *endpoint, size_t bytes)
{
    for (double until = seconds_now() + process_patience(30); seconds_now() < until && !p->ended;) {
        json_t *o = json_load_file(s.rendezvous, 0, NULL);
        (void)snprintf(endpoint, bytes, "%s", talk_text(o, "endpoint"));
        json_decref(o);
        if (endpoint[0] != '\0' && strcmp(endpoint, s.endpoint) != 0)
            return true;
        process_watch(p, 0.02, (size_t)-1);
    }
    return false;
}

/* Two jobs of a chain may overlap: the next one begins before the last has ended. */
static void newer_server(void)
{
    char endpoint[300] = "";
    struct process p;
    case_begin("a server that ends leaves the rendezvous file of a newer one");
    if (start(1, NULL, NULL)) {
        process_start(&p, &(struct process_setup){.ranks = 1},
                      (const char *[]){"serve", "--model", models_demo(), "--endpoint", "tcp://127.0.0.1:*",
                                       "--rendezvous", s.rendezvous, "--progress", "never", NULL});
        bool newer = await_newer(&p, endpoint, sizeof endpoint);
        case_check(newer, "the newer server does not write the file: %s",
                   p.text[PROCESS_ERR] != NULL ? p.text[PROCESS_ERR] : "");
        (void)process_signal_rank(&s.p, 0, SIGUSR1);
        wait_for_end();
        case_check(s.p.status == 0 && exists(s.rendezvous), "status %d, or the newer server's file is gone",
                   s.p.status);
        if (newer)
            (void)process_signal_rank(&p, 0, SIGUSR1);
        process_wait(&p);
        case_check(p.status == 0 && !exists(s.rendezvous), "the newer server: status %d, or its file is left",
                   p.status);
        process_free(&p);
        (void)serving_stop(&s);
    }
    case_end();
}

/* Stops rank 1 as soon as rank 0 has opened its socket, well before the model is loaded, and checks the answers that
 * clients get. Returns whether it was stopped in time. */
static bool ask_while_loading(const char *endpoint, const char *path)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    pid_t rank = 0;
    process_start(
        &p, &setup,
        (const char *[]){"serve", "--model", models_demo(), "--endpoint", endpoint, "--progress", "never", NULL});
    while (!p.ended && (rank = process_of_rank(&p, 1)) == 0)
        process_watch(&p, 0.001, (size_t)-1);
    for (double until = seconds_now() + process_patience(20); seconds_now() < until && !exists(path);)
        (void)usleep(200);
    (void)kill(rank, SIGSTOP);
    json_t *health = talk_ask(endpoint, "{\"op\": \"health\"}");
    bool loading = strcmp(talk_text(health, "state"), "loading") == 0;
    json_decref(health);
    if (loading) {
        json_t *o = talk_ask(endpoint, "{\"prompt\": \"x\"}");
        case_check(talk_number(o, "code") == 503 && talk_number(o, "retry_after_ms") > 0,
                   "generate: code %g, again in %g", talk_number(o, "code"), talk_number(o, "retry_after_ms"));
        json_decref(o);
        o = talk_ask(endpoint, "{\"op\": \"metrics\"}");
        case_check(strcmp(talk_text(o, "status"), "ok") == 0, "no metrics");
        json_decref(o);
    }
    (void)kill(rank, SIGCONT);
    for (double until = seconds_now() + process_patience(20); seconds_now() < until;) {
        json_t *o = talk_ask(endpoint, "{\"op\": \"health\"}");
        bool ready = strcmp(talk_text(o, "state"), "ready") == 0;
        json_decref(o);
        if (ready)
            break;
    }
    json_t *o = talk_ask(endpoint, "{\"prompt\": \"x\", \"max_tokens\": 2}");
    case_check(strcmp(talk_text(o, "status"), "ok") == 0, "it does not become ready");
    json_decref(o);
    json_decref(talk_ask(endpoint, "{\"op\": \"shutdown\"}"));
    process_wait(&p);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    return loading;
}

static void loading(void)
{
    char folder[256], endpoint[400], path[300];
    bool seen = false;
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    (void)snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
    case_begin("while the model is loading: health says so, generate is 503");
    for (int i = 0; i < 8 && !seen; i++)
        seen = ask_while_loading(endpoint, path);
    case_check(seen, "never observed in 8 starts");
    case_end();
    files_remove_dir(folder);
}

/* Returns the seconds of CPU time that a rank has used, user and system, all threads. */
static double cpu_of(int rank)
{
    char path[64], text[1024] = "";
    unsigned long user = 0, kernel = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)process_of_rank(&s.p, rank));
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL)
        (void)fclose(f);
    const char *after = strrchr(text, ')');
    if (after != NULL)
        (void)sscanf(after + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

/* Returns how often the threads of a rank have voluntarily gone to sleep. */
static double naps_of(int rank)
{
    char folder[64], path[400], line[100];
    unsigned long naps = 0, n;
    (void)snprintf(folder, sizeof folder, "/proc/%d/task", (int)process_of_rank(&s.p, rank));
    DIR *tasks = opendir(folder);
    for (const struct dirent *d; tasks != NULL && (d = readdir(tasks)) != NULL;) {
        (void)snprintf(path, sizeof path, "%s/%s/status", folder, d->d_name);
        FILE *f = d->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (f != NULL && fgets(line, sizeof line, f) != NULL)
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
                naps += n;
        if (f != NULL)
            (void)fclose(f);
    }
    if (tasks != NULL)
        (void)closedir(tasks);
    return (double)naps;
}

/* An idle rank uses less than 5 % of a core because it sleeps 0.5 ms at a time: at most 2000 naps a second, 25 us each.
 * On a busy machine waking up costs more, and naps may take four times that. A spinning rank never naps. */
static void check_idle(int rank, double naps, double cpu, double seconds)
{
    double share = cpu / seconds;
    case_check(naps < 2500 * seconds, "rank %d sleeps %.0f times a second", rank, naps / seconds);
    case_check(process_sanitized() || share < 0.05 || cpu < naps * 100e-6,
               "rank %d: %.1f %% of a core, %.0f naps a second", rank, 100 * share, naps / seconds);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void idle(int ranks)
{
    enum { SECONDS = 4 };
    enum { ASKED = 5 };
    double cpu[8], naps[8], ms[ASKED];
    case_begin("%d idle ranks sleep, and wake up at once", ranks);
    if (!start(ranks, NULL, NULL)) {
        case_end();
        return;
    }
    json_decref(talk_ask(s.endpoint, "{\"prompt\": \"Once\", \"max_tokens\": 4}"));
    process_watch(&s.p, 1.5, (size_t)-1); /* the naps of waiting ranks grow during the first second */
    for (int r = 0; r < ranks; r++) {
        cpu[r] = cpu_of(r);
        naps[r] = naps_of(r);
    }
    double began = seconds_now();
    process_watch(&s.p, SECONDS, (size_t)-1);
    for (int r = 0; r < ranks; r++)
        check_idle(r, naps_of(r) - naps[r], cpu_of(r) - cpu[r], seconds_now() - began);
    for (int i = 0; i < ASKED; i++) {
        json_t *o = talk_ask(s.endpoint, "{\"prompt\": \"Once\", \"max_tokens\": 1}");
        ms[i] = talk_number(o, "timing/total_ms");
        json_decref(o);
        process_watch(&s.p, 0.2, (size_t)-1);
    }
    qsort(ms, ASKED, sizeof ms[0], ascending);
    case_check(process_in_time(1e-3 * ms[ASKED / 2], 0.03), "one token took %.1f ms (median)", ms[ASKED / 2]);
    case_end();
    (void)serving_stop(&s);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at += strlen(word))
        n++;
    return n;
}

/* --metrics-file is complete at any time, --access-log has one line per message, with prompts only on request. */
static void files(bool with_prompts)
{
    char folder[256], metrics[300], log[300];
    size_t bytes = 0;
    files_make_dir(folder);
    (void)snprintf(metrics, sizeof metrics, "%s/metrics.prom", folder);
    (void)snprintf(log, sizeof log, "%s/access.jsonl", folder);
    case_begin("metrics file%s and access log%s", with_prompts ? " with vLLM's names" : "",
               with_prompts ? " with prompts" : "");
    if (start(1, NULL,
              (const char *[]){"--metrics-file", metrics, "--access-log", log, "--metrics-names",
                               with_prompts ? "vllm" : "lockstep", with_prompts ? "--access-log-prompts" : NULL,
                               NULL})) {
        json_decref(talk_ask(s.endpoint, "{\"prompt\": \"Once a zebra\", \"max_tokens\": 3, \"request_id\": \"z\"}"));
        json_decref(talk_ask(s.endpoint, "{\"prompt\": \"Once a zebra\", \"max_tokns\": 3}"));
        json_decref(talk_ask(s.endpoint, "{\"op\": \"health\"}"));
        (void)kill(s.p.pid, SIGUSR1);
        wait_for_end();
        char *text = files_read(folder, "access.jsonl", &bytes);
        case_check(count(text, "\n") == 3 && count(text, "{\"time\":") == 3, "the log: %s", text);
        case_check(count(text, "\"code\":400") == 1 && count(text, "\"request_id\":\"z\"") == 1, "the log: %s", text);
        case_check(count(text, "zebra") == (with_prompts ? 1 : 0), "the log: %s", text);
        free(text);
        text = files_read(folder, "metrics.prom", &bytes);
        const char *want =
            with_prompts ? "vllm:e2e_request_latency_seconds_count{model_name=\"lockstep-stories\",engine=\"0\"} 1\n"
                         : "lockstep_e2e_request_latency_seconds_count{model_name=\"lockstep-stories\"} 1\n";
        case_check(strstr(text, want) != NULL && text[bytes - 1] == '\n', "the file lacks %s", want);
        case_check(mode_of(metrics) == 0644, "mode %o", mode_of(metrics));
        free(text);
        (void)serving_stop(&s);
    }
    case_end();
    files_remove_dir(folder);
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
    rendezvous_and_path();
    newer_server();
    loading();
    idle(1);
    idle(2);
    files(false);
    files(true);
    return cases_done();
}
