/* kernels/cpu/read_stream.c - only reads memory, to measure the limit of decoding. Each thread has four distant streams
 * and prefetches their lines, so more loads are in flight than the hardware prefetcher of one stream starts. It uses
 * the widest registers, since narrower ones do not reach the limit. docs/log/2026-11-26.md has what else was tried. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/widest_isa.h"

#include <string.h>

#define STREAMS 4
#define LINE    64   /* bytes */
#define AHEAD   1024 /* bytes */

#define ISA_CODE "kernels/cpu/read_stream_isa.h"
#include "kernels/cpu/each_isa.h"

typedef uint64_t read_function(const char *in, int64_t begin, int64_t end);

uint64_t cpu_read_stream(struct queue *q, const void *data, size_t bytes)
{
    int64_t n = (int64_t)(bytes / LINE);
    uint64_t result = 0;
    read_function *read = WIDEST(read);
#pragma omp parallel for num_threads(q->n_threads) schedule(static) reduction(^ : result)
    for (int64_t part = 0; part < 16; part++)
        result ^= read(data, part * n / 16, (part + 1) * n / 16);
    return result;
}
