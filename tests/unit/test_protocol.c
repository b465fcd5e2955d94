/* tests/unit/test_protocol.c - coordinator/protocol*.c: prompts and chats, refusals, the operations, the message as a
 * whole, and prompts that become tokens. test_protocol_fields.c tests the fields, test_protocol_names.c
 * the names that are found before a message is parsed. */
#include "tests/unit/trial.h"

#include "base/json.h"
#include "coordinator/tasks/encode.h"
#include "text/chat.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------- prompts and chats */

static void takes_prompts(void **state)
{
    (void)state;
    struct trial t;
    struct protocol_generate *g = good(&t, "{\"prompt\": \"a\\u0000b\"}");
    assert_int_equal(g->n_prompts, 1);
    assert_int_equal(g->prompt[0].bytes, 3);
    assert_memory_equal(g->prompt[0].text, "a\0b", 4);
    close_trial(&t);
    g = good(&t, "{\"inputs\": [\"x\", \"\"]}");
    assert_int_equal(g->n_prompts, 2);
    assert_string_equal(g->prompt[0].text, "x");
    assert_int_equal(g->prompt[1].bytes, 0);
    close_trial(&t);
    g = good(&t, "{\"input_ids\": [5, 999]}");
    assert_int_equal(g->n_prompts, 1);
    assert_null(g->prompt[0].text);
    assert_int_equal(g->prompt[0].n_ids, 2);
    assert_int_equal(g->prompt[0].id[1], 999);
    close_trial(&t);
    g = good(&t, "{\"text\": [[5], [6, 7]]}");
    assert_int_equal(g->n_prompts, 2);
    assert_int_equal(g->prompt[1].id[1], 7);
    close_trial(&t);
    g = good(&t,
             "{\"text_input\": \"z\", \"parameters\": {\"max_new_tokens\": 3}, \"sampling_params\": {\"top_k\": 2}}");
    assert_int_equal(g->rules.max_tokens, 3);
    assert_int_equal(g->rules.sampling.top_k, 2);
    close_trial(&t);
}

#define FORMS "a string, a list of strings, a list of token ids or a list of those"

static void refuses_prompts(void **state)
{
    (void)state;
    bad("{}", 400, "prompt", "missing: expected \"prompt\" or \"messages\"");
    bad("{\"prompt\": null}", 400, "prompt", "missing: expected \"prompt\" or \"messages\"");
    bad("{\"prompt\": 5}", 400, "prompt", "found an integer, expected " FORMS);
    bad("{\"inputs\": {}}", 400, "inputs", "found an object, expected " FORMS);
    bad("{\"prompt\": []}", 400, "prompt", "found an empty list, expected " FORMS);
    bad("{\"prompt\": [true]}", 400, "prompt[0]", "found a boolean, expected " FORMS);
    bad("{\"prompt\": [\"a\", 5]}", 400, "prompt[1]", "found an integer after a string, expected items of one type");
    bad("{\"prompt\": [[1], \"a\"]}", 400, "prompt[1]", "found a string after an array, expected items of one type");
    bad("{\"prompt\": [5, \"a\"]}", 400, "prompt[1]", "found a string, expected a token id in [0, 999]");
    bad("{\"prompt\": [5, 1000]}", 400, "prompt[1]", "found 1000, expected a token id in [0, 999]");
    bad("{\"prompt\": [-1]}", 400, "prompt[0]", "found -1, expected a token id in [0, 999]");
    bad("{\"prompt\": [1.5]}", 400, "prompt[0]", "found a real number, expected a token id in [0, 999]");
    bad("{\"prompt\": [[5], []]}", 400, "prompt[1]", "found no token ids, expected at least one");
    bad("{\"prompt\": [[5, 6], [7, null]]}", 400, "prompt[1][1]", "found null, expected a token id in [0, 999]");
    bad("{\"prompt\": \"a\", \"text\": \"b\"}", 400, "text", "given twice: \"prompt\" means the same");
    bad("{\"prompt\": \"a\", \"messages\": []}", 400, "messages", "given beside \"prompt\", expected one of them");
    bad("{\"prompt\": \"a\", \"add_generation_prompt\": true}", 400, "add_generation_prompt",
        "only chats (\"messages\") have it");
}

