/* tests/unit/test_read_plan.c - the essential property: for every family, number of ranks and block size, the ranks
 * receive from the plan, element by element, the same as from a naive reading of the checkpoint. The naive reading (the
 * inventory and `source_of`) follows models.md and shares nothing with partition/weights.c. */
#include "tests/unit/checkpoint_folder.h"
#include "tests/unit/family_inventory.h"

#include "partition/read_plan.h"

#include <fcntl.h>

#define MAX_SPECS 80

static struct model_config m; /* too large for the stack: each layer takes kilobytes */

/* Tells whether a layer has this optional line of Llama-like models. */
static bool present(const struct inventory *l, int layer)
{
    if (l->id >= WEIGHT_MLP_IN && l->id <= WEIGHT_MLP_OUT_BIAS && layer >= 0 && m.layer[layer].experts)
        return false;
    if (l->id >= WEIGHT_SHARED_IN && l->id <= WEIGHT_SHARED_GATE)
        return strcmp(m.model_type, "qwen2_moe") == 0;
    if (l->id == WEIGHT_Q_NORM || l->id == WEIGHT_K_NORM)
        return strncmp(m.model_type, "qwen3", 5) == 0;
    if (strcmp(m.model_type, "gpt_oss") == 0)
        return true;
    if (strncmp(m.model_type, "qwen2", 5) == 0)
        return l->id != WEIGHT_OUT_BIAS && l->id != WEIGHT_MLP_IN_BIAS && l->id != WEIGHT_MLP_OUT_BIAS;
    if (l->id == WEIGHT_QKV_BIAS || l->id == WEIGHT_OUT_BIAS || l->id == WEIGHT_MLP_IN_BIAS ||
        l->id == WEIGHT_MLP_OUT_BIAS)
        return !m.gated_mlp || m.mlp_bias;
    return true;
}

static int64_t dimension(char letter)
{
    int64_t q = (int64_t)m.n_heads * m.head_dim, kv = (int64_t)m.n_kv_heads * m.head_dim;
    switch (letter) {
    case 'V':
        return m.vocab;
    case 'E':
        return m.embed_dim;
    case 'P':
        return m.max_positions + (strcmp(m.model_type, "opt") == 0 ? 2 : 0);
    case 'H':
        return m.hidden;
    case 'Q':
        return q;
    case 'K':
        return kv;
    case 'T':
        return q + 2 * kv;
    case 'F':
        return m.ffn;
    case 'D':
        return m.head_dim;
    case 'X':
        return m.experts.routing.n_experts;
    case 'M':
        return m.experts.ffn;
    case 'N':
        return 2 * (int64_t)m.experts.ffn;
    case 'S':
        return m.experts.shared_ffn;
    case '1':
        return 1;
    case 'h':
        return m.n_heads;
    case 'G':
        return 2 * (int64_t)m.ffn;
    default:
        return 0;
    }
}

/* The checkpoint of a fixture, with the data of each tensor for the naive reading. */
struct written {
    struct tensor_spec spec[MAX_SPECS];
    const struct inventory *line[MAX_SPECS];
    int layer[MAX_SPECS], expert[MAX_SPECS];
    int n;
};
static struct written written;
/* Replaces every %d of a name by the next of the numbers. */
static void number_name(char *to, size_t bytes, const char *prefix, const char *name, const int *number)
{
    size_t used = (size_t)snprintf(to, bytes, "%s", prefix);
    for (const char *percent; (percent = strstr(name, "%d")) != NULL; name = percent + 2)
        used += (size_t)snprintf(to + used, bytes - used, "%.*s%d", (int)(percent - name), name, *number++);
    (void)snprintf(to + used, bytes - used, "%s", name);
}

static const struct inventory head_line = {WEIGHT_HEAD, 'w', "", 'V', 'E', false};
static const struct inventory head_bias_line = {WEIGHT_HEAD_BIAS, 'w', "lm_head.bias", '0', 'V', false};

