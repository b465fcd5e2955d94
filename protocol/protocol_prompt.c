/* protocol/protocol_prompt.c - `prompt` and `messages` of a message, checked; no text is tokenized here. */
#include "base/text_buffer.h"
#include "protocol/protocol_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char expected[] = "a string, a list of strings, a list of token ids or a list of those";

static int out_of_memory(struct protocol_error *error)
{
    return protocol_fail(error, PROTOCOL_INTERNAL, "", "out of host memory");
}

static int read_ids(struct protocol_prompt *p, const json_t *list, int vocab, const char *name,
                    struct protocol_error *error)
{
    struct token_list ids = {0};
    if (json_array_size(list) == 0)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "found no token ids, expected at least one");
    int rc = fields_read_ids(list, vocab, name, &ids, error);
    p->id = ids.id;
    p->n_ids = ids.n;
    return rc;
}

/* Item i of a list of prompts whose first item has this type. */
static int read_item(struct protocol_prompt *p, const struct fields *f, long i, const json_t *item, json_type type,
                     int vocab, struct protocol_error *error)
{
    char name[64];
    if (json_typeof(item) != type)
        return fields_fail(f, FIELD_PROMPT, i, error, "found %s after %s, expected all alike", json_type_name(item),
                           type == JSON_STRING ? "a string" : "an array");
    if (type == JSON_ARRAY)
        return read_ids(p, item, vocab, fields_name(f, FIELD_PROMPT, i, name), error);
    p->text = json_string_value(item);
    p->bytes = json_string_length(item);
    return 0;
}

static int read_list(struct protocol_generate *g, const struct fields *f, int vocab, struct protocol_error *error)
{
    const json_t *value = f->value[FIELD_PROMPT], *first = json_array_get(value, 0);
    size_t n = json_array_size(value);
    if (json_is_integer(first) || json_is_real(first)) { /* one prompt of ids */
        char name[64];
        g->n_prompts = 1;
        return read_ids(&g->prompt[0], value, vocab, fields_name(f, FIELD_PROMPT, -1, name), error);
    }
    if (!json_is_string(first) && !json_is_array(first))
        return fields_fail(f, FIELD_PROMPT, n == 0 ? -1 : 0, error, "found %s, expected %s",
                           n == 0 ? "an empty list" : json_type_name(first), expected);
    g->n_prompts = (int)n;
    for (size_t i = 0; i < n; i++)
        if (read_item(&g->prompt[i], f, (long)i, json_array_get(value, i), json_typeof(first), vocab, error) != 0)
            return -1;
    return 0;
}

static int check_sequences(const struct protocol_generate *g, const struct fields *f, size_t n_prompts,
                           struct protocol_error *error)
{
    const struct search *s = &g->search;
    int each = s->num_beams > 1 ? s->num_beams : s->best_of > s->n ? s->best_of : s->n;
    if (each > 0 && n_prompts > (size_t)(PROTOCOL_MAX_SEQUENCES / each))
        return fields_fail(f, FIELD_PROMPT, -1, error, "found %zu prompts of %d sequences each, at most %d together",
                           n_prompts, each, PROTOCOL_MAX_SEQUENCES);
    return 0;
}

static int read_prompts(struct protocol_message *m, const struct fields *f, int vocab, bool many,
                        struct protocol_error *error)
{
    struct protocol_generate *g = &m->generate;
    const json_t *value = f->value[FIELD_PROMPT];
    if (!json_is_string(value) && !(many && json_is_array(value)))
        return fields_fail(f, FIELD_PROMPT, -1, error, "found %s, expected %s", json_type_name(value),
                           many ? expected : "a string");
    bool lists = !json_is_string(value) && !json_is_number(json_array_get(value, 0));
    size_t n = lists ? json_array_size(value) : 1;
    if (check_sequences(g, f, n, error) != 0)
        return -1;
    g->prompt = calloc(n + 1, sizeof *g->prompt);
    if (g->prompt == NULL)
        return out_of_memory(error);
    g->n_prompts = 1;
    if (json_is_string(value)) {
        g->prompt[0].text = json_string_value(value);
        g->prompt[0].bytes = json_string_length(value);
        return 0;
    }
    int rc = read_list(g, f, vocab, error);
    if (rc == 0 && g->prompt[0].id != NULL) /* copied: the JSON of ids takes ten times their memory */
        (void)json_object_del(m->root, f->name[FIELD_PROMPT]);
    return rc;
}

static int turn_fail(struct protocol_error *error, size_t turn, const char *member, const json_t *found,
                     const char *wanted)
{
    char name[64];
    (void)snprintf(name, sizeof name, "messages[%zu]%s%s", turn, member[0] != '\0' ? "." : "", member);
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "found %s, expected %s", json_type_name(found), wanted);
}