static void bounds_sequences(void **state)
{
    (void)state;
    char *json = malloc(1 << 16), *at = json + sprintf(json, "{\"n\": 128, \"prompt\": [\"a\"");
    for (int i = 0; i < 32; i++)
        at += sprintf(at, ", \"a\"");
    (void)sprintf(at, "]}");
    bad(json, 400, "prompt", "found 33 prompts of 128 sequences each, at most 4096 together");
    free(json);
}

static void takes_chats(void **state)
{
    (void)state;
    struct trial t;
    struct protocol_generate *g =
        good(&t, "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", "
                 "\"name\": null, \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                 "{\"text\": \"b\\u0000\", \"type\": \"text\"}]}]}");
    assert_null(g->prompt);
    assert_int_equal(g->n_prompts, 1);
    assert_int_equal(g->n_turns, 2);
    assert_string_equal(g->turn[0].role, "system");
    assert_int_equal(g->turn[1].bytes, 4);
    assert_memory_equal(g->turn[1].content, "a\nb\0", 5);
    assert_int_equal(json_array_size(g->chat.parts), 2);
    assert_true(json_is_null(json_array_get(g->chat.parts, 0)));
    assert_int_equal(json_array_size(json_array_get(g->chat.parts, 1)), 2);
    assert_int_equal(g->rules.max_tokens, PROTOCOL_FILL);
    assert_true(g->chat.add_generation_prompt && !g->parse_special && !g->add_special_tokens);
    close_trial(&t);
    g = good(&t, "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"add_generation_prompt\": false, "
                 "\"parse_special\": "
                 "true, \"max_tokens\": 4}");
    assert_null(g->chat.parts);
    assert_true(!g->chat.add_generation_prompt && g->parse_special && g->rules.max_tokens == 4);
    close_trial(&t);
}

/* Other members that templates read are passed to them, arguments of calls as objects. */
static void takes_tools(void **state)
{
    (void)state;
    struct trial t;
    struct protocol_generate *g = good(
        &t,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"reasoning_content\": \"r\", \"tool_calls\": "
        "[{\"id\": \"1\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}}]}, "
        "{\"role\": \"tool\", \"tool_call_id\": \"1\", \"name\": \"f\", \"content\": \"2\"}], \"tools\": [{}], "
        "\"documents\": [], \"chat_template_kwargs\": {\"enable_thinking\": false}}");
    const json_t *call = json_array_get(json_object_get(json_array_get(g->chat.messages, 0), "tool_calls"), 0);
    const json_t *arguments = json_object_get(json_object_get(call, "function"), "arguments");
    assert_int_equal(json_integer_value(json_object_get(arguments, "x")), 1);
    assert_int_equal(g->turn[0].bytes, 0);
    assert_string_equal(g->turn[0].content, "");
    assert_int_equal(json_array_size(g->chat.tools), 1);
    assert_null(g->chat.documents);
    assert_true(json_is_false(json_object_get(g->chat.variables, "enable_thinking")));
    close_trial(&t);
}

/* Arguments that are no JSON object are kept as a text, an empty text is an object without members. */
static void keeps_arguments(void **state)
{
    (void)state;
    static const struct {
        const char *sent, *read;
    } each[] = {{"", "{}"},
                {" \\n", "{}"},
                {"{\\\"a\\\": 1}", "{\"a\": 1}"},
                {"{\\\"city\\\": Oslo}", "{\"arguments\": \"{\\\"city\\\": Oslo}\"}"},
                {"{\\\"a\\\": ", "{\"arguments\": \"{\\\"a\\\": \"}"},
                {"[1]", "{\"arguments\": \"[1]\"}"},
                {"\\u0000", "{\"arguments\": \"\\u0000\"}"}};
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        struct trial t;
        char message[300];
        (void)snprintf(message, sizeof message,
                       "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
                       "\"arguments\": \"%s\"}}]}]}",
                       each[i].sent);
        struct protocol_generate *g = good(&t, message);
        const json_t *call = json_array_get(json_object_get(json_array_get(g->chat.messages, 0), "tool_calls"), 0);
        char *text = json_dumps(json_object_get(json_object_get(call, "function"), "arguments"), 0);
        assert_string_equal(text, each[i].read);
        free(text);
        close_trial(&t);
    }
}

