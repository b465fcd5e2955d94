/* kernels/cuda/step/persistent_chain.cuh - definitions shared by the parts of the persistent kernel: its arguments, the
 * sequence of a layer's products, a block's share of each, and the layout of shared memory. A block owns the same rows
 * of a product in every step, with all their columns, which its warps split. A product's inputs arrive as words
 * (words.cuh) from all blocks, and its results leave as words: there is no barrier over the grid. (The wide kernel has
 * vectors with one epoch per block instead of most words; the rest of this holds there, too.) Every kind of vector has
 * one buffer of words, used once per layer. That suffices: a block that writes layer l + 1's has waited, through the
 * chain of dependencies, for all blocks that read layer l's.
 *
 * Limits: 16-bit activations; weights of their type or quantised in one form; rows that are multiples of 16 bytes. */
#ifndef STEP_PERSISTENT_CHAIN_CUH
#define STEP_PERSISTENT_CHAIN_CUH

#include "kernels/cuda/words.cuh"

#include "kernels/decode_mixture.h"
#include <cuda.h>

#define CHAIN_WARPS    16
#define CHAIN_THREADS  (CHAIN_WARPS * 32) /* without the warps that load weights */
#define CHAIN_PRODUCTS 4                  /* of a layer */
#define CHAIN_HEAD     4                  /* the product after the last layer */
#define CHAIN_OCTET    8                  /* rows of weights per tensor-core instruction */
#define CHAIN_ROWS     16                 /* of weights in a tile: two octets; in a gated product the second is up's */
#define CHAIN_PARTS    16                 /* maximum parts of a sequence's keys */

/* Kernels of a file that defines this support one token, on one rank if it is 1, on 2 to LONE_RANKS if it is 2, and
 * vectors of up to LONE_COLUMNS columns (except for the experts' results): the fewer instructions lie between those of
 * a layer, the sooner they are fetched. */
#ifndef CHAIN_LONE
#define CHAIN_LONE 0
#endif
/* Kernels of a file that defines this as 1 are for models that normalise outputs, too: see persistent_outputs.cuh. */
#ifndef CHAIN_OUTPUTS
#define CHAIN_OUTPUTS 0
#endif

/* Kernels of a file that defines this as 1 get keys and values of long sequences through the ring of weights: see
 * persistent_keys.cuh. */
#ifndef CHAIN_KEYS
#define CHAIN_KEYS 0
#endif

/* Wide kernels of a file that defines this as 1 are for quantised weights: see persistent_wide.cuh. */
#ifndef CHAIN_WIDE_CODES
#define CHAIN_WIDE_CODES 0
#endif

#define LONE_COLUMNS 4096
#define LONE_RANKS   WORD_RANKS

/* Kernels of a file that defines this as 1 support one token, on any number of ranks. */
#ifndef CHAIN_ONE
#define CHAIN_ONE 0
#endif

/* The members of the arguments that such kernels know: n_tokens, and with CHAIN_LONE n_ranks. */
#if CHAIN_LONE || CHAIN_ONE
#include "kernels/cuda/step/persistent_lone.cuh"
#else
#define CHAIN_TOKENS int n_tokens
#define CHAIN_NUMBER int n_ranks
#endif

/* One thread requests weights. Its warp has idle warps beside it, since only a whole warpgroup can give registers
 * away. */
#define STREAM_THREADS   128
#define STREAM_REGISTERS 32
#define CHAIN_REGISTERS  112
#define BLOCK_REGISTERS \
    96 /* registers per thread at the start of a block of this size: the most that fit, in
                               multiples of eight */
static_assert(CHAIN_THREADS * CHAIN_REGISTERS + STREAM_THREADS * STREAM_REGISTERS <=
                  (CHAIN_THREADS + STREAM_THREADS) * BLOCK_REGISTERS,
              "a warp that requests more registers than are free waits for ever");

#define STEP_COLUMNS    64 /* per warp: 128 bytes of every row */
#define RING_SLOT_BYTES (CHAIN_WARPS * CHAIN_ROWS * 128)
#define BOX_SIZES       (CHAIN_ROWS / 2) /* rows of weights are copied in boxes of 2, 4, ... 16, one box per tile */

#define NARROW_TOKENS 8   /* maximum of a narrow step */
#define WIDE_ROWS     128 /* maximum rows of weights in a wide step's tile */
#define WIDE_BOXES    3   /* heights of a wide step's boxes: all tiles but the last; the last, of large, small shares */
#define WIDE_BLOCKS   160 /* maximum of a wide step */

/* The form of quantised weights: a kernel supports one besides 16-bit weights. A scale covers a row or, with
 * `group_maps`, GROUP_COLUMNS of it; then INT8 and INT4 may have zero points, too. FORM_E2M1 is for experts only: see
 * persistent_experts_codes.cuh. */
enum chain_form { FORM_NONE, FORM_E4M3, FORM_INT8, FORM_INT4, FORM_E2M1 };
#define GROUP_COLUMNS 128

/* Codes are multiplied as f16, which costs half as much to convert to as bf16. Activations of bf16 then become f16,
 * times 2^-6: exact from 2^-11 to 2^22, with an error of at most 2^-19. Rows' scales compensate for the factor. */