static void add_spec(const struct inventory *l, const char *prefix, const char *name, int layer, int expert,
                     enum dtype type, uint64_t *random)
{
    assert_true(written.n < MAX_SPECS);
    struct tensor_spec *t = &written.spec[written.n];
    number_name(t->name, sizeof t->name, prefix, name, (const int[]){layer, expert});
    t->dtype = dtype_name(type);
    t->element = (int)dtype_bytes(type);
    t->rows = dimension(l->rows);
    t->cols = dimension(l->cols);
    t->matrices = l->part == 'A' || l->part == 'I' ? m.experts.routing.n_experts : 0;
    spec_fill(t, random);
    written.line[written.n] = l;
    written.expert[written.n] = expert;
    written.layer[written.n++] = layer;
}

/* Adds a line in every layer that has it, once or for each expert. */
static void add_line(const struct inventory *l, const char *prefix, bool of_experts, uint64_t *random)
{
    const char *a_layer = strstr(l->name, "%d");
    int n = a_layer != NULL && strstr(a_layer + 2, "%d") != NULL ? m.experts.routing.n_experts : 1;
    for (int layer = a_layer != NULL ? 0 : -1; layer < (a_layer != NULL ? m.n_layers : 0); layer++)
        for (int expert = 0; expert < n && present(l, layer) && (!of_experts || m.layer[layer].experts); expert++)
            add_spec(l, prefix, l->name, layer, expert, l->rows == '0' ? DTYPE_F32 : DTYPE_BF16, random);
}

/* Writes matrices in one type, vectors in another; a buffer and an unknown tensor among them. */
static void write_inventory(const struct fixture *f, uint64_t *random)
{
    static const struct inventory buffer = {WEIGHT_COUNT, 'w', "", '0', 'V', false};
    memset(&written, 0, sizeof written);
    add_spec(&buffer, "", "h.0.attn.bias", -1, 0, DTYPE_F16, random);
    for (const struct inventory *l = f->line; l->name != NULL; l++) {
        add_line(l, f->prefix, false, random);
        if (l->id == WEIGHT_OUT)
            add_spec(&buffer, "", "stranger", -1, 0, DTYPE_F16, random);
    }
    for (const struct inventory *l = f->experts; l != NULL && l->name != NULL; l++)
        add_line(l, f->prefix, true, random);
    if (f->head != NULL)
        add_spec(&head_line, "", f->head, -1, 0, DTYPE_BF16, random);
    if (m.head_bias)
        add_spec(&head_bias_line, "", "lm_head.bias", -1, 0, DTYPE_F32, random);
}

