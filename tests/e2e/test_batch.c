/* tests/e2e/test_batch.c - `lockstep batch` from outside: forms of input lines and their results, standard input and
 * output, patterns, bad lines, duplicates. On one, two and three ranks. */
#include "tests/support/batching.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[256];

/* Returns the member of a result at a path "a/b/0/c". */
static const json_t *at(const struct batch_results *r, const char *id, const char *path)
{
    const json_t *value = json_object_get(r->by_id, id);
    char key[64];
    while (value != NULL && *path != '\0') {
        size_t n = strcspn(path, "/");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, path);
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(key)) : json_object_get(value, key);
        path += n + (path[n] == '/');
    }
    return value;
}

static const char *text_at(const struct batch_results *r, const char *id, const char *path)
{
    const char *text = json_string_value(at(r, id, path));
    return text != NULL ? text : "";
}

static long long number_at(const struct batch_results *r, const char *id, const char *path)
{
    return json_integer_value(at(r, id, path));
}

/* ---- forms of lines ---- */

static const char mixed[] =
    "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"lockstep-stories\","
    "\"prompt\":\"Once upon a time\",\"max_tokens\":6,\"temperature\":0,\"logprobs\":2,\"return_token_ids\":true}}\n"
    "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/chat/"
    "completions\",\"body\":{\"messages\":[{\"role\":\"user\","
    "\"content\":\"Tell me of a "
    "dragon\"}],\"max_tokens\":5,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":1,\"prompt_logprobs\":1}}\n"
    "\n"
    "{\"prompt\":\"Long ago\",\"n\":2,\"max_tokens\":4,\"id\":17,\"echo\":true}\n"
    "{\"prompt\":[\"Once\",\"Long\"],\"max_tokens\":3,\"temperature\":0}\n"
    "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\",\"top_p\":3}}\n"
    "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\"}}\n"
    "{\"prompt\":\"x\",\"stream\":true}\n"
    "not JSON\n"
    "{\"prompt\":\"Once\",\"max_tokens\":100000,\"id\":\"long\"}\n"
    "{\"custom_id\":\"long body\",\"method\":\"POST\",\"url\":\"/v1/completions\","
    "\"body\":{\"prompt\":\"Once\",\"max_tokens\":100000}}\n";

static void check_good(const struct batch_results *r, const char *made)
{
    case_check(number_at(r, "a", "response/status_code") == 200 && json_is_null(at(r, "a", "error")) &&
                   strncmp(text_at(r, "a", "id"), "batch_req_", 10) == 0 &&
                   strcmp(text_at(r, "a", "response/body/object"), "text_completion") == 0 &&
                   strcmp(text_at(r, "a", "response/body/model"), "lockstep-stories") == 0 &&
                   strcmp(text_at(r, "a", "response/body/choices/0/finish_reason"), "length") == 0 &&
                   json_array_size(at(r, "a", "response/body/choices/0/logprobs/tokens")) == 6 &&
                   json_array_size(at(r, "a", "response/body/choices/0/logprobs/token_logprobs")) == 6 &&
                   json_object_size(at(r, "a", "response/body/choices/0/logprobs/top_logprobs/0")) == 2 &&
                   json_array_size(at(r, "a", "response/body/choices/0/token_ids")) == 6 &&
                   json_array_size(at(r, "a", "response/body/choices/0/prompt_token_ids")) == 5 &&
                   strlen(text_at(r, "a", "response/body/choices/0/text")) > 5,
               "the completion");
    case_check(number_at(r, "a", "response/body/usage/completion_tokens") == 6 &&
                   number_at(r, "a", "response/body/usage/total_tokens") ==
                       6 + number_at(r, "a", "response/body/usage/prompt_tokens") &&
                   json_real_value(at(r, "a", "response/body/timing/total_ms")) > 0,
               "its usage and timing");
    case_check(strcmp(text_at(r, "b", "response/body/object"), "chat.completion") == 0 &&
                   strcmp(text_at(r, "b", "response/body/choices/0/message/role"), "assistant") == 0 &&
                   strlen(text_at(r, "b", "response/body/choices/0/message/content")) > 0 &&
                   json_array_size(at(r, "b", "response/body/choices/0/logprobs/content")) == 5 &&
                   (long long)json_array_size(at(r, "b", "response/body/prompt_logprobs")) ==
                       number_at(r, "b", "response/body/usage/prompt_tokens"),
               "the chat: %s", text_at(r, "b", "error/message"));
    case_check(json_is_integer(at(r, "17", "custom_id")) &&
                   json_array_size(at(r, "17", "response/body/choices")) == 2 &&
                   strncmp(text_at(r, "17", "response/body/choices/1/text"), "Long ago", 8) == 0 &&
                   number_at(r, "17", "response/body/usage/completion_tokens") == 8,
               "n = 2 with echo");
    case_check(json_array_size(at(r, made, "response/body/choices")) == 2, "two prompts in a line without an id");
}

