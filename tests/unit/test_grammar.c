/* tests/unit/test_grammar.c - text/grammar/: the texts that a form allows, and the forms that are refused. */
#include "tests/unit/unit.h"

#include "text/grammar/form.h"
#include "text/grammar/lexicon_keeper.h"

#include <stdlib.h>

static struct tokenizer *tokenizer;
static struct lexicon_keeper keeper;
static const struct lexicon *lexicon;

static int open_model(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(tokenizer_open(&tokenizer, "demo/lockstep-stories", &e), 0);
    lexicon_keeper_open(&keeper, tokenizer, tokenizer_vocab_size(tokenizer));
    lexicon = lexicon_keeper_get(&keeper, &e);
    expect_none(&e);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    lexicon_keeper_close(&keeper);
    tokenizer_close(&tokenizer);
    return 0;
}

struct row {
    const char *source;
    const char *yes[8], *no[8]; /* texts that it allows, and texts that it does not */
};

/* Tells whether the token is in the mask. If text is forced, another split of the same text may be in the mask
 * instead. */
static bool may_come(struct grammar_run *r, int32_t token, uint32_t *mask)
{
    struct err e = {0};
    if (grammar_run_mask(r, NULL, 0, mask, &e) != 0)
        return false; /* nothing can follow */
    if (grammar_run_forced(r) >= 0)
        return lexicon_take(lexicon, r->machine, r->now.state, token) >= 0;
    return mask[token / 32] >> token % 32 & 1;
}

/* Tells whether the form allows the tokens of the text, one by one, and then its end. A text that is not UTF-8 has no
 * tokens: no. */
static bool allows_tokens(const struct form *form, const char *text)
{
    struct grammar_run r;
    struct err e = {0};
    struct token_list list = {0};
    uint32_t *mask = calloc((size_t)lexicon->n_words, sizeof *mask);
    assert_int_equal(grammar_run_open(&r, &form->grammar, lexicon, &e), 0);
    bool allowed = tokenizer_encode(tokenizer, text, strlen(text), TOKENIZER_PLAIN, &list, &e) == 0;
    for (size_t i = 0; i < list.n && allowed; i++)
        allowed = may_come(&r, list.id[i], mask) && grammar_run_take(&r, list.id[i], &e) == 0;
    allowed = allowed && r.machine->state[r.now.state].complete;
    token_list_free(&list);
    grammar_run_close(&r);
    free(mask);
    return allowed;
}

static void check_rows(enum form_kind kind, const struct row *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct form *form;
        struct err e = {0};
        if (form_open_text(&form, kind, row[i].source, strlen(row[i].source), &e) != 0)
            print_error("%s\n", row[i].source);
        expect_none(&e);
        for (int k = 0; k < 16; k++) {
            const char *text = k < 8 ? row[i].yes[k] : row[i].no[k - 8];
            if (text == NULL)
                continue;
            bool matches = machine_matches(&form->grammar.graph, form->grammar.start, text, strlen(text), &e);
            if (matches != (k < 8))
                print_error("%s: %s %s\n", row[i].source, text, matches ? "is allowed" : "is not allowed");
            assert_int_equal(matches, k < 8);
            if (allows_tokens(form, text) != matches)
                print_error("%s: %s, token by token, is %s\n", row[i].source, text,
                            matches ? "not allowed" : "allowed");
            assert_int_equal(allows_tokens(form, text), matches);
        }
        form_close(form);
    }
}

#define CHECK(kind, rows) check_rows(kind, rows, sizeof(rows) / sizeof *(rows))

