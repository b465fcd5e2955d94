/* text/calls/calls.h - an incremental parser of a model's answer: content, reasoning, calls of tools with their
 * arguments. Pure; a parser has a fixed size, whatever the text is. The text comes from a model, so it may be anything
 * and be cut anywhere; the concatenated parts do not depend on the cuts. Text that looks like a call but breaks off
 * before its name and the beginning of its arguments is content; after that it remains a call, even if its arguments
 * are not JSON. */
#ifndef CALLS_CALLS_H
#define CALLS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum calls_format {
    CALLS_NONE,         /* no known form of calls */
    CALLS_HERMES,       /* <tool_call>{"name", "arguments"}</tool_call> */
    CALLS_LLAMA3,       /* {"name", "parameters"}, perhaps after <|python_tag|>, several separated by ; */
    CALLS_MISTRAL,      /* [TOOL_CALLS][{"name", "arguments"}, ..] */
    CALLS_MISTRAL_ARGS, /* [TOOL_CALLS]name[ARGS]{..}, repeated */
    CALLS_HARMONY,      /* messages in channels: <|channel|>commentary to=functions.name<|message|>{..}<|call|> */
    CALLS_FORMATS       /* their number */
};

enum calls_thoughts {                  /* between <think> and </think>, before the content */
                      THOUGHTS_NONE,   /* such tags are text */
                      THOUGHTS_MARKED, /* an answer may begin with reasoning */
                      THOUGHTS_BEGUN   /* the prompt ends with <think>, so the answer begins within its reasoning */
};

/* How an answer is parsed. */
struct calls_way {
    enum calls_format format;
    enum calls_thoughts thoughts;
    bool hidden;    /* reasoning is dropped */
    bool continues; /* it continues a text, as which it counts from its first byte on */
};

static inline bool calls_any(struct calls_way way)
{
    return way.format != CALLS_NONE || way.thoughts != THOUGHTS_NONE;
}

/* The form of calls that a chat template's text uses, and whether it has reasoning. */
enum calls_format calls_format_of(const char *source, size_t bytes);
bool calls_thinks(const char *source, size_t bytes);
/* Whether a prompt that ends with this text has opened the reasoning. */
bool calls_begins_thought(const char *end, size_t bytes);
/* Whether this text has opened the reasoning and not closed it. */
bool calls_in_thought(const char *text, size_t bytes);
const char *calls_format_name(enum calls_format format);

/* The texts by which calls and reasoning are marked in any format, which may be special tokens; NULL at the end. */
const char *const *calls_marks(void);

enum calls_part {
    CALLS_CONTENT,
    CALLS_REASONING,
    CALLS_NAME,     /* whole: the next call begins */
    CALLS_ARGUMENTS /* a part of the arguments of the latest call */
};

/* Receives the parts in order, some bytes at a time; calls are counted from 0. */
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
/* The number of calls that have begun. */
int calls_count(const struct calls_reader *r);

#define CALLS_ID_BYTES 40

/* An id for call number `call`: equal for equal salts, otherwise very unlikely to be equal. Mistral's templates require
 * nine letters and digits. */
void calls_id(char id[CALLS_ID_BYTES], enum calls_format format, uint64_t salt, int call);

#endif
