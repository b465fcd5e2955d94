/* tests/e2e/test_forms.c - answers in a given form, by generate, serve and batch, on 1 to 3 ranks and on two replicas:
 * they have the form and are the same alone and in company; impossible requests are refused by name. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define SCHEMA                                                                                                \
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":{\"type\":" \
    "\"integer\","                                                                                            \
    "\"minimum\":1,\"maximum\":120},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"blue\"]},"    \
    "\"maxItems\":3}},"                                                                                       \
    "\"required\":[\"name\",\"age\",\"tags\"],\"additionalProperties\":false}"
#define RECORD                                                                                          \
    "{\"type\":\"object\",\"properties\":{\"age_of_the_dragon\":{\"type\":\"integer\",\"maximum\":99}," \
    "\"the_dragon_of_the_story\":{\"enum\":[\"red and big\",\"red and little\"]}},"                     \
    "\"required\":[\"age_of_the_dragon\",\"the_dragon_of_the_story\"],\"additionalProperties\":false}"
#define N_TOKENS "200"

/* After its first word the expression has too many ways to continue. */
#define TOO_WIDE "Once up(.*a.{30}b|.*b.{29}c|.*c.{31}d|.*e.{23}d)"
#define WHY      "too many continuations"

static struct serving s;
static char dir[256], demo[PATH_MAX];

/* Tells whether the text is a JSON object that fits SCHEMA. */
static bool has_form(const char *text)
{
    json_error_t where;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &where), *tags = json_object_get(object, "tags");
    int64_t age = json_integer_value(json_object_get(object, "age"));
    const char *name = json_string_value(json_object_get(object, "name"));
    bool good = json_object_size(object) == 3 && name != NULL && age >= 1 && age <= 120 && json_is_array(tags) &&
                json_array_size(tags) <= 3;
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const char *tag = json_string_value(json_array_get(tags, i));
        good = good && tag != NULL && (strcmp(tag, "red") == 0 || strcmp(tag, "blue") == 0);
    }
    json_decref(object);
    return good;
}

static void generate(int ranks, const char *option, const char *value, char *text, size_t bytes)
{
    struct process p;
    const struct process_setup setup = {.ranks = ranks, .limit = 120};
    const char *arguments[] = {"generate", "-m", demo,     "-p",   "Once", "--no-echo", "--temperature", "1", "--seed",
                               "7",        "-n", N_TOKENS, option, value,  NULL};
    process_start(&p, &setup, arguments);
    process_wait(&p);
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    (void)snprintf(text, bytes, "%s", p.text[PROCESS_OUT]);
    process_free(&p);
}

static void generates(void)
{
    char file[300], text[4][2000];
    for (int ranks = 1; ranks <= 3; ranks++) {
        case_begin("generate on %d ranks", ranks);
        (void)snprintf(file, sizeof file, "%s/schema.json", dir);
        files_write_text(dir, "schema.json", SCHEMA);
        generate(ranks, "--json-schema", file, text[ranks], sizeof text[ranks]);
        case_check(has_form(text[ranks]), "found %s", text[ranks]);
        case_end();
    }
    case_begin("generate: an expression and a choice");
    generate(1, "--regex", "[a-c]{3}-[0-9]{2}", text[0], sizeof text[0]);
    case_check(strlen(text[0]) == 7 && text[0][3] == '-' && strspn(text[0], "abc") == 3, "found %s", text[0]);
    generate(2, "--choice", "a dragon", text[0], sizeof text[0]);
    case_check(strcmp(text[0], "a dragon\n") == 0, "found %s", text[0]);
    case_end();
}

#define REQUEST(rest) "{\"op\":\"generate\",\"prompt\":\"Once\",\"seed\":3,\"max_tokens\":" N_TOKENS "," rest "}"

static void answers(const char *request, size_t n_choices, bool (*good)(const char *text))
{
    json_t *reply = talk_ask(s.endpoint, request), *choices = json_object_get(reply, "choices");
    case_check(json_array_size(choices) == n_choices, "%zu choices: %s", json_array_size(choices),
               talk_text(reply, "error/message"));
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const char *text = talk_text(json_array_get(choices, i), "text");
        case_check(good(text) && strcmp(talk_text(json_array_get(choices, i), "finish_reason"), "stop") == 0,
                   "choice %zu: %s", i, text);
    }
    json_decref(reply);
}