/* Returns the source of element (out, in) of a rank's role: its tensor, and the element's number in it. */
static const struct tensor_spec *source_of(const struct weight_slot *slot, const struct shard *s, int64_t out,
                                           int64_t in, int64_t *element)
{
    int64_t d = m.head_dim, n_q = (s->heads.end - s->heads.begin) * d, n_kv = (s->kv_heads.end - s->kv_heads.begin) * d;
    int64_t n_ffn = s->ffn.end - s->ffn.begin;
    char want = 'w';
    int which = 0; /* 0, 1, 2: q, k, v */
    int64_t n_expert = s->expert_ffn.end - s->expert_ffn.begin, n_shared = s->shared_ffn.end - s->shared_ffn.begin;
    int64_t expert = 0, of_two = 0;
    switch (slot->id) {
    case WEIGHT_QKV:
    case WEIGHT_QKV_BIAS:
        which = out < n_q ? 0 : (out < n_q + n_kv ? 1 : 2);
        out -= which == 0 ? 0 : n_q + (which - 1) * n_kv;
        out += (which == 0 ? s->heads.begin : s->kv_heads.begin) * d;
        want = "qkv"[which];
        break;
    case WEIGHT_MLP_IN:
    case WEIGHT_MLP_IN_BIAS:
        if (m.gated_mlp)
            want = out < n_ffn ? 'g' : 'u';
        out = out % n_ffn + s->ffn.begin;
        break;
    case WEIGHT_EMBED:
    case WEIGHT_HEAD:
    case WEIGHT_HEAD_BIAS:
        out += s->vocab.begin;
        break;
    case WEIGHT_OUT:
        in += s->heads.begin * d;
        break;
    case WEIGHT_EXPERTS_IN:
        expert = out / (2 * n_expert);
        of_two = m.sinks ? 0 : out / n_expert % 2;
        want = m.sinks ? 'I' : of_two == 0 ? 'g' : 'u';
        out = m.sinks ? out % (2 * n_expert) + 2 * s->expert_ffn.begin : out % n_expert + s->expert_ffn.begin;
        break;
    case WEIGHT_EXPERTS_IN_BIAS:
        in += 2 * s->expert_ffn.begin;
        break;
    case WEIGHT_SINKS:
        out += s->heads.begin;
        break;
    case WEIGHT_EXPERTS_OUT:
        expert = out / m.hidden;
        out %= m.hidden;
        in += s->expert_ffn.begin;
        break;
    case WEIGHT_SHARED_IN:
        want = out < n_shared ? 'g' : 'u';
        out = out % n_shared + s->shared_ffn.begin;
        break;
    case WEIGHT_SHARED_OUT:
        in += s->shared_ffn.begin;
        break;
    case WEIGHT_MLP_OUT:
        in += s->ffn.begin;
        break;
    default:
        break;
    }
    for (int i = 0; i < written.n; i++) {
        const struct inventory *l = written.line[i];
        const struct tensor_spec *t = &written.spec[i];
        if (l->id != slot->id || written.layer[i] != slot->layer ||
            !(l->part == want || l->part == 'A' || l->part == 'B' || l->part == 'G' || l->part == 'P'))
            continue;
        if ((l->part == 'A' || l->part == 'I') && l->in_out)
            in += expert * t->rows;
        else if (l->part == 'A')
            out += expert * t->rows + of_two * m.experts.ffn;
        else if (written.expert[i] != expert)
            continue;
        if (l->part == 'B')
            out += (which > 0) * (int64_t)m.n_heads * d + (which > 1) * (int64_t)m.n_kv_heads * d;
        else if (l->part == 'G' && want == 'u')
            out += m.ffn;
        else if (l->part == 'P')
            out = out / d * 3 * d + which * d + out % d;
        *element = l->in_out ? in * t->cols + out : (t->rows > 0 ? out * t->cols + in : out);
        return t;
    }
    return NULL;
}

/* A rank's arrays, and the number of writes to each element. */
struct memory {
    const struct weight_map *map;
    unsigned char *data[1000];
    unsigned char *writes[1000];
};
static struct memory memory;

static void keep(void *context, const struct weight_slice *slice, int64_t first, const void *src, int64_t src_ld,
                 int64_t rows)
{
    int slot = slice->slot;
    int64_t cols = slice->cols, dst_row, dst_col;
    bool transpose = slice->transpose;
    read_target(slice, first, &dst_row, &dst_col);
    struct memory *to = context;
    const struct weight_slot *s = &to->map->slot[slot];
    size_t size = dtype_bytes(s->type);
    assert_true(rows > 0 && cols > 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t row = dst_row + (transpose ? j : i), col = dst_col + (transpose ? i : j);
            assert_true(row >= 0 && row < s->rows && col >= 0 && col < s->cols);
            size_t at = (size_t)(row * s->cols + col);
            memcpy(to->data[slot] + at * size, (const char *)src + (size_t)(i * src_ld + j) * size, size);
            to->writes[slot][at]++;
        }
}

static void allocate(const struct weight_map *map)
{
    assert_true(map->n_slots <= 1000);
    memory.map = map;
    for (int i = 0; i < map->n_slots; i++) {
        memory.data[i] = calloc(1, weight_slot_bytes(&map->slot[i]) + 1);
        memory.writes[i] = calloc(1, weight_slot_bytes(&map->slot[i]) + 1);
        assert_non_null(memory.data[i]);
        assert_non_null(memory.writes[i]);
    }
}

