/* tests/unit/test_template.c - text/template/: jinja2's output of templates, the origin of words, refusals, limits. */
#include "tests/unit/unit.h"

#include "text/template/jinja.h"

#include <stdio.h>
#include <stdlib.h>

static json_t *fixtures;

static int open_fixtures(void **state)
{
    (void)state;
    struct err e = {0};
    setenv("TZ", "UTC", 1);
    fixtures = json_read_file("tests/unit/fixtures/template/cases.json", 16 << 20, &e);
    return e.code != ERR_NONE;
}

static int close_fixtures(void **state)
{
    (void)state;
    json_decref(fixtures);
    return 0;
}

/* Renders the text, with the client's words between [ and ] if `marked`; NULL: refused, *e says why. The caller frees
 * it. */
static char *render(const char *source, size_t bytes, const json_t *variables, bool marked, struct err *e)
{
    struct jinja *t = NULL;
    struct jinja_text text = {0};
    struct jinja_variables v = {.request = variables, .now = json_integer_value(json_object_get(fixtures, "now"))};
    char *out = NULL;
    size_t n = 1;
    if (jinja_open(&t, "test", source, bytes, e) == 0 && jinja_render(t, &v, &text, e) == 0) {
        for (size_t i = 0; i < text.n; i++)
            n += text.piece[i].bytes + 2;
        out = calloc(n, 1);
        n = 0;
        for (size_t i = 0; i < text.n; i++) {
            bool brackets = marked && text.piece[i].foreign;
            n += (size_t)sprintf(out + n, "%s", brackets ? "[" : "");
            memcpy(out + n, text.piece[i].text, text.piece[i].bytes);
            n += text.piece[i].bytes;
            n += (size_t)sprintf(out + n, "%s", brackets ? "]" : "");
        }
    }
    assert_true((out != NULL) == (e->code == ERR_NONE));
    jinja_text_free(&text);
    jinja_close(&t);
    assert_null(t);
    return out;
}

static int check_case(const char *construct, const json_t *c)
{
    struct err e = {0};
    const json_t *source = json_object_get(c, "template"), *want = json_object_get(c, "rendered");
    char *got = render(json_string_value(source), json_string_length(source), json_object_get(fixtures, "variables"),
                       false, &e);
    const char *text = json_string_value(want);
    bool good = text == NULL ? got == NULL && strncmp(e.text, "test: line ", 11) == 0
                             : got != NULL && memcmp(got, text, json_string_length(want) + 1) == 0;
    if (!good)
        print_error("%s: %s\n got \"%s\"\n expected \"%s\"\n", construct, json_string_value(source),
                    got != NULL ? got : e.text, text != NULL ? text : "(a refusal)");
    free(got);
    return good ? 0 : 1;
}

static void renders_as_jinja2(void **state)
{
    (void)state;
    int n = 0, bad = 0;
    size_t i, k;
    json_t *construct, *c;
    json_array_foreach(json_object_get(fixtures, "constructs"), i, construct)
        json_array_foreach(json_object_get(construct, "cases"), k, c)
    {
        bad += check_case(json_string_value(json_object_get(construct, "name")), c);
        n++;
    }
    assert_int_equal(bad, 0);
    assert_true(n > 300);
}

static void expect_marked(const char *source, const char *variables, const char *want)
{
    struct err e = {0};
    json_t *v = json_loads(variables, 0, NULL);
    assert_non_null(v);
    char *got = render(source, strlen(source), v, true, &e);
    expect_none(&e);
    assert_string_equal(got, want);
    free(got);
    json_decref(v);
}

/* A client's words stay the client's in all operations. */
static void marks_the_words_of_clients(void **state)
{
    (void)state;
    static const char v[] = "{\"u\": \"  aXb \", \"l\": [\"p\", {\"k\": \"q\"}], \"n\": 5, \"e\": \"\"}";
    expect_marked("<{{ u }}>{{ e }}", v, "<[  aXb ]>");
    expect_marked("{{ '<' + u.strip() + '>' }}{{ '(' ~ u ~ ')' }}", v, "<[aXb]>([  aXb ])");
    expect_marked("{{ u.replace('X', '-') | trim }}", v, "[a]-[b]");
    expect_marked("{{ 'a-b'.replace('-', u | trim) }}", v, "a[aXb]b");
    expect_marked("{{ u | upper | trim }}{{ (u ~ 'x') | trim | title }}", v, "[AXBAxb ]X");
    expect_marked("{{ (u ~ '<s>').split('X')[1][::-1] }}", v, ">s<[ b]");
    expect_marked("{{ l | tojson }}|{{ l }}|{{ n }}", v, "[[\"p\", {\"k\": \"q\"}]]|[['p', {'k': 'q'}]]|[5]");
    expect_marked("{{ ['<s>', u | trim] | join(',') }}{{ ('<s>' + l[0]) * 2 }}", v, "<s>,[aXb]<s>[p]<s>[p]");
    expect_marked(
        "{% set t %}<{{ l[0] }}>{% endset %}{% macro m(x) %}{{ x }}{{ t }}{% endmacro %}{{ m(l[0]) | indent }}", v,
        "[p]<[p]>");
    expect_marked("{% for c in '<' ~ l[0] %}{{ c }}.{% endfor %}", v, "<.[p].");
}

/* The standard roles count as the template's: some make a special token of them. Any other role is the client's. */
static void marks_unknown_roles(void **state)
{
    (void)state;
    static const char source[] = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}";
    expect_marked(
        source,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"eos\", \"content\": \"tool\"}]}",
        "<|user|>[a]<|[eos]|>[tool]");
}

