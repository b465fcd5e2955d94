/* text/chat_render.c - turns of a chat -> pieces of text, as chat_format.h's data have it. See chat.h. */
#include "text/chat_parts.h"
#include "text/tokenizer/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct render {
    const struct chat_template *chat;
    const struct protocol_turn *turn;
    int n;
    struct chat_text *out;
    struct protocol_error *error;
};

struct span_of_text {
    const char *text;
    size_t bytes;
};

static void add(struct render *r, const char *text, size_t bytes, bool control)
{
    struct chat_text *t = r->out;
    if (bytes == 0 || r->error->code != 0)
        return;
    if (t->n == t->capacity) {
        int capacity = 2 * t->capacity + 32;
        struct chat_piece *piece = realloc(t->piece, (size_t)capacity * sizeof *piece);
        if (piece == NULL) {
            protocol_fail(r->error, PROTOCOL_INTERNAL, "messages", "out of host memory");
            return;
        }
        t->piece = piece;
        t->capacity = capacity;
    }
    t->piece[t->n++] = (struct chat_piece){text, bytes, control};
}

/* Of the template; NULL: nothing. */
static void control(struct render *r, const char *text)
{
    if (text != NULL)
        add(r, text, strlen(text), true);
}

static void said(struct render *r, struct span_of_text words)
{
    add(r, words.text, words.bytes, false);
}

static int refuse(struct render *r, int i, const char *format, const char *role)
{
    char field[64];
    (void)snprintf(field, sizeof field, "messages[%d].role", i);
    return protocol_fail(r->error, PROTOCOL_BAD_REQUEST, field, format, role, r->chat->format->name);
}

