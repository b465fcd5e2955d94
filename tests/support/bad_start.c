/* tests/support/bad_start.c - see bad_start.h. Several starts run at once: they mostly wait for the launcher, which
 * gives its ranks a second or two to end after one has failed. */
#include "tests/support/bad_start.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT_ONCE 12  /* cases, of two jobs each */
#define PROMPT  4.0 /* seconds that half of them may take */

struct running {
    const struct bad_start *c;
    char dir[256];
    struct process job[2]; /* 1 and 3 ranks */
};

static const int n_ranks[2] = {1, 3};

static double *taken; /* [n_taken] seconds of every ended job */
static int n_taken;

static void make_folder(char *dir, const struct bad_start *c)
{
    char path[600];
    models_fixture(dir, c->fixture != NULL ? c->fixture : BAD_START_FIXTURE);
    if (c->file != NULL && c->path != NULL) {
        models_edit(dir, c->file, c->path, c->value);
    } else if (c->file != NULL && c->value != NULL) {
        files_write(dir, c->file, c->value, strlen(c->value));
    } else if (c->file != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, c->file);
        (void)unlink(path);
    }
    if (c->damage != NULL)
        c->damage(dir);
}

static void start_case(struct running *r, const struct bad_start *c)
{
    const char *usual[] = {"generate", "--model", r->dir, "--prompt-ids", "1,2", "--max-tokens", "1", NULL};
    const char *given[9] = {NULL};
    char path[600];
    r->c = c;
    make_folder(r->dir, c);
    for (int i = 0; i < 8 && c->argument[i] != NULL; i++) {
        given[i] = strcmp(c->argument[i], "DIR") == 0 ? r->dir : c->argument[i];
        if (strncmp(c->argument[i], "DIR/", 4) == 0) {
            (void)snprintf(path, sizeof path, "%s/%s", r->dir, c->argument[i] + 4);
            given[i] = path;
        }
    }
    for (int k = 0; k < 2; k++) {
        struct process_setup setup = {.ranks = n_ranks[k]};
        process_start(&r->job[k], &setup, given[0] != NULL ? given : usual);
    }
}

static void check_line(const struct bad_start *c, const struct process *p, int ranks)
{
    const char *line = p->text[PROCESS_ERR];
    case_check(process_count_lines(line) == 1 && strncmp(line, "lockstep: fatal: ", 17) == 0,
               "standard error on %d ranks is not one line \"lockstep: fatal: ...\": %s", ranks, line);
    for (int i = 0; i < 6 && c->words[i] != NULL; i++)
        case_check(strstr(line, c->words[i]) != NULL, "on %d ranks \"%s\" is not in: %s", ranks, c->words[i], line);
    for (const char *at = line; *at != '\0'; at++)
        if (!case_check((unsigned char)*at >= 0x20 || at[1] == '\0', "a control character in: %s", line))
            break;
}

static void finish(struct running *r)
{
    char path[600];
    case_begin("%s", r->c->name);
    for (int k = 0; k < 2; k++) {
        struct process *p = &r->job[k];
        process_wait(p);
        check_line(r->c, p, n_ranks[k]);
        case_check(p->status == r->c->status, "status %d on %d ranks, expected %d: %s", p->status, n_ranks[k],
                   r->c->status, p->text[PROCESS_ERR]);
        case_check(p->bytes[PROCESS_OUT] == 0, "standard output: %s", p->text[PROCESS_OUT]);
        case_check(!p->timed_out, "not ended after %.1f s on %d ranks", p->seconds, n_ranks[k]);
        taken[n_taken++] = p->seconds;
        case_check(!p->core, "a core file");
        case_check(p->n_left == 0, "%d processes are left running", p->n_left);
        process_free(p);
    }
    case_end();
    (void)snprintf(path, sizeof path, "%s/model.safetensors", r->dir);
    (void)rmdir(path); /* one case has a folder there */
    files_remove_dir(r->dir);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Checks the median: of two dozen jobs at once, on a possibly busy machine, some wait for seconds. */
static void check_times(void)
{
    qsort(taken, (size_t)n_taken, sizeof taken[0], by_value);
    case_begin("half of the starts end within seconds");
    printf("# %d starts: median %.1f s, longest %.1f s\n", n_taken, taken[n_taken / 2], taken[n_taken - 1]);
    case_check(process_in_time(taken[n_taken / 2], PROMPT), "the median is %.1f s", taken[n_taken / 2]);
    case_end();
}

void bad_start_run(const struct bad_start *cases, int n)
{
    static struct running ring[AT_ONCE];
    taken = calloc((size_t)n, 2 * sizeof *taken);
    n_taken = 0;
    for (int i = 0; i < n + AT_ONCE; i++) {
        if (i >= AT_ONCE && i - AT_ONCE < n)
            finish(&ring[i % AT_ONCE]);
        if (i < n)
            start_case(&ring[i % AT_ONCE], &cases[i]);
    }
    check_times();
    free(taken);
}
