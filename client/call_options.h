/* client/call_options.h - options shared by the commands of lockstep-client: the server, timeouts, fields of a request.
 * They are the first member of every command's record, so that rows of request fields (client/fields.h) can fill any of
 * them. */
#ifndef CLIENT_CALL_OPTIONS_H
#define CLIENT_CALL_OPTIONS_H

#include "base/opt_table.h"
#include "client/connection.h"

#include <jansson.h>

struct call_options {
    struct connection_setup connection;
    double timeout;  /* seconds for an answer; 0: as long as the server lives */
    json_t *request; /* owned: the request's fields set by options */
};

extern const struct opt_rows call_rows;       /* all but the request's fields */
extern const struct opt_rows call_id_rows;    /* --request-id */
extern const struct opt_rows call_model_rows; /* --model */
extern const struct opt_rows call_field_rows; /* --field */

#endif
