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
 * steps each, and attention_same_parts.cuh, which runs beside them, does the rest. */
#ifndef ATTENTION_ATTENTION_SAME_CUH
#define ATTENTION_ATTENTION_SAME_CUH

#include "kernels/cuda/attention/attention_decode.cuh"
#include "kernels/cuda/attention/attention_prompts_loads.cuh"
#include "kernels/cuda/attention/attention_prompts_softmax.cuh"

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

/* A step has OWN pieces of keys and as many of values for each warp, whose columns are TILES x 8. */
template <int HD>
struct same_layout {
    static const int STEP = prompt_layout<HD>::STEP, PAGES = prompt_layout<HD>::PAGES, OWN = PAGES / SAME_WARPS;
    static const int KEYS = OWN * KV_BLOCK_TOKENS, TILES = (HD / 8 + SAME_WARPS - 1) / SAME_WARPS;
    using keys = same_rows<HD / 8>;
    using values = same_rows<TILES>;
    static const int OF_KEYS = KV_BLOCK_TOKENS * keys::PITCH, OF_VALUES = SAME_VALUES * values::PITCH;
    static_assert(STEP == OWN * SAME_VALUES, "a step has as many pieces of values as of keys");
};

/* SLOTS: pieces of each warp's ring. */
template <typename T, int HD, int SLOTS>
struct same_shared {
    using layout = same_layout<HD>;
    uint4 slot[SAME_WARPS][SLOTS][layout::OF_KEYS > layout::OF_VALUES ? layout::OF_KEYS : layout::OF_VALUES];
    uint4 weight[layout::PAGES][32]; /* of a step: each lane's part of operand A */
    float2 sum[SAME_WARPS][32];
    float top[SAME_WARPS][DECODE_ROWS];
    uint4 query[attention_query<T, HD>::shared_bytes / 16 + 1]; /* the same for all warps */
};

/* An item and its steps. */
template <typename T, int HD>
struct same_item {
    using layout = same_layout<HD>;
    const attention_args<T> &a;
    decode_item m;
    int lane, last_step, n_steps;
    int group, ids, ids_before; /* a lane's entries of the block table: of 32 blocks, and of the 32 before */

    __device__ same_item(const attention_args<T> &args, int t, int which)
        : a(args), m(find_item(args, t, which)), lane((int)threadIdx.x % 32)
    {
        last_step = m.seen.last < 0 ? 0 : m.seen.last / layout::STEP;
        n_steps = m.seen.last < 0 ? 0 : last_step - m.seen.first / layout::STEP + 1;
    }
    __device__ bool is_seen(int block) const
    {
        return block >= m.begin && block < m.end;
    }
    __device__ int entry_of(int block) const
    {
        return is_seen(block) ? m.table[block] : -1;
    }
    __device__ int entry(int of_group) const
    {
        return entry_of(of_group * 32 + lane);
    }
    __device__ int first_block(int step) const
    {
        return (last_step - step) * layout::PAGES;
    }
    /* Loads the first entries of the block table. */
    __device__ void find_blocks()
    {
        group = first_block(0) / 32;
        ids = entry(group);
        ids_before = entry(group - 1);
    }
    /* Returns a step's first block, whose entries `ids` then has. */
    __device__ int turn_to(int step)
    {
        int block0 = first_block(step);
        if (block0 / 32 != group) {
            group--;
            ids = ids_before;
            ids_before = entry(group - 1);
        }
        return block0;
    }
    /* Columns from unit on of a row of values, counted from those of block0, in a block with number id. */
    __device__ void copy_value(uint4 *to, int block0, int row, int id, int unit) const
    {
        bool wanted = id >= 0 && block0 * KV_BLOCK_TOKENS + row <= m.seen.last;
        const T *page = a.v_cache + ((size_t)max(id, 0) * a.heads.n_kv_heads + m.kv) * (KV_BLOCK_TOKENS * HD);
        async_copy(to, page + row % KV_BLOCK_TOKENS * HD + unit * 8, wanted);
    }
    /* ---- what blocks hand on of divided items: see attention_same_parts.cuh ---- */
    __device__ size_t place_of(int step) const
    {
        return (size_t)m.index * (size_t)((a.blocks_per_slot + layout::PAGES - 1) / layout::PAGES) + (size_t)step;
    }
    /* The scores of eight rows: [PAGES][lanes]. half: 0, or 1 if an item has more than eight rows. */
    __device__ float4 *scores_of(int step, int half) const
    {
        size_t halves = a.rows_per_item > 8 ? 2 : 1;
        return (float4 *)a.partial + (place_of(step) * halves + half) * (layout::PAGES * 32);
    }
    /* A row's best scores, by warps. */
    __device__ float *tops_of(int step, int row) const
    {
        return (float *)a.partial_sums + (place_of(step) * DECODE_ROWS + row) * SAME_WARPS;
    }
    /* The number of warps that have stored their scores of a step. */
    __device__ unsigned *stored_of(int step) const
    {
        return a.n_arrived + (size_t)gridDim.x * gridDim.y + place_of(step);
    }
};

