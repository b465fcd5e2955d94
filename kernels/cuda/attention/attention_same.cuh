/* kernels/cuda/attention/attention_same.cuh - attention of single tokens with the bits of attention_prompts.cuh: every
 * row goes through the same roundings, in the same order. The columns of a score and the keys of a sum of values come
 * 16 at a time, which gives equal bits on both of Hopper's instructions; steps of keys are the same, the last one
 * first; the softmax is the same code.
 *
 * A block processes an item (attention_decode.cuh). For the scores and weights of a step each of its four warps takes a
 * quarter of the keys, for the sums of values a quarter of the columns, so that a warp copies what it alone reads, in
 * pieces through a ring of its own: its blocks of keys, then 64 keys' values at a time.
 *
 * Few items with many keys are divided without another order of sums: blocks of the grid compute the scores of some
 * steps each; after them attention_same_values adds the values, a block some of the columns. */
#ifndef ATTENTION_ATTENTION_SAME_CUH
#define ATTENTION_ATTENTION_SAME_CUH

#include "kernels/cuda/attention/attention_decode.cuh"
#include "kernels/cuda/attention/attention_prompts.cuh"

#define SAME_WARPS  4
#define SAME_VALUES 64 /* keys whose values form a piece */
#define SAME_WHOLE  6  /* most steps of an item that is not divided */

/* Rows of UNITS x 16 bytes in shared memory, arranged so that a unit of eight neighbouring rows fills all banks. */
template <int UNITS>
struct same_rows {
    static const bool SWIZZLED = (UNITS & (UNITS - 1)) == 0;
    static const int PITCH = SWIZZLED ? UNITS : UNITS | 1, SPAN = UNITS < 8 ? UNITS : 8;

    __device__ static int at(int row, int unit)
    {
        return row * PITCH + (SWIZZLED ? unit ^ row * SPAN / 8 % SPAN : unit);
    }
};

/* SLICES: of the columns of values, one per block. A step has OWN pieces of keys and as many of values for each warp,
 * whose columns are TILES x 8. */
template <int HD, int SLICES>
struct same_layout {
    static const int STEP = prompt_layout<HD>::STEP, PAGES = prompt_layout<HD>::PAGES, OWN = PAGES / SAME_WARPS;
    static const int KEYS = OWN * KV_BLOCK_TOKENS, WARPS = SAME_WARPS * SLICES, TILES = (HD / 8 + WARPS - 1) / WARPS;
    using keys = same_rows<HD / 8>;
    using values = same_rows<TILES>;
    static const int OF_KEYS = SLICES == 1 ? KV_BLOCK_TOKENS * keys::PITCH : 0, OF_VALUES = SAME_VALUES * values::PITCH;
    static const int SLOT = OF_KEYS > OF_VALUES ? OF_KEYS : OF_VALUES, BUFFERS = SLICES == 1 ? 1 : 2;
    static_assert(STEP == OWN * SAME_VALUES, "a step has as many pieces of values as of keys");
};

/* SLOTS: pieces of each warp's ring. */
template <typename T, int HD, int SLOTS, int SLICES>
struct same_shared {
    using layout = same_layout<HD, SLICES>;
    uint4 slot[SAME_WARPS][SLOTS][layout::SLOT];
    uint4 weight[layout::BUFFERS][layout::PAGES][32]; /* of a step: each lane's part of operand A */
    float2 sum[layout::BUFFERS][SAME_WARPS][32];
    float top[SAME_WARPS][DECODE_ROWS];
    uint4 query[attention_query<T, HD>::shared_bytes / 16 + 1]; /* the same for all warps */
};

template <typename T, int HD, int SLOTS, int SLICES>
struct same_warp {
    using layout = same_layout<HD, SLICES>;
    static const int OWN = layout::OWN, TILES = layout::TILES, KEYS = layout::KEYS;
    same_shared<T, HD, SLOTS, SLICES> *sh;
    const attention_args<T> &a;
    decode_item m;
    int warp, lane, tile0, last_step, n_steps, end; /* end: of the steps of this block */
    int slot;                                       /* of the oldest piece */
    int group, ids, ids_before; /* a lane's entries of the block table: of 32 blocks, and of the 32 before */
    unsigned there;             /* a bit for every slot whose keys exist */
    attention_query<T, HD> query;
    prompt_rows<KEYS> rows;
    float out[TILES][4];

