/* kernels/cuda/products/ordered.cuh - the product whose results do not depend on the number of tokens, for devices
 * whose warpgroups multiply (compute capability 9.0a). A result is the sum over the columns in order, 16 at a time, in
 * one accumulator of the tensor cores. Both of Hopper's instructions give the same bits for the same steps, whatever
 * the tile, so tiles are chosen by speed alone: ordered_few.cuh multiplies few tokens by warps, whose steps follow each
 * other faster, ordered_many.cuh more of them by warpgroups. Here: how one thread copies boxes of both operands to a
 * ring of stages. A stage has some chunks of 64 columns, since a copy takes the thread as long whatever its size. The
 * weights of the first stages are in flight before the preceding kernel is done. */
#ifndef PRODUCTS_ORDERED_CUH
#define PRODUCTS_ORDERED_CUH

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/tensor.cuh"

#define ORDERED_COLS  64 /* of a chunk: a row has 128 bytes */
#define ORDERED_ALIGN 1024
#define ORDERED_BYTES (220 * 1024) /* of shared memory for stages, at most */
#define ORDERED_FEW   (144 * 1024) /* the same for 8 tokens: blocks find room beside those of attention */
#define ORDERED_MOST  16           /* stages */

template <typename T>
struct ordered_args {
    T *out; /* [n_tokens, rows] */
    const void *bias;
    enum dtype bias_type;
    int n_tokens, rows, cols;
    int x_rows; /* of x in a chunk: no more than the tile's tokens */
    bool accumulate;
    bool whole; /* columns are whole chunks, and maps have a dimension of chunks; otherwise a stage has one chunk */
    bool early; /* the next kernel may begin: its blocks bring weights where this one's have ended */
};

/* A FORM of tiles: TOKENS x WIDTH results, by CONSUMERS warps, in stages of CHUNKS chunks. */
template <int T, int W, int CH>
struct ordered_tile {
    static const int TOKENS = T, WIDTH = W, CHUNKS = CH;
    static const int FIT = (T > 8 ? ORDERED_BYTES : ORDERED_FEW) / ((T + W) * 128 * CH);
    static const int STAGES = FIT < ORDERED_MOST ? FIT : ORDERED_MOST;
};

/* [stages][chunks][rows][128 bytes] */
template <typename FORM>
struct ordered_shared {
    char x[FORM::STAGES][FORM::CHUNKS * FORM::TOKENS * 128];
    char w[FORM::STAGES][FORM::CHUNKS * FORM::WIDTH * 128];
    uint64_t full[FORM::STAGES], empty[FORM::STAGES];
};

/* A position in a block's work: a stage of a tile, after `count` other stages. */
struct ordered_cursor {
    int tile, stage;
    unsigned count;
};

template <typename T, typename FORM>
struct ordered_work {
    static const int STAGES = FORM::STAGES, CHUNKS = FORM::CHUNKS, COLS = CHUNKS * ORDERED_COLS;
    const ordered_args<T> &a;
    const CUtensorMap *x_map, *w_map; /* boxes of a stage */
    ordered_shared<FORM> *sh;
    int n_stages, of_tokens, n_tiles; /* of_tokens: tiles that cover all tokens */