static void refuses_chats(void **state)
{
    (void)state;
    bad("{\"messages\": []}", 400, "messages", "found an empty list, expected a list of {\"role\", \"content\"}");
    bad("{\"messages\": \"hi\"}", 400, "messages", "found a string, expected a list of {\"role\", \"content\"}");
    bad("{\"messages\": [5]}", 400, "messages[0]",
        "found an integer, expected an object with \"role\" and \"content\"");
    bad("{\"messages\": [{\"content\": \"a\"}]}", 400, "messages[0].role", "found nothing, expected a string");
    bad("{\"messages\": [{\"role\": \"user\"}]}", 400, "messages[0].content",
        "found nothing, expected a string or a list of text parts");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": null}]}", 400, "messages[0].content",
        "found null, expected a string or a list of text parts");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": \"x\"}]}]}", 400,
        "messages[0].content[0].type",
        "found a part of type \"image_url\", expected \"text\": pictures, sounds and files are refused");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": 3, \"text\": \"x\"}]}]}", 400,
        "messages[0].content[0].type", "found an integer, expected a string");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}", 400,
        "messages[0].content[0].text", "found nothing, expected a string");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": [\"x\"]}]}", 400, "messages[0].content[0]",
        "found a string, expected {\"type\": \"text\", \"text\": a string}");
    bad("{\"messages\": [{\"role\": \"a\", \"content\": \"b\"}, {\"role\": \"user\", \"content\": [{\"type\": "
        "\"text\", "
        "\"text\": \"x\"}, {\"type\": \"text\", \"text\": \"y\", \"cache_control\": {}}]}]}",
        400, "messages[1].content[1].cache_control", "unknown field");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": []}]}", 400, "messages[0].content",
        "found an empty list, expected text parts");
    bad("{\"messages\": [{\"role\": \"a\", \"content\": \"\", \"audio\": {}}]}", 400, "messages[0].audio",
        "not implemented");
    bad("{\"messages\": [{\"role\": \"a\", \"content\": \"\", \"name\": 5}]}", 400, "messages[0].name",
        "found an integer, expected a string");
    bad("{\"messages\": [{\"role\": \"a\", \"tool_calls\": [5]}]}", 400, "messages[0].tool_calls[0]",
        "found an integer, expected {\"function\": {\"name\", \"arguments\"}}");
    bad("{\"messages\": [{\"role\": \"a\", \"content\": \"\"}], \"tools\": {}}", 400, "tools",
        "found an object, expected a list of objects");
    bad("{\"messages\": [{\"role\": \"a\", \"content\": \"\"}], \"documents\": [1]}", 400, "documents[0]",
        "found an integer, expected an object");
    bad("{\"messages\": [{\"role\": \"a\", \"content\": \"\"}], \"chat_template_kwargs\": {\"tools\": 1}}", 400,
        "chat_template_kwargs", "found \"tools\" in it, which is a field of the message");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"echo\": true}", 400, "echo",
        "not implemented for chats");
    bad("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"add_special_tokens\": true}", 400,
        "add_special_tokens", "chats have the special tokens of their template");
}

