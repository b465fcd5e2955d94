/* rank/watch/lifeline.c - see lifeline.h. A star with rank 0 at the centre. All messages have one size; a rank sends
 * its state when the previous one has been answered, so that the connection to a stopped process does not fill up. */
#include "rank/watch/lifeline.h"
#include "base/clock.h"
#include "base/log.h"
#include "rank/watch/lifeline_connect.h"
#include "rank/world/fatal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BEAT_SECONDS 0.25

struct lifeline_end {
    int fd; /* -1: none, or no longer */
    bool heard, left, asked, ended, lost;
    double beat;                 /* when this rank sent its state last */
    size_t got;                  /* bytes of `in` */
    struct lifeline_message in;  /* the message that is being received */
    struct lifeline_state state; /* the newest state received */
};

struct lifeline {
    int rank, n_ends; /* of rank 0: all ranks; of others: rank 0 */
    int wake;         /* eventfd */
    uint64_t token[2];
    void (*tell)(void *context, struct lifeline_state *state);
    void *context;
    struct lifeline_end *end; /* [n_ends] by rank */
    struct pollfd *poll;      /* [n_ends + 1] the thread's; the last one is `wake` */
};

/* Sends a message in one call, so that it never mixes with another thread's. If the socket is full, the other side is
 * stopped and gets a later message. */
