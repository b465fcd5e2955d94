/* kernels/cuda/attention/attention_same_parts.cuh - the rest of the attention of divided items: attention_same.cuh has
 * stored the scores of their steps, and the best ones. Here blocks turn the scores of some steps each into weights,
 * which depend on the best scores of the steps before; then warps add the values of all steps, 16 columns each. */
#ifndef ATTENTION_ATTENTION_SAME_PARTS_CUH
#define ATTENTION_ATTENTION_SAME_PARTS_CUH

#include "kernels/cuda/attention/attention_same.cuh"

#define SAME_RING 8 /* steps of values and weights in shared memory */

template <typename T, int HD>
struct same_part : same_item<T, HD> {
    using item = same_item<T, HD>;
    using item::a, item::m, item::lane, item::n_steps;
    using typename item::layout;

    __device__ same_part(const attention_args<T> &args) : item(args, (int)blockIdx.x, (int)blockIdx.y) {}
    __device__ float top_of(int step, int i) const
    {
        float4 top = __ldcg((const float4 *)this->tops_of(step, lane / 4 + i * 8));
        return fmaxf(fmaxf(top.x, top.y), fmaxf(top.z, top.w));
    }
    /* The best scores of all steps before `end`. */
    __device__ void best_before(float (&best)[2], int end) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            best[i] = -INFINITY;
            for (int step = lane % 4; step < end; step += 4)
                best[i] = fmaxf(best[i], top_of(step, i));
            best[i] = fmaxf(best[i], __shfl_xor_sync(0xffffffffu, best[i], 1));
            best[i] = fmaxf(best[i], __shfl_xor_sync(0xffffffffu, best[i], 2));
        }
    }
    /* The weights of a page, instead of its warp's scores: each lane's part of operand A. */
    __device__ uint4 *weights_of(int step, int page) const
    {
        return (uint4 *)this->scores_of(step, page / layout::OWN) + page % layout::OWN * 32;
    }
    /* By lanes: the sums of a step's weights of two rows, and the factors of the sums before. */
    __device__ float4 *factors_of(int step) const
    {
        return (float4 *)this->scores_of(step, 0) + layout::KEYS / 16 * 32;
    }
};

/* grid: as for attention_same */
template <typename T, int HD>
__global__ void __launch_bounds__(SAME_WARPS * 32) attention_same_weights(attention_args<T> a)
{
    using layout = same_layout<HD>;
    __shared__ float2 sum[2][SAME_WARPS][32];
    same_part<T, HD> item(a);
    int warp = (int)threadIdx.x / 32, lane = item.lane, length = (item.n_steps + (int)gridDim.z - 1) / (int)gridDim.z;
    int begin = (int)blockIdx.z * length, end = min(item.n_steps, begin + length);
    let_next_begin();
    wait_for_previous();
    if (item.m.n_rows <= 0 || item.n_steps <= SAME_WHOLE)
        return;
    prompt_rows<layout::KEYS> rows;
    item.best_before(rows.best, begin);
    for (int step = begin; step < end; step++) {
        float s[layout::KEYS / 2], keep[2], base[2], part[SAME_WARPS][2], scale = a.heads.scale * ATTENTION_LOG2_E;
        const float4 *from = item.scores_of(step, warp) + lane;
#pragma unroll
        for (int i = 0; i < layout::KEYS / 8; i++) {
            float4 x = __ldcg(from + i * 32);
            s[i * 4] = x.x, s[i * 4 + 1] = x.y, s[i * 4 + 2] = x.z, s[i * 4 + 3] = x.w;
        }
        const float top[2] = {item.top_of(step, 0), item.top_of(step, 1)};
        rows.raise(top, scale, keep, base);
        rows.template weigh_keys<layout::KEYS>(s, scale, base, part[0]);
        sum[step % 2][warp][lane] = make_float2(part[0][0], part[0][1]);
        __syncthreads(); /* also before weights replace scores */
#pragma unroll
        for (int p = 0; p < layout::OWN; p++)
            item.weights_of(step, warp * layout::OWN + p)[lane] = operand_of<T>(s + p * 8);
        if (warp == 0) {
#pragma unroll
            for (int v = 0; v < SAME_WARPS; v++)
                part[v][0] = sum[step % 2][v][lane].x, part[v][1] = sum[step % 2][v][lane].y;
            item.factors_of(step)[lane] =
                make_float4(rows.sum_of_step(part, 0), rows.sum_of_step(part, 1), keep[0], keep[1]);
        }
    }
}

template <int HD>
struct same_ring {
    using layout = same_layout<HD>;
    using values = same_rows<2>;
    uint4 value[SAME_RING][layout::STEP * values::PITCH], weight[SAME_RING][layout::PAGES][32];
    float4 factor[SAME_RING][32];
};

