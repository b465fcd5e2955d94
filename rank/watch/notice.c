/* rank/watch/notice.c - see notice.h. */
#include "rank/watch/notice.h"
#include "rank/world/fatal.h"

#define TAG 17

static void listen(struct notice *n)
{
    MPI_CHECK(MPI_Irecv(&n->wish, 1, MPI_INT, MPI_ANY_SOURCE, TAG, n->world->job, &n->request));
}

void notice_open(struct notice *n, const struct world *w)
{
    *n = (struct notice){.world = w, .request = MPI_REQUEST_NULL};
    if (w->job_rank == 0 && w->n_job_ranks > 1)
        listen(n);
}

void notice_tell(struct notice *n)
{
    int sent = 1;
    if (!signals_pending())
        return;
    MPI_CHECK(MPI_Test(&n->request, &sent, MPI_STATUS_IGNORE));
    if (!sent) /* the previous one is still being sent: this one waits in its pipe */
        return;
    n->wish = (int)signals_take();
    MPI_CHECK(MPI_Isend(&n->wish, 1, MPI_INT, 0, TAG, n->world->job, &n->request));
}

enum signal_wish notice_hear(struct notice *n)
{
    int came = 0;
    if (n->request == MPI_REQUEST_NULL)
        return WISH_NONE;
    MPI_CHECK(MPI_Test(&n->request, &came, MPI_STATUS_IGNORE));
    if (!came)
        return WISH_NONE;
    enum signal_wish wish = (enum signal_wish)n->wish;
    listen(n);
    return wish;
}

void notice_close(struct notice *n)
{
    if (n->request == MPI_REQUEST_NULL)
        return;
    if (n->world->job_rank == 0)
        MPI_CHECK(MPI_Cancel(&n->request));
    MPI_CHECK(MPI_Wait(&n->request, MPI_STATUS_IGNORE));
}
