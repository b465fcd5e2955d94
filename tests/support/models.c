/* tests/support/models.c - see models.h. */
#include "tests/support/models.h"
#include "tests/support/files.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIXTURES "tests/parity/fixtures"

static _Noreturn void die(const char *what, const char *name)
{
    fprintf(stderr, "# %s: %s\n", what, name);
    exit(99);
}

static char demo[PATH_MAX];

const char *models_demo(void)
{
    const char *given = getenv("LOCKSTEP_DEMO");
    if (demo[0] == '\0' && realpath(given != NULL ? given : "demo/lockstep-stories", demo) == NULL)
        die("no demo model", given != NULL ? given : "demo/lockstep-stories");
    return demo;
}

static char endless[256];

static void remove_endless(void)
{
    files_remove_dir(endless);
}

const char *models_endless(void)
{
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    if (endless[0] != '\0')
        return endless;
    files_make_dir(endless);
    (void)atexit(remove_endless);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        files_copy(models_demo(), endless, names[i]);
    models_edit(endless, "config.json", "max_position_embeddings", "1000000");
    return endless;
}

const char *models_shallow(void)
{
    const char *dir = models_endless();
    models_edit(dir, "config.json", "num_hidden_layers", "1");
    models_edit(dir, "config.json", "max_position_embeddings", "1024");
    return dir;
}

/* Returns the character that stands for a byte in byte-level vocabularies, as in GPT-2. */
static int byte_character(int byte)
{
    int shifted = 256;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte)
            return itself ? b : shifted;
        shifted += !itself;
    }
    return 0;
}

