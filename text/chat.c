/* text/chat.c - see chat.h. The choice of the template that renders chats, and the rendering. */
#include "base/files.h"
#include "text/chat_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONFIG_MAX_BYTES ((size_t)64 << 20)

const char *chat_template_name(const struct chat_template *chat)
{
    return chat->name;
}

enum calls_format chat_template_calls(const struct chat_template *chat, bool tools)
{
    return chat->calls[tools];
}

bool chat_template_thinks(const struct chat_template *chat, bool tools)
{
    return chat->thinks[tools];
}

static uint64_t digest(uint64_t hash, const struct chat_source *s)
{
    for (size_t i = 0; i < s->bytes; i++)
        hash = (hash ^ (unsigned char)s->text[i]) * 0x100000001b3u;
    return hash;
}

static void set_variable(json_t *all, const char *name, const json_t *value, struct err *e)
{
    json_t *v = value != NULL ? json_incref((json_t *)value) : json_null();
    if (json_object_set_new(all, name, v) != 0)
        ERR(e, ERR_MEMORY, "out of host memory: %s", name);
}

/* As apply_chat_template passes them: missing ones are None. */
static json_t *variables_of(const struct chat_request *r, struct err *e)
{
    json_t *all = r->variables != NULL ? json_copy((json_t *)r->variables) : json_object();
    set_variable(all, "messages", r->messages, e);
    set_variable(all, "tools", r->tools, e);
    set_variable(all, "documents", r->documents, e);
    if (json_object_set_new(all, "add_generation_prompt", json_boolean(r->add_generation_prompt)) != 0)
        ERR(e, ERR_MEMORY, "out of host memory: chat");
    return all;
}

static int render(const struct chat_template *chat, const struct jinja *t, const struct chat_request *request,
                  struct jinja_text *out, struct err *e)
{
    json_t *all = variables_of(request, e);
    struct jinja_variables variables = {.own = chat->tokens, .request = all, .now = time(NULL)};
    if (e->code == ERR_NONE)
        (void)jinja_render(t, &variables, out, e);
    json_decref(all);
    return e->code == ERR_NONE ? 0 : -1;
}

char *chat_text(const struct jinja_text *text, size_t *bytes)
{
    char *all = NULL;
    FILE *f = open_memstream(&all, bytes);
    for (size_t i = 0; f != NULL && i < text->n; i++)
        (void)fwrite(text->piece[i].text, 1, text->piece[i].bytes, f);
    if (f != NULL && fclose(f) == 0)
        return all;
    free(all);
    return NULL;
}

/* Does the result contain these two texts, without signs of a printed list between them? */
static bool has_both(const struct jinja_text *text, const char *first, const char *second)
{
    size_t bytes = 0;
    char *all = chat_text(text, &bytes);
    const char *from = all != NULL ? strstr(all, first) : NULL, *to = from != NULL ? strstr(from, second) : NULL;
    bool both = to != NULL && memchr(from, '{', (size_t)(to - from)) == NULL;
    free(all);
    return both;
}

/* Does the template iterate over content that is a list of text parts? A trial rendering tells: other templates fail or
 * print the list. */
static bool takes_parts(const struct chat_template *chat, const struct jinja *t)
{
    static const char first[] = "the first part", second[] = "and the second";
    json_t *messages = json_pack("[{s:s, s:[{s:s, s:s}, {s:s, s:s}]}]", "role", "user", "content", "type", "text",
                                 "text", first, "type", "text", "text", second);
    const struct chat_request request = {.messages = messages, .add_generation_prompt = true};
    struct jinja_text text = {0};
    struct err why = {0};
    bool takes = messages != NULL && render(chat, t, &request, &text, &why) == 0 && has_both(&text, first, second);
    jinja_text_free(&text);
    json_decref(messages);
    return takes;
}

static int parse_source(struct jinja **t, const struct chat_source *s, const char *model_dir, struct err *e)
{
    char name[4400];
    (void)snprintf(name, sizeof name, "%.300s: chat template \"%s\"", model_dir, s->name);
    return jinja_open(t, name, s->text, s->bytes, e);
}

/* Finds the requested templates: `which`, or "default" and, for chats with tools, "tool_use". */
static int choose_templates(struct chat_template *chat, const struct chat_sources *s, const char *model_dir,
                            const char *which, struct err *e)
{
    const struct chat_source *usual = chat_sources_find(s, which != NULL ? which : "default");
    const struct chat_source *tools = which == NULL ? chat_sources_find(s, "tool_use") : NULL;
    uint64_t hash = digest(0xcbf29ce484222325u, usual);
    if (parse_source(&chat->usual, usual, model_dir, e) != 0)
        return -1;
    chat->calls[0] = chat->calls[1] = calls_format_of(usual->text, usual->bytes);
    chat->thinks[0] = chat->thinks[1] = calls_thinks(usual->text, usual->bytes);
    chat->takes_parts[0] = chat->takes_parts[1] = takes_parts(chat, chat->usual);
    if (tools != NULL) {
        chat->calls[1] = calls_format_of(tools->text, tools->bytes);
        chat->thinks[1] = calls_thinks(tools->text, tools->bytes);
        hash = digest(hash, tools);
        if (parse_source(&chat->with_tools, tools, model_dir, e) != 0)
            return -1;
        chat->takes_parts[1] = takes_parts(chat, chat->with_tools);
    }
    (void)snprintf(chat->name, sizeof chat->name, "%.40s-%016" PRIx64, usual->name, hash);
    return 0;
}

static bool is_file(const char *which)
{
    size_t n = strlen(which);
    return strchr(which, '/') != NULL || (n > 6 && strcmp(which + n - 6, ".jinja") == 0);
}

