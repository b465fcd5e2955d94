/* coordinator/batch/runner_files.c - the files that a run opens, finds and leaves behind.
 * See runner.h. */
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "coordinator/batch/apart.h"
#include "coordinator/batch/ordered.h"
#include "coordinator/batch/recorded.h"
#include "coordinator/batch/retry.h"
#include "coordinator/batch/runner.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SYNC_BYTES   ((int64_t)16 << 20) /* bytes of results after which a sync does not wait for --sync-seconds */
#define LOCK_SECONDS 10.0                /* time for an earlier batch to end */

/* Defaults of missing fields, from the options. NULL: out of memory. */
static json_t *defaults_of(const struct sampling_options *o)
{
    const struct {
        const char *key;
        bool given;
        json_t *value;
    } rows[] = {
        {"max_tokens", o->max_tokens > 0, json_integer(o->max_tokens)},
        {"min_tokens", o->min_tokens >= 0, json_integer(o->min_tokens)},
        {"temperature", !isnan(o->temperature), json_real(o->temperature)},
        {"top_k", o->top_k >= -1, json_integer(o->top_k)},
        {"top_p", !isnan(o->top_p), json_real(o->top_p)},
        {"min_p", !isnan(o->min_p), json_real(o->min_p)},
        {"repetition_penalty", !isnan(o->repetition_penalty), json_real(o->repetition_penalty)},
        {"presence_penalty", !isnan(o->presence_penalty), json_real(o->presence_penalty)},
        {"frequency_penalty", !isnan(o->frequency_penalty), json_real(o->frequency_penalty)},
        {"ignore_eos", o->ignore_eos, json_true()},
    };
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) /* json_real(NAN) is NULL: it was not given */
        if (rows[i].given && json_object_set(all, rows[i].key, rows[i].value) != 0) {
            json_decref(all);
            all = NULL;
        }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_decref(rows[i].value);
    return all;
}

/* Processes a line of the existing output. */
static bool take_result(void *context, const char *line, size_t bytes, int64_t offset, struct err *e)
{
    struct runner *r = context;
    char id[LINE_MAX_ID_BYTES + 1];
    bool failed = false;
    if (!result_read(line, bytes, id, &failed))
        return false;
    struct id_entry *entry = ids_get(&r->files.ids, id, e);
    if (entry == NULL)
        return false;
    if (entry->offset >= 0 && !r->setup.o->force) {
        (void)ERR(e, ERR_INPUT,
                  "--output %.120s: id \"%.100s\" has two results, at byte %lld and at byte %lld: remove one of them, "
                  "or use --force to continue all the same",
                  r->setup.o->output, id, (long long)entry->offset, (long long)offset);
        return false;
    }
    r->progress.n_results_before += entry->offset < 0;
    entry->offset = offset;
    r->progress.n_failed_before += failed;
    return true;
}

/* --retry-failed. */
static int forget_failed(struct runner *r, struct err *e)
{
    struct batch_progress *p = &r->progress;
    log_note("%lld of these are errors: they are removed, and their lines run again", (long long)p->n_failed_before);
    p->n_failed_before = 0;
    if (manifest_forget_output(&r->files.manifest, e) != 0)
        return -1;
    return retry_take_out(&r->files.journal, &r->files.ids, &p->n_results_before, e);
}

static int find_results(struct runner *r, struct err *e)
{
    const struct batch_options *o = r->setup.o;
    const struct journal_reader reader = {RESULT_BEGIN, take_result, r};
    int64_t cut = 0;
    if (journal_refuse_other(&r->files.journal, RESULT_BEGIN, e) != 0)
        return -1;
    if (!o->force && manifest_check(&r->files.manifest, o->output, e) != 0)
        return -1;
    r->files.nameless = json_is_true(json_object_get(r->files.manifest.previous, "lines_without_id"));
    r->files.max_len = (int)manifest_real(&r->files.manifest, "max_model_len");
    if (!o->force && r->files.nameless &&
        recorded_check(json_object_get(r->files.manifest.previous, "inputs"), &r->files.inputs, o->output, e) != 0)
        return -1;
    if (!o->force && journal_check(&r->files.journal, manifest_output(&r->files.manifest), e) != 0)
        return -1;
    int64_t trusted = r->files.manifest.previous != NULL ? manifest_synced(&r->files.manifest) : JOURNAL_FOREIGN;
    int64_t gone = r->files.manifest.previous != NULL ? trusted - r->files.journal.bytes : 0;
    if (journal_recover(&r->files.journal, trusted, &reader, &cut, e) != 0)
        return -1;
    log_note("continuing %s, which has %lld results%s", o->output, (long long)r->progress.n_results_before,
             cut > 0 ? "; a partial line was removed" : "");
    if (gone > 0)
        log_warn("--output %.200s: %lld bytes that were on disk are missing at its end: their lines run again",
                 o->output, (long long)gone);
    return o->retry_failed && r->progress.n_failed_before > 0 ? forget_failed(r, e) : 0;
}

