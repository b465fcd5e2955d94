/* tests/unit/test_quantization.c - valid contents of "quantization_config", and the modules that its lists name. */
#include "base/json.h"
#include "partition/config.h"
#include "partition/model.h"
#include "partition/quantization.h"
#include "tests/support/files.h"
#include "tests/unit/unit.h"

#include <stdio.h>

#define W4             "\"weights\":{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32"
#define CT             "\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
#define GROUPS(scheme) "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"]," scheme "}}"

static struct quantization q;

static void read(const char *inner, struct err *e)
{
    char text[4000];
    memset(e, 0, sizeof *e);
    (void)snprintf(text, sizeof text, "{\"quantization_config\":{%s}}", inner);
    json_t *json = json_parse_model(text, strlen(text), "config.json", e);
    assert_non_null(json);
    const struct config c = {json, "config.json", e};
    quantization_read(&q, &c);
    json_decref(json);
}

static void refused(void **state)
{
    static const struct {
        const char *inner, *word, *read;
    } bad[] = {
        {"\"bits\":4", "not named", "compressed-tensors"},
        {"\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true", "bitsandbytes", "gptq"},
        {"\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"", "\"fmt\" is e5m2", "e4m3"},
        {"\"quant_method\":\"fp8\",\"expert_dtype\":\"fp4\"", "\"expert_dtype\" is fp4", "fp8"},
        {"\"quant_method\":\"fp8\",\"activation_scheme\":\"odd\"", "\"activation_scheme\" is odd", "static or dynamic"},
        {"\"quant_method\":\"fp8\",\"weight_block_size\":[128]", "weight_block_size", "[rows, columns]"},
        {"\"quant_method\":\"fp8\",\"weight_block_size\":[128,0]", "weight_block_size", "[rows, columns]"},
        {"\"quant_method\":\"fp8\",\"weight_block_size\":[-128,128]", "weight_block_size", "[rows, columns]"},
        {"\"quant_method\":\"fp8\",\"weight_block_size\":[4294967424,128]", "weight_block_size", "[rows, columns]"},
        {"\"quant_method\":\"fp8\",\"modules_to_not_convert\":\"lm_head\"", "a string", "an array of names"},
        {"\"quant_method\":\"fp8\",\"ignored_layers\":[\"a\",7]", "an integer", "an array of names"},
        {"\"quant_method\":\"awq\",\"version\":\"gemv\"", "\"version\" is gemv", "gemm"},
        {"\"quant_method\":\"awq\",\"bits\":8", "\"bits\"", "4"},
        {"\"quant_method\":\"awq\",\"zero_point\":false", "\"zero_point\" is false", "true"},
        {"\"quant_method\":\"awq\",\"group_size\":0", "group_size", "16 or more"},
        {"\"quant_method\":\"gptq\",\"bits\":3", "\"bits\"", "4 or 8"},
        {"\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"", "\"checkpoint_format\" is marlin", "gptq_v2"},
        {"\"quant_method\":\"gptq\",\"dynamic\":{\"+:.*down.*\":{\"bits\":8}}",
         "\"dynamic\" is +:", "leave modules out"},
        {"\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4_AWQ\"", "\"quant_algo\" is NVFP4_AWQ", "FP8"},
        {"\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"group_size\":32", "\"group_size\"", "16"},
        {CT "\"config_groups\":{}", "\"config_groups\" is no scheme", "one scheme"},
        {CT "\"config_groups\":{\"W4A16\":[\"Linear\"]}", "\"config_groups\" is no scheme", "spelled out"},
        {CT "\"config_groups\":{\"a\":{},\"b\":{}}", "several schemes", "one scheme"},
        {CT GROUPS("\"weights\":7"), "\"weights\" is an integer", "an object"},
        {"\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\"," GROUPS(
             "\"weights\":{\"num_bits\":8,\"group_size\":32,\"actorder\":\"group\"}"),
         "\"actorder\" is group", "pack-quantized"},
        {CT GROUPS("\"weights\":{\"num_bits\":8,\"strategy\":\"channel\",\"actorder\":\"group\"}"),
         "\"actorder\" is group", "strategy group"},
        {CT GROUPS("\"weights\":{\"num_bits\":4,\"strategy\":\"channel\",\"actorder\":true}"), "\"actorder\" is true",
         "strategy group"},
        {CT GROUPS("\"weights\":{\"num_bits\":3,\"type\":\"int\"}"), "\"type\" is int", "4 or 8"},
        {CT GROUPS("\"weights\":{\"num_bits\":4,\"type\":\"float\",\"group_size\":32}"), "\"type\" is float",
         "float of 8"},
        {CT GROUPS("\"weights\":{\"num_bits\":4,\"type\":\"float\",\"group_size\":16}"), "\"format\" is pack-quantized",
         "nvfp4-pack-quantized"},
        {CT GROUPS("\"weights\":{\"num_bits\":4,\"strategy\":\"tensor_group\"}"), "tensor_group", "channel, group"},
        {CT GROUPS(W4 "}") ",\"transform_config\":{\"config_groups\":{\"u\":{}}}", "transform_config", "without it"},
        {CT GROUPS(W4 "}") ",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}", "sparse-24-bitmask", "without"},
        {CT GROUPS(W4 "}") ",\"quantization_status\":\"frozen\"", "\"quantization_status\" is frozen", "compressed"},
        {"\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"," GROUPS(W4 "}"), "marlin-24",
         "pack-quantized"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e;
        read(bad[i].inner, &e);
        EXPECT_PARTS(&e, ERR_UNSUPPORTED, "config.json", bad[i].word, bad[i].read);
    }
}