    /* ---- copies ---- */

    __device__ bool is_seen(int block) const
    {
        return block >= m.begin && block < m.end;
    }
    __device__ int entry(int of_group) const
    {
        int block = of_group * 32 + lane;
        return is_seen(block) ? m.table[block] : -1;
    }
    __device__ uint4 *at_slot(int ahead) const
    {
        int which = slot + ahead;
        return sh->slot[warp][which < SLOTS ? which : which - SLOTS];
    }
    __device__ void fetch_keys(int block)
    {
        int id = __shfl_sync(0xffffffffu, ids, block % 32);
        there = (there & ~(1u << slot)) | (unsigned)(id >= 0) << slot;
        if (id < 0)
            return;
        const T *from = a.k_cache + ((size_t)id * a.heads.n_kv_heads + m.kv) * KV_BLOCK_TOKENS * HD + lane * 8;
        uint4 *to = at_slot(0);
#pragma unroll
        for (int i = 0; i < HD / 16; i++) {
            int unit = lane + i * 32;
            async_copy(shared_address(to + layout::keys::at(unit / (HD / 8), unit % (HD / 8))), from + i * 256);
        }
    }
    /* Rows of unseen blocks stay as they are; unwritten memory must not enter a product. */
    __device__ void fetch_values(int block0)
    {
        const int AT_ONCE = 32 / TILES; /* rows */
        const bool whole = 32 % TILES == 0;
        uint4 *to = at_slot(0);
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++) {
            int row = whole ? lane / TILES + i * AT_ONCE : (lane + i * 32) / TILES;
            int unit = whole ? lane % TILES : (lane + i * 32) % TILES;
            int block = block0 + (whole && AT_ONCE <= KV_BLOCK_TOKENS ? i * AT_ONCE : row) / KV_BLOCK_TOKENS;
            int id = __shfl_sync(0xffffffffu, ids, block % 32);
            if (!is_seen(block) || tile0 + unit >= HD / 8)
                continue;
            bool wanted = id >= 0 && block0 * KV_BLOCK_TOKENS + row <= m.seen.last;
            const T *page = a.v_cache + ((size_t)max(id, 0) * a.heads.n_kv_heads + m.kv) * (KV_BLOCK_TOKENS * HD);
            async_copy(to + layout::values::at(row, unit), page + row % KV_BLOCK_TOKENS * HD + (tile0 + unit) * 8,
                       wanted);
        }
    }
    /* Starts to copy to the oldest piece's slot, which thereby becomes the newest: piece number `piece` of the COUNT
     * pieces from FIRST on of a step, or of those after it. */
    template <int FIRST, int COUNT>
    __device__ __forceinline__ void fetch(int step, int piece)
    {
        step += piece / COUNT;
        piece = FIRST + piece % COUNT;
        if (step < end) {
            int block0 = (last_step - step) * layout::PAGES;
            if (block0 / 32 != group) {
                group--;
                ids = ids_before;
                ids_before = entry(group - 1);
            }
            if (piece < OWN)
                fetch_keys(block0 + warp * OWN + piece);
            else
                fetch_values(block0 + (piece - OWN) * (SAME_VALUES / KV_BLOCK_TOKENS));
        }
        async_commit();
        slot = slot + 1 < SLOTS ? slot + 1 : 0;
    }
    /* Loads the first entries of the block table, for steps from `step` on. */
    __device__ void find_blocks(int step)
    {
        group = (last_step - step) * layout::PAGES / 32;
        ids = entry(group);
        ids_before = entry(group - 1);
    }
    template <int FIRST, int COUNT>
    __device__ void fetch_first(int step)
    {
        slot = 0;
        there = 0;
#pragma unroll
        for (int i = 0; i < SLOTS; i++)
            fetch<FIRST, COUNT>(step, i);
    }

    /* ---- scores and weights ---- */

    /* The warp's scores of a step whose first key is key0. */
    __device__ void score(float (&s)[KEYS / 2], int key0)
    {
        unsigned present = 0;
#pragma unroll
        for (int p = 0; p < OWN; p++)
            present |= (there >> (slot + p < SLOTS ? slot + p : slot + p - SLOTS) & 1) << p;
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            s[i] = present ? 0 : -INFINITY;
        if (!present)
            return;
#pragma unroll
        for (int c = 0; c < HD / 16; c++) {
            uint4 q = query.get(c);
#pragma unroll
            for (int p = 0; p < OWN; p++) {
                uint32_t r[4];
                tensor_load(r, at_slot(p) + layout::keys::at(lane / 16 * 8 + lane % 8, c * 2 + lane / 8 % 2));
                tensor_mma<T>((float(&)[4])s[p * 8], q.x, q.y, q.z, q.w, r[0], r[1]);
                tensor_mma<T>((float(&)[4])s[p * 8 + 4], q.x, q.y, q.z, q.w, r[2], r[3]);
            }
        }
        if (a.heads.alibi_slopes != NULL)
            rows.bias(s, key0);
        if (key0 + KEYS - 1 > m.seen.last)
            rows.mask_later(s, key0);
        if (key0 < m.seen.first)
            rows.mask_earlier(s, key0);
        rows.mask_absent(s, present);
    }
    /* Lets its copies follow, of COUNT pieces a step. */
    template <int COUNT>
    __device__ void score_step(float (&s)[KEYS / 2], int step)
    {
        async_wait<SLOTS - OWN>();
        __syncwarp();
        score(s, (last_step - step) * layout::STEP + warp * KEYS);
#pragma unroll
        for (int p = 0; p < OWN; p++) {
            __syncwarp(); /* the slot may be refilled */
            fetch<0, COUNT>(step, p + SLOTS);
        }
    }
    /* The best scores of all warps. */
    __device__ void join_tops(float (&top)[2])
    {
        if (lane % 4 == 0)
            sh->top[warp][lane / 4] = top[0], sh->top[warp][lane / 4 + 8] = top[1];
        __syncthreads(); /* also ensures that no warp reads weights any more */
#pragma unroll
        for (int v = 0; v < SAME_WARPS; v++)
            top[0] = fmaxf(top[0], sh->top[v][lane / 4]), top[1] = fmaxf(top[1], sh->top[v][lane / 4 + 8]);
    }
    /* Scores to weights, for all warps, of which no one still reads the buffer's; scales the sums so far. top: the best
     * scores of the step. */
    __device__ void weigh(float (&s)[KEYS / 2], const float (&top)[2], int buffer)
    {
        float keep[2], base[2], part[SAME_WARPS][2], scale = a.heads.scale * ATTENTION_LOG2_E;
        rows.raise(top, scale, keep, base);
        rows.template weigh_keys<KEYS>(s, scale, base, part[0]);
        sh->sum[buffer][warp][lane] = make_float2(part[0][0], part[0][1]);
#pragma unroll
        for (int p = 0; p < OWN; p++)
            sh->weight[buffer][warp * OWN + p][lane] =
                make_uint4(tensor_pack<T>(s[p * 8], s[p * 8 + 1]), tensor_pack<T>(s[p * 8 + 2], s[p * 8 + 3]),
                           tensor_pack<T>(s[p * 8 + 4], s[p * 8 + 5]), tensor_pack<T>(s[p * 8 + 6], s[p * 8 + 7]));
        __syncthreads();
#pragma unroll
        for (int v = 0; v < SAME_WARPS; v++)
            part[v][0] = sh->sum[buffer][v][lane].x, part[v][1] = sh->sum[buffer][v][lane].y;
        rows.add(part, keep);
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[j][i] *= keep[i / 2];
    }

    /* ---- values ---- */

    /* Adds the values of the oldest piece; place: of its first block in the step. */
    __device__ void add_values(int block0, int place, int buffer)
    {
        const uint4 *from = at_slot(0);
#pragma unroll
        for (int pair = 0; pair < SAME_VALUES / 32; pair++) {
            int block = block0 + place + pair * 2;
            if (!is_seen(block) && !is_seen(block + 1))
                continue;
            uint32_t r[TILES][4];
#pragma unroll
            for (int j = 0; j < TILES; j++)
                tensor_load_transposed(r[j], from + layout::values::at(pair * 32 + lane, j));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (!is_seen(block + h))
                    continue;
                uint4 w = sh->weight[buffer][place + pair * 2 + h][lane];
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    tensor_mma<T>(out[j], w.x, w.y, w.z, w.w, r[j][2 * h], r[j][2 * h + 1]);
            }
        }
    }
    /* FIRST, COUNT: of the pieces that are copied. */
    template <int FIRST, int COUNT>
    __device__ void add_step(int step, int buffer)
    {
#pragma unroll
        for (int p = 0; p < OWN; p++) {
            async_wait<SLOTS - 1>();
            __syncwarp();
            add_values((last_step - step) * layout::PAGES, p * (SAME_VALUES / KV_BLOCK_TOKENS), buffer);
            __syncwarp();
            fetch<FIRST, COUNT>(step, OWN - FIRST + p + SLOTS);
        }
    }
    __device__ void store()
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = lane / 4 + i * 8, head = m.head0 + row;
            float sum = rows.all_lanes_sum(i);
            if (row >= m.n_rows)
                continue;
            float share = rows.share(i, a, head, sum);
            T *to = a.out + ((size_t)m.t * a.heads.n_heads + head) * HD;
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                int column = (tile0 + j) * 8 + lane % 4 * 2;
                if (column < HD)
                    *(uint32_t *)(to + column) = tensor_pack<T>(out[j][2 * i] * share, out[j][2 * i + 1] * share);
            }
        }
    }

    /* ---- an item ---- */

    __device__ void open(int slice)
    {
        warp = (int)threadIdx.x / 32;
        lane = (int)threadIdx.x % 32;
        tile0 = (slice * SAME_WARPS + warp) * TILES;
        last_step = m.seen.last < 0 ? 0 : m.seen.last / layout::STEP;
        end = n_steps = m.seen.last < 0 ? 0 : last_step - m.seen.first / layout::STEP + 1;
    }
    __device__ void begin_rows()
    {
        for (int i = 0; i < 2; i++) {
            int row = lane / 4 + i * 8;
            rows.begin(i, a, m.seen, m.head0 + (row < m.n_rows ? row : 0));
        }
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[j][i] = 0;
    }
    __device__ void load_query()
    {
        query.shared = sh->query + lane;
        if (query.in_registers || warp == 0)
            query.load(lane / 4 < m.n_rows ? query_row(a, m.t, m.head0 + lane / 4) : NULL,
                       lane / 4 + 8 < m.n_rows ? query_row(a, m.t, m.head0 + lane / 4 + 8) : NULL, HD);
        if (!query.in_registers)
            __syncthreads();
    }
    __device__ void attend_whole()
    {
        float s[KEYS / 2], top[2];
        fetch_first<0, 2 * OWN>(0);
        load_query();
        begin_rows();
        for (int step = 0; step < n_steps; step++) {
            score_step<2 * OWN>(s, step);
            rows.highest(s, top);
            join_tops(top);
            weigh(s, top, 0);
            add_step<0, 2 * OWN>(step, 0);
        }
        async_wait<0>();
        store();
    }
    /* Scores and best scores of steps, for attention_same_values: [steps][warps][KEYS / 8][lanes],
     * [steps][rows][warps]. */
    __device__ size_t place_of(int step) const
    {
        return (size_t)m.index * (size_t)((a.blocks_per_slot + layout::PAGES - 1) / layout::PAGES) + (size_t)step;
    }
    __device__ float4 *scores_of(int step) const
    {
        return (float4 *)a.partial + (place_of(step) * SAME_WARPS + warp) * (KEYS / 8 * 32) + lane;
    }
    __device__ float *tops_of(int step, int row) const
    {
        return (float *)a.partial_sums + (place_of(step) * DECODE_ROWS + row) * SAME_WARPS;
    }
    /* Stores the scores of steps [begin, end). */
    __device__ void attend_part(int begin)
    {
        float s[KEYS / 2], top[2];
        fetch_first<0, OWN>(begin);
        load_query();
        begin_rows();
        for (int step = begin; step < end; step++) {
            score_step<OWN>(s, step);
            rows.highest(s, top);
            float4 *to = scores_of(step);
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
                to[i * 32] = make_float4(s[i * 4], s[i * 4 + 1], s[i * 4 + 2], s[i * 4 + 3]);
            if (lane % 4 == 0)
                tops_of(step, lane / 4)[warp] = top[0], tops_of(step, lane / 4 + 8)[warp] = top[1];
        }
        async_wait<0>();
    }
    __device__ void load_scores(float4 (&s)[KEYS / 8], float4 (&tops)[2], int step) const
    {
        if (step >= n_steps)
            return;
#pragma unroll
        for (int i = 0; i < KEYS / 8; i++)
            s[i] = __ldcg(scores_of(step) + i * 32);
#pragma unroll
        for (int i = 0; i < 2; i++)
            tops[i] = __ldcg((const float4 *)tops_of(step, lane / 4 + i * 8));
    }
    /* The sums of this block's columns. */
    __device__ void add_all_values()
    {
        float4 next[KEYS / 8], tops[2];
        find_blocks(0);
        fetch_first<OWN, OWN>(0);
        wait_for_previous();
        load_scores(next, tops, 0);
        begin_rows();
        for (int step = 0; step < n_steps; step++) {
            float s[KEYS / 2], top[2];
#pragma unroll
            for (int i = 0; i < KEYS / 8; i++)
                s[i * 4] = next[i].x, s[i * 4 + 1] = next[i].y, s[i * 4 + 2] = next[i].z, s[i * 4 + 3] = next[i].w;
#pragma unroll
            for (int i = 0; i < 2; i++)
                top[i] = fmaxf(fmaxf(tops[i].x, tops[i].y), fmaxf(tops[i].z, tops[i].w));
            load_scores(next, tops, step + 1);
            weigh(s, top, step % 2);
            add_step<OWN, OWN>(step, step % 2);
        }
        async_wait<0>();
        store();
    }
};

