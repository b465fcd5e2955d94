/* client/options.c - see options.h. */
#include "client/options.h"
#include "base/json.h"
#include "base/nearest.h"
#include "base/opt_rows.h"
#include "base/progress.h"
#include "client/fields.h"
#include "client/interrupt.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GENERATE CLIENT_GENERATE
#define BENCH    CLIENT_BENCH
#define TOP      CLIENT_TOP
#define CHAT     CLIENT_CHAT
#define TEXTS    (GENERATE | CHAT)                   /* make text */
#define WORDY    (CLIENT_GENERATE | CLIENT_TOKENIZE) /* take a prompt */
#define ALL      (WORDY | CLIENT_OP | CLIENT_DETOKENIZE | CLIENT_SEND | BENCH | TOP | CHAT)

#define DEFAULT_INPUT_LEN  1024
#define DEFAULT_OUTPUT_LEN 128

#define AT(member) offsetof(struct client_options, member)
#define FIELD(name, argument, call, help)                        \
    {                                                            \
        name, argument, OPT_CALL, 0, 0, 0, 0, NULL, help, (call) \
    }

static const struct opt common_row[] = {
    TEXT("endpoint", "E", connection.endpoint, "where the server listens: tcp://127.0.0.1:5555, ipc:///path"),
    TEXT("rendezvous", "FILE", connection.rendezvous,
         "the file that the server writes when it is ready; the client waits for it and reads endpoint and public key"),
    TEXT("curve-key", "FILE", connection.client_key,
         "client keys for CURVE: JSON with client_public_key, client_secret_key and server_public_key (default: the "
         "file that `serve --curve` writes beside the rendezvous file)"),
    REAL("connect-timeout", connection.seconds, 0, 86400, 5, "seconds to wait for the server (default 5)"),
    REAL("timeout", timeout, 0, 1e6, 0,
         "seconds to wait for an answer before the request is cancelled (default 0: while the server is there)"),
};
static const struct opt_rows common_rows = OPT_ROWS(common_row);

static const struct opt id_row[] = {
    FIELD("request-id", "ID", field_text, "name of the request"),
};
static const struct opt_rows id_rows = OPT_ROWS(id_row);

static const struct opt prompt_row[] = {
    FLAG("chat", chat, "send the prompt as the user's turn of a chat, rendered by the checkpoint's template"),
    TEXT("system", "TEXT", system, "with --chat: the system prompt"),
    TEXT("prompt", "TEXT", text, "the prompt, instead of the word PROMPT or TEXT; - reads standard input"),
    FIELD("add-special-tokens", "true|false", field_boolean, "bos and eos around a prompt (default true)"),
    FIELD("parse-special", "true|false", field_boolean,
          "special tokens that are spelled out in a text become tokens (default true; chats: false)"),
    FIELD("add-generation-prompt", "true|false", field_boolean, "with --chat (default true)"),
};
static const struct opt_rows prompt_rows = OPT_ROWS(prompt_row);

static const struct opt chat_row[] = {
    TEXT("system", "TEXT", system, "the system prompt"),
};
static const struct opt_rows chat_rows = OPT_ROWS(chat_row);

static const struct opt generate_row[] = {
    FIELD("prompt-ids", "IDS", field_prompt_ids, "the prompt as token ids: 1,2,3"),
    FLAG("stream", stream, "stream the text (default on a terminal)"),
    FLAG("no-stream", no_stream, "print the text when it is complete"),
    FIELD("n", "N", field_integer, "candidates (default 1)"),
    FIELD("best-of", "N", field_integer, "number of candidates to generate; the --n best are printed (default --n)"),
    FIELD("num-beams", "N", field_integer, "more than 1: beam search (default 1)"),
    FIELD("use-beam-search", NULL, field_true, "as many beams as --best-of, or --n"),
    FIELD("length-penalty", "X", field_number, "with beams (default 1)"),
    FIELD("early-stopping", "true|false|never", field_choice, "with beams (default false)"),
    FIELD("logprobs", "N", field_integer, "with --json: log-probabilities of the N likeliest tokens"),
    FIELD("prompt-logprobs", "N", field_integer, "with --json: the same for the prompt's tokens"),
    FIELD("echo", NULL, field_true, "print the prompt before the output"),
};
static const struct opt_rows generate_rows = OPT_ROWS(generate_row);

