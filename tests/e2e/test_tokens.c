/* tests/e2e/test_tokens.c - the program's output, on 1 to 4 ranks: the greedy tokens of Hugging Face transformers, the
 * form of every JSON line, log-probabilities, stop rules, biases, characters split over tokens. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_NEW     32
#define MAX_LINES 16

/* The JSON lines of a successful run. */
struct lines {
    json_t *object[MAX_LINES];
    int n;
};

static struct lines read_lines(const struct process *p)
{
    struct lines l = {{NULL}, 0};
    case_check(p->status == 0, "status %d: %s", p->status, p->text[PROCESS_ERR]);
    case_check(p->bytes[PROCESS_ERR] == 0, "standard error: %s", p->text[PROCESS_ERR]);
    for (const char *line = p->text[PROCESS_OUT]; *line != '\0' && l.n < MAX_LINES;) {
        size_t n = strcspn(line, "\n");
        json_error_t error;
        json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, &error);
        if (!case_check(o != NULL && line[n] == '\n', "not a line of JSON (%s): %s", error.text, line))
            break;
        l.object[l.n++] = o;
        line += n + 1;
    }
    return l;
}

static void free_lines(struct lines *l)
{
    for (int i = 0; i < l->n; i++)
        json_decref(l->object[i]);
}

static bool is_ids(const json_t *list)
{
    size_t i;
    json_t *id;
    if (!json_is_array(list))
        return false;
    json_array_foreach(list, i, id) if (!json_is_integer(id) || json_integer_value(id) < 0) return false;
    return true;
}

/* A line has exactly these members, with these types. */
static void check_schema(const json_t *o, int index, bool with_logprobs)
{
    char *text = json_dumps(o, JSON_COMPACT);
    const char *reason = json_string_value(json_object_get(o, "finish_reason"));
    case_check(json_integer_value(json_object_get(o, "index")) == index, "index is not %d: %s", index, text);
    case_check(is_ids(json_object_get(o, "prompt_ids")) && is_ids(json_object_get(o, "token_ids")), "ids: %s", text);
    case_check(json_is_string(json_object_get(o, "text")), "text: %s", text);
    case_check(reason != NULL && (strcmp(reason, "stop") == 0 || strcmp(reason, "length") == 0), "finish_reason: %s",
               text);
    case_check(json_object_size(o) == (with_logprobs ? 6 : 5), "members: %s", text);
    case_check((json_object_get(o, "logprobs") != NULL) == with_logprobs, "logprobs: %s", text);
    free(text);
}

static bool same_ids(const json_t *list, const int32_t *ids, size_t n)
{
    if (json_array_size(list) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(list, i)) != ids[i])
            return false;
    return true;
}

static void ids_text(char *text, size_t bytes, const int32_t *ids, int n)
{
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", i > 0 ? "," : "", (int)ids[i]);
}

/* Checks the greedy tokens of a fixture. All runs are concurrent: the launcher takes most of the time. */
static void fixture_tokens(const char *name)
{
    char dir[256], ids[2000];
    int32_t *prompt, *tokens;
    int n;
    struct process p[4];
    models_fixture(dir, name);
    models_expected(name, &prompt, &n, &tokens);
    ids_text(ids, sizeof ids, prompt, n);
    for (int k = 0; k < 4; k++) {
        struct process_setup setup = {.ranks = k + 1};
        process_start(&p[k], &setup,
                      (const char *[]){"generate", "--model", dir, "--prompt-ids", ids, "--max-tokens", "32",
                                       "--ignore-eos", "--json", "--max-batch-tokens", k % 2 == 0 ? "512" : "17",
                                       NULL});
    }
    for (int k = 0; k < 4; k++) {
        process_wait(&p[k]);
        case_begin("greedy tokens of %s on %d ranks", name, k + 1);
        struct lines l = read_lines(&p[k]);
        if (case_check(l.n == 1, "%d lines", l.n)) {
            check_schema(l.object[0], 0, false);
            case_check(same_ids(json_object_get(l.object[0], "prompt_ids"), prompt, (size_t)n),
                       "the prompt ids differ: %s", p[k].text[PROCESS_OUT]);
            case_check(same_ids(json_object_get(l.object[0], "token_ids"), tokens, N_NEW), "other tokens: %s",
                       p[k].text[PROCESS_OUT]);
        }
        case_end();
        free_lines(&l);
        process_free(&p[k]);
    }
    free(prompt);
    free(tokens);
    files_remove_dir(dir);
}

