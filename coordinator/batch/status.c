/* coordinator/batch/status.c - see status.h. */
#include "coordinator/batch/status.h"
#include "coordinator/batch/walltime.h"
#include "coordinator/metrics/metrics_text.h"
#include "protocol/reply_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const state_names[] = {"loading", "running", "draining", "ended", "failed"};

double status_total(int64_t n_read, bool at_end, int64_t input_bytes, int64_t input_bytes_read)
{
    if (at_end)
        return (double)n_read;
    if (input_bytes <= 0 || input_bytes_read <= 0 || n_read == 0)
        return NAN;
    return fmax((double)n_read, round((double)n_read * (double)input_bytes / (double)input_bytes_read));
}

/* Finished by all runs together; duplicates count, since they never run. */
static double finished(const struct status *s)
{
    return (double)(s->n_before + s->n_done + s->n_duplicates);
}

double status_eta(const struct status *s)
{
    double left = s->total - finished(s);
    if ((s->state != STATUS_RUNNING && s->state != STATUS_DRAINING) || !(s->speed.requests > 0))
        return NAN;
    return left > 0 ? left / s->speed.requests : 0 * left;
}

double status_joules_per_token(const struct status *s)
{
    double tokens = (double)(s->prompt_tokens - s->cached_tokens + s->output_tokens);
    return tokens > 0 ? s->joules / tokens : NAN;
}

/* Appends to the text; cuts off the part that does not fit. */
static void add_words(char *text, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add_words(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text + used, bytes - used, format, args);
    va_end(args);
}

static void add_time(const struct status *s, char *text, size_t bytes)
{
    char left[WALLTIME_TEXT_BYTES];
    double eta = status_eta(s);
    if (!isnan(eta))
        add_words(text, bytes, ", %s to go", walltime_say(left, eta));
    if (isfinite(s->walltime_left))
        add_words(text, bytes, ", %s of the walltime left%s", walltime_say(left, s->walltime_left),
                  eta > s->walltime_left ? ": not all will be done" : "");
}

/* The number of failed lines in the output, including those of earlier runs. */
static int64_t n_failed(const struct status *s)
{
    return s->n_failed_before + s->n_failed;
}

void status_line(const struct status *s, char *text, size_t bytes)
{
    text[0] = '\0';
    add_words(text, bytes, "%s%s%s%s: %.0f", state_names[s->state], s->cause[0] != '\0' ? " (" : "", s->cause,
              s->cause[0] != '\0' ? ")" : "", finished(s));
    if (!isnan(s->total))
        add_words(text, bytes, " of %s%.0f", s->total_is_known ? "" : "about ", s->total);
    add_words(text, bytes, " requests");
    if (s->total > 0)
        add_words(text, bytes, " (%.0f %%)", floor(100 * finished(s) / s->total));
    if (n_failed(s) > 0)
        add_words(text, bytes, ", %" PRId64 " failed", n_failed(s));
    if (s->n_open > 0)
        add_words(text, bytes, ", %" PRId64 " under way", s->n_open);
    if (s->n_left > 0)
        add_words(text, bytes, ", %" PRId64 " left to the next run", s->n_left);
    if (!isnan(s->speed.requests))
        add_words(text, bytes, "; %.1f requests/s, %.0f + %.0f tokens/s in + out", s->speed.requests,
                  s->speed.prompt_tokens, s->speed.output_tokens);
    add_time(s, text, bytes);
    if (!isnan(status_joules_per_token(s)))
        add_words(text, bytes, "; %.2f J/token", status_joules_per_token(s));
}

void status_note(const struct status *s, char *text, size_t bytes)
{
    text[0] = '\0';
    add_words(text, bytes, "%s", s->state == STATUS_DRAINING ? "draining" : "");
    if (n_failed(s) > 0)
        add_words(text, bytes, "%s%" PRId64 " failed", text[0] != '\0' ? ", " : "", n_failed(s));
    if (!isnan(s->speed.output_tokens))
        add_words(text, bytes, "%s%.0f tokens/s", text[0] != '\0' ? ", " : "", s->speed.output_tokens);
    add_time(s, text, bytes);
}