static void compare(const struct shard *s)
{
    const struct weight_map *map = memory.map;
    for (int i = 0; i < map->n_slots; i++) {
        const struct weight_slot *slot = &map->slot[i];
        size_t size = dtype_bytes(slot->type);
        bool matrix = slot->id == WEIGHT_EXPERTS_IN_BIAS || slot->id == WEIGHT_EXPERTS_OUT_BIAS;
        bool vector = strstr(weight_name(slot->id), "norm") != NULL || strstr(weight_name(slot->id), "bias") != NULL ||
                      slot->id == WEIGHT_SINKS;
        vector = vector && !matrix;
        for (int64_t row = 0; row < slot->rows; row++)
            for (int64_t col = 0; col < slot->cols; col++) {
                int64_t element = 0;
                size_t at = (size_t)(row * slot->cols + col);
                const struct tensor_spec *t = source_of(slot, s, vector ? col : row, vector ? 0 : col, &element);
                assert_non_null(t);
                assert_int_equal(memory.writes[i][at], 1);
                assert_int_equal(size, t->element);
                if (memcmp(memory.data[i] + at * size, t->data + (size_t)element * size, size) != 0)
                    fail_msg("%s, layer %d, rank %d of %d, element (%lld, %lld)", weight_name(slot->id), slot->layer,
                             s->rank, s->n_ranks, (long long)row, (long long)col);
            }
        free(memory.data[i]);
        free(memory.writes[i]);
    }
}

/* Each needed byte is in exactly one segment; blocks are as long as allowed and no longer. */
static void check_plan(const struct read_plan *p, const struct checkpoint *c, size_t block_bytes)
{
    uint64_t needed = 0, in_segments = 0, in_blocks = 0;
    for (int i = 0; i < written.n; i++)
        if (written.line[i]->id != WEIGHT_COUNT)
            needed += written.spec[i].bytes;
    for (int i = 0; i < p->n_blocks; i++) {
        const struct read_block *b = &p->block[i];
        assert_true(b->n_segments > 0 && b->bytes > 0);
        in_blocks += b->bytes;
        assert_true(b->bytes <= p->max_block_bytes);
        for (int j = b->first_segment; j < b->first_segment + b->n_segments; j++) {
            const struct read_segment *s = &p->segment[j];
            const struct tensor_info *t = &c->tensor[s->tensor];
            size_t row_bytes = (size_t)s->row_elements * (t->n_dims > 1 ? 2 : 4); /* matrices BF16, vectors F32 */
            assert_true(s->row >= 0 && s->n_rows > 0);
            assert_int_equal(b->offset + s->block_offset, t->offset + (uint64_t)s->row * row_bytes);
            assert_true(s->block_offset + (size_t)s->n_rows * row_bytes <= b->bytes);
            in_segments += (uint64_t)s->n_rows * row_bytes;
            if (b->bytes > block_bytes)
                assert_true(b->n_segments == 1 && s->n_rows == 1);
        }
    }
    assert_int_equal(in_segments, needed);
    assert_int_equal(in_blocks, p->bytes);
    assert_true(in_blocks >= needed && in_blocks <= needed + 2 * 4096);
}

/* Reads a block's bytes in their order in memory. */
static void read_block(int fd, const struct read_block *b, unsigned char *to)
{
    size_t width = b->gap > 0 ? b->width : b->bytes;
    assert_true(width > 0 && b->bytes % width == 0);
    for (size_t row = 0; row < b->bytes / width; row++)
        assert_int_equal(pread(fd, to + row * width, width, (off_t)(b->offset + row * (width + b->gap))), width);
}

static void read_all(const struct checkpoint *c, const struct read_plan *p, const struct weight_map *map,
                     const struct shard *s)
{
    char path[4400];
    unsigned char *block = malloc(p->max_block_bytes);
    assert_non_null(block);
    allocate(map);
    (void)snprintf(path, sizeof path, "%s/%s", c->dir, checkpoint_file_name(c, 0));
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    for (int b = 0; b < p->n_blocks; b++) {
        read_block(fd, &p->block[b], block);
        read_plan_scatter(p, map, c, b, block, keep, &memory);
    }
    assert_int_equal(close(fd), 0);
    compare(s);
    free(block);
}

