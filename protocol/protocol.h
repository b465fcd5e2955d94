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
    PROTOCOL_CANCEL, /* request_id names the request to cancel */
    PROTOCOL_HEALTH,
    PROTOCOL_METRICS,
    PROTOCOL_MODELS,
    PROTOCOL_TOKENIZE,
    PROTOCOL_DETOKENIZE,
    PROTOCOL_LOAD, /* only for a server of many models, like the next two */
    PROTOCOL_UNLOAD,
    PROTOCOL_PIN,
    PROTOCOL_DRAIN,
    PROTOCOL_SHUTDOWN
};

const char *protocol_op_name(enum protocol_op op);

/* The limits for the checks. Constant while the server runs. */
struct protocol_model {
    const char *name; /* the expected "model"; NULL: any, or the message needs none */
    const char *path; /* another accepted name of it, or NULL */
    int vocab;        /* token ids are below this */
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
    TOOLS_UNSAID, /* calls are parsed if the template's form of them is known */
    TOOLS_NONE,   /* the template does not see the tools */
    TOOLS_AUTO,
    TOOLS_REQUIRED /* the answer is a call, of any tool or of the named one */
};

struct protocol_tools {
    enum tool_choice choice;
    const char *only; /* the name of the tool that has to be called; NULL: any. Borrowed */
    bool parallel;    /* several calls are allowed */
};

struct protocol_generate;

/* Does its response_format apply only to an answer that does not call tools? */
bool protocol_may_call(const struct protocol_generate *g);

/* `generate`; `tokenize` uses the prompt and the encoding options of it. */
struct protocol_generate {
    int n_prompts;                  /* 1 for a chat */
    struct protocol_prompt *prompt; /* [n_prompts]; NULL: a chat */
    int n_turns;
    struct protocol_turn *turn; /* [n_turns] "messages" */
    struct chat_request chat;   /* the same as template values, with the other variables of the template */
    struct json_t *parts;       /* chat.parts; owned */
    bool add_special_tokens;    /* add bos and eos as the tokenizer's post-processor defines */
    const char *prediction;     /* [prediction_bytes] text that the answer may have in it; NULL: none was given */
    size_t prediction_bytes;
    bool parse_special; /* special tokens spelled out in prompts and contents become tokens */

    struct request_rules rules; /* max_tokens may be PROTOCOL_FILL; sampling.prompt_len is 0 */
    char limit_field[64];       /* max_tokens as the client wrote it, for errors */
    struct protocol_form form;
    struct protocol_tools tools;
    bool hide_thoughts; /* for a parsed answer */
    bool has_seed;      /* else rules.sampling.seed is 0 and the server chooses */
    bool stream, echo;
    bool return_ids;           /* the reply has the prompt's token ids */
    bool prompt_alone;         /* the reply has no generated token */
    struct search search;      /* per prompt; choices[] has n_prompts x search.n */
    int priority;              /* lower first */
    int64_t timeout_ms;        /* from arrival to the last token; 0: none */
    bool return_token_strings; /* tokenize */
    bool may_be_empty;         /* tokenize: a text without tokens is allowed */
};

struct protocol_message {
    enum protocol_op op;
    const char *request_id;                /* NULL: none was given */
    char party[PROTOCOL_MAX_ID_BYTES + 1]; /* "on_behalf_of"; "": none was given */
    const char *model;                     /* the name in the message; NULL: none was given */
    bool wait;                             /* false: answer at once instead of when the model is loaded */
    bool pinned;                           /* PROTOCOL_PIN */
    struct protocol_generate generate;     /* PROTOCOL_GENERATE, PROTOCOL_TOKENIZE */
    struct token_list ids;                 /* PROTOCOL_DETOKENIZE */
    bool skip_special_tokens;              /* PROTOCOL_DETOKENIZE */
    struct json_t *root;                   /* owner of the borrowed texts */
    size_t memory;                         /* approximate memory of all this, bytes */
    struct stop_strings *stop;             /* borrowed by generate.rules.stop */
};

/* The two halves of protocol_parse. The first one parses the text as JSON and sets op, request_id, model, wait and
 * timeout_ms without checking anything else; -1 and *error if the text is not JSON or the op is unknown. The second one
 * reads the op's fields. */
int protocol_read(struct protocol_message *m, const char *json, size_t bytes, struct protocol_error *error);
int protocol_check(struct protocol_message *m, const struct protocol_model *model, bool may_stream,
                   struct protocol_error *error);

/* Writes the name [PROTOCOL_MAX_ID_BYTES + 1] on whose behalf the message asks; "": none. It is the first member, so it
 * is found before the rest is parsed, which takes its time and has to wait for its turn. */
void protocol_find_party(const char *json, size_t bytes, char *name);

/* Writes the request_id [PROTOCOL_MAX_ID_BYTES + 1] of a message that is not parsed, or cannot be, so that its refusal
 * can name it; "": it is not the first member, nor the one behind on_behalf_of. */
void protocol_find_id(const char *json, size_t bytes, char *id);

/* Does the op need a loaded model? */
bool protocol_needs_model(enum protocol_op op);

/* Check a whole message. may_stream: false where the client can take one reply only. On failure -1 and *error; op and
 * request_id are set as far as they could be read. Close the message in both cases, when it has been answered. */
int protocol_parse(struct protocol_message *m, const char *json, size_t bytes, const struct protocol_model *model,
                   bool may_stream, struct protocol_error *error);
void protocol_message_close(struct protocol_message *m);

/* To be called when the chat is encoded: frees the parts that only the template reads (tools, documents, variables,
 * calls). */
void protocol_forget_chat(struct protocol_message *m);

/* The two halves of protocol_parse for callers that find a generate within something else (a line of a batch). The
 * first one parses the text as an object within the limits above, which the caller decrefs; NULL on failure. */
struct json_t *protocol_json(const char *json, size_t bytes, const char *what, struct protocol_error *error);
/* The second one checks the object, to which the message refers from now on. defaults: an object of values, by
 * canonical name, for fields that it does not have; NULL: none. It may not stream. *error is empty before; close the
 * message in any case. */
int protocol_parse_generate(struct protocol_message *m, struct json_t *object, const struct json_t *defaults,
                            const struct protocol_model *model, struct protocol_error *error);

#endif
