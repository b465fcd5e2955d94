/* kernels/op_list.h - the list of operations. From it come the type of the table (kernels/ops.h), the prototypes and
 * the tables of the backends, the profiler's wrappers (rank/measure/profile.c) and the table that tests call
 * (tests/support/backend.c). Include it with some of the macros defined, as often as needed; it undefines them.
 *
 * DEVICE(result, name, parameters) a device function outside of steps
 *
 * STEP(phase, name, parameters, arguments) an operation of a step: enqueued, returns nothing, takes the queue first;
 * the profiler counts it under PHASE_<phase>
 *
 * OPTIONAL(phase, name, parameters, arguments) the same, but a backend may refuse it: then it returns false without
 * having done anything, and other operations take its place */
#ifndef DEVICE
#define DEVICE(result, name, parameters)
#endif
#ifndef STEP
#define STEP(phase, name, parameters, arguments)
#endif
#ifndef OPTIONAL
#define OPTIONAL(phase, name, parameters, arguments)
#endif

/* clang-format off */

/* The activation type for a checkpoint of this type. */
DEVICE(enum dtype, act_type, (enum dtype weights))
/* Devices of this kind that the process may use; the CPU counts as one. 0: none. */
DEVICE(int, n_devices, (void))
/* Makes *q a queue on a device, 0 <= device < n_devices(), for a checkpoint of this type. n_threads: CPU threads that
 * operations may use. Returns -1 and *e on failure. close accepts a zeroed queue. */
DEVICE(int, open, (struct queue *q, int device, enum dtype weights, int n_threads, struct err *e))
DEVICE(void, close, (struct queue *q))

/* Device memory. alloc: 256-byte aligned, zeroed, NULL (and queue.err) when it is exhausted. Both may wait. */
DEVICE(void *, alloc, (struct queue *q, size_t bytes))
DEVICE(void, free, (struct queue *q, void *p))
/* Zeros, enqueued. */
DEVICE(void, clear, (struct queue *q, void *p, size_t bytes))
/* Bytes of free memory now. On the CPU the ranks of a node share it. */
DEVICE(size_t, free_memory, (struct queue *q))
/* Host to device, `rows` rows of `width` bytes, pitches in bytes. The source may be reused after ops->wait. Between
 * async->begin_capture and end_capture, for upload and download: the host memory must be async->host_alloc's; every
 * launch of the graph reads or writes it, until the launch is over; addresses, pitches and widths are multiples of
 * 4. */
DEVICE(void, upload, (struct queue *q, void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                      size_t rows))
/* The same with a transposition: src is [rows, cols] with row pitch src_ld, dst becomes [cols, rows] with row pitch
 * dst_ld; pitches and sizes in elements of the type. */
DEVICE(void, upload_transposed, (struct queue *q, void *dst, size_t dst_ld, const void *src, size_t src_ld, size_t rows,
                                 size_t cols, enum dtype type))
DEVICE(void, download, (struct queue *q, void *dst, const void *src, size_t bytes))
/* Fills with uniform noise in [-scale, scale] around `center`, the same for equal (seed, index). For benchmarks
 * without a checkpoint. */
DEVICE(void, fill_noise, (struct queue *q, struct weight *w, uint64_t seed, float center, float scale))
/* XOR of all 64-bit words of data (bytes: a multiple of 64): reads at full memory bandwidth, the limit that decode is
 * measured against. Waits. */
DEVICE(uint64_t, read_stream, (struct queue *q, const void *data, size_t bytes))
DEVICE(void, wait, (struct queue *q))
/* Bytes of struct sampler's scratch per row of a sampling batch. */
DEVICE(size_t, sample_scratch_bytes, (int vocab))

/* token[t] = planned[t], or slot[t]'s in s->last_token (-2: a draft model's); s->history[slot[t]][pos[t]] =
 * token[t]. */
STEP(OTHER, feed, (struct queue *q, int32_t *token, const int32_t *planned, const int32_t *slot, const int32_t *pos,
                   const struct sampler *s, int n_tokens),
     (q, token, planned, slot, pos, s, n_tokens))