/* Checks that no file overwrites another one, and that --resume finds the output that it requires. */
static int check_output(const struct runner *r, struct err *e)
{
    const struct batch_options *o = r->setup.o;
    char manifest[PATH_MAX + sizeof MANIFEST_ENDING];
    struct stat st;
    bool standard = strcmp(o->output, "-") == 0, exists = !standard && stat(o->output, &st) == 0;
    bool is_file = !standard && (!exists || S_ISREG(st.st_mode));
    (void)snprintf(manifest, sizeof manifest, "%s%s", o->output, MANIFEST_ENDING);
    const struct apart_file file[APART_MAX] = {{"--output", o->output},
                                               {"the manifest", is_file ? manifest : NULL},
                                               {"--status-file", r->setup.outlets.status_file},
                                               {"--metrics-file", r->setup.outlets.metrics_file}};
    if (apart_check(file, APART_MAX, &r->files.inputs, e) != 0)
        return -1;
    struct err unused = {0};
    bool opens =
        /* otherwise a message says so */
        !is_file || exists || files_check_replaceable(o->output, "--output", &unused) == 0;
    for (int i = 2; i < APART_MAX && opens; i++)
        if (file[i].path != NULL && strcmp(file[i].path, "-") != 0 &&
            files_check_replaceable(file[i].path, file[i].option, e) != 0)
            return -1;
    if (o->resume == RESUME_ALWAYS && (!is_file || !exists))
        return ERR(e, ERR_USAGE, "--resume always: there is no file %.200s to continue", o->output);
    return 0;
}

