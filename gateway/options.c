/* gateway/options.c - see options.h. */
#include "gateway/options.h"
#include "base/opt_rows.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ONLY 1 /* there are no commands */

/* A value of an option that may be repeated. */
static int add_value(const char **list, int *n, int most, const struct opt *o, const char *text, struct err *e)
{
    if (*n == most)
        return ERR(e, ERR_USAGE, "--%s: found more than %d, expected at most %d", o->name, most, most);
    if (text[0] == '\0')
        return ERR(e, ERR_USAGE, "--%s: found an empty text, expected %s", o->name, o->argument);
    list[(*n)++] = text;
    return 0;
}

static int add_backend(void *record, const struct opt *o, const char *text, struct err *e)
{
    struct gateway_options *g = record;
    if (strstr(text, "://") != NULL && strncmp(text, "tcp://", 6) != 0 && strncmp(text, "ipc://", 6) != 0)
        return ERR(e, ERR_USAGE, "--backend %.200s: expected a file, a folder, tcp://HOST:PORT or ipc:///PATH", text);
    return add_value(g->backend, &g->n_backends, POOL_MAX_SOURCES, o, text, e);
}

static int add_listen(void *record, const struct opt *o, const char *text, struct err *e)
{
    struct gateway_options *g = record;
    return add_value(g->listen, &g->n_listen, HTTP_MAX_LISTENERS, o, text, e);
}

#define AT(member) offsetof(struct gateway_options, member)
#define MANY(name, argument, call, help)                         \
    {                                                            \
        name, argument, OPT_CALL, 0, 0, 0, 0, NULL, help, (call) \
    }
#define BYTES(name, member, low, high, missing, help)                                        \
    {                                                                                        \
        name, "BYTES", OPT_BYTES, AT(member), low, (double)(high), missing, NULL, help, NULL \
    }

static const struct opt row[] = {
    MANY("backend", "FILE|DIR|E", add_backend,
         "a job to ask: its rendezvous file, which may appear later, a folder in which jobs write theirs (*.json), or "
         "an endpoint tcp://HOST:PORT, ipc:///PATH; may be repeated up to 64 times"),
    TEXT("curve-key", "FILE", client_key,
         "keys for CURVE: JSON with client_public_key, client_secret_key and server_public_key (default: the file that "
         "the rendezvous file names)"),
    MANY("listen", "WHERE", add_listen,
         "HOST:PORT, :PORT for all addresses of IPv4 and IPv6, or unix:PATH; may be repeated up to 8 times (default "
         "127.0.0.1:8080)"),
    TEXT(
        "api-keys", "FILE", api_keys,
        "keys that clients need, one per line, each with or without a name after it, in a file of mode 0600; a changed "
        "file is read again (default: none)"),
    FLAG("open-metrics", open_metrics, "let clients read /metrics without a key"),
    FLAG("no-page", no_page, "do not serve the page for browsers at /"),
    TEXT("allow-origin", "ORIGIN", allow_origin,
         "let pages of this origin, or of any with *, send requests from a browser (default: only the gateway's own)"),
    TEXT("access-log", "FILE", access_log, "append one JSON line per request, without texts; - is standard output"),
    FLAG("log-times", log_times, "begin each line on standard error with the time"),
    BYTES("max-body", max_body, 1 << 10, 1LL << 30, 16 << 20, "largest body of a request (default 16M)"),
    BYTES("max-client-backlog", max_backlog, 1 << 10, 1LL << 30, 4 << 20,
          "unread bytes of a stream; above this it is cancelled (default 4M)"),
    BYTES("max-buffered", max_buffered, 1 << 20, 1LL << 40, 1 << 30,
          "bytes of all requests and unread answers together; above this bodies get 503, and the connection with the "
          "largest unread answer ends (default 1G)"),
    INTEGER("max-connections", max_connections, 1, 1 << 20, 10000,
            "connections at once; further clients wait to be accepted (default 10000)"),
    INTEGER("max-requests-per-party", max_requests, 0, 1 << 20, 2048,
            "requests at once with keys of one name, or without keys from one IP address (IPv6: network of 64 bits); "
            "further ones get 429 (default 2048; 0: any number)"),
    REAL("head-timeout", head_seconds, 0.1, 3600, 10, "seconds for a request's head (default 10)"),
    REAL("body-timeout", body_seconds, 0.1, 3600, 60, "seconds for a request's body (default 60)"),
    REAL("idle-timeout", idle_seconds, 0.1, 86400, 75,
         "seconds between two requests, or without progress of an unread answer (default 75)"),
    REAL("comment-interval", comment_seconds, 0.1, 3600, 10,
         "seconds without a token after which a stream gets a comment (default 10)"),
    REAL("grace", grace_seconds, 0, 86400, 30,
         "after SIGTERM: seconds for answers to finish; a second signal ends at once (default 30)"),
};

