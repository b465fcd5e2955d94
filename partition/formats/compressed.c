/* partition/formats/compressed.c - the "quantization_config" of compressed-tensors: one scheme for all matrices, as FP8
 * (float-quantized), INT8 (int-quantized) or packed integers (pack-quantized). */
#include "partition/formats.h"

#include <string.h>

/* The scheme's targets. A scheme may also be the name of a preset, which is refused. */
static void read_targets(struct quantization *q, const struct config *scheme)
{
    quantization_list(q, scheme, "targets");
    for (q->exempt_at = 0; q->list[q->exempt_at] != '\0';)
        q->exempt_at += (int)strlen(q->list + q->exempt_at) + 1;
    q->exempt_at++;
}

static void read_blocks(struct quantization *q, const struct config *weights)
{
    const json_t *size = json_object_get(weights->json, "block_structure");
    const char *text = json_string_value(size);
    bool is_128 =
        json_integer_value(json_array_get(size, 0)) == 128 && json_integer_value(json_array_get(size, 1)) == 128;
    if (!is_128 && (text == NULL || strcmp(text, "128x128") != 0))
        quantization_refuse(weights, "block_structure", "another size", "[128, 128]");
    q->block_rows = q->block_cols = 128;
}

/* "strategy", or the one that "group_size" implies. */
static void read_strategy(struct quantization *q, const struct config *weights)
{
    int group = config_int(weights, "group_size", 0, -1, 1 << 20);
    const char *implied = group > 0 ? "group" : group == -1 ? "channel" : "tensor";
    const char *strategy = json_get_string(weights->json, "strategy", implied, weights->what, weights->e);
    bool nvfp4 = strcmp(strategy, "tensor_group") == 0 && q->bits == 4 && group == 16;
    if (strcmp(strategy, "block") == 0)
        read_blocks(q, weights);
    else if (strcmp(strategy, "group") == 0 || nvfp4)
        q->group = group;
    else if (strcmp(strategy, "tensor") != 0 && strcmp(strategy, "channel") != 0)
        quantization_refuse(weights, "strategy", strategy, "tensor, channel, group or block");
    if (strcmp(strategy, "group") == 0 && group < 16)
        quantization_refuse(weights, "group_size", "less than 16", "16 or more");
}

static void read_weights(struct quantization *q, const struct config *weights)
{
    const char *type = json_get_string(weights->json, "type", "int", weights->what, weights->e);
    const json_t *order = json_object_get(weights->json, "actorder");
    const char *name = json_string_value(order);
    q->bits = config_int(weights, "num_bits", 8, 1, 32);
    q->zeros = !config_bool(weights, "symmetric", true);
    read_strategy(q, weights);
    q->reordered =
        json_is_true(order) || (name != NULL && (strcmp(name, "group") == 0 || strcmp(name, "dynamic") == 0));
    if (q->reordered && q->group < 1)
        quantization_refuse(weights, "actorder", name != NULL ? name : "true", "strategy group with it");
    if (strcmp(type, "float") == 0 ? q->bits != 8 && !(q->bits == 4 && q->group == 16)
                                   : strcmp(type, "int") != 0 || (q->bits != 4 && q->bits != 8))
        quantization_refuse(weights, "type", type, "int of 4 or 8 bits, float of 8, or of 4 in groups of 16");
    q->format = strcmp(type, "float") != 0 ? FORMAT_INT8 : q->bits == 4 ? FORMAT_NVFP4 : FORMAT_FP8;
}

/* Is this quantisation of activations implemented? One scale for all tokens of a step is not, since results would
 * depend on the batch. */
static bool read_input_strategy(struct quantization *q, const struct config *inputs)
{
    int group = config_int(inputs, "group_size", 0, -1, 1 << 20);
    const char *implied = group > 0 ? "group" : "tensor";
    const char *strategy = json_get_string(inputs->json, "strategy", implied, inputs->what, inputs->e);
    bool fixed = q->activations == ACTIVATIONS_STATIC;
    q->input_group = strcmp(strategy, "group") == 0 && group >= 16 ? group : 0;
    return strcmp(strategy, "tensor") == 0 ? fixed : !fixed && (strcmp(strategy, "token") == 0 || q->input_group > 0);
}

