/* tests/unit/test_kv_scales.c - scales of keys and values in FP8: names, shapes, and refusals; and E4M3 codes of floats
 * compared with the table of codes' values. */
#include "partition/kv_scales.h"
#include "tests/unit/checkpoint_folder.h"
#include "tests/unit/unit.h"

#include "base/codes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Tries all codes: returns the nearest finite one, of two equally near ones the even one. */
static unsigned nearest(float x)
{
    unsigned best = 0;
    for (unsigned c = 1; c < 0x7f; c++) {
        double d = fabs(fabs((double)x) - code_value(CODES_E4M3, c));
        double least = fabs(fabs((double)x) - code_value(CODES_E4M3, best));
        if (d < least || (d <= least && c % 2 == 0))
            best = c;
    }
    return best | (signbit(x) ? 0x80 : 0);
}

static void codes_of_floats(void **state)
{
    (void)state;
    assert_int_equal(float_to_e4m3(NAN) & 0x7f, 0x7f);
    assert_int_equal(float_to_e4m3(INFINITY), 0x7e);
    assert_int_equal(float_to_e4m3(-1e30f), 0xfe);
    for (unsigned c = 0; c < 0x7f; c++) { /* every number, every midpoint, and their neighbours */
        float low = code_value(CODES_E4M3, c), high = c < 0x7e ? code_value(CODES_E4M3, c + 1) : 1000;
        const float x[] = {low,
                           (low + high) / 2,
                           nextafterf((low + high) / 2, 0),
                           nextafterf((low + high) / 2, 2000),
                           nextafterf(low, 2000),
                           nextafterf(high, 0)};
        for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
            assert_int_equal(float_to_e4m3(x[i]), nearest(x[i]));
            assert_int_equal(float_to_e4m3(-x[i]), nearest(-x[i]));
        }
    }
}

struct tensor {
    const char *name, *type, *shape;
    const float *values;
};

/* Reads a folder of these tensors for a model of 2 layers and 3 KV heads. */
static float *scales_of(const struct tensor *t, int n, enum declared_kv declared, struct err *e)
{
    static struct model_config m;
    static float values[12];
    struct checkpoint c;
    struct folder f;
    char file[3000], *header = file + 8, data[400];
    size_t used = 1, bytes = 0, room = 2000;
    header[0] = '{';
    memset(e, 0, sizeof *e);
    m = (struct model_config){.n_layers = 2, .n_kv_heads = 3, .quantization = {.kv = declared}};
    for (int i = 0; i < n; i++) {
        int count = 1;
        for (const char *at = t[i].shape; *at != '\0'; at++)
            count *= *at >= '1' && *at <= '9' ? *at - '0' : 1;
        size_t size = strcmp(t[i].type, "F32") == 0 ? 4 : 2;
        for (int k = 0; k < count; k++)
            memcpy(data + bytes + (size_t)k * size, (const char *)&t[i].values[k] + (4 - size), size);
        used += (size_t)snprintf(
            header + used, room - used, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
            i > 0 ? "," : "", t[i].name, t[i].type, t[i].shape, bytes, bytes + (size_t)count * size);
        bytes += (size_t)count * size;
    }
    (void)snprintf(header + used, room - used, "}");
    uint64_t length = strlen(header);
    memcpy(file, &length, sizeof length);
    memcpy(header + length, data, bytes);
    folder_make(&f);
    folder_write(&f, "model.safetensors", file, 8 + length + bytes);
    assert_int_equal(checkpoint_open(&c, f.path, e), 0);
    (void)kv_scales_read(&c, &m, e);
    bool found = e->code == ERR_NONE && c.kv_scale != NULL;
    if (found)
        memcpy(values, c.kv_scale, sizeof values);
    assert_int_equal(c.n_kv_scales, found ? 12 : 0);
    checkpoint_close(&c);
    folder_remove(&f);
    return found ? values : NULL;
}

static const float some[3] = {0.5f, 0.25f, 2};

static void found(void **state)
{
    (void)state;
    struct err e;
    assert_null(scales_of((const struct tensor[]){{"model.norm.weight", "F32", "3", some}}, 1, KV_DECLARED_WIDE, &e));
    expect_text(&e, ERR_NONE, "");
    const struct tensor usual[] = {{"model.layers.0.self_attn.k_proj.k_scale", "F32", "", some},
                                   {"model.layers.0.self_attn.v_proj.v_scale", "BF16", "1", some + 1},
                                   {"model.layers.1.self_attn.k_scale", "F32", "3,1,1", some},
                                   {"model.layers.1.self_attn.v_proj.output_scale", "F32", "3", some}};
    const float *x = scales_of(usual, 4, KV_DECLARED_FP8, &e);
    expect_text(&e, ERR_NONE, "");
    assert_non_null(x);
    assert_memory_equal(x, ((const float[]){0.5f, 0.5f, 0.5f, 0.25f, 0.25f, 0.25f, 0.5f, 0.25f, 2, 0.5f, 0.25f, 2}),
                        12 * sizeof *x);
    const struct tensor both[] = {{"transformer.h.1.attn.kv_scale", "F32", "1", some},
                                  {"transformer.h.0.attn.kv_scale", "F32", "1", some + 1}};
    x = scales_of(both, 2, KV_DECLARED_WIDE, &e);
    assert_non_null(x);
    assert_true(x[0] == 0.25f && x[5] == 0.25f && x[6] == 0.5f && x[11] == 0.5f);
}

static void refused(void **state)
{
    (void)state;
    static const float nan[1] = {NAN}, zero[3] = {1, 1, 0}, less[1] = {-1};
#define K0 "model.layers.0.self_attn.k_scale"
    const struct {
        struct tensor t[2];
        enum declared_kv declared;
        const char *word, *expected;
    } bad[] = {
        {{{K0, "F32", "", nan}}, KV_DECLARED_FP8, "nan", "positive"},
        {{{K0, "F32", "3", zero}}, KV_DECLARED_FP8, "scale 0", "positive"},
        {{{K0, "BF16", "1", less}}, KV_DECLARED_FP8, "scale -1", "positive"},
        {{{K0, "F32", "2", some}}, KV_DECLARED_FP8, "2 elements", "each KV head"},
        {{{K0, "F32", "1,3", some}}, KV_DECLARED_FP8, "3 elements", "each KV head"},
        {{{K0, "I16", "1", some}}, KV_DECLARED_FP8, "is I16", "F32, F16 or BF16"},
        {{{"model.layers.2.k_scale", "F32", "", some}}, KV_DECLARED_FP8, "no layer", "number of a layer"},
        {{{"k.k_scale", "F32", "", some}}, KV_DECLARED_FP8, "no layer", "number of a layer"},
        {{{K0, "F32", "", some}, {"model.layers.0.k_proj.k_scale", "F32", "", some}}, KV_DECLARED_FP8, "second", "one"},
        {{{K0, "F32", "", some}}, KV_DECLARED_FP8, "layer 0 has no scale of values", "every layer"},
        {{{K0, "F32", "", some}}, KV_DECLARED_OTHERWISE, "quantised otherwise", "FP8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e;
        assert_null(scales_of(bad[i].t, bad[i].t[1].name != NULL ? 2 : 1, bad[i].declared, &e));
        EXPECT_PARTS(&e, ERR_UNSUPPORTED, "--kv-cache-dtype fp8", bad[i].word, bad[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_floats),
        cmocka_unit_test(found),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
