/* partition/read_plan.c - see read_plan.h. */
#include "partition/read_plan.h"
#include "partition/cells.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define MERGE_GAP 4096 /* gaps between tensors of up to this many bytes are read rather than skipped */

/* While a plan is built. */
struct read_plan_builder {
    struct read_plan *p;
    const struct checkpoint *c;
    const struct weight_map *map; /* of a plan for one rank */
    size_t block_bytes;
    size_t block_capacity, segment_capacity;
    struct err *e;
};

/* One more element at the end of a growing array; NULL when memory is short. */
static void *grow_array(void *array, int *n, size_t *capacity, size_t size, struct err *e)
{
    if ((size_t)*n == *capacity) {
        size_t more = *capacity > 0 ? 2 * *capacity : 256;
        void *grown = more <= INT_MAX ? realloc(array, more * size) : NULL;
        if (grown == NULL) {
            ERR(e, ERR_MEMORY, "out of host memory for a read plan of %zu parts", more);
            return NULL;
        }
        array = grown;
        *capacity = more;
    }
    (*n)++;
    return array;
}

static int add_block(struct read_plan_builder *b, int file, uint64_t offset)
{
    struct read_plan *p = b->p;
    struct read_block *grown = grow_array(p->block, &p->n_blocks, &b->block_capacity, sizeof *grown, b->e);
    if (grown == NULL)
        return -1;
    p->block = grown;
    p->block[p->n_blocks - 1] = (struct read_block){.file = file, .offset = offset, .first_segment = p->n_segments};
    return 0;
}

static int add_segment(struct read_plan_builder *b, const struct read_segment *segment, size_t bytes)
{
    struct read_plan *p = b->p;
    struct read_segment *grown = grow_array(p->segment, &p->n_segments, &b->segment_capacity, sizeof *grown, b->e);
    if (grown == NULL)
        return -1;
    p->segment = grown;
    p->segment[p->n_segments - 1] = *segment;
    struct read_block *block = &p->block[p->n_blocks - 1];
    block->bytes = segment->block_offset + bytes;
    block->n_segments++;
    return 0;
}

/* The product of all dimensions except those of a row. */
static int64_t tensor_rows(const struct tensor_info *t)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < t->n_dims - (t->n_dims == 4); i++)
        rows *= t->shape[i];
    return rows;
}

static size_t element_bytes(const struct tensor_info *t)
{
    return (size_t)(t->bytes / (uint64_t)(tensor_rows(t) * tensor_row_elements(t)));
}

/* Two rows of [in, out] may share the bytes of a quantised matrix: a block that does not end with the rows has an even
 * number of them, where that is any. */
static int64_t even_rows(int64_t n)
{
    return n > 1 ? n / 2 * 2 : n;
}

/* Append the rows of a tensor, to the last block as long as it has room. */
static int add_tensor(struct read_plan_builder *b, int tensor)
{
    const struct tensor_info *t = &b->c->tensor[tensor];
    int64_t rows = tensor_rows(t), row_elements = tensor_row_elements(t);
    size_t row_bytes = t->bytes / (uint64_t)rows;
    for (int64_t row = 0; row < rows;) {
        uint64_t at = t->offset + (uint64_t)row * row_bytes;
        const struct read_block *last = b->p->n_blocks > 0 ? &b->p->block[b->p->n_blocks - 1] : NULL;
        bool joins = last != NULL && last->file == t->file && at >= last->offset + last->bytes &&
                     at - last->offset - last->bytes <= MERGE_GAP && at + row_bytes <= last->offset + b->block_bytes;
        if (!joins && add_block(b, t->file, at) != 0)
            return -1;
        const struct read_block *block = &b->p->block[b->p->n_blocks - 1];
        size_t from = (size_t)(at - block->offset);
        int64_t n = from < b->block_bytes ? (int64_t)((b->block_bytes - from) / row_bytes) : 0;
        if (n < 1)
            n = 1; /* a row longer than a block */
        n = n < rows - row ? even_rows(n) : rows - row;
        const struct read_segment segment = {tensor, -1, row, n, 0, row_elements, from};
        if (add_segment(b, &segment, (size_t)n * row_bytes) != 0)
            return -1;
        row += n;
    }
    return 0;
}