static void read_activations(struct quantization *q, const struct config *scheme)
{
    const json_t *inputs = json_object_get(scheme->json, "input_activations");
    const struct config c = {inputs, scheme->what, scheme->e};
    if (!config_has(scheme, "input_activations"))
        return;
    const json_t *dynamic = json_object_get(inputs, "dynamic");
    const char *type = json_get_string(inputs, "type", "int", c.what, c.e);
    q->activations = json_is_false(dynamic) ? ACTIVATIONS_STATIC : ACTIVATIONS_DYNAMIC;
    int bits = config_int(&c, "num_bits", 8, 1, 32);
    if (bits != 8 && !(bits == 4 && q->format == FORMAT_NVFP4))
        quantization_refuse(&c, "num_bits", "not 8 in input_activations", "8");
    bool floats = strcmp(type, "float") == 0, same = q->format == (floats ? FORMAT_FP8 : FORMAT_INT8);
    q->inputs_known =
        same && !q->reordered && q->bits == 8 && config_bool(&c, "symmetric", true) && read_input_strategy(q, &c);
}

/* Chooses the tensors by the name of the format and the type of the numbers. */
static void choose_format(struct quantization *q, const struct config *c, const char *format)
{
    bool floats = q->format == FORMAT_FP8;
    if (q->format == FORMAT_NVFP4) {
        if (strcmp(format, "nvfp4-pack-quantized") != 0)
            quantization_refuse(c, "format", format, "nvfp4-pack-quantized");
        return;
    }
    if (strcmp(format, "pack-quantized") == 0 && !floats)
        q->format = FORMAT_PACKED;
    else if (q->reordered)
        quantization_refuse(c, "actorder", "group", "pack-quantized with it, or weight, static or none");
    else if (!((strcmp(format, "float-quantized") == 0 && floats) || strcmp(format, "naive-quantized") == 0 ||
               (strcmp(format, "int-quantized") == 0 && !floats)))
        quantization_refuse(c, "format", format, "float-quantized, int-quantized, naive-quantized or pack-quantized");
    else if (!floats && (q->bits != 8 || q->zeros))
        quantization_refuse(c, "format", format, "symmetric INT8 in this format");
}

static void refuse_others(const struct config *c)
{
    static const char *const keys[] = {"sparsity_config", "transform_config"};
    const char *status = json_get_string(c->json, "quantization_status", "compressed", c->what, c->e);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const json_t *value = json_object_get(c->json, keys[i]);
        const char *format = json_string_value(json_object_get(value, "format"));
        if (json_object_size(value) > 0 && (format == NULL || strcmp(format, "dense") != 0))
            quantization_refuse(c, keys[i], format != NULL ? format : "there", "a checkpoint without it");
    }
    if (strcmp(status, "compressed") != 0)
        quantization_refuse(c, "quantization_status", status, "compressed");
}

static void config(struct quantization *q, const struct config *c)
{
    const json_t *groups = json_object_get(c->json, "config_groups");
    const json_t *group = json_object_iter_value(json_object_iter((json_t *)groups));
    const struct config scheme = {group, c->what, c->e};
    const struct config weights = {json_object_get(group, "weights"), c->what, c->e};
    q->rule = MATCH_TARGETS;
    refuse_others(c);
    quantization_read_kv(q, c);
    if (q->kv != KV_DECLARED_WIDE && json_is_object(groups) && json_object_size(groups) == 0)
        return; /* keys and values only */
    if (json_object_size(groups) != 1 || !json_is_object(group)) {
        quantization_refuse(c, "config_groups", json_object_size(groups) > 1 ? "of several schemes" : "no scheme",
                            "one scheme, spelled out");
        return;
    }
    if (!json_is_object(weights.json)) {
        quantization_refuse(c, "weights", json_type_name(weights.json), "an object");
        return;
    }
    read_targets(q, &scheme);
    read_weights(q, &weights);
    read_activations(q, &scheme);
    const char *format = json_get_string(c->json, "format", "dense", c->what, c->e);
    choose_format(q, c, json_get_string(group, "format", format, c->what, c->e));
    quantization_list(q, c, "ignore");
}

const struct quant_method method_compressed = {"compressed-tensors", config};
