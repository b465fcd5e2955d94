/* tests/e2e/test_draft_models.c - `generate` with a draft model gives the same texts as without, on 1 to 3 ranks, also
 * if the draft model is on fewer of them; memory is counted for both models; models that do not fit together are
 * refused by name. The same with a draft head (EAGLE-3) of random weights. */
#include "base/dtype.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SAME 12 /* arguments common to all runs */

/* Runs the demo on this many ranks; extra: further arguments, NULL at the end. The caller frees p. */
static void generate(struct process *p, int ranks, const char *const *extra)
{
    const struct process_setup setup = {.ranks = ranks, .limit = 120};
    const char *arguments[32] = {"generate", "--model",    models_demo(), "--prompt", "Once upon a time",
                                 "--prompt", "The dragon", "--threads",   "1",        "--max-tokens",
                                 "50",       "--verbose"};
    for (int i = 0; extra[i] != NULL; i++)
        arguments[N_SAME + i] = extra[i];
    process_run(p, &setup, arguments);
}

/* fewer: the ranks of the draft model. */
static void same_texts(int ranks, const char *fewer, const char *temperature)
{
    struct process plain, drafted;
    const char *accepted;
    int n_accepted = 0, n_drafts = 1;
    case_begin("generate on %d ranks at temperature %s: the same texts with a draft model on %s", ranks, temperature,
               fewer);
    generate(&plain, ranks, (const char *const[]){"--temperature", temperature, "--seed", "3", NULL});
    generate(&drafted, ranks,
             (const char *const[]){"--temperature", temperature, "--seed", "3", "--draft-model", models_demo(),
                                   "--num-speculative-tokens", "4", "--speculative", "always",
                                   "--draft-tensor-parallel-size", fewer, NULL});
    case_check(plain.status == 0 && drafted.status == 0, "status %d and %d: %s", plain.status, drafted.status,
               drafted.text[PROCESS_ERR]);
    case_check(plain.bytes[PROCESS_OUT] > 100 && strcmp(plain.text[PROCESS_OUT], drafted.text[PROCESS_OUT]) == 0,
               "%s, expected %s", drafted.text[PROCESS_OUT], plain.text[PROCESS_OUT]);
    accepted = strstr(drafted.text[PROCESS_ERR], " drafts accepted in ");
    while (accepted != NULL && accepted > drafted.text[PROCESS_ERR] && strchr("0123456789 of", accepted[-1]) != NULL)
        accepted--;
    case_check(accepted != NULL && sscanf(accepted, "%d of %d", &n_accepted, &n_drafts) == 2, "no drafts: %s",
               drafted.text[PROCESS_ERR]);
    case_check(n_drafts > 0 && (strcmp(temperature, "0") != 0 || n_accepted > n_drafts * 9 / 10), "%d of %d accepted",
               n_accepted, n_drafts);
    process_free(&plain);
    process_free(&drafted);
    case_end();
}

#define HIDDEN 192 /* of the demo */

/* The tensors of a head for the demo: 6 heads and 2 KV heads of 32 elements, an MLP of 64, the first 700 tokens. */
static const struct {
    const char *name, *type;
    int rows, cols; /* rows 0: a vector */
} head_tensors[] = {{"d2t", "I64", 0, 700},
                    {"fc.weight", "BF16", HIDDEN, 3 * HIDDEN},
                    {"lm_head.weight", "BF16", 700, HIDDEN},
                    {"norm.weight", "BF16", 0, HIDDEN},
                    {"midlayer.hidden_norm.weight", "BF16", 0, HIDDEN},
                    {"midlayer.input_layernorm.weight", "BF16", 0, HIDDEN},
                    {"midlayer.post_attention_layernorm.weight", "BF16", 0, HIDDEN},
                    {"midlayer.self_attn.q_proj.weight", "BF16", HIDDEN, 2 * HIDDEN},
                    {"midlayer.self_attn.k_proj.weight", "BF16", 64, 2 * HIDDEN},
                    {"midlayer.self_attn.v_proj.weight", "BF16", 64, 2 * HIDDEN},
                    {"midlayer.self_attn.o_proj.weight", "BF16", HIDDEN, HIDDEN},
                    {"midlayer.mlp.gate_proj.weight", "BF16", 64, HIDDEN},
                    {"midlayer.mlp.up_proj.weight", "BF16", 64, HIDDEN},
                    {"midlayer.mlp.down_proj.weight", "BF16", HIDDEN, 64}};