/* If the checkpoint fills a slot, nothing of it is zeroed; without a checkpoint all of it is. */
static void check_filled(const struct weight_map *map, bool filled)
{
    int64_t *n = calloc((size_t)map->n_slots, sizeof *n);
    assert_non_null(n);
    weight_map_unfilled(map, n);
    for (int i = 0; i < map->n_slots; i++)
        assert_int_equal(n[i], filled ? 0 : (int64_t)map->slot[i].rows * map->slot[i].cols);
    free(n);
}

/* Reads with the node's plan, and with a plan of the rank's own, which reads only its share. */
static void read_as_rank(const struct checkpoint *c, const struct read_plan *p, size_t block_bytes, int rank, int ranks)
{
    struct err e = {0};
    struct shard s;
    struct weight_map map;
    struct read_plan own;
    shard_make(&s, &m, rank, ranks);
    if (weight_map_build(&map, &m, &s, c, &e) != 0)
        fail_msg("%s", e.text);
    read_all(c, p, &map, &s);
    check_filled(&map, true);
    assert_int_equal(read_plan_build_own(&own, c, &map, block_bytes, &e), 0);
    assert_int_equal(own.bytes, weight_map_bytes(&map));
    for (int b = 0; b < own.n_blocks; b++)
        assert_true(own.block[b].bytes <= block_bytes || own.segment[own.block[b].first_segment].n_rows == 1);
    read_all(c, &own, &map, &s);
    read_plan_free(&own);
    weight_map_free(&map);
}

static void every_element_arrives(void **state)
{
    static const size_t block_bytes[] = {64, 1000, (size_t)8 << 20};
    uint64_t random = 20240607;
    (void)state;
    for (size_t i = 0; i < sizeof fixtures / sizeof fixtures[0]; i++) {
        struct err e = {0};
        struct folder folder;
        struct checkpoint c;
        struct shard one;
        struct weight_map whole;
        if (model_config_parse(&m, fixtures[i].config, strlen(fixtures[i].config), "config.json", &e) != 0)
            fail_msg("%s", e.text);
        folder_make(&folder);
        write_inventory(&fixtures[i], &random);
        folder_write_tensors(&folder, "model.safetensors", written.spec, written.n, (int)(i % 3)); /* unaligned too */
        if (checkpoint_open(&c, folder.path, &e) != 0)
            fail_msg("%s", e.text);
        assert_int_equal(c.n_tensors, written.n);
        shard_make(&one, &m, 0, 1);
        if (weight_map_build(&whole, &m, &one, &c, &e) != 0)
            fail_msg("%s: %s", m.model_type, e.text);
        for (size_t j = 0; j < sizeof block_bytes / sizeof block_bytes[0]; j++) {
            struct read_plan p;
            assert_int_equal(read_plan_build(&p, &c, &whole, block_bytes[j], &e), 0);
            check_plan(&p, &c, block_bytes[j]);
            for (int ranks = 1; ranks <= 8; ranks++) {
                assert_int_equal(read_plan_deal(&p, ranks, &e), 0);
                for (int rank = 0; rank < ranks; rank++)
                    read_as_rank(&c, &p, block_bytes[j], rank, ranks);
            }
            check_plan(&p, &c, block_bytes[j]);
            read_plan_free(&p);
        }
        weight_map_free(&whole);
        assert_int_equal(weight_map_build(&whole, &m, &one, NULL, &e), 0);
        check_filled(&whole, false);
        weight_map_free(&whole);
        checkpoint_close(&c);
        specs_free(written.spec, written.n);
        folder_remove(&folder);
    }
}

