/* text/calls/syntax.h - calls as a model writes them: fixed texts around the arguments, for a grammar. */
#ifndef CALLS_SYNTAX_H
#define CALLS_SYNTAX_H

#include "text/calls/calls.h"

#include <jansson.h>

/* The calls that the tools allow, in this form: {"begin", "between", "end": texts, "many": more than one call,
 * "marks": texts that may be special tokens, "calls": [{"name", "before", "schema", "after"}, ..]}
 * (text/grammar/calls.h). tools: as in a chat, each with a function's name. only: the name of the one to call; NULL:
 * any. many: several calls are allowed, if the form supports them. A new reference; NULL: out of memory. */
json_t *calls_syntax(enum calls_format format, const json_t *tools, const char *only, bool many);

#endif
