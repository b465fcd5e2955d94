/* tests/e2e/test_tools.c - tools: answers of the demo model, whose text a form determines, are parsed in every format
 * of calls, whole and as streams; required calls fit the tools' schemas; impossible requests are refused. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define TOOLS                                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"d\",\"parameters\":"   \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Oslo\",\"Rome\"]},\"days\":{\"type\":\"integer\"," \
    "\"minimum\":1,\"maximum\":9}},\"required\":[\"city\",\"days\"],\"additionalProperties\":false}}},"            \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"
#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}],\"max_tokens\":400,\"seed\":3," TOOLS

static struct serving s;
static char dir[256];

/* Each template's wording that selects its format, and an answer with a call in it. */
static const struct form {
    const char *name, *mark, *answer, *content, *reasoning;
} forms[] = {
    {"hermes", "<tool_call>",
     "I look.\\n<tool_call>\\n{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": {\\\"city\\\": "
     "\\\"Oslo\\\", \\\"days\\\": 2}}\\n</tool_call>\\n<tool_call>{\\\"name\\\": \\\"now\\\"}</tool_call>",
     "I look.", ""},
    {"llama3_json", "<|python_tag|>",
     "{\\\"name\\\": \\\"weather\\\", \\\"parameters\\\": {\\\"city\\\": \\\"Oslo\\\", "
     "\\\"days\\\": 2}}; {\\\"name\\\": \\\"now\\\", \\\"parameters\\\": {}}",
     "", ""},
    {"mistral", "[TOOL_CALLS]",
     "I look.[TOOL_CALLS] [{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": {\\\"city\\\": "
     "\\\"Oslo\\\", \\\"days\\\": 2}}, {\\\"name\\\": \\\"now\\\", \\\"arguments\\\": {}}]",
     "I look.", ""},
    {"mistral_args", "[TOOL_CALLS][ARGS]",
     "I look.[TOOL_CALLS]weather[ARGS]{\\\"city\\\": \\\"Oslo\\\", \\\"days\\\": 2}"
     "[TOOL_CALLS]now[ARGS]{}",
     "I look.", ""},
    {"harmony", "<|channel|><|message|>",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
     "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
     "<|constrain|>json<|message|>"
     "{\\\"city\\\": \\\"Oslo\\\", \\\"days\\\": 2}<|call|><|start|>assistant to=functions.now<|channel|>commentary"
     "<|message|>",
     "I look.", "Hm."},
    {"hermes that thinks", "<tool_call></think>",
     "<think>\\nHm.\\n</think>\\n\\nI look.\\n<tool_call>\\n{\\\"name\\\": \\\"weather\\\", \\\"arguments\\\": "
     "{\\\"city\\\": \\\"Oslo\\\", \\\"days\\\": 2}}\\n</tool_call>\\n<tool_call>{\\\"name\\\": \\\"now\\\"}"
     "</tool_call>",
     "I look.", "Hm."},
};
enum { N_FORMS = sizeof forms / sizeof forms[0] };

static const json_t *call_of(const json_t *message, size_t i)
{
    return json_array_get(json_object_get(message, "tool_calls"), i);
}

static void check_message(const struct form *f, const json_t *choice, const json_t *message)
{
    case_check(strcmp(talk_text(message, "content"), f->content) == 0 &&
                   strcmp(talk_text(message, "reasoning_content"), f->reasoning) == 0,
               "content \"%s\", reasoning \"%s\"", talk_text(message, "content"),
               talk_text(message, "reasoning_content"));
    case_check(json_array_size(json_object_get(message, "tool_calls")) == 2 &&
                   strcmp(talk_text(call_of(message, 0), "function/name"), "weather") == 0 &&
                   strcmp(talk_text(call_of(message, 0), "function/arguments"), "{\"city\": \"Oslo\", \"days\": 2}") ==
                       0 &&
                   strcmp(talk_text(call_of(message, 1), "function/name"), "now") == 0 &&
                   strcmp(talk_text(call_of(message, 1), "function/arguments"), "{}") == 0,
               "calls of %s", talk_text(choice, "text"));
    case_check(strcmp(talk_text(choice, "finish_reason"), "tool_calls") == 0, "the finish reason is \"%s\"",
               talk_text(choice, "finish_reason"));
}

/* Appends a delta's texts to those of the message. */
static void join(json_t *to, const char *key, const char *text)
{
    const char *before = json_string_value(json_object_get(to, key));
    if (text[0] != '\0')
        json_object_set_new(to, key, json_sprintf("%s%s", before != NULL ? before : "", text));
}

static void join_call(json_t *calls, const json_t *delta)
{
    size_t index = (size_t)talk_number(delta, "index");
    bool first = json_object_get(delta, "id") != NULL;
    case_check(index == json_array_size(calls) - !first, "call %zu of %zu", index, json_array_size(calls));
    if (first)
        json_array_append_new(calls, json_deep_copy(delta));
    else
        join(json_object_get(json_array_get(calls, index), "function"), "arguments",
             talk_text(delta, "function/arguments"));
}

/* Returns the message that a stream's deltas make; *choice: that of its last event. */
static json_t *streamed(const char *request, json_t **choice)
{
    struct talk t;
    json_t *message = json_pack("{s:[]}", "tool_calls"), *event, *call;
    size_t i;
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, "%s", request);
    for (*choice = NULL; *choice == NULL && (event = talk_hear(&t, 30)) != NULL; json_decref(event)) {
        json_t *one = json_array_get(json_object_get(event, "choices"), 0), *delta = json_object_get(one, "delta");
        join(message, "content", talk_text(delta, "content"));
        join(message, "reasoning_content", talk_text(delta, "reasoning_content"));
        json_array_foreach(json_object_get(delta, "tool_calls"), i, call)
            join_call(json_object_get(message, "tool_calls"), call);
        if (strcmp(talk_text(event, "event"), "tokens") != 0)
            *choice = one != NULL ? json_incref(one) : json_null();
    }
    talk_close(&t);
    return message;
}

static void takes_apart(const struct form *f)
{
    char request[3000];
    (void)snprintf(request, sizeof request, "{" CHAT ",\"structured_outputs\":{\"choice\":[\"%s\"]}}", f->answer);
    json_t *reply = talk_ask(s.endpoint, request), *choice = json_array_get(json_object_get(reply, "choices"), 0);
    case_check(choice != NULL, "no answer: %s", talk_text(reply, "error/message"));
    check_message(f, choice, json_object_get(choice, "message"));
    json_decref(reply);
    (void)snprintf(request, sizeof request, "{" CHAT ",\"stream\":true,\"structured_outputs\":{\"choice\":[\"%s\"]}}",
                   f->answer);
    json_t *message = streamed(request, &choice);
    check_message(f, choice, message);
    json_decref(message);
    json_decref(choice);
}

/* Tells whether a call fits its tool's schema. */
static bool fits(const json_t *call)
{
    const char *name = talk_text(call, "function/name");
    json_error_t where;
    json_t *arguments = json_loads(talk_text(call, "function/arguments"), JSON_REJECT_DUPLICATES, &where);
    const char *city = talk_text(arguments, "city");
    double days = talk_number(arguments, "days");
    bool good = strcmp(name, "now") == 0
                    ? json_is_object(arguments) && json_object_size(arguments) == 0
                    : strcmp(name, "weather") == 0 && json_object_size(arguments) == 2 && days >= 1 && days <= 9 &&
                          (strcmp(city, "Oslo") == 0 || strcmp(city, "Rome") == 0);
    json_decref(arguments);
    return good;
}

static void requires(const struct form *f)
{
    static const char *const how[] = {"\"required\",\"parallel_tool_calls\":false",
                                      "{\"type\":\"function\",\"function\":{\"name\":\"weather\"}}"};
    for (size_t i = 0; i < 2; i++) {
        char request[3000];
        (void)snprintf(request, sizeof request, "{" CHAT ",\"n\":3,\"tool_choice\":%s}", how[i]);
        json_t *reply = talk_ask(s.endpoint, request), *choice, *choices = json_object_get(reply, "choices");
        size_t c;
        case_check(json_array_size(choices) == 3, "%s: %s", f->name, talk_text(reply, "error/message"));
        json_array_foreach(choices, c, choice)
        {
            const json_t *message = json_object_get(choice, "message"), *call = call_of(message, 0);
            case_check(json_array_size(json_object_get(message, "tool_calls")) == 1 && fits(call) &&
                           (i == 0 || strcmp(talk_text(call, "function/name"), "weather") == 0) &&
                           json_is_null(json_object_get(message, "content")) &&
                           strcmp(talk_text(choice, "finish_reason"), "tool_calls") == 0,
                       "%s, finish reason %s", talk_text(choice, "text"), talk_text(choice, "finish_reason"));
        }
        json_decref(reply);
    }
}

static void refused(const char *rest, const char *field, const char *part)
{
    char request[3000];
    (void)snprintf(request, sizeof request,
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":9,%s}", rest);
    talk_refused(s.endpoint, request, field, part);
}

static void refusals(void)
{
    refused(TOOLS ",\"tool_choice\":\"any\"", "tool_choice", "found \"any\", expected \"none\", \"auto\"");
    refused("\"tool_choice\":\"required\"", "tool_choice", "there are no \"tools\"");
    refused(TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}", "tool_choice",
            "function \"x\", which is none");
    refused(TOOLS ",\"tool_choice\":\"required\",\"response_format\":{\"type\":\"json_object\"}", "tool_choice",
            "no place beside \"response_format\"");
    refused(TOOLS ",\"tool_choice\":\"required\",\"ignore_eos\":true", "ignore_eos", "says where the text ends");
    refused("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}],\"tool_choice\":\"required\"",
            "tools[0].function.name", "letters, digits");
    refused("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"not\":{}}}}],"
            "\"tool_choice\":\"required\"",
            "tools", "f: ");
}