static void kinds(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"integer\"}", {"0", "-7", "123456789"}, {"", "01", "1.5", "1e3", "--1", "\"1\"", "1 "}},
        {"{\"type\":\"number\"}", {"0", "-0.5", "1e3", "2.5E-10"}, {".5", "1.", "1e", "+1", "NaN", "0x1", "1e999"}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"True", "null", "tru", "truefalse"}},
        {"{\"type\":\"null\"}", {"null"}, {"nul", "0"}},
        {"{\"type\":[\"string\",\"null\"]}", {"null", "\"\"", "\"x\""}, {"1", "\"", "nul"}},
        {"{\"type\":\"string\"}",
         {"\"a b\"", "\"\\n\\u00e9\\\"\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\""},
         {"\"a", "\"\n\"", "\"\\x\"", "\"\xc3\"", "\"\\ud83d\"", "\"\\ud83d\\u0041\"", "\"\xed\xa0\x80\"", "a"}},
        {"{}", {"1", "\"x\"", "null", "[1, {\"a\": [true]}]", "{}"}, {"", "[1,]", "{\"a\"}", "{a: 1}"}},
        {"true", {"[]", "0"}, {"]"}},
    };
    CHECK(FORM_SCHEMA, rows);
    static const struct row objects[] = {{"null", {"{}", "{\"a\": 1}"}, {"[]", "1", "null", "{\"a\":}"}}};
    CHECK(FORM_OBJECT, objects);
}

static void numbers(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":250}",
         {"10", "99", "100", "199", "250"},
         {"9", "251", "-10", "1000", "0", "010"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-3,\"maximum\":3}", {"-2", "-1", "0", "3"}, {"-3", "4", "-0"}},
        {"{\"type\":\"integer\",\"minimum\":0.5}", {"1", "2", "1000000"}, {"0", "-1", "1.5"}},
        {"{\"type\":\"number\",\"minimum\":-1.5,\"maximum\":2.25}",
         {"-1.5", "-1.499", "0", "2.25", "2.2", "0.001", "2.2500"},
         {"-1.51", "2.26", "3", "-2", "2.2501", "2e0"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
         {"0.5", "0.001"},
         {"0", "1", "0.0", "-0.5", "1.0"}},
        {"{\"type\":\"number\",\"minimum\":5,\"exclusiveMinimum\":true}", {"5.1", "6"}, {"5", "5.0", "4"}},
        {"{\"type\":\"integer\",\"format\":\"int32\"}", {"2147483647", "-2147483648"}, {"2147483648", "-2147483649"}},
    };
    CHECK(FORM_SCHEMA, rows);
}

