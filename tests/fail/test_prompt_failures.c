/* tests/fail/test_prompt_failures.c - a prompt that cannot run fails under its own name, the others finish, and the
 * status is 1. */
#include "base/err.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Expects status 1 and one line "lockstep: ...", not a fatal one, with these words. */
static void check_one_failed(const struct process *p, const char *word, const char *other)
{
    const char *line = p->text[PROCESS_ERR];
    case_check(p->status == ERR_REQUEST, "status %d, expected %d", p->status, ERR_REQUEST);
    case_check(process_count_lines(line) == 1 && strncmp(line, "lockstep: ", 10) == 0 && strstr(line, "fatal") == NULL,
               "standard error is not one line about a prompt: %s", line);
    case_check(strstr(line, word) != NULL && strstr(line, other) != NULL, "\"%s\" or \"%s\" is not in: %s", word, other,
               line);
    case_check(p->n_left == 0, "%d processes are left running", p->n_left);
}

/* The second of three prompts is longer than the model's learned positions. */
static void too_long_among_others(int ranks, bool as_json)
{
    char dir[256], file[300], text[1000] = "{\"prompt\": [1, 2, 3]}\n{\"prompt\": [5", first[64] = "";
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    for (int i = 0; i < 59; i++)
        strcat(text, ", 5");
    strcat(text, "]}\n{\"prompt\": \"abc\"}\n");
    models_fixture(dir, "gpt2-3h");
    files_write(dir, "three.jsonl", text, strlen(text));
    (void)snprintf(file, sizeof file, "%s/three.jsonl", dir);
    case_begin("one prompt of three is too long, %d ranks%s", ranks, as_json ? ", JSON" : "");
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompts", file, "--max-tokens", "5", "--ignore-eos",
                                 as_json ? "--json" : NULL, NULL});
    check_one_failed(&p, "three.jsonl: line 2: 60 prompt tokens + --max-tokens 5 = 65", "the model has 64 positions");
    if (as_json) {
        static const char *const reasons[] = {"length", "error", "length"};
        const char *line = p.text[PROCESS_OUT];
        for (int i = 0; i < 3; i++) {
            json_t *o = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
            const char *reason = json_string_value(json_object_get(o, "finish_reason"));
            size_t n = json_array_size(json_object_get(o, "token_ids"));
            const char *error = json_string_value(json_object_get(o, "error"));
            case_check(json_integer_value(json_object_get(o, "index")) == i && reason != NULL &&
                           strcmp(reason, reasons[i]) == 0 && n == (i == 1 ? 0 : 5),
                       "line %d: %s", i, line);
            case_check((error != NULL) == (i == 1) && (error == NULL || strstr(error, "64 positions") != NULL),
                       "line %d: %s", i, line);
            json_decref(o);
            line += strcspn(line, "\n");
            line += *line == '\n';
        }
        case_check(*line == '\0', "more lines: %s", line);
    } else {
        (void)snprintf(first, sizeof first, "==> prompt 1 of 3 <==\n");
        case_check(strncmp(p.text[PROCESS_OUT], first, strlen(first)) == 0 &&
                       strstr(p.text[PROCESS_OUT], "\n==> prompt 3 of 3 <==\nabc") != NULL,
                   "standard output: %s", p.text[PROCESS_OUT]);
    }
    case_end();
    process_free(&p);
    files_remove_dir(dir);
}

/* Arguments that lead to one failed prompt and no output. All cases run concurrently. */
static void single_prompts(void)
{
    char dir[256];
    const char *demo = models_demo();
    models_fixture(dir, "gpt2-3h");
    models_edit(dir, "tokenizer.json", "added_tokens",
                "[{\"content\": \"<far>\", \"id\": 5000, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                "\"normalized\": false, \"special\": true}]");
    models_edit(dir, "config.json", "bos_token_id", "null");
    const struct {
        const char *name, *model, *arguments[8], *words[2];
    } table[] = {
        {"more tokens than the model has positions",
         dir,
         {"--prompt-ids", "1,2,3", "--max-tokens", "62", NULL},
         {"prompt: 3 prompt tokens + --max-tokens 62 = 65", "the model has 64 positions"}},
        {"a prompt of no token", dir, {"--prompt", "", NULL}, {"the prompt is empty", "at least one token"}},
        {"a token that the model does not have",
         dir,
         {"--prompt", "a<far>", NULL},
         {"gives id 5000", "the model has 97"}},
        {"a prompt that is not UTF-8",
         demo,
         {"--prompt", "Once\xff", "--max-tokens", "5", NULL},
         {"not valid UTF-8: byte 0xFF", "offset 4"}},
        {"more tokens than --max-model-len",
         demo,
         {"--prompt-ids", "5,6,7", "--max-tokens", "40", "--max-model-len", "42", NULL},
         {"3 prompt tokens + --max-tokens 40 = 43", "--max-model-len 42"}},
        {"more tokens than the KV cache holds",
         demo,
         {"--prompt-ids", "5,6,7", "--max-tokens", "400", "--kv-cache-memory-bytes", "200K", NULL},
         {"3 prompt tokens + --max-tokens 400 = 403", "the KV cache holds"}},
    };
    enum { N = sizeof table / sizeof table[0] };
    struct process p[N];
    for (int i = 0; i < N; i++) {
        const char *argument[12] = {"generate", "--model", table[i].model};
        struct process_setup setup = {.ranks = 2};
        for (int k = 0; k < 8 && table[i].arguments[k] != NULL; k++)
            argument[3 + k] = table[i].arguments[k];
        process_start(&p[i], &setup, argument);
    }
    for (int i = 0; i < N; i++) {
        case_begin("%s", table[i].name);
        process_wait(&p[i]);
        check_one_failed(&p[i], table[i].words[0], table[i].words[1]);
        case_check(p[i].bytes[PROCESS_OUT] == 0, "standard output: %s", p[i].text[PROCESS_OUT]);
        case_end();
        process_free(&p[i]);
    }
    files_remove_dir(dir);
}

/* With less than one block of 16 tokens there is no cache: the start fails. */
static void no_cache(int ranks)
{
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    case_begin("a KV cache smaller than a block, %d ranks", ranks);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", models_demo(), "--prompt", "Once", "--kv-cache-memory-bytes",
                                 "1K", NULL});
    case_check(p.status == ERR_MEMORY, "status %d, expected %d", p.status, ERR_MEMORY);
    case_check(process_count_lines(p.text[PROCESS_ERR]) == 1 &&
                   strstr(p.text[PROCESS_ERR], "KV cache: 16 tokens need ") != NULL &&
                   strstr(p.text[PROCESS_ERR], "1024 are available (--kv-cache-memory-bytes)") != NULL,
               "standard error: %s", p.text[PROCESS_ERR]);
    case_check(p.n_left == 0, "%d processes are left running", p.n_left);
    case_end();
    process_free(&p);
}

int main(void)
{
    too_long_among_others(1, true);
    too_long_among_others(3, true);
    too_long_among_others(3, false);
    single_prompts();
    no_cache(1);
    no_cache(3);
    return cases_done();
}