void status_comment(const struct status *s, char *text, size_t bytes)
{
    char left[WALLTIME_TEXT_BYTES];
    double eta = status_eta(s);
    text[0] = '\0';
    add_words(text, bytes, "%s done=%.0f", state_names[s->state], finished(s));
    if (!isnan(s->total))
        add_words(text, bytes, "/%s%.0f", s->total_is_known ? "" : "~", s->total);
    add_words(text, bytes, " failed=%" PRId64, n_failed(s));
    if (!isnan(s->speed.output_tokens))
        add_words(text, bytes, " tok/s=%.0f", s->speed.output_tokens);
    if (!isnan(eta))
        add_words(text, bytes, " eta=%s", walltime_say(left, eta));
}

/* A number, or null if it is unknown. */
static json_t *known(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *count(double x)
{
    return isfinite(x) ? json_integer((json_int_t)x) : json_null();
}

static json_t *moment(double epoch)
{
    char text[64];
    struct tm tm;
    time_t t = (time_t)epoch;
    if (gmtime_r(&t, &tm) == NULL || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        return json_null();
    return json_string(text);
}

static json_t *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? reply_text(text) : json_null();
}

static json_t *requests_json(const struct status *s)
{
    return json_pack("{s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:I}", "total", count(s->total),
                     "total_is_estimate", !isnan(s->total) && !s->total_is_known, "read", (json_int_t)s->n_read,
                     "done_before", (json_int_t)s->n_before, "done", (json_int_t)s->n_done, "failed",
                     (json_int_t)s->n_failed, "failed_before", (json_int_t)s->n_failed_before, "duplicates",
                     (json_int_t)s->n_duplicates, "open", (json_int_t)s->n_open, "running", s->n_running, "waiting",
                     s->n_waiting, "left", (json_int_t)s->n_left);
}

static json_t *walltime_json(const struct status *s)
{
    return isfinite(s->walltime_left)
               ? json_pack("{s:f, s:s}", "left_seconds", s->walltime_left, "source", s->walltime_source)
               : json_null();
}

static json_t *energy_json(const struct status *s)
{
    return isnan(s->joules)
               ? json_null()
               : json_pack("{s:f, s:o}", "joules", s->joules, "joules_per_token", known(status_joules_per_token(s)));
}

json_t *status_json(const struct status *s)
{
    double eta = status_eta(s);
    json_t *object = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:i, s:s, s:o, s:o, s:o, s:f}", "state",
                               state_names[s->state], "cause", text_or_null(s->cause), "exit_status",
                               s->state >= STATUS_ENDED ? json_integer(s->exit_status) : json_null(), "model",
                               reply_text(s->model), "output", reply_text(s->output), "host", reply_text(s->host),
                               "pid", (int)getpid(), "ranks", s->n_ranks, "groups", s->n_replicas, "version",
                               LOCKSTEP_VERSION, "slurm_job_id", text_or_null(s->job), "started", moment(s->started),
                               "updated", moment(s->updated), "elapsed_seconds", s->updated - s->started);
    json_t *more = json_pack(
        "{s:o, s:{s:I, s:I, s:I}, s:{s:o, s:o, s:o}, s:o, s:o, s:o, s:{s:I, s:I}, s:{s:I, s:I}, s:o}", "requests",
        requests_json(s), "tokens", "prompt", (json_int_t)s->prompt_tokens, "cached", (json_int_t)s->cached_tokens,
        "output", (json_int_t)s->output_tokens, "per_second", "requests", known(s->speed.requests), "prompt_tokens",
        known(s->speed.prompt_tokens), "output_tokens", known(s->speed.output_tokens), "eta_seconds", known(eta),
        "walltime", walltime_json(s), "will_finish",
        isnan(eta) || !isfinite(s->walltime_left) ? json_null() : json_boolean(eta <= s->walltime_left), "journal",
        "bytes", (json_int_t)s->journal_bytes, "unsynced_bytes", (json_int_t)s->unsynced_bytes, "shard", "index",
        (json_int_t)s->share.index, "count", (json_int_t)s->share.count, "energy", energy_json(s));
    if (object == NULL || more == NULL || json_object_update(object, more) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(more);
    return object;
}