/* A warp that adds the values of columns [16 z, 16 z + 16), z: blockIdx.z. */
template <typename T, int HD>
struct same_columns : same_part<T, HD> {
    using typename same_part<T, HD>::layout;
    using values = same_rows<2>;
    using same_part<T, HD>::a, same_part<T, HD>::m, same_part<T, HD>::lane, same_part<T, HD>::n_steps;
    same_ring<HD> *sh;
    int unit0, fetched, block0; /* block0: the first block of the step that is fetched next */
    prompt_rows<KV_BLOCK_TOKENS> rows;
    float out[2][4];

    __device__ same_columns(const attention_args<T> &args, same_ring<HD> *shared)
        : same_part<T, HD>(args), sh(shared), unit0((int)blockIdx.z * 2), fetched(0), block0(0), out{}
    {
    }
    /* Starts to copy what a page of step `fetched` needs: zeros for values that are not seen. */
    __device__ __forceinline__ void fetch(int page)
    {
        if (fetched >= n_steps)
            return;
        int into = fetched % SAME_RING, row = page * KV_BLOCK_TOKENS + lane / 2;
        if (page == 0) {
            block0 = this->turn_to(fetched);
            async_copy(&sh->factor[into][lane], this->factors_of(fetched) + lane, true);
        }
        int id = __shfl_sync(0xffffffffu, this->ids, (block0 + page) % 32);
        this->copy_value(sh->value[into] + values::at(row, lane % 2), block0, row, id, unit0 + lane % 2);
        async_copy(&sh->weight[into][page][lane], this->weights_of(fetched, page) + lane, true);
    }
    __device__ void end_fetch()
    {
        async_commit();
        fetched++;
    }
    __device__ void begin()
    {
        for (int i = 0; i < SAME_RING - 1; i++) {
#pragma unroll
            for (int page = 0; page < layout::PAGES; page++)
                fetch(page);
            end_fetch();
        }
        for (int i = 0; i < 2; i++) {
            int row = lane / 4 + i * 8;
            rows.begin(i, a, m.seen, m.head0 + (row < m.n_rows ? row : 0));
        }
    }
    /* Copies of a later step start between the products, each of which waits for the one before. */
    __device__ void add_step(int step)
    {
        int from = step % SAME_RING;
        uint32_t v[layout::PAGES][4];
        uint4 w[layout::PAGES];
        async_wait<SAME_RING - 2>();
        __syncwarp(); /* also before the slot of the step before is refilled */
        float4 factor = sh->factor[from][lane];
#pragma unroll
        for (int page = 0; page < layout::PAGES; page++) {
            w[page] = sh->weight[from][page][lane];
            tensor_load_transposed(v[page],
                                   sh->value[from] + values::at(page * KV_BLOCK_TOKENS + lane % 16, lane / 16));
        }
        rows.add(make_float2(factor.x, factor.y), make_float2(factor.z, factor.w));
#pragma unroll
        for (int i = 0; i < 8; i++)
            out[i / 4][i % 4] *= i % 4 < 2 ? factor.z : factor.w;
#pragma unroll
        for (int page = 0; page < layout::PAGES; page++) {
            tensor_mma<T>(out[0], w[page].x, w[page].y, w[page].z, w[page].w, v[page][0], v[page][1]);
            tensor_mma<T>(out[1], w[page].x, w[page].y, w[page].z, w[page].w, v[page][2], v[page][3]);
            fetch(page);
        }
        end_fetch();
    }
    __device__ void store()
    {
        if (a.heads.sinks != NULL)
            this->best_before(rows.best, n_steps);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = lane / 4 + i * 8;
            float sum = rows.all_lanes_sum(i);
            if (row >= m.n_rows)
                continue;
            float share = rows.share(i, a, m.head0 + row, sum);
            T *to = a.out + ((size_t)m.t * a.heads.n_heads + m.head0 + row) * HD + unit0 * 8 + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < 2; j++)
                *(uint32_t *)(to + j * 8) = tensor_pack<T>(out[j][2 * i] * share, out[j][2 * i + 1] * share);
        }
    }
};

/* grid: tokens, items of a token, HD / 16 */
template <typename T, int HD>
__global__ void __launch_bounds__(32) attention_same_values(attention_args<T> a)
{
    extern __shared__ uint4 shared[];
    same_columns<T, HD> columns(a, (same_ring<HD> *)shared);
    let_next_begin();
    columns.find_blocks(0);
    wait_for_previous();
    if (columns.m.n_rows <= 0 || columns.n_steps <= SAME_WHOLE)
        return;
    columns.begin();
    for (int step = 0; step < columns.n_steps; step++)
        columns.add_step(step);
    async_wait<0>();
    columns.store();
}

#endif
