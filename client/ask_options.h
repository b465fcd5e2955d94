/* client/ask_options.h - options of commands that are one request and its answer (client/ask.h): generate, chat,
 * tokenize, detokenize, and operations without text. */
#ifndef CLIENT_ASK_OPTIONS_H
#define CLIENT_ASK_OPTIONS_H

#include "client/call_options.h"

#include <stdbool.h>

/* Strings are borrowed from argv or the environment. */
struct ask_options {
    struct call_options call;
    const char *op;   /* the command's name: "health"; "generate" when none was named */
    const char *text; /* the prompt, text or ids; NULL: none */
    const char *system;
    bool chat, stream, no_stream, json;
};

extern const struct opt_rows ask_prompt_rows;   /* of generate and tokenize */
extern const struct opt_rows ask_generate_rows; /* of generate alone */
extern const struct opt_rows ask_chat_rows;     /* of chat alone */
extern const struct opt_rows ask_text_rows;     /* of generate and chat: sampling */
extern const struct opt_rows ask_json_rows;     /* of generate, tokenize and detokenize */
extern const struct opt_rows ask_special_rows;  /* of generate and detokenize */
extern const struct opt_rows ask_tokenize_rows; /* of tokenize alone */

/* "health": is it this command? */
bool ask_is(const struct ask_options *o, const char *op);

/* Check the options together. argument: the command's required word, for the message; NULL: none. ERR_USAGE. */
int ask_options_check(const struct ask_options *o, const char *argument, struct err *e);

#endif
