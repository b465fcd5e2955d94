/* base/progress.c - see progress.h. */
#include "base/progress.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_CELLS 24

#define NAME_BYTES 64

/* Reads a file of /proc about the parent process. Returns the number of bytes, and ends them with a NUL. */
static size_t read_of_parent(const char *file, char *text, size_t bytes)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)getppid(), file);
    FILE *f = fopen(path, "re");
    size_t n = f != NULL ? fread(text, 1, bytes - 1, f) : 0;
    if (f != NULL)
        (void)fclose(f);
    text[n] = '\0';
    return n;
}

/* The name of the parent, if it is the launcher that started this process directly. Slurm's step daemon copies the
 * output to srun, which has no file descriptor here, so no terminal is assumed. */
static bool parent_is_launcher(char name[NAME_BYTES])
{
    static const char *const names[] = {"mpirun", "orterun", "mpiexec", "prterun", "orted", "prted", "slurmstepd"};
    (void)read_of_parent("comm", name, NAME_BYTES);
    name[strcspn(name, "\n")] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i], 15) == 0)
            return true;
    return false;
}

/* Open MPI 5's launcher forwards the beginning of a line to whichever stream its process writes to next, unless it was
 * started with --output :raw (seen with 5.0.7). */
static bool launcher_mixes_streams(void)
{
    char name[NAME_BYTES], line[4096];
    if (!parent_is_launcher(name) || strncmp(name, "prte", 4) != 0)
        return false;
    size_t n = read_of_parent("cmdline", line, sizeof line);
    for (size_t at = 0; at < n; at += strlen(line + at) + 1)
        if (strcmp(line + at, "--output") == 0 && at + strlen("--output") + 1 < n)
            return strcasestr(line + at + strlen("--output") + 1, ":raw") == NULL;
    return true;
}

bool terminal_behind(int fd)
{
    char name[NAME_BYTES], path[64], target[64];
    if (!parent_is_launcher(name))
        return isatty(fd) == 1;
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getppid(), fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return false;
    target[n] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0 ||
           strcmp(target, "/dev/console") == 0;
}

/* "1.25 GiB" or "17 prompts" */
static void quantity(char *text, size_t bytes, double n, const char *unit)
{
    static const char *const prefix[] = {"", "Ki", "Mi", "Gi", "Ti"};
    int i = 0;
    if (strcmp(unit, "B") != 0) {
        (void)snprintf(text, bytes, n < 10 && n != floor(n) ? "%.1f %s" : "%.0f %s", n, unit);
        return;
    }
    for (; n >= 1024 && i < 4; i++)
        n /= 1024;
    (void)snprintf(text, bytes, i == 0 ? "%.0f %sB" : "%.2f %sB", n, prefix[i]);
}

void progress_open(struct progress *p, enum progress_mode mode, const char *what, const char *unit, uint64_t total)
{
    *p = (struct progress){.what = what, .unit = unit, .total = total, .started = seconds_now()};
    p->shown = mode == PROGRESS_ALWAYS ||
               (mode == PROGRESS_AUTO && terminal_behind(STDERR_FILENO) && !launcher_mixes_streams());
}

void progress_update(struct progress *p, uint64_t done, const char *note)
{
    double now = seconds_now();
    if (!p->shown || (done < p->total && now - p->drawn < 0.1))
        return;
    p->drawn = now;
    char bar[BAR_CELLS + 1], have[32], all[32], rate[32];
    double part = p->total > 0 ? (double)done / (double)p->total : 1.0, elapsed = now - p->started;
    int cells = (int)(part * BAR_CELLS);
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < cells ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    quantity(have, sizeof have, (double)done, p->unit);
    quantity(all, sizeof all, (double)p->total, p->unit);
    quantity(rate, sizeof rate, elapsed > 0 && done > p->before ? (double)(done - p->before) / elapsed : 0.0, p->unit);
    (void)fprintf(stderr, "\r%s [%s] %3.0f%%  %s of %s  %s/s%s%s\x1b[K", p->what, bar, 100 * part, have, all, rate,
                  note != NULL ? "  " : "", note != NULL ? note : "");
    (void)fflush(stderr);
}

void progress_clear(struct progress *p)
{
    if (p->shown)
        (void)fputs("\r\x1b[K", stderr);
    p->drawn = 0;
}

void progress_close(struct progress *p)
{
    progress_clear(p);
    p->shown = false;
}