/* out[t] = table[token[t] - first_id], or zeros for ids that another rank's rows hold. out: [n_tokens, table->cols] */
STEP(OTHER, embed, (struct queue *q, void *out, const int32_t *token, const struct weight *table, int first_id,
                    int n_tokens),
     (q, out, token, table, first_id, n_tokens))
/* x[t] += table[pos[t] + offset]. x: [n_tokens, table->cols] */
STEP(OTHER, add_position, (struct queue *q, void *x, const struct weight *table, const int32_t *pos, int offset,
                           int n_tokens),
     (q, x, table, pos, offset, n_tokens))
/* Fills *p with the prefixes that the batch's n_alone tokens share. PREFIX_COUNT times, the first token that shares no
 * prefix and has not been tried yet is compared with all others; its prefix's number of blocks n maximises n (members -
 * 1), more blocks on a tie. A token's own block, which may be written to, is not shared. */
STEP(ATTENTION, find_prefixes, (struct queue *q, struct prefixes *p, const struct batch *batch), (q, p, batch))

/* x += y, n elements. */
STEP(OTHER, add, (struct queue *q, void *x, const void *y, size_t n), (q, x, y, n))
/* x *= factor, then, with a cap, x = cap tanh(x / cap); n elements, rounded once. */
STEP(OTHER, scale, (struct queue *q, void *x, float factor, float cap, size_t n), (q, x, factor, cap, n))
/* If add != NULL, first x += add. Then out[t] = norm(x[t]) over dim columns. out may alias x. w NULL: ones,
 * b NULL: zeros. Weights may be read early, as matmul's. */
STEP(OTHER, norm, (struct queue *q, void *out, void *x, const void *add, enum norm_kind kind, const struct weight *w,
                   const struct weight *b, int n_tokens, int dim, float eps),
     (q, out, x, add, kind, w, b, n_tokens, dim, eps))

/* out[t][o] = sum_i x[t][i] w[o][i] (+ bias[o]) (+ out[t][o] if accumulate). x: [n_tokens, w->cols],
 * out: [n_tokens, w->rows]; bias NULL or [1, w->rows]. Without columns the sum is 0. A result does not depend on what
 * else is in the batch (on GPUs: for up to 16 tokens). Weights may be read before the preceding operation is done: wait
 * between writing them and the first product or norm. */
STEP(MATMUL, matmul, (struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                      int n_tokens, bool accumulate),
     (q, out, x, w, bias, n_tokens, accumulate))

/* cos_sin[t] = { cos(angle_j) .., sin(angle_j) .. }, j < dims/2, times attention_scaling, where
 * angle_j = pos[t] * inv_freq_j(rope_len[t]). float [n_tokens, dims] on every backend. */
STEP(ATTENTION, rope_table, (struct queue *q, float *cos_sin, const struct rope *rope, const int32_t *pos,
                             const int32_t *rope_len, int n_tokens),
     (q, cos_sin, rope, pos, rope_len, n_tokens))
/* squares[t] = { sum of squares of q heads, of the local KV heads [kv.begin, kv.end) of k }, in float; qkv as below */
STEP(ATTENTION, head_squares, (struct queue *q, float *squares, const void *qkv, const struct heads *heads, struct kv_range kv,
                               int n_tokens),
     (q, squares, qkv, heads, kv, n_tokens))
/* In place on qkv [n_tokens, (n_heads + 2 n_kv_heads) head_dim] = q heads, k heads, v heads: the norms of q and k,
 * rotation (rope NULL: none; with norms->rotated before the norms), then k and v into the cache.
 * k_cache, v_cache: [n_blocks, n_kv_heads, KV_BLOCK_TOKENS, head_dim] of act, or of E4M3 codes (heads->kv_scales):
 * those nearest to k and v divided by their scales. */
STEP(ATTENTION, qkv_store, (struct queue *q, void *qkv, void *k_cache, void *v_cache, const struct heads *heads,
                            const struct batch *batch, const struct rope *rope, const float *cos_sin,
                            const struct head_norms *norms),
     (q, qkv, k_cache, v_cache, heads, batch, rope, cos_sin, norms))
/* out[t][h] = sum_k softmax_k(cap(scale q.k) + slope k) v over the cached positions of slot[t] visible from pos[t], and
 * the sink. qkv as above; out: [n_tokens, n_heads head_dim]. Softmax in float. */
