/* tests/gpu/fail_graph.c - preloaded into the ranks, in front of CUDA's function of that name: on rank $FAIL_GRAPH_RANK
 * no graph is launched, and the function returns a device error instead. */
#include <dlfcn.h>
#include <stdlib.h>

enum { ILLEGAL_ADDRESS = 700 }; /* value in cudaError_t */

int cudaGraphLaunch(void *graph, void *stream)
{
    const char *chosen = getenv("FAIL_GRAPH_RANK"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    int (*next)(void *, void *) = (int (*)(void *, void *))dlsym(RTLD_NEXT, "cudaGraphLaunch");
    if (chosen != NULL && rank != NULL && atoi(chosen) == atoi(rank))
        return ILLEGAL_ADDRESS;
    return next(graph, stream);
}
