/* tests/e2e/test_kv_fp8.c - --kv-cache-dtype fp8: a prompt gets the same bits fresh, in chunks, in company and from the
 * prefix cache; the checkpoint's scales are used; the type is reported, and memory halves. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/outputs.h"
#include "tests/support/process.h"
#include "tests/support/serving.h"
#include "tests/support/web.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL    "llama-14-2-gelu" /* float32, 2 KV heads, 2 layers */
#define N_PROMPT 53
#define N_LAYERS 6 /* of the demo */

static char dir[256];

/* Returns the standard output of generate with a file of prompts; the caller frees it. */
static char *generate(int ranks, const char *prompts, const char *const *words)
{
    const char *all[24] = {"generate", "--model",           dir,      "--prompts",     prompts, "--max-tokens",
                           "5",        "--ignore-eos",      "--json", "--temperature", "0",     "--logprobs",
                           "3",        "--prompt-logprobs", "3"};
    for (size_t n = 15, i = 0; words[i] != NULL && n < sizeof all / sizeof all[0] - 1; i++)
        all[n++] = words[i];
    return case_output(ranks, all);
}

#define GENERATE(ranks, prompts, ...) generate((ranks), (prompts), (const char *const[]){__VA_ARGS__, NULL})

/* Returns line number `line` without its index. */
static json_t *line_of(const char *out, int line)
{
    for (; line > 0 && out != NULL; line--)
        out = strchr(out, '\n') != NULL ? strchr(out, '\n') + 1 : NULL;
    json_t *o = out != NULL ? json_loadb(out, strcspn(out, "\n"), JSON_ALLOW_NUL, NULL) : NULL;
    case_check(json_object_get(o, "logprobs") != NULL, "no results: %s", out != NULL ? out : "");
    (void)json_object_del(o, "index");
    return o;
}

static void write_prompts(char *path, size_t bytes, const char *name, int n_same)
{
    (void)snprintf(path, bytes, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < n_same; i++) {
        for (int k = 0; k < N_PROMPT; k++)
            (void)fprintf(f, "%s%d", k == 0 ? "{\"prompt\": [" : ", ", 1 + k * 7 % 60);
        (void)fprintf(f, "]}\n");
    }
    (void)fclose(f);
}

static void expect_same(const char *what, const char *out, int line, const json_t *want)
{
    json_t *o = line_of(out, line);
    case_check(json_equal(o, want), "the results differ %s", what);
    json_decref(o);
}

static void same_bits(int ranks)
{
    char one[300], three[300];
    write_prompts(one, sizeof one, "one.jsonl", 1);
    write_prompts(three, sizeof three, "three.jsonl", 3);
    case_begin("FP8 keys and values on %d ranks: the same bits fresh, in chunks, in company, from the cache", ranks);
    char *fresh = GENERATE(ranks, one, "--kv-cache-dtype", "fp8", "--no-enable-prefix-caching");
    char *chunks = GENERATE(ranks, one, "--kv-cache-dtype", "fp8_e4m3", "--max-batch", "1", "--max-batch-tokens", "5");
    char *company = GENERATE(ranks, three, "--kv-cache-dtype", "fp8", "--max-batch", "3", "--max-batch-tokens", "16");
    char *cached = GENERATE(ranks, three, "--kv-cache-dtype", "fp8", "--max-batch", "1");
    json_t *want = line_of(fresh, 0);
    expect_same("in chunks of 5", chunks, 0, want);
    for (int i = 0; i < 3; i++) {
        expect_same("in company", company, i, want);
        expect_same("one after the other", cached, i, want);
    }
    case_end();
    json_decref(want);
    free(fresh);
    free(chunks);
    free(company);
    free(cached);
}

/* Returns the score of token i of the prompt. */
static double score(const json_t *o, size_t i)
{
    return json_real_value(json_object_get(json_array_get(json_object_get(o, "prompt_logprobs"), i), "logprob"));
}

/* Returns the distance of scores: the mean of the absolute differences. */
static double apart(const json_t *a, const json_t *b)
{
    double sum = 0;
    for (size_t i = 1; i < N_PROMPT; i++)
        sum += fabs(score(a, i) - score(b, i));
    return sum / (N_PROMPT - 1);
}

/* Adds the same scale to all layers. */
static void add_scales(float scale)
{
    size_t bytes;
    char *data, name[100];
    json_t *header = models_split(dir, "model.safetensors", &data, &bytes);
    for (int i = 0; i < 2 * N_LAYERS; i++, bytes += sizeof scale) {
        char which = i % 2 == 0 ? 'k' : 'v';
        data = realloc(data, bytes + sizeof scale);
        memcpy(data + bytes, &scale, sizeof scale);
        (void)snprintf(name, sizeof name, "model.layers.%d.self_attn.%c_proj.%c_scale", i / 2, which, which);
        (void)json_object_set_new(header, name,
                                  json_pack("{s:s, s:[], s:[I, I]}", "dtype", "F32", "shape", "data_offsets",
                                            (json_int_t)bytes, (json_int_t)(bytes + sizeof scale)));
    }
    char *text = json_dumps(header, JSON_COMPACT);
    models_join(dir, "model.safetensors", text, -1, data, bytes);
    free(text);
    free(data);
    json_decref(header);
}

