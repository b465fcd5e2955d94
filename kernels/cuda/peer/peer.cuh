/* kernels/cuda/peer/peer.cuh - exchange of partial results between kernels on the GPUs of a host, which write into each
 * other's memory. Every GPU has a region for the others to write to, which contains only holes between kernels: 32-bit
 * words that no part contains. A kernel that needs a part polls its location until there is no hole in it, and then
 * writes holes back. So data signal their own arrival, without additional bytes, and nothing has to be ordered: no
 * fences, no barriers, no flags.
 *
 * The region has two halves, which such kernels use alternately. That suffices if in every kernel every rank waits,
 * directly or indirectly, for a part of every other rank: before a rank writes to a half again, it has waited, in the
 * kernel in between, for a part from the receiver, which began that kernel after it had finished the one before and
 * filled its half with holes. The device stores the next half, one word per block, so that kernels may be replayed in
 * graphs. Blocks wait for those of other GPUs, so all blocks of a kernel must be resident at once: there are few of
 * them, and kernels that could occupy the device wait for nothing. All ranks have the same number of blocks. */
#ifndef PEER_PEER_CUH
#define PEER_PEER_CUH

#include "kernels/cuda/device.cuh"

#include "kernels/peer.h"

#define PEER_HALF_BYTES (((size_t)16 << 20) + 4096)
#define PEER_MAX_BLOCKS 96 /* of a kernel, all of which must be resident at once */

/* Polls of a part: about 6 minutes, longer than the default deadline of a step, whose message says more
 * (rank/watch/watch.h). */
#define PEER_PATIENCE 1000000000u

/* The hole: a NaN of each type, two of 16 bits or one of 32. The same NaN in a part is replaced by another one. */
#define HOLE     0xffffffffu
#define NOT_HOLE 0x7fff7fffu

struct peer_args {
    uint4 *region[PEER_MAX_RANKS]; /* each rank's: [2][PEER_HALF_BYTES / 16] */
    uint32_t *turn;                /* [PEER_MAX_BLOCKS] 0 or 1: the half for the next kernel, equal in all */
    int rank, n_ranks;
};

/* The number of polls of a part after which a kernel of this file traps, and the host memory that the host reads after
 * a failed launch (memory.cu). */
static __constant__ struct {
    struct cuda_vain *vain;
    uint32_t looks;
} peer_patience;

static inline void peer_set_patience(struct queue *q, uint32_t looks)
{
    const decltype(peer_patience) patience = {cuda_state(q)->vain, looks};
    CUDA_TRY(q, cudaMemcpyToSymbol(peer_patience, &patience, sizeof patience));
}

__device__ static inline uint4 peer_load(const uint4 *from)
{
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from)
                 : "memory");
    return v;
}

__device__ static inline void peer_store(uint4 *to, const uint4 &v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}

__device__ static inline bool has_hole(const uint4 &v)
{
    return v.x == HOLE || v.y == HOLE || v.z == HOLE || v.w == HOLE;
}

__device__ static inline uint4 no_holes(uint4 v)
{
    v.x = v.x == HOLE ? NOT_HOLE : v.x;
    v.y = v.y == HOLE ? NOT_HOLE : v.y;
    v.z = v.z == HOLE ? NOT_HOLE : v.z;
    v.w = v.w == HOLE ? NOT_HOLE : v.w;
    return v;
}

/* A part to another rank's region. */
__device__ static inline void peer_send(uint4 *to, const uint4 &v)
{
    peer_store(to, no_holes(v));
}

/* Traps: rank `from` has written nothing. See cuda_vain. */
__device__ static inline void peer_give_up(int from)
{
    volatile unsigned long long *to = peer_patience.vain->for_sum;
    to[1] = (unsigned long long)from << 32 | blockIdx.x;
    to[0] = 1;
    __threadfence_system();
    __trap();
    __builtin_unreachable(); /* the compiler assumes that a trap returns */
}

/* v[r] = the data at at(r), once they have arrived; then writes holes back. at(r) NULL: v[r] is unchanged. All loads
 * are in flight at once. */
template <int R, typename AT>
__device__ static inline void peer_await(uint4 (&v)[R], AT at)
{
#pragma unroll
    for (int r = 0; r < R; r++)
        if (at(r) != nullptr)
            v[r] = peer_load(at(r));
    unsigned looks = 0;
    int late = 0;
    for (bool again = true; again;) {
        again = false;
#pragma unroll
        for (int r = 0; r < R; r++)
            if (at(r) != nullptr && has_hole(v[r])) {
                again = true;
                late = r;
                v[r] = peer_load(at(r));
            }
        if (++looks == peer_patience.looks)
            peer_give_up(late);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
        if (at(r) != nullptr)
            peer_store(at(r), make_uint4(HOLE, HOLE, HOLE, HOLE));
}

/* The half of the regions for this kernel, as an offset in vectors. */
__device__ static inline unsigned peer_begin(const peer_args &a)
{
    return *(volatile const uint32_t *)&a.turn[blockIdx.x] * (unsigned)(PEER_HALF_BYTES / 16);
}

/* Advances the half: each block writes its own word, and those of blocks that this kernel does not have. */
__device__ static inline void peer_end(const peer_args &a, unsigned half)
{
    __syncthreads(); /* all have read it */
    for (unsigned i = blockIdx.x + threadIdx.x * gridDim.x; i < PEER_MAX_BLOCKS; i += blockDim.x * gridDim.x)
        a.turn[i] = half == 0;
}

/* Writes a part to all ranks, at the same offset of the regions. R: at least n_ranks, here and below. */
template <int R>
__device__ static inline void peer_send_to_all(const peer_args &a, unsigned to, const uint4 &v)
{
#pragma unroll
    for (int r = 0; r < R; r++)
        if (r < a.n_ranks && r != a.rank)
            peer_send(a.region[r] + to, v);
}

#endif