/* The content of an answer that consists of token 0, which is special and marks nothing, to a request with these
 * members. */
static void says_of_special(const char *rest, const char *content)
{
    char request[3000];
    (void)snprintf(
        request, sizeof request,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}],\"max_tokens\":2,\"logit_bias\":{\"0\":100}," TOOLS
        ",\"tool_choice\":\"auto\"%s}",
        rest);
    bool streams = strstr(rest, "stream") != NULL;
    json_t *reply = streams ? NULL : talk_ask(s.endpoint, request), *choice = NULL;
    json_t *of_reply = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "message");
    json_t *message = streams ? streamed(request, &choice) : json_incref(of_reply);
    case_check(message != NULL, "no answer: %s", talk_text(reply, "error/message"));
    case_check(strcmp(talk_text(message, "content"), content) == 0, "%s: content \"%s\"", rest,
               talk_text(message, "content"));
    json_decref(message);
    json_decref(choice);
    json_decref(reply);
}

static void skips_special(void)
{
    static const char twice[] = "<|begin_of_text|><|begin_of_text|>";
    says_of_special("", "");
    says_of_special(",\"stream\":true", "");
    says_of_special(",\"skip_special_tokens\":false", twice);
    says_of_special(",\"skip_special_tokens\":false,\"stream\":true", twice);
}