    __device__ ordered_work(const ordered_args<T> &args, const CUtensorMap *x, const CUtensorMap *w,
                            ordered_shared<FORM> *shared)
        : a(args), x_map(x), w_map(w), sh(shared), n_stages((args.cols + COLS - 1) / COLS),
          of_tokens((args.n_tokens + FORM::TOKENS - 1) / FORM::TOKENS),
          n_tiles(of_tokens * ((args.rows + FORM::WIDTH - 1) / FORM::WIDTH))
    {
    }
    __device__ void open(void) const
    {
        if (threadIdx.x == 0) {
            for (int i = 0; i < STAGES; i++) {
                barrier_open(shared_address(&sh->full[i]), 1);
                barrier_open(shared_address(&sh->empty[i]), FORM::CONSUMERS);
            }
            barriers_opened();
            box_map_prefetch(x_map);
            box_map_prefetch(w_map);
        }
        __syncthreads();
    }
    __device__ ordered_cursor first(void) const
    {
        return {(int)blockIdx.x, 0, 0};
    }
    __device__ bool ended(const ordered_cursor &at) const
    {
        return at.tile >= n_tiles;
    }
    __device__ void advance(ordered_cursor &at) const
    {
        at.count++;
        if (++at.stage == n_stages) {
            at.stage = 0;
            at.tile += (int)gridDim.x;
        }
    }
    __device__ static int slot_of(unsigned count)
    {
        return (int)(count % STAGES);
    }
    __device__ static int phase_of(unsigned count)
    {
        return (int)(count / STAGES % 2);
    }
    /* The first token and the first row of a tile. */
    __device__ int token0(const ordered_cursor &at) const
    {
        return at.tile % of_tokens * FORM::TOKENS;
    }
    __device__ int row0(const ordered_cursor &at) const
    {
        return at.tile / of_tokens * FORM::WIDTH;
    }

    /* ---- one thread brings ---- */

    __device__ void bring(const CUtensorMap *map, char *into, int row, const ordered_cursor &at) const
    {
        box_copy_shared(shared_address(into), map, a.whole ? 0 : at.stage * ORDERED_COLS, row,
                        a.whole ? at.stage * CHUNKS : 0, shared_address(&sh->full[slot_of(at.count)]));
    }
    __device__ void bring_weights(const ordered_cursor &at) const
    {
        int slot = slot_of(at.count);
        barrier_expect(shared_address(&sh->full[slot]), (a.x_rows + FORM::WIDTH) * 128 * CHUNKS);
        bring(w_map, sh->w[slot], row0(at), at);
    }
    __device__ void bring_all(void) const
    {
        ordered_cursor at = first();
        for (; at.count < STAGES && !ended(at); advance(at))
            bring_weights(at);
        unsigned early = at.count;
        wait_for_previous();
        copies_see_writes();
        for (at = first(); !ended(at); advance(at)) {
            if (at.count >= early) {
                barrier_wait(shared_address(&sh->empty[slot_of(at.count)]), phase_of(at.count) ^ 1);
                bring_weights(at);
            }
            bring(x_map, sh->x[slot_of(at.count)], token0(at), at);
        }
    }

    /* ---- consumers ---- */

    /* Returns the slot of a stage whose operands have arrived. */
    __device__ int await(const ordered_cursor &at) const
    {
        int slot = slot_of(at.count);
        barrier_wait(shared_address(&sh->full[slot]), phase_of(at.count));
        return slot;
    }
    /* The rows of a chunk of a slot. */
    __device__ const char *x_rows(int slot, int chunk) const
    {
        return sh->x[slot] + chunk * a.x_rows * 128;
    }
    __device__ const char *w_rows(int slot, int chunk) const
    {
        return sh->w[slot] + chunk * FORM::WIDTH * 128;
    }
    /* Tells that this warp has read a stage. */
    __device__ void release(unsigned count) const
    {
        if (threadIdx.x % 32 == 0)
            barrier_arrive(shared_address(&sh->empty[slot_of(count)]));
    }
    __device__ float result(const T *to, int row, float sum) const
    {
        float y = sum + weight_at(a.bias, a.bias_type, row, 0.0f);
        return a.accumulate ? y + to_float(*to) : y;
    }
};

/* A kernel's structure in shared memory. */
template <typename FORM>
__device__ static inline ordered_shared<FORM> *ordered_memory(uint4 *shared)
{
    uint32_t past = shared_address(shared) % ORDERED_ALIGN;
    return (ordered_shared<FORM> *)((char *)shared + (past > 0 ? ORDERED_ALIGN - past : 0));
}

#endif