static void send_message(const struct lifeline *l, const struct lifeline_end *p, enum lifeline_kind kind,
                         const struct lifeline_state *state)
{
    struct lifeline_message m = {.token = {l->token[0], l->token[1]}, .kind = (int32_t)kind, .rank = l->rank};
    if (state != NULL)
        m.state = *state;
    if (p->fd >= 0)
        (void)send(p->fd, &m, sizeof m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void take_message(struct lifeline *l, struct lifeline_end *p)
{
    struct lifeline_state mine;
    if (p->in.kind == LIFELINE_LEAVING) {
        p->left = true;
        return;
    }
    p->state = p->in.state;
    p->heard = true;
    p->asked = false;
    if (l->rank == 0) {
        l->tell(l->context, &mine);
        send_message(l, p, LIFELINE_BEAT, &mine);
    }
}

static void drop(struct lifeline_end *p, bool lost)
{
    (void)close(p->fd);
    p->fd = -1;
    p->ended = !lost;
    p->lost = lost;
}

/* Reads available data. The kernel's error tells whether a process has ended or a host does not answer. */
static void serve_end(struct lifeline *l, struct lifeline_end *p)
{
    for (;;) {
        ssize_t n = recv(p->fd, (char *)&p->in + p->got, sizeof p->in - p->got, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            drop(p, n < 0 && errno != ECONNRESET && errno != EPIPE);
            return;
        }
        p->got += (size_t)n;
        if (p->got < sizeof p->in)
            continue;
        p->got = 0;
        take_message(l, p);
    }
}

static void send_beat(struct lifeline *l, double now)
{
    struct lifeline_state mine;
    struct lifeline_end *p = &l->end[0];
    if (l->rank == 0 || p->fd < 0 || p->asked || now < p->beat + BEAT_SECONDS)
        return;
    l->tell(l->context, &mine);
    send_message(l, p, LIFELINE_BEAT, &mine);
    p->beat = now;
    p->asked = true;
}

/* The next rank that is gone and has not been reported. */
static enum lifeline_event report(struct lifeline *l, int *rank)
{
    for (int r = 0; r < l->n_ends; r++) {
        struct lifeline_end *p = &l->end[r];
        enum lifeline_event event = p->ended ? LIFELINE_ENDED : p->lost ? LIFELINE_LOST : LIFELINE_TIME;
        p->ended = p->lost = false;
        *rank = r;
        if (event != LIFELINE_TIME)
            return event;
    }
    return LIFELINE_TIME;
}

enum lifeline_event lifeline_wait(struct lifeline *l, double seconds, int *rank)
{
    double end = seconds_now() + seconds;
    for (;;) {
        double now = seconds_now(), left = end - now < BEAT_SECONDS ? end - now : BEAT_SECONDS;
        uint64_t woken;
        send_beat(l, now);
        enum lifeline_event event = report(l, rank);
        if (event != LIFELINE_TIME || left <= 0)
            return event;
        for (int r = 0; r < l->n_ends; r++)
            l->poll[r] = (struct pollfd){.fd = l->end[r].fd, .events = POLLIN};
        l->poll[l->n_ends] = (struct pollfd){.fd = l->wake, .events = POLLIN};
        if (poll(l->poll, (nfds_t)l->n_ends + 1, (int)(1000 * left) + 1) < 0)
            continue; /* a signal */
        if (l->poll[l->n_ends].revents != 0 && read(l->wake, &woken, sizeof woken) > 0)
            return LIFELINE_WOKEN;
        for (int r = 0; r < l->n_ends; r++)
            if (l->poll[r].revents != 0)
                serve_end(l, &l->end[r]);
    }
}

bool lifeline_heard(const struct lifeline *l, int rank, struct lifeline_state *state)
{
    if (rank >= l->n_ends || !l->end[rank].heard)
        return false;
    *state = l->end[rank].state;
    return true;
}

bool lifeline_left(const struct lifeline *l, int rank)
{
    return rank < l->n_ends && l->end[rank].left;
}

void lifeline_wake(struct lifeline *l)
{
    uint64_t one = 1;
    (void)!write(l->wake, &one, sizeof one);
}

void lifeline_leave(const struct lifeline *l)
{
    int kept = errno;
    for (int r = 0; r < l->n_ends; r++)
        send_message(l, &l->end[r], LIFELINE_LEAVING, NULL);
    errno = kept;
}

/* ---- opening and closing ---- */

/* Every rank learns which ranks could not connect; rank 0 prints the warning. */
static void say_unreached(const struct lifeline *l, const struct world *w, const struct lifeline_invitation *i,
                          const int *reached)
{
    char addresses[200];
    int n = 0, first = -1;
    for (int r = w->n_job_ranks - 1; r > 0; r--)
        if (!reached[r]) {
            n++;
            first = r;
            if (l->rank == 0 && l->end[r].fd >= 0)
                (void)close(l->end[r].fd);
            if (l->rank == 0)
                l->end[r].fd = -1;
        }
    lifeline_addresses(addresses, sizeof addresses, i);
    if (n > 0)
        log_warn("%d rank%s, rank %d first, cannot reach rank 0 at %s: only the launcher and --step-timeout can detect "
                 "their loss",
                 n, n == 1 ? "" : "s", first, addresses);
}

static void connect_star(struct lifeline *l, const struct world *w, int *reached, int *fds)
{
    struct lifeline_invitation invitation = {0};
    struct lifeline_listener listener;
    int root = w->job_rank, mine = 1;
    MPI_CHECK(MPI_Bcast(&root, 1, MPI_INT, 0, w->node));
    if (w->job_rank == 0)
        lifeline_listen(&listener, &invitation, w->n_node_ranks < w->n_job_ranks);
    MPI_CHECK(MPI_Bcast(&invitation, sizeof invitation, MPI_BYTE, 0, w->job));
    memcpy(l->token, invitation.token, sizeof l->token);
    if (w->job_rank == 0) {
        lifeline_accept(&listener, &invitation, fds, w->n_job_ranks);
        for (int r = 1; r < w->n_job_ranks; r++)
            l->end[r].fd = fds[r];
    } else {
        l->end[0].fd = lifeline_connect(&invitation, w->job_rank, root == 0);
        mine = l->end[0].fd >= 0;
    }
    MPI_CHECK(MPI_Allgather(&mine, 1, MPI_INT, reached, 1, MPI_INT, w->job));
    say_unreached(l, w, &invitation, reached);
}

int lifeline_open(struct lifeline **line, const struct world *w, void (*state)(void *context, struct lifeline_state *),
                  void *context, struct err *e)
{
    *line = NULL;
    struct lifeline *l = err_calloc(e, 1, sizeof *l, "lifeline");
    int *scratch = err_calloc(e, 2 * (size_t)w->n_job_ranks, sizeof *scratch, "lifeline");
    if (l != NULL) {
        *l = (struct lifeline){.rank = w->job_rank,
                               .n_ends = w->job_rank == 0 ? w->n_job_ranks : 1,
                               .wake = -1,
                               .tell = state,
                               .context = context};
        l->end = err_calloc(e, (size_t)l->n_ends, sizeof *l->end, "lifeline");
        l->poll = err_calloc(e, (size_t)l->n_ends + 1, sizeof *l->poll, "lifeline");
        l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (l->wake < 0)
            ERR(e, ERR_IO, "cannot create an eventfd for the watch: %s", strerror(errno));
    }
    fatal_agree((struct world *)w, e);
    if (l == NULL || l->end == NULL || scratch == NULL)
        return -1; /* not reached: agreed above */
    for (int r = 0; r < l->n_ends; r++)
        l->end[r].fd = -1;
    if (w->n_job_ranks > 1)
        connect_star(l, w, scratch, scratch + w->n_job_ranks);
    free(scratch);
    *line = l;
    return 0;
}

void lifeline_close(struct lifeline **line)
{
    struct lifeline *l = *line;
    if (l == NULL)
        return;
    for (int r = 0; r < l->n_ends; r++)
        if (l->end[r].fd >= 0)
            (void)close(l->end[r].fd);
    (void)close(l->wake);
    free(l->end);
    free(l->poll);
    free(l);
    *line = NULL;
}
