/* tests/support/examples.h - the examples of docs/protocol.md, and their comparison with replies. A fenced block whose
 * first line is ```json KIND NAME, with KIND request, reply or event, belongs to example NAME: one request, then its
 * one reply, or events of its stream. The last event block stands for the stream's last event, those before it for its
 * first ones. Examples must run in the document's order, on a server without other work. */
#ifndef TESTS_SUPPORT_EXAMPLES_H
#define TESTS_SUPPORT_EXAMPLES_H

#include <jansson.h>
#include <stdbool.h>

#define EXAMPLE_MAX_BLOCKS 8

struct example {
    char name[64];
    json_t *request;
    char *request_text; /* as in the document: may be malformed on purpose (then request is NULL) */
    int n_replies;
    bool streams;                      /* the replies are events */
    json_t *reply[EXAMPLE_MAX_BLOCKS]; /* [n_replies] */
};

struct examples {
    int n;
    struct example *example; /* [n] in the document's order */
};

/* Ends the test program with a message if the document cannot be read or is malformed: an unknown kind, a reply without
 * a request, a name that is used twice, a reply that is not JSON. */
void examples_read(struct examples *e, const char *path);
void examples_free(struct examples *e);

/* Compares a reply with the document: objects have at least the listed members, lists the same number of items, values
 * are equal (numbers by value). "..." as a value stands for any; as the last item of a list, for any more items. A
 * difference is written to why: its path, the found and the expected value. */
bool example_compare(const json_t *found, const json_t *expected, char *why, size_t why_bytes);

#endif