static void refused(const char *rest, const char *field, const char *part)
{
    char request[2000];
    (void)snprintf(request, sizeof request, "{\"op\":\"generate\",\"prompt\":\"Once\",\"max_tokens\":9,%s}", rest);
    talk_refused(s.endpoint, request, field, part);
}

/* The demo model, which knows only stories, begins an object and does not end it. */
static void begins_an_object(void)
{
    json_t *reply = talk_ask(s.endpoint, REQUEST("\"response_format\":{\"type\":\"json_object\"},\"temperature\":0"));
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    case_check(strncmp(talk_text(choice, "text"), "{\"", 2) == 0, "found %s: %s", talk_text(choice, "text"),
               talk_text(reply, "error/message"));
    json_decref(reply);
}

static bool is_word(const char *text)
{
    return strcmp(text, "yes") == 0 || strcmp(text, "no") == 0;
}

static void asks(void)
{
    answers(REQUEST("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"strict\":true,"
                    "\"schema\":" SCHEMA "}},\"n\":4"),
            4, has_form);
    answers(REQUEST("\"response_format\":{\"type\":\"json_object\",\"value\":" SCHEMA "}"), 1, has_form);
    answers(REQUEST("\"structured_outputs\":{\"json\":" SCHEMA "},\"n\":2,\"best_of\":3,\"logprobs\":2"), 2, has_form);
    answers(REQUEST("\"structured_outputs\":{\"choice\":[\"yes\",\"no\"]},\"temperature\":0"), 1, is_word);
    begins_an_object();
}

static void refusals(void)
{
    refused("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"not\":{}}}}",
            "response_format", "not is not supported");
    refused("\"structured_outputs\":{\"regex\":\"(a\"}", "structured_outputs", "closing parenthesis");
    refused("\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}", "structured_outputs", "several forms");
    refused("\"structured_outputs\":{\"grammar\":\"a\"}", "structured_outputs", "expected \"json\"");
    refused("\"guided_json\":{}", "guided_json", "\"structured_outputs\"");
    refused("\"guided_regex\":\"a\"", "guided_regex", "\"regex\"");
    refused("\"response_format\":{\"type\":\"xml\"}", "response_format", "found type xml");
    refused("\"response_format\":{\"type\":\"text\",\"schema\":{}}", "response_format", "schema is unknown");
    refused("\"structured_outputs\":{\"regex\":\"a\"},\"min_tokens\":2", "min_tokens", "says where the text ends");
    refused("\"structured_outputs\":{\"regex\":\"a\"},\"ignore_eos\":true", "ignore_eos", "says where the text ends");
    refused("\"structured_outputs\":{\"regex\":\"a\"},\"num_beams\":2", "num_beams", "not implemented");
}

/* Returns the ids of a reply as text. */
static char *ids_of(const json_t *reply)
{
    return json_dumps(json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids"), JSON_COMPACT);
}

#define ASK                                                                                                   \
    "{\"op\":\"generate\",\"prompt\":\"Once\",\"seed\":3,%s%s,\"response_format\":{\"type\":\"json_schema\"," \
    "\"json_schema\":{\"name\":\"x\",\"schema\":" RECORD "}}}"

/* Returns the choices' ids, texts and finish reasons. */
static char *outcome(const char *rest, const char *more)
{
    char request[2000];
    (void)snprintf(request, sizeof request, ASK, rest, more);
    json_t *reply = talk_ask(s.endpoint, request), *choices = json_object_get(reply, "choices");
    for (size_t i = 0; i < json_array_size(choices); i++)
        (void)json_object_del(json_array_get(choices, i), "logprobs");
    char *out = choices != NULL ? json_dumps(choices, JSON_COMPACT) : NULL;
    json_decref(reply);
    return out;
}

/* The pieces of a stream make up its text. */
static void streams(void)
{
    char text[2000] = "";
    struct talk t;
    json_t *reply, *whole;
    (void)snprintf(text, sizeof text, ASK, "\"max_tokens\":200", "");
    whole = talk_ask(s.endpoint, text);
    text[0] = '\0';
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, ASK, "\"max_tokens\":200", ",\"stream\":true");
    int n_events = 0;
    for (bool more = true; more && (reply = talk_hear(&t, 60)) != NULL; json_decref(reply)) {
        more = strcmp(talk_text(reply, "event"), "tokens") == 0;
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s",
                       more ? talk_text(json_array_get(json_object_get(reply, "choices"), 0), "text") : "");
        n_events += more;
    }
    const json_t *choice = json_array_get(json_object_get(whole, "choices"), 0);
    case_check(strcmp(text, talk_text(choice, "text")) == 0, "streamed %s", text);
    case_check(n_events * 2 < (int)json_array_size(json_object_get(choice, "token_ids")), "%d events for %zu tokens",
               n_events, json_array_size(json_object_get(choice, "token_ids")));
    json_decref(whole);
    talk_close(&t);
}

