/* kernels/cuda/products/coded_many.cuh - experts_many.cuh with quantised weights. One thread issues TMA copies of boxes
 * of codes into a ring; two warpgroups dequantise them to the activations' type, rounding each once, and store them
 * where the products read weights. One handles the even stages and one the odd ones, so that one works while the other
 * waits. So only codes are read from memory, once for each run of an expert's tokens. The multiplying threads prefetch
 * rows of x some stages ahead: the dequantising threads would wait for them at every stage. */
#ifndef PRODUCTS_CODED_MANY_CUH
#define PRODUCTS_CODED_MANY_CUH

#include "kernels/cuda/codes_wide.cuh"
#include "kernels/cuda/products/experts_many.cuh"

#define CODED_WIDENING   128 /* threads that dequantise a stage */
#define CODED_BRINGING   (2 * CODED_WIDENING)
#define CODED_THREADS    (CODED_BRINGING + MANY_MULTIPLYING)
#define CODED_STAGES     3
#define CODED_X_STAGES   4
#define CODED_X_AHEAD    2   /* stages whose rows of x are in flight or loaded, beside the one being multiplied */
#define CODED_WIDTH      128 /* maximum tokens of a tile */
#define CODED_LOAD       64  /* bytes of a row's codes per copy: one stage's, or two stages' */
#define CODED_SLOT_BYTES (2 * MANY_BOX * CODED_LOAD)
#define CODED_SLOTS      3
#define CODED_PIECE      16 /* bytes of codes that a thread dequantises at a time */

/* Loads in flight, in the order of their use. */
struct coded_asked {
    many_tile tile;
    int i, stage, n;
    bool more;
};

struct coded_shared : many_shared<CODED_STAGES, CODED_WIDTH, CODED_X_STAGES> {
    alignas(128) char codes[CODED_SLOTS][CODED_SLOT_BYTES]; /* each [2 boxes][MANY_BOX][CODED_LOAD] */
    uint64_t come[CODED_SLOTS];
    coded_asked asked; /* per thread */
};

/* A thread's pieces of a stage are at the same columns, in rows of the tile at this distance. */
template <enum codes C>
struct coded_share {
    static const int BITS = bits_of_codes<C>, ROW = MANY_COLS * BITS / 8; /* bytes of a stage */
    static const int STAGES = CODED_LOAD / ROW;                           /* of a slot */
    static const int COLS = CODED_PIECE * 8 / BITS, OF_ROW = ROW / CODED_PIECE;
    static const int PIECES = 2 * MANY_BOX * OF_ROW / CODED_WIDENING, APART = CODED_WIDENING / OF_ROW;
    static const bool INTEGER = C == CODES_INT8 || C == CODES_INT4;
    uint32_t scale[PIECES]; /* in their stored type, so that no thread waits for them before their use */
    uint32_t zero[INTEGER ? PIECES : 1];
};

