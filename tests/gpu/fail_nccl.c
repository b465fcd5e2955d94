/* tests/gpu/fail_nccl.c - preloaded into the ranks, in place of NCCL's function of that name: on rank $FAIL_NCCL_RANK NCCL
 * knows of an error of its own from the second time on that it is asked. */
#include <stdlib.h>

enum { SUCCESS = 0, REMOTE_ERROR = 6 }; /* of ncclResult_t */

int ncclCommGetAsyncError(void *comm, int *state)
{
    static int n_asked;
    const char *chosen = getenv("FAIL_NCCL_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    (void)comm;
    *state = chosen != NULL && rank != NULL && atoi(chosen) == atoi(rank) && n_asked++ > 0 ? REMOTE_ERROR : SUCCESS;
    return SUCCESS;
}
