/* tests/unit/test_safetensors.c - headers, indices and folders, valid and hostile: each check of section 6 of
 * models.md. */
#include "tests/unit/checkpoint_folder.h"

#include "partition/checkpoint.h"

/* Parses from memory a file with `text` as its header and `data` bytes after it. */
static int parse(struct checkpoint *c, const char *text, size_t n, uint64_t data, struct err *e)
{
    unsigned char *head = calloc(1, n + 9);
    assert_non_null(head);
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)((uint64_t)n >> (8 * i));
    memcpy(head + 8, text, n);
    int rc = checkpoint_parse_header(c, 0, "x.safetensors", head, n + 8, n + 8 + data, e);
    free(head);
    return rc;
}

static void refuse(const char *text, size_t n, uint64_t data, const char *needles)
{
    struct checkpoint c = {0};
    struct err e = {0};
    assert_int_equal(parse(&c, text, n, data, &e), -1);
    expect_error(&e, ERR_INPUT, "x.safetensors");
    expect_error(&e, ERR_INPUT, needles);
    checkpoint_close(&c);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void bad_headers(void **state)
{
    static const struct {
        const char *text;
        uint64_t data;
        const char *needles;
    } table[] = {
        {"\xff", 0, "JSON"},
        {"{", 0, "JSON"},
        {"{}x", 0, "JSON"},
        {"[]", 0, "header|an array|an object"},
        {"{\"w\":3}", 0, "\"w\"|an integer|an object"},
        {"{\"__metadata__\":{\"format\":3}}", 0, "__metadata__|format|an integer|a string"},
        {"{\"__metadata__\":[]}", 0, "__metadata__|an array|an object"},
        {"{\"w\":" T("F31", "[1]", "[0,4]") "}", 4, "\"w\"|dtype|F31|expected"},
        {"{\"w\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"w\"|dtype|an integer|a string"},
        {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"w\"|dtype|nothing|a string"},
        {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "\"w\"|shape|nothing|an array"},
        {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "\"w\"|data_offsets|nothing|2 integers"},
        {"{\"w\":" T("F32", "[-1]", "[0,4]") "}", 4, "\"w\"|shape|negative|non-negative"},
        {"{\"w\":" T("F32", "[1.5]", "[0,4]") "}", 4, "\"w\"|shape|real|non-negative"},
        {"{\"w\":" T("F32", "[\"1\"]", "[0,4]") "}", 4, "\"w\"|shape|a string|non-negative"},
        {"{\"w\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "\"w\"|9 dimensions|at most 8"},
        {"{\"w\":" T("F32", "[1]", "[0]") "}", 4, "\"w\"|data_offsets|of 1|2 integers"},
        {"{\"w\":" T("F32", "[1]", "[0,4,8]") "}", 4, "\"w\"|data_offsets|of 3|2 integers"},
        {"{\"w\":" T("F32", "[1]", "[-4,0]") "}", 4, "\"w\"|data_offsets|begin"},
        {"{\"w\":" T("F32", "[1]", "[8,4]") "}", 8, "\"w\"|data_offsets|begin <= end"},
        {"{\"w\":" T("F32", "[1]", "[0.5,4]") "}", 4, "\"w\"|data_offsets|integers"},
        {"{\"w\":" T("F32", "[2]", "[0,4]") "}", 4, "\"w\"|data_offsets|4 bytes|need 8"},
        {"{\"w\":" T("U8", "[2,18446744073709551614]", "[0,16]") "}", 16, "JSON|too big"},
        {"{\"w\":" T("I32", "[2,9223372036854775807]", "[0,16]") "}", 16, "\"w\"|shape|overflows"},
        {"{\"w\":" T("U8", "[4611686018427387904,4611686018427387904]", "[0,16]") "}", 16, "\"w\"|overflows"},
        {"{\"w\":" T("F6_E2M3", "[3]", "[0,2]") "}", 2, "\"w\"|18 bits|whole bytes"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"b\":" T("F32", "[1]", "[8,12]") "}", 12, "\"b\"|8|expected 4|a hole"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[4,12]") "}", 12, "\"b\"|4|expected 8|overlap"},
        {"{\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("F32", "[2]", "[0,8]") "}", 8, "expected 8|overlap"},
        {"{\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "\"a\"|begin at 4|expected 0"},
        {"{\"w\":" T("F32", "[4]", "[0,16]") "}", 15, "\"w\"|truncated"},
        {"{\"w\":" T("F32", "[4]", "[0,16]") "}", 17, "trailing"},
        {"{}", 1, "trailing"},
        {"{\"a\":" T("F32", "[1]", "[0,4]") ",\"a\":" T("F32", "[1]", "[4,8]") "}", 8, "duplicate|\"a\""},
        {"{\"a\\u0000b\":" T("F32", "[1]", "[0,4]") "}", 4, "NUL"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        refuse(table[i].text, strlen(table[i].text), table[i].data, table[i].needles);
}

static void deep_nesting(void **state)
{
    char text[400];
    (void)state;
    memset(text, '[', sizeof text);
    refuse(text, sizeof text, 0, "nested|64");
}

static void bad_lengths(void **state)
{
    static const struct {
        unsigned char head[16];
        size_t head_bytes;
        uint64_t file_bytes;
        const char *needles;
    } table[] = {
        {"abc", 3, 3, "3 bytes|8"},
        {"\x3c\0\0\0\0\xff\xff\xff", 8, 100, "at most 100000000"},
        {"\x3c\0\0\0\0\0\0\0", 8, 20, "length is 60|20 bytes"},
        {"\x02\0\0\0\0\0\0\0{}", 9, 10, "length is 2|expected 1"},
        {"version https:/", 16, 130, "Git LFS|git lfs pull"},
        {"\x01\xe1\xf5\x05\0\0\0\0", 8, (uint64_t)1 << 40, "100000001|at most 100000000"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct checkpoint c = {0};
        struct err e = {0};
        assert_int_equal(checkpoint_parse_header(&c, 0, "x.safetensors", table[i].head, table[i].head_bytes,
                                                 table[i].file_bytes, &e),
                         -1);
        expect_error(&e, ERR_INPUT, "x.safetensors");
        expect_error(&e, ERR_INPUT, table[i].needles);
        checkpoint_close(&c);
    }
}

static void good_headers(void **state)
{
    struct checkpoint c = {0};
    struct err e = {0};
    const char *empty = "  {}\n ";
    const char *text = "{\"b\":" T("BF16", "[2,3]", "[8,20]") ",\"scalar\":" T("F64", "[]", "[0,8]") ",\"none\":" T(
        "F32", "[0,7]", "[20,20]") ",\"\\ud83d\\ude00\":" T("F4", "[4]", "[20,22]") ",\"__metadata__\":null}";
    (void)state;
    assert_int_equal(parse(&c, empty, strlen(empty), 0, &e), 0);
    assert_int_equal(c.n_tensors, 0);
    assert_int_equal(parse(&c, text, strlen(text), 22, &e), 0);
    assert_int_equal(c.n_tensors, 4);
    assert_string_equal(checkpoint_tensor_name(&c, 0), "scalar");
    assert_int_equal(c.tensor[0].n_dims, 0);
    assert_int_equal(c.tensor[0].offset, 8 + strlen(text));
    assert_int_equal(c.tensor[0].bytes, 8);
    assert_string_equal(checkpoint_tensor_name(&c, 1), "b");
    assert_string_equal(c.text + c.tensor[1].dtype, "BF16");
    assert_int_equal(c.tensor[1].shape[1], 3);
    assert_int_equal(c.tensor[1].bytes, 12);
    assert_string_equal(checkpoint_tensor_name(&c, 2), "none");
    assert_int_equal(c.tensor[2].bytes, 0);
    assert_string_equal(checkpoint_tensor_name(&c, 3), "\xf0\x9f\x98\x80");
    checkpoint_close(&c);
    checkpoint_close(&c);
}

/* More tensors than the table's first capacity, found by name afterwards. */
static void many_tensors(void **state)
{
    enum { N = 3000 };
    static struct tensor_spec spec[N];
    struct folder f;
    struct checkpoint c;
    struct err e = {0};
    uint64_t random = 7;
    (void)state;
    for (int i = 0; i < N; i++) {
        (void)snprintf(spec[i].name, sizeof spec[i].name, "layers.%d.a_rather_long_name.weight", i * 7919 % N);
        spec[i].dtype = "F16";
        spec[i].element = 2;
        spec[i].cols = 1 + i % 5;
        spec_fill(&spec[i], &random);
    }
    folder_make(&f);
    folder_write_tensors(&f, "model.safetensors", spec, N, 0);
    assert_int_equal(checkpoint_open(&c, f.path, &e), 0);
    assert_int_equal(c.n_tensors, N);
    for (int i = 0; i < N; i++) {
        int at = checkpoint_find(&c, spec[i].name);
        assert_true(at >= 0);
        assert_int_equal(c.tensor[at].shape[0], spec[i].cols);
    }
    assert_int_equal(checkpoint_find(&c, "layers.3000.a_rather_long_name.weight"), -1);
    assert_int_equal(checkpoint_find(&c, ""), -1);
    checkpoint_close(&c);
    folder_remove(&f);
    specs_free(spec, N);
}

/* Writes two shards with a, b | c, b2. */
static void write_shards(const struct folder *f, const char *b2)
{
    struct tensor_spec spec[4] = {{.name = "a", .dtype = "F32", .cols = 3, .element = 4},
                                  {.name = "b", .dtype = "F32", .cols = 2, .element = 4},
                                  {.name = "c", .dtype = "F32", .cols = 4, .element = 4},
                                  {.name = "", .dtype = "F32", .cols = 1, .element = 4}};
    uint64_t random = 1;
    (void)snprintf(spec[3].name, sizeof spec[3].name, "%s", b2);
    for (int i = 0; i < 4; i++)
        spec_fill(&spec[i], &random);
    folder_write_tensors(f, "one.safetensors", spec, 2, 0);
    folder_write_tensors(f, "two.safetensors", spec + 2, 2, 0);
    specs_free(spec, 4);
}

#define INDEX "model.safetensors.index.json"

static void sharded(void **state)
{
    struct folder f;
    struct checkpoint c;
    struct err e = {0};
    (void)state;
    folder_make(&f);
    write_shards(&f, "unmapped");
    folder_write_text(
        &f, INDEX,
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"c\":\"two.safetensors\",\"a\":\"one.safetensors\","
        "\"b\":\"one.safetensors\"}}");
    assert_int_equal(checkpoint_open(&c, f.path, &e), 0);
    assert_int_equal(c.n_tensors, 3);
    assert_int_equal(c.n_files, 2);
    assert_string_equal(checkpoint_file_name(&c, c.tensor[checkpoint_find(&c, "a")].file), "one.safetensors");
    assert_string_equal(checkpoint_file_name(&c, c.tensor[checkpoint_find(&c, "c")].file), "two.safetensors");
    assert_int_equal(checkpoint_find(&c, "unmapped"), -1);
    checkpoint_close(&c);
    folder_remove(&f);
}

static void bad_indices(void **state)
{
    static const struct {
        const char *map; /* of a, b, c */
        enum err_code code;
        const char *needles;
        const char *b2;
    } table[] = {
        {"{\"a\":\"one.safetensors\",\"x\":\"two.safetensors\"}", ERR_INPUT, INDEX "|\"x\"|two.safetensors", "d"},
        {"{\"a\":\"one.safetensors\",\"c\":\"one.safetensors\",\"d\":\"two.safetensors\"}", ERR_INPUT,
         INDEX "|\"c\"|two.safetensors|one.safetensors", "d"},
        {"{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\",\"c\":\"two.safetensors\"}", ERR_INPUT,
         INDEX "|\"b\"|two.safetensors|only in", "b"},
        {"{\"a\":\"three.safetensors\"}", ERR_IO, "three.safetensors|No such file", "d"},
        {"{\"a\":\"../one.safetensors\"}", ERR_INPUT, INDEX "|\"a\"|../one|plain name", "d"},
        {"{\"a\":\"/etc/passwd\"}", ERR_INPUT, INDEX "|\"a\"|/etc/passwd|plain name", "d"},
        {"{\"a\":\"x\\\\y\"}", ERR_INPUT, INDEX "|\"a\"|plain name", "d"},
        {"{\"a\":\"one.safetensors\\u0000\"}", ERR_INPUT, INDEX "|\"a\"|plain name", "d"},
        {"{\"a\":\"\"}", ERR_INPUT, INDEX "|\"a\"|plain name", "d"},
        {"{\"a\":\"..\"}", ERR_INPUT, INDEX "|\"a\"|plain name", "d"},
        {"{\"a\":\".\"}", ERR_INPUT, INDEX "|\"a\"|plain name", "d"},
        {"{\"a\":3}", ERR_INPUT, INDEX "|\"a\"|an integer|plain name", "d"},
        {"{\"a\":\"folder\"}", ERR_INPUT, "folder|not a regular file", "d"},
        {"{\"a\":\"short\"}", ERR_INPUT, "short|at least 8", "d"},
        {"{}", ERR_INPUT, INDEX "|weight_map|of 0|an object", "d"},
        {"[]", ERR_INPUT, INDEX "|weight_map|an array|an object", "d"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct folder f;
        struct checkpoint c;
        struct err e = {0};
        char text[400], folder[100];
        folder_make(&f);
        write_shards(&f, table[i].b2);
        folder_write_text(&f, "short", "abc");
        (void)snprintf(folder, sizeof folder, "%s/folder", f.path);
        assert_int_equal(mkdir(folder, 0700), 0);
        (void)snprintf(text, sizeof text, "{\"weight_map\":%s}", table[i].map);
        folder_write_text(&f, INDEX, text);
        assert_int_equal(checkpoint_open(&c, f.path, &e), -1);
        expect_error(&e, table[i].code, table[i].needles);
        assert_null(c.tensor);
        folder_remove(&f);
    }
}

/* A truncated shard among valid ones is named. */
static void truncated_shard(void **state)
{
    struct folder f;
    struct checkpoint c;
    struct err e = {0};
    char path[100];
    struct stat info;
    (void)state;
    folder_make(&f);
    write_shards(&f, "d");
    folder_write_text(
        &f, INDEX, "{\"weight_map\":{\"c\":\"two.safetensors\",\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}");
    (void)snprintf(path, sizeof path, "%s/two.safetensors", f.path);
    assert_int_equal(stat(path, &info), 0);
    for (off_t bytes = 0; bytes < info.st_size; bytes += info.st_size / 5) {
        memset(&e, 0, sizeof e);
        assert_int_equal(truncate(path, info.st_size - 1 - bytes), 0);
        assert_int_equal(checkpoint_open(&c, f.path, &e), -1);
        expect_error(&e, ERR_INPUT, "two.safetensors");
    }
    folder_remove(&f);
}

static void other_formats(void **state)
{
    static const struct {
        const char *file;
        enum err_code code;
        const char *needles;
    } table[] = {
        {"pytorch_model.bin", ERR_UNSUPPORTED, "pytorch_model.bin|pickle|save_pretrained|safe_serialization=True"},
        {"pytorch_model-00001-of-00002.bin", ERR_UNSUPPORTED, "pickle|safe_serialization=True"},
        {"consolidated.00.pth", ERR_UNSUPPORTED, "consolidated.00.pth|pickle"},
        {"model-Q4_K_M.gguf", ERR_UNSUPPORTED, "model-Q4_K_M.gguf|GGUF|unquantised"},
        {"adapter_model.safetensors", ERR_UNSUPPORTED, "adapter|merge_and_unload"},
        {"tf_model.h5", ERR_UNSUPPORTED, "TensorFlow"},
        {"README.md", ERR_IO, "neither model.safetensors nor model.safetensors.index.json"},
        {"training_args.bin", ERR_IO, "neither"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct folder f;
        struct checkpoint c;
        struct err e = {0};
        folder_make(&f);
        folder_write_text(&f, table[i].file, "x");
        assert_int_equal(checkpoint_open(&c, f.path, &e), -1);
        expect_error(&e, table[i].code, table[i].needles);
        expect_error(&e, table[i].code, f.path);
        folder_remove(&f);
    }
    struct checkpoint c;
    struct err e = {0};
    assert_int_equal(checkpoint_open(&c, "/nonexistent/model", &e), -1);
    expect_error(&e, ERR_IO, "/nonexistent/model|No such file");
}

/* A FIFO does not block, a dangling link (an unfinished download) is named. */
static void odd_files(void **state)
{
    struct folder f;
    struct checkpoint c;
    struct err e = {0};
    char path[100];
    (void)state;
    folder_make(&f);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", f.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(checkpoint_open(&c, f.path, &e), -1);
    expect_error(&e, ERR_INPUT, "model.safetensors|not a regular file");
    assert_int_equal(remove(path), 0);
    assert_int_equal(symlink("gone", path), 0);
    memset(&e, 0, sizeof e);
    assert_int_equal(checkpoint_open(&c, f.path, &e), -1);
    expect_error(&e, ERR_IO, "model.safetensors|cannot open");
    folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_headers),  cmocka_unit_test(deep_nesting),    cmocka_unit_test(bad_lengths),
        cmocka_unit_test(good_headers), cmocka_unit_test(many_tensors),    cmocka_unit_test(sharded),
        cmocka_unit_test(bad_indices),  cmocka_unit_test(truncated_shard), cmocka_unit_test(other_formats),
        cmocka_unit_test(odd_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