static void accepted(void **state)
{
    struct err e;
    (void)state;
    read("\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],\"activation_scheme\":\"dynamic\"", &e);
    expect_text(&e, ERR_NONE, "");
    assert_int_equal(q.format, FORMAT_FP8);
    assert_int_equal(quantization_unit(&q), 128);
    assert_string_equal(quantization_activations_name(&q), "dynamic");
    read(CT GROUPS(W4 ",\"symmetric\":false,\"actorder\":\"weight\"}"), &e);
    expect_text(&e, ERR_NONE, "");
    assert_int_equal(q.format, FORMAT_PACKED);
    assert_true(q.zeros);
    assert_int_equal(q.group, 32);
    assert_string_equal(quantization_activations_name(&q), "none");
    read("\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"desc_act\":true",
         &e); /* one group: the order does not matter */
    expect_text(&e, ERR_NONE, "");
    assert_int_equal(q.group, 0);
    assert_true(q.zero_less_one);
    assert_false(q.reordered);
    read("\"quant_method\":\"gptq\",\"group_size\":64,\"desc_act\":true", &e);
    expect_text(&e, ERR_NONE, "");
    assert_true(q.reordered);
    read(CT GROUPS(W4 ",\"actorder\":\"group\"}"), &e);
    expect_text(&e, ERR_NONE, "");
    assert_true(q.reordered);
#define W8     "\"weights\":{\"num_bits\":8,\"group_size\":32"
#define INPUTS ",\"input_activations\":{\"dynamic\":true,\"strategy\":\"token\"}"
    read(CT GROUPS(W8 "}" INPUTS), &e);
    expect_text(&e, ERR_NONE, "");
    assert_true(q.inputs_known);
    read(CT GROUPS(W8 ",\"actorder\":\"group\"}" INPUTS), &e); /* codes of inputs in another order: not implemented */
    expect_text(&e, ERR_NONE, "");
    assert_true(q.reordered && !q.inputs_known);
    read(CT GROUPS(W8 "}"
                      ",\"input_activations\":{\"dynamic\":true,\"strategy\":\"group\",\"group_size\":1}"),
         &e);
    expect_text(&e, ERR_NONE, "");
    assert_false(q.inputs_known);
}

static void lists(void **state)
{
    struct err e;
    (void)state;
    read("\"quant_method\":\"fp8\",\"modules_to_not_convert\":[\"lm_head\",\"model.layers.0.mlp.gate\","
         "\"model.layers.*.self_attn\",\"fc1\"]",
         &e);
    assert_true(quantization_exempts(&q, "lm_head"));
    assert_true(quantization_exempts(&q, "model.layers.0.mlp.gate"));
    assert_false(quantization_exempts(&q, "model.layers.0.mlp.gate_proj"));
    assert_true(quantization_exempts(&q, "model.layers.11.self_attn.q_proj"));
    assert_true(quantization_exempts(&q, "decoder.fc1"));
    assert_false(quantization_exempts(&q, "decoder.fc12"));
    read(CT "\"ignore\":[\"re:.*lm_head\",\"re:.*mlp.gate$\",\"model.layers.1.mlp.up_proj\"]," GROUPS(W4 "}"), &e);
    assert_true(quantization_exempts(&q, "lm_head"));
    assert_true(quantization_exempts(&q, "model.layers.3.mlp.gate"));
    assert_false(quantization_exempts(&q, "model.layers.3.mlp.gate_proj"));
    assert_true(quantization_exempts(&q, "model.layers.1.mlp.up_proj"));
    assert_false(quantization_exempts(&q, "model.layers.11.mlp.up_proj"));
    read(CT "\"config_groups\":{\"g\":{\"targets\":[\"re:.*experts.*\"]," W4 "}}},\"ignore\":[\"lm_head\"]", &e);
    assert_true(quantization_exempts(&q, "model.layers.0.self_attn.q_proj"));
    assert_false(quantization_exempts(&q, "model.layers.0.mlp.experts.3.up_proj"));
    read("\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"ignore\":[\"lm_head\",\"model.layers.0.self_attn*\"]",
         &e);
    assert_true(quantization_exempts(&q, "model.layers.0.self_attn.q_proj"));
    assert_true(quantization_exempts(&q, "lm_head"));
    assert_false(quantization_exempts(&q, "model.layers.1.self_attn.q_proj"));
    read("\"quant_method\":\"awq\",\"modules_to_not_convert\":[\"visual\"]", &e);
    assert_true(quantization_exempts(&q, "model.visual.merger"));
    assert_false(quantization_exempts(&q, "model.layers.0.mlp.up_proj"));
}