/* ---------------------------------------------------------------- unknown fields */

static void refuses_unknown_fields(void **state)
{
    (void)state;
    struct trial t;
    bad("{\"prompt\": \"p\", \"max_tokns\": 3}", 400, "max_tokns", "unknown field");
    bad("{\"prompt\": \"p\", \"bad_words\": [\"x\"]}", 400, "bad_words", "not implemented");
    bad("{\"prompt\": \"p\", \"tools\": []}", 400, "tools", "only chats (\"messages\") have it");
    bad("{\"prompt\": \"p\", \"no_repeat_ngram_size\": 3}", 400, "no_repeat_ngram_size",
        "not implemented: only 0 is accepted");
    bad("{\"prompt\": \"p\", \"typical_p\": \"1\"}", 400, "typical_p", "not implemented: only 1 is accepted");
    bad("{\"prompt\": \"p\", \"detokenize\": false}", 400, "detokenize", "not implemented: only true is accepted");
    bad("{\"prompt\": \"p\", \"details\": true}", 400, "details", "not implemented: only false is accepted");
    bad("{\"prompt\": \"p\", \"parameters\": {\"best\": 1}}", 400, "parameters.best", "unknown field");
    bad("{\"prompt\": \"p\", \"parameters\": {\"prompt\": 1}}", 400, "parameters.prompt",
        "belongs at the top of the message, not in \"parameters\"");
    bad("{\"prompt\": \"p\", \"parameters\": {\"parameters\": {}}}", 400, "parameters.parameters", "unknown field");
    bad("{\"prompt\": \"p\", \"parameters\": 7}", 400, "parameters", "found an integer, expected an object");
    bad("{\"prompt\": \"p\", \"a\\nb\\u001b[31m\": 1}", 400, "a?b?[31m", "unknown field");
    bad("{\"prompt\": \"p\", "
        "\"\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
        "\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\": 1}",
        400,
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
        "\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3"
        "\xa4"
        "\xc3\xa4\xc3\xa4\xc3\xa4?",
        "unknown field");
    (void)good(&t, "{\"prompt\": \"p\", \"typical_p\": 1.0, \"detokenize\": true, \"details\": false, \"tools\": null, "
                   "\"repeat_last_n\": -1, \"parameters\": null}");
    close_trial(&t);
}

/* Fields of other servers that Lockstep lacks: neutral values are accepted, all others refused by name. */
static void refuses_what_others_have(void **state)
{
    (void)state;
    static const struct {
        const char *name, *neutral, *other; /* neutral NULL: only null */
    } fields[] = {{"typical_p", "1", "0.9"},
                  {"epsilon_cutoff", "0", "0.1"},
                  {"eta_cutoff", "0.0", "0.1"},
                  {"no_repeat_ngram_size", "0", "3"},
                  {"encoder_repetition_penalty", "1", "2"},
                  {"num_beam_groups", "1", "2"},
                  {"diversity_penalty", "0", "1"},
                  {"beam_search_diversity_rate", "0", "1"},
                  {"penalty_alpha", "0", "0.6"},
                  {"guidance_scale", "1", "2"},
                  {"min_length", "0", "5"},
                  {"repeat_last_n", "-1", "64"},
                  {"stream_interval", "1", "2"},
                  {"n_keep", "0", "5"},
                  {"id_slot", "-1", "0"},
                  {"t_max_predict_ms", "0", "9"},
                  {"logprob_start_len", "-1", "0"},
                  {"mirostat", "0", "2"},
                  {"dynatemp_range", "0", "1"},
                  {"xtc_probability", "0", "0.5"},
                  {"dry_multiplier", "0", "1"},
                  {"top_n_sigma", "-1", "1"},
                  {"spaces_between_special_tokens", "true", "false"},
                  {"detokenize", "true", "false"},
                  {"cache_prompt", "true", "false"},
                  {"return_tokens", "true", "false"},
                  {"details", "false", "true"},
                  {"decoder_input_details", "false", "true"},
                  {"output_scores", "false", "true"},
                  {"max_length", NULL, "20"},
                  {"max_time", NULL, "1"},
                  {"truncate_prompt_tokens", NULL, "5"},
                  {"bad_words", NULL, "[]"},
                  {"grammar", NULL, "\"\""},
                  {"lora", NULL, "[]"},
                  {"stream_options", NULL, "{}"},
                  {"user", NULL, "\"me\""}};
    char json[200], message[100];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct trial t;
        const char *neutral = fields[i].neutral;
        (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"%s\": %s}", fields[i].name,
                       neutral != NULL ? neutral : "null");
        (void)good(&t, json);
        close_trial(&t);
        (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"%s\": %s}", fields[i].name, fields[i].other);
        (void)snprintf(message, sizeof message,
                       neutral != NULL ? "not implemented: only %s is accepted" : "not implemented",
                       neutral != NULL && strcmp(neutral, "0.0") == 0 ? "0" : neutral);
        bad(json, 400, fields[i].name, message);
    }
}