static void write_counts(struct exposition *x, const struct status *s)
{
    exposition_one(x, "batch_state", "gauge", s->state, "0 loading, 1 running, 2 draining, 3 ended, 4 failed.");
    exposition_one(x, "batch_done_before", "gauge", (double)s->n_before, "Requests that earlier runs had finished.");
    exposition_one(x, "batch_done_total", "counter", (double)s->n_done, "Finished requests, including failed ones.");
    exposition_one(x, "batch_failed_total", "counter", (double)s->n_failed,
                   "Finished requests whose result is an error.");
    exposition_one(x, "batch_failed_before", "gauge", (double)s->n_failed_before, "Error results of earlier runs.");
    exposition_one(x, "batch_duplicates_total", "counter", (double)s->n_duplicates,
                   "Lines with the id of another line.");
    exposition_one(x, "batch_open", "gauge", (double)s->n_open, "Requests that were read and are not finished.");
    exposition_one(x, "batch_left_total", "counter", (double)s->n_left,
                   "Requests that were read and are left to the next run.");
    exposition_one(x, "batch_prompt_tokens_total", "counter", (double)s->prompt_tokens,
                   "Prompt tokens of finished requests.");
    exposition_one(x, "batch_cached_tokens_total", "counter", (double)s->cached_tokens,
                   "Prompt tokens of finished requests that came from the prefix cache.");
    exposition_one(x, "batch_output_tokens_total", "counter", (double)s->output_tokens,
                   "Output tokens of finished requests.");
    exposition_one(x, "batch_journal_bytes", "gauge", (double)s->journal_bytes, "Bytes of the output file.");
    exposition_one(x, "batch_unsynced_bytes", "gauge", (double)s->unsynced_bytes,
                   "Bytes of the output file that are not synced yet.");
    exposition_one(x, "batch_elapsed_seconds", "gauge", s->updated - s->started, "Time since the job's start.");
}

/* Omitted if unknown. */
static void one_if_known(struct exposition *x, const char *name, const char *type, double value, const char *help)
{
    if (isfinite(value))
        exposition_one(x, name, type, value, help);
}

int status_metrics(const struct status *s, const struct metrics *m, struct text_buffer *out, struct err *e)
{
    struct exposition x;
    exposition_open(&x, out, "lockstep_", e);
    exposition_label(&x, "model_name", s->model);
    if (s->job != NULL)
        exposition_label(&x, "slurm_job_id", s->job);
    write_counts(&x, s);
    one_if_known(&x, "batch_expected", "gauge", s->total,
                 "Expected number of requests; an estimate until all are read.");
    one_if_known(&x, "batch_requests_per_second", "gauge", s->speed.requests,
                 "Finished requests per second, over the last minute.");
    one_if_known(&x, "batch_prompt_tokens_per_second", "gauge", s->speed.prompt_tokens,
                 "Prompt tokens per second, over the last minute.");
    one_if_known(&x, "batch_output_tokens_per_second", "gauge", s->speed.output_tokens,
                 "Output tokens per second, over the last minute.");
    one_if_known(&x, "batch_eta_seconds", "gauge", status_eta(s),
                 "Expected time until all requests are done, at the current speed.");
    one_if_known(&x, "batch_walltime_left_seconds", "gauge", s->walltime_left, "Time until the job has to end.");
    one_if_known(&x, "batch_joules_per_token", "gauge", status_joules_per_token(s),
                 "Energy per token, prompt and output tokens together.");
    metrics_write_replicas(&x, m);
    metrics_write_steps(&x, m);
    metrics_write_ranks(&x, m);
    return e->code == ERR_NONE ? 0 : -1;
}