static const struct opt json_row[] = {
    FLAG("json", json, "print the server's replies, one JSON object per line"),
};
static const struct opt_rows json_rows = OPT_ROWS(json_row);

static const struct opt bench_row[] = {
    FLAG("json", json, "print one JSON object instead of a table"),
    INTEGER("num-prompts", num_prompts, 1, 1 << 24, 1000, "requests (default 1000)"),
    REAL("request-rate", request_rate, 1e-6, INFINITY, INFINITY,
         "requests per second, arriving as a Poisson process (default inf: all at once)"),
    INTEGER("max-concurrency", max_concurrency, 0, 1 << 20, 0,
            "requests open at once, whatever the rate (default 0: no limit)"),
    INTEGER("random-input-len", input_len, 1, 1 << 24, 0, "tokens of a prompt, random ids (default 1024)"),
    INTEGER("random-output-len", output_len, 1, 1 << 24, 0,
            "tokens of an output, exactly: end-of-text tokens are ignored (default 128)"),
    REAL("random-range-ratio", range_ratio, 0, 0.999, 0,
         "draw lengths between (1 - X) and (1 + X) times these (default 0: all the same)"),
    TEXT("dataset", "FILE", dataset,
         "instead of random ids: JSON lines with \"prompt\" (a text, or token ids) and \"output_len\", in this order, "
         "repeated if there are fewer than --num-prompts"),
    FLAG("ignore-eos", ignore_eos, "with --dataset: outputs have exactly their length"),
    REAL("temperature", bench_temperature, 0, 100, 0, "temperature of all requests (default 0: greedy)"),
    INTEGER("seed", seed, 0, 9007199254740992.0, 0, "seed of ids, lengths and arrivals (default 0)"),
    INTEGER("num-warmups", warmups, 0, 1 << 20, 1, "requests before the measurement, one by one (default 1)"),
    {"progress", "auto|always|never", OPT_CHOICE, AT(progress), 0, 0, 0, "auto|always|never",
     "progress bar on standard error (default auto: on a terminal)", NULL},
};
static const struct opt_rows bench_rows = OPT_ROWS(bench_row);

static const struct opt text_row[] = {
    FIELD("model", "NAME", field_text, "the model's name; the server refuses any other one"),
    FIELD("max-tokens", "N", field_integer,
          "tokens to generate at most; -1: as many as fit (default 16; in streams and chats -1)"),
    FIELD("min-tokens", "N", field_integer, "forbid the end before this many tokens (default 0)"),
    FIELD("temperature", "X", field_number, "0 is greedy (default 1)"),
    FIELD("top-k", "N", field_integer, "keep the N likeliest tokens (default 0: all)"),
    FIELD("top-p", "X", field_number, "keep the smallest set with this probability (default 1)"),
    FIELD("min-p", "X", field_number, "drop tokens below this share of the likeliest one (default 0)"),
    FIELD("seed", "N", field_integer, "the same seed gives the same text (default: chosen by the server)"),
    FIELD("repetition-penalty", "X", field_number,
          "divide positive and multiply negative logits of tokens seen before (default 1)"),
    FIELD("presence-penalty", "X", field_number, "subtract from logits of tokens generated before (default 0)"),
    FIELD("frequency-penalty", "X", field_number, "the same for each time that they were generated (default 0)"),
    FIELD("logit-bias", "ID:BIAS,...", field_bias, "add to the logits of these tokens, e.g. 50256:-100"),
    FIELD("stop", "TEXT", field_add_text, "end before this text; may be repeated up to 16 times"),
    FIELD("stop-token-ids", "IDS", field_ids, "end after any of these tokens: 1,2,3"),
    FIELD("eos-token-id", "IDS", field_ids, "the ids that end a text (default: the checkpoint's)"),
    FIELD("ignore-eos", NULL, field_true, "continue after end-of-text tokens, up to --max-tokens"),
    FIELD("include-stop-str-in-output", NULL, field_true, "keep the stop text in the output"),
    FIELD("priority", "N", field_integer, "lower values run first (default 0)"),
    FIELD("timeout-ms", "N", field_integer, "milliseconds after which the server ends the request (default: never)"),
};
static const struct opt_rows text_rows = OPT_ROWS(text_row);

