/* client/options.c - see options.h. */
#include "client/options.h"
#include "base/nearest.h"
#include "client/interrupt.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define WORDY      (CLIENT_GENERATE | CLIENT_TOKENIZE) /* take a prompt */
#define ASKING     (WORDY | CLIENT_CHAT | CLIENT_DETOKENIZE | CLIENT_OP)
#define IN(member) offsetof(struct client_options, member)

static const struct opt_part parts[] = {
    {&call_rows, IN(ask), ASKING},
    {&call_id_rows, IN(ask), WORDY | CLIENT_OP},
    {&ask_prompt_rows, IN(ask), WORDY},
    {&ask_chat_rows, IN(ask), CLIENT_CHAT},
    {&ask_generate_rows, IN(ask), CLIENT_GENERATE},
    {&ask_json_rows, IN(ask), WORDY | CLIENT_DETOKENIZE},
    {&call_model_rows, IN(ask), CLIENT_GENERATE | CLIENT_CHAT},
    {&ask_text_rows, IN(ask), CLIENT_GENERATE | CLIENT_CHAT},
    {&ask_special_rows, IN(ask), CLIENT_GENERATE | CLIENT_DETOKENIZE},
    {&ask_tokenize_rows, IN(ask), CLIENT_TOKENIZE},
    {&call_field_rows, IN(ask), ASKING},

    {&call_rows, IN(bench), CLIENT_BENCH},
    {&call_model_rows, IN(bench), CLIENT_BENCH},
    {&client_bench_rows, IN(bench), CLIENT_BENCH},
    {&call_field_rows, IN(bench), CLIENT_BENCH},

    {&call_rows, IN(send), CLIENT_SEND},
    {&send_rows, IN(send), CLIENT_SEND},

    {&call_rows, IN(top), CLIENT_TOP},
    {&top_rows, IN(top), CLIENT_TOP},
};

static const struct opt_letter letters[] = {
    {'e', "endpoint"}, {'r', "rendezvous"}, {'m', "model"}, {'p', "prompt"}, {'n', "max-tokens"},
};

static const struct opt_table table = {"lockstep-client",
                                       "LOCKSTEP_CLIENT_",
                                       parts,
                                       sizeof parts / sizeof parts[0],
                                       letters,
                                       sizeof letters / sizeof letters[0]};

