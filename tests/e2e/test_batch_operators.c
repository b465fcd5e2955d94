/* tests/e2e/test_batch_operators.c - the status of a running batch as seen from outside, and how tasks of a job array
 * share an input; a stand-in for Slurm records its commands. */
#include "base/clock.h"
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANY    200 /* prompts of a run that is observed for some seconds */
#define FEW     24
#define ENDLESS 20000 /* prompts of a run that is ended as soon as it has shown the result */

static char dir[256];

static const char *in_dir(const char *name)
{
    static char path[4][400];
    static int at;
    at = (at + 1) % 4;
    (void)snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

/* env: for the ranks, or NULL. more: up to 20 further options, NULL at the end. */
static void start_batch(struct process *p, const char *input, const char *output, const char *const *env, bool terminal,
                        const char *const *more)
{
    char from[400], to[400];
    const char *arguments[40] = {"batch", "--model", models_demo(), "--input", from,        "--output",
                                 to,      "--plain", "--max-batch", "16",      "--threads", "1"};
    const struct process_setup setup = {.ranks = 2, .env = env, .terminal = {false, terminal}};
    size_t n = 12;
    (void)snprintf(from, sizeof from, "%s", in_dir(input));
    (void)snprintf(to, sizeof to, "%s", in_dir(output));
    while (more != NULL && *more != NULL)
        arguments[n++] = *more++;
    process_start(p, &setup, arguments);
}

static bool has_results(const char *output)
{
    struct stat st;
    return stat(in_dir(output), &st) == 0 && st.st_size > 500;
}

static void await_results(struct process *p, const char *output)
{
    while (!p->ended && !has_results(output))
        process_watch(p, 0.005, SIZE_MAX);
}

/* The status file is replaced as often as possible, and read all the time. */
static void status_file(void)
{
    struct process p;
    int n_reads = 0, n_bad = 0, n_pictures = 0;
    long long before = -1;
    bool backwards = false;
    case_begin("the status file is complete whenever it is read, and counts up");
    start_batch(&p, "many.jsonl", "status.jsonl", NULL, false, NULL);
    await_results(&p, "status.jsonl");
    while (!p.ended) {
        if (n_reads % 20 == 0 && before < MANY - 32) /* mpirun dies of the signal when it is about to end */
            (void)kill(p.pid, SIGUSR2);
        json_t *o = json_load_file(in_dir("status.jsonl.status.json"), 0, NULL);
        long long done = json_integer_value(json_object_get(json_object_get(o, "requests"), "done"));
        n_reads++;
        n_bad += o == NULL;
        backwards = backwards || (o != NULL && done < before);
        n_pictures += o != NULL && done != before;
        before = o != NULL ? done : before;
        json_decref(o);
        if (n_reads % 5 == 0)
            process_watch(&p, 0.001, SIZE_MAX);
    }
    process_wait(&p);
    case_check(p.status == 0 && n_reads > 100 && n_pictures > 5, "status %d, %d reads of %d states: %.500s", p.status,
               n_reads, n_pictures, p.text[PROCESS_ERR]);
    case_check(n_bad == 0 && !backwards, "%d of %d reads were not JSON%s", n_bad, n_reads,
               backwards ? ", and the count went down" : "");
    case_check(before == MANY, "at the end it says %lld done", before);
    printf("# %d reads, %d pictures\n", n_reads, n_pictures);
    process_free(&p);
    case_end();
}

/* A run that is drained after some results; its output has this name. */
static void drained(struct process *p, const char *output, const char *file, const char *const *env,
                    const char *const *more)
{
    start_batch(p, "many.jsonl", output, env, false, more);
    await_results(p, file);
    (void)kill(p->pid, SIGUSR1);
    process_wait(p);
}

static bool said(const char *line)
{
    char *text = access(in_dir("said"), F_OK) == 0 ? files_read(dir, "said", &(size_t){0}) : NULL;
    bool found = text != NULL && strstr(text, line) != NULL;
    free(text);
    (void)unlink(in_dir("said"));
    return found;
}

static void slurm(void)
{
    struct process p;
    char script[700], path[4500];
    (void)snprintf(script, sizeof script, "#!/bin/sh\nprintf '%%s ' \"$@\" >> %s/said\necho >> %s/said\n", dir, dir);
    files_write(dir, "scontrol", script, strlen(script));
    (void)chmod(in_dir("scontrol"), 0755);
    (void)snprintf(path, sizeof path, "PATH=%s:%s", dir, getenv("PATH"));
    const char *const job[] = {path, "SLURM_JOB_ID=77", "SLURM_RESTART_COUNT=1", NULL};
    const char *const array[] = {path,
                                 "SLURM_JOB_ID=77",
                                 "SLURM_ARRAY_JOB_ID=70",
                                 "SLURM_ARRAY_TASK_ID=3",
                                 "SLURM_ARRAY_TASK_COUNT=4",
                                 "SLURM_ARRAY_TASK_MIN=0",
                                 "SLURM_ARRAY_TASK_MAX=3",
                                 NULL};

    case_begin("--requeue-self, --slurm-comment: scontrol is called after progress");
    const char *const both[] = {"--requeue-self", "--slurm-comment", NULL};
    drained(&p, "requeue.jsonl", "requeue.jsonl", job, both);
    case_check(p.status == 75 && strstr(p.text[PROCESS_ERR], "job 77 is requeued") != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    char *text = access(in_dir("said"), F_OK) == 0 ? files_read(dir, "said", &(size_t){0}) : NULL;
    case_check(text != NULL && strstr(text, "update JobId=77 Comment=") == text && strstr(text, "done=") != NULL &&
                   strstr(text, "\nrequeue 77 \n") != NULL,
               "scontrol was told: %s", text != NULL ? text : "nothing");
    free(text);
    (void)unlink(in_dir("said"));
    process_free(&p);
    case_end();

    case_begin("--requeue-self: not without progress nor beyond --max-restarts; an array task by its own id");
    const char *const late[] = {"--requeue-self", "--max-walltime", "0", NULL};
    start_batch(&p, "many.jsonl", "requeue.jsonl", job, false, late);
    process_wait(&p);
    case_check(p.status == 75 && !said("requeue") && strstr(p.text[PROCESS_ERR], "has added no result") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    const char *const once[] = {"--requeue-self", "--max-restarts", "1", NULL};
    drained(&p, "restarts.jsonl", "restarts.jsonl", job, once);
    case_check(p.status == 75 && !said("requeue") && strstr(p.text[PROCESS_ERR], "--max-restarts is reached") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    const char *const self[] = {"--requeue-self", NULL};
    drained(&p, "task-%a.jsonl", "task-3.jsonl", array, self);
    case_check(p.status == 75 && said("requeue 70_3 "), "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static void shares(void)
{
    struct process p;
    struct batch_results whole, part[3];
    int n = 0, n_twice = 0, n_differ = 0;
    case_begin("three tasks of a job array together produce the results of one job");
    start_batch(&p, "few.jsonl", "all.jsonl", NULL, false, NULL);
    process_wait(&p);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    batching_read(&whole, dir, "all.jsonl");
    for (int i = 0; i < 3; i++) {
        char id[40], name[40];
        (void)snprintf(id, sizeof id, "SLURM_ARRAY_TASK_ID=%d", 1 + 2 * i); /* --array=1-5:2 */
        (void)snprintf(name, sizeof name, "part-%d.jsonl", 1 + 2 * i);
        const char *const env[] = {id,
                                   "SLURM_ARRAY_TASK_COUNT=3",
                                   "SLURM_ARRAY_TASK_MIN=1",
                                   "SLURM_ARRAY_TASK_MAX=5",
                                   "SLURM_ARRAY_TASK_STEP=2",
                                   NULL};
        char logs[300], log[400];
        (void)snprintf(logs, sizeof logs, "%s", in_dir("logs-{task}"));
        start_batch(&p, "few.jsonl", "part-{task}.jsonl", env, false, (const char *const[]){"--log-dir", logs, NULL});
        process_wait(&p);
        case_check(p.status == 0, "task %d: status %d: %s", i, p.status, p.text[PROCESS_ERR]);
        (void)snprintf(log, sizeof log, "%s/logs-%d/rank-1.log", dir, 1 + 2 * i);
        case_check(access(log, R_OK) == 0, "there is no %s", log);
        process_free(&p);
        batching_read(&part[i], dir, name);
        n += part[i].n;
        n_differ += batching_differences(&part[i], &whole);
        for (int k = 0; k < i; k++)
            for (int r = 0; r < part[i].n; r++)
                n_twice += json_object_get(part[k].by_id, part[i].order[r]) != NULL;
    }
    case_check(whole.n == FEW && n == FEW && n_twice == 0 && n_differ == 0,
               "%d results of one job, %d in parts, %d in two parts, %d differ", whole.n, n, n_twice, n_differ);
    for (int i = 0; i < 3; i++)
        batching_free(&part[i]);
    batching_free(&whole);
    case_end();

    case_begin("two tasks with one output are refused, and so is a job array without --array-shard");
    const char *const env[] = {"SLURM_ARRAY_TASK_ID=2", "SLURM_ARRAY_TASK_COUNT=3", "SLURM_ARRAY_TASK_MIN=1",
                               "SLURM_ARRAY_TASK_MAX=3", NULL};
    const char *const on[] = {"--array-shard", "on", NULL};
    start_batch(&p, "few.jsonl", "part-1.jsonl", env, false, on);
    process_wait(&p);
    case_check(p.status == 3 && strstr(p.text[PROCESS_ERR], "shard \"0/3\", this run has \"1/3\"") != NULL,
               "status %d: %s", p.status, p.text[PROCESS_ERR]);
    process_free(&p);
    start_batch(&p, "few.jsonl", "other.jsonl", env, false, NULL);
    process_wait(&p);
    case_check(p.status == 2 && strstr(p.text[PROCESS_ERR], "--array-shard off") != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static bool file_has(const char *name, const char *what)
{
    char *text = access(in_dir(name), F_OK) == 0 ? files_read(dir, name, &(size_t){0}) : NULL;
    bool found = text != NULL && strstr(text, what) != NULL;
    free(text);
    return found;
}

static void files(void)
{
    struct process p;
    char logs[400], metrics[400];
    (void)snprintf(logs, sizeof logs, "%s/logs", dir);
    (void)snprintf(metrics, sizeof metrics, "%s/batch.prom", dir);
    const char *const more[] = {"--log-dir", logs, "--metrics-file", metrics, "--status-seconds", "0.5", NULL};
    case_begin("--log-dir, --metrics-file, --status-seconds");
    start_batch(&p, "many.jsonl", "files.jsonl", NULL, false, more);
    await_results(&p, "files.jsonl");
    (void)kill(p.pid, SIGUSR2);
    while (!p.ended && !(file_has("batch.prom", "lockstep_batch_done_total{model_name=\"lockstep-stories\"} ") &&
                         !file_has("batch.prom", "lockstep_batch_done_total{model_name=\"lockstep-stories\"} 0\n")))
        process_watch(&p, 0.01, SIZE_MAX);
    case_check(!p.ended && file_has("batch.prom", "# TYPE lockstep_kv_blocks_used gauge") &&
                   !file_has("batch.prom", "joules"), /* CPUs: not measured */
               "the metrics file is wrong");
    process_wait(&p);
    case_check(p.status == 0 && access(metrics, F_OK) != 0, "status %d; %s is %s", p.status, metrics,
               access(metrics, F_OK) != 0 ? "gone" : "left");
    case_check(strstr(p.text[PROCESS_ERR], "lockstep: running: ") != NULL, "no progress line: %s", p.text[PROCESS_ERR]);
    for (int r = 0; r < 2; r++) {
        char name[40], what[40];
        (void)snprintf(name, sizeof name, "logs/rank-%d.log", r);
        (void)snprintf(what, sizeof what, " rank %d info: ", r);
        case_check(file_has(name, what), "%s has no line of rank %d", name, r);
    }
    case_check(file_has("logs/rank-0.log", " rank 0 note: ended: "), "rank 0's log lacks the end");
    process_free(&p);
    files_remove_dir(logs);
    case_end();
}

static void bar(void)
{
    struct process p;
    const char *const more[] = {"--max-walltime", "1:00:00", NULL};
    case_begin("a bar with the remaining time on a terminal, and no lines");
    start_batch(&p, "endless.jsonl", "bar.jsonl", NULL, true, more);
    while (!p.ended && (p.text[PROCESS_ERR] == NULL || strstr(p.text[PROCESS_ERR], " to go, ") == NULL))
        process_watch(&p, 0.01, SIZE_MAX);
    (void)kill(p.pid, SIGUSR1);
    process_wait(&p);
    const char *text = p.text[PROCESS_ERR];
    case_check(p.status == 75 && strstr(text, "\rbatch [") != NULL && strstr(text, " to go, ") != NULL &&
                   strstr(text, "of the walltime left") != NULL && strstr(text, "lockstep: running") == NULL,
               "status %d: %.1500s", p.status, text);
    process_free(&p);
    case_end();
}

/* A stopped or killed rank ends the job; the status file then says that it no longer runs, the cause, and the exit
 * status. */
static void failure(int number, const char *name)
{
    struct process p;
    char output[40], status[60];
    const char *const more[] = {"--step-timeout", "2", NULL};
    (void)snprintf(output, sizeof output, "%s.jsonl", name);
    (void)snprintf(status, sizeof status, "%s.status.json", output);
    case_begin("a rank that is %s: results are on disk, and the status file has cause and exit status", name);
    start_batch(&p, "many.jsonl", output, NULL, false, more);
    await_results(&p, output);
    (void)process_signal_rank(&p, 1, number);
    process_wait(&p);
    /* mpirun reports the signal that killed a rank, unless rank 0 notices first */
    bool ends = p.status == 8 || (number == SIGKILL && p.status == 128 + SIGKILL);
    case_check(ends && file_has(status, "\"state\": \"failed\""), "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(file_has(status, "\"exit_status\": 8") && file_has(status, "\"cause\": \"rank 1/"),
               "the status file lacks the cause or the exit status: %s", p.text[PROCESS_ERR]);
    case_check(file_has(status, "\"unsynced_bytes\": 0"), "results are not synced");
    process_free(&p);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    batching_prompts(dir, "many.jsonl", MANY, 24);
    batching_prompts(dir, "few.jsonl", FEW, 8);
    batching_prompts(dir, "endless.jsonl", ENDLESS, 24);
    status_file();
    files();
    bar();
    slurm();
    shares();
    failure(SIGSTOP, "stopped");
    failure(SIGKILL, "killed");
    files_remove_dir(dir);
    return cases_done();
}
