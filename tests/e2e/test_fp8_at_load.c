/* tests/e2e/test_fp8_at_load.c - --quantization fp8 and --head-dtype fp8: the same bits as a checkpoint that was
 * quantised before, on any number of ranks; the quantisation is part of the identity of results. */
#include "base/codes.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/outputs.h"
#include "tests/support/process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL   "llama-14-2-gelu" /* float32 */
#define WEIGHTS "model.safetensors"

static char plain[256], quantised[256];

/* Replaces the tensor by codes and a scale for each row, appended to the data. */
static void quantise(json_t *header, const char *name, char **data, size_t *bytes)
{
    char scale_name[200];
    json_t *t = json_object_get(header, name);
    const json_t *shape = json_object_get(t, "shape");
    size_t rows = (size_t)json_integer_value(json_array_get(shape, 0));
    size_t cols = (size_t)json_integer_value(json_array_get(shape, 1));
    size_t from = (size_t)json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
    size_t scales_at = (*bytes + 3) / 4 * 4, codes_at = scales_at + rows * sizeof(float);
    *data = realloc(*data, codes_at + rows * cols);
    memset(*data + *bytes, 0, scales_at - *bytes);
    for (size_t r = 0; r < rows; r++) {
        float largest = 0, x;
        for (size_t c = 0; c < cols; c++) {
            memcpy(&x, *data + from + (r * cols + c) * sizeof x, sizeof x);
            largest = fmaxf(largest, fabsf(x));
        }
        float scale = largest / 448;
        memcpy(*data + scales_at + r * sizeof scale, &scale, sizeof scale);
        for (size_t c = 0; c < cols; c++) {
            memcpy(&x, *data + from + (r * cols + c) * sizeof x, sizeof x);
            (*data)[codes_at + r * cols + c] = (char)float_to_e4m3(x / scale);
        }
    }
    *bytes = codes_at + rows * cols;
    (void)json_object_set_new(t, "dtype", json_string("F8_E4M3"));
    (void)json_object_set_new(t, "data_offsets", json_pack("[I, I]", (json_int_t)codes_at, (json_int_t)*bytes));
    (void)snprintf(scale_name, sizeof scale_name, "%s_scale", name);
    (void)json_object_set_new(header, scale_name,
                              json_pack("{s:s, s:[I, i], s:[I, I]}", "dtype", "F32", "shape", (json_int_t)rows, 1,
                                        "data_offsets", (json_int_t)scales_at, (json_int_t)codes_at));
}

/* Removing the float tensors would leave a gap, which the format does not allow: they stay, under other names that no
 * model uses. */
