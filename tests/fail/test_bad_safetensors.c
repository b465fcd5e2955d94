/* tests/fail/test_bad_safetensors.c - damaged weight files: header, offsets, tensors against the config, shards and
 * their index, and files that are not safetensors at all. */
#include "base/err.h"
#include "tests/support/bad_start.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WEIGHTS "model.safetensors"
#define INDEX   "model.safetensors.index.json"
#define SECOND  "model-00002-of-00003.safetensors"
#define NORM    "model.norm.weight"
#define DOWN    "model.layers.1.mlp.down_proj.weight"
#define CURVE   "model.layers.1.mlp.act_fn."

static void remove_file(const char *dir, const char *name)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    (void)unlink(path);
}

/* ---- the file as a whole ---- */

static void cut(const char *dir, const char *name, long bytes)
{
    char path[600];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stat(path, &info) != 0 || truncate(path, bytes >= 0 ? bytes : info.st_size + bytes) != 0)
        exit(99);
}

static void seven_bytes(const char *dir)
{
    cut(dir, WEIGHTS, 7);
}

static void empty(const char *dir)
{
    cut(dir, WEIGHTS, 0);
}

static void truncated(const char *dir)
{
    cut(dir, WEIGHTS, -100);
}

static void trailing(const char *dir)
{
    size_t bytes;
    char *data = files_read(dir, WEIGHTS, &bytes);
    files_write(dir, WEIGHTS, data, bytes + 1); /* includes the NUL after the data */
    free(data);
}

static void set_length(const char *dir, uint64_t n)
{
    size_t bytes;
    char *data = files_read(dir, WEIGHTS, &bytes);
    memcpy(data, &n, 8);
    files_write(dir, WEIGHTS, data, bytes);
    free(data);
}

static void huge_length(const char *dir)
{
    set_length(dir, 0xffffff000000003cull);
}

static void length_beyond_file(const char *dir)
{
    set_length(dir, 90000000);
}

static void whole_header(const char *dir, const char *text)
{
    models_join(dir, WEIGHTS, text, -1, "", 0);
}

static void not_utf8(const char *dir)
{
    whole_header(dir, "\xff");
}

static void lone_brace(const char *dir)
{
    whole_header(dir, "{");
}

static void text_after_object(const char *dir)
{
    whole_header(dir, "{} x");
}

static void header_is_array(const char *dir)
{
    whole_header(dir, "[]");
}

static void no_tensor(const char *dir)
{
    whole_header(dir, "{}");
}

static void deep_header(const char *dir)
{
    char text[20001];
    memset(text, '[', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    whole_header(dir, text);
}

static void folder_in_its_place(const char *dir)
{
    char path[600];
    remove_file(dir, WEIGHTS);
    (void)snprintf(path, sizeof path, "%s/" WEIGHTS, dir);
    if (mkdir(path, 0700) != 0)
        exit(99);
}

static void dangling_link(const char *dir)
{
    char path[600];
    remove_file(dir, WEIGHTS);
    (void)snprintf(path, sizeof path, "%s/" WEIGHTS, dir);
    if (symlink("nowhere", path) != 0)
        exit(99);
}

/* ---- tensors ---- */

static void duplicate_tensor(const char *dir)
{
    size_t bytes;
    char *data;
    json_t *header = models_split(dir, WEIGHTS, &data, &bytes), *norm = json_object_get(header, NORM);
    char *one = json_dumps(norm, JSON_COMPACT), *all = json_dumps(header, JSON_COMPACT);
    size_t room = strlen(all) + strlen(one) + 100;
    char *text = malloc(room);
    (void)snprintf(text, room, "{\"" NORM "\":%s,%s", one, all + 1);
    models_join(dir, WEIGHTS, text, -1, data, bytes);
    free(text);
    free(one);
    free(all);
    free(data);
    json_decref(header);
}

static void missing_tensor(const char *dir)
{
    models_rename_tensor(dir, DOWN, "model.layers.1.mlp.up_down_proj.weight");
}

static void missing_constant(const char *dir)
{
    models_rename_tensor(dir, CURVE "alpha_n", CURVE "alpha");
}

static void infinite_constant(const char *dir)
{
    models_patch_tensor(dir, CURVE "beta", 0, "\0\0\x80\x7f", 4);
}

static void missing_head(const char *dir)
{
    models_rename_tensor(dir, "lm_head.weight", "lm_tail.weight");
    models_edit(dir, "config.json", "tie_word_embeddings", "false");
}

static void control_characters(const char *dir)
{
    models_rename_tensor(dir, NORM, "model.\nlockstep: fatal: \x1b[31mnorm");
    models_edit(dir, WEIGHTS, "model.\nlockstep: fatal: \x1b[31mnorm/dtype", "\"\\u0007\\n\"");
}

/* All tensors at [0, 16): the library's own "JSON attack". */
static void ten_at_one_place(const char *dir)
{
    char text[2000] = "{";
    for (int i = 0; i < 10; i++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}",
                       i > 0 ? "," : "", i);
    }
    strcat(text, "}");
    models_join(dir, WEIGHTS, text, -1, "0123456789abcdef", 16);
}

