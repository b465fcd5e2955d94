/* partition/quantization.c - see quantization.h: what is common to all methods; the rest is in formats/. */
#include "partition/quantization.h"

#include "base/json.h"
#include "partition/formats.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fnmatch.h>
#include <limits.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILE_BYTES ((size_t)4 << 20)
#define MATCH_STEPS    100000 /* bytes of a regular expression: names are short */

void quantization_refuse(const struct config *c, const char *key, const char *found, const char *expected)
{
    const char *method = json_string_value(json_object_get(c->json, "quant_method"));
    ERR(c->e, ERR_UNSUPPORTED,
        "%s: \"quantization_config\" (%.40s): \"%s\" is %.100s, which is not supported; supported: %s", c->what,
        method != NULL ? method : "no quant_method", key, found, expected);
}

static bool append(struct quantization *q, size_t *used, const char *text)
{
    size_t bytes = strlen(text) + 1;
    if (*used + bytes + 2 > sizeof q->list) /* room for the end marks of both lists */
        return false;
    memcpy(q->list + *used, text, bytes);
    *used += bytes;
    return true;
}

/* Ends the current list, which is that of targets until exempt_at is set. */
static size_t list_end(const struct quantization *q)
{
    size_t at = (size_t)q->exempt_at;
    while (q->list[at] != '\0')
        at += strlen(q->list + at) + 1;
    return at;
}

void quantization_list(struct quantization *q, const struct config *c, const char *keys)
{
    char key[64] = "";
    const json_t *array = NULL;
    for (const char *from = keys; array == NULL; from += strcspn(from, "|") + 1) {
        (void)snprintf(key, sizeof key, "%.*s", (int)strcspn(from, "|"), from);
        if (config_has(c, key))
            array = json_object_get(c->json, key);
        if (from[strcspn(from, "|")] == '\0')
            break;
    }
    if (array != NULL && !json_is_array(array))
        quantization_refuse(c, key, json_type_name(array), "an array of names");
    size_t used = list_end(q);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_string(item) || json_string_length(item) == 0 ||
            json_string_length(item) != strlen(json_string_value(item)))
            quantization_refuse(c, key, json_type_name(item), "an array of names");
        else if (!append(q, &used, json_string_value(item)))
            quantization_refuse(c, key, "longer than 32 KiB", "a shorter list");
    }
}

void quantization_read_kv(struct quantization *q, const struct config *c)
{
    const json_t *scheme = json_object_get(c->json, "kv_cache_scheme");
    const struct config of = {scheme, c->what, c->e};
    if (!config_has(c, "kv_cache_scheme"))
        return;
    if (!json_is_object(scheme)) {
        quantization_refuse(c, "kv_cache_scheme", json_type_name(scheme), "an object");
        return;
    }
    const char *type = json_get_string(scheme, "type", "int", c->what, c->e);
    bool fp8 = strcmp(type, "float") == 0 && config_int(&of, "num_bits", 8, 1, 32) == 8 &&
               json_is_false(json_object_get(scheme, "dynamic"));
    q->kv = fp8 ? KV_DECLARED_FP8 : KV_DECLARED_OTHERWISE;
}

void quantization_read(struct quantization *q, const struct config *c)
{
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    memset(q, 0, sizeof *q);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (!config_has(c, keys[i]))
            continue;
        const struct config inner = {json_object_get(c->json, keys[i]), c->what, c->e};
        const json_t *method = json_object_get(inner.json, "quant_method");
        const char *name = json_is_string(method) ? json_string_value(method) : "not named";
        const struct quant_method *found = quant_method_find(name);
        if (found == NULL || q->format != FORMAT_NONE) {
            ERR(c->e, ERR_UNSUPPORTED,
                "%s: \"%s\" says that the weights are quantised (quant_method %.60s), which is not supported; "
                "supported: %s; "
                "use one of these or the unquantised repository",
                c->what, keys[i], name, quant_method_names());
            return;
        }
        (void)snprintf(q->method, sizeof q->method, "%s", found->name);
        found->config(q, &inner);
    }
}

int quantization_read_beside(struct quantization *q, const char *model_dir, struct err *e)
{
    static const struct {
        const char *file, *member; /* member NULL: the file's object itself */
        const struct quant_method *method;
    } table[] = {{"hf_quant_config.json", "quantization", &method_modelopt},
                 {"quantize_config.json", NULL, &method_gptq},
                 {"quant_config.json", NULL, &method_awq}};
    for (size_t i = 0; i < sizeof table / sizeof table[0] && q->format == FORMAT_NONE && e->code == ERR_NONE; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", model_dir, table[i].file);
        if (n < 0 || (size_t)n >= sizeof path || access(path, F_OK) != 0)
            continue;
        json_t *json = json_read_model_file(path, MAX_FILE_BYTES, e);
        const json_t *inner = table[i].member != NULL ? json_object_get(json, table[i].member) : json;
        const struct config c = {inner, checkpoint_short_path(path), e};
        if (json != NULL && !json_is_object(inner))
            ERR(e, ERR_UNSUPPORTED, "%s: is %s, expected the object of a quantisation", c.what, json_type_name(inner));
        (void)snprintf(q->method, sizeof q->method, "%s", table[i].method->name);
        if (e->code == ERR_NONE)
            table[i].method->config(q, &c);
        json_decref(json);
    }
    return e->code == ERR_NONE ? 0 : -1;
}

