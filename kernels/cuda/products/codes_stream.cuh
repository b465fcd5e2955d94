/* kernels/cuda/products/codes_stream.cuh - the product of quantised weights for few tokens: as matmul_stream.cuh, but
 * codes are dequantised to tensor core operands between shared memory and the product. Activations have 16 bits. A step
 * of a warp is 128 columns of 16 rows. The scale of a whole row multiplies the final sum, one of 128 columns or more
 * the sum of a step, a finer one each weight, which is then rounded once more. A lane's 16 bytes are 16 or 32
 * neighbouring columns, and its part of x has the same columns. */
#ifndef PRODUCTS_CODES_STREAM_CUH
#define PRODUCTS_CODES_STREAM_CUH

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/read_once.cuh"

#define CODES_MAX_TOKENS 16
#define CODES_RING_BYTES (128 * 1024)
#define CODES_WARPS      16
#define CODES_STEP       128 /* columns */
#define CODES_ROWS       16  /* of a tile: two octets */

enum code_scaling { SCALES_OF_ROWS, SCALES_OF_STEPS, SCALES_OF_LANES };

/* How scales are applied; false: the stream does not support these groups. */
static inline bool codes_scaling(const struct weight *w, enum code_scaling *way)
{
    int lane = 128 / code_bits(w->form.codes), group = w->form.group, first = w->form.first;
    bool one = code_groups(&w->form, w->cols) == 1, steps = group % CODES_STEP == 0 && first % CODES_STEP == 0;
    if (w->form.codes == CODES_E2M1)
        *way = SCALES_OF_LANES;
    else
        *way = one && !w->form.zeros ? SCALES_OF_ROWS : one || steps ? SCALES_OF_STEPS : SCALES_OF_LANES;
    return *way != SCALES_OF_LANES || one || (group % lane == 0 && first % lane == 0);
}

#define CODES_CHUNKS 1024 /* maximum for experts */

template <typename T>
struct codes_args {
    T *out;
    const T *x, *bias;
    struct coded w;
    int n_tokens, rows, cols;
    bool accumulate;
    /* For experts, each with `rows` rows, see product_of_pairs; n_tokens: unused */
    const int32_t *begin, *pair;
    int n_held, pairs_a_row;
};

/* Tokens of one expert that share one pass over its weights. */
struct codes_chunk {
    int expert, first; /* of the pairs */
};

/* Lists the chunks, each up to `most` tokens of an expert, in shared memory; called by all threads of the block.
 * Returns their number. */
__device__ static inline int codes_list(codes_chunk *chunk, const int32_t *begin, int n_held, int most)
{
    __shared__ int n_chunks;
    if (threadIdx.x == 0)
        n_chunks = 0;
    __syncthreads();
    for (int e = threadIdx.x; e < n_held; e += blockDim.x) {
        int first = begin[e], end = begin[e + 1], before = 0;
        for (int i = 0; i < e && first > 0 && first < end; i++)
            before += (begin[i + 1] - begin[i] + most - 1) / most;
        for (int p = first; p < end; p += most, before++)
            chunk[before] = codes_chunk{e, p};
        if (first < end)
            atomicMax(&n_chunks, before);
    }
    __syncthreads();
    return n_chunks;
}

template <typename T, enum codes C, enum code_scaling S, int NT, bool EXPERTS>
struct codes_stream {
    static const int BITS = C == CODES_E4M3 || C == CODES_INT8 ? 8 : 4, OCTETS = CODES_ROWS / 8, X = NT / 8;
    static const int LANE = 128 / BITS;              /* columns of 16 bytes */
    static const int PIECES = CODES_STEP / 4 / LANE; /* of 64 bytes, per row and step */
    static const int SLOT = PIECES * OCTETS * 32, SLOTS = CODES_RING_BYTES / (CODES_WARPS * SLOT * 16);
    static const int AHEAD = NT > 8 ? 1 : 2; /* steps by which x, scales and zeros are prefetched */
    static const int PARTIAL = CODES_WARPS * NT * CODES_ROWS;
    static const bool INTEGER = C == CODES_INT8 || C == CODES_INT4;
    static const size_t SHARED =
        CODES_RING_BYTES + 2 * PARTIAL * sizeof(float) + (EXPERTS ? CODES_CHUNKS * sizeof(codes_chunk) : 0);
    typedef code_pairs<T, C> pairs;

