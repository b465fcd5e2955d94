/* tests/support/process.c - see process.h. */
#include "tests/support/process.h"
#include "base/clock.h"
#include "tests/support/core_file.h"
#include "tests/support/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Ranks may outlive the launcher by this time: those of a killed one notice within about a second. */
#define LEFT_SECONDS 5

#define MAX_ACTIVE    32
#define MAX_ARGUMENTS 80 /* including those that mpirun needs for the last rank */

static struct process *active[MAX_ACTIVE];

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(99);
}

bool process_sanitized(void)
{
    return getenv("LOCKSTEP_SANITIZED") != NULL;
}

#define MOST_NOW 10 /* processes that want a core at a moment, as far as they count */

/* Returns the number of processes that want each core or wait for a disk: over the last minute or now, whichever is
 * more. Hundreds at a moment, such as a test's clients, are gone soon, while a test may wait as long as its
 * patience. */
static double crowding(void)
{
    double minute = 0, now = 0, cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    FILE *f = fopen("/proc/loadavg", "r");
    if (f != NULL && fscanf(f, "%lf %*f %*f %lf/", &minute, &now) != 2)
        minute = now = 0;
    if (f != NULL)
        (void)fclose(f);
    double each = fmax(minute / cores, fmin(now / cores, MOST_NOW));
    return fmax(each, 1);
}

double process_patience(double seconds)
{
    return seconds * crowding();
}

void process_delay_kill(double by)
{
    char seconds[16];
    (void)snprintf(seconds, sizeof seconds, "%.0f", process_patience(by));
    if (by > 0)
        (void)setenv("OMPI_MCA_odls_base_sigkill_timeout", seconds, 1);
    else
        (void)unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
}

bool process_in_time(double seconds, double most)
{
    return process_sanitized() || seconds < 4 * most * crowding();
}