static void strings(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\u0041\\n\""},
         {"\"a\"", "\"abcd\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}", {"\"abc\""}, {"\"\"", "\"aB\"", "\"a1\""}},
        {"{\"type\":\"string\",\"pattern\":\"b+\"}", {"\"abba\"", "\"b\""}, {"\"aa\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^(ab)+$\",\"maxLength\":5}",
         {"\"ab\"", "\"abab\""},
         {"\"ababab\"", "\"aba\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[^a]$\"}",
         {"\"\\\"\"", "\"\\\\\"", "\"\\u0001\"", "\"\xe2\x82\xac\""},
         {"\"a\"", "\"\"\"", "\"bb\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}", {"\"2026-11-24\""}, {"\"2026-13-24\"", "\"x\""}},
        {"{\"type\":\"string\",\"format\":\"no-such\"}", {"\"x\""}, {"1"}},
        {"{\"enum\":[\"a\",1,null,\"ab\",{\"k\":[1]}]}",
         {"\"a\"", "\"ab\"", "1", "null", "{\"k\":[1]}"},
         {"\"abc\"", "2", "{\"k\":[2]}"}},
        {"{\"type\":\"string\",\"enum\":[\"a\",1,\"bcd\"],\"maxLength\":2}", {"\"a\""}, {"1", "\"bcd\""}},
        {"{\"const\":\"x\\\"\\n\"}", {"\"x\\\"\\n\""}, {"\"x\""}},
    };
    CHECK(FORM_SCHEMA, rows);
}

#define FORMAT(name) "{\"type\":\"string\",\"format\":\"" name "\"}"

static void formats(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {FORMAT("date-time"),
         {"\"2026-11-24T08:09:10Z\"", "\"1999-01-28T23:59:59.123+05:30\""},
         {"\"2026-11-24\"", "\"2026-11-24 08:09:10Z\"", "\"2026-11-24T24:00:00Z\"", "\"2026-11-24T08:09:10\""}},
        {FORMAT("time"), {"\"08:09:10Z\"", "\"23:59:59-01:00\""}, {"\"08:09Z\"", "\"8:09:10Z\"", "\"08:60:00Z\""}},
        {FORMAT("date"),
         {"\"2026-02-28\"", "\"2026-12-31\"", "\"2026-04-30\"", "\"0001-01-30\""},
         {"\"2026-00-10\"", "\"26-01-01\"", "\"2026-01-32\"", "\"2026-04-31\"", "\"2026-02-30\"", "\"0000-01-01\""}},
        {FORMAT("date"),
         {"\"2024-02-29\"", "\"2000-02-29\"", "\"0004-02-29\""},
         {"\"2026-02-29\"", "\"1900-02-29\"", "\"0000-02-29\"", "\"2024-02-30\""}},
        {FORMAT("duration"),
         {"\"P3D\"", "\"PT5M\"", "\"P2W\"", "\"P3DT12H30M5S\"", "\"P1Y2M3D\"", "\"P1MT1S\""},
         {"\"P\"", "\"3D\"", "\"P0D\"", "\"PT\"", "\"P1YT\"", "\"P1D1Y\"", "\"P1W1D\"", "\"PT1H1S\""}},
        {FORMAT("email"), {"\"a@b.cd\"", "\"a.b+c@d-e.org\""}, {"\"a\"", "\"a@b\"", "\"@b.cd\"", "\"a b@c.de\""}},
        {"{\"type\":\"string\",\"format\":\"email\",\"minLength\":7,\"maxLength\":1024}",
         {"\"ab@c.de\"", "\"a@bc.de.fg\""},
         {"\"a@b.cd\"", "\"ab\"", "\"abcdefgh\""}},
        {FORMAT("hostname"), {"\"a\"", "\"a-b.example\""}, {"\"\"", "\"-a\"", "\"a..b\"", "\"a_b\""}},
        {FORMAT("ipv4"), {"\"0.0.0.0\"", "\"192.168.10.255\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
        {FORMAT("ipv6"),
         {"\"2001:db8:0:0:0:0:0:1\"", "\"::1\"", "\"2001:DB8::1\"", "\"::\"", "\"1::\"", "\"1:2:3:4:5:6:7::\""},
         {"\"1:2:3\"", "\"g:0:0:0:0:0:0:0\"", "\"1::2::3\"", "\":::\"", "\"1:2:3:4:5:6:7:8::\"", "\":1\""}},
        {FORMAT("uuid"),
         {"\"123e4567-e89b-12d3-a456-426614174000\"", "\"123E4567-E89B-12D3-A456-426614174000\""},
         {"\"123e4567e89b12d3a456426614174000\"", "\"123e4567-e89b-12d3-a456-42661417400\""}},
        {FORMAT("uri"),
         {"\"http://a.b/c?d=e#f\"", "\"mailto:a\"", "\"https://a.b:8080/*\"", "\"urn:a:1\"", "\"file:///a/b\"",
          "\"x:/a//b%2F?/?#/?\""},
         {"\"a\"", "\"http://a b\"", "\"://x\"", "\"http://a/%2\"", "\"http://a#b#c\"", "\"http://a/[b]\"",
          "\"http://\""}},
    };
    CHECK(FORM_SCHEMA, rows);
}

static void lists(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
         {"[]", "[1]", "[1, 2]", "[\n  1,\n  2\n]"},
         {"[1,]", "[,1]", "[\"a\"]", "[1  ,2]"}},
        {"{\"type\":\"array\",\"minItems\":2,\"maxItems\":3,\"items\":{\"type\":\"integer\"}}",
         {"[1,2]", "[1,2,3]"},
         {"[]", "[1]", "[1,2,3,4]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"array\",\"maxItems\":1,\"items\":{\"type\":\"null\"}"
         "}}",
         {"[[]]", "[[null],[]]"},
         {"[]", "[[null,null]]"}},
        {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]", "[null]"}},
    };
    CHECK(FORM_SCHEMA, rows);
}

static void objects(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"null\"}},\"required\":["
         "\"a\"],"
         "\"additionalProperties\":false}",
         {"{\"a\":1}", "{\"a\": 1, \"b\": null}", "{\n  \"a\": 1\n}"},
         {"{}", "{\"b\":null}", "{\"a\":1,\"c\":2}", "{\"a\":1,}", "{\"a\":\"x\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}},\"additionalProperties\":true}",
         {"{}", "{\"ab\":1}", "{\"ab\":1,\"a\":null}", "{\"abc\":[]}", "{\"\":0}"},
         {"{\"ab\":null}", "{\"ab\":1,\"ab\":2}", "{\"abc\":}"}},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{}", "{\"x\":1,\"y\":2}"},
         {"{\"x\":\"1\"}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"patternProperties\":{\"^x-\":{\"type\":\"null\"}}}",
         {"{\"a\":1,\"x-b\":null}", "{}"},
         {"{\"x-b\":1}", "{\"y\":null}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\\\\b\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
         "\"integer\"}}",
         {"{\"a\\\\b\":null}", "{\"\\\\\":1}", "{\"a\\\"\":1}", "{\"c\\\\\\n\\u0041\":1}"},
         {"{\"a\\\\b\":1}", "{\"\\u0061\\\\b\":1}", "{\"a\\\\c\":null}", "{\"c\\x\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"additionalProperties\":false,"
         "\"minProperties\":2,"
         "\"maxProperties\":2}",
         {"{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"},
         {"{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "{\"c\":1}"}},
        {"{\"properties\":{\"a\":false,\"b\":{}},\"additionalProperties\":true}",
         {"{}", "{\"b\":1,\"c\":1}", "{\"aa\":1}"},
         {"{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"c\":1,\"a\":1}"}},
        {"{\"required\":[\"z\"]}", {"{\"z\":1}", "{\"z\":1,\"y\":2}"}, {"{}", "{\"y\":2}"}},
    };
    CHECK(FORM_SCHEMA, rows);
}

/* Objects whose `properties` are all that is said of their members have no others; listed values are not restricted. */
static void closed_objects(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"type\":\"object\",\"properties\":{}}", {"{}"}, {"{\"a\":1}"}},
        {"{\"type\":\"object\"}", {"{}", "{\"a\":1}"}, {"1"}},
        {"{\"properties\":{\"a\":{\"properties\":{\"b\":{}}}},\"required\":[\"z\"]}",
         {"{\"z\":1}", "{\"a\":{\"b\":1},\"z\":1}"},
         {"{\"z\":1,\"y\":1}", "{\"a\":{\"c\":1},\"z\":1}", "{\"a\":{}}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}]}",
         {"{\"a\":1,\"b\":1}"},
         {"{\"a\":1,\"b\":1,\"c\":1}", "{\"c\":1}"}},
        {"{\"properties\":{\"a\":{}},\"minProperties\":1}", {"{\"a\":1}"}, {"{}", "{\"b\":1}"}},
        {"{\"properties\":{},\"minProperties\":1}", {"{\"b\":1}"}, {"{}"}},
        {"{\"properties\":{\"a\":{}},\"enum\":[{\"a\":1,\"b\":2}]}", {"{\"b\":2,\"a\":1}"}, {"{\"a\":1}"}},
    };
    CHECK(FORM_SCHEMA, rows);
}

static void several_schemas(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
         {"12", "\"a\""},
         {"\"ab\"", "null"}},
        {"{\"oneOf\":[{\"const\":1},{\"const\":2}]}", {"1", "2"}, {"3"}},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"],\"title\":\"x\"}]}",
         {"{\"a\":1}", "{\"b\":1}", "{\"b\":1,\"c\":2}"},
         {"{}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"a\":1}", "{\"c\":1}", "1"}},
        {"{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{},\"c\":{}},"
         "\"additionalProperties\":false,\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"c\"]}]}",
         {"{\"a\":null}", "{\"a\":null,\"b\":1}", "{\"b\":1,\"c\":1}"},
         {"{\"a\":null,\"c\":1}", "{\"a\":1}", "null", "{\"b\":1}", "{\"c\":1,\"d\":1}"}},
        {"{\"oneOf\":[{\"required\":[\"a\",\"b\"]},{\"required\":[\"a\"]}]}",
         {"{\"a\":1}", "{\"a\":1,\"b\":1}"},
         {"{}"}},
        {"{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"}},\"required\":[\"k\"],\"anyOf\":[{"
         "\"properties\":{\"k\":"
         "{\"const\":\"a\"},\"n\":{\"type\":\"null\"}},\"required\":[\"n\"],\"additionalProperties\":false},{"
         "\"properties\":{\"k\":"
         "{\"const\":\"b\"}},\"additionalProperties\":false}]}",
         {"{\"k\":\"a\",\"n\":null}", "{\"k\":\"b\"}"},
         {"{\"k\":\"a\"}", "{\"k\":\"c\"}", "{\"k\":\"b\",\"n\":null}"}},
        {"{\"properties\":{\"k\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},\"oneOf\":[{\"properties\":{\"m\":"
         "{\"type\":\"null\"},\"k\":{\"const\":\"a\"}},\"required\":[\"m\"]}]}",
         {"{\"k\":\"a\",\"n\":1,\"m\":null}", "{\"m\":null}"},
         {"{\"m\":null,\"k\":\"a\"}", "{\"k\":\"b\",\"m\":null}", "{\"k\":\"a\"}"}},
        {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}]}", {"3", "5"}, {"2", "6", "4.5"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},{\"properties\":{\"a\":{"
         "\"minimum\":5},"
         "\"b\":{\"type\":\"null\"}}}],\"type\":\"object\"}",
         {"{\"a\":5}", "{\"a\":7,\"b\":null}"},
         {"{\"a\":4}", "{\"b\":null}", "{\"a\":5,\"b\":1}"}},
        {"{\"$ref\":\"#/$defs/"
         "list\",\"$defs\":{\"list\":{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"type\":\"null\"},"
         "{\"$ref\":\"#/$defs/list\"}]}},\"required\":[\"next\"],\"additionalProperties\":false}}}",
         {"{\"next\":null}", "{\"next\":{\"next\":{\"next\":null}}}"},
         {"{}", "{\"next\":{}}", "{\"next\":1}"}},
        {"{\"allOf\":[{\"$ref\":\"#/definitions/a~1b\"}],\"description\":\"x\",\"definitions\":{\"a/"
         "b\":{\"type\":\"null\"}}}",
         {"null"},
         {"1"}},
        {"{\"$ref\":\"#/$defs/x\",\"minimum\":2,\"$defs\":{\"x\":{\"type\":\"integer\"}}}", {"2"}, {"1", "2.5"}},
    };
    CHECK(FORM_SCHEMA, rows);
}

