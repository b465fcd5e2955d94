/* partition/safetensors.c - the header of one safetensors file: checkpoint_parse_header. The file is 8 bytes of length
 * N (little-endian), N bytes of JSON, then the data, to which the offsets in the JSON refer. */
#include "partition/checkpoint.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* Bits of one element, 0 for a name that safetensors does not have. */
static int dtype_bits(const char *name)
{
    static const struct {
        const char *name;
        int bits;
    } table[] = {{"F32", 32},        {"F16", 16}, {"BF16", 16},   {"F64", 64},    {"BOOL", 8},    {"U8", 8},
                 {"I8", 8},          {"I16", 16}, {"U16", 16},    {"I32", 32},    {"U32", 32},    {"I64", 64},
                 {"U64", 64},        {"C64", 64}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
                 {"F8_E5M2FNUZ", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].bits;
    return 0;
}

/* A non-negative integer, or -1. */
static int64_t size_value(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

static int parse_shape(struct tensor_info *t, const json_t *shape, const char *what, const char *name, struct err *e)
{
    if (!json_is_array(shape))
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\": \"shape\" is %s, expected an array of integers", what, name,
                   json_type_name(shape));
    if (json_array_size(shape) > CHECKPOINT_MAX_DIMS)
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\" has %zu dimensions, at most %d are accepted", what, name,
                   json_array_size(shape), CHECKPOINT_MAX_DIMS);
    t->n_dims = (int32_t)json_array_size(shape);
    for (int i = 0; i < t->n_dims; i++) {
        const json_t *item = json_array_get(shape, (size_t)i);
        t->shape[i] = size_value(item);
        if (t->shape[i] < 0)
            return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\": \"shape\"[%d] is %s, expected a non-negative integer",
                       what, name, i, json_is_integer(item) ? "negative" : json_type_name(item));
    }
    return 0;
}

/* Bytes of the tensor from its shape and dtype. */
static int count_bytes(struct tensor_info *t, const char *dtype, const char *what, const char *name, struct err *e)
{
    uint64_t bits = (uint64_t)dtype_bits(dtype);
    if (bits == 0)
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\": \"dtype\" is \"%.40s\", expected a type of safetensors (F32)",
                   what, name, dtype);
    for (int i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(bits, (uint64_t)t->shape[i], &bits))
            return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\": the product of its \"shape\" overflows, expected < 2^64",
                       what, name);
    if (bits % 8 != 0)
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\" of %.40s has %llu bits, expected whole bytes", what, name,
                   dtype, (unsigned long long)bits);
    t->bytes = bits / 8;
    return 0;
}

/* Reads one member of the header. On success t->offset is still relative to the data. */
static int parse_tensor(struct tensor_info *t, const json_t *json, const char *what, const char *name, struct err *e)
{
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *offsets = json_object_get(json, "data_offsets");
    if (!json_is_object(json))
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\" is %s, expected an object", what, name, json_type_name(json));
    if (dtype == NULL)
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\": \"dtype\" is %s, expected a string", what, name,
                   json_type_name(json_object_get(json, "dtype")));
    if (parse_shape(t, json_object_get(json, "shape"), what, name, e) != 0 || count_bytes(t, dtype, what, name, e) != 0)
        return -1;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return ERR(e, ERR_INPUT,
                   "%s: tensor \"%.120s\": \"data_offsets\" is %s of %zu, expected an array of 2 integers", what, name,
                   json_type_name(offsets), json_array_size(offsets));
    int64_t begin = size_value(json_array_get(offsets, 0)), end = size_value(json_array_get(offsets, 1));
    if (begin < 0 || end < begin)
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\": \"data_offsets\" are no two integers with 0 <= begin <= end",
                   what, name);
    if ((uint64_t)(end - begin) != t->bytes)
        return ERR(e, ERR_INPUT,
                   "%s: tensor \"%.120s\": \"data_offsets\" span %lld bytes, its shape and dtype %s need %llu", what,
                   name, (long long)(end - begin), dtype, (unsigned long long)t->bytes);
    t->offset = (uint64_t)begin;
    return 0;
}

