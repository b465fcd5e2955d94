/* protocol/protocol.c - see protocol.h. The message as a whole; prompts and rules have files of their own. */
#include "protocol/protocol_parts.h"
#include "text/stop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH   64
#define MAX_ID_TEXT ((size_t)1024) /* bytes of a request_id with escapes and quotes, and of blanks before it */

static const char *const op_name[] = {"generate",   "cancel", "health", "metrics", "models", "tokenize",
                                      "detokenize", "load",   "unload", "pin",     "drain",  "shutdown"};
#define N_OPS (sizeof op_name / sizeof op_name[0])

const char *protocol_op_name(enum protocol_op op)
{
    return op_name[op];
}

static const struct json_limits limits = {MAX_DEPTH, PROTOCOL_MAX_VALUES, PROTOCOL_MAX_LISTS, PROTOCOL_MAX_MEMBERS};

int protocol_check_limits(const struct json_limits *found, const char *field, struct protocol_error *error)
{
    struct err e = {0};
    if (json_check_limits(found, &limits, "together", &e) == 0)
        return 0;
    return protocol_fail(error, PROTOCOL_TOO_LARGE, field, "%s", e.text);
}

json_t *protocol_json(const char *json, size_t bytes, const char *what, struct protocol_error *error)
{
    struct json_failure failure;
    struct err e = {0};
    json_t *root = json_parse_limited(json, bytes, what, &limits, &failure, &e);
    if (root == NULL)
        protocol_fail(error, failure.too_large ? PROTOCOL_TOO_LARGE : PROTOCOL_BAD_REQUEST, failure.key, "%s", e.text);
    else if (!json_is_object(root))
        protocol_fail(error, PROTOCOL_BAD_REQUEST, "", "found %s, expected an object", json_type_name(root));
    if (error->code == 0)
        return root;
    json_decref(root);
    return NULL;
}

static int read_op(struct protocol_message *m, struct protocol_error *error)
{
    const json_t *op = json_object_get(m->root, "op");
    if (op == NULL || json_is_null(op))
        return 0;
    if (!json_is_string(op))
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, "op", "found %s, expected a string", json_type_name(op));
    for (size_t i = 0; i < N_OPS; i++)
        if (strcmp(op_name[i], json_string_value(op)) == 0) {
            m->op = (enum protocol_op)i;
            return 0;
        }
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, "op",
                         "found \"%.40s\", expected generate, cancel, health, metrics, models, tokenize, detokenize, "
                         "load, unload, pin, drain or shutdown",
                         json_string_value(op));
}

static bool is_id(const json_t *id)
{
    size_t n = json_string_length(id);
    return json_is_string(id) && n >= 1 && n <= PROTOCOL_MAX_ID_BYTES && strlen(json_string_value(id)) == n;
}

/* Read first, so that the reply to an invalid message can name its request. Checked later. */
static void find_request_id(struct protocol_message *m)
{
    const json_t *id = json_object_get(m->root, "request_id");
    if (id == NULL)
        id = json_object_get(m->root, "rid");
    m->request_id = is_id(id) ? json_string_value(id) : NULL;
}

/* A string without NUL, so that its C string is complete. */
static bool is_plain(const json_t *s)
{
    return json_is_string(s) && strlen(json_string_value(s)) == json_string_length(s);
}

/* Skips blanks, then this text; NULL: something else is there. */
static const char *skip(const char *at, const char *end, const char *text)
{
    size_t n = strlen(text);
    while (at != NULL && at < end && strchr(" \t\r\n", *at) != NULL && *at != '\0')
        at++;
    return at != NULL && (size_t)(end - at) >= n && memcmp(at, text, n) == 0 ? at + n : NULL;
}

/* Printable ASCII but quotes and backslashes: such a string means the same before it is parsed. */
static bool is_plain_character(char c)
{
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
}

/* The name [n] on whose behalf the message asks; NULL: none. */
static const char *find_party(const char *json, const char *end, size_t *n)
{
    static const char *const before[] = {"{", "\"on_behalf_of\"", ":", "\""};
    const char *at = json;
    *n = 0;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        at = skip(at, end, before[i]);
    while (at != NULL && at + *n < end && *n < PROTOCOL_MAX_ID_BYTES && is_plain_character(at[*n]))
        ++*n;
    return at != NULL && *n > 0 && at + *n < end && at[*n] == '"' ? at : NULL;
}

void protocol_find_party(const char *json, size_t bytes, char *name)
{
    size_t n;
    const char *found = find_party(json, json + bytes, &n);
    if (found != NULL)
        memcpy(name, found, n);
    name[found != NULL ? n : 0] = '\0';
}

