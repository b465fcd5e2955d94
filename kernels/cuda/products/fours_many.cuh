/* kernels/cuda/products/fours_many.cuh - experts_many.cuh with weights in E2M1, a scale of E8M0 for each 32 columns.
 * The threads that multiply make operands of the codes in registers, from where the tensor cores take them, so weights
 * are stored nowhere. Four warpgroups have a quarter of a tile's rows each: the products of one run while others
 * dequantise. A stage has 128 columns. */
#ifndef PRODUCTS_FOURS_MANY_CUH
#define PRODUCTS_FOURS_MANY_CUH

#include "kernels/cuda/codes_wide.cuh"
#include "kernels/cuda/products/experts_many.cuh"
#include "kernels/cuda/warpgroup_registers.cuh"

#define FOURS_MULTIPLYING 512
#define FOURS_THREADS     (MANY_BRINGING + FOURS_MULTIPLYING)
#define FOURS_STAGES      4
#define FOURS_WIDTH       128 /* maximum tokens of a tile */
#define FOURS_COLS        128 /* of a stage */
#define FOURS_ROW         (FOURS_COLS / 2)
#define FOURS_GROUP       32
#define FOURS_LARGE       128 /* the largest scale with which one multiplication dequantises: 2 */

struct fours_shared {
    static const int TOKENS = FOURS_WIDTH;
    char w[FOURS_STAGES][2][MANY_BOX * FOURS_ROW];
    char x[FOURS_STAGES][2][FOURS_WIDTH * 128];  /* 64 columns each */
    uint32_t scales[FOURS_STAGES][2 * MANY_BOX]; /* of a row's four groups, a byte each */
    uint64_t full[FOURS_STAGES], empty[FOURS_STAGES];
    int32_t begin[ROUTING_MAX_EXPERTS + 1], before[ROUTING_MAX_EXPERTS + 1], pair[FOURS_MULTIPLYING / 128][FOURS_WIDTH];
};

template <many_kind KIND>
struct fours_work
    : many_work<__nv_bfloat16, KIND, FOURS_STAGES, FOURS_WIDTH, MANY_BRINGING, FOURS_STAGES, fours_shared> {
    using T = __nv_bfloat16;
    using base = many_work<T, KIND, FOURS_STAGES, FOURS_WIDTH, MANY_BRINGING, FOURS_STAGES, fours_shared>;
    using base::a, base::sh, base::map, base::FIRST;
    static const int ROWS = FOURS_WIDTH * 8 / MANY_BRINGING, APART = MANY_BRINGING / 8; /* of x, per thread */
    static const int APART_ROWS = FIRST ? MANY_BOX : 8; /* in a tile, of the two that a thread multiplies */
    const coded &w;
    int n_stages;

    __device__ fours_work(const expert_product<T> &args, const coded &weights, const CUtensorMap *of_codes,
                          fours_shared *shared)
        : base(args, of_codes, shared), w(weights), n_stages((args.cols + FOURS_COLS - 1) / FOURS_COLS)
    {
    }

    /* ---- producers ---- */

    /* Called by one thread. */
    __device__ void bring_codes(const many_tile &tile, int stage, int place) const
    {
        uint32_t full = shared_address(&sh->full[place]);
        barrier_expect(full, sizeof sh->w[place]);
        for (int b = 0; b < 2; b++)
            box_of_expert(shared_address(sh->w[place][b]), map, stage * FOURS_ROW,
                          tile.row0 + (FIRST ? 0 : b * MANY_BOX), FIRST ? b : 0, tile.expert, full);
    }
    __device__ unsigned begin() const
    {
        many_tile tile;
        int i = -1;
        unsigned n = FIRST || !this->next_tile(tile, i) ? 0 : (unsigned)min(FOURS_STAGES, n_stages);
        if (threadIdx.x == 0)
            for (unsigned s = 0; s < n; s++)
                bring_codes(tile, (int)s, (int)s);
        if (!FIRST)
            this->wait();
        return n;
    }
    /* Finds the first pair of scales of two rows: this thread brings those of its row in both boxes. */
    __device__ void find_scales(uint32_t (&from)[2], const many_tile &tile) const
    {
#pragma unroll
        for (int b = 0; b < 2; b++) {
            int row = min(tile.row0 + (FIRST ? 0 : b * MANY_BOX) + (int)threadIdx.x, a.rows - 1);
            int all = FIRST ? tile.expert * 2 * a.rows + row_of_gate(a, row, b) : tile.expert * a.rows + row;
            from[b] = (uint32_t)all * (uint32_t)(w.n_groups / 2);
        }
    }
    /* Loads a stage's scales; the last groups replace those that it lacks. */
    __device__ void load_scales(uint32_t (&to)[2][2], const uint32_t (&from)[2], int stage) const
    {
        int first = w.form.first / FOURS_GROUP / 2 + stage * 2, last = w.n_groups / 2 - 1;
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                to[b][i] = ((const uint16_t *)w.scales)[from[b] + (uint32_t)min(first + i, last)];
    }
    __device__ void bring_rows(const int (&row)[ROWS], int stage, int place) const
    {
        int piece = (int)threadIdx.x % 8, t = (int)threadIdx.x / 8;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int k = stage * FOURS_COLS + c * 64 + piece * 8;
            char *to = sh->x[place][c] + t * 128 + (piece ^ t % 8) * 16;
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (row[i] >= 0)
                    async_copy(to + i * APART * 128, k < a.cols ? a.x + (size_t)row[i] * a.cols + k : a.x, k < a.cols);
        }
        async_commit();
    }
    __device__ void bring() const
    {
        many_tile tile;
        unsigned done = 0, early = begin();
        for (int i = -1; this->next_tile(tile, i);) {
            int row[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                int t = (int)threadIdx.x / 8 + r * APART;
                row[r] = t < tile.n_tokens ? this->x_row(tile, t) : -1;
            }
            uint32_t from[2], next[2][2];
            find_scales(from, tile);
            load_scales(next, from, 0);
            for (int s = 0; s < n_stages; s++, done++) {
                int place = base::place_of(done);
                barrier_wait(shared_address(&sh->empty[place]), base::phase_of(done) ^ 1);
                if (threadIdx.x == 0 && done >= early)
                    bring_codes(tile, s, place);
                for (int b = 0; b < 2; b++)
                    sh->scales[place][b * MANY_BOX + (int)threadIdx.x] = next[b][0] | next[b][1] << 16;
                load_scales(next, from, s + 1);
                bring_rows(row, s, place);
                if (done < MANY_LAG)
                    continue;
                async_wait<MANY_LAG>();
                this->tell(done - MANY_LAG);
            }
        }
        async_wait<0>();
        for (unsigned i = done < MANY_LAG ? 0 : done - MANY_LAG; i < done; i++)
            this->tell(i);
    }

    /* ---- consumers ---- */

    /* The first of the 8 rows in a tile to which this thread's first row belongs. A thread multiplies a gate and its
     * up, or rows 0 and 8. */
    __device__ static int first_row()
    {
        return (int)(threadIdx.x - MANY_BRINGING) / 32 * (FIRST ? 8 : 16);
    }
    __device__ static int own_row()
    {
        return first_row() + (int)threadIdx.x % 32 / 4;
    }
    using rows = uint32_t[2];

    /* Fills `to` with the exponents, a byte each, of 2^126 times the scales, at most 2^127. Returns whether any scale
     * of the warp is larger. */
    __device__ static bool find_powers(rows &to, const rows &scales)
    {
        uint32_t any = 0;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            any |= ((scales[h] & 0x7f7f7f7fu) + 0x7f7f7f7fu) & scales[h];
            to[h] = scales[h] + 0x7e7e7e7eu;
        }
        bool large = __any_sync(0xffffffffu, (any & 0x80808080u) != 0);
        if (large)