#define INPUT_HALF_SCALE 0.015625f

enum chain_input { INPUT_NORMED, INPUT_SAME /* the same as the preceding product */, INPUT_ATTENDED, INPUT_ACTIVATED };
/* The vectors that a wide step passes as plain arrays instead of words. */
enum chain_vector { VECTOR_AFTER_ATTENTION, VECTOR_AFTER_MLP, VECTOR_ATTENDED, VECTOR_ACTIVATED, CHAIN_VECTORS };
enum chain_output {
    OUTPUT_QKV,
    OUTPUT_ACTIVATED,
    OUTPUT_KEPT /* to be added to the next sum */,
    OUTPUT_SUM,
    OUTPUT_LOGITS
};

struct chain_product {
    int rows, cols; /* rows: of the result; a gated product has twice as many rows of weights */
    enum chain_input input;
    enum chain_output output;
    int norm; /* INPUT_NORMED: which of the layer's norms */
    bool gated;
    int x;                 /* INPUT_NORMED: the residual stream to read; OUTPUT_SUM: the one to write */
    int tile_rows, pieces; /* results per tile; pieces of STEP_COLUMNS columns per step */
    int last_rows;         /* wide: those of the larger shares' last tile */
    int spans;             /* STEP_COLUMNS columns per warp and step; narrow: 2 with 8-bit codes, 4 with 4-bit codes */
};

/* Pointers of one layer, biases in order of execution. Entry n_layers: the head and the final norm, at index 0. */
struct chain_layer {
    const void *bias[CHAIN_PRODUCTS];
    const void *norm[2];
    union {
        const void *norm_bias[2];
        const void *out_norm[2]; /* CHAIN_OUTPUTS: of the output that is added before norm[i]; NULL: none */
    };
    const void *q_norm, *k_norm;
    void *k_cache, *v_cache;
    float scale; /* of q.k, times log2 e */
    int window;
    const float *kv_scales; /* see struct heads */
};

/* Byte offsets in shared memory. */
struct chain_layout {
    int input;    /* activations of the current product, see chain_input_at; or the attention's scratch */
    int partial;  /* float [2][CHAIN_WARPS][n_tokens][CHAIN_ROWS] */
    int stats;    /* float4 [n_tokens][CHAIN_WARPS] */
    int bias;     /* float [2][bias_rows] */
    int scales;   /* the same of the rows' scales, where there are any */
    int residual; /* float [n_tokens][x_rows] of the block's rows of the residual stream */
    union {
        int kept;  /* narrow: the same of OUTPUT_KEPT */
        int scale; /* wide: float [x_rows] weights of the residual stream's next norm */
    };
    int cos_sin;  /* float [n_tokens][rope dims]; with rotations of their own for windowed layers two of these */
    int stream;   /* CHAIN_OUTPUTS: [n_tokens][hidden] the whole residual stream, 16-bit */
    int layers;   /* chain_layer [n_layers + 1] */
    int shares;   /* chain_share [CHAIN_PRODUCTS + 1] */
    int attend;   /* attend_shares */
    int groups;   /* scales and zeros of groups, see persistent_groups.cuh */
    int sums;     /* of activations, of INT8 and INT4: float [CHAIN_WARPS][groups of a warp][CHAIN_OCTET] */
    int barriers; /* of the ring, [2][slots] */
    int hold;     /* int [2]: not 0 while no copies to shared memory may be requested; wide, of quantised weights: not 0
                     if the residual stream's next reader has 16-bit weights; and see stream_requested */
    int tokens;   /* int [3][n_tokens]: id, slot, pos */
    int keys;     /* key_requests, then key_span [n_layers], see persistent_keys.cuh */
    int bytes;
    int bias_rows, x_rows;
};

/* The arrays that a wide step uses instead of words, see persistent_wide.cuh. */
struct chain_wide {
    void *vector[CHAIN_VECTORS]; /* device [PERSISTENT_MAX_TOKENS][columns] */
    float *squares;  /* device [2][PERSISTENT_MAX_TOKENS][WIDE_BLOCKS]: sums over a block's rows of x[0], x[1] */
    uint32_t *ready; /* device [CHAIN_VECTORS][blocks]: the last epoch whose part a block has stored */
};

