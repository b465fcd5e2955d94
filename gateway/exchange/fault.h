/* gateway/exchange/fault.h - a request's failure, before an API puts it into its own form. */
#ifndef EXCHANGE_FAULT_H
#define EXCHANGE_FAULT_H

#include "gateway/loop/bytes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct fault {
    int status;              /* of HTTP */
    const char *type, *code; /* OpenAI's: "invalid_request_error"; "model_not_found" or NULL */
    char param[128];         /* the offending field; "": none */
    char message[512];
    int64_t retry_ms;  /* Retry-After; 0: none */
    bool no_retry;     /* a retry is useless */
    const char *allow; /* 405: the allowed methods */
};

/* printf-like. type and code follow from the status. */
struct fault fault_make(int status, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* From a reply with "status": "error". */
struct fault fault_of_reply(const json_t *reply);

/* A field of the backend's messages, and of an API's requests. */
struct fault_name {
    const char *theirs, *ours; /* "[]" stands for an index, which ours may repeat */
    bool whole;                /* what follows theirs in a name is dropped: it has no place in the API's requests */
};

/* fault_names.c: renames a fault's field, also at the beginning of its message, by the first name that fits. Names are
 * whole, or followed by a member or an index. */
void fault_rename(struct fault *f, const struct fault_name *names, size_t n);

/* Header lines that a fault needs. */
void fault_fields(const struct fault *f, struct bytes *to);

/* Bytes that are not UTF-8 become '?'. */
void fault_make_utf8(char *text);

/* {"error": {"message", "type", "param", "code"}} */
void fault_write_openai(const struct fault *f, struct bytes *to);

#endif
