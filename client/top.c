/* client/top.c - see top.h. */
#include "client/top.h"
#include "base/clock.h"
#include "base/progress.h"
#include "client/ask.h"
#include "client/interrupt.h"
#include "client/samples.h"
#include "client/top_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASK_SECONDS 10.0
#define BAR_CELLS   30
#define MAX_RANKS   64                  /* shown */
#define MAX_PLACES  16                  /* of drafts */
#define SINCE_START "  since the start" /* mark of a row without samples in the interval */

static int read_metrics(struct connection *c, struct samples *m, struct err *e)
{
    json_t *reply = ask_op(c, "metrics", ASK_SECONDS, e);
    const char *text = json_string_value(json_object_get(reply, "text"));
    int status = reply == NULL  ? -1
                 : text != NULL ? samples_read(m, text, e)
                                : ERR(e, ERR_COMM, "%s: the reply to metrics has no text", c->endpoint);
    m->at = seconds_now();
    json_decref(reply);
    return status;
}

/* The reply to `models` if the job has several; NULL: it has one, or *e. The caller decrefs. */
static json_t *read_models(struct connection *c, const struct samples *now, struct err *e)
{
    if (isnan(samples_sum(now, "models_known", NULL, NULL)))
        return NULL;
    json_t *reply = ask_op(c, "models", ASK_SECONDS, e);
    if (reply == NULL || json_is_array(json_object_get(reply, "models")))
        return reply;
    (void)ERR(e, ERR_COMM, "%s: the reply to models has no models", c->endpoint);
    json_decref(reply);
    return NULL;
}

/* "12.3 ms", or "-" when nothing was observed. text: 32 bytes. */
static const char *milliseconds(char *text, double seconds)
{
    if (isnan(seconds))
        return "-";
    (void)snprintf(text, 32, "%.1f ms", 1000 * seconds);
    return text;
}

static const char *number(char *text, double x, const char *format)
{
    if (isnan(x))
        return "-";
    (void)snprintf(text, 32, format, x);
    return text;
}

/* Growth of a counter a second, over the interval. */
static double rate(const struct samples *now, const struct samples *before, const char *name)
{
    double then = samples_sum(before, name, NULL, NULL);
    return (samples_sum(now, name, NULL, NULL) - (isnan(then) ? 0 : then)) / (now->at - before->at);
}

static void print_bar(const char *name, double part)
{
    char bar[BAR_CELLS + 1], text[32];
    int cells = part >= 0 && part <= 1 ? (int)lround(part * BAR_CELLS) : 0;
    memset(bar, '.', BAR_CELLS);
    memset(bar, '#', (size_t)cells);
    bar[BAR_CELLS] = '\0';
    printf("%-10s [%s] %s\n", name, bar, number(text, 100 * part, "%.1f %%"));
}

/* A quantile since `before`; "< 300.0 ms" where the histogram has no better resolution. text: 32 bytes. */
static const char *quantile(char *text, const struct samples *now, const struct samples *before, const char *name,
                            double q)
{
    char value[24];
    bool below = false;
    double seconds = samples_quantile(now, before, name, q, &below);
    if (isnan(seconds))
        return "-";
    (void)snprintf(value, sizeof value, "%.1f ms", 1000 * seconds);
    (void)snprintf(text, 32, "%s%s", below ? "< " : "", value);
    return text;
}

/* Values of the interval; if it has none, since the start. */
static void print_histogram(const struct samples *now, const struct samples *before, const char *label,
                            const char *name)
{
    char mean[32], p50[32], p90[32], p99[32];
    const struct samples *from = isnan(samples_mean(now, before, name)) ? NULL : before;
    double average = samples_mean(now, from, name);
    printf("%-10s %12s %12s %12s %12s%s\n", label, milliseconds(mean, average), quantile(p50, now, from, name, 0.5),
           quantile(p90, now, from, name, 0.9), quantile(p99, now, from, name, 0.99),
           from == NULL && !isnan(average) ? SINCE_START : "");
}

/* Growth of a rank's counter, `before` NULL: since the start; NAN: it is missing. */
static double growth(const struct samples *now, const struct samples *before, const char *name, const char *rank)
{
    double then = before != NULL ? samples_sum(before, name, "rank", rank) : NAN;
    return samples_sum(now, name, "rank", rank) - (isnan(then) ? 0 : then);
}

/* One row per rank: the number of steps since `from`, their mean time, and its parts in all-reduces (waiting for other
 * ranks included) and outside. */
static void print_rank(const struct samples *now, const struct samples *from, int rank, double n, const char *remark)
{
    char label[16], steps[32], step[32], wait[32], own[32];
    (void)snprintf(label, sizeof label, "%d", rank);
    double timed = growth(now, from, "rank_timed_steps_total", label);
    double whole = growth(now, from, "rank_step_seconds_total", label) / (timed > 0 ? timed : NAN);
    double part = growth(now, from, "rank_all_reduce_seconds_total", label) / (timed > 0 ? timed : NAN);
    printf("%-10d %12s %12s %12s %12s%s\n", rank, number(steps, n, "%.0f"), milliseconds(step, whole),
           milliseconds(wait, part), milliseconds(own, whole - part), timed > 0 || from == NULL ? remark : "");
}

