/* base/protocol_types.h - types that text/ and protocol/ share: the turns of a chat, and the error of a request. */
#ifndef BASE_PROTOCOL_TYPES_H
#define BASE_PROTOCOL_TYPES_H

#include "base/err.h"

#include <stddef.h>

struct protocol_turn { /* of a chat */
    const char *role;  /* "system", "user", "assistant", ...: the template judges it */
    const char *content;
    size_t bytes;
};

enum protocol_code { /* numbers as in HTTP */
                     PROTOCOL_OK = 200,
                     PROTOCOL_BAD_REQUEST = 400,
                     PROTOCOL_NOT_FOUND = 404, /* cancel: no such request; another model */
                     PROTOCOL_TIMEOUT = 408,   /* timeout_ms has passed */
                     PROTOCOL_CONFLICT = 409,  /* load: it is loaded already; unload: it is pinned */
                     PROTOCOL_TOO_LARGE = 413, /* the message, or prompt + max_tokens against the context */
                     PROTOCOL_BUSY = 429,      /* the queue is full: retry_after_ms */
                     PROTOCOL_CANCELLED = 499, /* by op cancel, or its client does not read */
                     PROTOCOL_INTERNAL = 500,
                     PROTOCOL_UNAVAILABLE = 503, /* loading, draining, shutting down */
                     PROTOCOL_NO_ROOM = 507      /* the model is larger than all the memory that it may have */
};

struct protocol_error {
    int code;       /* enum protocol_code; 0: nothing has failed */
    char field[64]; /* as the client wrote it: "parameters.top_k", "prompt[3]"; "": no field is at fault */
    char message[ERR_TEXT_BYTES];
    int retry_after_ms; /* with PROTOCOL_BUSY and PROTOCOL_UNAVAILABLE; 0: none */
};

/* Record a failure; the first wins. Control characters become '?'. Returns -1. */
int protocol_fail(struct protocol_error *error, enum protocol_code code, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The code of a failure within a request: PROTOCOL_BAD_REQUEST if its input is to blame, else PROTOCOL_INTERNAL. */
enum protocol_code protocol_blame(const struct err *e);

#endif
