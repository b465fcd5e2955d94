/* client/call_options.c - see call_options.h. */
#include "client/call_options.h"
#include "base/opt_rows.h"
#include "client/fields.h"

#define AT(member) offsetof(struct call_options, member)

static const struct opt rows[] = {
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
const struct opt_rows call_rows = OPT_ROWS(rows);

static const struct opt id_rows[] = {
    FIELD("request-id", "ID", field_text, "name of the request"),
};
const struct opt_rows call_id_rows = OPT_ROWS(id_rows);

static const struct opt model_rows[] = {
    FIELD("model", "NAME", field_text, "the model's name, which the server must serve"),
};
const struct opt_rows call_model_rows = OPT_ROWS(model_rows);

static const struct opt field_rows[] = {
    FIELD("field", "NAME=JSON", field_any, "any other field of the protocol; may be repeated"),
};
const struct opt_rows call_field_rows = OPT_ROWS(field_rows);