struct chain_args {
    struct chain_product product[CHAIN_PRODUCTS + 1];
    struct chain_layout at;
    const struct chain_layer *layers; /* device [n_layers + 1] */
    const CUtensorMap *maps; /* device [n_layers * CHAIN_PRODUCTS + 1][BOX_SIZES; wide: WIDE_BOXES], in order of
                                execution */
    int n_layers, hidden, attention_before; /* which product of a layer */
    int n_heads, n_kv_heads, head_dim, first_head, first_kv_head, heads_per_kv;
    int rope_dims;
    bool rope_half;
    float embed_scale; /* CHAIN_OUTPUTS: the embedding's factor; 0: none */
    enum norm_kind norm;
    float eps, inverse_hidden; /* inverse_hidden: 1 / hidden */
    enum activation activation;
    const float *const *scales; /* device [n_layers * CHAIN_PRODUCTS + 1] scales of each product's rows; NULL: they
                                   have none */
    union {
        const CUtensorMap *group_maps; /* narrow: device [the same][2]: maps of group scales and zeros; NULL: there are
                                          none */
        const CUtensorMap *input_maps; /* wide: device [2][CHAIN_PRODUCTS + 1]: of vectors of 8 and of 16 tokens */
    };
    bool group_zeros;
    const void *embed, *position;
    int first_id, embed_rows, position_rows, position_offset;
    int rank;
    CHAIN_NUMBER;
    struct decode_taps taps;
    uint32_t *step; /* [grid] of each block's own, from 1 */
    /* words */
    unsigned long long *x[2];      /* [PERSISTENT_MAX_TOKENS][hidden / 2] after attention, after the MLP */
    unsigned long long *qkv;       /* [..][qkv rows / 2] */
    unsigned long long *attended;  /* [..][n_heads head_dim / 2] */
    unsigned long long *activated; /* [..][ffn / 2] */
    unsigned long long *parts;     /* [items * parts][8][head_dim] floats, see persistent_attention.cuh */
    unsigned long long *part_sums; /* [items * parts][8][2] */
    unsigned long long *sum[PERSISTENT_MAX_RANKS]; /* in each rank's memory: floats [2][n_ranks][..][hidden] */
    const CUtensorMap *key_maps; /* device [n_layers][2] of keys, of values; NULL: they do not come through the ring */
    struct chain_wide wide;
    /* of the step */
    CHAIN_TOKENS;
    const int32_t *token, *slot, *pos, *block_table;
    int blocks_per_slot, windowed_table;
    const float *cos_sin, *window_cos_sin; /* window_cos_sin: NULL if windowed layers rotate as the others do */
    void *logits;
};

/* A block's share of a product: results [begin, end), in n_tiles tiles, each of n_steps. In a narrow step each warp
 * multiplies STEP_COLUMNS columns of a step, as two pieces of 32; with codes 2 or 4 times as many. */
struct chain_share {
    int begin, end, n_tiles, n_steps, tile_rows;
    int n_spans; /* of a warp's STEP_COLUMNS columns: n_steps, or 2 or 4 times that */
};

/* The kind of a product by its number counted through all layers: one of a layer's, or the head. */
__device__ static inline int chain_index(const chain_args &a, int product)
{
    return product == a.n_layers * CHAIN_PRODUCTS ? CHAIN_HEAD : product % CHAIN_PRODUCTS;
}

/* Rows of weights of a tile (of each half where it is gated), rounded up to even for the copies. */
__device__ static inline int chain_tile_rows(const chain_share &s, int tile)
{
    return min((s.end - s.begin - tile * s.tile_rows + 1) / 2 * 2, s.tile_rows);
}

/* Synchronises all threads but those of the loading warpgroup. */
__device__ static inline void chain_sync(void)
{
    asm volatile("bar.sync 1, %0;" ::"n"(CHAIN_THREADS) : "memory");
}

/* The same, and whether any of the threads says so. */
__device__ static inline bool chain_any(bool mine)
{
    uint32_t any;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, 1, %2, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"((uint32_t)mine), "n"(CHAIN_THREADS)
                 : "memory");
    return any != 0;
}

/* Results are distributed in pairs, since a word has two, and as evenly as possible. A block < 0 has none. */
__host__ __device__ static inline chain_share chain_make_share(const chain_product &p, int block, int n_blocks)
{
    chain_share s = {};
    if (block < 0)
        return s;
    long long pairs = (p.rows + 1) / 2;
    s.begin = (int)(pairs * block / n_blocks) * 2;
    s.end = min((int)(pairs * (block + 1) / n_blocks) * 2, p.rows);
    s.tile_rows = p.tile_rows;
    s.n_tiles = s.end > s.begin ? (s.end - s.begin + s.tile_rows - 1) / s.tile_rows : 0;
    int columns = p.pieces * STEP_COLUMNS * p.spans;
    s.n_steps = (p.cols + columns - 1) / columns;
    s.n_spans = s.n_steps * p.spans;
    return s;
}

/* First column of a warp's piece, two of them for each of a step's SPANS. */
template <int SPANS>
__device__ static inline int chain_column(int warp, int piece)
{
    const int PIECES = 2 * SPANS, COLUMNS = STEP_COLUMNS * SPANS;
    return piece / PIECES * (CHAIN_WARPS * COLUMNS) + warp * COLUMNS + piece % PIECES * 32;
}

/* A block's view of its shared memory, the same for all threads. */
struct chain_shared {
    char *base;
    chain_share *share; /* [CHAIN_PRODUCTS + 1] */
    template <typename T>
    __device__ T *at(int offset) const
    {
        return (T *)(base + offset);
    }
};

/* The offset of a token's share of a warp's piece in an input, in elements: [CHAIN_WARPS][2 n_spans][n_tokens][32] */
__device__ static inline int chain_input_at(int warp, int n_spans, int piece, int n_tokens, int t)
{
    return ((warp * 2 * n_spans + piece) * n_tokens + t) * 32;
}

#endif