/* Writes noise in [-1/8, 1/8); norms around 1. The map is all zeros: row i is token i. */
static void write_weights(const char *dir)
{
    enum { N = sizeof head_tensors / sizeof head_tensors[0], ROOM = 3 << 20 };
    unsigned char *file = calloc(1, ROOM);
    size_t used = 9, at = 0, end;
    uint32_t random = 7;
    file[8] = '{';
    for (int i = 0; i < N; i++, at = end) {
        size_t rows = head_tensors[i].rows > 0 ? (size_t)head_tensors[i].rows : 1, cols = (size_t)head_tensors[i].cols;
        char shape[40];
        end = at + rows * cols * (i == 0 ? 8 : 2);
        if (head_tensors[i].rows > 0)
            (void)snprintf(shape, sizeof shape, "%zu,%zu", rows, cols);
        else
            (void)snprintf(shape, sizeof shape, "%zu", cols);
        used += (size_t)snprintf((char *)file + used, 4096 - used,
                                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                                 i > 0 ? "," : "", head_tensors[i].name, head_tensors[i].type, shape, at, end);
    }
    file[used++] = '}';
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)(used - 8) >> (8 * i));
    at = used + 700 * 8;
    for (int i = 1; i < N; i++)
        for (int k = 0; k < (head_tensors[i].rows > 0 ? head_tensors[i].rows : 1) * head_tensors[i].cols;
             k++, at += 2) {
            random = random * 1664525 + 1013904223;
            float x = (head_tensors[i].rows == 0) + ((float)(random >> 8) / (1 << 24) - 0.5f) / 4;
            dtype_store(file + at, DTYPE_BF16, 0, x);
        }
    files_write(dir, "model.safetensors", file, at);
    free(file);
}

static void write_head(const char *dir, int hidden)
{
    char config[500];
    (void)snprintf(config, sizeof config,
                   "{\"architectures\": [\"LlamaForCausalLMEagle3\"], \"model_type\": \"llama\", \"hidden_size\": %d, "
                   "\"intermediate_size\": 64, \"num_attention_heads\": 6, \"num_key_value_heads\": 2, "
                   "\"num_hidden_layers\": 1, \"vocab_size\": 2048, \"draft_vocab_size\": 700, \"torch_dtype\": "
                   "\"bfloat16\"}",
                   hidden);
    files_write_text(dir, "config.json", config);
    write_weights(dir);
}

static void same_texts_with_head(int ranks, const char *temperature)
{
    struct process plain, drafted;
    char dir[256], option[400];
    case_begin("generate on %d ranks at temperature %s: the same texts with a draft head", ranks, temperature);
    files_make_dir(dir);
    write_head(dir, HIDDEN);
    (void)snprintf(option, sizeof option, "{\"method\": \"eagle3\", \"model\": \"%s\", \"num_speculative_tokens\": 3}",
                   dir);
    generate(&plain, ranks, (const char *const[]){"--temperature", temperature, "--seed", "3", NULL});
    generate(&drafted, ranks,
             (const char *const[]){"--temperature", temperature, "--seed", "3", "--speculative-config", option,
                                   "--speculative", "always", NULL});
    case_check(plain.status == 0 && drafted.status == 0, "status %d and %d: %s", plain.status, drafted.status,
               drafted.text[PROCESS_ERR]);
    case_check(plain.bytes[PROCESS_OUT] > 100 && strcmp(plain.text[PROCESS_OUT], drafted.text[PROCESS_OUT]) == 0,
               "%s, expected %s", drafted.text[PROCESS_OUT], plain.text[PROCESS_OUT]);
    case_check(strstr(drafted.text[PROCESS_ERR], " drafts accepted in ") != NULL &&
                   strstr(drafted.text[PROCESS_ERR], "reads the inputs of layers 2, 3 and 3; 700 of 2048 tokens") !=
                       NULL,
               "drafts are not reported: %s", drafted.text[PROCESS_ERR]);
    process_free(&plain);
    process_free(&drafted);
    files_remove_dir(dir);
    case_end();
}

