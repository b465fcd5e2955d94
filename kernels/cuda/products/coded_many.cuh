/* kernels/cuda/products/coded_many.cuh - experts_many.cuh with quantised weights. A thread has boxes of codes
 * copied by the tensor memory accelerator into a ring; two warpgroups make numbers of the activations' type of them,
 * each rounded once, and store them where the products read weights. So memory is read for codes alone, once for each
 * run of an expert's tokens. */
#ifndef PRODUCTS_CODED_MANY_CUH
#define PRODUCTS_CODED_MANY_CUH

#include "kernels/cuda/codes_wide.cuh"
#include "kernels/cuda/products/experts_many.cuh"

#define CODED_BRINGING   256
#define CODED_THREADS    (CODED_BRINGING + MANY_MULTIPLYING)
#define CODED_STAGES     3
#define CODED_WIDTH      128 /* most tokens of a tile */
#define CODED_LOAD       64  /* bytes of a row's codes that are copied at a time: of one stage, or of two */
#define CODED_SLOT_BYTES (2 * MANY_BOX * CODED_LOAD)
#define CODED_SLOTS      4
#define CODED_PIECE      16 /* bytes of codes that a thread turns into numbers at a time */

/* Loads that are asked for, in the order in which they are used. */
struct coded_asked {
    many_tile tile;
    int i, stage, n;
    bool more;
};

struct coded_shared : many_shared<CODED_STAGES, CODED_WIDTH> {
    alignas(128) char codes[CODED_SLOTS][CODED_SLOT_BYTES]; /* each [2 boxes][MANY_BOX][CODED_LOAD] */
    uint64_t come[CODED_SLOTS], used[CODED_SLOTS];
    coded_asked asked; /* the first thread's alone */
};

/* A thread's pieces of a stage are at the same columns, of rows of the tile that are as far from each other. */
template <enum codes C>
struct coded_share {
    static const int BITS = bits_of_codes<C>, ROW = MANY_COLS * BITS / 8; /* bytes of a stage */
    static const int STAGES = CODED_LOAD / ROW;                           /* of a slot */
    static const int COLS = CODED_PIECE * 8 / BITS, OF_ROW = ROW / CODED_PIECE;
    static const int PIECES = 2 * MANY_BOX * OF_ROW / CODED_BRINGING, APART = CODED_BRINGING / OF_ROW;
    static const bool INTEGER = C == CODES_INT8 || C == CODES_INT4;
    size_t groups[PIECES];  /* where those of a piece's row begin */
    uint32_t scale[PIECES]; /* as they lie in memory, so that nobody waits for them before they are of use */
    uint32_t zero[INTEGER ? PIECES : 1];
};

template <typename T, many_kind KIND>
struct coded_work : many_work<T, KIND, CODED_STAGES, CODED_WIDTH, CODED_BRINGING> {
    using base = many_work<T, KIND, CODED_STAGES, CODED_WIDTH, CODED_BRINGING>;
    using base::a, base::sh, base::X_ROWS, base::FIRST, base::DENSE;
    const coded &w;
    coded_shared *ring;

    __device__ coded_work(const expert_product<T> &args, const coded &weights, const CUtensorMap *map,
                          coded_shared *shared)
        : base(args, map, shared), w(weights), ring(shared)
    {
    }
    __device__ void open() const
    {
        if (threadIdx.x == 0)
            for (int i = 0; i < CODED_SLOTS; i++) {
                barrier_open(shared_address(&ring->come[i]), 1);
                barrier_open(shared_address(&ring->used[i]), CODED_BRINGING / 32);
            }
        base::open(CODED_BRINGING / 32);
    }

    /* The next load is copied to its slot, when nobody needs what is there. */
    template <enum codes C>
    __device__ void ask() const
    {
        using share = coded_share<C>;
        coded_asked &at = ring->asked;
        if (!at.more)
            return;
        int slot = at.n % CODED_SLOTS;
        uint32_t come = shared_address(&ring->come[slot]);
        barrier_wait(shared_address(&ring->used[slot]), at.n / CODED_SLOTS % 2 ^ 1);
        barrier_expect(come, CODED_SLOT_BYTES);
        for (int b = 0; b < 2; b++)
            box_of_expert(shared_address(ring->codes[slot] + b * CODED_SLOT_BYTES / 2), base::map,
                          base::column(at.tile, at.stage) * share::BITS / 8, at.tile.row0 + (FIRST ? 0 : b * MANY_BOX),
                          FIRST ? b : 0, DENSE ? 0 : at.tile.expert, come);
        at.n++;
        at.stage += share::STAGES;
        if (at.stage >= base::stages_of(at.tile)) {
            at.stage = 0;
            at.more = base::next_tile(at.tile, at.i);
        }
    }