/* Text that the form determines is not sampled, unless log-probabilities are wanted: the outcome is the same. */
static void jumps(void)
{
    static const char *const rest[] = {
        "\"max_tokens\":200",
        "\"max_tokens\":200,\"temperature\":0",
        "\"max_tokens\":200,\"repetition_penalty\":1.3,\"frequency_penalty\":0.5,\"presence_penalty\":0.2",
        "\"max_tokens\":11",
        "\"max_tokens\":200,\"stop\":[\"dra\"]",
        "\"max_tokens\":200,\"stop\":[\"agon_of\"],\"include_stop_str_in_output\":true",
        "\"max_tokens\":200,\"n\":3",
    };
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        char *jumped = outcome(rest[i], ""), *sampled = outcome(rest[i], ",\"logprobs\":1");
        case_check(jumped != NULL && sampled != NULL && strcmp(jumped, sampled) == 0, "%s: found %s, token by token %s",
                   rest[i], jumped, sampled);
        free(jumped);
        free(sampled);
    }
}

/* A request alone, and again among requests with and without a form. */
static void in_company(void)
{
    enum { BESIDE = 20 };
    static const char request[] =
        "{\"op\":\"generate\",\"request_id\":\"x\",\"prompt\":\"Once\",\"seed\":3,\"max_tokens\":" N_TOKENS
        ",\"structured_outputs\":{\"json\":" SCHEMA "}}";
    json_t *reply = talk_ask(s.endpoint, request);
    char *alone = ids_of(reply), *busy = NULL;
    struct talk t;
    json_decref(reply);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    for (int i = 0; i < BESIDE; i++)
        talk_say(&t, "{\"op\":\"generate\",\"prompt\":\"Long ago\",\"seed\":%d,\"max_tokens\":40%s}", i,
                 i % 3 == 0 ? ",\"structured_outputs\":{\"regex\":\"([a-z]+ )+\"}" : "");
    talk_say(&t, "%s", request);
    for (int i = 0; i <= BESIDE && (reply = talk_hear(&t, 60)) != NULL; i++, json_decref(reply))
        if (strcmp(talk_text(reply, "request_id"), "x") == 0)
            busy = ids_of(reply);
    case_check(alone != NULL && busy != NULL && strcmp(alone, busy) == 0, "%s alone, %s in company", alone, busy);
    free(alone);
    free(busy);
    talk_close(&t);
}

static bool says_why(const json_t *choice)
{
    return strcmp(talk_text(choice, "finish_reason"), "error") == 0 && talk_number(choice, "error/code") == 400 &&
           strstr(talk_text(choice, "error/message"), WHY) != NULL;
}

/* Checks the reply to a request whose choices all failed midway. */
static void check_failed(const json_t *reply, size_t n_choices)
{
    const json_t *choices = json_object_get(reply, "choices");
    case_check(talk_number(reply, "code") == 400 && strstr(talk_text(reply, "error/message"), WHY) != NULL,
               "code %g: %s", talk_number(reply, "code"), talk_text(reply, "error/message"));
    case_check(json_array_size(choices) == n_choices, "%zu choices", json_array_size(choices));
    for (size_t i = 0; i < json_array_size(choices); i++)
        case_check(says_why(json_array_get(choices, i)), "choice %zu ends with %s: %s", i,
                   talk_text(json_array_get(choices, i), "finish_reason"),
                   talk_text(json_array_get(choices, i), "error/message"));
}