/* Calls that are not to be parsed stay in the content, and the template does not see the tools. */
static void leaves_alone(const struct form *f)
{
    char request[3000];
    (void)snprintf(request, sizeof request,
                   "{" CHAT ",\"tool_choice\":\"none\",\"structured_outputs\":{\"choice\":[\"%s\"]}}", f->answer);
    json_t *reply = talk_ask(s.endpoint, request), *choice = json_array_get(json_object_get(reply, "choices"), 0);
    json_t *with = talk_ask(s.endpoint, "{" CHAT "}");
    case_check(choice != NULL && json_object_get(choice, "message") == NULL &&
                   strcmp(talk_text(choice, "finish_reason"), "stop") == 0,
               "finish reason %s: %s", talk_text(choice, "finish_reason"), talk_text(reply, "error/message"));
    case_check(talk_number(reply, "usage/prompt_tokens") < talk_number(with, "usage/prompt_tokens"),
               "%g prompt tokens without tools", talk_number(reply, "usage/prompt_tokens"));
    json_decref(reply);
    json_decref(with);
}

static void write_template(const char *mark)
{
    char text[600];
    (void)snprintf(text, sizeof text,
                   "{%% if tools %%}{{ tools | length }} tools {%% endif %%}{%% for m in messages %%}{{ m.content }}"
                   "{%% endfor %%}{# %s #}",
                   mark);
    files_write_text(dir, "chat.jinja", text);
}