/* A lane's part of operand A, of the weights of 16 keys. */
template <typename T>
__device__ static inline uint4 operand_of(const float *s)
{
    return make_uint4(tensor_pack<T>(s[0], s[1]), tensor_pack<T>(s[2], s[3]), tensor_pack<T>(s[4], s[5]),
                      tensor_pack<T>(s[6], s[7]));
}

/* TOKEN: stored_token or fresh_token. */
template <typename T, int HD, int SLOTS, typename TOKEN>
struct same_warp : same_item<T, HD> {
    using item = same_item<T, HD>;
    using item::a, item::m, item::lane, item::n_steps, item::ids;
    using typename item::layout;
    static const int OWN = layout::OWN, TILES = layout::TILES, KEYS = layout::KEYS;
    same_shared<T, HD, SLOTS> *sh;
    TOKEN token;
    int warp, tile0, part;
    uint4 value;        /* of a fresh token: this lane's unit of the warp's columns */
    int slot = 0;       /* of the oldest piece */
    unsigned there = 0; /* a bit for every slot whose keys exist */
    attention_query<T, HD> query;
    prompt_rows<KEYS> rows;
    float out[TILES][4];

    __device__ same_warp(const attention_args<T> &args, same_shared<T, HD, SLOTS> *shared, const TOKEN &of_item)
        : item(args, (int)blockIdx.x, (int)blockIdx.y), sh(shared), token(of_item), warp((int)threadIdx.x / 32),
          tile0((int)threadIdx.x / 32 * TILES), part((int)blockIdx.z)
    {
    }

    /* ---- copies ---- */