/* ---------------------------------------------------------------- the message as a whole */

static void takes_operations(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum protocol_op op;
    } ops[] = {{"{\"op\": \"health\"}", PROTOCOL_HEALTH},
               {"{\"op\": \"metrics\", \"request_id\": \"a\"}", PROTOCOL_METRICS},
               {"{\"op\": \"models\", \"protocol\": 1}", PROTOCOL_MODELS},
               {"{\"op\": \"drain\"}", PROTOCOL_DRAIN},
               {"{\"op\": \"shutdown\"}", PROTOCOL_SHUTDOWN},
               {"{\"op\": \"cancel\", \"rid\": \"a\"}", PROTOCOL_CANCEL},
               {"{\"op\": \"generate\", \"prompt\": \"x\"}", PROTOCOL_GENERATE},
               {"{\"op\": \"tokenize\", \"prompt\": \"x\", \"return_token_strs\": true}", PROTOCOL_TOKENIZE},
               {"{\"op\": \"detokenize\", \"tokens\": [1, 2], \"model\": \"demo\"}", PROTOCOL_DETOKENIZE}};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct trial t;
        (void)good(&t, ops[i].json);
        assert_int_equal(t.m.op, ops[i].op);
        if (t.m.op == PROTOCOL_CANCEL || t.m.op == PROTOCOL_METRICS)
            assert_string_equal(t.m.request_id, "a");
        if (t.m.op == PROTOCOL_DETOKENIZE)
            assert_int_equal(t.m.ids.n, 2);
        if (t.m.op == PROTOCOL_TOKENIZE)
            assert_true(t.m.generate.return_token_strings && t.m.generate.n_prompts == 1);
        close_trial(&t);
    }
    bad("{\"op\": \"dance\"}", 400, "op",
        "found \"dance\", expected generate, cancel, health, metrics, models, tokenize, detokenize, load, unload, pin, "
        "drain or shutdown");
    bad("{\"op\": \"1234567890123456789012345678901234567890\"}", 400, "op",
        "found \"1234567890123456789012345678901234567890\", expected generate, cancel, health, metrics, models, "
        "tokenize, "
        "detokenize, load, unload, pin, drain or shutdown");
    bad("{\"op\": \"123456789012345678901234567890123456789\xc3\xa4\"}", 400, "op",
        "found \"123456789012345678901234567890123456789?\", expected generate, cancel, health, metrics, models, "
        "tokenize, "
        "detokenize, load, unload, pin, drain or shutdown");
    bad("{\"op\": 5}", 400, "op", "found an integer, expected a string");
    bad("{\"op\": \"health\", \"prompt\": \"x\"}", 400, "prompt", "op \"health\" has no such field");
    bad("{\"op\": \"health\", \"parameters\": {}}", 400, "parameters", "unknown field");
    bad("{\"op\": \"cancel\"}", 400, "request_id", "missing: which request is to be cancelled?");
    bad("{\"op\": \"tokenize\", \"prompt\": [\"x\"]}", 400, "prompt", "found an array, expected a string");
    bad("{\"op\": \"tokenize\", \"prompt\": \"x\", \"max_tokens\": 1}", 400, "max_tokens",
        "op \"tokenize\" has no such field");
    bad("{\"op\": \"detokenize\"}", 400, "token_ids", "missing: expected a list of token ids");
    bad("{\"op\": \"detokenize\", \"token_ids\": [1000]}", 400, "token_ids[0]",
        "found 1000, expected a token id in [0, 999]");
}