static void expressions(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {"\"(foo|bar)+[0-9]{2,3}\"", {"foo12", "foobar123"}, {"foo1", "foo1234", "12", " foo12"}},
        {"\"^a?b*c+?$\"", {"c", "abbc", "ccc"}, {"", "ab", "ac "}},
        {"\"[^\\\\d\\\\s]{2}\"", {"ab", "\xc3\xa9-"}, {"a1", "a ", "a\xc2\xa0"}},
        {"\"\\\\w+@\\\\w+\\\\.(?:com|org)\"", {"a@b.org", "x_1@y.com"}, {"a@b", "@b.com", "a@b.net"}},
        {"\"[\\\\u4e00-\\\\u9fff\\\\-\\\\]a-]{1,2}\"", {"\xe4\xb8\xad", "-]", "a"}, {"b", "", "aaa"}},
        {"\"\\\\x41\\\\u{1F600}\\\\.\"", {"A\xf0\x9f\x98\x80."}, {"A.", "A\xf0\x9f\x98\x80x"}},
        {"\".\"", {"a", "\xf0\x9f\x98\x80"}, {"\n", "", "ab"}},
        {"\"a||b\"", {"a", "", "b"}, {"ab"}},
        {"\"a{,2}\"", {"a{,2}"}, {"aa"}},
        {"\"(?:a{3}){2}\"", {"aaaaaa"}, {"aaaaa", "aaaaaaa"}},
    };
    CHECK(FORM_REGEX, rows);
    static const struct row choices[] = {
        {"[\"yes\",\"yesterday\",\"no\"]", {"yes", "yesterday", "no"}, {"ye", "yesn", ""}},
        {"[\"a\",\"a\"]", {"a"}, {"aa"}}};
    CHECK(FORM_CHOICE, choices);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        enum form_kind kind;
        enum err_code code;
        const char *source, *part;
    } rows[] = {
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"not\":{}}", "not is not supported"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"properties\":{\"a\":{\"if\":{}}}}", "if is not supported"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"type\":\"array\",\"uniqueItems\":true}", "uniqueItems"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"type\":\"integer\",\"multipleOf\":2}", "multipleOf"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"type\":\"array\",\"prefixItems\":[]}", "prefixItems"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"type\":\"array\",\"items\":[{}]}", "items as a list"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"$ref\":\"http://x/y\"}", "expected one within the schema"},
        {FORM_SCHEMA, ERR_INPUT, "{\"$ref\":\"#/no\"}", "leads nowhere"},
        {FORM_SCHEMA, ERR_INPUT, "{\"type\":\"array\",\"items\":{\"$ref\":\"#/no\"}}", "leads nowhere"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"$ref\":\"#\"}", "more than 100 levels deep"},
        {FORM_SCHEMA, ERR_INPUT, "{\"type\":\"text\"}", "type text, expected object"},
        {FORM_SCHEMA, ERR_INPUT, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", "no text matches this form"},
        {FORM_SCHEMA, ERR_INPUT, "false", "no text matches this form"},
        {FORM_SCHEMA, ERR_INPUT, "[]", "stands for a schema"},
        {FORM_SCHEMA, ERR_INPUT, "{\"anyOf\":[]}", "anyOf"},
        {FORM_SCHEMA, ERR_INPUT, "{\"type\":\"string\",\"maxLength\":-1}", "maxLength"},
        {FORM_SCHEMA, ERR_INPUT,
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"object\",\"required\":[\"b\"],"
         "\"additionalProperties\":false}},\"required\":[\"a\"]}",
         "no text matches this form"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", "(? of this kind"},
        {FORM_SCHEMA, ERR_UNSUPPORTED, "{\"type\":\"object\",\"minProperties\":2}", "minProperties 2 of free names"},
        {FORM_REGEX, ERR_UNSUPPORTED, "\"\\\\bx\"", "\\b is not supported"},
        {FORM_REGEX, ERR_UNSUPPORTED, "\"(a)\\\\1\"", "references to groups"},
        {FORM_REGEX, ERR_UNSUPPORTED, "\"\\\\p{L}\"", "\\p is not supported"},
        {FORM_REGEX, ERR_UNSUPPORTED, "\"((a{4000}){4000}){4000}\"", "more than 200000 states"},
        {FORM_REGEX, ERR_UNSUPPORTED, "\"a{5000}\"", "more than 4096 repetitions"},
        {FORM_REGEX, ERR_INPUT, "\"(a\"", "without its closing parenthesis"},
        {FORM_REGEX, ERR_INPUT, "\"a)\"", "without its group"},
        {FORM_REGEX, ERR_INPUT, "\"[b-a]\"", "ends before it begins"},
        {FORM_REGEX, ERR_INPUT, "\"*a\"", "there is nothing to repeat"},
        {FORM_REGEX, ERR_INPUT, "\"a{3,2}\"", "maximum is below"},
        {FORM_REGEX, ERR_INPUT, "\"[]\"", "no text matches this form"},
        {FORM_REGEX, ERR_INPUT, "5", "found an integer"},
        {FORM_CHOICE, ERR_INPUT, "[]", "expected an array of 1 to"},
        {FORM_CHOICE, ERR_INPUT, "[\"\"]", "empty"},
        {FORM_CHOICE, ERR_INPUT, "[1]", "number 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct form *form;
        struct err e = {0};
        assert_int_equal(form_open_text(&form, rows[i].kind, rows[i].source, strlen(rows[i].source), &e), -1);
        assert_null(form);
        EXPECT_PARTS(&e, rows[i].code, rows[i].part);
    }
}

/* Each keyword outside the subset is refused, wherever it stands. */
static void keywords_are_refused(void **state)
{
    (void)state;
    static const char *const keywords[] = {
        "not",         "if",          "then",        "else",         "dependentRequired", "dependentSchemas",
        "contains",    "minContains", "maxContains", "multipleOf",   "unevaluatedItems",  "unevaluatedProperties",
        "prefixItems", "$dynamicRef", "uniqueItems", "dependencies", "propertyNames",     "$recursiveRef"};
    static const char *const around[] = {"%s", "{\"items\":{\"anyOf\":[{\"type\":\"null\"},%s]},\"type\":\"array\"}",
                                         "{\"type\":\"object\",\"properties\":{\"a\":%s}}",
                                         "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":%s}}"};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
            char inner[80], source[200], part[80];
            struct form *form;
            struct err e = {0};
            (void)snprintf(inner, sizeof inner, "{\"%s\":true}", keywords[i]);
            (void)snprintf(source, sizeof source, around[k], inner);
            (void)snprintf(part, sizeof part, "%s is not supported", keywords[i]);
            assert_int_equal(form_open_text(&form, FORM_SCHEMA, source, strlen(source), &e), -1);
            EXPECT_PARTS(&e, ERR_UNSUPPORTED, part);
        }
}

