/* tests/gpu/fail_nccl.c - preloaded into the ranks, in front of NCCL's function of that name: on rank $FAIL_NCCL_RANK
 * it reports an error of NCCL's own when a thread other than the main one calls it for the third time. NCCL's own
 * calls, when it opens things, get the true result. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

enum { REMOTE_ERROR = 6 }; /* value in ncclResult_t */

int ncclCommGetAsyncError(void *comm, int *state)
{
    static _Thread_local int n_asked;
    const char *chosen = getenv("FAIL_NCCL_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    int (*next)(void *, int *) = (int (*)(void *, int *))dlsym(RTLD_NEXT, "ncclCommGetAsyncError");
    int rc = next(comm, state);
    if (gettid() != getpid() && ++n_asked > 2 && chosen != NULL && rank != NULL && atoi(chosen) == atoi(rank))
        *state = REMOTE_ERROR;
    return rc;
}