static void hole(const char *dir)
{
    const char *text = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                       "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[8,12]}}";
    models_join(dir, WEIGHTS, text, -1, "0123456789ab", 12);
}

static void half_overlap(const char *dir)
{
    const char *text = "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
                       "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}";
    models_join(dir, WEIGHTS, text, -1, "0123456789ab", 12);
}

static void odd_bits(const char *dir)
{
    const char *text = "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}";
    models_join(dir, WEIGHTS, text, -1, "01", 2);
}

/* ---- shards ---- */

static void shard(const char *dir)
{
    files_shard(dir, dir, 3);
    remove_file(dir, WEIGHTS);
}

static void truncated_shard(const char *dir)
{
    shard(dir);
    cut(dir, SECOND, -10);
}

static void missing_shard(const char *dir)
{
    shard(dir);
    remove_file(dir, SECOND);
}

static void edit_index(const char *dir, const char *path, const char *value)
{
    shard(dir);
    models_edit(dir, INDEX, path, value);
}

static void index_climbs(const char *dir)
{
    edit_index(dir, "weight_map/" NORM, "\"../" WEIGHTS "\"");
}

static void index_lies(const char *dir)
{
    edit_index(dir, "weight_map/model.no_such.weight", "\"" SECOND "\"");
}

static void index_without_map(const char *dir)
{
    edit_index(dir, "weight_map", NULL);
}

static void index_names_number(const char *dir)
{
    edit_index(dir, "weight_map/" NORM, "7");
}

static void index_garbled(const char *dir)
{
    shard(dir);
    files_write(dir, INDEX, "{\"weight_map\":", 14);
}

static void tensor_in_two_files(const char *dir)
{
    shard(dir);
    files_copy(dir, dir, SECOND);
    size_t bytes;
    char *data = files_read(dir, SECOND, &bytes);
    files_write(dir, "model-00004-of-00003.safetensors", data, bytes);
    free(data);
    models_edit(dir, INDEX, "weight_map/model.extra", "\"model-00004-of-00003.safetensors\"");
}

/* ---- other formats ---- */

static void only(const char *dir, const char *name)
{
    remove_file(dir, WEIGHTS);
    files_write(dir, name, "PK", 2);
}

static void only_pickle(const char *dir)
{
    only(dir, "pytorch_model.bin");
}

static void only_gguf(const char *dir)
{
    only(dir, "llama-7b.Q4_K_M.gguf");
    remove_file(dir, "config.json");
    remove_file(dir, "tokenizer.json");
}

static void only_adapter(const char *dir)
{
    only(dir, "adapter_model.safetensors");
    remove_file(dir, "config.json");
}

static void only_tensorflow(const char *dir)
{
    only(dir, "tf_model.h5");
}

static void no_weights(const char *dir)
{
    remove_file(dir, WEIGHTS);
}