/* Between the parts of a JSON text there is nothing, a space, or a line break and at most 32 spaces. */
static void white_space_is_bounded(void **state)
{
    (void)state;
#define SPACES "                                "
    static const struct row rows[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}",
         {"[1,2]", "[ 1, 2 ]", "[\n1,\n 2\n]", "[\n" SPACES "1]"},
         {"[  1]", "[\n " SPACES "1]", "[\n\n1]", "[\t1]", "[\r\n1]", "[1 \n]"}},
        {"{\"type\":\"object\"}", {"{}", "{\n}", "{\"a\": 1}"}, {"{  }", "{\"a\":  1}", " {}", "{} ", "{}\n"}},
    };
#undef SPACES
    CHECK(FORM_SCHEMA, rows);
}

/* Depth of nesting, references and merging end with a message, not with the stack. */
static void hostile_schemas(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/a\"},{\"type\":\"object\"}]}},\"$ref\":\"#/$defs/a\"}",
        "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}",
        "{\"$defs\":{\"a\":{\"anyOf\":[{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/$defs/a\"}",
        "{\"type\":\"object\",\"properties\":{\"a\":{\"allOf\":[{\"$ref\":\"#\"},{\"properties\":{\"a\":{"
        "\"minProperties\":1}}}]}},"
        "\"required\":[\"a\"]}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct form *form;
        struct err e = {0};
        assert_int_equal(form_open_text(&form, FORM_SCHEMA, rows[i], strlen(rows[i]), &e), -1);
        assert_true(e.code == ERR_INPUT || e.code == ERR_UNSUPPORTED);
    }
}

