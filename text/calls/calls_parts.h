/* text/calls/calls_parts.h - the state of a parser; for text/calls/calls*.c only. */
#ifndef CALLS_CALLS_PARTS_H
#define CALLS_CALLS_PARTS_H

#include "text/calls/call_json.h"
#include "text/calls/calls.h"

#define CALLS_RAW_BYTES  4096 /* bytes of a call until it is known to be one */
#define CALLS_HELD_BYTES 16   /* bytes that may become a marker */

enum calls_mode {
    MODE_TEXT,    /* content, until a marker */
    MODE_START,   /* before <think>, or before content */
    MODE_THOUGHT, /* reasoning, until </think> */
    MODE_OPEN,    /* after a marker, before the call */
    MODE_OBJECT,  /* within a call that is an object */
    MODE_BETWEEN, /* after an object, where another one may follow */
    MODE_NAME,    /* a bare name */
    MODE_VALUE,   /* bare arguments, after their name */
    MODE_TAIL,    /* after a call, up to the marker that closes it */
    MODE_HEADER,  /* the header of a message in a channel */
    MODE_BODY     /* the text of such a message */
};

struct calls_reader {
    enum calls_format format;
    bool hidden; /* reasoning is dropped */
    enum calls_mode mode;
    const struct calls_sink *to; /* during a call */
    int n_calls;

    char held[CALLS_HELD_BYTES]; /* [n_held] the beginning of a marker, perhaps */
    size_t n_held;
    char raw[CALLS_RAW_BYTES];      /* [n_raw] since the marker, until it is a call; of a message its header */
    size_t n_raw, n_name;           /* n_name: the bytes of raw before a name */
    bool committed;                 /* the current call has been reported */
    size_t argument_at, n_argument; /* the part of its arguments in raw that has arrived */
    struct call_json json;

    bool in_list;     /* MISTRAL: a list is open */
    bool had_thought; /* the same for reasoning */
    bool had_text;    /* a byte that is not white space has arrived */
    char space[64];   /* [n_space] white space that is content if no call follows */
    size_t n_space;
    bool behind_call;        /* or after reasoning: white space that follows is dropped */
    enum calls_part channel; /* HARMONY: what the body is */

    char out[512]; /* [n_out] bytes of one part, to be passed on together */
    size_t n_out;
    enum calls_part out_part;
};

/* Passes on a byte of a part. */
void calls_put(struct calls_reader *r, enum calls_part part, char c);
void calls_flush(struct calls_reader *r);
/* Reports a call with this name. */
void calls_begin(struct calls_reader *r, const char *name, size_t bytes);

/* calls_thoughts.c: processes a byte of reasoning or before it; the first byte of content goes to `text`, which
 * processes content. And the end of the text. */
void calls_take_thought(struct calls_reader *r, char c, void (*text)(struct calls_reader *r, char c));
void calls_end_thought(struct calls_reader *r, void (*text)(struct calls_reader *r, char c));

/* calls_harmony.c: processes a byte of a message in a channel, and the end of the text. */
void calls_take_harmony(struct calls_reader *r, char c);
void calls_end_harmony(struct calls_reader *r);

/* Compares the held bytes with n markers. Returns the number of the complete one, whose bytes are then no longer held;
 * or that they begin one; or that the first byte belongs to none. */
enum { MARKER_MORE = -1, MARKER_NONE = -2 };
int calls_match(struct calls_reader *r, const char *const *marker, int n);

#endif