static const struct bad_start cases[] = {
    {"an empty weight file", .damage = empty, .status = ERR_INPUT, .words = {WEIGHTS, "0 bytes", "at least 8"}},
    {"7 bytes", .damage = seven_bytes, .status = ERR_INPUT, .words = {WEIGHTS, "7 bytes", "at least 8"}},
    {"a header length above the limit", .damage = huge_length, .status = ERR_INPUT,
     .words = {WEIGHTS, "length is 18446742974197923900", "expected at most 100000000"}},
    {"a header longer than the file", .damage = length_beyond_file, .status = ERR_INPUT,
     .words = {WEIGHTS, "length is 90000000", "the file has only 67168 bytes"}},
    {"a header that is not UTF-8", .damage = not_utf8, .status = ERR_INPUT, .words = {WEIGHTS, "not valid JSON"}},
    {"a header that ends early", .damage = lone_brace, .status = ERR_INPUT, .words = {WEIGHTS, "not valid JSON"}},
    {"text after the header's object", .damage = text_after_object, .status = ERR_INPUT,
     .words = {WEIGHTS, "not one JSON value", "found more text at byte"}},
    {"a header that is an array", .damage = header_is_array, .status = ERR_INPUT,
     .words = {WEIGHTS, "header is an array", "expected an object"}},
    {"a header nested 20000 deep", .damage = deep_header, .status = ERR_INPUT,
     .words = {WEIGHTS, "nested 20000 deep", "at most 64"}},
    {"no tensors", .damage = no_tensor, .status = ERR_INPUT,
     .words = {"model.embed_tokens.weight", "missing", "among the 0"}},
    {"a truncated file", .damage = truncated, .status = ERR_INPUT,
     .words = {WEIGHTS, "ends at byte 67168", "which has 67068", "truncated"}},
    {"trailing bytes", .damage = trailing, .status = ERR_INPUT,
     .words = {WEIGHTS, "has 67169 bytes", "expected 67168", "trailing"}},
    {"a Git LFS pointer", WEIGHTS, NULL, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
     .status = ERR_INPUT, .words = {WEIGHTS, "Git LFS pointer", "git lfs pull"}},
    {"a folder in the file's place", .damage = folder_in_its_place, .status = ERR_INPUT,
     .words = {WEIGHTS, "not a regular file"}},
    {"a dangling link", .damage = dangling_link, .status = ERR_IO, .words = {WEIGHTS, "cannot open", "No such file"}},
    {"an unknown dtype", WEIGHTS, NORM "/dtype", "\"F31\"", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "\"F31\"", "expected"}},
    {"no dtype", WEIGHTS, NORM "/dtype", NULL, .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "\"dtype\" is nothing", "expected a string"}},
    {"a negative dimension", WEIGHTS, NORM "/shape", "[-28]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "negative", "expected a non-negative integer"}},
    {"a fractional dimension", WEIGHTS, NORM "/shape", "[28.5]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "a real number", "expected a non-negative integer"}},
    {"too many dimensions", WEIGHTS, NORM "/shape", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,28]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "18 dimensions", "at most"}},
    {"no shape", WEIGHTS, NORM "/shape", NULL, .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "\"shape\" is nothing", "expected an array"}},
    {"a shape whose product overflows", WEIGHTS, NORM "/shape", "[2,9223372036854775807]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "overflows", "expected < 2^64"}},
    {"a dimension beyond 2^63", WEIGHTS, NORM "/shape", "[1e30]", .status = ERR_INPUT, .words = {WEIGHTS, NORM}},
    {"one offset", WEIGHTS, NORM "/data_offsets", "[0]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "an array of 1", "expected an array of 2"}},
    {"offsets in reverse", WEIGHTS, NORM "/data_offsets", "[112,0]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "data_offsets", "0 <= begin <= end"}},
    {"a negative offset", WEIGHTS, NORM "/data_offsets", "[-112,0]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "data_offsets", "0 <= begin <= end"}},
    {"offsets out of bounds", WEIGHTS, NORM "/data_offsets", "[9000000,9000112]", .status = ERR_INPUT,
     .words = {WEIGHTS, "data_offsets", "expected"}},
    {"offsets that do not match the shape", WEIGHTS, NORM "/data_offsets", "[0,100]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "span 100 bytes", "need 112"}},
    {"metadata with numbers", WEIGHTS, "__metadata__", "{\"format\":1}", .status = ERR_INPUT,
     .words = {WEIGHTS, "__metadata__", "an integer", "expected a string"}},
    {"a tensor that is a number", WEIGHTS, NORM, "7", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "an integer", "expected an object"}},
    {"ten tensors at the same offset", .damage = ten_at_one_place, .status = ERR_INPUT,
     .words = {WEIGHTS, "begin at 0", "expected 16", "overlap"}},
    {"overlapping tensors", .damage = half_overlap, .status = ERR_INPUT,
     .words = {WEIGHTS, "\"b\"", "begin at 4", "expected 8", "overlap"}},
    {"a hole between tensors", .damage = hole, .status = ERR_INPUT,
     .words = {WEIGHTS, "\"b\"", "begin at 8", "expected 4", "hole"}},
    {"a tensor with a fraction of a byte", .damage = odd_bits, .status = ERR_INPUT,
     .words = {WEIGHTS, "\"a\"", "12 bits", "expected whole bytes"}},
    {"a repeated name", .damage = duplicate_tensor, .status = ERR_INPUT, .words = {WEIGHTS, "duplicate", NORM}},
    {"control characters in names", .damage = control_characters, .status = ERR_INPUT, .words = {WEIGHTS, "norm"}},
    {"a missing tensor", .damage = missing_tensor, .status = ERR_INPUT, .words = {DOWN, "missing", "needs it"}},
    {"a missing constant of an activation", .fixture = "apertus-6-2", .damage = missing_constant, .status = ERR_INPUT,
     .words = {CURVE "alpha_n", "is missing", "xielu"}},
    {"a constant of an activation that is infinite", .fixture = "apertus-6-2", .damage = infinite_constant,
     .status = ERR_INPUT, .words = {CURVE "beta", "is inf", "finite"}},
    {"a constant of an activation of another type", WEIGHTS, CURVE "eps/dtype", "\"I32\"", .fixture = "apertus-6-2",
     .status = ERR_UNSUPPORTED, .words = {CURVE "eps", "is I32", "F32, F16 or BF16"}},
    {"a missing head", .damage = missing_head, .status = ERR_INPUT,
     .words = {"lm_head.weight", "missing", "tie_word_embeddings"}},
    {"a wrong shape", WEIGHTS, DOWN "/shape", "[41,28]", .status = ERR_INPUT,
     .words = {WEIGHTS, DOWN, "[41, 28]", "expected [28, 41]"}},
    {"a wrong number of dimensions", WEIGHTS, NORM "/shape", "[1,28]", .status = ERR_INPUT,
     .words = {WEIGHTS, NORM, "[1, 28]", "expected [28]"}},
    {"a weight of integers", WEIGHTS, DOWN "/dtype", "\"I32\"", .status = ERR_UNSUPPORTED,
     .words = {WEIGHTS, DOWN, "I32", "expected F32, F16 or BF16"}},
    {"a truncated shard", .damage = truncated_shard, .status = ERR_INPUT,
     .words = {SECOND, "ends at byte", "truncated"}},
    {"a missing shard", .damage = missing_shard, .status = ERR_IO, .words = {SECOND, "cannot open", "No such file"}},
    {"an index that leaves the folder", .damage = index_climbs, .status = ERR_INPUT,
     .words = {INDEX, NORM, "../" WEIGHTS, "expected the plain name"}},
    {"an index that names a missing tensor", .damage = index_lies, .status = ERR_INPUT,
     .words = {INDEX, "model.no_such.weight", SECOND}},
    {"an index without a map", .damage = index_without_map, .status = ERR_INPUT,
     .words = {INDEX, "weight_map", "nothing", "expected an object"}},
    {"an index that maps to a number", .damage = index_names_number, .status = ERR_INPUT,
     .words = {INDEX, NORM, "an integer", "expected the plain name"}},
    {"an index that ends early", .damage = index_garbled, .status = ERR_INPUT, .words = {INDEX, "not valid JSON"}},
    {"a tensor in two shards", .damage = tensor_in_two_files, .status = ERR_INPUT,
     .words = {INDEX, "is in \"model-00004-of-00003.safetensors\"", "expected only in \"" SECOND "\""}},
    {"pickled weights only", .damage = only_pickle, .status = ERR_UNSUPPORTED,
     .words = {"pytorch_model.bin", "pickled", "expected model.safetensors", "safe_serialization"}},
    {"GGUF only", .damage = only_gguf, .status = ERR_UNSUPPORTED,
     .words = {"llama-7b.Q4_K_M.gguf", "GGUF", "expected model.safetensors", "use the"}},
    {"an adapter only", .damage = only_adapter, .status = ERR_UNSUPPORTED,
     .words = {"adapter_model.safetensors", "adapter", "merge"}},
    {"TensorFlow weights only", .damage = only_tensorflow, .status = ERR_UNSUPPORTED,
     .words = {"tf_model.h5", "use the"}},
    {"no weights", .damage = no_weights, .status = ERR_IO,
     .words = {"neither " WEIGHTS, INDEX, "expected one of them"}},
};

int main(void)
{
    bad_start_run(cases, (int)(sizeof cases / sizeof cases[0]));
    return cases_done();
}
