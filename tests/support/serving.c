/* tests/support/serving.c - see serving.h. */
#include "tests/support/serving.h"
#include "base/clock.h"
#include "client/ask.h"
#include "client/message.h"
#include "client/samples.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START_SECONDS 60.0
#define ASK_SECONDS   30.0
#define END_SECONDS   60.0
#define MAX_MORE      32

static bool read_rendezvous(struct serving *s)
{
    struct err e = {0};
    json_t *root = access(s->rendezvous, F_OK) == 0 ? json_load_file(s->rendezvous, 0, NULL) : NULL;
    const char *endpoint = json_string_value(json_object_get(root, "endpoint"));
    if (endpoint != NULL)
        (void)snprintf(s->endpoint, sizeof s->endpoint, "%s", endpoint);
    json_decref(root);
    return endpoint != NULL && e.code == ERR_NONE;
}

static bool start_server(struct serving *s, const char *option, const char *dir, int ranks, const char *endpoint,
                         const char *const *more, const char *const *env)
{
    char socket[300];
    const char *argument[16 + MAX_MORE] = {"serve",       option,      dir, "--endpoint", endpoint, "--rendezvous",
                                           s->rendezvous, "--threads", "1", "--progress", "never"};
    int n = 11;
    memset(s, 0, sizeof *s);
    s->ranks = ranks;
    files_make_dir(s->dir);
    (void)snprintf(s->rendezvous, sizeof s->rendezvous, "%s/rendezvous.json", s->dir);
    (void)snprintf(socket, sizeof socket, "ipc://%s/socket", s->dir);
    if (endpoint == NULL)
        argument[4] = "tcp://127.0.0.1:*";
    else if (strcmp(endpoint, SERVING_IPC) == 0)
        argument[4] = socket;
    for (int i = 0; more != NULL && more[i] != NULL && i < MAX_MORE; i++)
        argument[n++] = more[i];
    process_start(&s->p, &(struct process_setup){.ranks = ranks, .limit = 1e9, .env = env}, argument);
    while (!s->p.ended && !read_rendezvous(s) && seconds_now() - s->p.started < START_SECONDS)
        process_watch(&s->p, 0.02, (size_t)-1);
    if (s->endpoint[0] != '\0')
        return true;
    printf("# serve did not start in %.0f s: %s\n", seconds_now() - s->p.started,
           s->p.text[PROCESS_ERR] != NULL ? s->p.text[PROCESS_ERR] : "");
    (void)serving_stop(s);
    return false;
}

bool serving_start(struct serving *s, int ranks, const char *endpoint, const char *const *more)
{
    return serving_start_model(s, models_demo(), ranks, endpoint, more);
}

bool serving_start_model(struct serving *s, const char *model, int ranks, const char *endpoint, const char *const *more)
{
    return start_server(s, "--model", model, ranks, endpoint, more, NULL);
}

bool serving_start_models(struct serving *s, const char *dir, int ranks, const char *const *more,
                          const char *const *env)
{
    return start_server(s, "--models-dir", dir, ranks, SERVING_IPC, more, env);
}

void serving_free(struct serving *s)
{
    process_free(&s->p);
    files_remove_dir(s->dir);
}

/* Prints the last of its messages, to explain a bad end. */
static void print_end(const struct serving *s, pid_t told)
{
    const char *text = s->p.text[PROCESS_ERR] != NULL ? s->p.text[PROCESS_ERR] : "";
    size_t n = strlen(text);
    printf("# serve %s after process %d was told to end: %s\n", s->p.timed_out ? "did not end" : "ended badly",
           (int)told, text + (n > 1500 ? n - 1500 : 0));
}

void serving_wait(struct serving *s)
{
    s->p.limit = seconds_now() - s->p.started + process_patience(END_SECONDS);
    process_wait(&s->p);
}

int serving_stop(struct serving *s)
{
    pid_t rank = s->p.ended || s->endpoint[0] == '\0' ? 0 : process_of_rank(&s->p, 0);
    if (rank > 0)
        (void)kill(rank, SIGUSR1);
    serving_wait(s);
    int status = s->p.timed_out ? -1 : s->p.status;
    if (status != 0)
        print_end(s, rank);
    serving_free(s);
    return status;
}

bool serving_connect(const struct serving *s, struct connection *c)
{
    struct err e = {0};
    const struct connection_setup setup = {.endpoint = s->endpoint, .seconds = ASK_SECONDS};
    *c = (struct connection){0};
    if (connection_open(c, &setup, &e) == 0)
        return true;
    printf("# %s\n", e.text);
    connection_close(c);
    return false;
}

static bool read_metrics(const struct serving *s, struct samples *m)
{
    struct connection c;
    struct err e = {0};
    *m = (struct samples){0};
    if (!serving_connect(s, &c))
        return false;
    json_t *reply = ask_op(&c, "metrics", ASK_SECONDS, &e);
    const char *text = json_string_value(json_object_get(reply, "text"));
    bool good = text != NULL && samples_read(m, text, &e) == 0;
    if (!good)
        printf("# metrics: %s\n", e.text);
    json_decref(reply);
    connection_close(&c);
    return good;
}

double serving_metric_of(const struct serving *s, const char *name, const char *label, const char *value)
{
    struct samples m;
    double sum = read_metrics(s, &m) ? samples_sum(&m, name, label, value) : NAN;
    samples_close(&m);
    return sum;
}

double serving_metric(const struct serving *s, const char *name)
{
    return serving_metric_of(s, name, NULL, NULL);
}

bool serving_await(const struct serving *s, const char *name, double limit, double seconds)
{
    for (double until = seconds_now() + process_patience(seconds);;) {
        double value = serving_metric(s, name);
        if (value <= limit)
            return true;
        if (isnan(value) || seconds_now() > until) {
            printf("# %s is %g after %g s, expected %g at most\n", name, value, seconds, limit);
            return false;
        }
    }
}

double serving_resident(const struct serving *s, int rank)
{
    return process_resident(process_of_rank(&s->p, rank));
}

char *serving_story(const struct serving *s, const char *prompt, int n_tokens)
{
    struct connection c;
    struct err e = {0};
    char *text = NULL;
    if (!serving_connect(s, &c))
        return NULL;
    json_t *request =
        json_pack("{s:s, s:i, s:i, s:b}", "prompt", prompt, "max_tokens", n_tokens, "temperature", 0, "ignore_eos", 1);
    json_t *reply = connection_send(&c, request, &e) == 0 ? connection_receive(&c, ASK_SECONDS, &e) : NULL;
    if (reply != NULL && message_check(reply, &e) == 0)
        text = json_dumps(json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids"),
                          JSON_COMPACT);
    if (text == NULL)
        printf("# no story: %s\n", e.text);
    json_decref(request);
    json_decref(reply);
    connection_close(&c);
    return text;
}
