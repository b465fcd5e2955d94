/* tests/e2e/test_draft_models.c - `generate` with a draft model gives the texts that it gives without, on 1 to 3 ranks;
 * memory is counted for both models; what does not fit together is refused by name. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SAME 12 /* arguments that all runs share */

/* The demo on so many ranks; extra: further arguments, NULL at the end. The caller frees p. */
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

static void same_texts(int ranks, const char *temperature)
{
    struct process plain, drafted;
    const char *accepted;
    int n_accepted = 0, n_drafts = 1;
    case_begin("generate on %d ranks at temperature %s: the same texts with a draft model", ranks, temperature);
    generate(&plain, ranks, (const char *const[]){"--temperature", temperature, "--seed", "3", NULL});
    generate(&drafted, ranks,
             (const char *const[]){"--temperature", temperature, "--seed", "3", "--draft-model", models_demo(),
                                   "--num-speculative-tokens", "4", "--speculative", "always", NULL});
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
    case_begin("a given memory for keys and values holds half as many blocks of two models");
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

static void refused(const char *folder, const char *why)
{
    struct process p;
    case_begin("refused: %s", why);
    generate(&p, 0, (const char *const[]){"--draft-model", folder, "--num-speculative-tokens", "2", NULL});
    case_check(p.status != 0 && strstr(p.text[PROCESS_ERR], why) != NULL, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

/* The demo with two tokens exchanged. */
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
    for (int ranks = 1; ranks <= 3; ranks++)
        same_texts(ranks, "0");
    same_texts(2, "0.8");
    counted_memory();
    models_fixture(small, "llama-f16");
    refused(small, "a vocabulary of 109 tokens, expected the model's 2048");
    files_make_dir(dir);
    other_tokens(dir);
    refused(dir, "expected the model's \"a\"");
    refused("/nowhere", "/nowhere: cannot open the folder");
    files_remove_dir(dir);
    files_remove_dir(small);
    return cases_done();
}