/* The error names file, line and field. */
static void check_error(const struct batch_results *r, const char *id, int code, const char *field, const char *part)
{
    const char *message = text_at(r, id, "error/message"), *param = text_at(r, id, "error/param");
    case_check(number_at(r, id, "response/status_code") == code && json_is_null(at(r, id, "response/body")) &&
                   strcmp(param, field) == 0 && strstr(message, part) != NULL &&
                   strstr(message, "in.jsonl: line") != NULL,
               "%s: %lld, %s: %s", id, number_at(r, id, "response/status_code"), param, message);
}

static void formats(int ranks)
{
    struct process p;
    struct batch_results r;
    char made[300], last[300], bad[300];
    case_begin("batch: OpenAI lines, plain and bad ones on %d ranks", ranks);
    files_write_text(dir, "in.jsonl", mixed);
    batching_forget(dir, "out.jsonl");
    BATCHING_RUN(&p, dir, ranks, NULL, "--input", "@in.jsonl", "--output", "@out.jsonl");
    (void)snprintf(made, sizeof made, "%s/in.jsonl:5", dir);
    (void)snprintf(last, sizeof last, "%s/in.jsonl:8", dir);
    (void)snprintf(bad, sizeof bad, "%s/in.jsonl:9", dir);
    batching_read(&r, dir, "out.jsonl");
    case_check(p.status == 1, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(r.n == 9 && r.n_twice == 0 && r.n_strange == 0 && r.torn == 0, "%d results, %d twice, %d unexpected",
               r.n, r.n_twice, r.n_strange);
    check_good(&r, made);
    check_error(&r, "c", 400, "body.top_p", "found 3");
    check_error(&r, last, 400, "stream", "whole results");
    check_error(&r, bad, 400, "", "line 9: text: not valid JSON");
    check_error(&r, "long", 413, "max_tokens", "100000");
    check_error(&r, "long body", 413, "body.max_tokens", "100000");
    case_check(strstr(p.text[PROCESS_ERR], "line 7: id \"a\" is that of") != NULL &&
                   strstr(p.text[PROCESS_ERR], "line 1; it is not run again") != NULL,
               "the duplicate: %s", p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

/* Texts, sampled ones too, are the same on every number of ranks, in any batch, in both forms of results. */
static void same_texts(void)
{
    struct batch_results first = {0};
    batching_prompts(dir, "many.jsonl", 40, 12);
    for (int ranks = 1; ranks <= 3; ranks++) {
        struct process p;
        struct batch_results r;
        case_begin("batch: the same texts on %d ranks", ranks);
        batching_forget(dir, "many.out");
        BATCHING_RUN(&p, dir, ranks, NULL, "--input", "@many.jsonl", "--output", "@many.out", "--seed", "3",
                     "--temperature", "0.9", "--max-batch", ranks == 1 ? "3" : "32",
                     ranks == 2 ? "--ordered" : "--plain");
        batching_read(&r, dir, "many.out");
        case_check(p.status == 0 && r.n == 40 && r.n_twice == 0, "status %d, %d results: %s", p.status, r.n,
                   p.text[PROCESS_ERR]);
        if (ranks == 1)
            first = r;
        else
            case_check(batching_differences(&r, &first) == 0, "%d texts differ", batching_differences(&r, &first));
        int unordered = 0, same = 0;
        for (int i = 0; i < r.n; i++)
            unordered += atoi(r.order[i] + 1) != i;
        for (int i = 4; ranks == 1 && i < 40; i += 4) { /* every fourth prompt is the same, with another seed */
            char id[16];
            (void)snprintf(id, sizeof id, "r%d", i);
            same += strcmp(text_at(&r, id, "text"), text_at(&r, "r0", "text")) == 0;
        }
        case_check(ranks != 2 || unordered == 0, "%d results are out of order", unordered);
        case_check(same < 9, "requests with different ids got the same text");
        if (ranks > 1)
            batching_free(&r);
        process_free(&p);
        case_end();
    }
    batching_free(&first);
}

/* ---- files ---- */

static void streams(void)
{
    struct process p;
    case_begin("batch: standard input to standard output");
    BATCHING_RUN(&p, dir, 2,
                 "{\"prompt\":\"Once\",\"max_tokens\":3}\n{\"prompt\":\"Long\",\"max_tokens\":3,\"id\":\"x\"}",
                 "--input", "-", "--output", "-", "--plain");
    case_check(p.status == 0 && process_count_lines(p.text[PROCESS_OUT]) == 2 &&
                   strstr(p.text[PROCESS_OUT], "{\"id\":\"stdin:1\",\"text\":\"") != NULL &&
                   strstr(p.text[PROCESS_OUT], "{\"id\":\"x\",\"text\":\"") != NULL,
               "status %d: %s%s", p.status, p.text[PROCESS_OUT], p.text[PROCESS_ERR]);
    const char *ms = strstr(p.text[PROCESS_OUT], "\"total_ms\":");
    size_t digits = ms != NULL ? strspn(ms + 11, "0123456789") : 0, more = digits > 0 && ms[11 + digits] == '.';
    more += more > 0 ? strspn(ms + 12 + digits, "0123456789") : 0;
    case_check(digits > 0 && more <= 4, "milliseconds with more than three digits after the point: %s", ms);
    process_free(&p);
    case_end();
}

static void patterns(void)
{
    struct process p;
    struct batch_results r;
    case_begin("batch: several files and patterns, in the order of the input");
    files_write_text(dir, "part-2.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":2,\"id\":\"2\"}");
    files_write_text(dir, "part-1.jsonl",
                     "{\"prompt\":\"Once\",\"max_tokens\":9,\"id\":\"1\"}\n{\"prompt\":\"Once\",\"max_tokens\":"
                     "1,\"id\":\"1b\"}\n");
    files_write_text(dir, "more.jsonl", "{\"prompt\":\"Once\",\"max_tokens\":9,\"id\":\"0\"}\n");
    batching_forget(dir, "parts.out");
    BATCHING_RUN(&p, dir, 1, NULL, "--input", "@more.jsonl", "--input", "@part-*.jsonl", "--output", "@parts.out",
                 "--ordered");
    batching_read(&r, dir, "parts.out");
    case_check(p.status == 0 && r.n == 4 && strcmp(r.order[0], "0") == 0 && strcmp(r.order[1], "1") == 0 &&
                   strcmp(r.order[2], "1b") == 0 && strcmp(r.order[3], "2") == 0,
               "status %d, %d results: %s", p.status, r.n, p.text[PROCESS_ERR]);
    batching_free(&r);
    process_free(&p);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    for (int ranks = 1; ranks <= 3; ranks++)
        formats(ranks);
    same_texts();
    streams();
    patterns();
    files_remove_dir(dir);
    return cases_done();
}
