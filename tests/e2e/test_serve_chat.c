/* tests/e2e/test_serve_chat.c - a chat from end to end: the demo model with a chat template, on 1 and 2 ranks. It gets
 * the tokens of the prompt that the template makes, and users cannot end a turn. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

/* Emits every turn's text, then the end-of-text token. */
#define TEMPLATE "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
#define END      "<|end_of_text|>"
#define TURNS    "{\"role\": \"user\", \"content\": \"Tell me of a fox.\"}"
#define REST     "\"max_tokens\": 24, \"temperature\": 0, \"ignore_eos\": true"

static struct serving s;

/* Makes the demo model with or without a template. */
static void make_model(char *dir, bool with_template)
{
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"};
    static const char config[] =
        "{\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": \"" END
        "\", \"tokenizer_class\": \"PreTrainedTokenizerFast\", \"chat_template\": \"" TEMPLATE "\"}";
    files_make_dir(dir);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        files_copy(models_demo(), dir, names[i]);
    if (with_template)
        files_write(dir, "tokenizer_config.json", config, sizeof config - 1);
}

static char *ids_at(const json_t *o)
{
    return json_dumps(json_is_array(o) ? o : json_null(), JSON_COMPACT);
}

static char *chosen_ids(const json_t *reply)
{
    return ids_at(json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids"));
}

static void same_as_prompt(void)
{
    case_begin("a chat has the tokens of the prompt that its template makes, on %d ranks", s.ranks);
    json_t *models = talk_ask(s.endpoint, "{\"op\": \"models\"}");
    case_check(strncmp(talk_text(models, "models/0/chat_template"), "default-", 8) == 0,
               "the template's name is \"%s\"", talk_text(models, "models/0/chat_template"));
    json_t *chat = talk_ask(s.endpoint, "{\"messages\": [" TURNS "], " REST "}");
    json_t *prompt =
        talk_ask(s.endpoint, "{\"prompt\": \"Tell me of a fox." END "\", \"add_special_tokens\": false, " REST "}");
    char *got = chosen_ids(chat), *want = chosen_ids(prompt);
    case_check(strcmp(talk_text(chat, "status"), "ok") == 0 && talk_number(chat, "usage/completion_tokens") == 24,
               "no valid reply: %s", talk_text(chat, "error/message"));
    case_check(strcmp(got, want) == 0 && strcmp(got, "null") != 0, "tokens %s, expected %s", got, want);
    case_check(talk_number(chat, "usage/prompt_tokens") == talk_number(prompt, "usage/prompt_tokens"),
               "%g prompt tokens, expected %g", talk_number(chat, "usage/prompt_tokens"),
               talk_number(prompt, "usage/prompt_tokens"));
    free(got);
    free(want);
    json_decref(models);
    json_decref(chat);
    json_decref(prompt);
    case_end();
}

static void streams(void)
{
    struct talk t;
    char text[4000] = "";
    case_begin("a chat of three turns as a stream, on %d ranks", s.ranks);
    static const char three[] =
        "\"messages\": [" TURNS ", {\"role\": \"assistant\", \"content\": \"Once\"}, "
        "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"More.\"}]}], " REST;
    char request[1000];
    (void)snprintf(request, sizeof request, "{%s}", three);
    json_t *whole = talk_ask(s.endpoint, request);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "{%s, \"stream\": true}", three);
    for (bool over = false; !over;) {
        json_t *event = talk_hear(&t, 30);
        over = strcmp(talk_text(event, "event"), "tokens") != 0;
        strncat(text, talk_text(event, "choices/0/text"), sizeof text - strlen(text) - 1);
        json_decref(event);
    }
    case_check(strlen(text) > 0 && strcmp(text, talk_text(whole, "choices/0/text")) == 0, "\"%s\", expected \"%s\"",
               text, talk_text(whole, "choices/0/text"));
    json_decref(whole);
    talk_close(&t);
    case_end();
}

/* Returns the number of end-of-text tokens that the server makes of a chat in which the user writes one. */
static int count_ends(const char *more)
{
    char request[600];
    int n = 0;
    (void)snprintf(request, sizeof request,
                   "{\"op\": \"tokenize\", \"messages\": [{\"role\": \"user\", \"content\": \"a" END "b\"}]%s}", more);
    json_t *reply = talk_ask(s.endpoint, request);
    const json_t *ids = json_object_get(reply, "token_ids");
    for (size_t i = 0; i < json_array_size(ids); i++)
        n += json_integer_value(json_array_get(ids, i)) == 1;
    json_decref(reply);
    return n;
}

static void injection(void)
{
    case_begin("special tokens in users' text are plain text, on %d ranks", s.ranks);
    case_check(count_ends("") == 1, "%d ends of a turn", count_ends(""));
    case_check(count_ends(", \"parse_special\": true") == 2, "on request: %d ends",
               count_ends(", \"parse_special\": true"));
    case_end();
}

/* lockstep-client sends the same request. */
static void by_client(void)
{
    struct process p;
    case_begin("lockstep-client --chat, on %d ranks", s.ranks);
    json_t *chat = talk_ask(s.endpoint, "{\"messages\": [" TURNS "], " REST "}");
    process_run(&p, &(struct process_setup){.program = "lockstep-client"},
                (const char *[]){"--endpoint", s.endpoint, "--chat", "--max-tokens", "24", "--temperature", "0",
                                 "--ignore-eos", "--no-stream", "Tell me of a fox.", NULL});
    const char *text = talk_text(chat, "choices/0/text");
    case_check(p.status == 0 && strlen(text) > 0 && strncmp(p.text[PROCESS_OUT], text, strlen(text)) == 0,
               "status %d, \"%s\", expected \"%s\"", p.status, p.text[PROCESS_OUT], text);
    json_decref(chat);
    process_free(&p);
    case_end();
}

static void without_template(void)
{
    char dir[256];
    make_model(dir, false);
    case_begin("a chat without a template is refused");
    if (case_check(serving_start(&s, 1, NULL, (const char *[]){"--model", dir, NULL}), "it does not start")) {
        json_t *chat = talk_ask(s.endpoint, "{\"messages\": [" TURNS "], " REST "}");
        case_check(talk_number(chat, "code") == 400 &&
                       strstr(talk_text(chat, "error/message"), "knows no chat template") != NULL,
                   "found \"%s\"", talk_text(chat, "error/message"));
        json_decref(chat);
        (void)serving_stop(&s);
    }
    case_end();
    files_remove_dir(dir);
}

int main(void)
{
    char dir[256];
    make_model(dir, true);
    for (int ranks = 1; ranks <= 2; ranks++) {
        if (!serving_start(&s, ranks, NULL, (const char *[]){"--model", dir, NULL})) {
            case_begin("serve on %d ranks", ranks);
            case_check(false, "it does not start");
            case_end();
            continue;
        }
        same_as_prompt();
        streams();
        injection();
        by_client();
        (void)serving_stop(&s);
    }
    files_remove_dir(dir);
    without_template();
    return cases_done();
}