static void scales(void)
{
    char one[300];
    write_prompts(one, sizeof one, "one.jsonl", 1);
    char *wide = GENERATE(2, one, "--kv-cache-dtype", "auto"), *ones = GENERATE(2, one, "--kv-cache-dtype", "fp8");
    add_scales(0.0137f);
    char *scaled = GENERATE(2, one, "--kv-cache-dtype", "fp8"), *unused = GENERATE(2, one, "--kv-cache-dtype", "auto");
    case_begin("FP8 keys and values: close to float, and the checkpoint's scales count");
    json_t *a = line_of(wide, 0), *b = line_of(ones, 0), *c = line_of(scaled, 0), *d = line_of(unused, 0);
    printf("# scores of the prompt: %.2g beside float with scales of 1, %.2g with the checkpoint's\n", apart(a, b),
           apart(a, c));
    case_check(apart(a, b) > 1e-5 && apart(a, b) < 0.5, "differs by %g from float", apart(a, b));
    case_check(apart(a, c) > 1e-5 && apart(a, c) < 0.5, "differs by %g from float with scales", apart(a, c));
    case_check(apart(b, c) > 1e-5, "scales change nothing");
    case_check(json_equal(a, d), "scales change results without --kv-cache-dtype fp8");
    case_end();
    json_decref(a);
    json_decref(b);
    json_decref(c);
    json_decref(d);
    free(wide);
    free(ones);
    free(scaled);
    free(unused);
}

static void expect_said(const char *const *words, const char *part, const char *other)
{
    struct process_setup setup = {.ranks = strcmp(words[0], "inspect") == 0 ? 0 : 2};
    struct process p;
    process_run(&p, &setup, words);
    const char *text = setup.ranks == 0 ? p.text[PROCESS_OUT] : p.text[PROCESS_ERR];
    case_check(p.status == 0 && strstr(text, part) != NULL && strstr(text, other) != NULL, "\"%s\" and \"%s\" in: %s",
               part, other, text);
    process_free(&p);
}

#define SAID(part, other, ...) expect_said((const char *const[]){__VA_ARGS__, NULL}, (part), (other))

/* The type is reported at start and by inspect, also of a checkpoint that was calibrated for FP8 and runs without
 * it. */
static void said(void)
{
    case_begin("FP8 keys and values are reported");
    SAID("keys and values: FP8 (--kv-cache-dtype), scales: the checkpoint's", "KV cache", "generate", "--model", dir,
         "--prompt-ids", "1,2", "--max-tokens", "1", "--verbose", "--kv-cache-dtype", "fp8");
    SAID("keys and values in FP8", "KV B/token", "inspect", "--model", dir, "--kv-cache-dtype", "fp8");
    SAID("\"kv_dtype\": \"FP8\"", "\"kv_bytes_per_token\": ", "inspect", "--model", dir, "--kv-cache-dtype", "fp8",
         "--json");
    models_edit(dir, "config.json", "quantization_config",
                "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{},\"kv_cache_scheme\":{\"num_bits\":8,"
                "\"type\":\"float\",\"dynamic\":false}}");
    SAID("keys and values: F32, though the checkpoint was calibrated for FP8 (--kv-cache-dtype fp8)", "KV cache",
         "generate", "--model", dir, "--prompt-ids", "1,2", "--max-tokens", "1", "--verbose");
    case_end();
}

/* Clients of the gateway see the type in "system_fingerprint", in whole answers and in streams. */
static void fingerprint(void)
{
    struct serving server;
    struct web_gateway gate;
    if (!serving_start(&server, 2, NULL, (const char *const[]){"--kv-cache-dtype", "fp8", NULL}))
        exit(99);
    web_start(&gate, true, (const char *const[]){"--backend", server.rendezvous, NULL});
    case_begin("FP8 keys and values are in the fingerprint of answers");
    for (int stream = 0; stream < 2; stream++) {
        struct web_answer a;
        char body[200];
        (void)snprintf(body, sizeof body, "{\"prompt\":\"Once\",\"max_tokens\":3,\"stream\":%s}",
                       stream ? "true" : "false");
        web_ask(&gate, "POST", "/v1/completions", "", body, &a);
        const char *at = strstr(a.body != NULL ? a.body : "", "\"system_fingerprint\":\"lockstep-");
        at = at != NULL ? strstr(at, "-kv-fp8\"") : NULL;
        case_check(a.status == 200 && at != NULL, "%s", a.body);
        web_free(&a);
    }
    case_check(web_stop(&gate) == 0, "the gateway");
    case_check(serving_stop(&server) == 0, "the server");
    case_end();
}

int main(void)
{
    models_fixture(dir, MODEL);
    for (int ranks = 1; ranks <= 3; ranks++)
        same_bits(ranks);
    files_remove_dir(dir);
    files_make_dir(dir);
    models_write_wide(dir); /* unlike the fixture's, its scores vary with the text */
    scales();
    said();
    fingerprint();
    files_remove_dir(dir);
    return cases_done();
}