static void make_checkpoint(bool head)
{
    size_t bytes;
    char *data;
    json_t *header = models_split(quantised, WEIGHTS, &data, &bytes), *all = json_deep_copy(header), *t;
    const char *name;
    json_object_foreach(all, name, t)
    {
        bool is_head = strcmp(name, "lm_head.weight") == 0;
        char other[200];
        if (head ? !is_head : strstr(name, "_proj.weight") == NULL)
            continue;
        (void)snprintf(other, sizeof other, "was.%s", name);
        (void)json_object_set(header, other, t);
        quantise(header, name, &data, &bytes);
    }
    char *text = json_dumps(header, JSON_COMPACT);
    models_join(quantised, WEIGHTS, text, -1, data, bytes);
    models_edit(quantised, "config.json", "quantization_config",
                "{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":{\"a\":{"
                "\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\"}}}}");
    free(text);
    free(data);
    json_decref(header);
    json_decref(all);
}

static char *generate(const char *dir, int ranks, const char *const *words)
{
    const char *all[24] = {"generate", "--model",      dir, "--prompt-ids",      "5,9,17,33,2,60,41",
                           "--json",   "--max-tokens", "8", "--ignore-eos",      "--temperature",
                           "0",        "--logprobs",   "4", "--prompt-logprobs", "2"};
    for (size_t n = 15, i = 0; words[i] != NULL && n < sizeof all / sizeof all[0] - 1; i++)
        all[n++] = words[i];
    return case_output(ranks, all);
}

#define GENERATE(dir, ranks, ...) generate((dir), (ranks), (const char *const[]){__VA_ARGS__, NULL})

/* Returns the bytes of the ranks' weights and of a step, as inspect prints them; the caller frees. With more than 2
 * ranks the columns are distributed differently. */
static char *inspected(const char *dir, const char *option, const char *choice)
{
    const char *words[] = {"inspect", "--model", dir, "--ranks", "2", "--json", option, choice, NULL};
    struct process_setup setup = {.ranks = 1};
    struct process p;
    process_run(&p, &setup, words);
    json_t *o = json_loads(p.text[PROCESS_OUT], JSON_DISABLE_EOF_CHECK, NULL), *rank, *bytes = json_array();
    size_t i;
    json_array_foreach(json_object_get(o, "ranks"), i, rank)(void)
        json_array_append(bytes, json_object_get(rank, "weight_bytes"));
    (void)json_array_append(bytes, json_object_get(o, "decode_step_weight_bytes"));
    char *text = json_dumps(bytes, JSON_COMPACT);
    process_free(&p);
    json_decref(bytes);
    json_decref(o);
    return text;
}

static void same_as_checkpoint(bool head)
{
    const char *option = head ? "--head-dtype" : "--quantization";
    models_fixture(quantised, MODEL);
    make_checkpoint(head);
    for (int ranks = 1; ranks <= 2; ranks++) { /* more ranks would distribute columns differently */
        case_begin("%s fp8 on %d ranks: the bits of a checkpoint that was quantised before", option, ranks);
        char *at_load = GENERATE(plain, ranks, option, "fp8"), *before = GENERATE(quantised, ranks, "--step", "auto");
        char *none = GENERATE(plain, ranks, "--step", "auto");
        case_check(strcmp(at_load, before) == 0, "%s, and from the checkpoint %s", at_load, before);
        case_check(strcmp(at_load, none) != 0, "the option changes nothing");
        case_end();
        free(at_load);
        free(before);
        free(none);
    }
    case_begin("inspect %s fp8: the bytes of that checkpoint", option);
    char *at_load = inspected(plain, option, "fp8"), *before = inspected(quantised, "--device", "cpu");
    char *none = inspected(plain, "--device", "cpu");
    case_check(strlen(none) > 20 && strcmp(at_load, before) == 0 && strcmp(at_load, none) != 0, "%s, expected %s",
               at_load, before);
    case_end();
    free(at_load);
    free(before);
    free(none);
    files_remove_dir(quantised);
}

/* Returns the tokens of the output's one line as text; the caller frees it. */
static char *tokens(char *out)
{
    json_t *o = json_loads(out, JSON_DISABLE_EOF_CHECK, NULL);
    char *text = json_dumps(json_object_get(o, "token_ids"), JSON_COMPACT);
    json_decref(o);
    free(out);
    return text != NULL ? text : strdup("");
}

static void same_everywhere(void)
{
    case_begin("--quantization fp8: the same tokens on 1, 3 and 5 ranks");
    char *one = tokens(GENERATE(plain, 1, "--quantization", "fp8"));
    for (int ranks = 3; ranks <= 5; ranks += 2) {
        char *more = tokens(GENERATE(plain, ranks, "--quantization", "fp8"));
        case_check(one[0] == '[' && strcmp(one, more) == 0, "%s, on %d ranks %s", one, ranks, more);
        free(more);
    }
    case_end();
    free(one);
}

/* A head that is the embedding becomes a matrix of its own: the embedding stays unchanged. */
static void tied(void)
{
    char dir[256];
    models_fixture(dir, "llama-7-1-tied");
    case_begin("--head-dtype fp8 of a head that is the embedding");
    char *wide = GENERATE(dir, 2, "--head-dtype", "auto"), *fp8 = GENERATE(dir, 2, "--head-dtype", "fp8");
    json_t *a = json_loads(wide, 0, NULL), *b = json_loads(fp8, 0, NULL);
    const json_t *x = json_object_get(a, "prompt_logprobs"), *y = json_object_get(b, "prompt_logprobs");
    double sum = 0;
    for (size_t i = 1; i < 7; i++)
        sum += fabs(json_real_value(json_object_get(json_array_get(x, i), "logprob")) -
                    json_real_value(json_object_get(json_array_get(y, i), "logprob")));
    case_check(json_array_size(y) == 7 && sum > 1e-6 && sum < 6, "scores differ by %g: %s", sum, fp8);
    case_end();
    json_decref(a);
    json_decref(b);
    free(wide);
    free(fp8);
    files_remove_dir(dir);
}

static void expect_line(int status, int ranks, const char *part, const char *const *words)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    process_run(&p, &setup, words);
    case_check(p.status == status && strstr(p.text[PROCESS_ERR], part) != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
}

#define LINE(status, ranks, part, ...) expect_line((status), (ranks), (part), (const char *const[]){__VA_ARGS__, NULL})

static void said(void)
{
    size_t bytes;
    char *data;
    case_begin("--quantization fp8 is reported, and refused for quantised models, NaN weights and many models");
    LINE(0, 2, "weights and the head became FP8 with a scale for each row", "generate", "--model", plain,
         "--prompt-ids", "1", "--max-tokens", "1", "--verbose", "--quantization", "fp8", "--head-dtype", "fp8");
    models_fixture(quantised, "q-fp8-block128-qwen3");
    LINE(2, 2, "the checkpoint is quantised already (fp8)", "generate", "--model", quantised, "--prompt-ids", "1",
         "--quantization", "fp8");
    files_remove_dir(quantised);
    LINE(2, 1, "are for one model", "serve", "--models-dir", "/tmp", "--quantization", "fp8");
    models_fixture(quantised, MODEL); /* its config declares other types than its tensors have */
    models_edit(quantised, "config.json", "quantization_config", "{\"quant_method\":\"fp8\"}");
    LINE(0, 2, "config.json says that weights are quantised (fp8), but none is", "generate", "--model", quantised,
         "--prompt-ids", "1", "--max-tokens", "1");
    files_remove_dir(quantised);
    json_t *header = models_split(plain, WEIGHTS, &data, &bytes);
    const json_t *t = json_object_get(header, "model.layers.1.mlp.down_proj.weight");
    memcpy(data + json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 1)) - 4, "\0\0\xc0\x7f", 4);
    char *text = json_dumps(header, JSON_COMPACT);
    models_join(plain, WEIGHTS, text, -1, data, bytes);
    LINE(3, 3, "mlp_out has a weight that is not a number", "generate", "--model", plain, "--prompt-ids", "1",
         "--quantization", "fp8");
    case_end();
    free(text);
    free(data);
    json_decref(header);
}

