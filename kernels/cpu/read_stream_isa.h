/* kernels/cpu/read_stream_isa.h - reading for one instruction set (see vector_isa.h); read_stream.c includes it once
 * for each. */
#include "kernels/cpu/vector_isa.h"

/* The xor of the 64-bit words of lines [begin, end). */
TARGET static uint64_t FN(read)(const char *in, int64_t begin, int64_t end)
{
    int64_t stretch = (end - begin) / STREAMS;
    FN(ints) sum[STREAMS] = {{0}}, next;
    uint64_t word[LANES / 2], result = 0;
    for (int64_t i = begin; i < begin + stretch; i++)
        UNROLL for (int s = 0; s < STREAMS; s++)
        {
            __builtin_prefetch(in + (i + s * stretch) * LINE + AHEAD, 0, 3);
            UNROLL for (int p = 0; p < PARTS; p++)
            {
                memcpy(&next, in + (i + s * stretch) * LINE + p * (int)sizeof next, sizeof next);
                sum[s] ^= next;
            }
        }
    for (int64_t at = (begin + STREAMS * stretch) * LINE; at < end * LINE; at += (int)sizeof next) {
        memcpy(&next, in + at, sizeof next);
        sum[0] ^= next;
    }
    for (int s = 1; s < STREAMS; s++)
        sum[0] ^= sum[s];
    memcpy(word, &sum[0], sizeof word);
    for (int k = 0; k < LANES / 2; k++)
        result ^= word[k];
    return result;
}