template <typename T, many_kind KIND>
struct coded_work : many_work<T, KIND, CODED_STAGES, CODED_WIDTH, CODED_BRINGING, CODED_X_STAGES> {
    using base = many_work<T, KIND, CODED_STAGES, CODED_WIDTH, CODED_BRINGING, CODED_X_STAGES>;
    using base::a, base::sh, base::FIRST, base::DENSE;
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
            for (int i = 0; i < CODED_SLOTS; i++)
                barrier_open(shared_address(&ring->come[i]), 1);
        base::open(CODED_WIDENING / 32, FIRST);
    }

    /* This thread's index among those that dequantise a stage. */
    __device__ static int me()
    {
        return (int)threadIdx.x % CODED_WIDENING;
    }
    /* Issues the next load into its slot, whose codes are no longer needed. Called by one multiplying thread: the
     * loading threads are busy. bits: of a code. */
    __device__ void ask(int bits) const
    {
        coded_asked &at = ring->asked;
        if (!at.more)
            return;
        int slot = at.n % CODED_SLOTS;
        uint32_t come = shared_address(&ring->come[slot]);
        barrier_expect(come, CODED_SLOT_BYTES);
        for (int b = 0; b < 2; b++)
            box_of_expert(shared_address(ring->codes[slot] + b * CODED_SLOT_BYTES / 2), base::map,
                          base::column(at.tile, at.stage) * bits / 8, at.tile.row0 + (FIRST ? 0 : b * MANY_BOX),
                          FIRST ? b : 0, DENSE ? 0 : at.tile.expert, come);
        at.n++;
        at.stage += CODED_LOAD * 8 / bits / MANY_COLS;
        if (at.stage >= base::stages_of(at.tile)) {
            at.stage = 0;
            at.more = base::next_tile(at.tile, at.i);
        }
    }

    /* The row of a tile's row r in the weights of all experts. */
    __device__ int weight_row(const many_tile &tile, int r) const
    {
        int row = tile.row0 + (FIRST ? r % MANY_BOX : r);
        row = row < a.rows ? row : a.rows - 1;
        if (FIRST)
            return tile.expert * 2 * a.rows + row_of_gate(a, row, r / MANY_BOX);
        return (DENSE ? 0 : tile.expert * a.rows) + row;
    }
    /* The offsets at which the groups of this thread's rows begin. */
    template <enum codes C>
    __device__ void find_groups(uint32_t (&groups)[coded_share<C>::PIECES], const many_tile &tile) const
    {
        using share = coded_share<C>;
#pragma unroll
        for (int q = 0; q < share::PIECES; q++)
            groups[q] = (uint32_t)weight_row(tile, me() / share::OF_ROW + q * share::APART) * (uint32_t)w.n_groups;
    }
    /* The group of a column. Most groups have a power of two columns; a division is slow. */
    __device__ int group_of(int col) const
    {
        col = w.form.first + (col < a.cols ? col : a.cols - 1);
        bool power = (w.form.group & (w.form.group - 1)) == 0;
        return w.n_groups == 1 ? 0 : power ? col >> (31 - __clz(w.form.group)) : col / w.form.group;
    }
    template <enum codes C>
    __device__ void load(coded_share<C> &to, const uint32_t (&groups)[coded_share<C>::PIECES], const many_tile &tile,
                         int stage) const
    {
        using share = coded_share<C>;
        int group = group_of(base::column(tile, stage) + me() % share::OF_ROW * share::COLS);
#pragma unroll
        for (int q = 0; q < share::PIECES; q++) {
            to.scale[q] = coded_scale_word(w, (size_t)groups[q] + (size_t)group);
            if (share::INTEGER)
                to.zero[q] = (uint32_t)coded_zero(w, (size_t)groups[q] + (size_t)group);
        }
    }

    /* Dequantises this thread's codes into a stage; from: the stage's codes in the first row of a slot. All branches
     * are decided beforehand, so that the pieces' instructions interleave. */
    template <enum codes C, enum scale_type S>
    __device__ void widen(const coded_share<C> &part, const char *from, int place) const
    {
        using share = coded_share<C>;
        const int UNITS = share::COLS / 8, AT_ONCE = share::PIECES < 4 ? share::PIECES : 4;
        uint4 read[AT_ONCE];
        int row = me() / share::OF_ROW, piece = me() % share::OF_ROW;
        char *to = sh->w[place][0] + row * 128;
        from += row * CODED_LOAD + piece * CODED_PIECE;
#pragma unroll
        for (int q = 0; q < share::PIECES; q++) {
#pragma unroll
            for (int r = 0; r < AT_ONCE && q % AT_ONCE == 0; r++)
                read[r] = *(const uint4 *)(from + (q + r) * share::APART * CODED_LOAD);
            uint4 codes = read[q % AT_ONCE];
            const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
            uint32_t zero = share::INTEGER ? code_pairs<T, C>::zero((int)part.zero[q]) : 0;
#pragma unroll
            for (int u = 0; u < UNITS; u++) {
                uint32_t pair[4];
                codes_wide<T, C>(pair, word + u * 4 / UNITS, zero, S, part.scale[q]);
                *(uint4 *)(to + q * share::APART * 128 + ((piece * UNITS + u) ^ row % 8) * 16) =
                    make_uint4(pair[0], pair[1], pair[2], pair[3]);
            }
        }
    }
    /* The stages of one of the two dequantising warpgroups; scales are prefetched one stage ahead. */
    template <enum codes C, enum scale_type S>
    __device__ void bring() const
    {
        using share = coded_share<C>;
        many_tile tile;
        uint32_t groups[share::PIECES];
        share next;
        const unsigned mine = threadIdx.x / CODED_WIDENING;
        unsigned done = 0; /* stages of the tiles before */
        for (int i = -1, n = 0; base::next_tile(tile, i);) {
            int end = base::stages_of(tile), s = (int)((mine - done) % 2);
            find_groups<C>(groups, tile);
            load<C>(next, groups, tile, s);
            for (; s < end; s += 2) {
                share part = next;
                unsigned stage = done + (unsigned)s;
                int slot = n + s / share::STAGES, place = base::place_of(stage);
                load<C>(next, groups, tile, s + 2);
                barrier_wait(shared_address(&ring->come[slot % CODED_SLOTS]), slot / CODED_SLOTS % 2);
                barrier_wait(shared_address(&sh->empty[place]), base::phase_of(stage) ^ 1);
                widen<C, S>(part, ring->codes[slot % CODED_SLOTS] + s % share::STAGES * share::ROW, place);
                base::tell(stage);
            }
            done += (unsigned)end;
            n += (end + share::STAGES - 1) / share::STAGES;
        }
    }
    __device__ int code_size() const
    {
        return w.form.codes == CODES_E4M3 || w.form.codes == CODES_INT8 ? 8 : 4;
    }

    /* Multiplying threads also load rows of x, each its pieces, and one of them codes. */
    struct coded_beside {
        static const int ROWS = CODED_WIDTH * 8 / MANY_MULTIPLYING, APART = MANY_MULTIPLYING / 8;
        const coded_work &work;
        bool asks;
        int of_slot; /* stages per slot of codes */
        many_tile tile;
        int i, stage, row[ROWS]; /* -1: none */
        unsigned n;              /* stages whose rows of x were requested */
        bool more;

        __device__ coded_beside(const coded_work &of)
            : work(of), asks(threadIdx.x == CODED_BRINGING), of_slot(CODED_LOAD * 8 / of.code_size() / MANY_COLS),
              i(-1), n(0)
        {
            enter();
            for (int a = 0; a < CODED_X_AHEAD; a++)
                ask_rows();
        }
        __device__ void enter()
        {
            stage = 0;
            more = work.next_tile(tile, i);
            if (!more)
                return;
#pragma unroll
            for (int q = 0; q < ROWS; q++) {
                int t = ((int)threadIdx.x - CODED_BRINGING) / 8 + q * APART;
                row[q] = -1;
                if (t < tile.n_tokens)
                    row[q] = work.x_row(tile, t);
            }
        }
        __device__ void ask_rows()
        {
            if (!more) {
                async_commit();
                return;
            }
            int me = (int)threadIdx.x - CODED_BRINGING, piece = me % 8, t = me / 8,
                k = work.column(tile, stage) + piece * 8;
            const auto &a = work.a;
            char *to = work.sh->x[n++ % CODED_X_STAGES] + t * 128 + (piece ^ t % 8) * 16;
#pragma unroll
            for (int q = 0; q < ROWS; q++)
                if (row[q] >= 0)
                    async_copy(to + q * APART * 128, k < a.cols ? a.x + (size_t)row[q] * a.cols + k : a.x, k < a.cols);
            async_commit();
            if (++stage == work.stages_of(tile))
                enter();
        }
        /* All threads' rows of a stage have arrived, and no product still reads the slot of the next ones. */
        __device__ void ready(unsigned)
        {
            static_assert(CODED_X_AHEAD + 2 <= CODED_X_STAGES, "a stage that is multiplied, and the one before it");
            async_wait<CODED_X_AHEAD - 1>();
            products_see_stores();
            asm volatile("bar.sync 3, %0;" ::"n"(MANY_MULTIPLYING) : "memory");
            ask_rows();
        }
        /* A stage's slot is free when the stage is full. */
        __device__ void begun(int s, int end) const
        {
            if (asks && (s % of_slot == of_slot - 1 || s == end - 1))
                work.ask(work.code_size());
            __syncwarp();
        }
    };
    __device__ void multiply_any() const
    {
        if (threadIdx.x == CODED_BRINGING) {
            coded_asked &at = ring->asked;
            at.i = -1, at.stage = at.n = 0;
            at.more = base::next_tile(at.tile, at.i);
            for (int slot = 0; slot < CODED_SLOTS; slot++)
                ask(code_size());
        }
        __syncwarp();
        if (!FIRST) /* loading and dequantising codes overlap the end of the preceding kernel */
            base::wait();
        coded_beside beside(*this);
        base::multiply_all(beside);
        async_wait<0>();
    }
    template <enum codes C>
    __device__ void bring_codes() const
    {
        if (w.form.scale == SCALE_F32)
            bring<C, SCALE_F32>();
        else
            bring<C, SCALE_E8M0>();
    }
    __device__ void bring_any() const
    {
        if (w.form.codes == CODES_E4M3)
            bring_codes<CODES_E4M3>();
        else if (w.form.codes == CODES_INT8)
            bring_codes<CODES_INT8>();
        else if (w.form.codes == CODES_INT4)
            bring_codes<CODES_INT4>();
        else
            bring_codes<CODES_E2M1>();
    }
};

/* grid: one block per multiprocessor. map: see many_codes_map */
template <typename T, many_kind KIND>
__global__ void __launch_bounds__(CODED_THREADS, 1)
    coded_many(const __grid_constant__ expert_product<T> a, const __grid_constant__ coded w,
               const __grid_constant__ CUtensorMap map)
{
    extern __shared__ uint4 shared[];
    coded_work<T, KIND> work(a, w, &map, many_memory<coded_shared>(shared));
    work.open();
    if (threadIdx.x < CODED_BRINGING) {
        give_registers<72>();
        work.bring_any();
    } else {
        take_registers<184>();
        work.multiply_any();
    }
}

#endif