int runner_files_open(struct runner *r, struct err *e)
{
    const struct batch_options *o = r->setup.o;
    r->files.defaults = defaults_of(&o->sampling);
    r->files.models = json_object();
    if (r->files.defaults == NULL || r->files.models == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: defaults");
    if (inputs_open(&r->files.inputs, o->input, (int)o->n_input, e) != 0 || check_output(r, e) != 0 ||
        journal_open(&r->files.journal, o->output, LOCK_SECONDS, e) != 0)
        return -1;
    r->progress.input_bytes = r->files.inputs.bytes;
    r->files.has_manifest = r->files.journal.is_file;
    if (!r->files.has_manifest)
        return 0;
    if (o->resume == RESUME_NEVER && r->files.journal.bytes > 0) /* a failed start may have left an empty file */
        return ERR(e, ERR_USAGE, "--resume never: the file %.200s exists", o->output);
    json_t *identity = runner_manifest_identity(r, e);
    if (identity == NULL || manifest_open(&r->files.manifest, o->output, identity, e) != 0)
        return -1;
    const json_t *models = json_object_get(r->files.manifest.previous, "models");
    if (models != NULL && json_object_update(r->files.models, (json_t *)models) != 0)
        return ERR(e, ERR_MEMORY, "out of host memory: manifest");
    if (r->files.journal.bytes > 0)
        return find_results(r, e);
    json_decref(r->files.manifest.previous); /* a manifest whose output is gone */
    r->files.manifest.previous = NULL;
    json_object_clear(r->files.models);
    return 0;
}

int runner_files_start(struct runner *r, struct err *e)
{
    if (!r->files.has_manifest)
        return 0;
    return journal_sync(&r->files.journal, e) == 0 ? runner_manifest_write(r, "running", e) : -1;
}

void runner_files_place(struct runner *r, const struct line *l, struct err *e)
{
    bool recorded =
        l->file < r->files.recorded_file || (l->file == r->files.recorded_file && l->end <= r->files.recorded_bytes);
    recorded = recorded && r->files.nameless;
    r->files.nameless = true;
    if (!recorded && r->files.has_manifest)
        (void)runner_manifest_write(r, "running", e);
}

/* Records that a model has lines without max_tokens. */
static void fill_model(struct runner *r, int model, struct err *e)
{
    json_t *record = json_object_get(r->files.models, r->models.entry[model].name);
    bool known = json_is_integer(json_object_get(record, "max_model_len"));
    if (known || record == NULL)
        return;
    (void)json_object_set_new(record, "max_model_len", json_integer(replicas_max_len(&r->replicas, model)));
    if (r->files.has_manifest)
        (void)runner_manifest_write(r, "running", e);
}

void runner_files_filled(struct runner *r, int model, struct err *e)
{
    if (r->setup.models.n > 0) {
        fill_model(r, model, e);
        return;
    }
    bool known = r->files.max_len > 0;
    r->files.max_len = replicas_max_len(&r->replicas, 0);
    if (!known && r->files.has_manifest)
        (void)runner_manifest_write(r, "running", e);
}

static int compare_len(const struct runner *r, int was, int now, struct err *e)
{
    if (was > 0 && was != now && !r->setup.o->force)
        return ERR(
            e, ERR_INPUT,
            "--output %.120s was begun with prompt and output of up to %d tokens together, which is what lines without "
            "max_tokens may take, this run has %d: see --max-model-len, or use --force to continue all the same",
            r->setup.o->output, was, now);
    return 0;
}

int runner_files_check_len(struct runner *r, struct err *e)
{
    int now = replicas_max_len(&r->replicas, 0);
    if (compare_len(r, r->files.max_len, now, e) != 0)
        return -1;
    r->files.max_len = r->files.max_len > 0 ? now : 0;
    return 0;
}

int runner_files_model(struct runner *r, int model, struct err *e)
{
    const struct model_entry *entry = &r->models.entry[model];
    json_t *is = entry->made_of, *was = json_object_get(r->files.models, entry->name);
    char name[200];
    if (is == NULL || !r->files.has_manifest)
        return 0;
    int len = (int)json_integer_value(json_object_get(was, "max_model_len"));
    (void)json_object_del(was, "max_model_len");
    (void)snprintf(name, sizeof name, "models.%s.", entry->name);
    if (was != NULL && !r->setup.o->force && manifest_compare(r->setup.o->output, name, was, is, e) != 0)
        return -1;
    int now = replicas_max_len(&r->replicas, model);
    if (compare_len(r, len, now, e) != 0)
        return -1;
    if (len > 0)
        (void)json_object_set_new(is, "max_model_len", json_integer(now));
    if (json_object_set(r->files.models, entry->name, is) != 0)
        return ERR(e, ERR_MEMORY, "out of host memory: manifest");
    return runner_manifest_write(r, "running", e);
}

/* Measures the duration of a sync and reserves as much of the walltime for the end. */
void runner_files_sync(struct runner *r)
{
    struct err e = {0};
    double began = seconds_now();
    if (r->end.failure.code != ERR_NONE || r->files.journal.unsynced == 0)
        return;
    if (journal_sync(&r->files.journal, &e) != 0)
        runner_fail(r, &e);
    else if (r->files.manifest_bytes == 0) /* from now on it reports results of this run */
        r->files.manifest_due = 0;
    ending_learn(&r->end.ending, seconds_now() - began, r->end.pace.step);
}

void runner_files_keep(struct runner *r, double now)
{
    struct err e = {0};
    const struct journal *j = &r->files.journal;
    if (j->unsynced >= SYNC_BYTES || now >= j->unsynced_at + r->setup.o->sync_seconds)
        runner_files_sync(r);
    if (r->end.failure.code != ERR_NONE)
        return;
    if (e.code == ERR_NONE && r->files.has_manifest && now >= r->files.manifest_due)
        (void)runner_manifest_write(r, "running", &e);
    if (e.code != ERR_NONE)
        runner_fail(r, &e);
}

/* Reports results that a stalled reader has not read: they are lost, as are those that a failure has left pending. */
static void lose_pending(struct runner *r)
{
    struct err *e = &r->end.failure;
    if (r->files.journal.n_pending > 0 && e->code == ERR_NONE)
        (void)journal_flush(&r->files.journal, e);
    int64_t n = journal_pending_lines(&r->files.journal);
    r->progress.n_done -= n;
    r->progress.n_left += n;
    if (n > 0)
        ERR(e, ERR_IO,
            "--output %.200s: %lld results had no reader before the end (%s); a pipe cannot be resumed: the "
            "next run starts from the beginning",
            r->setup.o->output, (long long)n, r->end.ending.cause);
}

/* During the rewrite the manifest does not describe the output's contents, so that the two agree however the program
 * ends. */
static void put_in_order(struct runner *r, struct err *e)
{
    journal_forget(&r->files.journal);
    if (runner_manifest_write(r, "running", e) != 0)
        return;
    if (ordered_rewrite(&r->files.journal, &r->files.ids, e) == 0)
        (void)journal_sync(&r->files.journal, e);
}

void runner_files_close(struct runner *r)
{
    lose_pending(r);
    int status = runner_status(r);
    bool failed = r->end.failure.code != ERR_NONE, complete = !failed && r->running && status != ERR_RESUME;
    struct err *e = &r->end.failure; /* the first failure wins */
    if (r->files.journal.fd >= 0)
        (void)journal_sync(&r->files.journal, e);
    if (complete && r->setup.o->ordered && e->code == ERR_NONE)
        put_in_order(r, e);
    if (r->files.has_manifest && r->running)
        (void)runner_manifest_write(r, e->code != ERR_NONE ? "failed" : complete ? "finished" : "unfinished", e);
    journal_close(&r->files.journal);
    inputs_close(&r->files.inputs);
    if (r->files.has_manifest)
        manifest_close(&r->files.manifest);
    json_decref(r->files.defaults);
    json_decref(r->files.models);
}
