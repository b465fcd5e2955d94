/* tests/support/digest.c - see digest.h. */
#include "tests/support/digest.h"
#include "rank/world/fatal.h"

#include <mpi.h>

uint64_t digest_add(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

bool digest_same_everywhere(uint64_t hash)
{
    uint64_t low, high;
    MPI_CHECK(MPI_Allreduce(&hash, &low, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD));
    MPI_CHECK(MPI_Allreduce(&hash, &high, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD));
    return low == high;
}