/* Quantised activations change results, auto follows the checkpoint's declaration, and all of it is reported. */
static void activations(void)
{
    char dir[256];
    models_fixture(dir, "q-fp8-channel");
    case_begin("--quantized-activations: off by default, auto as declared, the same tokens on 1 and 3 ranks");
    char *none = GENERATE(dir, 2, "--step", "auto"), *off = GENERATE(dir, 2, "--quantized-activations", "off");
    char *on = GENERATE(dir, 2, "--quantized-activations", "on");
    char *declared = GENERATE(dir, 2, "--quantized-activations", "auto");
    case_check(strcmp(none, off) == 0 && strcmp(on, off) != 0 && strcmp(on, declared) == 0, "off %s, on %s", off, on);
    char *one = tokens(GENERATE(dir, 1, "--quantized-activations", "on"));
    char *three = tokens(GENERATE(dir, 3, "--quantized-activations", "on"));
    case_check(one[0] == '[' && strcmp(one, three) == 0, "%s, on 3 ranks %s", one, three);
    LINE(0, 2, "--quantized-activations: activations are quantised", "generate", "--model", dir, "--prompt-ids", "1",
         "--max-tokens", "1", "--quantized-activations", "auto");
    LINE(0, 2, "activations are not quantised: the checkpoint declares none", "generate", "--model", plain,
         "--prompt-ids", "1", "--max-tokens", "1", "--quantized-activations", "auto");
    LINE(2, 1, "are for one model", "serve", "--models-dir", "/tmp", "--quantized-activations", "auto");
    case_end();
    free(none);
    free(off);
    free(on);
    free(declared);
    free(one);
    free(three);
    files_remove_dir(dir);
}

int main(void)
{
    models_fixture(plain, MODEL);
    same_as_checkpoint(false);
    same_as_checkpoint(true);
    same_everywhere();
    tied();
    activations();
    said();
    files_remove_dir(plain);
    return cases_done();
}
