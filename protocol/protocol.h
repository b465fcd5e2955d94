/* protocol/protocol.h - messages of clients: JSON -> a checked struct, or an error that names the field.
 *
 * docs/protocol.md is the specification. Pure functions: no socket, no global state; any number of threads
 * may parse and encode at the same time. Parsing takes some 20 ns a byte (0.3 s for 16 MiB): leave large messages to a
 * worker thread. */
#ifndef PROTOCOL_PROTOCOL_H
#define PROTOCOL_PROTOCOL_H

#include "base/protocol_types.h"
#include "base/token_list.h"
#include "protocol/rules.h"
#include "text/chat.h"
#include "text/grammar/form.h"

#define PROTOCOL_VERSION       1
#define PROTOCOL_MAX_ID_BYTES  128       /* of a request_id */
#define PROTOCOL_MAX_VALUES    (2 << 20) /* numbers, strings, ... in one message */
#define PROTOCOL_MAX_LISTS     (1 << 16) /* arrays and objects in one message */
#define PROTOCOL_MAX_MEMBERS   (1 << 17) /* members of its objects */
#define PROTOCOL_MAX_SEQUENCES 4096      /* prompts x candidates (or beams) of one message */
#define PROTOCOL_MAX_TOKENS    (1 << 24)
#define PROTOCOL_FILL          (-1) /* max_tokens: as many as fit into the context */

enum protocol_op {
    PROTOCOL_GENERATE,
    PROTOCOL_CANCEL, /* request_id is the request to end */
    PROTOCOL_HEALTH,
    PROTOCOL_METRICS,
    PROTOCOL_MODELS,
    PROTOCOL_TOKENIZE,
    PROTOCOL_DETOKENIZE,
    PROTOCOL_LOAD, /* of a model among several, as the next two */
    PROTOCOL_UNLOAD,
    PROTOCOL_PIN,
    PROTOCOL_DRAIN,
    PROTOCOL_SHUTDOWN
};

const char *protocol_op_name(enum protocol_op op);

/* The limits for the checks. Constant while the server runs. */
struct protocol_model {
    const char *name; /* of the "model"; NULL: a message about none, or about any */
    const char *path; /* it may be called so, too; NULL: it may not */
    int vocab;        /* token ids are below */
    int n_eos;
    int32_t eos[SAMPLING_MAX_EOS]; /* ids that end a text */
};

struct protocol_prompt { /* a text, or ids */
    const char *text;    /* [bytes], NUL-terminated; may hold NULs; NULL: ids */
    size_t bytes;
    int32_t *id; /* [n_ids] */
    size_t n_ids;
};

/* The form that the text must have; a worker makes the grammar of it (text/grammar/form.h). */
struct protocol_form {
    enum form_kind kind;        /* 0: any text */
    const struct json_t *value; /* borrowed from the message; NULL with FORM_OBJECT, and FORM_CALLS: of the tools */
    const char *field;          /* of the message, for errors */
};

enum tool_choice {
    TOOLS_UNSAID, /* calls are found where the template's form of them is known */
    TOOLS_NONE,   /* the template does not get to see them */
    TOOLS_AUTO,
    TOOLS_REQUIRED /* a call, of any tool or of the one that is named */
};

struct protocol_tools {
    enum tool_choice choice;
    const char *only; /* the name of the tool that has to be called; NULL: any. Borrowed */
    bool parallel;    /* several calls are allowed */
};

struct protocol_generate;

/* Is its response_format that of an answer which may call tools instead? */
bool protocol_may_call(const struct protocol_generate *g);

/* `generate`; of it, `tokenize` has the prompt and how to encode it. */
struct protocol_generate {
    int n_prompts;                  /* 1 for a chat */
    struct protocol_prompt *prompt; /* [n_prompts]; NULL: a chat */
    int n_turns;
    struct protocol_turn *turn; /* [n_turns] "messages" */
    struct chat_request chat;   /* the same for the template, and what else it gets */
    struct json_t *parts;       /* chat.parts; owned */
    bool add_special_tokens;    /* bos and eos as the tokenizer's template has them */
    const char *prediction;     /* [prediction_bytes] text that the answer may have in it; NULL: none was given */
    size_t prediction_bytes;
    bool parse_special; /* special tokens written out in prompts and contents become such tokens */

    struct request_rules rules; /* max_tokens may be PROTOCOL_FILL; sampling.prompt_len is 0 */
    struct protocol_form form;
    struct protocol_tools tools;
    bool hide_thoughts; /* of an answer that is taken apart */
    bool has_seed;      /* else rules.sampling.seed is 0 and the server chooses */
    bool stream, echo;
    struct search search;      /* per prompt; choices[] has n_prompts x search.n */
    int priority;              /* lower first */
    int64_t timeout_ms;        /* from arrival to the last token; 0: none */
    bool return_token_strings; /* tokenize */
    bool may_be_empty;         /* tokenize: a text of no tokens is no error */
};

struct protocol_message {
    enum protocol_op op;
    const char *request_id;            /* NULL: none was given */
    const char *model;                 /* its name as the message has it; NULL: none was given */
    bool wait;                         /* false: an answer at once is wanted, not one when the model is loaded */
    bool pinned;                       /* PROTOCOL_PIN */
    struct protocol_generate generate; /* PROTOCOL_GENERATE, PROTOCOL_TOKENIZE */
    struct token_list ids;             /* PROTOCOL_DETOKENIZE */
    bool skip_special_tokens;          /* PROTOCOL_DETOKENIZE */
    struct json_t *root;               /* owner of the borrowed texts */
    size_t memory;                     /* about what all this takes, bytes */
    struct stop_strings *stop;         /* borrowed by generate.rules.stop */
};

/* The two halves of protocol_parse. First the text becomes JSON: op, request_id, model, wait and timeout_ms are set,
 * nothing else is checked yet; -1 and *error if there is no JSON or no such op. Then what the op's fields say. */
int protocol_read(struct protocol_message *m, const char *json, size_t bytes, struct protocol_error *error);
int protocol_check(struct protocol_message *m, const struct protocol_model *model, bool may_stream,
                   struct protocol_error *error);

/* Does the op need a model that is loaded? */
bool protocol_needs_model(enum protocol_op op);

/* Check a whole message. may_stream: false where the client can take one reply only. On failure -1 and *error; op and
 * request_id are set as far as they could be read. Close the message in both cases, when it has been answered. */
int protocol_parse(struct protocol_message *m, const char *json, size_t bytes, const struct protocol_model *model,
                   bool may_stream, struct protocol_error *error);
void protocol_message_close(struct protocol_message *m);

/* The chat is encoded: what only its template reads (tools, documents, variables, calls) is given up. */
void protocol_forget_chat(struct protocol_message *m);

/* The two halves of this for who finds a generate within something else (a line of a batch). The text as an object
 * within the limits above, which the caller decrefs; NULL on failure. */
struct json_t *protocol_json(const char *json, size_t bytes, const char *what, struct protocol_error *error);
/* Check the object, which the message refers to from now on. defaults: an object of values, by canonical name, for
 * fields that it does not have; NULL: none. It may not stream. *error is empty before; close the message in any
 * case. */
int protocol_parse_generate(struct protocol_message *m, struct json_t *object, const struct json_t *defaults,
                            const struct protocol_model *model, struct protocol_error *error);

#endif