static const struct opt_rows rows = OPT_ROWS(row);

static const struct opt_part part = {&rows, 0, ONLY};

static const struct opt_letter letters[] = {{'b', "backend"}, {'l', "listen"}};

static const struct opt_table table = {
    "lockstep-gateway", "LOCKSTEP_GATEWAY_", &part, 1, letters, sizeof letters / sizeof letters[0]};

static const struct opt_status statuses[] = {
    {ERR_NONE, "ended by a signal"},
    {ERR_USAGE, "an option is unknown, missing or out of range, or an address is taken"},
    {ERR_INPUT, "a file is malformed"},
    {ERR_IO, "cannot open a file or a socket"},
    {ERR_MEMORY, "out of memory"},
};

#define N_STATUSES (sizeof statuses / sizeof statuses[0])
#define SUMMARY    "HTTP in front of `lockstep serve`: OpenAI's API and others"
#define USAGE      "lockstep-gateway --backend FILE|DIR|E [--listen HOST:PORT] [options]"

int gateway_options_parse(struct gateway_options *o, int argc, char **argv, struct err *e)
{
    bool given[OPT_MAX_ROWS] = {false};
    struct opt_words words = {0};
    *o = (struct gateway_options){.version = argc > 1 && strcmp(argv[1], "--version") == 0};
    opt_defaults(&table, o);
    if (o->version)
        return 0;
    if (opt_arguments(&table, o, ONLY, "", argc - 1, argv + 1, &words, given, &o->help, e) != 0)
        return -1;
    if (o->help)
        return 0;
    if (opt_environment(&table, o, ONLY, given, e) != 0)
        return -1;
    opt_warn_unknown(&table, (const char *const[]){NULL});
    if (o->n_backends == 0)
        return ERR(e, ERR_USAGE, "no job named: use --backend FILE, DIR or E (see: lockstep-gateway --help)");
    if (o->allow_origin != NULL && strcmp(o->allow_origin, "*") != 0 && strstr(o->allow_origin, "://") == NULL)
        return ERR(e, ERR_USAGE,
                   "--allow-origin: found \"%.200s\", expected * or an origin with its scheme, such as "
                   "https://page.example",
                   o->allow_origin);
    if (o->n_listen == 0)
        o->listen[o->n_listen++] = "127.0.0.1:8080";
    return 0;
}

void gateway_options_help(void)
{
    printf("lockstep-gateway %s - " SUMMARY "\n\nUsage: " USAGE "\n", LOCKSTEP_VERSION);
    opt_print(&table, ONLY);
    printf(
        "\nEach option can also be set in the environment: --api-keys by LOCKSTEP_GATEWAY_API_KEYS.\n\nExit status:\n");
    for (size_t i = 0; i < N_STATUSES; i++)
        printf("  %3d  %s\n", statuses[i].code, statuses[i].meaning);
}

void gateway_options_book(struct opt_book *b)
{
    *b = (struct opt_book){
        .table = &table, .summary = SUMMARY, .n_commands = 1, .status = statuses, .n_statuses = N_STATUSES};
    b->command[0] = (struct opt_command){.command = ONLY, .name = "", .usage = USAGE, .help = SUMMARY};
}
