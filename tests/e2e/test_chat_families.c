/* tests/e2e/test_chat_families.c - chats of gpt-oss, Qwen3 and Gemma 3 from end to end: a tiny model of each family
 * behind lockstep-gateway receives the token ids of transformers' apply_chat_template, and answers as transformers
 * generates and decodes, thoughts apart from content, whole and as a stream. */
#include "tests/support/cases.h"
#include "tests/support/chat_family.h"
#include "tests/support/files.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"
#include "tests/support/web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct web_gateway gate;

/* Makes the case's chat a request with further members. The caller frees it. */
static char *body_of(const json_t *c, const char *more)
{
    json_t *body = json_loads(more, 0, NULL);
    (void)json_object_set(body, "messages", json_object_get(c, "messages"));
    (void)json_object_set(body, "add_generation_prompt", json_object_get(c, "add_generation_prompt"));
    if (json_object_get(c, "tools") != NULL)
        (void)json_object_set(body, "tools", json_object_get(c, "tools"));
    if (json_object_get(c, "variables") != NULL)
        (void)json_object_set(body, "chat_template_kwargs", json_object_get(c, "variables"));
    char *text = json_dumps(body, 0);
    json_decref(body);
    return text;
}

/* Sends it. The caller frees the answer with web_free. */
static void ask(const char *path, const json_t *c, const char *more, struct web_answer *a)
{
    char *body = body_of(c, more);
    web_ask(&gate, "POST", path, "", body, a);
    free(body);
}

static void check_ids(const char *what, json_t *got, const json_t *want)
{
    char *found = json_dumps(got, JSON_COMPACT), *expected = json_dumps(want, JSON_COMPACT);
    case_check(json_equal(got, want), "%s %s, expected %s", what, found, expected);
    free(found);
    free(expected);
    json_decref(got);
}

static void tokenizes(const json_t *c)
{
    struct web_answer a;
    const json_t *want = json_object_get(c, "ids");
    ask("/tokenize", c, "{}", &a);
    case_check(a.status == (json_is_array(want) ? 200 : 400), "status %d: %s", a.status, a.body);
    json_t *reply = json_loads(a.body != NULL ? a.body : "", 0, NULL);
    if (json_is_array(want))
        check_ids("/tokenize:", json_incref(json_object_get(reply, "tokens")), want);
    json_decref(reply);
    web_free(&a);
}

/* Returns the ids in a list of log-probabilities, whose tokens are "token_id:5". */
static json_t *ids_in(const json_t *entries)
{
    json_t *ids = json_array();
    const json_t *entry;
    size_t i;
    json_array_foreach(entries, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "token"));
        if (name != NULL && strncmp(name, "token_id:", 9) == 0)
            (void)json_array_append_new(ids, json_integer(atoi(name + 9)));
    }
    return ids;
}

static void check_said(const json_t *message, const json_t *answer)
{
    case_check(strcmp(talk_text(message, "content"), talk_text(answer, "content")) == 0,
               "content \"%s\", expected \"%s\"", talk_text(message, "content"), talk_text(answer, "content"));
    case_check(strcmp(talk_text(message, "reasoning_content"), talk_text(answer, "reasoning")) == 0,
               "reasoning_content \"%s\", expected \"%s\"", talk_text(message, "reasoning_content"),
               talk_text(answer, "reasoning"));
}

#define GREEDY "\"temperature\": 0, \"max_tokens\": 100"

static void answers(const json_t *c)
{
    struct web_answer a;
    const json_t *ids = json_object_get(c, "ids"), *answer = json_object_get(c, "answer");
    ask("/v1/chat/completions", c,
        "{" GREEDY ", \"logprobs\": true, \"return_tokens_as_token_ids\": true, \"return_token_ids\": true}", &a);
    case_check(a.status == 200, "status %d: %s", a.status, a.body);
    json_t *reply = json_loads(a.body != NULL ? a.body : "", 0, NULL);
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    check_ids("prompt", json_incref(json_object_get(reply, "prompt_token_ids")), ids);
    check_ids("answer", ids_in(json_object_get(json_object_get(choice, "logprobs"), "content")),
              json_object_get(answer, "ids"));
    check_said(json_object_get(choice, "message"), answer);
    case_check(strcmp(talk_text(choice, "finish_reason"), "stop") == 0, "the finish reason is \"%s\"",
               talk_text(choice, "finish_reason"));
    json_decref(reply);
    web_free(&a);
}

static void join(json_t *to, const char *key, const char *text)
{
    (void)json_object_set_new(to, key, json_sprintf("%s%s", talk_text(to, key), text));
}

static void streams(const json_t *c)
{
    struct web_answer a;
    json_t *message = json_object();
    ask("/v1/chat/completions", c, "{" GREEDY ", \"stream\": true}", &a);
    case_check(a.status == 200, "status %d: %s", a.status, a.body);
    for (const char *at = a.body; at != NULL && (at = strstr(at, "data: {")) != NULL; at++) {
        json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *delta = json_object_get(json_array_get(json_object_get(event, "choices"), 0), "delta");
        join(message, "content", talk_text(delta, "content"));
        join(message, "reasoning_content", talk_text(delta, "reasoning_content"));
        json_decref(event);
    }
    check_said(message, json_object_get(c, "answer"));
    json_decref(message);
    web_free(&a);
}

static void check_cases(const json_t *family)
{
    const char *name = json_string_value(json_object_get(family, "name"));
    const json_t *c;
    size_t i;
    int answered = 0;
    json_array_foreach(json_object_get(family, "cases"), i, c)
    {
        case_begin("%s, chat %zu: the prompt's token ids", name, i);
        tokenizes(c);
        case_end();
        if (json_object_get(c, "answer") == NULL)
            continue;
        case_begin("%s, chat %zu: the model's input and answer, whole and as a stream", name, i);
        answers(c);
        streams(c);
        case_end();
        answered++;
    }
    case_begin("%s: two of its chats are answered", name);
    case_check(answered == 2, "%d", answered);
    case_end();
}

static void serve_family(const json_t *family)
{
    struct serving s;
    char dir[256];
    chat_family_model(family, dir);
    if (serving_start_model(&s, dir, 2, NULL, NULL)) {
        web_start(&gate, true, (const char *[]){"--backend", s.rendezvous, NULL});
        check_cases(family);
        case_begin("shutdown of %s", json_string_value(json_object_get(family, "name")));
        case_check(web_stop(&gate) == 0, "the gateway did not end well");
        case_check(serving_stop(&s) == 0, "the server did not end well");
    } else {
        case_begin("%s is served", json_string_value(json_object_get(family, "name")));
        case_check(false, "it did not start");
    }
    case_end();
    files_remove_dir(dir);
}

int main(void)
{
    json_t *families = chat_families();
    const json_t *family;
    size_t i;
    json_array_foreach(families, i, family)
    {
        serve_family(family);
    }
    case_begin("three families");
    case_check(i == 3, "%zu", i);
    case_end();
    json_decref(families);
    return cases_done();
}