/* Checks an entry of logprobs: the chosen token's value, and the K likeliest tokens in order. */
static void check_logprob(const json_t *entry, int32_t token, int k)
{
    const json_t *top = json_object_get(entry, "top");
    double chosen = json_number_value(json_object_get(entry, "logprob")), before = 1;
    char *text = json_dumps(entry, JSON_COMPACT);
    case_check(json_integer_value(json_object_get(entry, "token_id")) == token && json_object_size(entry) == 3 &&
                   chosen <= 0,
               "token %d: %s", (int)token, text);
    case_check((int)json_array_size(top) == k, "not %d in top: %s", k, text);
    for (int i = 0; i < k; i++) {
        const json_t *pair = json_array_get(top, (size_t)i);
        double x = json_number_value(json_array_get(pair, 1));
        case_check(json_array_size(pair) == 2 && json_is_integer(json_array_get(pair, 0)) && x <= before && x <= 0,
                   "top is not sorted: %s", text);
        if (json_integer_value(json_array_get(pair, 0)) == token)
            case_check(x == chosen, "the token's value in top differs: %s", text);
        before = x;
    }
    free(text);
}

/* Tells whether two values of different runs are nearly equal. */
static bool near(const json_t *a, const json_t *b)
{
    return fabs(json_number_value(a) - json_number_value(b)) <= 1e-4;
}

/* The tokens and log-probabilities equal those of the run on one rank, position by position. */
static void compare_logprobs(const json_t *one, const json_t *other)
{
    const json_t *a = json_object_get(one, "logprobs"), *b = json_object_get(other, "logprobs");
    case_check(json_equal(json_object_get(one, "token_ids"), json_object_get(other, "token_ids")), "the tokens differ");
    if (!case_check(json_array_size(a) == json_array_size(b), "the number of logprobs differs"))
        return;
    for (size_t i = 0; i < json_array_size(a); i++) {
        const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
        bool alike = near(json_object_get(x, "logprob"), json_object_get(y, "logprob"));
        const json_t *tx = json_object_get(x, "top"), *ty = json_object_get(y, "top");
        for (size_t k = 0; k < json_array_size(tx); k++)
            alike = alike && near(json_array_get(json_array_get(tx, k), 1), json_array_get(json_array_get(ty, k), 1));
        case_check(alike, "logprobs differ at position %zu", i);
    }
}

static void logprobs(void)
{
    char dir[256], ids[2000];
    int32_t *prompt, *tokens;
    int n;
    struct process p[4];
    struct lines l[4];
    models_fixture(dir, "qwen2-tied");
    models_expected("qwen2-tied", &prompt, &n, &tokens);
    ids_text(ids, sizeof ids, prompt, n);
    for (int k = 0; k < 4; k++) {
        struct process_setup setup = {.ranks = k + 1};
        process_start(&p[k], &setup,
                      (const char *[]){"generate", "--model", dir, "--prompt-ids", ids, "--max-tokens", "12", "--json",
                                       "--ignore-eos", "--logprobs", "5", NULL});
    }
    for (int k = 0; k < 4; k++) {
        process_wait(&p[k]);
        case_begin("log-probabilities on %d ranks", k + 1);
        l[k] = read_lines(&p[k]);
        if (case_check(l[k].n == 1, "%d lines", l[k].n)) {
            check_schema(l[k].object[0], 0, true);
            const json_t *list = json_object_get(l[k].object[0], "logprobs");
            case_check(json_array_size(list) == 12, "%zu logprobs", json_array_size(list));
            for (size_t i = 0; i < json_array_size(list); i++) {
                check_logprob(json_array_get(list, i), tokens[i], 5);
                const json_t *best = json_array_get(json_object_get(json_array_get(list, i), "top"), 0);
                case_check(json_integer_value(json_array_get(best, 0)) == tokens[i],
                           "the greedy token is not the likeliest");
            }
            if (l[0].n == 1)
                compare_logprobs(l[0].object[0], l[k].object[0]);
        }
        case_end();
    }
    for (int k = 0; k < 4; k++) {
        free_lines(&l[k]);
        process_free(&p[k]);
    }
    free(prompt);
    free(tokens);
    files_remove_dir(dir);
}

