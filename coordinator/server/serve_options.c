/* coordinator/server/serve_options.c - see serve_options.h. */
#include "coordinator/server/serve_options.h"
#include "base/opt_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct serve_options, member)

/* "90", "90s", "30m", "2h". */
static int read_keep_alive(void *record, const struct opt *row, const char *text, struct err *e)
{
    static const char units[] = "smh";
    char *end = NULL;
    double seconds = strtod(text, &end);
    const char *unit = *end != '\0' ? strchr(units, *end) : units;
    if (end == text || unit == NULL || (*end != '\0' && end[1] != '\0') || !isfinite(seconds) || seconds < 0)
        return ERR(e, ERR_USAGE, "--%s: found \"%s\", expected a time like 90s, 30m or 2h", row->name, text);
    for (; unit > units; unit--)
        seconds *= 60;
    ((struct serve_options *)record)->keep_alive = seconds;
    return 0;
}

static const struct opt rows[] = {
    TEXT("pin", "NAME,...", pin, "with --models-dir: load these models at the start and never unload them"),
    {"keep-alive", "TIME", OPT_CALL, 0, 0, 0, 0, NULL,
     "with --models-dir: unload a model that has been idle for this time: 90s, 30m, 2h (default 0: only to make room)",
     read_keep_alive},
    TEXT("endpoint", "ADDRESS", endpoint,
         "where clients connect: tcp://127.0.0.1:PORT, tcp://127.0.0.1:* (a free port, see --rendezvous), or "
         "ipc://PATH, a Unix socket of mode 0600 (default tcp://127.0.0.1:5555)"),
    FLAG("insecure", insecure,
         "without --curve, permit an --endpoint beyond this host: everyone who can reach it may connect"),
    FLAG("curve", curve,
         "encrypt, and admit only clients with a known key: makes a key pair for the job and one for its clients, "
         "which is written to FILE.client (mode 0600) beside --rendezvous FILE"),
    TEXT("curve-clients", "FILE", curve_clients, "with --curve: public keys of more clients (Z85), one per line"),
    TEXT("rendezvous", "FILE", rendezvous,
         "once ready, write endpoint, public key, model and process id here as JSON; removed at the end"),
    {"max-message-bytes", "BYTES", OPT_BYTES, AT(max_message_bytes), 1 << 10, 1 << 30, 16 << 20, NULL,
     "largest message; a connection that sends a larger one is closed (default 16M)", NULL},
    {"max-client-backlog", "BYTES", OPT_BYTES, AT(max_client_backlog), 1 << 10, 1 << 30, 4 << 20, NULL,
     "unread replies of a client; above this its streams are cancelled and other replies become short errors, above "
     "twice this it is disconnected (default 4M)",
     NULL},
    INTEGER("max-connections", max_connections, 0, 1 << 20, 0,
            "connections at once; further ones are closed at once and counted (default 0: the limit of open files less "
            "64, above which clients wait)"),
    INTEGER("max-queue", max_queue, 0, 1 << 20, 2048,
            "limit of waiting sequences, beside the running ones; further requests are refused with 429, those of the "
            "client with the most first (default 2048)"),
    INTEGER("max-queue-per-client", max_queue_per_client, 0, 1 << 20, 0,
            "the same for one connection (default 0: whatever others leave)"),
    INTEGER("max-queue-per-party", max_queue_per_party, 0, 1 << 20, 0,
            "the same for each name (on_behalf_of) for which one connection asks, as a gateway does for its clients "
            "(default 0: whatever others leave)"),
    INTEGER("max-priority", max_priority, INT32_MIN, INT32_MAX, 0,
            "the most urgent \"priority\" that a request may have; lower is more urgent (default 0: no request goes "
            "before others)"),
    INTEGER("drain-seconds", drain_seconds, 0, 1 << 20, 30,
            "after SIGUSR1 or a drain message: seconds for open requests to finish (default 30)"),
    CHOICE(
        "metrics-names", metrics_names, "lockstep|vllm",
        "lockstep_NAME, or vllm:NAME for metrics that vLLM has, too, so that its dashboards work (default lockstep)"),
    TEXT("access-log", "FILE", access_log, "append one JSON line per message; - is standard output"),
    FLAG("access-log-prompts", access_log_prompts,
         "include the prompts' texts in the access log, which then has mode 0600"),
};

const struct opt_rows serve_rows = OPT_ROWS(rows);