static void refused_config(const char *method, const char *folder, const char *why)
{
    struct process p;
    char option[400];
    case_begin("refused: %s", why);
    (void)snprintf(option, sizeof option, "{\"method\": \"%s\", \"model\": \"%s\", \"num_speculative_tokens\": 3}",
                   method, folder);
    generate(&p, 0, (const char *const[]){"--speculative-config", option, NULL});
    case_check(p.status != 0 && strstr(p.text[PROCESS_ERR], why) != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

/* option: a further one, or NULL. */
static void refused(const char *folder, const char *option, const char *why)
{
    struct process p;
    case_begin("refused: %s", why);
    generate(&p, 0, (const char *const[]){"--draft-model", folder, "--num-speculative-tokens", "2", option, NULL});
    case_check(p.status != 0 && strstr(p.text[PROCESS_ERR], why) != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

static void refused_heads(void)
{
    char dir[256];
    files_make_dir(dir);
    write_head(dir, HIDDEN);
    refused_config("draft_model", dir, "a head (EAGLE-3), expected a model for the method \"draft_model\"");
    refused_config("eagle3", models_demo(), "a model (llama), expected a head for the method \"eagle3\"");
    write_head(dir, 96);
    refused_config("eagle3", dir, "a head for a model of hidden size 96, found 192");
    write_head(dir, HIDDEN);
    refused(dir, "--draft-tensor-parallel-size=1", "is a head (EAGLE-3), which is on all ranks of its model");
    files_remove_dir(dir);
}

static int blocks_of(const struct process *p)
{
    int n = 0;
    const char *line = strstr(p->text[PROCESS_ERR], "KV cache: ");
    case_check(line != NULL && sscanf(line, "KV cache: %d blocks", &n) == 1, "no blocks: %s", p->text[PROCESS_ERR]);
    return n;
}

static void counted_memory(void)
{
    struct process plain, drafted;
    case_begin("a given KV cache memory holds half as many blocks of two models");
    generate(&plain, 0, (const char *const[]){"--kv-cache-memory-bytes", "300000", NULL});
    generate(&drafted, 0,
             (const char *const[]){"--kv-cache-memory-bytes", "300000", "--draft-model", models_demo(),
                                   "--num-speculative-tokens", "2", NULL});
    int n = blocks_of(&plain);
    case_check(n >= 4 && blocks_of(&drafted) == n / 2, "%d and %d blocks", n, blocks_of(&drafted));
    process_free(&plain);
    process_free(&drafted);
    case_end();
}

/* Makes a copy of the demo with two tokens exchanged. */
static void other_tokens(const char *dir)
{
    size_t bytes = 0;
    json_error_t e;
    char *text = files_read(models_demo(), "tokenizer.json", &bytes);
    json_t *file = json_loadb(text, bytes, 0, &e), *vocab = json_object_get(json_object_get(file, "model"), "vocab");
    json_t *a = json_incref(json_object_get(vocab, "a")), *b = json_incref(json_object_get(vocab, "b"));
    (void)json_object_set(vocab, "a", b);
    (void)json_object_set(vocab, "b", a);
    char *changed = json_dumps(file, JSON_COMPACT);
    files_copy(models_demo(), dir, "config.json");
    files_copy(models_demo(), dir, "model.safetensors");
    files_write_text(dir, "tokenizer.json", changed);
    json_decref(a);
    json_decref(b);
    json_decref(file);
    free(changed);
    free(text);
}

int main(void)
{
    char dir[256], small[256];
    same_texts(1, "1", "0");
    same_texts(2, "2", "0");
    same_texts(2, "1", "0.8");
    same_texts(3, "3", "0");
    same_texts(3, "2", "0");
    same_texts(3, "1", "0");
    refused(models_demo(), "--draft-tensor-parallel-size=2", "the model has 1 rank, expected at most as many");
    for (int ranks = 1; ranks <= 3; ranks++)
        same_texts_with_head(ranks, ranks == 2 ? "0.8" : "0");
    refused_heads();
    counted_memory();
    models_fixture(small, "llama-f16");
    refused(small, NULL, "a vocabulary of 109 tokens, expected the model's 2048");
    files_make_dir(dir);
    other_tokens(dir);
    refused(dir, NULL, "expected the model's \"a\"");
    refused("/nowhere", NULL, "/nowhere: cannot open the folder");
    files_remove_dir(dir);
    files_remove_dir(small);
    return cases_done();
}