/* ---- rules, on a fixture with known greedy tokens ---- */

#define RULES "qwen2-tied" /* greedy: 58 32 5 17 80 5 79 4 ..; the tokenizer's id i is the character ' ' + i */

struct rule {
    const char *name;
    const char *arguments[8];
    int n_tokens; /* number of expected tokens */
    const char *text, *reason;
    int first; /* expected first token, -1: any */
};

static char characters[N_NEW + 1]; /* text of the greedy tokens */

static void check_rule(const char *dir, const char *ids, const struct rule *r, int ranks)
{
    const char *argument[24] = {"generate", "--model", dir, "--prompt-ids", ids, "--json"};
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    for (int i = 0; i < 8 && r->arguments[i] != NULL; i++)
        argument[6 + i] = r->arguments[i];
    case_begin("%s", r->name);
    process_run(&p, &setup, argument);
    struct lines l = read_lines(&p);
    if (case_check(l.n == 1, "%d lines", l.n)) {
        const json_t *o = l.object[0], *tokens = json_object_get(o, "token_ids");
        const char *text = json_string_value(json_object_get(o, "text"));
        const char *reason = json_string_value(json_object_get(o, "finish_reason"));
        check_schema(o, 0, false);
        case_check((int)json_array_size(tokens) == r->n_tokens, "%zu tokens, expected %d: %s", json_array_size(tokens),
                   r->n_tokens, p.text[PROCESS_OUT]);
        case_check(r->text == NULL || (text != NULL && strcmp(text, r->text) == 0), "text \"%s\", expected \"%s\"",
                   text != NULL ? text : "none", r->text);
        case_check(reason != NULL && strcmp(reason, r->reason) == 0, "%s, expected %s",
                   reason != NULL ? reason : "none", r->reason);
        case_check(r->first < 0 || json_integer_value(json_array_get(tokens, 0)) == r->first, "begins otherwise: %s",
                   p.text[PROCESS_OUT]);
    }
    case_end();
    free_lines(&l);
    process_free(&p);
}

