/* coordinator/batch/child.c - see child.h. */
#include "coordinator/batch/child.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <features.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GONE_SECONDS 0.5 /* by then a killed child is gone, or not worth waiting for */

static int close_others(posix_spawn_file_actions_t *actions)
{
#if __GLIBC_PREREQ(2, 34)
    return posix_spawn_file_actions_addclosefrom_np(actions, STDERR_FILENO + 1);
#else /* descriptors without O_CLOEXEC stay open */
    (void)actions;
    return 0;
#endif
}

static int set_files(posix_spawn_file_actions_t *actions)
{
    int rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && rc == 0; fd++)
        rc = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_WRONLY, 0);
    return rc == 0 ? close_others(actions) : rc;
}

static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t all, none;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    int rc = posix_spawnattr_setsigdefault(attributes, &all);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(attributes, 0);
    return rc == 0 ? posix_spawnattr_setflags(attributes,
                                              POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP)
                   : rc;
}

int child_start(struct child *c, const char *const *argv, double now, double seconds, struct err *e)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    *c = (struct child){0};
    if (posix_spawn_file_actions_init(&actions) != 0 || posix_spawnattr_init(&attributes) != 0)
        return ERR(e, ERR_MEMORY, "%s: out of host memory", argv[0]); /* glibc's never fail */
    int rc = set_files(&actions);
    if (rc == 0)
        rc = set_signals(&attributes);
    if (rc == 0) /* posix_spawnp takes char *const *, but changes nothing */
        rc = posix_spawnp(&c->pid, argv[0], &actions, &attributes, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    if (rc == 0) {
        c->until = now + seconds;
        return 0;
    }
    *c = (struct child){0};
    return ERR(e, ERR_IO, "%s: cannot start: %s", argv[0], strerror(rc));
}

/* Never blocks, since even a killed child lives on while it waits for a file system. */
bool child_ended(struct child *c, double now, int *status)
{
    int how = 0;
    if (c->pid == 0)
        return false;
    if (now > c->until)
        (void)kill(c->pid, SIGKILL);
    pid_t ended = waitpid(c->pid, &how, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR))
        return false;
    *status = ended < 0 ? 127 : WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    *c = (struct child){0};
    return true;
}

int child_wait(struct child *c)
{
    const struct timespec nap = {0, 2000000};
    int status = 128 + SIGKILL;
    for (double now; c->pid != 0; (void)nanosleep(&nap, NULL)) {
        now = seconds_now();
        if (child_ended(c, now, &status) || now > c->until + GONE_SECONDS)
            break;
    }
    *c = (struct child){0};
    return status;
}
