/* kernels/cpu/read_stream.c - a read of memory and nothing else, for the measured limit of decode. */
#include "kernels/cpu/cpu.h"

typedef uint64_t words __attribute__((vector_size(64)));

uint64_t cpu_read_stream(struct queue *q, const void *data, size_t bytes)
{
    const words *in = data;
    int64_t n = (int64_t)(bytes / sizeof *in);
    uint64_t result = 0;
#pragma omp parallel for num_threads(q->n_threads) schedule(static) reduction(^ : result)
    for (int64_t part = 0; part < 64; part++) {
        int64_t i = part * n / 64, end = (part + 1) * n / 64;
        words a = {0}, b = {0}, c = {0}, d = {0};
        for (; i + 4 <= end; i += 4) {
            a ^= in[i];
            b ^= in[i + 1];
            c ^= in[i + 2];
            d ^= in[i + 3];
        }
        for (; i < end; i++)
            a ^= in[i];
        a ^= b ^ c ^ d;
        for (int k = 0; k < 8; k++)
            result ^= a[k];
    }
    return result;
}
