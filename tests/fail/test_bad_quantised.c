/* tests/fail/test_bad_quantised.c - quantised checkpoints whose config and tensors contradict each other, and numbers
 * in them that are never valid. */
#include "base/err.h"
#include "tests/support/bad_start.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG  "config.json"
#define WEIGHTS "model.safetensors"
#define Q_PROJ  "model.layers.0.self_attn.q_proj."
#define DOWN    "model.layers.1.mlp.down_proj."
#define EXPERTS "model.layers.1.mlp.experts.gate_up_proj"
#define BLOCKS  .fixture = "q-fp8-block64-32-ue8m0", .status = ERR_UNSUPPORTED
#define CHANNEL .fixture = "q-fp8-channel", .status = ERR_UNSUPPORTED
#define PACKED  .fixture = "q-w4-asym-g32", .status = ERR_UNSUPPORTED
#define GPTQ    .fixture = "q-gptq-v1", .status = ERR_UNSUPPORTED
#define STATIC  .fixture = "q-fp8-autofp8-static", .status = ERR_UNSUPPORTED
#define ORDER   .fixture = "q-gptq-order-v1", .status = ERR_UNSUPPORTED
#define EIGHT   .fixture = "q-gptq-order-8-asym", .status = ERR_UNSUPPORTED
#define AWQ     .fixture = "q-awq", .status = ERR_UNSUPPORTED
#define NVFP4   .fixture = "q-nvfp4", .status = ERR_UNSUPPORTED
#define MXFP4   .fixture = "q-mxfp4", .status = ERR_UNSUPPORTED

static void nan_code(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight", 7, "\xff", 1);
}

static void last_code_nan(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight", 48 * 88 - 1, "\x7f", 1);
}

static void exponent_255(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_scale_inv", 1, "\xff", 1);
}

static void scale_nan(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_scale", 4, "\xc0\x7f", 2);
}

static void scale_infinite(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_scale", 4, "\x80\x7f", 2);
}

static void scale_zero(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_scale", 0, "\0\0", 2);
}

static void scale_negative(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_scale", 0, "\x80\xbf", 2);
}

static void no_scale(const char *dir)
{
    models_rename_tensor(dir, Q_PROJ "weight_scale", Q_PROJ "weight_scales");
}

static void no_zeros(const char *dir)
{
    models_rename_tensor(dir, DOWN "weight_zero_point", DOWN "weight_zeros");
}

static void no_qzeros(const char *dir)
{
    models_rename_tensor(dir, DOWN "qzeros", DOWN "zeros");
}

/* Stored zeros are one less than meant: 255 would be 256. */
static void zero_256(const char *dir)
{
    models_patch_tensor(dir, DOWN "qzeros", 0, "\xff", 1);
}

static void no_scales(const char *dir)
{
    models_rename_tensor(dir, DOWN "scales", DOWN "scale");
}

static void whole_zero(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_global_scale", 0, "\0\0\0\0", 4);
}

static void whole_nan(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_global_scale", 0, "\0\0\xc0\x7f", 4);
}

static void no_whole(const char *dir)
{
    models_rename_tensor(dir, DOWN "weight_global_scale", DOWN "global_scale");
}

static void group_nan(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_scale", 3, "\x7f", 1);
}

static void group_zero(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_scale", 3, "\0", 1);
}

static void no_exponents(const char *dir)
{
    models_rename_tensor(dir, EXPERTS "_scales", EXPERTS "_exponents");
}

static void other_shape(const char *dir)
{
    models_patch_tensor(dir, DOWN "weight_shape", 8, "\x49", 1);
}

static void both_weights(const char *dir)
{
    models_rename_tensor(dir, "model.layers.1.input_layernorm.weight", Q_PROJ "weight");
}

static void index_of_nothing(const char *dir)
{
    models_patch_tensor(dir, DOWN "g_idx", 0, "\xff\xff\xff\x7f", 4);
}

static void index_reordered(const char *dir)
{
    models_patch_tensor(dir, DOWN "g_idx", 0, "\x01\0\0\0", 4);
}