    /* The row, of the weights of all experts, that is a tile's row r. */
    __device__ int weight_row(const many_tile &tile, int r) const
    {
        int row = tile.row0 + (FIRST ? r % MANY_BOX : r);
        row = row < a.rows ? row : a.rows - 1;
        if (FIRST)
            return tile.expert * 2 * a.rows + row_of_gate(a, row, r / MANY_BOX);
        return (DENSE ? 0 : tile.expert * a.rows) + row;
    }
    template <enum codes C>
    __device__ void enter(coded_share<C> &to, const many_tile &tile) const
    {
        using share = coded_share<C>;
#pragma unroll
        for (int q = 0; q < share::PIECES; q++)
            to.groups[q] =
                (size_t)weight_row(tile, (int)threadIdx.x / share::OF_ROW + q * share::APART) * (size_t)w.n_groups;
        load(to, tile, 0);
    }
    template <enum codes C>
    __device__ void load(coded_share<C> &to, const many_tile &tile, int stage) const
    {
        using share = coded_share<C>;
        int col = base::column(tile, stage) + (int)threadIdx.x % share::OF_ROW * share::COLS;
        int group = (w.form.first + (col < a.cols ? col : a.cols - 1)) / w.form.group;
#pragma unroll
        for (int q = 0; q < share::PIECES; q++) {
            to.scale[q] = coded_scale_word(w, to.groups[q] + (size_t)group);
            if (share::INTEGER)
                to.zero[q] = (uint32_t)coded_zero(w, to.groups[q] + (size_t)group);
        }
    }

    /* This thread's codes become numbers in a stage's place; from: the codes of the stage in the first row of a slot */
    template <enum codes C>
    __device__ void widen(const coded_share<C> &part, const char *from, int place) const
    {
        using share = coded_share<C>;
        const int UNITS = share::COLS / 8;
        int row = (int)threadIdx.x / share::OF_ROW, piece = (int)threadIdx.x % share::OF_ROW;
        char *to = sh->stage[place].w[0] + row * 128;
        from += row * CODED_LOAD + piece * CODED_PIECE;
#pragma unroll
        for (int q = 0; q < share::PIECES; q++) {
            uint4 codes = *(const uint4 *)(from + q * share::APART * CODED_LOAD);
            const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
            uint32_t zero = share::INTEGER ? code_pairs<T, C>::zero((int)part.zero[q]) : 0;
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                uint32_t pair[4];
                codes_wide<T, C>(pair, word + u * 4 / UNITS, zero, w.form.scale, part.scale[q]);
                *(uint4 *)(to + q * share::APART * 128 + ((piece * UNITS + u) ^ row % 8) * 16) =
                    make_uint4(pair[0], pair[1], pair[2], pair[3]);
            }
        }
    }
    /* Stage s of a tile's `end`, number `done` since the kernel began; n: of the slots used so far. */
    template <enum codes C>
    __device__ void widen_stage(const coded_share<C> &part, int s, int end, int &n, unsigned done) const
    {
        using share = coded_share<C>;
        int slot = n % CODED_SLOTS;
        if (s % share::STAGES == 0)
            barrier_wait(shared_address(&ring->come[slot]), n / CODED_SLOTS % 2);
        widen(part, ring->codes[slot] + s % share::STAGES * share::ROW, base::place_of(done));
        if (s % share::STAGES < share::STAGES - 1 && s < end - 1)
            return;
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            barrier_arrive(shared_address(&ring->used[slot]));
        n++;
    }
    __device__ void bring_rows_of(const int (&row)[X_ROWS], int k, unsigned stage) const
    {
        barrier_wait(shared_address(&sh->empty[base::place_of(stage)]), base::phase_of(stage) ^ 1);
        base::bring_rows(row, k, base::place_of(stage));
    }
    /* Rows of x and scales are a stage ahead of the codes that become numbers. */
    template <enum codes C>
    __device__ void bring() const
    {
        many_tile tile;
        int i = -1, n = 0, row[X_ROWS];
        bool more = base::next_tile(tile, i);
        if (threadIdx.x == 0)
            ring->asked = {tile, i, 0, 0, more};
        for (int slot = 0; slot < CODED_SLOTS && threadIdx.x == 0; slot++)
            ask<C>();
        coded_share<C> next;
        if (more) {
            base::find_rows(row, tile);
            enter(next, tile);
            bring_rows_of(row, base::column(tile, 0), 0);
        }
        for (unsigned done = 0; more;)
            for (int s = 0, end = base::stages_of(tile); s < end; s++, done++) {
                coded_share<C> now = next;
                bool last = s + 1 == end;
                if (!last)
                    load(next, tile, s + 1);
                else if ((more = base::next_tile(tile, i))) {
                    base::find_rows(row, tile);
                    enter(next, tile);
                }
                int before = n;
                widen_stage(now, s, end, n, done);
                if (more)
                    bring_rows_of(row, base::column(tile, last ? 0 : s + 1), done + 1);
                else
                    async_commit();
                async_wait<1>();
                base::tell(done);
                if (threadIdx.x == 0 && n > before)
                    ask<C>();
            }
    }
    __device__ void bring_any() const
    {
        if (w.form.codes == CODES_E4M3)
            bring<CODES_E4M3>();
        else if (w.form.codes == CODES_INT8)
            bring<CODES_INT8>();
        else if (w.form.codes == CODES_INT4)
            bring<CODES_INT4>();
        else
            bring<CODES_E2M1>();
    }
};

/* grid: as many blocks as there are multiprocessors. map: see codes_map */
template <typename T, many_kind KIND>
__global__ void __launch_bounds__(CODED_THREADS, 1)
    coded_many(const __grid_constant__ expert_product<T> a, const __grid_constant__ coded w,
               const __grid_constant__ CUtensorMap map)
{
    extern __shared__ uint4 shared[];
    coded_work<T, KIND> work(a, w, &map, many_memory<coded_shared>(shared));
    work.open();
    if (threadIdx.x < CODED_BRINGING) {
        give_registers<80>();
        work.bring_any();
    } else {
        take_registers<176>();
        work.multiply_all();
    }
}

#endif