/* Text parts become one text, a line feed between them, which takes the list's place in the message. */
static int join_parts(json_t *object, size_t turn, const json_t *list, struct protocol_error *error)
{
    static const char wanted[] = "a list of {\"type\": \"text\", \"text\": a string}";
    struct text_buffer all = {0};
    struct err e = {0};
    size_t i;
    const json_t *part;
    int rc = json_array_size(list) > 0 ? 0 : turn_fail(error, turn, "content", list, wanted);
    json_array_foreach(list, i, part)
    {
        const json_t *text = json_object_get(part, "text"), *type = json_object_get(part, "type");
        if (rc == 0 && (!json_is_string(text) || !json_is_string(type) ||
                        strcmp(json_string_value(type), "text") != 0 || json_object_size(part) != 2))
            rc = turn_fail(error, turn, "content", list, wanted);
        if (rc == 0 && ((i > 0 && text_append(&all, "\n", 1, &e) != 0) ||
                        text_append(&all, json_string_value(text), json_string_length(text), &e) != 0))
            rc = out_of_memory(error);
    }
    if (rc == 0 &&
        json_object_set_new(object, "content", json_stringn(all.data != NULL ? all.data : "", all.bytes)) != 0)
        rc = out_of_memory(error);
    text_free(&all);
    return rc;
}

static int read_turn(struct protocol_turn *t, json_t *object, size_t i, struct protocol_error *error)
{
    char name[96];
    const char *key;
    json_t *value;
    const json_t *role = json_object_get(object, "role"), *content = json_object_get(object, "content");
    if (!json_is_object(object))
        return turn_fail(error, i, "", object, "an object with \"role\" and \"content\"");
    json_object_foreach(object, key, value)
    {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 || json_is_null(value))
            continue;
        (void)snprintf(name, sizeof name, "messages[%zu].%.40s", i, key);
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "not implemented");
    }
    if (!json_is_string(role))
        return turn_fail(error, i, "role", role, "a string");
    if (json_is_array(content)) {
        if (join_parts(object, i, content, error) != 0)
            return -1;
        content = json_object_get(object, "content");
    }
    if (!json_is_string(content))
        return turn_fail(error, i, "content", content, "a string or a list of text parts");
    *t = (struct protocol_turn){json_string_value(role), json_string_value(content), json_string_length(content)};
    return 0;
}

static int read_turns(struct protocol_generate *g, const struct fields *f, struct protocol_error *error)
{
    const json_t *list = f->value[FIELD_MESSAGES];
    size_t n = json_array_size(list);
    if (n == 0)
        return fields_fail(f, FIELD_MESSAGES, -1, error, "found %s, expected a list of {\"role\", \"content\"}",
                           json_is_array(list) ? "an empty list" : json_type_name(list));
    g->turn = calloc(n, sizeof *g->turn);
    if (g->turn == NULL)
        return out_of_memory(error);
    g->n_prompts = 1;
    g->n_turns = (int)n;
    for (size_t i = 0; i < n; i++)
        if (read_turn(&g->turn[i], json_array_get(list, i), i, error) != 0)
            return -1;
    return 0;
}

int protocol_read_prompt(struct protocol_message *m, const struct fields *f, int vocab, bool many,
                         struct protocol_error *error)
{
    struct protocol_generate *g = &m->generate;
    bool chat = f->value[FIELD_MESSAGES] != NULL;
    if (chat && f->value[FIELD_PROMPT] != NULL)
        return fields_fail(f, FIELD_MESSAGES, -1, error, "given beside \"%s\", expected one of them",
                           f->name[FIELD_PROMPT]);
    if (!chat && f->value[FIELD_PROMPT] == NULL)
        return fields_fail(f, FIELD_PROMPT, -1, error, "missing: expected \"prompt\" or \"messages\"");
    if (!chat && f->value[FIELD_ADD_GENERATION_PROMPT] != NULL)
        return fields_fail(f, FIELD_ADD_GENERATION_PROMPT, -1, error, "only chats (\"messages\") have it");
    if (chat && f->value[FIELD_ADD_SPECIAL_TOKENS] != NULL)
        return fields_fail(f, FIELD_ADD_SPECIAL_TOKENS, -1, error, "chats have the special tokens of their template");
    g->add_special_tokens = fields_bool(f, FIELD_ADD_SPECIAL_TOKENS, !chat, error);
    g->parse_special = fields_bool(f, FIELD_PARSE_SPECIAL, !chat, error);
    g->add_generation_prompt = fields_bool(f, FIELD_ADD_GENERATION_PROMPT, chat, error);
    if (error->code != 0)
        return -1;
    return chat ? read_turns(g, f, error) : read_prompts(m, f, vocab, many, error);
}
