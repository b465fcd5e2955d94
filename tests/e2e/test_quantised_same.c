/* tests/e2e/test_quantised_same.c - checkpoints that say the same in two ways have results with the same bits: zeros of
 * both versions of GPTQ, the zero of a symmetric matrix written out, an order of inputs that changes nothing, and
 * matrices that are one tensor or several. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS     "model.safetensors"
#define MOST_RANKS  3
#define QUANTISED   "quantization_config/"
#define MOST_TENSOR 200 /* bytes of a name */

/* Returns the tokens of a prompt and of its answer with their scores; the caller frees the text. */
static char *generate(const char *dir, int ranks)
{
    return case_output(ranks, (const char *const[]){"generate", "--model", dir, "--prompt-ids", "5,9,17,33,2,60,41",
                                                    "--json", "--max-tokens", "12", "--ignore-eos", "--temperature",
                                                    "0", "--logprobs", "4", "--prompt-logprobs", "4", NULL});
}

/* A folder with a checkpoint's tensors taken apart. */
struct edit {
    const char *dir;
    json_t *header;
    char *data;
    size_t bytes;
};

static struct edit edit_begin(const char *dir)
{
    struct edit e = {.dir = dir};
    e.header = models_split(dir, WEIGHTS, &e.data, &e.bytes);
    return e;
}

static void edit_end(struct edit *e)
{
    char *text = json_dumps(e->header, JSON_COMPACT);
    models_join(e->dir, WEIGHTS, text, -1, e->data, e->bytes);
    free(text);
    free(e->data);
    json_decref(e->header);
}

/* Returns where a tensor's bytes begin or end. */
static size_t offset(const json_t *tensor, size_t which)
{
    return (size_t)json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), which));
}

/* The first version stores zeros minus one: here no field is 15, so none has a carry. */
static void second_version(const char *dir)
{
    struct edit e = edit_begin(dir);
    const char *name;
    json_t *tensor;
    json_object_foreach(e.header, name, tensor)
    {
        for (size_t at = offset(tensor, 0); strstr(name, ".qzeros") != NULL && at < offset(tensor, 1); at++)
            e.data[at] = (char)(e.data[at] + 0x11);
    }
    edit_end(&e);
    models_edit(dir, "config.json", QUANTISED "checkpoint_format", "\"gptq_v2\"");
}

static void zeros_written_out(const char *dir)
{
    models_edit(dir, "config.json", QUANTISED "sym", "false");
}

/* The fixture's g_idx has the inputs in the order of their groups. */
static void order_that_changes_nothing(const char *dir)
{
    models_edit(dir, "config.json", QUANTISED "desc_act", "true");
}

/* Appends the rows of a tensor to those of another one, which lies at the end of the data. The tensor itself stays,
 * since a file may have no gaps, under a name that no model uses. */
static void append_rows(struct edit *e, json_t *whole, const char *name)
{
    char other[MOST_TENSOR + 4];
    json_t *part = json_object_get(e->header, name), *shape = json_object_get(whole, "shape");
    size_t n = offset(part, 1) - offset(part, 0);
    json_int_t rows = json_integer_value(json_array_get(shape, 0)) +
                      json_integer_value(json_array_get(json_object_get(part, "shape"), 0));
    e->data = realloc(e->data, e->bytes + n);
    memcpy(e->data + e->bytes, e->data + offset(part, 0), n);
    e->bytes += n;
    (void)json_array_set_new(shape, 0, json_integer(rows));
    (void)json_array_set_new(json_object_get(whole, "data_offsets"), 1, json_integer((json_int_t)e->bytes));
    (void)snprintf(other, sizeof other, "was.%s", name);
    (void)json_object_set(e->header, other, part);
    (void)json_object_del(e->header, name);
}

/* Makes one tensor of the named parts of a layer: their codes, or their scales. parts: ends with NULL. */
static void fuse(struct edit *e, const char *module, const char *const *parts, const char *fused, const char *suffix)
{
    char name[MOST_TENSOR];
    json_t *whole = NULL;
    for (; *parts != NULL; parts++) {
        (void)snprintf(name, sizeof name, "%s%s_proj.%s", module, *parts, suffix);
        const json_t *part = json_object_get(e->header, name);
        if (whole == NULL)
            whole = json_pack("{s:O, s:[i, O], s:[I, I]}", "dtype", json_object_get(part, "dtype"), "shape", 0,
                              json_array_get(json_object_get(part, "shape"), 1), "data_offsets", (json_int_t)e->bytes,
                              (json_int_t)e->bytes);
        append_rows(e, whole, name);
    }
    (void)snprintf(name, sizeof name, "%s%s_proj.%s", module, fused, suffix);
    (void)json_object_set_new(e->header, name, whole);
}

/* Phi-3 is Llama with q, k and v as one tensor, and gates and ups as one. */
static void fused(const char *dir)
{
    static const char *const qkv[] = {"q", "k", "v", NULL}, *const gated[] = {"gate", "up", NULL};
    static const char *const suffix[] = {"weight", "weight_scale"};
    struct edit e = edit_begin(dir);
    for (int i = 0; i < 4; i++) {
        char attention[64], mlp[64];
        (void)snprintf(attention, sizeof attention, "model.layers.%d.self_attn.", i / 2);
        (void)snprintf(mlp, sizeof mlp, "model.layers.%d.mlp.", i / 2);
        fuse(&e, attention, qkv, "qkv", suffix[i % 2]);
        fuse(&e, mlp, gated, "gate_up", suffix[i % 2]);
    }
    edit_end(&e);
    models_edit(dir, "config.json", "model_type", "\"phi3\"");
}

static const struct {
    const char *name, *fixture;
    void (*change)(const char *dir);
} pairs[] = {
    {"GPTQ's zeros in both versions", "q-gptq-v1-asym", second_version},
    {"a symmetric matrix, and its zeros written out", "q-gptq-v1", zeros_written_out},
    {"inputs in order, and an order that changes nothing", "q-gptq-v1", order_that_changes_nothing},
    {"q, k, v, gate and up as tensors of their own, and fused", "q-int8", fused},
};

static void same(size_t i)
{
    char before[256], after[256];
    models_fixture(before, pairs[i].fixture);
    models_fixture(after, pairs[i].fixture);
    pairs[i].change(after);
    for (int ranks = 1; ranks <= MOST_RANKS; ranks += MOST_RANKS - 1) {
        case_begin("%s, on %d rank(s): the same bits", pairs[i].name, ranks);
        char *a = generate(before, ranks), *b = generate(after, ranks);
        case_check(strstr(a, "\"token_ids\"") != NULL && strcmp(a, b) == 0, "%s, but then %s", a, b);
        case_end();
        free(a);
        free(b);
    }
    files_remove_dir(before);
    files_remove_dir(after);
}

int main(void)
{
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        same(i);
    return cases_done();
}