/* Each way in which a run's numbers may differ from the checkpoint's has a name of its own, as protocol.md lists them.
 * Activations are quantised only beside weights that the checkpoint quantises, so never beside --quantization fp8. */
static void variants(void **state)
{
    static const struct {
        bool kv, weights, head, inputs;
        const char *name;
    } table[] = {
        {0, 0, 0, 0, NULL},
        {1, 0, 0, 0, "kv-fp8"},
        {0, 1, 0, 0, "weights-fp8"},
        {1, 1, 0, 0, "weights-fp8-kv-fp8"},
        {0, 0, 1, 0, "head-fp8"},
        {1, 0, 1, 0, "head-fp8-kv-fp8"},
        {0, 1, 1, 0, "weights-head-fp8"},
        {1, 1, 1, 0, "weights-head-kv-fp8"},
        {0, 0, 0, 1, "w8a8"},
        {1, 0, 0, 1, "w8a8-kv-fp8"},
        {0, 0, 1, 1, "head-fp8-w8a8"},
        {1, 0, 1, 1, "head-fp8-w8a8-kv-fp8"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct model_config m = {.kv_fp8 = table[i].kv,
                                       .weights_fp8 = table[i].weights,
                                       .head_fp8 = table[i].head,
                                       .quantised_inputs = table[i].inputs};
        const char *found = model_variant(&m);
        assert_true(table[i].name == NULL ? found == NULL : found != NULL && strcmp(found, table[i].name) == 0);
    }
}

/* Files beside config.json that some writers use. */
static void files_beside(void **state)
{
    static const struct {
        const char *file, *text, *refused;
        enum format_id format;
    } table[] = {
        {"hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"FP8\",\"exclude_modules\":[\"lm_head\"]}}", NULL,
         FORMAT_FP8},
        {"hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"W4A16_AWQ\"}}", "W4A16_AWQ", FORMAT_NONE},
        {"hf_quant_config.json", "{\"quantization\":7}", "an integer", FORMAT_NONE},
        {"quantize_config.json", "{\"bits\":8,\"group_size\":32}", NULL, FORMAT_GPTQ},
        {"quant_config.json", "{\"w_bit\":4,\"q_group_size\":64,\"version\":\"GEMM\",\"zero_point\":true}", NULL,
         FORMAT_AWQ},
        {"quant_config.json", "{\"w_bit\":4,\"version\":\"gemv_fast\"}", "gemv_fast", FORMAT_NONE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char dir[256];
        struct err e = {0};
        files_make_dir(dir);
        files_write_text(dir, table[i].file, table[i].text);
        memset(&q, 0, sizeof q);
        (void)quantization_read_beside(&q, dir, &e);
        if (table[i].refused != NULL)
            EXPECT_PARTS(&e, ERR_UNSUPPORTED, table[i].file, table[i].refused);
        else
            assert_int_equal(q.format, table[i].format);
        files_remove_dir(dir);
    }
}

/* Expressions that backtrack for ever, are invalid, or are long: they match nothing, at once. */
static void hostile_lists(void **state)
{
    static char text[QUANTIZATION_LIST_BYTES + 200];
    struct err e;
    (void)state;
    read("\"quant_method\":\"fp8\",\"ignored_layers\":[\"(a+)+(a+)+(a+)+(a+)+(a+)+$\",\"(\",\"[\",\"\\\\\",\"(?R)*\"]",
         &e);
    expect_text(&e, ERR_NONE, "");
    assert_false(
        quantization_exempts(&q, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"));
    int used = snprintf(text, sizeof text, "{\"quantization_config\":{\"quant_method\":\"fp8\",\"ignored_layers\":[\"");
    memset(text + used, 'x', QUANTIZATION_LIST_BYTES);
    (void)snprintf(text + used + QUANTIZATION_LIST_BYTES, sizeof text - (size_t)used - QUANTIZATION_LIST_BYTES,
                   "\"]}}");
    memset(&e, 0, sizeof e);
    json_t *json = json_parse_model(text, strlen(text), "config.json", &e);
    const struct config c = {json, "config.json", &e};
    quantization_read(&q, &c);
    json_decref(json);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "ignored_layers", "longer than 32 KiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),  cmocka_unit_test(accepted),     cmocka_unit_test(lists),
        cmocka_unit_test(variants), cmocka_unit_test(files_beside), cmocka_unit_test(hostile_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