static void rules(void)
{
    char dir[256], ids[2000], eos[16], bias[64], stop_id[16], five[8] = "", upto[8] = "", three[8] = "", four[8] = "";
    int32_t *prompt, *tokens;
    int n;
    models_fixture(dir, RULES);
    models_expected(RULES, &prompt, &n, &tokens);
    ids_text(ids, sizeof ids, prompt, n);
    for (int i = 0; i < N_NEW; i++)
        characters[i] = (char)(tokens[i] < 95 ? ' ' + tokens[i] : '?');
    (void)snprintf(eos, sizeof eos, "%d", (int)tokens[4]); /* 80: the first one at position 4 */
    (void)snprintf(stop_id, sizeof stop_id, "%d", (int)tokens[3]);
    (void)snprintf(bias, sizeof bias, "7:1000,%d:-1000", (int)tokens[0]);
    const char stop[3] = {characters[3], characters[4], '\0'}; /* over two tokens */
    memcpy(five, characters, 5);
    memcpy(upto, characters, 5);
    memcpy(three, characters, 3);
    memcpy(four, characters, 4);
    models_edit(dir, "config.json", "eos_token_id", eos);
    const struct rule table[] = {
        {"one token", {"--max-tokens", "1", NULL}, 1, NULL, "length", tokens[0]},
        {"the end of text ends it", {"--max-tokens", "9", NULL}, 5, NULL, "stop", tokens[0]},
        {"--ignore-eos continues", {"--max-tokens", "9", "--ignore-eos", NULL}, 9, NULL, "length", tokens[0]},
        {"--stop over two tokens", {"--ignore-eos", "--max-tokens", "9", "--stop", stop, NULL}, 5, three, "stop", -1},
        {"--include-stop-str-in-output",
         {"--ignore-eos", "--max-tokens", "9", "--stop", stop, "--include-stop-str-in-output", NULL},
         5,
         upto,
         "stop",
         -1},
        {"--stop that never occurs leaves the whole text",
         {"--max-tokens", "5", "--ignore-eos", "--stop", "never", NULL},
         5,
         five,
         "length",
         -1},
        {"--stop-token-ids",
         {"--ignore-eos", "--max-tokens", "9", "--stop-token-ids", stop_id, NULL},
         4,
         NULL,
         "stop",
         -1},
        {"--logit-bias", {"--ignore-eos", "--max-tokens", "4", "--logit-bias", bias, NULL}, 4, "''''", "length", 7},
        {"--seed changes nothing without sampling", {"--max-tokens", "4", "--seed", "99", NULL}, 4, four, "length", -1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        check_rule(dir, ids, &table[i], 1 + (int)(i % 3));
    const struct rule longer = {"--min-tokens forbids the end of text",
                                {"--max-tokens", "9", "--min-tokens", "9", NULL},
                                9,
                                NULL,
                                "length",
                                tokens[0]};
    check_rule(dir, ids, &longer, 2);
    free(prompt);
    free(tokens);
    files_remove_dir(dir);
}

/* The first two greedy tokens become the two bytes of one character, the fourth becomes half of another. */
static void split_characters(void)
{
    char dir[256], ids[2000];
    int32_t *prompt, *tokens;
    int n;
    struct process p;
    models_fixture(dir, RULES);
    models_expected(RULES, &prompt, &n, &tokens);
    ids_text(ids, sizeof ids, prompt, n);
    const int fixed[][2] = {{tokens[0], 0xc3}, {tokens[1], 0xa9}, {tokens[3], 0xe2}};
    models_write_tokenizer(dir, 97, fixed, 3);
    for (int k = 0; k < 2; k++) {
        struct process_setup setup = {.ranks = 2};
        case_begin("a character of two tokens, %s", k == 0 ? "JSON" : "streamed");
        process_run(&p, &setup,
                    (const char *[]){"generate", "--model", dir, "--prompt-ids", ids, "--max-tokens", "4",
                                     "--ignore-eos", k == 0 ? "--json" : "--progress", k == 0 ? NULL : "always", NULL});
        char want[40];
        const char third = (char)(' ' + tokens[2]);
        (void)snprintf(want, sizeof want, "\xc3\xa9%c\xef\xbf\xbd%s", third, k == 0 ? "" : "\n");
        json_t *o = k == 0 ? json_loads(p.text[PROCESS_OUT], 0, NULL) : NULL;
        const char *text = k == 0 ? json_string_value(json_object_get(o, "text")) : p.text[PROCESS_OUT];
        case_check(text != NULL && strcmp(text, want) == 0, "\"%s\", expected \"%s\"", text != NULL ? text : "none",
                   want);
        case_end();
        json_decref(o);
        process_free(&p);
    }
    free(prompt);
    free(tokens);
    files_remove_dir(dir);
}

int main(void)
{
    static const char *const fixtures[] = {"llama-7-1-tied", "gpt2-3h", "neox-parallel", "bloom-6h-bf16"};
    for (size_t i = 0; i < sizeof fixtures / sizeof fixtures[0]; i++)
        fixture_tokens(fixtures[i]);
    logprobs();
    rules();
    split_characters();
    return cases_done();
}
