/* tests/e2e/test_prompt_logprobs.c - generate --prompt-logprobs: the scores of the prompt's tokens are log_softmax of
 * the logits of Hugging Face transformers, on 1 to 3 ranks, and do not depend on chunks or company. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES "tests/parity/fixtures"
#define TOP      3

/* The scores of transformers for the fixture's prompt. */
struct expected {
    char *file;
    const int32_t *prompt;
    const float *logits; /* [n.., vocab] */
    int n, vocab;
};

static struct expected read_expected(const char *name)
{
    char dir[256];
    struct expected x = {0};
    size_t bytes;
    long shape[2];
    (void)snprintf(dir, sizeof dir, "%s/%s", FIXTURES, name);
    x.file = files_read(dir, "expected.safetensors", &bytes);
    x.prompt = files_tensor(x.file, bytes, "prompt", shape);
    x.n = (int)shape[0];
    x.logits = files_tensor(x.file, bytes, "logits", shape);
    x.vocab = (int)shape[1];
    return x;
}

/* Returns the log-probability of id at this position: log_softmax of the logits. */
static double expect(const struct expected *x, int position, int id)
{
    const float *row = x->logits + (size_t)position * (size_t)x->vocab;
    double max = row[0], sum = 0;
    for (int i = 1; i < x->vocab; i++)
        max = fmax(max, row[i]);
    for (int i = 0; i < x->vocab; i++)
        sum += exp(row[i] - max);
    return row[id] - max - log(sum);
}

static int count_better(const struct expected *x, int position, int id)
{
    const float *row = x->logits + (size_t)position * (size_t)x->vocab;
    int n = 0;
    for (int i = 0; i < x->vocab; i++)
        n += row[i] > row[id] + 1e-3f;
    return n;
}

static bool is_close(const json_t *value, double want)
{
    return json_is_real(value) && fabs(json_real_value(value) - want) < 3e-3;
}

/* Checks entry i of the prompt's list. */
static void check_entry(const struct expected *x, int i, const json_t *entry)
{
    char *text = json_dumps(entry, JSON_COMPACT | JSON_ENCODE_ANY);
    const json_t *top = json_object_get(entry, "top");
    case_check(json_object_size(entry) == 3 && json_integer_value(json_object_get(entry, "token_id")) == x->prompt[i] &&
                   is_close(json_object_get(entry, "logprob"), expect(x, i - 1, x->prompt[i])) &&
                   json_array_size(top) == TOP,
               "entry %d: %s, expected id %d, %g", i, text, x->prompt[i], expect(x, i - 1, x->prompt[i]));
    for (int k = 0; k < TOP; k++) {
        const json_t *pair = json_array_get(top, (size_t)k);
        int id = (int)json_integer_value(json_array_get(pair, 0));
        case_check(id >= 0 && id < x->vocab && is_close(json_array_get(pair, 1), expect(x, i - 1, id)) &&
                       count_better(x, i - 1, id) <= k,
                   "entry %d, likeliest %d: %s", i, k, text);
    }
    free(text);
}

/* Parses line number `line` of the output; the caller frees it with json_decref. */
static json_t *read_line(const struct process *p, int line)
{
    const char *at = p->text[PROCESS_OUT];
    case_check(p->status == 0, "status %d: %s", p->status, p->text[PROCESS_ERR]);
    for (; line > 0 && at != NULL; line--)
        at = strchr(at, '\n') != NULL ? strchr(at, '\n') + 1 : NULL;
    json_t *o = at != NULL ? json_loadb(at, strcspn(at, "\n"), JSON_ALLOW_NUL, NULL) : NULL;
    case_check(o != NULL, "no such line: %s", p->text[PROCESS_OUT]);
    return o;
}

static void write_prompts(const char *dir, const struct expected *x, int n_before)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/prompts.jsonl", dir);
    FILE *f = fopen(path, "w");
    for (int i = 0; i <= n_before; i++) { /* shorter prompts with the same beginning, then the prompt itself */
        int n = i == n_before ? x->n : 1 + i * 3 % x->n;
        for (int k = 0; k < n; k++)
            (void)fprintf(f, "%s%d", k == 0 ? "{\"prompt\": [" : ", ", x->prompt[k]);
        (void)fprintf(f, "]}\n");
    }
    (void)fclose(f);
}

/* Obtains the scores of the fixture's prompt, alone or after 7 others, in chunks. */
static json_t *scores(const char *dir, const struct expected *x, int ranks, const char *batch_tokens, bool in_company)
{
    char path[400];
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    write_prompts(dir, x, in_company ? 7 : 0);
    (void)snprintf(path, sizeof path, "%s/prompts.jsonl", dir);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompts", path, "--max-tokens", "3", "--ignore-eos",
                                 "--json", "--prompt-logprobs", "3", "--max-batch", "4", "--max-batch-tokens",
                                 batch_tokens, NULL});
    json_t *o = read_line(&p, in_company ? 7 : 0), *list = json_incref(json_object_get(o, "prompt_logprobs"));
    case_check(json_object_get(o, "logprobs") == NULL, "logprobs without being asked for");
    json_decref(o);
    process_free(&p);
    return list;
}

static void check_fixture(const char *name, int ranks)
{
    char dir[256];
    struct expected x = read_expected(name);
    models_fixture(dir, name);
    case_begin("scores of %s's prompt on %d rank(s)", name, ranks);
    json_t *list = scores(dir, &x, ranks, "512", false);
    case_check((int)json_array_size(list) == x.n && json_is_null(json_array_get(list, 0)), "%zu entries, expected %d",
               json_array_size(list), x.n);
    for (int i = 1; i < x.n && i < (int)json_array_size(list); i++)
        check_entry(&x, i, json_array_get(list, (size_t)i));
    json_t *chunks = scores(dir, &x, ranks, "5", false), *company = scores(dir, &x, ranks, "16", true);
    case_check(json_equal(chunks, list), "the scores differ in chunks of 5");
    case_check(json_equal(company, list), "the scores differ in company");
    case_end();
    json_decref(list);
    json_decref(chunks);
    json_decref(company);
    free(x.file);
    files_remove_dir(dir);
}

/* A prompt of one token has nothing to score, nor does one that does not run. */
static void edges(void)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    char dir[256];
    models_fixture(dir, "llama-7-1-tied");
    case_begin("scores of one token, and of a prompt that does not run");
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "7", "--max-tokens", "2", "--json",
                                 "--prompt-logprobs", "0", NULL});
    json_t *o = read_line(&p, 0), *list = json_object_get(o, "prompt_logprobs");
    case_check(json_array_size(list) == 1 && json_is_null(json_array_get(list, 0)), "%s", p.text[PROCESS_OUT]);
    json_decref(o);
    process_free(&p);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "7,8,9", "--max-tokens", "100000",
                                 "--json", "--prompt-logprobs", "0", "--max-model-len", "50", NULL});
    case_check(p.status == 1 && strstr(p.text[PROCESS_OUT], "\"prompt_logprobs\":[]") != NULL, "status %d: %s",
               p.status, p.text[PROCESS_OUT]);
    process_free(&p);
    case_end();
    files_remove_dir(dir);
}

int main(void)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        check_fixture("llama-14-2-gelu", ranks);
        check_fixture("gpt2-5h-noprefix-buffers", ranks);
    }
    edges();
    return cases_done();
}
