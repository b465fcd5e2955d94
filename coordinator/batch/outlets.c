/* coordinator/batch/outlets.c - see outlets.h. */
#include "coordinator/batch/outlets.h"
#include "base/files.h"
#include "base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_SECONDS 5.0 /* seconds between two versions of a file */
#define BAR_SECONDS  0.2
#define LINE_BYTES   600

void outlets_open(struct outlets *out, const struct outlets_setup *setup, double now)
{
    memset(out, 0, sizeof *out);
    out->setup = *setup;
    out->comment.job = setup->commented;
    progress_open(&out->bar, setup->progress, "batch", "requests", 0);
    /* A visible progress bar replaces the lines. */
    out->line_due = setup->status_seconds > 0 && !out->bar.shown ? now + setup->status_seconds : INFINITY;
}

double outlets_wait(const struct outlets *out, double now)
{
    double due = fmin(out->files_due, out->line_due);
    if (out->bar.shown)
        due = fmin(due, out->bar.drawn + BAR_SECONDS);
    return due > now ? due - now : 0;
}

static void failed(const struct err *e, const char *option, bool *said)
{
    if (e->code != ERR_NONE && !*said)
        log_warn("%s: %s", option, e->text);
    *said = *said || e->code != ERR_NONE;
}

static void write_files(struct outlets *out, const struct status *s, const struct metrics *m, double now)
{
    struct text_buffer text = {0};
    struct err e = {0};
    out->files_due = now + FILE_SECONDS;
    if (out->setup.status_file != NULL) {
        json_t *object = status_json(s);
        (void)files_replace_json(out->setup.status_file, object, 0644, &e);
        json_decref(object);
        failed(&e, "the status file", &out->status_failed);
    }
    e = (struct err){0};
    if (out->setup.metrics_file != NULL && m != NULL) {
        if (status_metrics(s, m, &text, &e) == 0)
            (void)files_replace(out->setup.metrics_file, text.data, text.bytes, 0644, &e);
        failed(&e, "--metrics-file", &out->metrics_failed);
        text_free(&text);
    }
}

static void write_line(struct outlets *out, const struct status *s, double now)
{
    char line[LINE_BYTES];
    status_line(s, line, sizeof line);
    outlets_clear(out);
    log_note("%s", line);
    if (isfinite(out->line_due))
        out->line_due = now + out->setup.status_seconds;
}

static void draw_bar(struct outlets *out, const struct status *s)
{
    char note[LINE_BYTES];
    status_note(s, note, sizeof note);
    out->bar.total = isnan(s->total) ? (uint64_t)s->n_read : (uint64_t)s->total;
    out->bar.before = (uint64_t)s->n_before;
    progress_update(&out->bar, (uint64_t)(s->n_before + s->n_done + s->n_duplicates), note);
}

void outlets_show(struct outlets *out, const struct status *s, const struct metrics *m, double now)
{
    char text[SLURM_COMMENT_BYTES - sizeof "Comment="];
    if (out->bar.shown)
        draw_bar(out, s);
    if (now >= out->line_due)
        write_line(out, s, now);
    if (now < out->files_due)
        return;
    write_files(out, s, m, now);
    if (s->n_done > 0 &&
        slurm_comment_due(&out->comment, now)) { /* the first comment stays for a minute, so it waits until there is
                                                    something to show */
        status_comment(s, text, sizeof text);
        slurm_comment_set(&out->comment, text, now);
    }
}

void outlets_soon(struct outlets *out)
{
    out->files_due = 0;
}

void outlets_tell(struct outlets *out, const struct status *s, const struct metrics *m, double now)
{
    write_line(out, s, now);
    write_files(out, s, m, now);
}

/* Writes the status file a last time; removes the metrics file, which would otherwise be read forever. */
static void close_files(struct outlets *out, const struct status *s, double now)
{
    write_files(out, s, NULL, now);
    if (out->setup.metrics_file != NULL)
        (void)unlink(out->setup.metrics_file);
}

void outlets_fail(struct outlets *out, const struct status *s, double now)
{
    progress_close(&out->bar);
    close_files(out, s, now);
}

void outlets_clear(struct outlets *out)
{
    progress_clear(&out->bar);
}

void outlets_close(struct outlets *out, const struct status *s, double now)
{
    progress_close(&out->bar);
    write_line(out, s, now);
    close_files(out, s, now);
    slurm_comment_close(&out->comment);
}