/* The ends of both texts become one node, and a node that only leads on is skipped. */
static void equal_nodes(void **state)
{
    (void)state;
    struct err e = {0};
    struct graph g;
    graph_open(&g, &e);
    int a = graph_text(&g, "axy", 3, graph_return(&g)), b = graph_text(&g, "bxy", 3, graph_return(&g));
    int ahead = graph_ahead(&g);
    graph_lead(&g, ahead, graph_either(&g, a, b));
    assert_true(graph_prune(&g, ahead));
    int start = graph_share(&g, ahead);
    expect_none(&e);
    assert_int_equal(g.node[start].kind, GRAPH_SPLIT);
    assert_true(g.node[start].next == a && g.node[start].other == b);
    assert_int_equal(g.node[a].next, g.node[b].next);
    assert_true(machine_matches(&g, start, "axy", 3, &e) && machine_matches(&g, start, "bxy", 3, &e));
    assert_false(machine_matches(&g, start, "abxy", 4, &e) || machine_matches(&g, start, "ax", 2, &e));
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds),
        cmocka_unit_test(numbers),
        cmocka_unit_test(strings),
        cmocka_unit_test(formats),
        cmocka_unit_test(lists),
        cmocka_unit_test(objects),
        cmocka_unit_test(closed_objects),
        cmocka_unit_test(several_schemas),
        cmocka_unit_test(expressions),
        cmocka_unit_test(refusals),
        cmocka_unit_test(keywords_are_refused),
        cmocka_unit_test(white_space_is_bounded),
        cmocka_unit_test(equal_nodes),
        cmocka_unit_test(hostile_schemas),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
