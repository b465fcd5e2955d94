/* tests/support/process.h - runs lockstep, alone or under mpirun, and collects its output. Several may run at once:
 * process_wait reads the output of all of them. */
#ifndef TESTS_SUPPORT_PROCESS_H
#define TESTS_SUPPORT_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { PROCESS_OUT, PROCESS_ERR };

struct process_setup {
    const char *program;    /* beside lockstep: "lockstep-client"; NULL: lockstep */
    int ranks;              /* of mpirun; 0: the program alone */
    const char *input;      /* standard input; NULL: /dev/null */
    const char *out_path;   /* file for standard output, e.g. /dev/full; NULL: it is collected */
    bool terminal[2];       /* PROCESS_OUT, PROCESS_ERR: a pseudo terminal, else a pipe */
    const char *const *env; /* "NAME=value", ..., NULL: for the ranks only, not for mpirun */
    const char *last_env;   /* "NAME=value" for the last rank alone */
    double limit;           /* seconds until it is killed; 0: 60 */
};

struct process {
    pid_t pid;
    int fd[2];     /* PROCESS_OUT, PROCESS_ERR; -1: at its end */
    char *text[2]; /* NUL-terminated */
    size_t bytes[2];
    int n_pieces; /* pieces in which standard output arrived */
    double started, limit;
    double first_output; /* seconds from the start to the first byte on standard output */
    double seconds;      /* from the start to the end */
    int status;          /* exit status; 128 + n for signal n */
    bool ended, timed_out, core;
    int n_left;    /* processes of the job that were alive a second after its end; they were killed */
    char mark[64]; /* in the environment of all its processes */
    char dir[256]; /* its working directory: a new folder, in which a core file would appear (core: core_file.h) */
};

/* arguments: the program's, NULL at the end. */
void process_start(struct process *p, const struct process_setup *s, const char *const *arguments);
void process_run(struct process *p, const struct process_setup *s, const char *const *arguments);
void process_wait(struct process *p);
void process_free(struct process *p);

/* Moves output for this long, or until the process has written `bytes` to standard output. */
void process_watch(struct process *p, double seconds, size_t bytes);

/* Closes the reading end of standard output, as a reader that leaves. */
void process_close_output(struct process *p);

/* Returns the process id of a rank; 0: there is none. */
pid_t process_of_rank(const struct process *p, int rank);

/* Sends a rank a signal; false: there is no such process. */
bool process_signal_rank(const struct process *p, int rank, int number);

int process_count_lines(const char *text);

/* Open MPI 4's mpirun passes SIGTERM on a second later, and kills its ranks after another second. If by > 0, the mpirun
 * of the jobs that start next instead waits each time for `by` seconds, times the number of processes that want each
 * core. */
void process_delay_kill(double by);

/* Tells whether the program is built with sanitizers (LOCKSTEP_SANITIZED). Times are meaningless then. */
bool process_sanitized(void);

/* Tells whether this duration is acceptable, if `most` seconds are the limit on an idle machine. The limit is four
 * times that, times the number of processes that want each core (/proc/loadavg): other work, or a busy disk, must not
 * fail a test; a hang takes longer. */
bool process_in_time(double seconds, double most);

/* Returns the time to wait for an event before giving up, extended on a busy machine: `seconds` times the number of
 * processes that want each core. */
double process_patience(double seconds);

/* Returns the processor time of this process, all threads together, in seconds: other work on the machine does not
 * count. */
double process_cpu_seconds(void);

/* Returns the resident memory of a process, in bytes; 0: unknown. */
double process_resident(pid_t pid);

/* Tells whether mpirun is that of Open MPI 5, whose launcher is prterun. */
bool process_has_open_mpi_5(void);

#endif
