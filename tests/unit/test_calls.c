/* tests/unit/test_calls.c - text/calls: parsing of models' answers, split at every position and byte by byte. */
#include "tests/unit/unit.h"

#include "text/calls/calls.h"

#include <stdlib.h>

/* Parts that a reader has reported: content, then {reasoning}, then name(arguments) for each call. */
struct seen_parts {
    char content[8192], reasoning[1024], calls[8192];
    int last;
};

static void add(char *to, size_t size, const char *text, size_t bytes)
{
    size_t n = strlen(to);
    assert_true(n + bytes < size);
    memcpy(to + n, text, bytes);
    to[n + bytes] = '\0';
}

static void see(void *context, enum calls_part part, int call, const char *text, size_t bytes)
{
    struct seen_parts *s = context;
    assert_true(bytes > 0);
    if (part == CALLS_CONTENT)
        add(s->content, sizeof s->content, text, bytes);
    if (part == CALLS_REASONING)
        add(s->reasoning, sizeof s->reasoning, text, bytes);
    if (part == CALLS_NAME) {
        assert_int_equal(call, s->last++);
        add(s->calls, sizeof s->calls, "|", 1);
        add(s->calls, sizeof s->calls, text, bytes);
        add(s->calls, sizeof s->calls, " ", 1);
    }
    if (part == CALLS_ARGUMENTS) {
        assert_int_equal(call, s->last - 1);
        add(s->calls, sizeof s->calls, text, bytes);
    }
}

static void read_cut(struct seen_parts *s, struct calls_way way, const char *text, size_t bytes, size_t cut,
                     size_t again)
{
    struct calls_reader *r = calls_open(way);
    const struct calls_sink sink = {see, s};
    *s = (struct seen_parts){0};
    calls_read(r, text, cut, &sink);
    calls_read(r, text + cut, again, &sink);
    for (size_t i = cut + again; i < bytes; i++)
        calls_read(r, text + i, 1, &sink);
    calls_end(r, &sink);
    assert_int_equal(calls_count(r), s->last);
    calls_close(r);
}

static struct calls_way of(enum calls_format format)
{
    return (struct calls_way){.format = format};
}

static void expect(enum calls_format format, const char *text, const char *content, const char *calls)
{
    size_t n = strlen(text);
    struct seen_parts s;
    for (size_t cut = 0; cut <= n; cut++) {
        read_cut(&s, of(format), text, n, cut, n - cut);
        assert_string_equal(s.content, content);
        assert_string_equal(s.calls, calls);
    }
    read_cut(&s, of(format), text, n, 0, 0);
    assert_string_equal(s.content, content);
    assert_string_equal(s.calls, calls);
}

static void hermes(void **state)
{
    const enum calls_format f = CALLS_HERMES;
    (void)state;
    expect(f, "", "", "");
    expect(f, " Hi <b> there <tool", " Hi <b> there <tool", "");
    expect(f, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>", "",
           "|f {\"a\": [1, \"}\\\"\"]}");
    expect(f,
           "Let me see.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>\n{\"name\":\"g\"}\n"
           "</tool_call>\n",
           "Let me see.", "|f {}|g {}");
    expect(f, "<tool_call>{\"arguments\": {\"x\": null}, \"id\": 7, \"name\": \"\\u0066\"}</tool_call>Done. ", "Done. ",
           "|f {\"x\": null}");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1", "", "|f {\"a\": 1"); /* ended by max_tokens */
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>x", "x", "|f {\"a\": 1}");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1</tool_call>x", "x", "|f {\"a\": 1");
    expect(f, "<tool_call>{\"name\": \"f\", \"arguments\": {}} <tool_call>{\"name\": \"g\", \"arguments\": 5}", "",
           "|f {}|g 5");
    expect(f, "a <tool_call> nothing", "a <tool_call> nothing", "");
    expect(f, "<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_call>", "|f {}");
    expect(f, "<tool_call>{\"name\": 5, \"arguments\": {}}", "<tool_call>{\"name\": 5, \"arguments\": {}}", "");
    expect(f, "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>", "");
    expect(f, "<tool_call>{\"name\": \"\\ud800\", \"arguments\": {}}",
           "<tool_call>{\"name\": \"\\ud800\", \"arguments\": {}}", "");
}