static void expect_refused(const char *source, enum err_code code, const char *part)
{
    struct jinja *t = NULL;
    struct err e = {0};
    assert_int_equal(jinja_open(&t, "model/chat_template.jinja", source, strlen(source), &e), -1);
    EXPECT_PARTS(&e, code, "model/chat_template.jinja: line 2: found ", part, "expected ");
    assert_null(t);
}

/* Unsupported features are refused when the template is opened, wherever they stand. */
static void refuses_by_name(void **state)
{
    (void)state;
    expect_refused("\n{% if no %}{{ x | nosuch }}{% endif %}", ERR_UNSUPPORTED, "filter \"nosuch\"");
    expect_refused("\n{{ x is nosuch }}", ERR_UNSUPPORTED, "test \"nosuch\"");
    expect_refused("\n{{ nosuch(1) }}", ERR_UNSUPPORTED, "function \"nosuch\"");
    expect_refused("\n{{ x.nosuch(1) }}", ERR_UNSUPPORTED, "method \"nosuch\"");
    expect_refused("\n{% block x %}{% endblock %}", ERR_UNSUPPORTED, "statement \"block\"");
    expect_refused("\n{% for a in b recursive %}{% endfor %}", ERR_UNSUPPORTED, "recursive loop");
    expect_refused("\n{{ f(**a) }}{% macro f() %}{% endmacro %}", ERR_INPUT, "\"**\"");
    expect_refused("\n{{ x | tojson(nosuch=1) }}", ERR_UNSUPPORTED, "argument \"nosuch\"");
    expect_refused("\n{{ x | map('nosuch') }}", ERR_UNSUPPORTED, "filter \"nosuch\"");
    expect_refused("\n{{ x | selectattr('a', 'nosuch') }}", ERR_UNSUPPORTED, "test \"nosuch\"");
    expect_refused("\n{% if x %}", ERR_INPUT, "the end");
    expect_refused("\n{{ 123456789012345678901234567890 }}", ERR_INPUT, "1234567890");
    expect_refused("\n{{ '\\N{DASH}' }}", ERR_UNSUPPORTED, "escape");
    expect_refused("\n\xff", ERR_INPUT, "UTF-8");
}

static void expect_limited(const char *source, const char *part)
{
    struct err e = {0};
    json_t *v = json_loads("{\"s\": \"0123456789\"}", 0, NULL);
    char *got = render(source, strlen(source), v, false, &e);
    assert_null(got);
    EXPECT_PARTS(&e, ERR_INPUT, "test: line 1: ", part);
    json_decref(v);
}

/* No template takes unbounded time, memory or stack. */
static void keeps_limits(void **state)
{
    (void)state;
    expect_limited("{% set t = s * 99999 %}{% for a in range(99999) %}{% if 'x' in t %}{% endif %}{% endfor %}",
                   "steps");
    expect_limited("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "memory");
    expect_limited("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deeply");
    expect_limited("{% set n = namespace(x=s) %}{% for a in range(99999) %}{% set n.x = n.x + n.x %}{% endfor %}",
                   "memory");
    expect_limited("{% for a in range(99999) %}{{ s * 9999 }}{% endfor %}", "MiB");
    expect_limited("{{ s * 999999999999 }}", "repeated");
    expect_limited("{% set n = namespace(x=1) %}{% for a in range(9999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
                   "deeply");
    expect_limited("{% set n = namespace() %}{% set n.x = n %}{{ n }}", "deeply");
    expect_limited("{{ 9223372036854775807 + 1 }}", "64 bits");
    expect_limited("{{ raise_exception('in its words') }}", "in its words");
}

/* The depth of a template's tree is limited before any recursion. */
static void refuses_deep_sources(void **state)
{
    (void)state;
    static const char *const units[][3] = {
        {"{{ ", "(", ")"},     {"{{ ", "[", "]"},      {"{{ ", "not ", ""},    {"{{ 1", "-", ""},
        {"{{ ", "x if ", ""},  {"{{ ", "a.get(", ")"}, {"{{ ", "{1:", "}"},    {"{{ x", "|default(x", ")"},
        {"{{ ", "a[", "]"},    {"{{ 1", " + 1", ""},   {"{{ x", ".a", ""},     {"", "{% if x %}", ""},
        {"{{ x", "|trim", ""}, {"{{ x", "[0]", ""},    {"{{ x", " and x", ""}, {"", "{% filter trim %}", ""},
        {"{{ x", "(1)", ""}};
    const int times = 20000;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        struct jinja *t = NULL;
        struct err e = {0};
        size_t bytes = strlen(units[i][0]), n = strlen(units[i][1]), close = strlen(units[i][2]);
        char *source = calloc((size_t)times + 2, n + close + 8);
        strcpy(source, units[i][0]);
        for (int k = 0; k < times; k++, bytes += n)
            memcpy(source + bytes, units[i][1], n);
        bytes += strlen(strcpy(source + bytes, "1"));
        for (int k = 0; k < times; k++, bytes += close)
            memcpy(source + bytes, units[i][2], close);
        bytes += strlen(strcpy(source + bytes, " }}"));
        assert_int_equal(jinja_open(&t, "deep", source, bytes, &e), -1);
        EXPECT_PARTS(&e, ERR_UNSUPPORTED, "deep: line 1: found ", "nested");
        free(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_jinja2),   cmocka_unit_test(marks_the_words_of_clients),
        cmocka_unit_test(marks_unknown_roles), cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(keeps_limits),        cmocka_unit_test(refuses_deep_sources),
    };
    return cmocka_run_group_tests(tests, open_fixtures, close_fixtures);
}