static const struct opt special_row[] = {
    FIELD("skip-special-tokens", "true|false", field_boolean,
          "omit special tokens from the text (default true; detokenize: false)"),
};
static const struct opt_rows special_rows = OPT_ROWS(special_row);

static const struct opt tokenize_row[] = {
    FIELD("return-token-strs", NULL, field_true, "with --json: the tokens as texts, too"),
};
static const struct opt_rows tokenize_rows = OPT_ROWS(tokenize_row);

static const struct opt field_row[] = {
    FIELD("field", "NAME=JSON", field_any, "any other field of the protocol; may be repeated"),
};
static const struct opt_rows field_rows = OPT_ROWS(field_row);

static const struct opt send_row[] = {
    TEXT("file", "FILE", text,
         "the requests: JSON lines, or one JSON text over many lines; - reads them from standard input"),
    INTEGER("max-concurrency", max_concurrency, 1, 1 << 20, 16, "requests open at once (default 16)"),
};
static const struct opt_rows send_rows = OPT_ROWS(send_row);

static const struct opt top_row[] = {
    REAL("interval", interval, 0.1, 3600, 1, "seconds between two views (default 1)"),
    FLAG("once", once, "print one view, over one interval, and exit"),
};
static const struct opt_rows top_rows = OPT_ROWS(top_row);

static const struct opt_part parts[] = {
    {&common_rows, 0, ALL},
    {&id_rows, 0, WORDY | CLIENT_OP},
    {&prompt_rows, 0, WORDY},
    {&chat_rows, 0, CHAT},
    {&generate_rows, 0, GENERATE},
    {&json_rows, 0, GENERATE | CLIENT_TOKENIZE | CLIENT_DETOKENIZE},
    {&bench_rows, 0, BENCH},
    {&text_rows, 0, TEXTS},
    {&special_rows, 0, GENERATE | CLIENT_DETOKENIZE},
    {&tokenize_rows, 0, CLIENT_TOKENIZE},
    {&field_rows, 0, WORDY | CLIENT_DETOKENIZE | CLIENT_OP | BENCH | CHAT},
    {&send_rows, 0, CLIENT_SEND},
    {&top_rows, 0, TOP},
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

/* Options that nothing would look at. */
static int check_unused(const struct client_options *o, struct err *e)
{
    static const char *const shown[] = {"logprobs", "prompt_logprobs", "return_token_strs"};
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++)
        if (json_object_get(o->request, shown[i]) != NULL && !o->json && (o->command & WORDY) != 0)
            return ERR(e, ERR_USAGE, "\"%s\" is shown with --json only", shown[i]);
    if (json_object_get(o->request, "add_generation_prompt") != NULL && !o->chat && (o->command & WORDY) != 0)
        return ERR(e, ERR_USAGE, "--add-generation-prompt needs --chat");
    if (o->dataset != NULL && (o->input_len > 0 || o->output_len > 0 || o->range_ratio > 0))
        return ERR(e, ERR_USAGE,
                   "--random-input-len, --random-output-len and --random-range-ratio: lengths are those of --dataset");
    if (o->ignore_eos && o->dataset == NULL)
        return ERR(e, ERR_USAGE, "--ignore-eos needs --dataset; without it end-of-text tokens are always ignored");
    return 0;
}

