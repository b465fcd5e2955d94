/* text/grammar/regex.h - regular expressions as nodes of a graph.
 *
 * Supported: literals, ., classes, \d \w \s and their opposites, \t \n \r \f \v \0 \xHH \uHHHH \u{H..}, (...), (?:...),
 * |, * + ? {m} {m,} {m,n} and their lazy forms (the same texts), ^ and $ at the ends. Refused by name: look-around,
 * references to groups, named and inline-flag groups, \b, \p. Classes like \d are ASCII only, so that every
 * implementation of the expression accepts the generated text. */
#ifndef GRAMMAR_REGEX_H
#define GRAMMAR_REGEX_H

#include "text/grammar/graph.h"

enum regex_form {
    REGEX_TEXT,   /* the whole text matches; . is no line feed */
    REGEX_JSON,   /* the characters of a JSON string, of which a part matches unless ^ and $ bind it */
    REGEX_COUNTED /* the same, with a GRAPH_TICK in front of every character */
};

#define REGEX_MAX_BYTES 4096

/* The nodes of regex[0, bytes), valid UTF-8, then next. -1 and g->e: malformed (ERR_INPUT) or not supported. */
int regex_graph(struct graph *g, const char *regex, size_t bytes, enum regex_form form, int next);

#endif