void models_write_tokenizer(const char *dir, int n_ids, const int fixed[][2], int n_fixed)
{
    int byte[256];
    for (int i = 0; i < 256; i++)
        byte[i] = i < 95 ? ' ' + i : i < 224 ? 127 + i - 95 : i - 224;
    for (int k = 0; k < n_fixed; k++)
        for (int i = 0; i < 256; i++)
            if (byte[i] == fixed[k][1]) {
                byte[i] = byte[fixed[k][0]];
                byte[fixed[k][0]] = fixed[k][1];
                break;
            }
    json_t *vocab = json_object();
    for (int i = 0; i < n_ids && i < 256; i++) {
        int c = byte_character(byte[i]);
        char name[3] = {(char)c, '\0', '\0'};
        if (c >= 0x80) {
            name[0] = (char)(0xc0 | c >> 6);
            name[1] = (char)(0x80 | (c & 0x3f));
        }
        json_object_set_new(vocab, name, json_integer(i));
    }
    const char *level = "{s:s, s:b, s:b, s:b}";
    json_t *pre = json_pack(level, "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0);
    json_t *root =
        json_pack("{s:s, s:n, s:n, s:[], s:n, s:O, s:n, s:o, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:o, s:[]}}", "version",
                  "1.0", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", pre, "post_processor",
                  "decoder", pre, "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix",
                  "end_of_word_suffix", "fuse_unk", 0, "vocab", vocab, "merges");
    char *text = json_dumps(root, JSON_INDENT(1));
    if (text == NULL)
        die("tokenizer", dir);
    files_write(dir, "tokenizer.json", text, strlen(text));
    free(text);
    json_decref(root);
}

static int vocab_of(const char *dir)
{
    size_t bytes;
    char *text = files_read(dir, "config.json", &bytes);
    json_t *config = json_loads(text, 0, NULL);
    int vocab = (int)json_integer_value(json_object_get(config, "vocab_size"));
    json_decref(config);
    free(text);
    return vocab;
}

void models_fixture(char *dir, const char *name)
{
    char from[PATH_MAX];
    (void)snprintf(from, sizeof from, FIXTURES "/%s", name);
    files_make_dir(dir);
    files_copy(from, dir, "config.json");
    files_copy(from, dir, "model.safetensors");
    models_write_tokenizer(dir, vocab_of(dir), NULL, 0);
}

static int32_t *copy_ids(const char *file, size_t bytes, const char *tensor, int *n)
{
    long shape[2] = {0, 0};
    const void *at = files_tensor(file, bytes, tensor, shape);
    if (at == NULL)
        die("expected.safetensors", tensor);
    *n = (int)shape[0];
    int32_t *ids = malloc((size_t)shape[0] * sizeof *ids);
    if (ids == NULL)
        die("malloc", tensor);
    memcpy(ids, at, (size_t)shape[0] * sizeof *ids);
    return ids;
}

void models_expected(const char *name, int32_t **prompt, int *n, int32_t **tokens)
{
    char dir[PATH_MAX];
    size_t bytes;
    int n_tokens = 0;
    (void)snprintf(dir, sizeof dir, FIXTURES "/%s", name);
    char *file = files_read(dir, "expected.safetensors", &bytes);
    *prompt = copy_ids(file, bytes, "prompt", n);
    *tokens = copy_ids(file, bytes, "tokens", &n_tokens);
    free(file);
    if (n_tokens != 32)
        die("expected.safetensors", name);
}

static void add_tensor(json_t *header, size_t *at, const char *name, int rows, int cols)
{
    size_t bytes = 2 * (size_t)rows * (size_t)cols;
    json_t *shape = cols == 1 ? json_pack("[i]", rows) : json_pack("[i, i]", rows, cols);
    json_object_set_new(header, name,
                        json_pack("{s:s, s:o, s:[I, I]}", "dtype", "BF16", "shape", shape, "data_offsets",
                                  (json_int_t)*at, (json_int_t)(*at + bytes)));
    *at += bytes;
}

void models_write_big(char *dir)
{
    enum { HIDDEN = 1024, FFN = 2816, HEADS = 8, KV = 2, VOCAB = 512, LAYERS = 2 };
    char name[100];
    json_t *header = json_object();
    size_t bytes = 0;
    files_make_dir(dir);
    add_tensor(header, &bytes, "model.embed_tokens.weight", VOCAB, HIDDEN);
    for (int layer = 0; layer < LAYERS; layer++) {
        static const struct {
            const char *name;
            int rows, cols;
        } parts[] = {{"input_layernorm", HIDDEN, 1},
                     {"self_attn.q_proj", HIDDEN, HIDDEN},
                     {"self_attn.k_proj", HIDDEN / HEADS * KV, HIDDEN},
                     {"self_attn.v_proj", HIDDEN / HEADS * KV, HIDDEN},
                     {"self_attn.o_proj", HIDDEN, HIDDEN},
                     {"post_attention_layernorm", HIDDEN, 1},
                     {"mlp.gate_proj", FFN, HIDDEN},
                     {"mlp.up_proj", FFN, HIDDEN},
                     {"mlp.down_proj", HIDDEN, FFN}};
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            (void)snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, parts[i].name);
            add_tensor(header, &bytes, name, parts[i].rows, parts[i].cols);
        }
    }
    add_tensor(header, &bytes, "model.norm.weight", HIDDEN, 1);
    add_tensor(header, &bytes, "lm_head.weight", VOCAB, HIDDEN);
    uint16_t *data = malloc(bytes);
    if (data == NULL)
        die("malloc", dir);
    uint32_t x = 1;
    for (size_t i = 0; i < bytes / 2; i++) { /* +-0.01 .. 0.03: finite, and no two rows alike */
        x = x * 1664525u + 1013904223u;
        data[i] = (uint16_t)((x >> 31) << 15 | 0x3c00u | (x >> 23 & 0xff));
    }
    char *text = json_dumps(header, JSON_COMPACT);
    models_join(dir, "model.safetensors", text, -1, (const char *)data, bytes);
    free(text);
    free(data);
    json_decref(header);
    json_t *config = json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:b}", "model_type", "llama",
                               "hidden_size", HIDDEN, "intermediate_size", FFN, "num_attention_heads", HEADS,
                               "num_key_value_heads", KV, "num_hidden_layers", LAYERS, "vocab_size", VOCAB,
                               "max_position_embeddings", 2048, "torch_dtype", "bfloat16", "tie_word_embeddings", 0);
    text = json_dumps(config, 0);
    files_write(dir, "config.json", text, strlen(text));
    free(text);
    json_decref(config);
    models_write_tokenizer(dir, 256, NULL, 0);
}

size_t models_weight_bytes(const char *dir)
{
    char path[PATH_MAX];
    struct stat info;
    (void)snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (stat(path, &info) != 0)
        die("stat", path);
    return (size_t)info.st_size;
}

static void set_member(json_t *root, const char *path, const char *value)
{
    char part[200];
    json_t *at = root;
    for (;;) {
        size_t n = strcspn(path, "/");
        (void)snprintf(part, sizeof part, "%.*s", (int)n, path);
        if (path[n] == '\0')
            break;
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
        path += n + 1;
    }
    json_t *new = value != NULL ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
    if (value != NULL && new == NULL)
        die("not JSON", value);
    int rc = json_is_array(at) ? json_array_set_new(at, (size_t)atoi(part), new)
             : new == NULL     ? json_object_del(at, part)
                               : json_object_set_new(at, part, new);
    if (rc != 0)
        die("no such member", part);
}

