/* text/grammar/schema.h - a JSON schema as nodes of a graph: the JSON texts that it allows, or some of them.
 *
 * Read: type, properties, required, additionalProperties, patternProperties, minProperties, maxProperties, items,
 * minItems, maxItems, enum, const, anyOf, oneOf (as anyOf), allOf, $ref within the document, minimum, maximum,
 * exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern, format. Other keywords that restrict values are
 * refused by name; those that describe them (title, description, default, ...) are ignored.
 *
 * What is written is narrower than what a schema allows, never wider: members come in the order of `properties`,
 * others behind them, and only patternProperties' where there are such; a schema with members for one type and no
 * `type` means that type. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "text/grammar/graph.h"

#include <jansson.h>

/* A value that the schema allows, then next. -1 and g->e, which names the place in the schema: malformed (ERR_INPUT),
 * or not supported. */
int schema_graph(struct graph *g, const json_t *schema, int next);

#endif
