/* text/calls/call_json.h - a call as a JSON object, {"name": .., "arguments" or "parameters": ..}, byte by byte. */
#ifndef CALLS_CALL_JSON_H
#define CALLS_CALL_JSON_H

#include <stdbool.h>
#include <stddef.h>

#define CALL_NAME_BYTES 256

struct call_json { /* zeroed = at the beginning */
    enum {
        CALL_OPEN,
        CALL_FIRST_KEY,
        CALL_KEY,
        CALL_IN_KEY,
        CALL_COLON,
        CALL_VALUE,
        CALL_IN_VALUE,
        CALL_BEHIND_VALUE
    } at;
    enum { CALL_OTHER, CALL_IS_NAME, CALL_IS_ARGUMENTS } key;
    int depth; /* brackets that the value has open */
    bool in_string, escaped;
    char word[CALL_NAME_BYTES]; /* [n_word] of a key or of the name, as JSON with its quotes */
    size_t n_word;
    char name[CALL_NAME_BYTES]; /* "": not known yet */
    bool has_arguments;         /* their value has begun, or is over */
};

enum call_step {
    CALL_MORE,
    CALL_ARGUMENT, /* the same, and the byte belongs to the value of the arguments */
    CALL_DONE,     /* the byte closes the object */
    CALL_BAD       /* not such an object; the byte is not consumed */
};

enum call_step call_json_take(struct call_json *s, char c);

#endif