/* Python's str.strip(): White_Space and four separators. */
static bool is_blank(int32_t cp)
{
    return unicode_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

static struct span_of_text strip_left(struct span_of_text s)
{
    int32_t cp;
    while (s.bytes > 0) {
        size_t length = (size_t)utf8_next(s.text, &cp);
        if (!is_blank(cp))
            break;
        s.text += length;
        s.bytes -= length;
    }
    return s;
}

static struct span_of_text strip_right(struct span_of_text s)
{
    int32_t cp;
    while (s.bytes > 0) {
        size_t at = s.bytes - 1;
        while (at > 0 && ((unsigned char)s.text[at] & 0xc0) == 0x80)
            at--;
        (void)utf8_next(s.text + at, &cp);
        if (!is_blank(cp))
            break;
        s.bytes = at;
    }
    return s;
}

static struct span_of_text words_of(const struct render *r, const struct protocol_turn *t)
{
    struct span_of_text s = {t->content, t->bytes};
    return r->chat->format->trim ? strip_right(strip_left(s)) : s;
}

static bool is_role(const struct protocol_turn *t, const char *role)
{
    return strcmp(t->role, role) == 0;
}

/* A name that goes into the text must not do more there than name. */
static bool plain_name(const char *role)
{
    size_t n = strlen(role);
    return n >= 1 && n <= 32 && strspn(role, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

static const struct chat_role *find_role(struct render *r, int i)
{
    const struct chat_format *f = r->chat->format;
    const char *role = r->turn[i].role;
    for (int k = 0; k < CHAT_MAX_ROLES && (f->role[k].before != NULL || f->role[k].after != NULL || f->role[k].eos);
         k++)
        if (f->role[k].role == NULL ? plain_name(role) : strcmp(f->role[k].role, role) == 0)
            return &f->role[k];
    refuse(r, i, "found \"%.40s\", which the chat format %s does not have", role);
    return NULL;
}

static struct span_of_text strip_feeds(struct span_of_text s, bool left, bool right)
{
    for (; left && s.bytes > 0 && s.text[0] == '\n'; s.bytes--)
        s.text++;
    while (right && s.bytes > 0 && s.text[s.bytes - 1] == '\n')
        s.bytes--;
    return s;
}

/* The last place of `what`, or with `first` the first; NULL: none. */
static const char *find(struct span_of_text s, const char *what, bool first)
{
    const char *found = NULL;
    size_t n = strlen(what);
    for (const char *at = s.text; (at = memmem(at, s.bytes - (size_t)(at - s.text), what, n)) != NULL; at += n) {
        found = at;
        if (first)
            break;
    }
    return found;
}

/* The last question: what the assistant thought before it is forgotten. */
static int last_question(const struct render *r)
{
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    for (int i = r->n - 1; i >= 0; i--) {
        const struct protocol_turn *t = &r->turn[i];
        bool is_tool = t->bytes >= sizeof open - 1 && memcmp(t->content, open, sizeof open - 1) == 0 &&
                       t->bytes >= sizeof close - 1 &&
                       memcmp(t->content + t->bytes - (sizeof close - 1), close, sizeof close - 1) == 0;
        if (is_role(t, "user") && !is_tool)
            return i;
    }
    return r->n - 1;
}

/* All that stands before the last </think> is left out. */
static struct span_of_text without_thoughts(struct span_of_text words)
{
    static const char close[] = "</think>";
    const char *end = find(words, close, false);
    if (end == NULL)
        return words;
    end += sizeof close - 1;
    return (struct span_of_text){end, words.bytes - (size_t)(end - words.text)};
}

/* Qwen3's: thoughts end with </think>. */
static void assistant_with_thoughts(struct render *r, int i, int question)
{
    static const char open[] = "<think>", close[] = "</think>";
    struct span_of_text all = words_of(r, &r->turn[i]), words = all, thoughts = {"", 0};
    const char *end = find(all, close, false);
    if (end != NULL) {
        words.text = end + sizeof close - 1;
        words.bytes = all.bytes - (size_t)(words.text - all.text);
        words = strip_feeds(words, true, false);
        thoughts = (struct span_of_text){all.text, (size_t)(find(all, close, true) - all.text)};
        thoughts = strip_feeds(thoughts, false, true);
        const char *start = find(thoughts, open, false);
        if (start != NULL) {
            thoughts.bytes -= (size_t)(start + sizeof open - 1 - thoughts.text);
            thoughts.text = start + sizeof open - 1;
        }
        thoughts = strip_feeds(thoughts, true, false);
    }
    if (i > question && (i == r->n - 1 || thoughts.bytes > 0)) {
        control(r, "<think>\n");
        said(r, strip_feeds(thoughts, true, true));
        control(r, "\n</think>\n\n");
        words = strip_feeds(words, true, false);
    }
    said(r, words);
}

static int render_turn(struct render *r, int i, int question)
{
    const struct chat_format *f = r->chat->format;
    const struct protocol_turn *t = &r->turn[i];
    const struct chat_role *role = find_role(r, i);
    if (role == NULL)
        return -1;
    if (f->system_first && i > 0 && is_role(t, "system"))
        return refuse(r, i, "found \"%s\", which the chat format %s has in the first turn only", t->role);
    control(r, role->before);
    if (role->middle != NULL)
        said(r, (struct span_of_text){t->role, strlen(t->role)});
    control(r, role->middle);
    if (f->kind == CHAT_REASONING && is_role(t, "assistant"))
        assistant_with_thoughts(r, i, question);
    else if (f->forgets && is_role(t, "assistant"))
        said(r, without_thoughts(words_of(r, t)));
    else
        said(r, words_of(r, t));
    if (role->eos)
        control(r, r->chat->eos);
    control(r, role->after);
    return 0;
}

static const char *today(char *date, size_t bytes)
{
    time_t now = time(NULL);
    struct tm local;
    if (localtime_r(&now, &local) == NULL || strftime(date, bytes, "%d %b %Y", &local) == 0)
        date[0] = '\0';
    return date;
}

static int render_turns(struct render *r)
{
    const struct chat_format *f = r->chat->format;
    int first = 0, question = f->kind == CHAT_REASONING ? last_question(r) : 0;
    bool system = is_role(&r->turn[0], "system");
    if (f->bos)
        control(r, r->chat->bos);
    if (!system)
        control(r, f->default_system);
    if (f->preface != NULL) {
        control(r, f->preface);
        control(r, f->date != NULL ? f->date : today(r->out->date, sizeof r->out->date));
        control(r, f->preface_separator);
        if (system)
            said(r, words_of(r, &r->turn[first++]));
        control(r, f->preface_end);
    }
    for (int i = first; i < r->n; i++)
        if (render_turn(r, i, question) != 0)
            return -1;
    return 0;
}

/* What the user says; system not NULL: behind what the system does. */
static void inst_user(struct render *r, const struct protocol_turn *system, const struct protocol_turn *user)
{
    const struct chat_inst *inst = &r->chat->format->inst;
    struct span_of_text words = words_of(r, user);
    control(r, inst->open);
    if (system != NULL && inst->system == SYSTEM_LAST) {
        said(r, (struct span_of_text){system->content, system->bytes});
        control(r, "\n\n");
    } else if (system != NULL) {
        words = strip_right((struct span_of_text){user->content, user->bytes}); /* the two are trimmed together */
        control(r, "<<SYS>>\n");
        said(r, (struct span_of_text){system->content, system->bytes});
        control(r, words.bytes > 0 ? "\n<</SYS>>\n\n" : "\n<</SYS>>");
    }
    said(r, words);
    control(r, inst->close);
}

static void inst_assistant(struct render *r, const struct protocol_turn *t)
{
    const struct chat_inst *inst = &r->chat->format->inst;
    struct span_of_text words = words_of(r, t);
    control(r, inst->before);
    said(r, inst->trim_answer ? strip_right(strip_left(words)) : words);
    control(r, inst->behind);
    control(r, r->chat->eos);
    control(r, inst->end);
}

static int render_inst(struct render *r)
{
    const struct chat_format *f = r->chat->format;
    bool system = f->inst.system != SYSTEM_NEVER && is_role(&r->turn[0], "system");
    int with_system = !system ? -1 : f->inst.system == SYSTEM_FIRST ? 1 : r->n - 1;
    if (f->bos)
        control(r, r->chat->bos);
    if (system && (r->n == 1 || !is_role(&r->turn[with_system], "user")))
        return refuse(r, 0, "found \"%s\", which the chat format %s has only with a user's turn behind it", "system");
    for (int i = system; i < r->n; i++) {
        const char *expected = (i - system) % 2 == 0 ? "user" : "assistant";
        if (!is_role(&r->turn[i], expected))
            return refuse(r, i, "expected \"%s\": in the chat format %s user and assistant take turns", expected);
        if ((i - system) % 2 == 0) {
            if (f->inst.bos_each)
                control(r, r->chat->bos);
            inst_user(r, i == with_system ? &r->turn[0] : NULL, &r->turn[i]);
        } else {
            inst_assistant(r, &r->turn[i]);
        }
    }
    return 0;
}

int chat_render(const struct chat_template *chat, const struct protocol_turn *turn, int n, bool add_generation_prompt,
                struct chat_text *out, struct protocol_error *error)
{
    struct render r = {chat, turn, n, out, error};
    out->n = 0;
    if (n < 1)
        return protocol_fail(error, PROTOCOL_BAD_REQUEST, "messages", "found no message, expected at least one");
    if ((chat->format->kind == CHAT_INST ? render_inst(&r) : render_turns(&r)) != 0)
        return -1;
    if (add_generation_prompt)
        control(&r, chat->format->generation);
    return error->code == 0 ? 0 : -1;
}

void chat_text_free(struct chat_text *t)
{
    free(t->piece);
    t->piece = NULL;
    t->n = t->capacity = 0;
}