void models_edit(const char *dir, const char *file, const char *path, const char *value)
{
    size_t bytes = 0;
    char *data = NULL, *text = NULL;
    bool weights = strstr(file, ".safetensors") != NULL && strstr(file, ".json") == NULL;
    json_t *root;
    if (weights) {
        root = models_split(dir, file, &data, &bytes);
    } else {
        text = files_read(dir, file, &bytes);
        root = json_loads(text, 0, NULL);
    }
    if (root == NULL)
        die("models_edit", file);
    set_member(root, path, value);
    char *edited = json_dumps(root, JSON_COMPACT);
    if (weights)
        models_join(dir, file, edited, -1, data, bytes);
    else
        files_write(dir, file, edited, strlen(edited));
    free(edited);
    free(text);
    free(data);
    json_decref(root);
}

json_t *models_split(const char *dir, const char *file, char **data, size_t *bytes)
{
    size_t all;
    char *whole = files_read(dir, file, &all);
    uint64_t n;
    memcpy(&n, whole, 8);
    json_t *header = json_loadb(whole + 8, (size_t)n, 0, NULL);
    *bytes = all - 8 - (size_t)n;
    *data = malloc(*bytes + 1);
    if (header == NULL || *data == NULL)
        die("models_split", file);
    memcpy(*data, whole + 8 + n, *bytes);
    free(whole);
    return header;
}

void models_join(const char *dir, const char *file, const char *header, int64_t header_length, const char *data,
                 size_t bytes)
{
    uint64_t text = strlen(header), n = header_length < 0 ? text : (uint64_t)header_length;
    char *whole = malloc(8 + (size_t)text + bytes + 1);
    if (whole == NULL)
        die("malloc", file);
    memcpy(whole, &n, 8);
    memcpy(whole + 8, header, (size_t)text);
    memcpy(whole + 8 + text, data, bytes);
    files_write(dir, file, whole, 8 + (size_t)text + bytes);
    free(whole);
}

/* Writes the split file again, and frees its parts. */
static void join_and_free(const char *dir, json_t *header, char *data, size_t bytes)
{
    char *text = json_dumps(header, JSON_COMPACT);
    models_join(dir, "model.safetensors", text, -1, data, bytes);
    free(text);
    free(data);
    json_decref(header);
}

void models_patch_tensor(const char *dir, const char *tensor, size_t at, const void *to, size_t n)
{
    size_t bytes;
    char *data;
    json_t *header = models_split(dir, "model.safetensors", &data, &bytes);
    const json_t *offsets = json_object_get(json_object_get(header, tensor), "data_offsets");
    memcpy(data + json_integer_value(json_array_get(offsets, 0)) + at, to, n);
    join_and_free(dir, header, data, bytes);
}

void models_rename_tensor(const char *dir, const char *from, const char *to)
{
    size_t bytes;
    char *data;
    json_t *header = models_split(dir, "model.safetensors", &data, &bytes);
    (void)json_object_set(header, to, json_object_get(header, from));
    (void)json_object_del(header, from);
    join_and_free(dir, header, data, bytes);
}

void models_write_wide(const char *dir)
{
    char *data = NULL;
    size_t bytes = 0;
    const char *key;
    json_t *tensor, *header = models_split(models_demo(), "model.safetensors", &data, &bytes);
    json_object_foreach(header, key, tensor)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        const char *type = json_string_value(json_object_get(tensor, "dtype"));
        json_t *at = json_object_get(tensor, "data_offsets");
        if (type == NULL || strcmp(type, "BF16") != 0)
            die("not bfloat16", key);
        json_object_set_new(tensor, "dtype", json_string("F32"));
        for (size_t i = 0; i < 2; i++)
            json_array_set_new(at, i, json_integer(2 * json_integer_value(json_array_get(at, i))));
    }
    char *wide = calloc(bytes, 2), *text = json_dumps(header, JSON_COMPACT);
    for (size_t i = 0; i + 1 < bytes; i += 2)
        memcpy(wide + 2 * i + 2, data + i, 2);
    models_join(dir, "model.safetensors", text, -1, wide, 2 * bytes);
    static const char *const rest[] = {"config.json", "generation_config.json", "tokenizer.json",
                                       "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        files_copy(models_demo(), dir, rest[i]);
    models_edit(dir, "config.json", "torch_dtype", "\"float32\"");
    free(wide);
    free(text);
    free(data);
    json_decref(header);
}

int models_for_device(char *dir, int argc, char **argv, int most)
{
    if (argc < 2)
        return most;
    files_make_dir(dir);
    models_write_wide(dir);
    (void)snprintf(demo, sizeof demo, "%s", dir);
    (void)setenv("LOCKSTEP_DEVICE", argv[1], 1);
    return argc > 2 ? atoi(argv[2]) : most;
}