#pragma unroll
            for (int h = 0; h < 2; h++)
                to[h] = __vminu4(scales[h], FOURS_LARGE * 0x01010101u) + 0x7e7e7e7eu;
        return large;
    }

    /* The codes of columns 2 (lane % 4) and the next one in each of two words' 8, as pairs of numbers: exact, for
     * subnormal ones, too. pick: the place of these codes' byte in both words, twice. */
    __device__ static void widen(uint32_t &first, uint32_t &second, uint32_t w0, uint32_t w1, uint32_t pick,
                                 uint32_t power)
    {
        uint32_t both = codes_pick(w0, w1, pick), v = codes_merge(both, both << 12, 0x0000ffffu);
        const uint32_t FIELDS = 0x81c081c0u; /* sign; exponent and mantissa */
        first = tensor_multiply<T>((v & 0x000f000fu) * (64 + 4096) & FIELDS, power);
        second = tensor_multiply<T>((v >> 2 & 0x03c003c0u) * (1 + 64) & FIELDS, power);
    }
    /* A pair of powers of two. */
    __device__ static uint32_t power_of(uint32_t exponents, int group)
    {
        return codes_pick(exponents, 0, 0x0404u + (uint32_t)group * 0x1010u) >> 1;
    }
    /* Returns what a multiplication by the largest power leaves of a scale. */
    __device__ static uint32_t rest_of(uint32_t scales, int group)
    {
        uint32_t s = scales >> 8 * group & 255u, exponent = s == 255 ? 255 : s > FOURS_LARGE ? s - 1 : 127;
        return exponent << 7 | exponent << 23;
    }

    /* The words of codes with this thread's columns of 16, for its two rows. */
    using words = uint2[2];

    /* codes: of this thread's first row; k: which 16 columns of a stage. */
    __device__ static void load(words &to, const char *codes, int k)
    {
        int at = (k / 2 ^ (int)threadIdx.x % 32 / 8 % 4) * 16 + k % 2 * 8;
#pragma unroll
        for (int h = 0; h < 2; h++)
            to[h] = *(const uint2 *)(codes + h * APART_ROWS * FOURS_ROW + at);
    }
    /* A product's operands. */
    __device__ static void dequantise(uint32_t (&to)[4], const words &word, const rows &powers)
    {
        const uint32_t pick = threadIdx.x % 4 * 0x1111u + 0x4040u;
#pragma unroll
        for (int h = 0; h < 2; h++)
            widen(to[h], to[2 + h], word[h].x, word[h].y, pick, powers[h]);
    }
    /* 64 columns, from `first` times 16 on. Other warpgroups dequantise while this one waits for its products. */
    template <int HALF>
    __device__ static void multiply_columns(float (&sum)[HALF], const char *codes, int first, uint64_t x,
                                            const rows &scales, const rows &exponents, bool large)
    {
        words word;
        rows powers;
        load(word, codes, first);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int group = first / 2 + k / 2;
            uint32_t of[4];
#pragma unroll
            for (int h = 0; h < 2 && k % 2 == 0; h++)
                powers[h] = power_of(exponents[h], group);
            dequantise(of, word, powers);
            if (large)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    of[i] = tensor_multiply<T>(of[i], rest_of(scales[i % 2], group));
            if (k < 3)
                load(word, codes, first + k + 1);
            warpgroup_begin();
            warpgroup_product_of_rows(sum, of, x + k * 2);
            warpgroup_commit();
            warpgroup_wait<0>();
        }
    }
    template <int HALF>
    __device__ void multiply_tile(float (&sum)[HALF], unsigned &done) const
    {
#pragma unroll
        for (int i = 0; i < HALF; i++)
            sum[i] = 0;
        for (int s = 0; s < n_stages; s++, done++) {
            int place = base::place_of(done), end = min(2, base::n_stages - 2 * s);
            rows scales, exponents;
            barrier_wait(shared_address(&sh->full[place]), base::phase_of(done));
            const char *codes = sh->w[place][0] + own_row() * FOURS_ROW;
#pragma unroll
            for (int h = 0; h < 2; h++)
                scales[h] = sh->scales[place][own_row() + h * APART_ROWS];
            bool large = find_powers(exponents, scales);
#pragma unroll 1
            for (int c = 0; c < end; c++)
                multiply_columns(sum, codes, c * 4, warpgroup_matrix<128>(shared_address(sh->x[place][c]), 16, 1024),
                                 scales, exponents, large);
            this->release(done);
        }
        warpgroup_results(sum);
    }
    template <int HALF>
    __device__ void store_rows(const float (&sum)[HALF], const many_tile &tile) const
    {
        const gate_formula formula = gate_formula_of(a.kind);
        int first = tile.row0 + first_row(), own = tile.row0 + own_row();
        float bias[2] = {0, 0};
#pragma unroll
        for (int h = 0; h < 2 && a.bias != nullptr; h++)
            if (FIRST && own < a.rows)
                bias[h] = gate_bias(a, tile.expert, own, h);
            else if (!FIRST && own + h * 8 < a.rows)
                bias[h] = weight_at(a.bias, a.bias_type, tile.expert * a.rows + own + h * 8, 0);
#pragma unroll
        for (int j = 0; j < HALF / 4; j++) {
            float y[2][2];
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[i / 2][i % 2] = sum[j * 4 + i] + bias[i / 2];
            if (FIRST) {
                this->store(j, first, gated_by(formula, y[0][0], y[1][0]), gated_by(formula, y[0][1], y[1][1]), tile);
            } else {
                this->store(j, first, y[0][0], y[0][1], tile);
                this->store(j, first + 8, y[1][0], y[1][1], tile);
            }
        }
    }
    template <int N>
    __device__ __forceinline__ void run_width(const many_tile &tile, unsigned &done) const
    {
        float sum[N / 2];
        multiply_tile(sum, done);
        store_rows(sum, tile);
    }
    __device__ void multiply_tiles() const
    {
        many_tile tile;
        unsigned done = 0;
        for (int i = -1; this->next_tile(tile, i);) {
            this->keep_pairs(tile);
            if (tile.n_tokens <= 16)
                run_width<16>(tile, done);
            else if (tile.n_tokens <= 32)
                run_width<32>(tile, done);
            else if (tile.n_tokens <= 64)
                run_width<64>(tile, done);
            else if (tile.n_tokens <= 80)
                run_width<80>(tile, done);
            else
                run_width<FOURS_WIDTH>(tile, done);
        }
    }
};

/* grid: one block per multiprocessor. map: of the codes, see coded_many_host.cuh */
template <many_kind KIND>
__global__ void __launch_bounds__(FOURS_THREADS, 1)
    fours_many(const __grid_constant__ expert_product<__nv_bfloat16> a, const __grid_constant__ coded w,
               const __grid_constant__ CUtensorMap map)
{
    extern __shared__ uint4 shared[];
    fours_work<KIND> work(a, w, &map, many_memory<fours_shared>(shared));
    work.open(1 + MANY_BRINGING / 32, KIND == MANY_FIRST, FOURS_MULTIPLYING);
    if (threadIdx.x < MANY_BRINGING) {
        give_registers<64>();
        work.bring();
    } else {
        take_registers<104>();
        work.multiply_tiles();
    }
}

#endif