/* A gap of more than 4 KiB between two needed tensors is not read. */
static void gaps_are_skipped(void **state)
{
    (void)state;
    char name[4][16] = {"a", "b", "big", "c"};
    struct tensor_info tensor[4] = {{.name = 0, .n_dims = 2, .shape = {10, 16}, .offset = 100, .bytes = 320},
                                    {.n_dims = 1, .shape = {100}, .offset = 420, .bytes = 200},
                                    {.n_dims = 1, .shape = {3000}, .offset = 620, .bytes = 6000},
                                    {.n_dims = 1, .shape = {8}, .offset = 6620, .bytes = 16}};
    struct checkpoint c = {.n_tensors = 4, .n_files = 1, .tensor = tensor, .text = name[0]};
    struct weight_slice slice[3] = {{.tensor = 0}, {.tensor = 1}, {.tensor = 3}};
    struct weight_map map = {.n_slices = 3, .slice = slice};
    struct read_plan p;
    struct err e = {0};
    assert_int_equal(read_plan_build(&p, &c, &map, READ_PLAN_BLOCK_BYTES, &e), 0);
    assert_int_equal(p.n_blocks, 2);
    assert_int_equal(p.block[0].bytes, 520);
    assert_int_equal(p.block[0].n_segments, 2);
    assert_int_equal(p.block[1].offset, 6620);
    assert_int_equal(p.bytes, 536);
    read_plan_free(&p);
    tensor[3].offset = 620 + 4096;
    assert_int_equal(read_plan_build(&p, &c, &map, READ_PLAN_BLOCK_BYTES, &e), 0);
    assert_int_equal(p.n_blocks, 1);
    assert_int_equal(p.bytes, 520 + 4096 + 16);
    read_plan_free(&p);
    tensor[3].file = 1;
    assert_int_equal(read_plan_build(&p, &c, &map, READ_PLAN_BLOCK_BYTES, &e), 0);
    assert_int_equal(p.n_blocks, 2);
    assert_int_equal(p.block[1].file, 1);
    read_plan_free(&p);
    read_plan_free(&p);
}

/* At any point no rank has received more than a block of a matrix more than another; without distribution the first one
 * has half of the matrix before the second has any. */
static void ranks_get_their_parts_together(void **state)
{
    enum { ROWS = 64, ROW_BYTES = 32, ROWS_OF_BLOCK = 4, N_TENSORS = 3 };
    (void)state;
    struct tensor_info tensor[N_TENSORS];
    struct weight_slice slice[N_TENSORS];
    for (int t = 0; t < N_TENSORS; t++) {
        tensor[t] = (struct tensor_info){.n_dims = 2, .shape = {ROWS, 16}, .bytes = ROWS * ROW_BYTES};
        tensor[t].offset = (uint64_t)t * ROWS * ROW_BYTES;
        slice[t] = (struct weight_slice){.tensor = t};
    }
    struct checkpoint c = {.n_tensors = N_TENSORS, .n_files = 1, .tensor = tensor};
    struct weight_map map = {.n_slices = N_TENSORS, .slice = slice};
    for (int ranks = 1; ranks <= 5; ranks++) {
        struct read_plan p;
        struct err e = {0};
        int n_of_rank[5] = {0}, last_row[5] = {0};
        assert_int_equal(read_plan_build(&p, &c, &map, (size_t)ROWS_OF_BLOCK * ROW_BYTES, &e), 0);
        assert_int_equal(read_plan_deal(&p, ranks, &e), 0);
        assert_int_equal(p.n_blocks, N_TENSORS * ROWS / ROWS_OF_BLOCK);
        for (int b = 0; b < p.n_blocks; b++) {
            const struct read_segment *s = &p.segment[p.block[b].first_segment];
            assert_int_equal(s->tensor, b / (ROWS / ROWS_OF_BLOCK)); /* one tensor after the other */
            int owner = (int)(s->row * ranks / ROWS), most = 0, least = p.n_blocks;
            if (s->row == 0)
                memset(n_of_rank, 0, sizeof n_of_rank);
            assert_true(n_of_rank[owner] == 0 || s->row > last_row[owner]); /* a rank's rows in order */
            last_row[owner] = (int)s->row;
            n_of_rank[owner]++;
            for (int r = 0; r < ranks; r++) {
                most = n_of_rank[r] > most ? n_of_rank[r] : most;
                least = n_of_rank[r] < least ? n_of_rank[r] : least;
            }
            assert_true(most - least <= (ROWS / ROWS_OF_BLOCK % ranks == 0 ? 1 : 2));
        }
        read_plan_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_arrives), cmocka_unit_test(gaps_are_skipped),
                                       cmocka_unit_test(ranks_get_their_parts_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
