/* tests/e2e/test_serve_log.c - --access-log of `lockstep serve`: a pipe that nobody reads delays nothing, and a file
 * with prompts is readable by its owner only. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

static struct serving s;
static char folder[256], path[300];

/* Sends messages until the pipe and the queue of waiting lines are full. */
static double fill(struct talk *t, double *worst)
{
    enum { ROUNDS = 200, EACH = 500 };
    double lost = 0;
    *worst = 0;
    for (int i = 0; i < ROUNDS && lost == 0; i++) {
        double asked = seconds_now();
        json_decref(talk_ask(s.endpoint, "{\"op\": \"health\"}"));
        *worst = seconds_now() - asked > *worst ? seconds_now() - asked : *worst;
        for (int k = 0; k < EACH; k++)
            talk_say(t, "{\"op\": \"health\", \"request_id\": \"%0100d\"}", k);
        for (int k = 0; k < EACH; k++)
            json_decref(talk_hear(t, 10));
        lost = serving_metric(&s, "access_log_lost_lines_total");
    }
    return lost;
}

static void stalled_pipe(void)
{
    struct talk t;
    double worst = 0;
    case_begin("a pipe that nobody reads delays neither clients nor the end");
    (void)snprintf(path, sizeof path, "%s/pipe", folder);
    case_check(mkfifo(path, 0600) == 0, "no pipe");
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (case_check(serving_start(&s, 1, NULL, (const char *[]){"--access-log", path, NULL}), "no server")) {
        talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
        double lost = fill(&t, &worst);
        case_check(lost > 0, "no line was dropped: nothing was tested");
        case_check(process_in_time(worst, 0.5), "health took %.3f s", worst);
        talk_close(&t);
        double started = seconds_now();
        int status = serving_stop(&s);
        case_check(status == 0 && process_in_time(seconds_now() - started, 5), "status %d after %.1f s", status,
                   seconds_now() - started);
    }
    case_end();
    (void)close(fd);
}

/* The server ends at once, with this status and a line that contains the words. */
static void check_refused(const char *log, int status, const char *words)
{
    struct process_setup setup = {.ranks = 1};
    struct process p;
    process_run(&p, &setup,
                (const char *[]){"serve", "--model", models_demo(), "--endpoint", "tcp://127.0.0.1:*", "--access-log",
                                 log, "--access-log-prompts", NULL});
    case_check(p.status == status && strstr(p.text[PROCESS_ERR], words) != NULL,
               "status %d, expected %d and \"%s\": %s", p.status, status, words, p.text[PROCESS_ERR]);
    process_free(&p);
}

static void modes(void)
{
    struct stat st;
    size_t bytes = 0;
    case_begin("a log with prompts has mode 0600, or is refused");
    (void)snprintf(path, sizeof path, "%s/log", folder);
    mode_t mask = umask(0);
    bool started = serving_start(&s, 1, NULL, (const char *[]){"--access-log", path, "--access-log-prompts", NULL});
    (void)umask(mask);
    if (case_check(started, "no server")) {
        json_decref(talk_ask(s.endpoint, "{\"prompt\": \"Once a zebra\", \"max_tokens\": 2}"));
        (void)serving_stop(&s);
        char *text = files_read(folder, "log", &bytes);
        case_check(strstr(text, "Once a zebra") != NULL, "the log: %s", text);
        free(text);
    }
    case_check(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600, "mode %04o", (unsigned)st.st_mode & 07777);
    (void)chmod(path, 0640);
    check_refused(path, 2, "found mode 0640, expected 0600");
    (void)snprintf(path, sizeof path, "%s/unread", folder);
    case_check(mkfifo(path, 0600) == 0, "no pipe");
    check_refused(path, 5, "the pipe has no reader");
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    (void)chmod(path, 0644);
    check_refused(path, 2, "found mode 0644, expected 0600");
    (void)close(fd);
    case_end();
}

int main(void)
{
    files_make_dir(folder);
    stalled_pipe();
    modes();
    files_remove_dir(folder);
    return cases_done();
}