STEP(ATTENTION, attention, (struct queue *q, void *out, const void *qkv, const void *k_cache, const void *v_cache,
                            const struct heads *heads, const struct batch *batch),
     (q, out, qkv, k_cache, v_cache, heads, batch))

/* Latent attention. query: [n_tokens, n_heads, query_dim], of which the last rope->dims of every head rotate; latent:
 * [n_tokens, head_dim], of which the last rope->dims rotate and the others are normalised (RMS, rounded before the
 * weight). The rotated queries go to the end of each query head of qkv (as below, with one KV head), whose rest is
 * unchanged; the latents go into the cache: [n_blocks, 1, KV_BLOCK_TOKENS, head_dim] of act. n_heads 0: nothing. */
STEP(ATTENTION, latent_store, (struct queue *q, void *qkv, const void *query, int query_dim, const void *latent, void *cache,
                               const struct heads *heads, const struct batch *batch, const struct rope *rope,
                               const float *cos_sin, const struct weight *norm, float eps),
     (q, qkv, query, query_dim, latent, cache, heads, batch, rope, cos_sin, norm, eps))
/* For every head out[t][h][o] = sum_i x[t][h][i] w_h[o][i]. w: [n_heads, rows of a head, cols]. Otherwise as matmul. */
STEP(MATMUL, matmul_heads, (struct queue *q, struct head_rows out, struct head_rows x, const struct weight *w, int n_heads,
                            int n_tokens),
     (q, out, x, w, n_heads, n_tokens))

/* gated: x is [n_tokens, 2 cols] = gate then up (ACTIVATION_SWIGLU: gate 0, up 0, gate 1, ..), out[t][c] = act(gate) *
 * up; else x is [n_tokens, cols], out[t][c] = act(x). out: [n_tokens, cols], may alias x only when not gated. */
STEP(OTHER, activate, (struct queue *q, void *out, const void *x, enum activation kind, bool gated, int n_tokens,
                       int cols),
     (q, out, x, kind, gated, n_tokens, cols))
/* out[i] = xielu(x[i]), by the layer's constants. out, x: [n_tokens, cols], may alias. */
STEP(OTHER, xielu, (struct queue *q, void *out, const void *x, struct xielu constants, int n_tokens, int cols),
     (q, out, x, constants, n_tokens, cols))

/* Fills *r: for each token the experts that `how` chooses by logits[t][e] = x[t] . router[e] (on a tie the lower e),
 * and their shares, in float throughout. x: [n_tokens, router->cols]; bias: NULL or [1, n_experts], used as struct
 * routing says. A token's routes do not depend on what else is in the batch (on GPUs: for up to 16 tokens). */
STEP(OTHER, route, (struct queue *q, const struct routes *r, const void *x, const struct weight *router,
                    const struct weight *bias, const struct routing *how, int n_tokens),
     (q, r, x, router, bias, how, n_tokens))
/* For every pair p of a token and an expert e that was chosen for it: out[p] = activate(x[token] w_e^T (+ bias[e])),
 * gated. w: [n_held, 2 cols, hidden] as one matrix of all their rows, in the order that activate expects; bias: NULL or
 * [n_held, 2 cols]; x: [n_tokens, hidden]; out: [n_pairs, cols], undefined for pairs whose expert is not held; work:
 * [n_pairs, 2 cols], scratch. Only the chosen experts' weights are read. Otherwise as matmul. */
STEP(MATMUL, experts_first, (struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                             const struct routes *r, const struct routing *how, enum activation kind, void *work, int n_tokens),
     (q, out, x, w, bias, r, how, kind, work, n_tokens))
/* out[t] (+)= the sum over its pairs p with a held expert of share[p] (x[p] w_e^T (+ bias[e])), in an order that
 * depends on the token's experts alone. w: [n_held, dim, cols]; bias: NULL or [n_held, dim]; x: [n_pairs, cols]; out:
 * [n_tokens, dim]; work: [n_pairs, dim]. The routing results, too, may be read before the preceding operation is done.
 * Otherwise as experts_first. */