static const struct {
    const char *name;
    enum client_command command;
    const char *argument, *help;
} commands[] = {
    {"generate", CLIENT_GENERATE, "PROMPT|-",
     "Generate text for a prompt; - reads it from standard input. The word generate may be omitted. ^C cancels the "
     "request."},
    {"chat", CLIENT_CHAT, NULL,
     "A conversation: each line is a turn, answers are streamed. /reset, /system TEXT, /help; ^C stops an answer, ^D "
     "ends the conversation."},
    {"send", CLIENT_SEND, "FILE|-",
     "Send raw requests, one JSON object per line, as specified in docs/protocol.md, and print each received message "
     "as one line, in the order of arrival. --file FILE is the same."},
    {"health", CLIENT_OP, NULL, "Print the server's state as JSON."},
    {"models", CLIENT_OP, NULL, "Print the model and the server's limits as JSON."},
    {"metrics", CLIENT_OP, NULL, "Print the metrics in Prometheus' format."},
    {"tokenize", CLIENT_TOKENIZE, "TEXT|-", "Print the token ids of a text, or of a chat, separated by commas."},
    {"detokenize", CLIENT_DETOKENIZE, "IDS", "Print the text of token ids: 1,2,3."},
    {"drain", CLIENT_OP, NULL, "Have the server finish its open requests and end; only over ipc:// or CURVE."},
    {"shutdown", CLIENT_OP, NULL, "Have the server end at once; only over ipc:// or CURVE."},
    {"bench", CLIENT_BENCH, NULL,
     "Measure time to first token, time per token, latency and throughput as vLLM's `bench serve` defines them."},
    {"top", CLIENT_TOP, NULL, "Show the server's activity, every second."},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

/* The command that the first argument names; N_COMMANDS: none. */
static size_t find_command(const char *word)
{
    size_t i = 0;
    while (i < N_COMMANDS && (word == NULL || strcmp(commands[i].name, word) != 0))
        i++;
    return i;
}

/* A word that resembles a command, or a command that is not the first word, is not a prompt. */
static int check_slip(const char *word, struct err *e)
{
    if (word != NULL && (strcmp(word, "help") == 0 || strcmp(word, "version") == 0))
        return ERR(e, ERR_USAGE, "no command \"%s\", did you mean --%s? To use it as a prompt, put it after --", word,
                   word);
    const char *best = NULL;
    int least = word != NULL ? nearest_limit(word) + 1 : 0;
    for (size_t i = 0; i < N_COMMANDS && word != NULL; i++) {
        int changes = nearest_distance(word, commands[i].name);
        if (changes < least) {
            least = changes;
            best = commands[i].name;
        }
    }
    if (best == NULL)
        return 0;
    if (strcmp(word, best) == 0)
        return ERR(e, ERR_USAGE,
                   "the command comes first: lockstep-client %s ... To use it as a prompt, put it after --", best);
    return ERR(e, ERR_USAGE, "no command \"%.40s\", did you mean %s? To use it as a prompt, put it after --", word,
               best);
}

/* Check the words and options together. */
static int check_together(struct client_options *o, const char *argument, struct err *e)
{
    switch (o->command) {
    case CLIENT_SEND:
        return o->send.file != NULL ? 0 : ERR(e, ERR_USAGE, "send needs %s (see: lockstep-client --help)", argument);
    case CLIENT_BENCH:
        return client_bench_finish(&o->bench, e);
    case CLIENT_GENERATE:
    case CLIENT_CHAT:
    case CLIENT_TOKENIZE:
    case CLIENT_DETOKENIZE:
    case CLIENT_OP:
        return ask_options_check(&o->ask, argument, e);
    case CLIENT_TOP:
        break;
    }
    return 0;
}

/* `--file FILE` anywhere is the command send. */
static bool names_file(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--file") == 0 || strncmp(argv[i], "--file=", 7) == 0)
            return true;
    return false;
}

struct call_options *client_options_call(struct client_options *o)
{
    switch (o->command) {
    case CLIENT_BENCH:
        return &o->bench.call;
    case CLIENT_SEND:
        return &o->send.call;
    case CLIENT_TOP:
        return &o->top.call;
    case CLIENT_GENERATE:
    case CLIENT_CHAT:
    case CLIENT_TOKENIZE:
    case CLIENT_DETOKENIZE:
    case CLIENT_OP:
        break;
    }
    return &o->ask.call;
}

/* A word without an option is the same as --prompt, or --file of the command send. */
static int take_word(struct client_options *o, const char *word, struct err *e)
{
    bool sends = o->command == CLIENT_SEND;
    const char **text = sends ? &o->send.file : &o->ask.text;
    if (word != NULL && *text != NULL)
        return ERR(e, ERR_USAGE, "found \"%.80s\" beside --%s %.80s, expected one of them", word,
                   sends ? "file" : "prompt", *text);
    *text = word != NULL ? word : *text;
    return 0;
}

/* Does the option, of whatever command, take the next argument? */
static bool takes_next(const char *option)
{
    const char *name = strncmp(option, "--", 2) == 0 ? option + 2 : "";
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        name = option[1] == letters[i].letter && option[2] == '\0' ? letters[i].name : name;
    for (struct opt_cursor at = {0}; opt_next(&table, ~0, &at);)
        if (strcmp(at.row->name, name) == 0)
            return at.row->argument != NULL;
    return false;
}

/* The first argument that is neither an option nor its value; NULL: there is none before "--". */
static const char *first_word(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (argv[i][0] != '-')
            return argv[i];
        i += takes_next(argv[i]);
    }
    return NULL;
}

/* Without a command an option or a word may be wrong because its command is misspelt, or not the first word: that is
 * the reason then. */
static int blame_word(int argc, char **argv, struct err *e)
{
    struct err slip = {0};
    if (check_slip(first_word(argc, argv), &slip) != 0)
        *e = slip;
    return -1;
}

