/* protocol/protocol_tools.c - which tools an answer may call, or has to. */
#include "protocol/protocol_parts.h"

#include <stdio.h>
#include <string.h>

#define NAME_BYTES 128 /* of a function that has to be called */

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Names go into the text of a call as they are. */
static bool is_name(const char *name)
{
    static const char signs[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/";
    return name != NULL && name[0] != '\0' && strlen(name) <= NAME_BYTES && strspn(name, signs) == strlen(name);
}

/* A required call needs the tools' names. */
static void check_names(const struct protocol_generate *g, struct protocol_error *error)
{
    char field[64];
    const json_t *tool;
    size_t i;
    json_array_foreach(g->chat.tools, i, tool)
    {
        if (is_name(name_of(tool)))
            continue;
        (void)snprintf(field, sizeof field, "tools[%zu].function.name", i);
        (void)protocol_fail(error, PROTOCOL_BAD_REQUEST, field,
                            "found \"%.40s\", expected a name of 1 to %d letters, digits and signs of _-.:/",
                            name_of(tool) != NULL ? name_of(tool) : "", NAME_BYTES);
    }
}

static void read_word(struct protocol_tools *t, const struct fields *f, const char *word, struct protocol_error *error)
{
    static const struct {
        const char *word;
        enum tool_choice choice;
    } words[] = {{"none", TOOLS_NONE}, {"auto", TOOLS_AUTO}, {"required", TOOLS_REQUIRED}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(word, words[i].word) == 0)
            t->choice = words[i].choice;
    if (t->choice == TOOLS_UNSAID)
        fields_fail(f, FIELD_TOOL_CHOICE, -1, error,
                    "found \"%.40s\", expected \"none\", \"auto\", \"required\" or a function", word);
}

/* {"type": "function", "function": {"name": ..}} */
static void read_named(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    const json_t *choice = f->value[FIELD_TOOL_CHOICE], *tool;
    const char *type = json_string_value(json_object_get(choice, "type")), *name = name_of(choice);
    bool found = false;
    size_t i;
    if (type == NULL || strcmp(type, "function") != 0 || name == NULL) {
        fields_fail(f, FIELD_TOOL_CHOICE, -1, error,
                    "found %s of type \"%.40s\", expected a word or {\"type\": \"function\", \"function\": {\"name\"}}",
                    json_type_name(choice), type != NULL ? type : "");
        return;
    }
    json_array_foreach(g->chat.tools, i, tool) found =
        found || (name_of(tool) != NULL && strcmp(name_of(tool), name) == 0);
    if (!found)
        fields_fail(f, FIELD_TOOL_CHOICE, -1, error, "found function \"%.80s\", which is none of \"tools\"", name);
    g->tools.choice = TOOLS_REQUIRED;
    g->tools.only = name;
}

/* A required call has a form of its own, which takes the place of a requested one. */
static void require(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    if (g->chat.tools == NULL)
        fields_fail(f, FIELD_TOOL_CHOICE, -1, error, "there are no \"tools\" that could be called");
    else if (g->form.kind != 0)
        fields_fail(f, FIELD_TOOL_CHOICE, -1, error, "a call that is required has no place beside \"%s\"",
                    g->form.field);
    check_names(g, error);
    g->form = (struct protocol_form){FORM_CALLS, NULL, "tool_choice"};
    protocol_check_form(g, f, error);
}

bool protocol_may_call(const struct protocol_generate *g)
{
    bool schema = g->form.kind == FORM_SCHEMA || g->form.kind == FORM_OBJECT;
    return g->chat.tools != NULL && g->tools.choice != TOOLS_REQUIRED && schema &&
           strcmp(g->form.field, "response_format") == 0;
}

void protocol_read_tools(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    const json_t *choice = f->value[FIELD_TOOL_CHOICE];
    g->tools.parallel = fields_bool(f, FIELD_PARALLEL_TOOL_CALLS, true, error);
    g->hide_thoughts = !fields_bool(f, FIELD_INCLUDE_REASONING, true, error);
    if (json_is_string(choice))
        read_word(&g->tools, f, json_string_value(choice), error);
    else if (choice != NULL)
        read_named(g, f, error);
    if (g->tools.choice == TOOLS_REQUIRED)
        require(g, f, error);
    if (g->tools.choice == TOOLS_NONE)
        g->chat.tools = NULL;
    if (protocol_may_call(g))
        check_names(g, error);
}