static void index_negative(const char *dir)
{
    models_patch_tensor(dir, DOWN "g_idx", 4, "\xff\xff\xff\xff", 4);
}

static void no_index(const char *dir)
{
    models_rename_tensor(dir, DOWN "g_idx", DOWN "g_index");
}

/* Queries and keys share one input; here the keys' groups are 16 inputs each in order, as in the config. */
static void keys_in_order(const char *dir)
{
    int32_t groups[48];
    for (int i = 0; i < 48; i++)
        groups[i] = i / 16;
    models_patch_tensor(dir, "model.layers.0.self_attn.k_proj.g_idx", 0, groups, sizeof groups);
}

/* All three share one order of inputs; keys use groups 0 and 2, the others 0 and 1. */
static void keys_in_other_groups(const char *dir)
{
    static const char *const part[] = {"model.layers.0.self_attn.q_proj.g_idx", "model.layers.0.self_attn.v_proj.g_idx",
                                       "model.layers.0.self_attn.k_proj.g_idx"};
    int32_t groups[48];
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 48; i++)
            groups[i] = i < 32 ? 0 : k == 2 ? 2 : 1;
        models_patch_tensor(dir, part[k], 0, groups, sizeof groups);
    }
}

static void experts_scale_nan(const char *dir)
{
    models_patch_tensor(dir, EXPERTS "_scales", 9, "\xff", 1);
}

/* A scale of keys without one of values. */
static void half_scales(const char *dir)
{
    models_rename_tensor(dir, "model.layers.1.input_layernorm.weight", "model.layers.1.self_attn.k_scale");
}

#define KV_FP8 .argument = {"generate", "--model", "DIR", "--prompt-ids", "1,2", "--kv-cache-dtype", "fp8"}

#define INPUTS .argument = {"generate", "--model", "DIR", "--prompt-ids", "1,2", "--quantized-activations", "on"}

static void input_scale_zero(const char *dir)
{
    models_patch_tensor(dir, DOWN "input_scale", 0, "\0\0\0\0", 4);
}

static void input_scale_nan(const char *dir)
{
    models_patch_tensor(dir, DOWN "input_scale", 0, "\0\0\xc0\x7f", 4);
}

static void no_input_scale(const char *dir)
{
    models_rename_tensor(dir, DOWN "input_scale", DOWN "input_scales");
}