/* The number of blocks that share a multiprocessor. */
template <typename T, int HD, int SLOTS>
constexpr int same_blocks()
{
    const int fit = (227 << 10) / (int)(sizeof(same_shared<T, HD, SLOTS, 1>) + 1024);
    return fit < 4 ? fit : 4;
}

/* grid: tokens, items of a token, parts into which items with many steps are divided */
template <typename T, int HD, int SLOTS>
__global__ void __launch_bounds__(SAME_WARPS * 32, same_blocks<T, HD, SLOTS>()) attention_same(attention_args<T> a)
{
    extern __shared__ uint4 shared[];
    same_warp<T, HD, SLOTS, 1> w = {(same_shared<T, HD, SLOTS, 1> *)shared, a,
                                    find_item(a, (int)blockIdx.x, (int)blockIdx.y)};
    w.open(0);
    bool divided = gridDim.z > 1 && w.n_steps > SAME_WHOLE;
    int length = divided ? (w.n_steps + (int)gridDim.z - 1) / (int)gridDim.z : w.n_steps;
    int begin = (int)blockIdx.z * length;
    w.end = min(w.n_steps, begin + length);
    w.find_blocks(begin);
    wait_for_previous();
    let_next_begin(); /* not before: attention_same_values reads values early */
    if (w.m.n_rows <= 0)
        return;
    if (divided && begin < w.end)
        w.attend_part(begin);
    else if (!divided && blockIdx.z == 0)
        w.attend_whole();
}

/* Eight columns for each warp. */
#define SAME_SLICES(HD)      (((HD) / 8 + SAME_WARPS - 1) / SAME_WARPS)
#define SAME_SLOTS_OF_VALUES 16

/* After attention_same for items that are divided. grid: tokens, items of a token, SAME_SLICES */
template <typename T, int HD>
__global__ void __launch_bounds__(SAME_WARPS * 32, 1) attention_same_values(attention_args<T> a)
{
    extern __shared__ uint4 shared[];
    using warp = same_warp<T, HD, SAME_SLOTS_OF_VALUES, SAME_SLICES(HD)>;
    warp w = {(same_shared<T, HD, SAME_SLOTS_OF_VALUES, SAME_SLICES(HD)> *)shared, a,
              find_item(a, (int)blockIdx.x, (int)blockIdx.y)};
    w.open((int)blockIdx.z);
    let_next_begin();
    if (w.m.n_rows > 0 && w.n_steps > SAME_WHOLE)
        w.add_all_values();
    else
        wait_for_previous(); /* so that "this kernel is done" implies "those before it are" */
}

#endif