STEP(MATMUL, experts_second, (struct queue *q, void *out, const void *x, const struct weight *w, const struct weight *bias,
                              const struct routes *r, const struct routing *how, void *work, int n_tokens, int dim,
                              bool accumulate),
     (q, out, x, w, bias, r, how, work, n_tokens, dim, accumulate))
/* With one expert chosen per token: out[t] = share[t] x[t], then share[t] = 1. x, out: [n_tokens, dim] */
STEP(OTHER, weigh_input, (struct queue *q, void *out, const void *x, const struct routes *r, int n_tokens, int dim),
     (q, out, x, r, n_tokens, dim))
/* x[t] *= sigmoid(in[t] . w). x: [n_tokens, dim], in: [n_tokens, w->cols], w: [1, cols] */
STEP(OTHER, gate, (struct queue *q, void *x, const void *in, const struct weight *w, int n_tokens, int dim),
     (q, x, in, w, n_tokens, dim))

/* out[i] = x[row[i]]. x: [.., dim], out: [n_rows, dim]; row: device memory. */
STEP(OTHER, gather_rows, (struct queue *q, void *out, const void *x, const int32_t *row, int n_rows, int dim),
     (q, out, x, row, n_rows, dim))
/* out[t][c] = x[t][order[c]], or 0 where order[c] < 0. x: [n_tokens, dim], out: [n_tokens, cols]; order: device
 * memory. */
STEP(OTHER, gather_columns, (struct queue *q, void *out, const void *x, const int32_t *order, int n_tokens, int dim,
                             int cols),
     (q, out, x, order, n_tokens, dim, cols))
/* The ranks' column blocks, stored one after the other, become whole rows: out[i][begin_r + c] = in_r[i][c] where in_r,
 * at element offset n_rows * begin_r of `in`, is [n_rows, begin_{r+1} - begin_r]. begin: host [n_ranks + 1]. */
STEP(ALL_GATHER, join_columns, (struct queue *q, void *out, const void *in, const int *begin, int n_ranks, int n_rows),
     (q, out, in, begin, n_ranks, n_rows))

/* For every row i < n_rows: logits[i] [s->vocab] (read only) choose the token after the row_len[i] tokens that the
 * sequence in row_slot[i] has so far; the result goes to out[i] and s->last_token. Uniform random numbers come from
 * philox_uniform(seed, row_len[i]). */
STEP(SAMPLING, sample, (struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                        const int32_t *row_len, const struct sampler *s, int n_rows),
     (q, out, logits, row_slot, row_len, s, n_rows))
/* For every row i < n_rows: out[i] = the log-probability of row_token[i] by logits[i] [s->vocab] (read only), and of
 * the best n_prompt_top tokens of the sequence in row_slot[i]. *s is unchanged, its scratch is not needed. */
STEP(SAMPLING, score, (struct queue *q, struct sampled *out, const void *logits, const int32_t *row_slot,
                       const int32_t *row_token, const struct sampler *s, int n_rows),
     (q, out, logits, row_slot, row_token, s, n_rows))

/* out = ops->activate, gated, of ops->matmul's results with w, which are not rounded in between. w: gates, then as many
 * ups; x: [n_tokens, w->cols], out: [n_tokens, w->rows / 2]. Refused where the two operations are as fast, and for
 * unsupported types, forms and activations. */
OPTIONAL(MATMUL, gated_product, (struct queue *q, void *out, const void *x, const struct weight *w, enum activation kind,
                                 int n_tokens),
         (q, out, x, w, kind, n_tokens))

/* qkv_store, then attention, as one operation, with the same bits; qkv stays as it is. Refused where several tokens may
 * belong to one sequence or shared prefixes were searched, for heads, norms and rotations that the kernel lacks, and
 * where the two operations are as fast. */
OPTIONAL(ATTENTION, store_and_attend, (struct queue *q, void *out, const void *qkv, void *k_cache, void *v_cache,
                                       const struct heads *heads, const struct batch *batch, const struct rope *rope,
                                       const float *cos_sin, const struct head_norms *norms),
         (q, out, qkv, k_cache, v_cache, heads, batch, rope, cos_sin, norms))

/* clang-format on */

#undef DEVICE
#undef STEP
#undef OPTIONAL