void protocol_find_id(const char *json, size_t bytes, char *id)
{
    size_t n;
    const char *end = json + bytes, *party = find_party(json, end, &n);
    const char *at = party != NULL ? skip(party + n + 1, end, ",") : skip(json, end, "{");
    at = skip(skip(at, end, "\"request_id\""), end, ":");
    size_t most = at == NULL ? 0 : (size_t)(end - at) < MAX_ID_TEXT ? (size_t)(end - at) : MAX_ID_TEXT;
    json_t *found = most > 0 ? json_loadb(at, most, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    (void)snprintf(id, PROTOCOL_MAX_ID_BYTES + 1, "%s", is_id(found) ? json_string_value(found) : "");
    json_decref(found);
}

static int check_party(const struct protocol_message *m, const struct fields *f, struct protocol_error *error)
{
    const json_t *name = f->value[FIELD_ON_BEHALF_OF];
    if (name == NULL || (json_is_string(name) && m->party[0] != '\0'))
        return 0;
    return fields_fail(f, FIELD_ON_BEHALF_OF, -1, error,
                       "expected the first member of the message, a string of 1 to %d printable ASCII characters "
                       "without quotes and backslashes",
                       PROTOCOL_MAX_ID_BYTES);
}

static int check_common(struct protocol_message *m, const struct fields *f, const struct protocol_model *model,
                        struct protocol_error *error)
{
    const json_t *id = f->value[FIELD_REQUEST_ID], *name = f->value[FIELD_MODEL];
    (void)fields_int(f, FIELD_PROTOCOL, PROTOCOL_VERSION, PROTOCOL_VERSION, PROTOCOL_VERSION, error);
    if (id != NULL && m->request_id == NULL) {
        char found[48];
        (void)snprintf(found, sizeof found, "a string of %zu bytes", json_string_length(id));
        return fields_fail(f, FIELD_REQUEST_ID, -1, error, "found %s, expected a string of 1 to %d bytes without NUL",
                           json_is_string(id) ? found : json_type_name(id), PROTOCOL_MAX_ID_BYTES);
    }
    if (check_party(m, f, error) != 0)
        return -1;
    if (id == NULL && m->op == PROTOCOL_CANCEL)
        return fields_fail(f, FIELD_REQUEST_ID, -1, error, "missing: which request is to be cancelled?");
    if (name != NULL && !json_is_string(name))
        return fields_fail(f, FIELD_MODEL, -1, error, "found %s, expected a string", json_type_name(name));
    if (name != NULL && !is_plain(name))
        return fields_fail(f, FIELD_MODEL, -1, error, "found a string with NUL in it");
    if (name != NULL && model->name != NULL && strcmp(json_string_value(name), model->name) != 0 &&
        (model->path == NULL || strcmp(json_string_value(name), model->path) != 0))
        return protocol_fail(error, PROTOCOL_NOT_FOUND, "model",
                             "found \"%.80s\", expected \"%.80s\" (--served-model-name)", json_string_value(name),
                             model->name);
    return error->code == 0 ? 0 : -1;
}

static int read_detokenize(struct protocol_message *m, const struct fields *f, const struct protocol_model *model,
                           struct protocol_error *error)
{
    if (f->value[FIELD_TOKEN_IDS] == NULL)
        return fields_fail(f, FIELD_TOKEN_IDS, -1, error, "missing: expected a list of token ids");
    m->skip_special_tokens = fields_bool(f, FIELD_SKIP_SPECIAL_TOKENS, false, error);
    return fields_ids(f, FIELD_TOKEN_IDS, false, PROTOCOL_MAX_VALUES, model->vocab, &m->ids, error);
}

int protocol_parse_generate(struct protocol_message *m, json_t *object, const json_t *defaults,
                            const struct protocol_model *model, struct protocol_error *error)
{
    static const enum field_id of_servers[] = {FIELD_OP, FIELD_PROTOCOL, FIELD_REQUEST_ID, FIELD_ON_BEHALF_OF};
    struct fields f;
    *m = (struct protocol_message){.op = PROTOCOL_GENERATE, .root = json_incref(object)};
    if (fields_collect(&f, m->root, m->op, error) != 0)
        return -1;
    for (size_t i = 0; i < sizeof of_servers / sizeof of_servers[0]; i++)
        if (f.value[of_servers[i]] != NULL)
            return fields_fail(&f, of_servers[i], -1, error, "only messages to a server have it");
    if (check_common(m, &f, model, error) != 0)
        return -1;
    fields_default(&f, defaults);
    if (protocol_read_rules(m, &f, model, true, error) == 0)
        (void)protocol_read_prompt(m, &f, model->vocab, true, error);
    if (m->generate.stream)
        (void)fields_fail(&f, FIELD_STREAM, -1, error, "a batch has whole results only: leave it out, or false");
    return error->code == 0 ? 0 : -1;
}

bool protocol_needs_model(enum protocol_op op)
{
    return op == PROTOCOL_GENERATE || op == PROTOCOL_TOKENIZE || op == PROTOCOL_DETOKENIZE;
}

static size_t memory_of(const struct protocol_message *m)
{
    size_t bytes = json_memory(m->root) + m->ids.n * sizeof *m->ids.id;
    const struct protocol_generate *g = &m->generate;
    if (g->parts != NULL)
        bytes += json_memory(g->parts);
    for (int i = 0; g->prompt != NULL && i < g->n_prompts; i++)
        bytes += sizeof g->prompt[i] + g->prompt[i].n_ids * sizeof *g->prompt[i].id;
    return bytes + (size_t)g->n_turns * sizeof *g->turn;
}

int protocol_read(struct protocol_message *m, const char *json, size_t bytes, struct protocol_error *error)
{
    *m = (struct protocol_message){.op = PROTOCOL_GENERATE};
    *error = (struct protocol_error){0};
    m->root = protocol_json(json, bytes, "message", error);
    if (m->root == NULL)
        return -1;
    m->memory = json_memory(m->root);
    protocol_find_party(json, bytes, m->party);
    find_request_id(m);
    const json_t *name = json_object_get(m->root, "model");
    m->model = is_plain(name) ? json_string_value(name) : NULL;
    m->wait = !json_is_false(json_object_get(m->root, "wait"));
    m->generate.timeout_ms =
        json_integer_value(json_object_get(m->root, "timeout_ms")); /* also of waiting for a model */
    return read_op(m, error);
}

static int read_management(struct protocol_message *m, const struct fields *f, struct protocol_error *error)
{
    if (f->value[FIELD_MODEL] == NULL)
        return fields_fail(f, FIELD_MODEL, -1, error, "missing: which model?");
    m->pinned = fields_bool(f, FIELD_PINNED, true, error);
    return error->code == 0 ? 0 : -1;
}

int protocol_check(struct protocol_message *m, const struct protocol_model *model, bool may_stream,
                   struct protocol_error *error)
{
    struct fields f;
    if (fields_collect(&f, m->root, m->op, error) != 0 || check_common(m, &f, model, error) != 0)
        return -1;
    m->wait = fields_bool(&f, FIELD_WAIT, true, error);
    if (m->op == PROTOCOL_LOAD || m->op == PROTOCOL_UNLOAD || m->op == PROTOCOL_PIN) {
        (void)read_management(m, &f, error);
    } else if (m->op == PROTOCOL_GENERATE) {
        if (protocol_read_rules(m, &f, model, may_stream, error) == 0)
            (void)protocol_read_prompt(m, &f, model->vocab, true, error);
    } else if (m->op == PROTOCOL_TOKENIZE) {
        m->generate.may_be_empty = true;
        m->generate.return_token_strings = fields_bool(&f, FIELD_RETURN_TOKEN_STRS, false, error);
        (void)protocol_read_prompt(m, &f, model->vocab, false, error);
    } else if (m->op == PROTOCOL_DETOKENIZE) {
        (void)read_detokenize(m, &f, model, error);
    }
    m->memory = memory_of(m);
    return error->code == 0 ? 0 : -1;
}

int protocol_parse(struct protocol_message *m, const char *json, size_t bytes, const struct protocol_model *model,
                   bool may_stream, struct protocol_error *error)
{
    if (protocol_read(m, json, bytes, error) != 0)
        return -1;
    return protocol_check(m, model, may_stream, error);
}

void protocol_forget_chat(struct protocol_message *m)
{
    static const char *const read[] = {"tools", "documents", "chat_template_kwargs"};
    struct chat_request *chat = &m->generate.chat;
    json_t *turn;
    size_t i;
    json_array_foreach((json_t *)chat->messages, i, turn)(void) json_object_del(turn, "tool_calls");
    for (i = 0; i < sizeof read / sizeof read[0] && m->generate.n_turns > 0; i++)
        (void)json_object_del(m->root, read[i]);
    chat->tools = chat->documents = chat->variables = chat->parts = NULL;
    json_decref(m->generate.parts);
    m->generate.parts = NULL;
    m->memory = memory_of(m);
}

void protocol_message_close(struct protocol_message *m)
{
    struct protocol_generate *g = &m->generate;
    for (int i = 0; g->prompt != NULL && i < g->n_prompts; i++)
        free(g->prompt[i].id);
    free(g->prompt);
    free(g->turn);
    json_decref(g->parts);
    stop_close(m->stop);
    token_list_free(&m->ids);
    json_decref(m->root);
    *m = (struct protocol_message){0};
}