    const codes_args<T> &a;
    int lane, warp, n_tiles, n_steps, n_items; /* an item is a tile; with experts, a tile for the tokens of one chunk */
    const codes_chunk *chunk;

    struct codes_place {
        int item, step;
        int row;              /* the tile's first row within the expert */
        int expert, first, n; /* the chunk */
    };
    /* The activations for a step's codes. */
    struct part {
        uint4 x[PIECES][LANE / 8][X];
        float scale[OCTETS][2]; /* for the lane's two rows of sums, or for its row in each piece */
        uint8_t zero[OCTETS][PIECES];
    };

    __device__ explicit codes_stream(const codes_args<T> &args)
        : a(args), lane(threadIdx.x % 32), warp(threadIdx.x / 32), n_tiles((args.rows + CODES_ROWS - 1) / CODES_ROWS),
          n_steps((args.cols + CODES_WARPS * CODES_STEP - 1) / (CODES_WARPS * CODES_STEP)), n_items(n_tiles),
          chunk(nullptr)
    {
    }
    __device__ codes_place enter(int item) const
    {
        if (!EXPERTS || item >= n_items)
            return codes_place{item, 0, item * CODES_ROWS, 0, 0, a.n_tokens};
        codes_chunk c = chunk[item / n_tiles];
        int left = a.begin[c.expert + 1] - c.first;
        return codes_place{item, 0, item % n_tiles * CODES_ROWS, c.expert, c.first, left < NT ? left : NT};
    }
    /* Token t's row of x, and of out. */
    __device__ size_t x_row(const codes_place &at, int t) const
    {
        return EXPERTS ? (size_t)(a.pair[at.first + t] / a.pairs_a_row) : (size_t)t;
    }
    __device__ size_t out_row(const codes_place &at, int t) const
    {
        return EXPERTS ? (size_t)a.pair[at.first + t] : (size_t)t;
    }
    __device__ int column(int step, int piece) const
    {
        return (step * CODES_WARPS + warp) * CODES_STEP + piece * 4 * LANE + lane % 4 * LANE;
    }
    __device__ void advance(codes_place &at) const
    {
        if (++at.step == n_steps)
            at = enter(at.item + gridDim.x);
    }
    __device__ void copy(uint4 *slot, const codes_place &at) const
    {
#pragma unroll
        for (int j = 0; j < PIECES; j++)
#pragma unroll
            for (int r = 0; r < OCTETS; r++) {
                int row = at.row + r * 8 + lane / 4, col = column(at.step, j);
                bool wanted = at.item < n_items && row < a.rows && col < a.cols;
                size_t from = ((size_t)at.expert * a.rows + row) * a.w.pitch + (size_t)(col * BITS / 8);
                async_copy_once(&slot[(j * OCTETS + r) * 32], wanted ? a.w.codes + from : a.w.codes, wanted);
            }
        async_commit();
    }
    __device__ size_t group(const codes_place &at, int octet_row, int col) const
    {
        int last = a.rows - 1, in = col < a.cols ? col : a.cols - 1, row = at.row + octet_row;
        return ((size_t)at.expert * a.rows + (row < last ? row : last)) * a.w.n_groups +
               (size_t)((a.w.form.first + in) / a.w.form.group);
    }
    __device__ void load_scales(part &p, const codes_place &at) const
    {
#pragma unroll
        for (int r = 0; r < OCTETS; r++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int row = r * 8 + (S == SCALES_OF_STEPS ? lane % 4 * 2 + i : lane / 4);
                if (S == SCALES_OF_STEPS || (S == SCALES_OF_LANES && i < PIECES))
                    p.scale[r][i] = coded_scale(a.w, group(at, row, column(at.step, S == SCALES_OF_STEPS ? 0 : i)));
            }
    }
    __device__ void load_zeros(part &p, const codes_place &at) const
    {
#pragma unroll
        for (int r = 0; r < OCTETS; r++)
#pragma unroll
            for (int j = 0; j < PIECES; j++)
                p.zero[r][j] = a.w.zeros == nullptr ? (C == CODES_INT8 ? 128 : 8)
                                                    : a.w.zeros[group(at, r * 8 + lane / 4, column(at.step, j))];
    }
    __device__ part load(const codes_place &at) const
    {
        part p;
#pragma unroll
        for (int i = 0; i < X; i++) {
            int token = lane / 4 + i * 8;
            bool wanted = at.item < n_items && token < at.n;
            const T *x = wanted ? a.x + x_row(at, token) * a.cols : a.x;
#pragma unroll
            for (int j = 0; j < PIECES; j++)
#pragma unroll
                for (int k = 0; k < LANE / 8; k++) {
                    int col = column(at.step, j) + k * 8;
                    p.x[j][k][i] = wanted && col < a.cols ? *(const uint4 *)(x + col) : make_uint4(0, 0, 0, 0);
                }
        }
        if (at.item < n_items)
            load_scales(p, at);
        if (INTEGER && at.item < n_items)
            load_zeros(p, at);
        return p;
    }
    /* x in the order of the codes' pairs: columns (0, 1), (2, 3) .. or (0, 4), (1, 5) .. of eight. */
    __device__ static uint4 paired(uint4 x)
    {
        if (BITS == 8)
            return x;
        return make_uint4(codes_pick(x.x, x.z, 0x5410), codes_pick(x.x, x.z, 0x7632), codes_pick(x.y, x.w, 0x5410),
                          codes_pick(x.y, x.w, 0x7632));
    }
    /* Eight columns: two products. */
    __device__ static void multiply(float (&sum)[4], const uint4 (&x)[X], const uint32_t (&b)[4])
    {
        uint4 lo = x[0], hi = X > 1 ? x[X - 1] : make_uint4(0, 0, 0, 0);
        tensor_mma<T>(sum, lo.x, hi.x, lo.y, hi.y, b[0], b[1]);
        tensor_mma<T>(sum, lo.z, hi.z, lo.w, hi.w, b[2], b[3]);
    }
    /* The operands of the k-th eight columns of the 16 bytes. */
    __device__ static void operands(uint32_t (&b)[4], uint4 codes, int k, uint32_t zero)
    {
        const uint32_t word[4] = {codes.x, codes.y, codes.z, codes.w};
        if constexpr (BITS == 8) {
            uint32_t low[2], high[2];
            pairs::decode(low, word[k * 2], zero);
            pairs::decode(high, word[k * 2 + 1], zero);
            b[0] = low[0], b[1] = low[1], b[2] = high[0], b[3] = high[1];
        } else {
            pairs::decode(b, word[k], zero);
        }
    }
    /* slot: this lane's slot, [PIECES][OCTETS][32] */
    __device__ void add(float (&sum)[OCTETS][4], const part &p, const uint4 *slot) const
    {
        float step[OCTETS][4] = {};
#pragma unroll
        for (int j = 0; j < PIECES; j++)
#pragma unroll
            for (int k = 0; k < LANE / 8; k++) {
                uint4 x[X];
#pragma unroll
                for (int i = 0; i < X; i++)
                    x[i] = paired(p.x[j][k][i]);
#pragma unroll
                for (int r = 0; r < OCTETS; r++) {
                    uint32_t b[4];
                    operands(b, slot[(j * OCTETS + r) * 32], k, INTEGER ? pairs::zero(p.zero[r][j]) : 0);
#pragma unroll
                    for (int i = 0; i < 4 && S == SCALES_OF_LANES; i++)
                        b[i] = pair_times<T>(b[i], p.scale[r][j]);
                    multiply(S == SCALES_OF_STEPS ? step[r] : sum[r], x, b);
                }
            }
#pragma unroll
        for (int r = 0; r < OCTETS && S == SCALES_OF_STEPS; r++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[r][i] = fmaf(step[r][i], p.scale[r][i % 2], sum[r][i]);
    }
    /* to: [NT][CODES_ROWS] */
    __device__ void keep(float *to, const float (&sum)[OCTETS][4]) const
    {
#pragma unroll
        for (int r = 0; r < OCTETS; r++)
#pragma unroll
            for (int i = 0; i < X; i++)
                *(float2 *)(to + (lane / 4 + i * 8) * CODES_ROWS + r * 8 + lane % 4 * 2) =
                    make_float2(sum[r][i * 2], sum[r][i * 2 + 1]);
    }
    /* The warps' sums, added in order; partial: [CODES_WARPS][NT][CODES_ROWS] */
    __device__ void store(const float *partial, const codes_place &at) const
    {
        for (int i = threadIdx.x; i < at.n * CODES_ROWS; i += CODES_WARPS * 32) {
            int row = at.row + i % CODES_ROWS;
            if (row >= a.rows)
                continue;
            float s = 0;
#pragma unroll
            for (int v = 0; v < CODES_WARPS; v++)
                s += partial[v * NT * CODES_ROWS + i];
            size_t all = (size_t)at.expert * a.rows + row;
            if (S == SCALES_OF_ROWS)
                s *= coded_scale(a.w, all * a.w.n_groups);
            s += a.bias ? to_float(a.bias[all]) : 0.0f;
            T *out = a.out + out_row(at, i / CODES_ROWS) * a.rows + row;
            *out = from_float<T>(a.accumulate ? s + to_float(*out) : s);
        }
    }
    /* The ring's first copies. */
    __device__ codes_place begin(uint4 *ring) const
    {
        codes_place at = enter((int)blockIdx.x);
        for (int i = 0; i < SLOTS - 1; i++, advance(at))
            copy(ring + i * SLOT, at);
        return at;
    }
    __device__ void run(uint4 *shared)
    {
        uint4 *ring = shared + warp * SLOTS * SLOT + lane;
        float *partial = (float *)((char *)shared + CODES_RING_BYTES);
        codes_place asked;
        if (!EXPERTS) /* before the kernel that makes x is done */
            asked = begin(ring);
        wait_for_previous();
        if (EXPERTS) {
            codes_chunk *list = (codes_chunk *)(partial + 2 * PARTIAL);
            n_items = codes_list(list, a.begin, a.n_held, NT) * n_tiles;
            chunk = list;
            asked = begin(ring);
        }
        codes_place next = enter((int)blockIdx.x);
        part ahead[AHEAD];
        for (int i = 0; i < AHEAD; i++, advance(next))
            ahead[i] = load(next);
        int slot = 0, buffer = 0;
        for (int item = blockIdx.x; item < n_items; item += gridDim.x, buffer ^= 1) {
            float sum[OCTETS][4] = {};
            for (int step = 0; step < n_steps; step++) {
                part now = ahead[0];
#pragma unroll
                for (int i = 0; i + 1 < AHEAD; i++)
                    ahead[i] = ahead[i + 1];
                ahead[AHEAD - 1] = load(next);
                advance(next);
                copy(ring + (slot > 0 ? slot - 1 : SLOTS - 1) * SLOT, asked);
                advance(asked);
                async_wait<SLOTS - 1>();
                add(sum, now, ring + slot * SLOT);
                slot = slot + 1 < SLOTS ? slot + 1 : 0;
            }
            keep(partial + buffer * PARTIAL + warp * NT * CODES_ROWS, sum);
            __syncthreads(); /* one barrier per item suffices: the next item's sums go to the other buffer */
            store(partial + buffer * PARTIAL, enter(item));
        }
        async_wait<0>();
    }
};

template <typename T, enum codes C, enum code_scaling S, int NT, bool EXPERTS>
__global__ void __launch_bounds__(CODES_WARPS * 32) codes_matmul(const __grid_constant__ codes_args<T> a)
{
    extern __shared__ uint4 shared[];
    codes_stream<T, C, S, NT, EXPERTS>(a).run(shared);
}

#endif