/* A regular expression from the beginning of the name, as Python's re.match. An invalid pattern matches nothing. */
static bool matches_expression(const char *expression, const char *name)
{
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)expression, PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED, &error, &at, NULL);
    pcre2_match_data *data = code != NULL ? pcre2_match_data_create(1, NULL) : NULL;
    pcre2_match_context *context = data != NULL ? pcre2_match_context_create(NULL) : NULL;
    bool found = false;
    if (context != NULL) {
        (void)pcre2_set_match_limit(context, MATCH_STEPS);
        found = pcre2_match(code, (PCRE2_SPTR)name, strlen(name), 0, PCRE2_NO_JIT, data, context) >= 0;
    }
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return found;
}

/* The entry is the name, or its beginning or end at a dot. */
static bool matches_part(const char *entry, const char *name)
{
    size_t n = strlen(entry), all = strlen(name);
    if (n > all)
        return false;
    bool begins = memcmp(entry, name, n) == 0 && (name[n] == '\0' || name[n] == '.');
    bool ends = memcmp(entry, name + all - n, n) == 0 && (n == all || name[all - n - 1] == '.');
    return begins || ends;
}

static bool matches(enum match_rule rule, const char *entry, const char *name)
{
    switch (rule) {
    case MATCH_SUBSTRING:
        return strstr(name, entry) != NULL;
    case MATCH_GLOBS:
        return fnmatch(entry, name, 0) == 0 || matches_part(entry, name);
    case MATCH_TARGETS:
        if (strncmp(entry, "re:", 3) == 0)
            return matches_expression(entry + 3, name);
        return strcmp(entry, name) == 0 || strcmp(entry, "Linear") == 0;
    case MATCH_PARTS:
        break;
    }
    char whole[600]; /* "mlp.gate" is not the beginning of "mlp.gate_proj" */
    size_t n = (size_t)snprintf(whole, sizeof whole, "(?:%s)(?=\\.|$)", entry);
    return matches_part(entry, name) || (n < sizeof whole && matches_expression(whole, name));
}

static bool in_list(const struct quantization *q, int at, const char *module)
{
    for (const char *entry = q->list + at; *entry != '\0'; entry += strlen(entry) + 1)
        if (matches(q->rule, entry, module))
            return true;
    return false;
}

bool quantization_exempts(const struct quantization *q, const char *module)
{
    bool targets = q->exempt_at > 1;
    return in_list(q, q->exempt_at, module) || (targets && !in_list(q, 0, module));
}

int quantization_unit(const struct quantization *q)
{
    int unit = q->group > q->block_cols ? q->group : q->block_cols;
    unit = unit > q->block_rows ? unit : q->block_rows;
    return q->format != FORMAT_NONE && unit > 0 ? unit : 1;
}

struct code_form quantization_form(const struct quantization *q, bool of_experts)
{
    static const enum codes of[FORMAT_COUNT] = {
        [FORMAT_FP8] = CODES_E4M3, [FORMAT_MXFP4] = CODES_E2M1, [FORMAT_NVFP4] = CODES_E2M1};
    if (q->format == FORMAT_NONE || (q->format == FORMAT_MXFP4 && !of_experts))
        return (struct code_form){0};
    int group = q->block_cols > 0 ? q->block_cols : q->group;
    enum codes codes = of[q->format] != CODES_NONE ? of[q->format] : q->bits == 8 ? CODES_INT8 : CODES_INT4;
    return (struct code_form){.codes = codes,
                              .scale = q->format == FORMAT_MXFP4 ? SCALE_E8M0 : SCALE_F32,
                              .group = group > 0 ? group : INT_MAX,
                              .zeros = q->zeros};
}

const char *quantization_names(void)
{
    return "none, fp8, fp8-block, int8, int4, int4-zeros, mxfp4, nvfp4";
}

#define INPUTS .activations = ACTIVATIONS_DYNAMIC, .inputs_known = true

int quantization_choose(struct quantization *q, const char *name, struct err *e)
{
    static const struct {
        const char *name;
        struct quantization is;
    } table[] = {
        {"none", {.format = FORMAT_NONE}},
        {"fp8", {.format = FORMAT_FP8, .bits = 8, INPUTS}},
        {"fp8-block",
         {.format = FORMAT_FP8, .bits = 8, .block_rows = 128, .block_cols = 128, INPUTS, .input_group = 128}},
        {"int8", {.format = FORMAT_INT8, .bits = 8, INPUTS}},
        {"int4", {.format = FORMAT_PACKED, .bits = 4, .group = 128}},
        {"int4-zeros", {.format = FORMAT_PACKED, .bits = 4, .group = 128, .zeros = true}},
        {"mxfp4", {.format = FORMAT_MXFP4, .bits = 4, .group = 32}},
        {"nvfp4", {.format = FORMAT_NVFP4, .bits = 4, .group = 16}},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0) {
            *q = table[i].is;
            (void)snprintf(q->method, sizeof q->method, "noise");
            return 0;
        }
    return ERR(e, ERR_USAGE, "--quantization %.40s: expected one of %s", name, quantization_names());
}

#undef INPUTS

void quantization_describe(const struct quantization *q, char *to, size_t bytes)
{
    const struct format *format = format_of(q);
    char parts[60] = "";
    if (format == NULL) {
        (void)snprintf(to, bytes, "none");
        return;
    }
    if (q->block_rows > 0)
        (void)snprintf(parts, sizeof parts, " in blocks of %d x %d", q->block_rows, q->block_cols);
    else if (q->group > 0)
        (void)snprintf(parts, sizeof parts, " in groups of %d", q->group);
    (void)snprintf(to, bytes, "%s of %d bits%s%s (%s)", format->name, q->bits, parts,
                   q->reordered ? ", inputs reordered" : "", q->method);
}

const char *quantization_activations_name(const struct quantization *q)
{
    return q->activations == ACTIVATIONS_DYNAMIC ? "dynamic" : q->activations == ACTIVATIONS_STATIC ? "static" : "none";
}