static void checks_the_envelope(void **state)
{
    (void)state;
    char id[200], json[400];
    struct trial t;
    bad("{\"prompt\": \"p\", \"protocol\": 2}", 400, "protocol", "found 2, expected an integer in [1, 1]");
    bad("{\"prompt\": \"p\", \"model\": \"other\"}", 404, "model",
        "found \"other\", expected \"demo\" (--served-model-name)");
    bad("{\"prompt\": \"p\", \"model\": 5}", 400, "model", "found an integer, expected a string");
    bad("{\"prompt\": \"p\", \"request_id\": 5}", 400, "request_id",
        "found an integer, expected a string of 1 to 128 bytes without NUL");
    bad("{\"prompt\": \"p\", \"request_id\": \"\"}", 400, "request_id",
        "found a string of 0 bytes, expected a string of 1 to 128 bytes without NUL");
    bad("{\"prompt\": \"p\", \"request_id\": \"a\\u0000\"}", 400, "request_id",
        "found a string of 2 bytes, expected a string of 1 to 128 bytes without NUL");
    memset(id, 'x', sizeof id);
    id[129] = '\0';
    (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"request_id\": \"%s\"}", id);
    bad(json, 400, "request_id", "found a string of 129 bytes, expected a string of 1 to 128 bytes without NUL");
    (void)snprintf(json, sizeof json, "{\"prompt\": \"p\", \"request_id\": \"%s\"}", id + 1);
    (void)good(&t, json);
    assert_int_equal(strlen(t.m.request_id), 128);
    close_trial(&t);
    parse_bytes(&t, "{\"request_id\": \"me\", \"oops\": 1}", 31); /* a refusal names its request */
    assert_string_equal(t.m.request_id, "me");
    assert_string_equal(t.error.field, "oops");
    close_trial(&t);
}

static void refuses_bad_json(void **state)
{
    (void)state;
    static const struct {
        const char *json, *field, *part;
    } cases[] = {
        {"", "", "line 1, column 0: '[' or '{' expected"},
        {"[1]", "", "found an array, expected an object"},
        {"{\"prompt\": \"p\"} x", "", "message: not one JSON value: found more text at byte 16, expected the end"},
        {"{\"prompt\": \"a\xff\"}", "prompt", "unable to decode byte 0xff"},
        {"{\"prompt\": \"\xed\xa0\x80\"}", "prompt", "unable to decode byte 0xed"},
        {"{\"prompt\": \"\\ud800\"}", "prompt", "invalid Unicode"},
        {"{\"prompt\": \"p\", \"seed\": 99999999999999999999}", "seed", "too big integer"},
        {"{\"prompt\": \"p\", \"temperature\": 1e999}", "temperature", "real number overflow"},
        {"{\"prompt\": \"p\", \"n\": 1, \"n\": 1}", "n", "duplicate object key"},
        {"{\"prompt\": \"p\", \"parameters\": {\"n\": NaN}}", "parameters", "invalid token near 'NaN'"},
        {"{\"prompt\" \"p\"}", "prompt", "':' expected"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct trial t;
        parse_bytes(&t, cases[i].json, strlen(cases[i].json));
        if (t.error.code != 400 || strcmp(t.error.field, cases[i].field) != 0 ||
            strstr(t.error.message, cases[i].part) == NULL)
            print_error("%s: %d %s: %s\n", cases[i].json, t.error.code, t.error.field, t.error.message);
        assert_int_equal(t.error.code, 400);
        assert_string_equal(t.error.field, cases[i].field);
        assert_non_null(strstr(t.error.message, cases[i].part));
        close_trial(&t);
    }
}

/* Returns `n` copies of a text between a beginning and an end. */
static char *repeated(const char *begin, const char *text, size_t n, const char *end)
{
    char *json = malloc(strlen(begin) + n * strlen(text) + strlen(end) + 1), *at = stpcpy(json, begin);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, text);
    (void)stpcpy(at, end);
    return json;
}