static void llama(void **state)
{
    const enum calls_format f = CALLS_LLAMA3;
    (void)state;
    expect(f, "\n {\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "", "|f {\"a\": \"b\"}");
    expect(f, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"c\": {}}}", "",
           "|f {}|g {\"c\": {}}");
    expect(f, "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}} ", "", "|f {}");
    expect(f, "{\"name\": \"Bob\", \"age\": 3}", "{\"name\": \"Bob\", \"age\": 3}", "");
    expect(f, "{\"name\": \"Bob\"}", "{\"name\": \"Bob\"}", "");
    expect(f, "{} {\"name\": \"f\", \"parameters\": {}}", "{} {\"name\": \"f\", \"parameters\": {}}", "");
    expect(f, "It is {\"name\": \"f\", \"parameters\": {}}", "It is {\"name\": \"f\", \"parameters\": {}}", "");
    expect(f, "<|python_tag|>print(1)", "<|python_tag|>print(1)", "");
    expect(f, "{\"name\": \"f\", \"parameters\": {}}} x", "} x", "|f {}");
}

static void mistral(void **state)
{
    const enum calls_format f = CALLS_MISTRAL, args = CALLS_MISTRAL_ARGS;
    (void)state;
    expect(f,
           "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}, {\"name\": \"g\", "
           "\"arguments\": {}}]",
           "", "|f {\"a\": 1}|g {}");
    expect(f, "Well [TOOL[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}] and", "Well [TOOLand", "|f {}");
    expect(f, "[TOOL_CALLS] []", "[TOOL_CALLS] []", "");
    expect(args, "[TOOL_CALLS]f[ARGS]{\"a\": {\"b\": \"[ARGS]\"}}[TOOL_CALLS]g[CALL_ID]123[ARGS]{}", "",
           "|f {\"a\": {\"b\": \"[ARGS]\"}}|g {}");
    expect(args, "Hm. [TOOL_CALLS]f {\"a\": 1}", "Hm.", "|f {\"a\": 1}");
    expect(args, "[TOOL_CALLS]f and g", "[TOOL_CALLS]f and g", "");
    expect(args, "[TOOL_CALLS]{\"name\": \"f\", \"arguments\": {}}", "", "|f {}");
}

static void harmony(void **state)
{
    const enum calls_format f = CALLS_HARMONY;
    static const char both[] =
        "<|channel|>analysis<|message|>Two < three.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        "<|constrain|>json<|message|>{\"a\": 1}<|call|>";
    struct seen_parts s;
    (void)state;
    expect(f, "<|channel|>final<|message|>Hello <|there.<|return|>", "Hello <|there.", "");
    expect(f, both, "", "|f {\"a\": 1}");
    read_cut(&s, of(f), both, strlen(both), 40, 3);
    assert_string_equal(s.reasoning, "Two < three.");
    expect(f, " to=functions.g<|channel|>commentary json<|message|><|call|>", "", "|g {}");
    expect(f,
           "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant to=browser.open<|channel|>analysis"
           "<|message|>{}",
           "I will look.", "|browser.open {}");
    expect(f, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b<|start|>assistant<|channel|>fin", "b", "");
    expect(f, "Just words", "Just words", "");
}

/* In one piece, and split at every position: a thought, the content, the calls. */
static void expect_thought(enum calls_format format, enum calls_thoughts thoughts, const char *text,
                           const char *reasoning, const char *content, const char *calls)
{
    struct calls_way way = {.format = format, .thoughts = thoughts};
    size_t n = strlen(text);
    struct seen_parts s;
    for (size_t cut = 0; cut <= n; cut++) {
        read_cut(&s, way, text, n, cut, cut % 2 == 0 ? n - cut : 0);
        assert_string_equal(s.reasoning, reasoning);
        assert_string_equal(s.content, content);
        assert_string_equal(s.calls, calls);
    }
    way.hidden = true;
    read_cut(&s, way, text, n, n / 2, 1);
    assert_string_equal(s.reasoning, "");
    assert_string_equal(s.content, content);
}

/* An answer that continues a text neither begins a call of Llama 3 nor has a header, and keeps its first spaces. */
static void continued(void **state)
{
    (void)state;
    static const char object[] = "{\"name\": \"f\", \"parameters\": {}}", thought[] = " two.\n</think>\nFive.";
    struct seen_parts s;
    for (size_t cut = 0; cut < sizeof object; cut++) {
        read_cut(&s, (struct calls_way){.format = CALLS_LLAMA3, .continues = true}, object, sizeof object - 1, cut, 1);
        assert_string_equal(s.content, object);
        read_cut(&s, (struct calls_way){.format = CALLS_HARMONY, .continues = true}, " a<|end|>", 9, cut % 9, 1);
        assert_string_equal(s.content, " a");
        read_cut(&s, (struct calls_way){.thoughts = THOUGHTS_BEGUN, .continues = true}, thought, sizeof thought - 1,
                 cut % (sizeof thought - 1), 1);
        assert_string_equal(s.reasoning, " two.");
        assert_string_equal(s.content, "Five.");
    }
    assert_true(calls_in_thought("<think>\nOne", 11));
    assert_true(calls_in_thought("<think>a</think><think>", 23));
    assert_false(calls_in_thought("<think>a</think>b", 17));
    assert_false(calls_in_thought("", 0));
}

static void thoughts(void **state)
{
    const enum calls_thoughts marked = THOUGHTS_MARKED, begun = THOUGHTS_BEGUN;
    (void)state;
    expect_thought(CALLS_NONE, marked, "<think>\nTwo < three.\n\n</think>\n\nFive.\n", "Two < three.", "Five.\n", "");
    expect_thought(CALLS_NONE, begun, "\nTwo\n or </thin.\n</think>\n\nFive.", "Two\n or </thin.", "Five.", "");
    expect_thought(CALLS_NONE, begun, "Two, and so", "Two, and so", "", "");
    expect_thought(CALLS_NONE, begun, "Two </thi", "Two </thi", "", "");
    expect_thought(CALLS_NONE, marked, "<think>\n\n</think>\n\nFive.", "", "Five.", "");
    expect_thought(CALLS_NONE, marked, " \n<think>a</think>b", "a", "b", "");
    expect_thought(CALLS_NONE, marked, " \nFive <think>a</think>", "", " \nFive <think>a</think>", "");
    expect_thought(CALLS_NONE, marked, " <thin", "", " <thin", "");
    expect_thought(CALLS_NONE, marked, "<th<think>", "", "<th<think>", "");
    expect_thought(CALLS_NONE, THOUGHTS_NONE, "<think>a</think>b ", "", "<think>a</think>b ", "");
    expect_thought(CALLS_NONE, marked, "<think>a</think>b</think>c<think>", "a", "b</think>c<think>", "");
    expect_thought(CALLS_HERMES, marked, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "", "",
                   "|f {}");
    expect_thought(CALLS_HERMES, begun,
                   "I <tool_call>.</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                   "I <tool_call>.", "", "|f {}");
    expect_thought(CALLS_LLAMA3, marked, "<think>a</think>{\"name\": \"f\", \"parameters\": {}}", "a", "", "|f {}");
    assert_true(calls_thinks("{% if '</think>' in content %}", 29));
    assert_false(calls_thinks("<think>", 7));
    assert_true(calls_begins_thought("assistant\n<think>\n", 18));
    assert_false(calls_begins_thought("<think>\n\n</think>\n\n", 19));
    assert_false(calls_begins_thought("think>", 6));
    assert_false(calls_begins_thought("", 0));
}

static void long_ones(void **state)
{
    static const char begin[] = "<tool_call>{\"x\": \"", end[] = "\", \"name\": \"f\", \"arguments\": {}}";
    char text[7000];
    struct seen_parts s;
    (void)state;
    memset(text, 'a', sizeof text);
    memcpy(text, begin, strlen(begin));
    memcpy(text + sizeof text - strlen(end), end, strlen(end));
    read_cut(&s, of(CALLS_HERMES), text, sizeof text, 3, 100); /* more than is held back for a name */
    assert_int_equal(strlen(s.content), sizeof text);
    assert_memory_equal(s.content, text, sizeof text);
    assert_int_equal(s.last, 0);
    memset(text, 'h', sizeof text);
    read_cut(&s, of(CALLS_HARMONY), text, sizeof text, 3, 100);
    assert_int_equal(strlen(s.content), sizeof text);
}

/* Texts of relevant fragments, in any order: the parts are the same in one piece or many. */
static void any_text(void **state)
{
    static const char *const piece[] = {"<think>",
                                        "</think>",
                                        "<tool_call>",
                                        "</tool_call>",
                                        "{",
                                        "}",
                                        "\"name\"",
                                        ":",
                                        "\"f\"",
                                        ",",
                                        "\"arguments\"",
                                        "\"parameters\"",
                                        "{}",
                                        " ",
                                        "\n",
                                        "[TOOL_CALLS]",
                                        "[",
                                        "]",
                                        "[ARGS]",
                                        "<|channel|>",
                                        "<|message|>",
                                        "<|end|>",
                                        "<|start|>",
                                        "<|call|>",
                                        "analysis",
                                        "to=",
                                        "functions.f",
                                        "<|python_tag|>",
                                        ";",
                                        "\\",
                                        "x",
                                        "<",
                                        "\"",
                                        "{\"name\":\"f\",\"arguments\":{",
                                        "{\"name\":\"g\",\"parameters\":{\"a\":1}}"};
    uint64_t seed = 5;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[1024] = "";
        struct seen_parts whole, cut;
        for (int i = random_below(&seed, 14); i >= 0; i--)
            strcat(text, piece[random_below(&seed, (int)(sizeof piece / sizeof piece[0]))]);
        const struct calls_way f = {.format = (enum calls_format)random_below(&seed, CALLS_FORMATS),
                                    .thoughts = (enum calls_thoughts)random_below(&seed, THOUGHTS_BEGUN + 1)};
        size_t n = strlen(text), at = (size_t)random_below(&seed, (int)n + 1);
        read_cut(&whole, f, text, n, n, 0);
        read_cut(&cut, f, text, n, at, (size_t)random_below(&seed, (int)(n - at) + 1));
        assert_string_equal(whole.content, cut.content);
        assert_string_equal(whole.reasoning, cut.reasoning);
        assert_string_equal(whole.calls, cut.calls);
    }
}

static void formats(void **state)
{
    static const struct {
        const char *source;
        enum calls_format format;
    } cases[] = {
        {"{{ x }}", CALLS_NONE},
        {"<tool_call>\n{{ t }}\n</tool_call>", CALLS_HERMES},
        {"<tool_call>\n<function=f>", CALLS_NONE},
        {"<tool_call>f\n<arg_key>", CALLS_NONE},
        {"[TOOL_CALLS] [", CALLS_MISTRAL},
        {"[TOOL_CALLS]{{ n }}[ARGS]", CALLS_MISTRAL_ARGS},
        {"'Respond in the format {\"name\": function name, \"parameters\": dictionary of argument name'", CALLS_LLAMA3},
        {"<|python_tag|>", CALLS_LLAMA3},
        {"<|channel|>analysis<|message|><tool_call>", CALLS_HARMONY}};
    char a[CALLS_ID_BYTES], b[CALLS_ID_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(calls_format_of(cases[i].source, strlen(cases[i].source)), cases[i].format);
    assert_string_equal(calls_format_name(CALLS_HARMONY), "harmony");
    calls_id(a, CALLS_MISTRAL, 1, 0);
    assert_int_equal(strlen(a), 9);
    assert_int_equal(strspn(a, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 9);
    calls_id(a, CALLS_HERMES, 1, 0);
    calls_id(b, CALLS_HERMES, 1, 1);
    assert_memory_equal(a, "call_", 5);
    assert_string_not_equal(a, b);
    calls_id(b, CALLS_HERMES, 1, 0);
    assert_string_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hermes),    cmocka_unit_test(llama),    cmocka_unit_test(mistral),
        cmocka_unit_test(harmony),   cmocka_unit_test(thoughts), cmocka_unit_test(continued),
        cmocka_unit_test(long_ones), cmocka_unit_test(any_text), cmocka_unit_test(formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