/* If a form cannot continue, the reply and both events of a stream say why. */
static void fails(void)
{
    struct talk t;
    int n_told = 0;
    json_t *reply = talk_ask(s.endpoint, REQUEST("\"n\":2,\"structured_outputs\":{\"regex\":\"" TOO_WIDE "\"}"));
    check_failed(reply, 2);
    json_decref(reply);
    talk_open(&t, ZMQ_DEALER, s.endpoint, NULL, NULL);
    talk_say(&t, REQUEST("\"stream\":true,\"structured_outputs\":{\"regex\":\"" TOO_WIDE "\"}"));
    for (bool more = true; more && (reply = talk_hear(&t, 60)) != NULL; json_decref(reply)) {
        more = strcmp(talk_text(reply, "event"), "tokens") == 0;
        if (more)
            n_told += says_why(json_array_get(json_object_get(reply, "choices"), 0));
        else
            check_failed(reply, 1);
    }
    case_check(n_told == 1, "%d events say why their choice ended", n_told);
    talk_close(&t);
}

static void serves(int ranks, const char *const *more, const char *how)
{
    case_begin("serve on %d ranks%s", ranks, how);
    if (case_check(serving_start(&s, ranks, NULL, more), "no server")) {
        asks();
        refusals();
        fails();
        jumps();
        streams();
        in_company();
        case_check(serving_stop(&s) == 0, "a status other than 0");
    }
    case_end();
}

static void batches(void)
{
    char in[300], out[300];
    static const char lines[] =
        "{\"id\":\"a\",\"prompt\":\"Once\",\"max_tokens\":" N_TOKENS
        ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\",\"schema\":" SCHEMA
        "}}}\n{\"id\":\"b\",\"prompt\":\"Once\",\"max_tokens\":9,\"response_format\":{\"type\":"
        "\"json_schema\",\"json_schema\":{\"schema\":{\"if\":{}}}}}\n"
        "{\"id\":\"c\",\"prompt\":\"Once\",\"max_tokens\":40,\"structured_outputs\":{\"regex\":\"" TOO_WIDE "\"}}\n";
    const struct process_setup setup = {.ranks = 2, .limit = 120};
    const char *arguments[] = {"batch", "-m", demo, "-i", in, "-o", out, "--plain", NULL};
    struct process p;
    case_begin("batch: lines with a form, one that is refused, and one that fails");
    (void)snprintf(in, sizeof in, "%s/in.jsonl", dir);
    (void)snprintf(out, sizeof out, "%s/out.jsonl", dir);
    files_write_text(dir, "in.jsonl", lines);
    process_start(&p, &setup, arguments);
    process_wait(&p);
    case_check(p.status == 1, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    size_t bytes;
    char *text = files_read(dir, "out.jsonl", &bytes);
    int n_good = 0, n_refused = 0, n_failed = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_error_t where;
        json_t *object = json_loads(line, 0, &where);
        n_good += strcmp(talk_text(object, "id"), "a") == 0 && has_form(talk_text(object, "text"));
        n_failed +=
            strcmp(talk_text(object, "id"), "c") == 0 && strstr(talk_text(object, "error/message"), WHY) != NULL;
        n_refused += strcmp(talk_text(object, "id"), "b") == 0 && strstr(line, "if is not supported") != NULL;
        json_decref(object);
    }
    case_check(n_good == 1 && n_refused == 1 && n_failed == 1, "%d, %d and %d of the lines are right", n_good,
               n_refused, n_failed);
    free(text);
    process_free(&p);
    case_end();
}

int main(void)
{
    static const char *const replicas[] = {"--tensor-parallel", "1", NULL};
    if (realpath("demo/lockstep-stories", demo) == NULL)
        return 1;
    serves(1, NULL, "");
    serves(3, NULL, "");
    serves(2, replicas, ", two replicas");
    files_make_dir(dir);
    generates();
    batches();
    files_remove_dir(dir);
    return cases_done();
}