static void bounds_messages(void **state)
{
    (void)state;
    char *json = repeated("", "{\"a\":", 65, "1");
    bad(json, 413, "", "message: JSON nested 65 deep, at most 64 is accepted");
    free(json);
    json = repeated("", "[", 1 << 20, "");
    bad(json, 413, "", "message: JSON nested 1048576 deep, at most 64 is accepted");
    free(json);
    json = repeated("{\"prompt\": [", "[],", 1 << 16, "[]]}");
    bad(json, 413, "", "message: 65539 JSON arrays and objects, at most 65536 are accepted");
    free(json);
    json = repeated("{\"messages\": [{}", ",{\"a\":1,\"b\":1,\"c\":1}", 1 << 16, "]}");
    bad(json, 413, "", "message: 65539 JSON arrays and objects, at most 65536 are accepted");
    free(json);
    json = repeated("{\"messages\": [{}", ",{\"a\":1,\"b\":1,\"c\":1}", 50000, "]}");
    bad(json, 413, "", "message: 150001 members of JSON objects, at most 131072 are accepted");
    free(json);
    json = repeated("{\"prompt\": [", "1,", PROTOCOL_MAX_VALUES, "1]}");
    bad(json, 413, "", "message: 2097155 JSON values, at most 2097152 are accepted");
    free(json);
}

/* Text parts are stored beside the message, and counted. */
static void counts_parts(void **state)
{
    (void)state;
#define PART "{\"type\": \"text\", \"text\": \"\"}"
    char *json = repeated("{\"messages\": [{\"role\": \"user\", \"content\": [" PART, "," PART, 1000, "]}]}");
    struct trial t;
    (void)good(&t, json);
    assert_true(t.m.memory > 1000 * 100);
    protocol_forget_chat(&t.m);
    assert_true(t.m.memory < 1000 * 10);
    close_trial(&t);
    free(json);
}

/* Arguments of calls are JSON within JSON: in many small pieces they may take no more room than a message. */
static void bounds_arguments(void **state)
{
    (void)state;
    char *lists = repeated("{\\\"a\\\":[0", ",[]", 1000, "]}");
    char *call = NULL;
    assert_true(asprintf(&call, ",{\"function\": {\"name\": \"f\", \"arguments\": \"%s\"}}", lists) > 0);
    static const char begin[] = "{\"messages\": [{\"role\": \"a\", \"tool_calls\": [{\"function\": {\"name\": "
                                "\"f\", \"arguments\": \"{}\"}}";
    char *json = repeated(begin, call, 10, "]}]}");
    struct trial t;
    (void)good(&t, json);
    assert_true(t.m.memory > 10 * 1000 * 64);
    size_t before = t.m.memory;
    protocol_forget_chat(&t.m); /* nothing of it is kept */
    assert_true(t.m.memory < before / 100);
    assert_non_null(t.m.generate.turn[0].role);
    close_trial(&t);
    free(json);
    json = repeated(begin, call, 66, "]}]}");
    bad(json, 413, "messages.tool_calls", "together: 66133 JSON arrays and objects, at most 65536 are accepted");
    free(json);
    free(call);
    free(lists);
}

