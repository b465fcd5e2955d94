/* tests/e2e/test_serve_start.c - `lockstep serve` from its start on: the socket and the rendezvous file, answers while
 * the model is loading, idle time, the metrics file and the access log. */
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

static struct serving s;

static bool start_server(int ranks, const char *endpoint, const char *const *more)
{
    return case_check(serving_start(&s, ranks, endpoint, more), "the server does not start");
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

static void rendezvous_and_path(void)
{
    char folder[256], endpoint[400], path[300], message[400];
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/socket", folder);
    (void)snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
    case_begin("ipc: mode 0600, rendezvous, shutdown by message, no file is left");
    if (start_server(2, endpoint, NULL)) {
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
        serving_wait(&s);
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
    if (start_server(1, NULL, NULL)) {
        process_start(&p, &(struct process_setup){.ranks = 1},
                      (const char *[]){"serve", "--model", models_demo(), "--endpoint", "tcp://127.0.0.1:*",
                                       "--rendezvous", s.rendezvous, "--progress", "never", NULL});
        bool newer = await_newer(&p, endpoint, sizeof endpoint);
        case_check(newer, "the newer server does not write the file: %s",
                   p.text[PROCESS_ERR] != NULL ? p.text[PROCESS_ERR] : "");
        (void)process_signal_rank(&s.p, 0, SIGUSR1);
        serving_wait(&s);
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
    if (!start_server(ranks, NULL, NULL)) {
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
    if (start_server(1, NULL,
                     (const char *[]){"--metrics-file", metrics, "--access-log", log, "--metrics-names",
                                      with_prompts ? "vllm" : "lockstep", with_prompts ? "--access-log-prompts" : NULL,
                                      NULL})) {
        json_decref(talk_ask(s.endpoint, "{\"prompt\": \"Once a zebra\", \"max_tokens\": 3, \"request_id\": \"z\"}"));
        json_decref(talk_ask(s.endpoint, "{\"prompt\": \"Once a zebra\", \"max_tokns\": 3}"));
        json_decref(talk_ask(s.endpoint, "{\"op\": \"health\"}"));
        (void)kill(s.p.pid, SIGUSR1);
        serving_wait(&s);
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
    rendezvous_and_path();
    newer_server();
    loading();
    idle(1);
    idle(2);
    files(false);
    files(true);
    return cases_done();
}
