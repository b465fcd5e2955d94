/* client/chat.c - see chat.h. */
#include "client/chat.h"
#include "client/ask.h"
#include "client/interrupt.h"
#include "client/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT "> "
#define HELP                                                        \
    "/reset        clear the conversation\n"                        \
    "/system TEXT  set the system prompt; without TEXT remove it\n" \
    "/quit, ^D     end\n"                                           \
    "^C            end an answer, or clear the line\n"

struct chat {
    struct connection *c;
    const struct ask_options *o;
    char *system;  /* NULL: none */
    json_t *turns; /* the conversation so far, without the system's turn */
    bool refused;  /* a turn was answered with an error */
};

static int set_system(struct chat *chat, const char *text, struct err *e)
{
    free(chat->system);
    chat->system = text != NULL && *text != '\0' ? strdup(text) : NULL;
    return chat->system != NULL || text == NULL || *text == '\0' ? 0 : ERR(e, ERR_MEMORY, "out of host memory: a chat");
}

/* The system's turn and the conversation; the caller decrefs. NULL on failure. */
static json_t *list_turns(const struct chat *chat, struct err *e)
{
    json_t *turns = json_array();
    if (chat->system != NULL)
        (void)ask_add_turn(turns, "system", chat->system, strlen(chat->system), e);
    if (e->code == ERR_NONE && json_array_extend(turns, chat->turns) == 0)
        return turns;
    if (e->code == ERR_NONE)
        ERR(e, ERR_MEMORY, "out of host memory: a chat");
    json_decref(turns);
    return NULL;
}

/* Sends the whole conversation; the answer's text is copied to f as it arrives. */
static int ask_turns(const struct chat *chat, FILE *f, struct err *e)
{
    json_t *turns = list_turns(chat, e);
    if (turns != NULL)
        (void)ask_chat(chat->c, chat->o, turns, f, e);
    json_decref(turns);
    return e->code == ERR_NONE ? 0 : -1;
}

/* A refusal of the server is printed, and the turn is removed: the conversation continues. */
static void take_back(struct chat *chat, struct err *e)
{
    if (e->code == ERR_REQUEST || e->code == ERR_INPUT) {
        (void)fflush(stdout);
        (void)fprintf(stderr, "lockstep-client: %s\n", e->text);
        *e = (struct err){0};
        chat->refused = true;
    }
    (void)json_array_remove(chat->turns, json_array_size(chat->turns) - 1);
}

static void say_turn(struct chat *chat, const char *line, struct err *e)
{
    char *answer = NULL;
    size_t bytes = 0;
    if (ask_add_turn(chat->turns, "user", line, strlen(line), e) != 0) {
        (void)fprintf(stderr, "lockstep-client: %s\n", e->text);
        *e = (struct err){0};
        chat->refused = true;
        return;
    }
    FILE *f = open_memstream(&answer, &bytes);
    if (f == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: an answer");
    else
        (void)ask_turns(chat, f, e);
    if (f != NULL && fclose(f) != 0 && e->code == ERR_NONE)
        ERR(e, ERR_MEMORY, "out of host memory: an answer");
    if (e->code != ERR_NONE)
        take_back(chat, e);
    else
        (void)ask_add_turn(chat->turns, "assistant", answer, bytes, e);
    free(answer);
}

/* false: the conversation is over. */
static bool obey_slash(struct chat *chat, const char *line, struct err *e)
{
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
        return false;
    if (strcmp(line, "/reset") == 0)
        (void)json_array_clear(chat->turns);
    else if (strcmp(line, "/help") == 0)
        (void)fputs(HELP, stdout);
    else if (strcmp(line, "/system") == 0)
        (void)set_system(chat, NULL, e);
    else if (strncmp(line, "/system ", 8) == 0)
        (void)set_system(chat, line + 8 + strspn(line + 8, " "), e);
    else if (line[0] == '/')
        (void)fprintf(
            stderr,
            "lockstep-client: no such command \"%.40s\": /help lists them; a line that begins with a blank is sent\n",
            line);
    else if (*line != '\0')
        say_turn(chat, line, e);
    return e->code == ERR_NONE;
}

static void talk(struct chat *chat, struct err *e)
{
    bool going = true;
    while (going) {
        char *line = lines_read(PROMPT, e);
        if (line == NULL && e->code == ERR_NONE && interrupt_take()) {
            (void)fputs("\n", stdout);
            continue;
        }
        going = line != NULL && !interrupt_came() && obey_slash(chat, line, e) && ferror(stdout) == 0;
        free(line);
        (void)interrupt_take(); /* it has ended the answer */
    }
    if (lines_at_terminal())
        (void)fputs("\n", stdout);
}

int client_chat(struct connection *c, const struct ask_options *o, struct err *e)
{
    struct chat chat = {.c = c, .o = o, .turns = json_array()};
    if (chat.turns == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: a chat");
    if (set_system(&chat, o->system, e) == 0) {
        if (lines_at_terminal())
            (void)fputs("/help lists the commands, ^D ends.\n", stdout);
        talk(&chat, e);
    }
    if (e->code == ERR_NONE && chat.refused && !lines_at_terminal())
        ERR(e, ERR_REQUEST, "some turns were refused");
    json_decref(chat.turns);
    free(chat.system);
    return e->code == ERR_NONE ? 0 : -1;
}