    __device__ uint4 *at_slot(int ahead) const
    {
        int which = slot + ahead;
        return sh->slot[warp][which < SLOTS ? which : which - SLOTS];
    }
    __device__ void fetch_keys(int id)
    {
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
            int block = block0 + (whole ? i * AT_ONCE : row) / KV_BLOCK_TOKENS;
            int id = __shfl_sync(0xffffffffu, ids, block % 32);
            if (this->is_seen(block) && tile0 + unit < HD / 8)
                this->copy_value(to + layout::values::at(row, unit), block0, row, id, tile0 + unit);
        }
    }
    __device__ void end_fetch()
    {
        async_commit();
        slot = slot + 1 < SLOTS ? slot + 1 : 0;
    }
    /* Starts to copy to the oldest piece's slot, which thereby becomes the newest: piece number `piece` of a step, or
     * of those after it. */
    __device__ __forceinline__ void fetch(int step, int piece)
    {
        step += piece / (2 * OWN);
        piece %= 2 * OWN;
        if (step < n_steps) {
            int block0 = this->turn_to(step), block = block0 + warp * OWN + piece;
            if (piece < OWN)
                fetch_keys(__shfl_sync(0xffffffffu, ids, block % 32));
            else
                fetch_values(block0 + (piece - OWN) * (SAME_VALUES / KV_BLOCK_TOKENS));
        }
        end_fetch();
    }

    /* ---- a fresh token, of an item that is not divided: its key is one of the first step's ---- */

    /* The place of its block among those of the step. */
    __device__ int fresh_page() const
    {
        return m.seen.last / KV_BLOCK_TOKENS % layout::PAGES;
    }
    /* The warp's piece of keys that has its key; -1: none has. */
    __device__ int fresh_piece() const
    {
        return n_steps > 0 && fresh_page() / OWN == warp ? fresh_page() % OWN : -1;
    }
    __device__ void load_fresh()
    {
        if constexpr (TOKEN::FRESH) {
            const T *row = query_row(a, m.t, a.heads.n_heads + a.heads.n_kv_heads + m.kv);
            if (lane < TILES && tile0 + lane < HD / 8)
                value = *(const uint4 *)(row + (tile0 + lane) * 8);
            token.load(query, a, m, fresh_piece() >= 0);
        }
    }
    /* Puts the key into the copy of its block. */
    __device__ void put_key(int step)
    {
        if constexpr (TOKEN::FRESH) {
            int piece = fresh_piece();
            if (step > 0 || piece < 0)
                return;
            token.template put_key<typename layout::keys>(at_slot(piece), m.seen.last % KV_BLOCK_TOKENS);
            __syncwarp();
        }
    }
    /* Puts the value's columns of this warp into the oldest piece, if it is theirs: piece p of the step's values. */
    __device__ void put_value(int step, int p)
    {
        if constexpr (TOKEN::FRESH) {
            if (step > 0 || fresh_page() * KV_BLOCK_TOKENS / SAME_VALUES != p)
                return;
            if (lane < TILES && tile0 + lane < HD / 8)
                at_slot(0)[layout::values::at(m.seen.last % SAME_VALUES, lane)] = value;
            __syncwarp();
        }
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
    /* fetch_after(piece): lets the copy follow that takes a piece's slot. */
    template <typename F>
    __device__ void score_step(float (&s)[KEYS / 2], int step, F fetch_after)
    {
        async_wait<SLOTS - OWN>();
        __syncwarp();
        put_key(step);
        score(s, this->first_block(step) * KV_BLOCK_TOKENS + warp * KEYS);
#pragma unroll
        for (int p = 0; p < OWN; p++) {
            __syncwarp(); /* the slot may be refilled */
            fetch_after(p);
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
    /* Scores to weights, for all warps; scales the sums so far. top: the best scores of the step. */
    __device__ void weigh(float (&s)[KEYS / 2], const float (&top)[2])
    {
        float keep[2], base[2], part[SAME_WARPS][2], scale = a.heads.scale * ATTENTION_LOG2_E;
        rows.raise(top, scale, keep, base);
        rows.template weigh_keys<KEYS>(s, scale, base, part[0]);
        sh->sum[warp][lane] = make_float2(part[0][0], part[0][1]);
#pragma unroll
        for (int p = 0; p < OWN; p++)
            sh->weight[warp * OWN + p][lane] = operand_of<T>(s + p * 8);
        __syncthreads();
#pragma unroll
        for (int v = 0; v < SAME_WARPS; v++)
            part[v][0] = sh->sum[v][lane].x, part[v][1] = sh->sum[v][lane].y;
        rows.add(make_float2(rows.sum_of_step(part, 0), rows.sum_of_step(part, 1)), make_float2(keep[0], keep[1]));
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                out[j][i] *= keep[i / 2];
    }

    /* ---- values ---- */

    /* Adds the values of the oldest piece; place: of its first block in the step. */
    __device__ void add_values(int block0, int place)
    {
        const uint4 *from = at_slot(0);
#pragma unroll
        for (int pair = 0; pair < SAME_VALUES / 32; pair++) {
            int block = block0 + place + pair * 2;
            if (!this->is_seen(block) && !this->is_seen(block + 1))
                continue;
            uint32_t r[TILES][4];
#pragma unroll
            for (int j = 0; j < TILES; j++)
                tensor_load_transposed(r[j], from + layout::values::at(pair * 32 + lane, j));
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (!this->is_seen(block + h))
                    continue;
                uint4 w = sh->weight[place + pair * 2 + h][lane];
#pragma unroll
                for (int j = 0; j < TILES; j++)
                    tensor_mma<T>(out[j], w.x, w.y, w.z, w.w, r[j][2 * h], r[j][2 * h + 1]);
            }
        }
    }
    __device__ void add_step(int step)
    {
#pragma unroll
        for (int p = 0; p < OWN; p++) {
            async_wait<SLOTS - 1>();
            __syncwarp();
            put_value(step, p);
            add_values(this->first_block(step), p * (SAME_VALUES / KV_BLOCK_TOKENS));
            __syncwarp();
            fetch(step, OWN + p + SLOTS);
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
        if (TOKEN::FRESH)
            wait_for_previous();
        query.shared = sh->query + lane;
        if (query.in_registers || warp == 0)
            query.load(lane / 4 < m.n_rows ? query_row(a, m.t, m.head0 + lane / 4) : NULL,
                       lane / 4 + 8 < m.n_rows ? query_row(a, m.t, m.head0 + lane / 4 + 8) : NULL, HD);
        if (!query.in_registers)
            __syncthreads();
        load_fresh();
    }
    __device__ void attend_whole()
    {
        float s[KEYS / 2], top[2];
#pragma unroll
        for (int i = 0; i < SLOTS; i++)
            fetch(0, i);
        load_query();
        begin_rows();
        for (int step = 0; step < n_steps; step++) {
            score_step(s, step, [&](int p) { fetch(step, p + SLOTS); });
            rows.highest(s, top);
            join_tops(top);
            weigh(s, top);
            add_step(step);
        }
        async_wait<0>();
        store();
    }

    /* ---- a part of a divided item: every max_parts-th step from step `part` on ---- */

    __device__ int step_of(int piece) const
    {
        return part + piece / OWN * a.max_parts;
    }
    /* A lane's entry of the block table: of piece number `first` + lane of the part's keys. */
    __device__ void find_pieces(int first)
    {
        int piece = first + lane, step = step_of(piece);
        ids = step < n_steps ? this->entry_of(this->first_block(step) + warp * OWN + piece % OWN) : -1;
    }
    __device__ __forceinline__ void fetch_of_part(int piece)
    {
        if (piece > 0 && piece % 32 == 0)
            find_pieces(piece);
        if (step_of(piece) < n_steps)
            fetch_keys(__shfl_sync(0xffffffffu, ids, piece % 32));
        end_fetch();
    }
    /* Stores the warp's scores of a step, and tells so. */
    __device__ void hand_on(const float (&s)[KEYS / 2], const float (&top)[2], int step)
    {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = lane / 4 + half * 8, at = half * 2;
            if (row >= m.n_rows)
                continue;
            float4 *to = this->scores_of(step, half) + warp * OWN * 32 + lane;
#pragma unroll
            for (int p = 0; p < OWN; p++, at += 8)
                to[p * 32] = make_float4(s[at], s[at + 1], s[at + 4], s[at + 5]);
            if (lane % 4 == 0)
                this->tops_of(step, row)[warp] = top[half];
        }
        __syncwarp();
        if (lane == 0) { /* for all lanes: fences and barriers are cumulative */
            __threadfence();
            atomicAdd(this->stored_of(step), 1u);
        }
    }
    /* After find_pieces(0). */
    __device__ void attend_part()
    {
        float s[KEYS / 2], top[2];
#pragma unroll
        for (int i = 0; i < SLOTS; i++)
            fetch_of_part(i);
        load_query();
        begin_rows();
        for (int piece = 0; step_of(piece) < n_steps; piece += OWN) {
            score_step(s, step_of(piece), [&](int p) { fetch_of_part(piece + p + SLOTS); });
            rows.highest(s, top);
            hand_on(s, top, step_of(piece));
        }
        async_wait<0>();
    }
};

/* The number of blocks that share a multiprocessor. */
template <typename T, int HD, int SLOTS>
constexpr int same_blocks()
{
    const int fit = (227 << 10) / (int)(sizeof(same_shared<T, HD, SLOTS>) + 1024);
    return fit < 4 ? fit : 4;
}

/* Are an item's steps divided? */
__device__ static inline bool same_divides(int n_steps, int max_parts)
{
    return max_parts > 1 && n_steps > SAME_WHOLE;
}

#endif