/* Check the words and options together. */
static int check_together(struct client_options *o, const char *argument, struct err *e)
{
    bool has_ids = o->command == CLIENT_GENERATE && json_object_get(o->request, "prompt") != NULL;
    if (argument != NULL && o->text == NULL && !has_ids)
        return ERR(e, ERR_USAGE, "%s needs %s (see: lockstep-client --help)", o->op, argument);
    if (has_ids && (o->text != NULL || o->chat))
        return ERR(e, ERR_USAGE, "--prompt-ids is the whole prompt: neither a text nor --chat goes with it");
    if (o->system != NULL && !o->chat && o->command != CLIENT_CHAT)
        return ERR(e, ERR_USAGE, "--system needs --chat");
    if (o->stream && o->no_stream)
        return ERR(e, ERR_USAGE, "--stream and --no-stream contradict each other");
    return check_unused(o, e);
}

static void set_defaults(struct client_options *o)
{
    o->input_len = o->input_len > 0 ? o->input_len : DEFAULT_INPUT_LEN;
    o->output_len = o->output_len > 0 ? o->output_len : DEFAULT_OUTPUT_LEN;
}

/* `--file FILE` anywhere is the command send. */
static bool names_file(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--file") == 0 || strncmp(argv[i], "--file=", 7) == 0)
            return true;
    return false;
}

int client_options_parse(struct client_options *o, int argc, char **argv, struct err *e)
{
    const char *word[CLIENT_MAX_WORDS] = {NULL};
    bool given[OPT_MAX_ROWS] = {false};
    size_t k = find_command(argc > 1 ? argv[1] : NULL);
    bool named = k < N_COMMANDS;
    *o = (struct client_options){.request = json_object()};
    o->version = argc > 1 && strcmp(argv[1], "--version") == 0;
    o->help = argc < 2 || o->version;
    if (o->request == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: options");
    if (o->help)
        return 0;
    k = named ? k : find_command(names_file(argc, argv) ? "send" : "generate");
    o->command = commands[k].command;
    struct opt_words words = {.word = word, .capacity = commands[k].argument != NULL ? CLIENT_MAX_WORDS : 0};
    opt_defaults(&table, o);
    o->max_concurrency = o->command == CLIENT_SEND ? 16 : 0;
    int first = named ? 2 : 1;
    if (opt_arguments(&table, o, (int)o->command, named ? commands[k].name : "", argc - first, argv + first, &words,
                      given, &o->help, e) != 0)
        return -1;
    o->op = o->help && !named ? NULL : commands[k].name;
    if (o->text != NULL && word[0] != NULL)
        return ERR(e, ERR_USAGE, "found \"%.80s\" beside --%s %.80s, expected one of them", word[0],
                   o->command == CLIENT_SEND ? "file" : "prompt", o->text);
    o->text = word[0] != NULL ? word[0] : o->text;
    if (o->help)
        return 0;
    if (opt_environment(&table, o, (int)o->command, given, e) != 0)
        return -1;
    opt_warn_unknown(&table, (const char *const[]){NULL});
    if (!named && words.n_plain == 0 && check_slip(word[0], e) != 0)
        return -1;
    if (check_together(o, commands[k].argument, e) != 0)
        return -1;
    set_defaults(o);
    return 0;
}

void client_options_close(struct client_options *o)
{
    json_decref(o->request);
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
    printf("\n`lockstep-client COMMAND --help` lists the options of a command. Each can also be set in the "
           "environment:\n--endpoint by LOCKSTEP_CLIENT_ENDPOINT. Words after -- are not options.\n\nExit status:\n");
    for (size_t i = 0; i < N_STATUSES; i++)
        printf("  %3d  %s\n", statuses[i].code, statuses[i].meaning);
}

void client_options_help(const struct client_options *o)
{
    char usage[160];
    if (o->op == NULL) {
        print_overview();
        return;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, o->op) == 0) {
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
