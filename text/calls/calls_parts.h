/* text/calls/calls_parts.h - what a reader is made of; for text/calls/calls*.c only. */
#ifndef CALLS_CALLS_PARTS_H
#define CALLS_CALLS_PARTS_H

#include "text/calls/call_json.h"
#include "text/calls/calls.h"

#define CALLS_RAW_BYTES  4096 /* of a call until it is known to be one */
#define CALLS_HELD_BYTES 16   /* of what may become a marker */

enum calls_mode {
    MODE_TEXT,    /* content, until a marker */
    MODE_START,   /* in front of the marker of a thought, or of content */
    MODE_THOUGHT, /* until the marker that closes it */
    MODE_OPEN,    /* behind a marker, in front of the call */
    MODE_OBJECT,  /* within a call that is an object */
    MODE_BETWEEN, /* behind an object, where another one may follow */
    MODE_NAME,    /* a name that stands by itself */
    MODE_VALUE,   /* arguments that stand by themselves, behind their name */
    MODE_TAIL,    /* behind a call, up to the marker that closes it */
    MODE_HEADER,  /* of a message in a channel */
    MODE_BODY     /* of such a message */
};

struct calls_reader {
    enum calls_format format;
    bool hidden; /* thoughts are not handed on */
    enum calls_mode mode;
    const struct calls_sink *to; /* during a call */
    int n_calls;

    char held[CALLS_HELD_BYTES]; /* [n_held] the beginning of a marker, perhaps */
    size_t n_held;
    char raw[CALLS_RAW_BYTES];      /* [n_raw] since the marker, until it is a call; of a message its header */
    size_t n_raw, n_name;           /* n_name: the bytes of raw in front of a name */
    bool committed;                 /* the present call has been told of */
    size_t argument_at, n_argument; /* its arguments in raw, as far as they have come */
    struct call_json json;

    bool in_list;     /* MISTRAL: a list is open */
    bool had_thought; /* the same, of a thought */
    bool had_text;    /* something that is not white space has come */
    char space[64];   /* [n_space] white space that is content if no call follows */
    size_t n_space;
    bool behind_call;        /* or behind a thought: white space that follows is none */
    enum calls_part channel; /* HARMONY: what the body is */

    char out[512]; /* [n_out] of one part, to be handed on together */
    size_t n_out;
    enum calls_part out_part;
};

/* A byte of a part goes on. */
void calls_put(struct calls_reader *r, enum calls_part part, char c);
void calls_flush(struct calls_reader *r);
/* A call of this name begins. */
void calls_begin(struct calls_reader *r, const char *name, size_t bytes);

/* calls_thoughts.c: a byte of a thought or in front of one; the first one of what is said is left to `text`, which
 * takes a byte of content. The end of the text. */
void calls_take_thought(struct calls_reader *r, char c, void (*text)(struct calls_reader *r, char c));
void calls_end_thought(struct calls_reader *r, void (*text)(struct calls_reader *r, char c));

/* calls_harmony.c: a byte of a message in a channel, and the end of the text. */
void calls_take_harmony(struct calls_reader *r, char c);
void calls_end_harmony(struct calls_reader *r);

/* The marker that the held bytes are: the number of one of n, which is complete, and nothing is held any more; or the
 * beginning of one; or their first byte is part of none. */
enum { MARKER_MORE = -1, MARKER_NONE = -2 };
int calls_match(struct calls_reader *r, const char *const *marker, int n);

#endif