static void serves(const struct form *f, int ranks, const char *replicas)
{
    char file[300];
    (void)snprintf(file, sizeof file, "%s/chat.jinja", dir);
    const char *const more[] = {"--chat-template", file, replicas, "1", NULL}, *const one[] = {"--chat-template", file,
                                                                                               NULL};
    case_begin("%s on %d ranks%s", f->name, ranks, replicas != NULL ? ", two replicas" : "");
    write_template(f->mark);
    if (case_check(serving_start(&s, ranks, NULL, replicas != NULL ? more : one), "no server")) {
        takes_apart(f);
        requires(f);
        if (f == &forms[0]) {
            refusals();
            leaves_alone(f);
            skips_special();
        }
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    case_end();
}

static void unknown(void)
{
    char file[300];
    (void)snprintf(file, sizeof file, "%s/chat.jinja", dir);
    const char *const more[] = {"--chat-template", file, NULL};
    case_begin("a template with an unknown format of calls");
    write_template("none");
    if (case_check(serving_start(&s, 1, NULL, more), "no server")) {
        refused(TOOLS ",\"tool_choice\":\"auto\"", "tool_choice", "in no form that is known here");
        refused(TOOLS ",\"tool_choice\":\"required\"", "tool_choice", "in no form that is known here");
        json_t *reply = talk_ask(s.endpoint, "{" CHAT "}");
        case_check(strcmp(talk_text(reply, "status"), "ok") == 0 &&
                       json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "message") == NULL,
                   "without a choice: %s", talk_text(reply, "error/message"));
        json_decref(reply);
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    case_end();
}

/* If tools are optional, response_format is the form of an answer without calls. The mark is token 0. */
static void calls_or_fits(void)
{
    static const char *const bias[] = {"100", "-100"};
    for (int i = 0; i < 2; i++) {
        char request[3000];
        (void)snprintf(request, sizeof request,
                       "{" CHAT
                       ",\"parallel_tool_calls\":false,\"logit_bias\":{\"0\":%s},\"response_format\":{\"type\":"
                       "\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"enum\":[\"yes\",\"no\"]}}}}",
                       bias[i]);
        json_t *reply = talk_ask(s.endpoint, request), *choice = json_array_get(json_object_get(reply, "choices"), 0);
        const json_t *message = json_object_get(choice, "message");
        const char *said = talk_text(message, "content");
        bool fit = strcmp(said, "\"yes\"") == 0 || strcmp(said, "\"no\"") == 0;
        case_check(i == 0 ? fits(call_of(message, 0)) : fit, "bias %s: %s, %s", bias[i], talk_text(choice, "text"),
                   talk_text(reply, "error/message"));
        json_decref(reply);
    }
}

/* Marks that are special tokens: the demo model's first token is named like a mark, and is likelier than all others. */
static void special(void)
{
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors",
                                        "tokenizer_config.json"};
    static const char begin[] = "<|begin_of_text|>", mark[] = "[TOOL_CALLS]";
    char file[300];
    size_t bytes = 0, n = strlen(begin);
    (void)snprintf(file, sizeof file, "%s/chat.jinja", dir);
    const char *const more[] = {"--chat-template", file, NULL};
    case_begin("a mark that is a special token");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        files_copy(models_demo(), dir, names[i]);
    char *text = files_read(models_demo(), "tokenizer.json", &bytes), *named = malloc(bytes + 1), *to = named;
    for (const char *at = text; *at != '\0';) {
        bool here = strncmp(at, begin, n) == 0;
        to += sprintf(to, "%.*s", here ? (int)strlen(mark) : 1, here ? mark : at);
        at += here ? n : 1;
    }
    files_write(dir, "tokenizer.json", named, (size_t)(to - named));
    write_template(mark);
    if (case_check(serving_start_model(&s, dir, 1, NULL, more), "no server")) {
        json_t *reply = talk_ask(s.endpoint, "{" CHAT ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false,"
                                             "\"logit_bias\":{\"0\":100}}");
        json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
        case_check(talk_number(choice, "token_ids/0") == 0 && fits(call_of(json_object_get(choice, "message"), 0)) &&
                       strncmp(talk_text(choice, "text"), mark, strlen(mark)) == 0,
                   "%s: %s", talk_text(choice, "text"), talk_text(reply, "error/message"));
        json_decref(reply);
        calls_or_fits();
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    free(text);
    free(named);
    case_end();
}

#define STORY "\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}],\"max_tokens\":24,\"seed\":3"

/* An answer that continues this text is this member of the message, down to the first space. */
static void check_continued(const char *text, const char *member)
{
    char request[400];
    (void)snprintf(request, sizeof request,
                   "{\"messages\":[{\"role\":\"assistant\",\"content\":\"%s\"}],\"continue_final_message\":true,"
                   "\"max_tokens\":9,\"temperature\":0}",
                   text);
    json_t *reply = talk_ask(s.endpoint, request), *choice = json_array_get(json_object_get(reply, "choices"), 0);
    const char *said = talk_text(json_object_get(choice, "message"), member);
    case_check(said[0] == ' ' && strcmp(said, talk_text(choice, "text")) == 0, "after %s: %s \"%s\" of \"%s\"", text,
               member, said, talk_text(choice, "text"));
    json_decref(reply);
}

/* A prompt that ends within a thought, without tools: everything that the demo model says is a thought, unless it must
 * have a form. */
static void thinks(void)
{
    char file[300];
    (void)snprintf(file, sizeof file, "%s/chat.jinja", dir);
    const char *const more[] = {"--chat-template", file, NULL};
    case_begin("a prompt that ends within a thought");
    files_write_text(dir, "chat.jinja", "{{ messages[0].content }}{# </think> #}<think>\n");
    if (case_check(serving_start(&s, 1, NULL, more), "no server")) {
        json_t *reply = talk_ask(s.endpoint, "{" STORY "}"),
               *choice = json_array_get(json_object_get(reply, "choices"), 0);
        json_t *last, *whole = streamed("{" STORY ",\"stream\":true}", &last);
        const char *thought = talk_text(choice, "message/reasoning_content");
        case_check(strlen(thought) > 20 && strstr(talk_text(choice, "text"), thought) != NULL &&
                       strcmp(talk_text(choice, "message/content"), "") == 0,
                   "thought \"%s\" of \"%s\"", thought, talk_text(choice, "text"));
        case_check(strcmp(talk_text(whole, "reasoning_content"), thought) == 0 &&
                       strcmp(talk_text(whole, "content"), "") == 0,
                   "streamed \"%s\"", talk_text(whole, "reasoning_content"));
        json_decref(whole);
        json_decref(last);
        json_decref(reply);
        reply = talk_ask(s.endpoint, "{" STORY ",\"include_reasoning\":false}");
        choice = json_array_get(json_object_get(reply, "choices"), 0);
        case_check(json_object_get(json_object_get(choice, "message"), "reasoning_content") == NULL &&
                       strlen(talk_text(choice, "text")) > 20,
                   "without thoughts: %s", talk_text(choice, "message/reasoning_content"));
        json_decref(reply);
        reply = talk_ask(s.endpoint, "{" STORY ",\"structured_outputs\":{\"choice\":[\"yes\"]}}");
        choice = json_array_get(json_object_get(reply, "choices"), 0);
        case_check(strcmp(talk_text(choice, "message/content"), "yes") == 0, "a form: %s",
                   talk_text(choice, "message/reasoning_content"));
        json_decref(reply);
        check_continued("<think>\\nOnce upon a time, there", "reasoning_content");
        check_continued("<think>\\nHm.</think>Once upon a time, there", "content");
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    case_end();
}

/* A line of a batch, whose result body has the message. */
static void batches(void)
{
    char in[300], out[300], file[300], demo[PATH_MAX];
    static const char line[] =
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{" CHAT
        ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false}}\n";
    const char *arguments[] = {"batch", "-m", demo, "-i", in, "-o", out, "--chat-template", file, NULL};
    const struct process_setup setup = {.ranks = 2, .limit = 120};
    struct process p;
    json_error_t where;
    size_t bytes = 0;
    case_begin("batch: a required call");
    (void)snprintf(in, sizeof in, "%s/in.jsonl", dir);
    (void)snprintf(out, sizeof out, "%s/out.jsonl", dir);
    (void)snprintf(file, sizeof file, "%s/chat.jinja", dir);
    case_check(realpath("demo/lockstep-stories", demo) != NULL, "no model");
    write_template(forms[0].mark);
    files_write_text(dir, "in.jsonl", line);
    process_start(&p, &setup, arguments);
    process_wait(&p);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    char *text = files_read(dir, "out.jsonl", &bytes);
    json_t *object = json_loads(text != NULL ? text : "", 0, &where);
    const json_t *choice =
        json_array_get(json_object_get(json_object_get(json_object_get(object, "response"), "body"), "choices"), 0);
    case_check(fits(call_of(json_object_get(choice, "message"), 0)) &&
                   strcmp(talk_text(choice, "finish_reason"), "tool_calls") == 0,
               "found %s", text);
    json_decref(object);
    free(text);
    process_free(&p);
    case_end();
}

int main(void)
{
    files_make_dir(dir);
    for (const struct form *f = forms; f < forms + N_FORMS; f++)
        serves(f, 1, NULL);
    serves(&forms[4], 2, "--tensor-parallel");
    unknown();
    thinks();
    special();
    batches();
    files_remove_dir(dir);
    return cases_done();
}