static int by_offset(const void *left, const void *right)
{
    const struct tensor_info *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* Checks that the tensors tile the data, without holes, overlaps or trailing bytes, and makes the offsets absolute. */
static int check_tiling(struct checkpoint *c, int first, const char *what, uint64_t data, uint64_t file_bytes,
                        struct err *e)
{
    uint64_t at = 0;
    qsort(c->tensor + first, (size_t)(c->n_tensors - first), sizeof c->tensor[0], by_offset);
    for (int i = first; i < c->n_tensors; i++) {
        struct tensor_info *t = &c->tensor[i];
        const char *name = checkpoint_tensor_name(c, i);
        if (t->offset != at)
            return ERR(
                e, ERR_INPUT,
                "%s: tensor \"%.120s\": \"data_offsets\" begin at %llu, expected %llu where the tensor before it "
                "ends (%s)",
                what, name, (unsigned long long)t->offset, (unsigned long long)at,
                t->offset < at ? "they overlap" : "a hole");
        at += t->bytes;
        if (at > file_bytes - data)
            return ERR(e, ERR_INPUT,
                       "%s: tensor \"%.120s\" ends at byte %llu of the file, which has %llu: truncated or damaged",
                       what, name, (unsigned long long)(data + at), (unsigned long long)file_bytes);
        t->offset += data;
    }
    if (at != file_bytes - data)
        return ERR(e, ERR_INPUT, "%s: the file has %llu bytes, expected %llu from its header: trailing bytes", what,
                   (unsigned long long)file_bytes, (unsigned long long)(data + at));
    return 0;
}

static int check_metadata(const json_t *metadata, const char *what, struct err *e)
{
    const char *key;
    json_t *value;
    if (json_is_null(metadata))
        return 0;
    if (!json_is_object(metadata))
        return ERR(e, ERR_INPUT, "%s: \"__metadata__\" is %s, expected an object of strings", what,
                   json_type_name(metadata));
    json_object_foreach((json_t *)metadata, key, value) if (!json_is_string(value)) return ERR(
        e, ERR_INPUT, "%s: \"__metadata__\" member \"%.120s\" is %s, expected a string", what, key,
        json_type_name(value));
    return 0;
}

/* Makes room for `n` more tensors, once per file. */
static int reserve_tensors(struct checkpoint *c, size_t n, const char *what, struct err *e)
{
    size_t total = (size_t)c->n_tensors + n;
    if (total > CHECKPOINT_MAX_TENSORS)
        return ERR(e, ERR_INPUT, "%s: %zu tensors with the files before it, at most %d are accepted", what, total,
                   CHECKPOINT_MAX_TENSORS);
    struct tensor_info *tensor = realloc(c->tensor, (total > 0 ? total : 1) * sizeof *tensor);
    if (tensor == NULL)
        return ERR(e, ERR_MEMORY, "%s: out of host memory for %zu tensors", what, total);
    c->tensor = tensor;
    return 0;
}

static int add_tensors(struct checkpoint *c, int file, const char *what, const json_t *header, struct err *e)
{
    const char *name;
    json_t *value;
    if (!json_is_object(header))
        return ERR(e, ERR_INPUT, "%s: the header is %s, expected an object", what, json_type_name(header));
    if (reserve_tensors(c, json_object_size(header), what, e) != 0)
        return -1;
    json_object_foreach((json_t *)header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (check_metadata(value, what, e) != 0)
                return -1;
            continue;
        }
        struct tensor_info *t = &c->tensor[c->n_tensors];
        memset(t, 0, sizeof *t);
        t->file = file;
        if (parse_tensor(t, value, what, name, e) != 0 || checkpoint_add_text(c, name, &t->name, e) != 0 ||
            checkpoint_add_text(c, json_string_value(json_object_get(value, "dtype")), &t->dtype, e) != 0)
            return -1;
        c->n_tensors++;
    }
    return 0;
}

int checkpoint_parse_header(struct checkpoint *c, int file, const char *what, const unsigned char *head,
                            size_t head_bytes, uint64_t file_bytes, struct err *e)
{
    if (file_bytes < 8 || head_bytes < 8)
        return ERR(e, ERR_INPUT, "%s: %llu bytes are too few for a safetensors file, expected at least 8 of length",
                   what, (unsigned long long)file_bytes);
    if (memcmp(head, "version ", 8) == 0)
        return ERR(e, ERR_INPUT,
                   "%s: is a Git LFS pointer, expected the safetensors file itself: run `git lfs pull` in its folder",
                   what);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | head[i];
    if (n > CHECKPOINT_MAX_HEADER)
        return ERR(e, ERR_INPUT, "%s: the header's length is %llu, expected at most %d: not a safetensors file?", what,
                   (unsigned long long)n, CHECKPOINT_MAX_HEADER);
    if (n > file_bytes - 8)
        return ERR(e, ERR_INPUT, "%s: the header's length is %llu, but the file has only %llu bytes", what,
                   (unsigned long long)n, (unsigned long long)file_bytes);
    if (n != head_bytes - 8)
        return ERR(e, ERR_INPUT, "%s: the header's length is %llu, expected %zu", what, (unsigned long long)n,
                   head_bytes - 8);
    int first = c->n_tensors;
    json_t *header = json_parse((const char *)head + 8, (size_t)n, what, e);
    if (header == NULL)
        return -1;
    int rc = add_tensors(c, file, what, header, e);
    json_decref(header);
    return rc == 0 ? check_tiling(c, first, what, 8 + n, file_bytes, e) : -1;
}
