/* text/calls/syntax.c - see syntax.h. */
#include "text/calls/syntax.h"

#include <string.h>

/* %s is the function's name; names have been checked: letters, digits and a few signs, which need no escapes. */
static const struct syntax {
    const char *begin, *before, *after, *between, *end;
    bool many;
    const char *marks[4]; /* which may be special tokens */
} syntaxes[CALLS_FORMATS] = {
    [CALLS_HERMES] = {"",
                      "<tool_call>\n{\"name\": \"%s\", \"arguments\": ",
                      "}\n</tool_call>",
                      "\n",
                      "",
                      true,
                      {"<tool_call>", "</tool_call>"}},
    [CALLS_LLAMA3] = {"", "{\"name\": \"%s\", \"parameters\": ", "}", "; ", "", true, {NULL}},
    [CALLS_MISTRAL] = {"[TOOL_CALLS][", "{\"name\": \"%s\", \"arguments\": ", "}", ", ", "]", true, {"[TOOL_CALLS]"}},
    [CALLS_MISTRAL_ARGS] = {"", "[TOOL_CALLS]%s[ARGS]", "", "", "", true, {"[TOOL_CALLS]", "[ARGS]"}},
    [CALLS_HARMONY] = {"",
                       "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>",
                       "",
                       "",
                       "",
                       false,
                       {"<|channel|>", "<|constrain|>", "<|message|>"}},
};

/* A function without parameters takes none. */
static json_t *schema_of(const json_t *function)
{
    json_t *parameters = json_object_get(function, "parameters");
    if (json_is_object(parameters) && json_object_size(parameters) > 0)
        return json_incref(parameters);
    return json_pack("{s:s, s:{}, s:b}", "type", "object", "properties", "additionalProperties", 0);
}

static json_t *call_of(const struct syntax *s, const json_t *function)
{
    const char *name = json_string_value(json_object_get(function, "name"));
    const char *place = strstr(s->before, "%s");
    return json_pack("{s:s, s:o, s:o, s:s}", "name", name, "before",
                     json_sprintf("%.*s%s%s", (int)(place - s->before), s->before, name, place + 2), "schema",
                     schema_of(function), "after", s->after);
}

json_t *calls_syntax(enum calls_format format, const json_t *tools, const char *only, bool many)
{
    const struct syntax *s = &syntaxes[format];
    json_t *calls = json_array(), *marks = json_array();
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        if (name != NULL && (only == NULL || strcmp(only, name) == 0))
            (void)json_array_append_new(calls, call_of(s, function));
    }
    for (i = 0; i < sizeof s->marks / sizeof s->marks[0] && s->marks[i] != NULL; i++)
        (void)json_array_append_new(marks, json_string(s->marks[i]));
    return json_pack("{s:s, s:s, s:s, s:b, s:o, s:o}", "begin", s->begin, "between", s->between, "end", s->end, "many",
                     many && s->many, "marks", marks, "calls", calls);
}