/* ---------------------------------------------------------------- to token ids */

static const char vocabulary[] =
    "{\"added_tokens\": [{\"id\": 4, \"content\": \"<c>\", \"special\": true, \"normalized\": false, \"lstrip\": "
    "false, "
    "\"rstrip\": false, \"single_word\": false}], \"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": "
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<c>\", \"type_id\": 0}}, "
    "{\"Sequence\": "
    "{\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": "
    "{\"id\": "
    "\"B\", \"type_id\": 1}}], \"special_tokens\": {\"<c>\": {\"id\": \"<c>\", \"ids\": [4], \"tokens\": [\"<c>\"]}}}, "
    "\"decoder\": null, \"model\": {\"type\": \"BPE\", \"vocab\": {\"<\": 0, \"c\": 1, \">\": 2, \"a\": 3, \"<c>\": "
    "4}, "
    "\"merges\": []}}";

static void expect_ids(const struct tokenizer *t, const char *json, int prompt, int32_t bos, const char *want)
{
    struct trial trial;
    struct token_list ids = {0};
    struct protocol_error error = {0};
    char got[200] = "";
    size_t n = 0;
    const struct protocol_generate *g = good(&trial, json);
    if (encode_request(g, prompt, t, NULL, 5, bos, &ids, &error) != 0)
        n += (size_t)snprintf(got, sizeof got, "%d %s: %s", error.code, error.field, error.message);
    for (size_t i = 0; i < ids.n; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%d ", ids.id[i]);
    assert_string_equal(got, want);
    token_list_free(&ids);
    close_trial(&trial);
}

static void encodes_prompts(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    struct err e = {0};
    assert_int_equal(tokenizer_open_memory(&t, vocabulary, sizeof vocabulary - 1, "v", &e), 0);
    expect_ids(t, "{\"prompt\": \"a<c>\"}", 0, -1, "4 3 4 ");
    expect_ids(t, "{\"prompt\": \"a<c>\", \"parse_special\": false}", 0, -1, "4 3 0 1 2 ");
    expect_ids(t, "{\"prompt\": \"a<c>\", \"add_special_tokens\": false}", 0, -1, "3 4 ");
    expect_ids(t, "{\"prompt\": [\"a\", \"c\"]}", 1, -1, "4 1 ");
    expect_ids(t, "{\"prompt\": [3, 3]}", 0, -1, "3 3 ");
    expect_ids(t, "{\"prompt\": [[3], [1, 2]]}", 1, -1, "1 2 ");
    expect_ids(t, "{\"prompt\": \"\"}", 0, -1, "4 ");
    expect_ids(t, "{\"prompt\": \"\", \"add_special_tokens\": false}", 0, 4,
               "400 prompt: no token in it, expected at least one");
    expect_ids(t, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", 0, -1,
               "400 messages: this server knows no chat template for its checkpoint: render the chat into \"prompt\"");
    expect_ids(t, "{\"prompt\": [999]}", 0, -1,
               "500 prompt: the tokenizer gives id 999, the model has 5: they do not belong together999 ");
    tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_prompts),
        cmocka_unit_test(refuses_prompts),
        cmocka_unit_test(bounds_sequences),
        cmocka_unit_test(takes_chats),
        cmocka_unit_test(takes_tools),
        cmocka_unit_test(keeps_arguments),
        cmocka_unit_test(refuses_chats),
        cmocka_unit_test(refuses_unknown_fields),
        cmocka_unit_test(refuses_what_others_have),
        cmocka_unit_test(takes_operations),
        cmocka_unit_test(checks_the_envelope),
        cmocka_unit_test(refuses_bad_json),
        cmocka_unit_test(bounds_messages),
        cmocka_unit_test(counts_parts),
        cmocka_unit_test(bounds_arguments),
        cmocka_unit_test(encodes_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
