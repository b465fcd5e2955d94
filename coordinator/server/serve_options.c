/* coordinator/server/serve_options.c - see serve_options.h. */
#include "coordinator/server/serve_options.h"
#include "base/opt_rows.h"

#define AT(member) offsetof(struct serve_options, member)

static const struct opt rows[] = {
    TEXT("endpoint", "ADDRESS", endpoint,
         "where clients connect: tcp://127.0.0.1:PORT, tcp://127.0.0.1:* (a free port, see --rendezvous), or "
         "ipc://PATH, a Unix socket of mode 0600 (default tcp://127.0.0.1:5555)"),
    FLAG("insecure", insecure, "let --endpoint be one that others can reach without --curve: whoever can, may"),
    FLAG("curve", curve,
         "encrypt, and let only known clients in: makes a key pair for the job and one for its clients, which is "
         "written to FILE.client (mode 0600) of --rendezvous FILE"),
    TEXT("curve-clients", "FILE", curve_clients, "with --curve: more clients' public keys (Z85), one a line"),
    TEXT("rendezvous", "FILE", rendezvous,
         "once ready, write endpoint, public key, model and process id here as JSON; removed at the end"),
    {"max-message-bytes", "BYTES", OPT_BYTES, AT(max_message_bytes), 1 << 10, 1 << 30, 16 << 20, NULL,
     "largest message; a connection that sends more is cut off (default 16M)", NULL},
    {"max-client-backlog", "BYTES", OPT_BYTES, AT(max_client_backlog), 1 << 10, 1 << 30, 4 << 20, NULL,
     "replies that may wait for a client that does not read; beyond, its streams are cancelled and other replies "
     "become short errors, beyond twice that it is disconnected (default 4M)",
     NULL},
    INTEGER("max-queue", max_queue, 0, 1 << 20, 2048,
            "sequences that may wait beside those that run; beyond, requests are refused with 429, those of the client "
            "that has the most first (default 2048)"),
    INTEGER("max-queue-per-client", max_queue_per_client, 0, 1 << 20, 0,
            "the same of one connection (default 0: as many as others leave)"),
    INTEGER("max-priority", max_priority, INT32_MIN, INT32_MAX, 0,
            "the most urgent \"priority\" that a request may have; lower is more urgent (default 0: nobody goes before "
            "others)"),
    INTEGER("drain-seconds", drain_seconds, 0, 1 << 20, 30,
            "after SIGUSR1 or a drain message: time for open requests to finish (default 30)"),
    CHOICE("metrics-names", metrics_names, "lockstep|vllm",
           "lockstep_NAME, or vllm:NAME of what vLLM has, too, for dashboards made for it (default lockstep)"),
    TEXT("access-log", "FILE", access_log, "append one JSON line a message; - is standard output"),
    FLAG("access-log-prompts", access_log_prompts, "with the prompts' texts in it; the file then has mode 0600"),
};

const struct opt_rows serve_rows = OPT_ROWS(rows);
