/* base/progress.h - a progress bar on standard error; silent without a terminal. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_mode { PROGRESS_AUTO, PROGRESS_ALWAYS, PROGRESS_NEVER };

struct progress {
    bool shown;
    const char *what; /* borrowed: "loading" */
    const char *unit; /* "B": shown as KiB, MiB, ..; else a plain count of these, e.g. "prompts" */
    uint64_t total;
    uint64_t before;       /* done before the bar began: not part of the rate */
    double started, drawn; /* seconds, monotonic */
};

/* Whether there is a terminal behind this descriptor. Under mpirun, whose ranks write into a pseudo terminal or a pipe
 * that mpirun copies, mpirun's own descriptor counts. */
bool terminal_behind(int fd);

void progress_open(struct progress *p, enum progress_mode mode, const char *what, const char *unit, uint64_t total);

/* Draws at most ten times a second. `note` (may be NULL) follows the rate. */
void progress_update(struct progress *p, uint64_t done, const char *note);

/* Erase the bar so that a line can be printed; the next update draws it again. */
void progress_clear(struct progress *p);

/* Remove the bar for good. */
void progress_close(struct progress *p);

#endif