/* Steps of the interval; for a rank without any, since the start. */
static void print_ranks(const struct samples *now, const struct samples *before)
{
    double slowest = samples_sum(now, "slowest_rank", NULL, NULL);
    printf("%-10s %12s %12s %12s %12s\n", "rank", "steps", "step", "all-reduce", "own part");
    for (int rank = 0; rank < MAX_RANKS; rank++) {
        char label[16];
        (void)snprintf(label, sizeof label, "%d", rank);
        double n = growth(now, before, "rank_steps_total", label), all = growth(now, NULL, "rank_steps_total", label);
        if (isnan(n)) /* the ranks of another set may have run steps already */
            continue;
        if (n == 0 && all > 0)
            print_rank(now, NULL, rank, all, SINCE_START);
        else
            print_rank(now, before, rank, n, slowest == rank ? "  slowest" : "");
    }
}

/* The acceptance rate per draft position, over all verifications; some had fewer drafts than positions. */
static void print_places(const struct samples *now, double n)
{
    static const char name[] = "spec_decode_num_accepted_tokens_per_pos_total";
    char position[16], text[32];
    for (int i = 0; i < MAX_PLACES; i++) {
        (void)snprintf(position, sizeof position, "%d", i);
        double accepted = samples_sum(now, name, "position", position);
        if (isnan(accepted))
            break;
        printf("%s%s", i == 0 ? "; by position " : " ", number(text, 100 * accepted / n, "%.0f"));
    }
    printf(" %%\n");
}

/* The yield of drafts since the start, if any are made. */
static void print_drafts(const struct samples *now)
{
    double n = samples_sum(now, "spec_decode_num_drafts_total", NULL, NULL);
    double accepted = samples_sum(now, "spec_decode_num_accepted_tokens_total", NULL, NULL);
    char text[3][32];
    if (isnan(n))
        return;
    printf("drafts     %s of %s accepted; %s tokens per step with drafts%s", number(text[0], accepted, "%.0f"),
           number(text[1], samples_sum(now, "spec_decode_num_draft_tokens_total", NULL, NULL), "%.0f"),
           number(text[2], n > 0 ? 1 + accepted / n : NAN, "%.2f"), n > 0 ? "" : "\n");
    if (n > 0)
        print_places(now, n);
}

/* models: the reply, NULL: the job has one model. */
static void print_view(const struct connection *c, const struct samples *now, const struct samples *before,
                       const json_t *models)
{
    double n_replicas = samples_sum(now, "groups", NULL, NULL); /* each with a KV cache of its own */
    double n_done = samples_sum(now, "request_success_total", NULL, NULL);
    char text[4][32];
    printf("lockstep at %s: %s running, %s waiting, %s preempted since the start\n", c->endpoint,
           number(text[0], samples_sum(now, "num_requests_running", NULL, NULL), "%.0f"),
           number(text[1], samples_sum(now, "num_requests_waiting", NULL, NULL), "%.0f"),
           number(text[2], samples_sum(now, "num_preemptions_total", NULL, NULL), "%.0f"));
    print_bar("KV cache", samples_sum(now, "kv_cache_usage_perc", NULL, NULL) / (n_replicas > 1 ? n_replicas : 1));
    print_bar("prefix hit", samples_sum(now, "prefix_cache_hits_total", NULL, NULL) /
                                samples_sum(now, "prefix_cache_queries_total", NULL, NULL));
    print_drafts(now);
    printf("tokens/s   %s prompt, %s generated; %s requests/s done\n",
           number(text[0], rate(now, before, "prompt_tokens_total"), "%.1f"),
           number(text[1], rate(now, before, "generation_tokens_total"), "%.1f"),
           number(text[2], rate(now, before, "request_success_total"), "%.2f"));
    printf("total      %s tokens of prompts, %s generated; %s request%s done since the start\n",
           number(text[0], samples_sum(now, "prompt_tokens_total", NULL, NULL), "%.0f"),
           number(text[1], samples_sum(now, "generation_tokens_total", NULL, NULL), "%.0f"),
           number(text[2], n_done, "%.0f"), n_done == 1 ? "" : "s");
    printf("%-10s %12s %12s %12s %12s\n", "", "mean", "p50", "p90", "p99");
    print_histogram(now, before, "TTFT", "time_to_first_token_seconds");
    print_histogram(now, before, "ITL", "inter_token_latency_seconds");
    print_histogram(now, before, "E2E", "e2e_request_latency_seconds");
    print_histogram(now, before, "queue", "request_queue_time_seconds");
    print_ranks(now, before);
    if (models != NULL)
        top_print_models(json_object_get(models, "models"), now);
}

/* false: interrupted */
static bool pause_until(double until)
{
    for (double left; (left = until - seconds_now()) > 0 && !interrupt_came();)
        (void)usleep((useconds_t)(fmin(left, 0.5) * 1e6));
    return !interrupt_came();
}

int client_top(struct connection *c, const struct top_options *o, struct err *e)
{
    struct samples before = {0}, now = {0};
    bool terminal = terminal_behind(STDOUT_FILENO);
    (void)read_metrics(c, &before, e);
    while (e->code == ERR_NONE && pause_until(before.at + o->interval) && read_metrics(c, &now, e) == 0) {
        json_t *models = read_models(c, &now, e);
        if (e->code != ERR_NONE || interrupt_came())
            break;
        if (terminal && !o->once)
            printf("\x1b[H\x1b[2J");
        print_view(c, &now, &before, models);
        json_decref(models);
        if (fflush(stdout) != 0)
            (void)ERR(e, ERR_IO, "cannot write to standard output");
        samples_close(&before);
        before = now;
        now = (struct samples){0};
        if (o->once)
            break;
    }
    samples_close(&before);
    samples_close(&now);
    return e->code == ERR_NONE ? 0 : -1;
}
