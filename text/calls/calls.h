/* text/calls/calls.h - a model's answer taken apart while it comes: what it says, what it thinks, which tools it calls
 * and with which arguments. Pure; a reader has a fixed size, whatever the text is.
 *
 * The text is a model's and may be anything, cut anywhere: the parts put together are the same wherever it was cut.
 * Text that looks like a call and turns out to be none before its name and the beginning of its arguments are there is
 * content; after that it stays a call, whose arguments are then no JSON. */
#ifndef CALLS_CALLS_H
#define CALLS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum calls_format {
    CALLS_NONE,         /* no form of calls that is known here */
    CALLS_HERMES,       /* <tool_call>{"name", "arguments"}</tool_call> */
    CALLS_LLAMA3,       /* {"name", "parameters"}, perhaps behind <|python_tag|>, several with ; between them */
    CALLS_MISTRAL,      /* [TOOL_CALLS][{"name", "arguments"}, ..] */
    CALLS_MISTRAL_ARGS, /* [TOOL_CALLS]name[ARGS]{..}, repeated */
    CALLS_HARMONY,      /* messages in channels: <|channel|>commentary to=functions.name<|message|>{..}<|call|> */
    CALLS_FORMATS       /* their number */
};

enum calls_thoughts {                  /* between <think> and </think>, in front of what an answer says */
                      THOUGHTS_NONE,   /* such marks are text */
                      THOUGHTS_MARKED, /* an answer may begin with them */
                      THOUGHTS_BEGUN   /* the prompt ends with the first mark: an answer begins within */
};

/* How an answer is taken apart. */
struct calls_way {
    enum calls_format format;
    enum calls_thoughts thoughts;
    bool hidden; /* reasoning is not handed on */
};

static inline bool calls_any(struct calls_way way)
{
    return way.format != CALLS_NONE || way.thoughts != THOUGHTS_NONE;
}

/* The form that a chat template writes calls in, and whether it knows of thoughts, by its text. */
enum calls_format calls_format_of(const char *source, size_t bytes);
bool calls_thinks(const char *source, size_t bytes);
/* Whether a prompt that ends with this text has begun a thought. */
bool calls_begins_thought(const char *end, size_t bytes);
const char *calls_format_name(enum calls_format format);

enum calls_part {
    CALLS_CONTENT,
    CALLS_REASONING,
    CALLS_NAME,     /* whole: the next call begins */
    CALLS_ARGUMENTS /* a piece, of the call that has begun last */
};

/* Takes the parts in their order, some bytes at a time; call counts from 0. */
struct calls_sink {
    void (*take)(void *context, enum calls_part part, int call, const char *text, size_t bytes);
    void *context;
};

struct calls_reader;

/* NULL: out of memory. */
struct calls_reader *calls_open(struct calls_way way);
void calls_close(struct calls_reader *r);
void calls_read(struct calls_reader *r, const char *text, size_t bytes, const struct calls_sink *to);
/* The text is complete. */
void calls_end(struct calls_reader *r, const struct calls_sink *to);
/* Calls that have begun. */
int calls_count(const struct calls_reader *r);

#define CALLS_ID_BYTES 40

/* A name for call number `call`: the same for the same salt, otherwise unlikely to be the same. Templates of Mistral
 * want nine letters and digits. */
void calls_id(char id[CALLS_ID_BYTES], enum calls_format format, uint64_t salt, int call);

#endif