double process_cpu_seconds(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
        die("clock_gettime");
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double process_resident(pid_t pid)
{
    unsigned long long kib = 0;
    char line[128], path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmRSS: %llu kB", &kib) == 1)
            break;
    if (f != NULL)
        (void)fclose(f);
    return 1024.0 * (double)kib;
}

int process_count_lines(const char *text)
{
    int n = 0;
    for (const char *c = text; *c != '\0'; c++)
        n += *c == '\n' || c[1] == '\0';
    return n;
}

/* Sets the variables that tests/run.sh exports, for a test that is started by hand. */
static void set_environment(void)
{
    if (getuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    setenv("OMPI_MCA_btl", "self,vader", 0);
    setenv("OMPI_MCA_pml", "ob1", 0);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    setenv("OMPI_MCA_orte_execute_quiet", "1", 0); /* mpirun -q, which Open MPI 5 no longer has */
    setenv("PRTE_MCA_hwloc_default_binding_policy", "none", 0);
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
}

/* Returns the path of lockstep, or of the program of this name beside it. */
static const char *binary(const char *other)
{
    static char path[PATH_MAX], beside[PATH_MAX];
    const char *given = getenv("LOCKSTEP_BINARY");
    if (realpath(given != NULL ? given : "build/cpu/lockstep", path) == NULL)
        die("LOCKSTEP_BINARY");
    if (other == NULL)
        return path;
    if (snprintf(beside, sizeof beside, "%.*s%s", (int)(strrchr(path, '/') + 1 - path), path, other) >=
        (int)sizeof beside)
        die(other);
    return beside;
}

/* Opens a pipe, or a pseudo terminal in raw mode: the end that is read here, and the other one. */
static void open_channel(bool terminal, int end[2])
{
    if (!terminal) {
        if (pipe2(end, O_CLOEXEC) != 0)
            die("pipe2");
    } else {
        struct termios raw;
        end[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (end[0] < 0 || grantpt(end[0]) != 0 || unlockpt(end[0]) != 0)
            die("posix_openpt");
        end[1] = open(ptsname(end[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (end[1] < 0 || tcgetattr(end[1], &raw) != 0)
            die("ptsname");
        cfmakeraw(&raw);
        (void)tcsetattr(end[1], TCSANOW, &raw);
    }
    (void)fcntl(end[0], F_SETFL, O_NONBLOCK);
}

static int open_input(const struct process *p, const char *input)
{
    if (input == NULL)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    char path[300];
    files_write(p->dir, "input", input, strlen(input));
    (void)snprintf(path, sizeof path, "%s/input", p->dir);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int list_program(const char **argv, int n, const struct process_setup *s, const char *const *arguments)
{
    argv[n++] = binary(s->program);
    while (*arguments != NULL && n < MAX_ARGUMENTS)
        argv[n++] = *arguments++;
    return n;
}

/* Lists mpirun's arguments for this number of ranks. */
static int list_ranks(const char **argv, int n, const struct process_setup *s, const char *ranks)
{
    argv[n++] = "-n";
    argv[n++] = ranks;
    for (const char *const *env = s->env; env != NULL && *env != NULL; env++) {
        argv[n++] = "-x";
        argv[n++] = *env;
    }
    return n;
}

/* Lists a shell that gives the last rank its variable: Open MPI 5.0.7's mpirun dies of a second context (":"). */
static int list_last(const char **argv, int n, const struct process_setup *s)
{
    static char script[300];
    (void)snprintf(script, sizeof script, "[ \"$OMPI_COMM_WORLD_RANK\" != %d ] || export '%s'; exec \"$@\"",
                   s->ranks - 1, s->last_env);
    const char *const shell[] = {"sh", "-c", script, "sh"};
    for (size_t i = 0; i < sizeof shell / sizeof shell[0]; i++)
        argv[n++] = shell[i];
    return n;
}

bool process_has_open_mpi_5(void)
{
    static int known = -1;
    if (known < 0) {
        char line[128] = "";
        FILE *f = popen("mpirun --version 2>/dev/null", "re"); /* NOLINT(cert-env33-c): a test's own command */
        if (f != NULL && fgets(line, sizeof line, f) == NULL)
            line[0] = '\0';
        if (f != NULL)
            (void)pclose(f);
        known = strstr(line, "(Open MPI) 5.") != NULL;
    }
    return known == 1;
}

static void list_arguments(const char **argv, const struct process_setup *s, char *ranks, size_t ranks_bytes,
                           const char *const *arguments)
{
    /* Open MPI 5 mixes the streams of a rank unless it is told not to (base/progress.c). */
    static const char *const launcher[] = {"mpirun", "--oversubscribe", "--output", ":raw"};
    int n = 0, n_launcher = process_has_open_mpi_5() ? 4 : 2;
    (void)snprintf(ranks, ranks_bytes, "%d", s->ranks);
    for (int i = 0; s->ranks > 0 && i < n_launcher; i++)
        argv[n++] = launcher[i];
    if (s->ranks > 0)
        n = list_ranks(argv, n, s, ranks);
    if (s->last_env != NULL)
        n = list_last(argv, n, s);
    n = list_program(argv, n, s, arguments);
    argv[n] = NULL;
}

static _Noreturn void become(const struct process *p, const struct process_setup *s, bool lone, const char *const *argv,
                             const int fd[3])
{
    struct rlimit core;
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* ends the job of a test that is killed */
    if (chdir(p->dir) != 0 || dup2(fd[0], 0) != 0 || dup2(fd[1], 1) != 1 || dup2(fd[2], 2) != 2)
        _exit(126);
    if (getrlimit(RLIMIT_CORE, &core) == 0) {
        core.rlim_cur = core.rlim_max;
        (void)setrlimit(RLIMIT_CORE, &core);
    }
    set_environment();
    if (lone) /* after a failure, mpirun would wait two seconds for the end of other ranks */
        setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
    setenv("LOCKSTEP_TEST_MARK", p->mark, 1);
    for (const char *const *env = s->ranks == 0 ? s->env : NULL; env != NULL && *env != NULL; env++)
        (void)putenv((char *)*env);
    (void)execvp(argv[0], (char *const *)argv);
    perror(argv[0]);
    _exit(127);
}

/* lone: no process is signalled, and none must be ended with another. */
static void start_process(struct process *p, const struct process_setup *s, bool lone, const char *const *arguments)
{
    static int number;
    const char *argv[MAX_ARGUMENTS + 32];
    char ranks[16];
    int out[2], err[2], slot = 0;
    memset(p, 0, sizeof *p);
    (void)snprintf(p->mark, sizeof p->mark, "%d-%d-%ld", (int)getpid(), ++number, (long)(seconds_now() * 1e6));
    files_make_dir(p->dir);
    p->limit = process_patience(s->limit > 0 ? s->limit : 60);
    open_channel(s->terminal[PROCESS_OUT], out);
    open_channel(s->terminal[PROCESS_ERR], err);
    if (s->out_path != NULL) {
        (void)close(out[1]);
        out[1] = open(s->out_path, O_WRONLY | O_CLOEXEC);
    }
    const int fd[3] = {open_input(p, s->input), out[1], err[1]};
    if (fd[0] < 0 || fd[1] < 0)
        die("open");
    list_arguments(argv, s, ranks, sizeof ranks, arguments);
    (void)fflush(stdout);
    p->started = seconds_now();
    p->pid = fork();
    if (p->pid < 0)
        die("fork");
    if (p->pid == 0)
        become(p, s, lone, argv, fd);
    for (int i = 0; i < 3; i++)
        (void)close(fd[i]);
    p->fd[PROCESS_OUT] = out[0];
    p->fd[PROCESS_ERR] = err[0];
    while (slot < MAX_ACTIVE && active[slot] != NULL)
        slot++;
    if (slot == MAX_ACTIVE)
        die("too many processes at once");
    active[slot] = p;
}

void process_start(struct process *p, const struct process_setup *s, const char *const *arguments)
{
    start_process(p, s, false, arguments);
}

/* Reads the available output; closes the channel at its end. */
static void drain(struct process *p, int k)
{
    char piece[65536];
    while (p->fd[k] >= 0) {
        ssize_t n = read(p->fd[k], piece, sizeof piece);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            (void)close(p->fd[k]);
            p->fd[k] = -1;
            return;
        }
        if (k == PROCESS_OUT && p->bytes[k] == 0)
            p->first_output = seconds_now() - p->started;
        p->text[k] = realloc(p->text[k], p->bytes[k] + (size_t)n + 1);
        if (p->text[k] == NULL)
            die("realloc");
        memcpy(p->text[k] + p->bytes[k], piece, (size_t)n);
        p->bytes[k] += (size_t)n;
        p->n_pieces += k == PROCESS_OUT;
        p->text[k][p->bytes[k]] = '\0';
    }
}

/* Tells whether /proc/PID/environ contains the mark. A zombie has none. */
static bool has_mark(int pid, const char *mark, int rank)
{
    static char text[1 << 18];
    char path[64], want[100], want_rank[64];
    (void)snprintf(path, sizeof path, "/proc/%d/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t bytes = 0;
    for (ssize_t n; bytes + 1 < sizeof text && (n = read(fd, text + bytes, sizeof text - 1 - bytes)) > 0;)
        bytes += (size_t)n;
    text[bytes] = '\0';
    (void)close(fd);
    (void)snprintf(want, sizeof want, "LOCKSTEP_TEST_MARK=%s", mark);
    (void)snprintf(want_rank, sizeof want_rank, "OMPI_COMM_WORLD_RANK=%d", rank);
    bool marked = false, ranked = rank < 0;
    for (const char *at = text; at < text + bytes; at += strlen(at) + 1) {
        marked = marked || strcmp(at, want) == 0;
        ranked = ranked || strcmp(at, want_rank) == 0;
    }
    return marked && ranked;
}

/* Counts marked processes (of that rank, if rank >= 0); *last is one of them. */
static int count_marked(const struct process *p, int rank, pid_t *last, bool kill_them)
{
    int n = 0;
    DIR *d = opendir("/proc");
    if (d == NULL)
        die("/proc");
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        int pid = atoi(entry->d_name);
        if (pid <= 0 || pid == getpid() || !has_mark(pid, p->mark, rank))
            continue;
        n++;
        *last = pid;
        if (kill_them)
            (void)kill(pid, SIGKILL);
    }
    closedir(d);
    return n;
}

pid_t process_of_rank(const struct process *p, int rank)
{
    pid_t pid = 0;
    (void)count_marked(p, rank, &pid, false);
    return pid;
}

bool process_signal_rank(const struct process *p, int rank, int number)
{
    pid_t pid = process_of_rank(p, rank);
    return pid > 0 && kill(pid, number) == 0; /* 0 would mean all processes of the test */
}

static void note_end(struct process *p, int status)
{
    p->seconds = seconds_now() - p->started;
    p->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    p->ended = true;
    for (int i = 0; i < MAX_ACTIVE; i++)
        if (active[i] == p)
            active[i] = NULL;
}

/* Moves output and notices ends of all processes, waiting up to 20 ms. */
static void pump(void)
{
    struct pollfd fds[2 * MAX_ACTIVE];
    nfds_t n = 0;
    for (int i = 0; i < MAX_ACTIVE; i++)
        for (int k = 0; k < 2 && active[i] != NULL; k++)
            if (active[i]->fd[k] >= 0)
                fds[n++] = (struct pollfd){.fd = active[i]->fd[k], .events = POLLIN};
    if (poll(fds, n, n > 0 ? 20 : 5) < 0 && errno != EINTR)
        die("poll");
    for (int i = 0; i < MAX_ACTIVE; i++) {
        struct process *p = active[i];
        int status = 0;
        pid_t ignored;
        if (p == NULL)
            continue;
        drain(p, PROCESS_OUT);
        drain(p, PROCESS_ERR);
        if (!p->timed_out && seconds_now() - p->started > p->limit) {
            p->timed_out = true;
            (void)count_marked(p, -1, &ignored, true);
        }
        if (waitpid(p->pid, &status, WNOHANG) == p->pid)
            note_end(p, status);
    }
}

/* Removes from text the page, between lines of dashes, whose first line is at `said`. */
static void drop_page(const char *text, char *said)
{
    char *begin = said - 1, *end = strstr(said, "\n----");
    while (begin > text && begin[-1] == '-')
        begin--;
    end = end != NULL ? end + 1 + strspn(end + 1, "-") : said + strlen(said);
    end += *end == '\n';
    memmove(begin, end, strlen(end) + 1);
}

/* Removes each line that contains `mark`. */
static void drop_lines(char *text, const char *mark)
{
    for (char *at; (at = strstr(text, mark)) != NULL;) {
        while (at > text && at[-1] != '\n')
            at--;
        char *end = strchrnul(at, '\n');
        end += *end == '\n';
        memmove(at, end, strlen(end) + 1);
    }
}

/* Open MPI 5 cannot be told to be quiet: pages, the zero byte after a page, and lines that its mpirun adds after a rank
 * has failed are not part of the test. */
static void drop_words_of_open_mpi_5(char *text, size_t *bytes)
{
    static const char *const pages[] = {"-\nprterun detected that", "-\nprterun has exited due to",
                                        "-\nprterun noticed that", "-\nMPI_ABORT was invoked"};
    size_t n = 0;
    for (size_t i = 0; i < *bytes; i++)
        if (text[i] != '\0')
            text[n++] = text[i];
    text[n] = '\0';
    drop_lines(text, "] PMIX ERROR: "); /* first: one may stand within a page */
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        for (char *said; (said = strstr(text, pages[i])) != NULL;)
            drop_page(text, said + 2);
    *bytes = strlen(text);
}

/* The event loop of any mpirun rarely warns that a rank's pipe was closed while it waited for it: "[warn] Epoll MOD(1)
 * on fd 25 failed. ...: Bad file descriptor". */
static void drop_words_of_launcher(char *text, size_t *bytes)
{
    if (process_has_open_mpi_5())
        drop_words_of_open_mpi_5(text, bytes);
    if (strstr(text, "[warn] Epoll ") == NULL)
        return;
    drop_lines(text, "[warn] Epoll ");
    *bytes = strlen(text);
}

void process_wait(struct process *p)
{
    pid_t ignored;
    while (!p->ended)
        pump();
    double ended = seconds_now();
    while ((p->n_left = count_marked(p, -1, &ignored, false)) > 0 && seconds_now() - ended < LEFT_SECONDS)
        pump();
    if (p->n_left > 0)
        (void)count_marked(p, -1, &ignored, true);
    for (int k = 0; k < 2; k++) {
        drain(p, k);
        if (p->fd[k] >= 0)
            (void)close(p->fd[k]);
        p->fd[k] = -1;
        if (p->text[k] == NULL)
            p->text[k] = calloc(1, 1);
    }
    drop_words_of_launcher(p->text[PROCESS_ERR], &p->bytes[PROCESS_ERR]);
    p->core = core_file_of_program(p->dir);
}

void process_run(struct process *p, const struct process_setup *s, const char *const *arguments)
{
    start_process(p, s, s->ranks == 1, arguments);
    process_wait(p);
}

void process_watch(struct process *p, double seconds, size_t bytes)
{
    double started = seconds_now();
    while (!p->ended && p->bytes[PROCESS_OUT] < bytes && seconds_now() - started < seconds)
        pump();
}

void process_close_output(struct process *p)
{
    if (p->fd[PROCESS_OUT] >= 0)
        (void)close(p->fd[PROCESS_OUT]);
    p->fd[PROCESS_OUT] = -1;
}

void process_free(struct process *p)
{
    free(p->text[PROCESS_OUT]);
    free(p->text[PROCESS_ERR]);
    files_remove_dir(p->dir);
    memset(p, 0, sizeof *p);
}