/* The first slice of a tensor, or n_slices. */
static int first_slice(const struct weight_map *map, int tensor)
{
    int low = 0, high = map->n_slices;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (map->slice[middle].tensor < tensor)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Bytes of a slice's row, in the file or unpacked, whichever is more: few scales in the file become many in the
 * matrix. */
static size_t longest_row(const struct read_plan_builder *b, const struct weight_slice *s, size_t width)
{
    const struct cells_source all = {s, s->row, s->rows, NULL, s->cols};
    if (s->cells.plane == PLANE_DENSE)
        return width;
    size_t unpacked = cells_scratch(&b->map->slot[s->slot], &all) / (size_t)s->rows;
    if (s->cells.plane != PLANE_CODES) /* few blocks need it, and all slots have room for the longest */
        unpacked *= 4;
    return unpacked > width ? unpacked : width;
}

/* Append a slice in blocks of its own, each with as many rows as fit before and after unpacking. If two rows may share
 * bytes, a block has at least two, however long they are. */
static int add_slice(struct read_plan_builder *b, int slice)
{
    const struct weight_slice *s = &b->map->slice[slice];
    const struct tensor_info *t = &b->c->tensor[s->tensor];
    size_t width = (size_t)s->cols * element_bytes(t), pitch = (size_t)tensor_row_elements(t) * element_bytes(t);
    int64_t most = (int64_t)(b->block_bytes / longest_row(b, s, width)), n = 0;
    int64_t least = s->cells.plane != PLANE_DENSE && s->cells.in_first ? 2 : 1;
    most = most > least ? even_rows(most) : least;
    for (int64_t row = 0; row < s->rows; row += n) {
        n = s->rows - row < most ? s->rows - row : most;
        const struct read_segment segment = {s->tensor, slice, s->row + row, n, s->col, s->cols, 0};
        uint64_t at = t->offset + (uint64_t)segment.row * pitch + (uint64_t)s->col * element_bytes(t);
        if (add_block(b, t->file, at) != 0 || add_segment(b, &segment, (size_t)n * width) != 0)
            return -1;
        struct read_block *block = &b->p->block[b->p->n_blocks - 1];
        block->width = width;
        block->gap = pitch - width;
    }
    return 0;
}

static int add_slices(struct read_plan_builder *b, int tensor)
{
    int rc = 0;
    for (int i = first_slice(b->map, tensor); rc == 0 && i < b->map->n_slices && b->map->slice[i].tensor == tensor; i++)
        if (b->map->slice[i].rows > 0 && b->map->slice[i].cols > 0)
            rc = add_slice(b, i);
    return rc;
}

/* A tensor's position in the files, for sorting. */
struct stored_tensor {
    int file, tensor;
    uint64_t offset;
};

static int by_offset(const void *left, const void *right)
{
    const struct stored_tensor *a = left, *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The map's tensors by their offset, *n of them. The caller frees. */
static struct stored_tensor *list_tensors(const struct checkpoint *c, const struct weight_map *map, int *n,
                                          struct err *e)
{
    struct stored_tensor *stored = err_calloc(e, (size_t)map->n_slices, sizeof *stored, "the read plan");
    *n = 0;
    for (int i = 0; stored != NULL && i < map->n_slices; i++) {
        int tensor = map->slice[i].tensor;
        if (*n == 0 || stored[*n - 1].tensor != tensor) /* slices are sorted by tensor */
            stored[(*n)++] = (struct stored_tensor){c->tensor[tensor].file, tensor, c->tensor[tensor].offset};
    }
    if (stored != NULL)
        qsort(stored, (size_t)*n, sizeof *stored, by_offset);
    return stored;
}

/* Builds a plan by calling `add` for each of the map's tensors. */
static int build_plan(struct read_plan_builder *b, const struct weight_map *map,
                      int (*add)(struct read_plan_builder *, int tensor))
{
    struct read_plan *p = b->p;
    int n = 0;
    memset(p, 0, sizeof *p);
    struct stored_tensor *stored = list_tensors(b->c, map, &n, b->e);
    int rc = stored != NULL ? 0 : -1;
    for (int i = 0; rc == 0 && i < n; i++)
        rc = add(b, stored[i].tensor);
    for (int i = 0; i < p->n_blocks; i++) {
        p->bytes += p->block[i].bytes;
        if (p->block[i].bytes > p->max_block_bytes)
            p->max_block_bytes = p->block[i].bytes;
    }
    free(stored);
    if (rc != 0)
        read_plan_free(p);
    return rc;
}

int read_plan_build(struct read_plan *p, const struct checkpoint *c, const struct weight_map *whole, size_t block_bytes,
                    struct err *e)
{
    struct read_plan_builder b = {.p = p, .c = c, .block_bytes = block_bytes, .e = e};
    return build_plan(&b, whole, add_tensor);
}

int read_plan_build_own(struct read_plan *p, const struct checkpoint *c, const struct weight_map *map,
                        size_t block_bytes, struct err *e)
{
    struct read_plan_builder b = {.p = p, .c = c, .map = map, .block_bytes = block_bytes, .e = e};
    return build_plan(&b, map, add_slices);
}

/* Takes one block of each stretch in turn; within a stretch the order stays. */
static void deal(struct read_block *to, const struct read_block *from, int n, int n_stretches)
{
    int n_dealt = 0;
    for (int i = 0; n_dealt < n; i++)
        for (int k = 0; k < n_stretches; k++) {
            struct range stretch = shard_units(n, k, n_stretches);
            if (stretch.begin + i < stretch.end)
                to[n_dealt++] = from[stretch.begin + i];
        }
}

int read_plan_deal(struct read_plan *p, int n_shards, struct err *e)
{
    struct read_block *dealt = err_calloc(e, (size_t)p->n_blocks, sizeof *dealt, "the read plan");
    if (dealt == NULL)
        return -1;
    for (int begin = 0, end = 0; begin < p->n_blocks; begin = end) {
        int tensor = p->segment[p->block[begin].first_segment].tensor;
        while (end < p->n_blocks && p->segment[p->block[end].first_segment].tensor == tensor)
            end++;
        deal(dealt + begin, p->block + begin, end - begin, n_shards);
    }
    free(p->block);
    p->block = dealt;
    return 0;
}

void read_plan_free(struct read_plan *p)
{
    free(p->block);
    free(p->segment);
    memset(p, 0, sizeof *p);
}

void read_plan_scatter(const struct read_plan *p, const struct weight_map *map, const struct checkpoint *c, int block,
                       const void *bytes, read_sink *sink, void *context)
{
    const struct read_block *b = &p->block[block];
    for (int i = 0; i < b->n_segments; i++) {
        const struct read_segment *segment = &p->segment[b->first_segment + i];
        const struct tensor_info *t = &c->tensor[segment->tensor];
        const unsigned char *start = (const unsigned char *)bytes + segment->block_offset;
        int64_t end = segment->row + segment->n_rows;
        for (int j = segment->slice >= 0 ? segment->slice : first_slice(map, segment->tensor); j < map->n_slices; j++) {
            const struct weight_slice *s = &map->slice[j];
            if (s->tensor != segment->tensor || s->row >= end || (segment->slice >= 0 && j != segment->slice))
                break;
            int64_t from = s->row > segment->row ? s->row : segment->row;
            int64_t to = s->row + s->rows < end ? s->row + s->rows : end;
            if (from >= to)
                continue;
            int64_t at = (from - segment->row) * segment->row_elements + s->col - segment->col;
            sink(context, s, from, start + (size_t)at * element_bytes(t), segment->row_elements, to - from);
        }
    }
}