static const struct bad_start cases[] = {
    {"a scale of activations that is 0", .damage = input_scale_zero, STATIC, INPUTS,
     .words = {DOWN "input_scale", "is 0", "positive"}},
    {"a scale of activations that is NaN", .damage = input_scale_nan, STATIC, INPUTS,
     .words = {DOWN "input_scale", "is nan", "positive"}},
    {"a missing scale of activations", .damage = no_input_scale, STATIC, INPUTS,
     .words = {DOWN "input_scale", "is missing", "--quantized-activations off"}},
    {"a scale of activations of another type", WEIGHTS, DOWN "input_scale/dtype", "\"I32\"", STATIC, INPUTS,
     .words = {DOWN "input_scale", "is I32", "F32, F16 or BF16"}},
    {"quantised activations without a declaration", .fixture = "q-awq", .status = ERR_UNSUPPORTED, INPUTS,
     .words = {"--quantized-activations on", "declares none", "awq"}},
    {"activations of another kind", CONFIG, "quantization_config/config_groups/group_0/input_activations/strategy",
     "\"tensor\"", CHANNEL, INPUTS, .words = {"--quantized-activations on", "not implemented", "for each token"}},
    {"activations with zeros", CONFIG, "quantization_config/config_groups/group_0/input_activations/symmetric", "false",
     CHANNEL, INPUTS, .words = {"--quantized-activations on", "not implemented", "symmetric"}},
    {"key scales of a wrong number", .damage = half_scales, CHANNEL,
     .words = {"model.layers.1.self_attn.k_scale", "elements", "one for each KV head"}, KV_FP8},
    {"keys and values of another kind", CONFIG, "quantization_config/kv_cache_scheme",
     "{\"num_bits\":8,\"type\":\"int\",\"dynamic\":false}", CHANNEL,
     .words = {"--kv-cache-dtype fp8", "quantised otherwise", "expected FP8"}, KV_FP8},
    {"an invalid scheme of keys and values", CONFIG, "quantization_config/kv_cache_scheme", "7", CHANNEL,
     .words = {"kv_cache_scheme", "an integer", "an object"}},
    {"a NaN code", .damage = nan_code, BLOCKS, .words = {DOWN "weight", "not numbers", "expected weights"}},
    {"a NaN as the last code", .damage = last_code_nan, BLOCKS,
     .words = {DOWN "weight", "not numbers", "expected weights"}},
    {"a NaN exponent", .damage = exponent_255, BLOCKS, .words = {DOWN "weight_scale_inv", "scale", "positive"}},
    {"blocks of another size", CONFIG, "quantization_config/weight_block_size/1", "64", BLOCKS,
     .words = {"weight_scale_inv", "has shape", "expected ["}},
    {"a config without quantisation", CONFIG, "quantization_config", NULL, BLOCKS,
     .words = {"F8_E4M3 (quantised)", "expected F32"}},
    {"a quantised module that the config leaves out", CONFIG, "quantization_config/modules_to_not_convert",
     "[\"model.layers.1.mlp\"]", BLOCKS, .words = {"model.layers.1.mlp.", "is quantised", "leaves it out"}},
    {"codes of another type", WEIGHTS, Q_PROJ "weight/dtype", "\"F8_E5M2\"", CHANNEL,
     .words = {Q_PROJ "weight", "F8_E5M2"}},
    {"AMD's codes", WEIGHTS, Q_PROJ "weight/dtype", "\"F8_E4M3FNUZ\"", CHANNEL,
     .words = {Q_PROJ "weight", "F8_E4M3FNUZ"}},
    {"a scale that is NaN", .damage = scale_nan, CHANNEL, .words = {DOWN "weight_scale", "scale nan", "positive"}},
    {"a scale that is infinite", .damage = scale_infinite, CHANNEL,
     .words = {DOWN "weight_scale", "scale inf", "positive"}},
    {"a scale that is 0", .damage = scale_zero, CHANNEL, .words = {DOWN "weight_scale", "scale 0", "positive"}},
    {"a scale that is negative", .damage = scale_negative, CHANNEL,
     .words = {DOWN "weight_scale", "scale -1", "positive"}},
    {"a scale of another type", WEIGHTS, DOWN "weight_scale/dtype", "\"I16\"", CHANNEL,
     .words = {DOWN "weight_scale", "I16"}},
    {"a missing scale", .damage = no_scale, CHANNEL, .words = {Q_PROJ "weight", "no scale", "weight_scale"}},
    {"missing zeros", .damage = no_zeros, PACKED, .words = {DOWN "weight_zero_point", "is missing"}},
    {"a shape other than the packed one", .damage = other_shape, PACKED,
     .words = {DOWN "weight_shape", "says 73", "expected 72"}},
    {"other groups", CONFIG, "quantization_config/config_groups/group_0/weights/group_size", "16", PACKED,
     .words = {"weight_scale", "has shape", "expected ["}},
    {"a weight beside its packed form", .damage = both_weights, PACKED,
     .words = {Q_PROJ "weight_packed", "both there"}},
    {"a group that does not exist", .damage = index_of_nothing, GPTQ,
     .words = {DOWN "g_idx", "2147483647", "expected 0"}},
    {"inputs in another order", .damage = index_reordered, GPTQ, .words = {DOWN "g_idx", "group 1", "expected 0"}},
    {"a group of reordered inputs that does not exist", .damage = index_of_nothing, ORDER,
     .words = {DOWN "g_idx", "group 2147483647", "expected 0 to 5"}},
    {"a negative group of reordered inputs", .damage = index_negative, ORDER,
     .words = {DOWN "g_idx", "group -1", "expected 0 to 5"}},
    {"missing groups of reordered inputs", .damage = no_index, ORDER,
     .words = {DOWN "g_idx", "is missing", "desc_act"}},
    {"groups of reordered inputs of another type", WEIGHTS, DOWN "g_idx/dtype", "\"F32\"", ORDER,
     .words = {DOWN "g_idx", "is F32", "I32"}},
    {"groups of fewer inputs", WEIGHTS, DOWN "g_idx/shape/0", "87", .fixture = "q-gptq-order-v1", .status = ERR_INPUT,
     .words = {DOWN "g_idx", "data_offsets"}},
    {"parts of a matrix in different groups", .damage = keys_in_other_groups, ORDER,
     .words = {"model.layers.0.self_attn.k_proj", "another order", "qkv"}},
    {"parts of a matrix in different orders", .damage = keys_in_order, ORDER,
     .words = {"model.layers.0.self_attn.k_proj", "another order", "qkv"}},
    {"zeros of the other version", CONFIG, "quantization_config/checkpoint_format", "\"gptq_v2\"", GPTQ,
     .words = {"qzeros", "the zero 7", "expected", "8", "checkpoint_format"}},
    {"a zero beyond a byte", .damage = zero_256, EIGHT, .words = {DOWN "qzeros", "the zero 256", "at most 255"}},
    {"a weight beside its packed form, GPTQ's", .damage = both_weights, GPTQ,
     .words = {Q_PROJ "qweight", "both there"}},
    {"a weight beside its packed form, AWQ's", .damage = both_weights, AWQ, .words = {Q_PROJ "qweight", "both there"}},
    {"GPTQ's zeros missing", .damage = no_qzeros, GPTQ, .words = {DOWN "qzeros", "is missing"}},
    {"AWQ's zeros missing", .damage = no_qzeros, AWQ, .words = {DOWN "qzeros", "is missing"}},
    {"GPTQ's scales missing", .damage = no_scales, GPTQ, .words = {DOWN "scales", "is missing"}},
    {"packed integers that the config does not declare", CONFIG, "quantization_config", NULL, GPTQ,
     .words = {Q_PROJ "qweight", "quantised", "config.json"}},
    {"packed integers of another method", CONFIG, "quantization_config",
     "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}", PACKED,
     .words = {Q_PROJ "weight_packed", "quantised", "found gptq"}},
    {"missing exponents", .damage = no_exponents, MXFP4, .words = {EXPERTS "_blocks", "no scales", "_scales"}},
    {"words of another type", WEIGHTS, Q_PROJ "qweight/dtype", "\"F32\"", AWQ,
     .words = {Q_PROJ "qweight", "F32", "I32"}},
    {"groups that do not match the scales", CONFIG, "quantization_config/group_size", "32", AWQ,
     .words = {"qzeros", "expected ["}},
    {"an expert's NaN exponent", .damage = experts_scale_nan, MXFP4, .words = {EXPERTS "_scales", "positive"}},
    {"a global scale that is 0", .damage = whole_zero, NVFP4,
     .words = {DOWN "weight_global_scale", "is F32, 0", "positive"}},
    {"a global scale that is NaN", .damage = whole_nan, NVFP4,
     .words = {DOWN "weight_global_scale", "nan", "positive"}},
    {"a missing global scale", .damage = no_whole, NVFP4, .words = {DOWN "weight_global_scale", "is missing"}},
    {"a group's NaN scale", .damage = group_nan, NVFP4, .words = {DOWN "weight_scale", "scale nan", "positive"}},
    {"a group's scale that is 0", .damage = group_zero, NVFP4, .words = {DOWN "weight_scale", "scale 0", "positive"}},
    {"blocks of another length", WEIGHTS, EXPERTS "_blocks/shape/3", "8", .fixture = "q-mxfp4", .status = ERR_INPUT,
     .words = {EXPERTS "_blocks", "data_offsets"}},
};

int main(void)
{
    bad_start_run(cases, (int)(sizeof cases / sizeof cases[0]));
    return cases_done();
}