/* The words and options after the command, which is commands[k]. */
static int parse_rest(struct client_options *o, size_t k, bool named, int argc, char **argv, struct err *e)
{
    const char *word[CLIENT_MAX_WORDS] = {NULL};
    bool given[OPT_MAX_ROWS] = {false};
    struct opt_words words = {.word = word, .capacity = commands[k].argument != NULL ? CLIENT_MAX_WORDS : 0};
    if (opt_arguments(&table, o, (int)o->command, named ? commands[k].name : "", argc, argv, &words, given, &o->help,
                      e) != 0)
        return named ? -1 : blame_word(argc, argv, e);
    o->name = o->help && !named ? NULL : commands[k].name;
    if (take_word(o, word[0], e) != 0)
        return named ? -1 : blame_word(argc, argv, e);
    if (o->help)
        return 0;
    if (opt_environment(&table, o, (int)o->command, given, e) != 0)
        return -1;
    opt_warn_unknown(&table, (const char *const[]){NULL});
    if (!named && words.n_plain == 0 && check_slip(word[0], e) != 0)
        return -1;
    return check_together(o, commands[k].argument, e);
}

int client_options_parse(struct client_options *o, int argc, char **argv, struct err *e)
{
    size_t k = find_command(argc > 1 ? argv[1] : NULL);
    bool named = k < N_COMMANDS;
    *o = (struct client_options){.version = argc > 1 && strcmp(argv[1], "--version") == 0};
    o->help = argc < 2 || o->version;
    if (o->help)
        return 0;
    k = named ? k : find_command(names_file(argc, argv) ? "send" : "generate");
    o->command = commands[k].command;
    opt_defaults(&table, o);
    o->ask.op = commands[k].name;
    if ((client_options_call(o)->request = json_object()) == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: options");
    int first = named ? 2 : 1;
    return parse_rest(o, k, named, argc - first, argv + first, e);
}

void client_options_close(struct client_options *o)
{
    json_decref(client_options_call(o)->request);
    *o = (struct client_options){0};
}

static const struct opt_status statuses[] = {
    {ERR_NONE, "done"},
    {ERR_REQUEST, "the server answered with an error, or some requests failed"},
    {ERR_USAGE, "an option is unknown, missing or out of range"},
    {ERR_INPUT, "a file is malformed"},
    {ERR_IO, "cannot open, read or write a file"},
    {ERR_COMM, "no server, no answer in time, or the server is gone"},
    {INTERRUPT_STATUS, "interrupted; the request is cancelled"},
};

#define N_STATUSES (sizeof statuses / sizeof statuses[0])
#define SUMMARY    "talks to `lockstep serve`; needs neither MPI nor a GPU"

/* "lockstep-client send --endpoint E [options] FILE|-" */
static void write_usage(char *text, size_t bytes, size_t i)
{
    (void)snprintf(text, bytes, "lockstep-client %s --endpoint E [options]%s%s", commands[i].name,
                   commands[i].argument != NULL ? " " : "", commands[i].argument != NULL ? commands[i].argument : "");
}

static void print_overview(void)
{
    char usage[160];
    printf("lockstep-client %s - " SUMMARY "\n\nCommands:\n", LOCKSTEP_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        write_usage(usage, sizeof usage, i);
        printf("  %s\n      ", usage);
        opt_print_wrapped(commands[i].help, 6, 100);
    }
    printf("\n`lockstep-client COMMAND --help` lists the options of a command. Each option can also be set in the "
           "environment:\n--endpoint by LOCKSTEP_CLIENT_ENDPOINT. Words after -- are not options.\n\nExit status:\n");
    for (size_t i = 0; i < N_STATUSES; i++)
        printf("  %3d  %s\n", statuses[i].code, statuses[i].meaning);
}

void client_options_help(const struct client_options *o)
{
    char usage[160];
    if (o->name == NULL) {
        print_overview();
        return;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, o->name) == 0) {
            write_usage(usage, sizeof usage, i);
            printf("Usage: %s\n\n", usage);
            opt_print_wrapped(commands[i].help, 0, 100);
        }
    opt_print(&table, (int)o->command);
}

void client_options_book(struct opt_book *b)
{
    *b = (struct opt_book){
        .table = &table, .summary = SUMMARY, .n_commands = N_COMMANDS, .status = statuses, .n_statuses = N_STATUSES};
    for (size_t i = 0; i < N_COMMANDS; i++) {
        struct opt_command *c = &b->command[i];
        c->command = (int)commands[i].command;
        c->name = commands[i].name;
        c->help = commands[i].help;
        write_usage(c->usage, sizeof c->usage, i);
    }
}