static int not_there(const struct chat_sources *s, const char *which, struct err *e)
{
    char names[300] = "a file (*.jinja)";
    for (int i = 0; i < s->n; i++)
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), ", %s", s->item[i].name);
    return ERR(e, ERR_USAGE, "--chat-template: found \"%.80s\", expected %s", which, names);
}

/* Whether there is a usable template; if not, *why or *e gives the reason. */
static bool find_sources(struct chat_sources *s, const char *model_dir, const json_t *config, const char **which,
                         char *why, size_t why_bytes, struct err *e)
{
    if (*which != NULL && is_file(*which)) {
        const char *path = *which;
        *which = "file";
        return chat_sources_file(s, path, "file", e) == 0;
    }
    if (chat_sources_read(s, model_dir, config, e) != 0)
        return false;
    if (*which != NULL && chat_sources_find(s, *which) == NULL)
        return not_there(s, *which, e) == 0;
    if (*which == NULL && chat_sources_find(s, "default") == NULL) {
        (void)snprintf(why, why_bytes, "the checkpoint has no chat template");
        return false;
    }
    return true;
}

int chat_template_open(struct chat_template **chat, const char *model_dir, const char *which, char *why,
                       size_t why_bytes, struct err *e)
{
    char path[4200];
    struct chat_sources sources = {0};
    json_t *config = NULL;
    bool asked = which != NULL;
    *chat = err_calloc(e, 1, sizeof **chat, "chat template");
    (void)snprintf(path, sizeof path, "%s/tokenizer_config.json", model_dir);
    (void)snprintf(why, why_bytes, "%s", "");
    if (files_present(path))
        config = json_read_model_file(path, CONFIG_MAX_BYTES, e);
    if (config != NULL && !json_is_object(config))
        ERR(e, ERR_INPUT, "%s: %s, expected an object", path, json_type_name(config));
    bool there = e->code == ERR_NONE && find_sources(&sources, model_dir, config, &which, why, why_bytes, e);
    if (there)
        (*chat)->tokens = chat_tokens_read(model_dir, config, e);
    if (there && e->code == ERR_NONE && choose_templates(*chat, &sources, model_dir, which, e) != 0 && !asked &&
        e->code != ERR_MEMORY) {
        (void)snprintf(why, why_bytes, "%s", e->text);
        *e = (struct err){0};
        there = false;
    }
    chat_sources_close(&sources);
    json_decref(config);
    if (!there || e->code != ERR_NONE)
        chat_template_close(chat);
    return e->code == ERR_NONE ? 0 : -1;
}

void chat_template_close(struct chat_template **chat)
{
    if (*chat == NULL)
        return;
    jinja_close(&(*chat)->usual);
    jinja_close(&(*chat)->with_tools);
    json_decref((*chat)->tokens);
    free(*chat);
    *chat = NULL;
}

/* A template that ignores them would render the chat as if they had not been sent. */
static int check_read(const struct jinja *t, const char *name, const json_t *given, struct protocol_error *error)
{
    if (given == NULL || jinja_reads(t, name))
        return 0;
    return protocol_fail(error, PROTOCOL_BAD_REQUEST, name, "the chat template of this model has no %s", name);
}

/* The messages, with content replaced by its list of parts if it was one. */
static json_t *put_parts(const json_t *messages, const json_t *parts)
{
    json_t *list = json_copy((json_t *)messages), *content;
    size_t i;
    bool good = list != NULL;
    json_array_foreach(parts, i, content)
    {
        if (!json_is_array(content))
            continue;
        json_t *message = json_copy(json_array_get(list, i));
        good = good && json_object_set(message, "content", content) == 0 && json_array_set(list, i, message) == 0;
        json_decref(message);
    }
    if (!good)
        json_decref(list);
    return good ? list : NULL;
}

/* Renders the chat up to the end of its last message's content. */
static int render_begun(const struct chat_template *chat, const struct jinja *t, const struct chat_request *request,
                        struct jinja_text *out, struct err *e)
{
    struct chat_request now = *request;
    json_t *messages = chat_mark_end(request->messages);
    now.messages = messages;
    if (messages == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: chat");
    if (e->code == ERR_NONE && render(chat, t, &now, out, e) == 0 && !chat_cut_end(out, request->messages)) {
        ERR(e, ERR_INPUT, "the chat template leaves out text of the last message, which cannot be continued then");
        jinja_text_free(out);
    }
    json_decref(messages);
    return e->code == ERR_NONE ? 0 : -1;
}

int chat_render(const struct chat_template *chat, const struct chat_request *request, struct jinja_text *out,
                struct protocol_error *error)
{
    struct err e = {0};
    struct chat_request now = *request;
    bool tools = request->tools != NULL;
    const struct jinja *t = tools && chat->with_tools != NULL ? chat->with_tools : chat->usual;
    json_t *messages = NULL;
    if (check_read(t, "tools", request->tools, error) != 0 ||
        check_read(t, "documents", request->documents, error) != 0)
        return -1;
    if (request->parts != NULL && chat->takes_parts[tools]) {
        now.messages = messages = put_parts(request->messages, request->parts);
        if (messages == NULL)
            ERR(&e, ERR_MEMORY, "out of host memory: chat");
    }
    if (e.code == ERR_NONE)
        (void)(request->continue_last ? render_begun : render)(chat, t, &now, out, &e);
    json_decref(messages);
    if (e.code == ERR_NONE)
        return 0;
    return protocol_fail(error, e.code == ERR_INPUT ? PROTOCOL_BAD_REQUEST : PROTOCOL_INTERNAL, "messages", "%s",
                         e.text);
}
