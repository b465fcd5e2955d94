/* text/grammar/schema.h - a JSON schema as nodes of a graph: the JSON texts that it allows, or some of them.
 *
 * Supported: type, properties, required, additionalProperties, patternProperties, minProperties, maxProperties, items,
 * minItems, maxItems, enum, const, anyOf, oneOf (as anyOf), allOf, $ref within the document, minimum, maximum,
 * exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern, format. Other keywords that restrict values are
 * refused by name; those that describe them (title, description, default, ...) are ignored.
 *
 * Generated texts are a subset of those that the schema allows: members come in the order of `properties`, then others,
 * which must match patternProperties if there are any, and which an object with `properties` has only if
 * additionalProperties is given; a schema without `type` whose keywords belong to one type means that type. */
#ifndef GRAMMAR_SCHEMA_H
#define GRAMMAR_SCHEMA_H

#include "text/grammar/graph.h"

#include <jansson.h>

/* A value that the schema allows, then next. -1 and g->e, which names the place in the schema: malformed (ERR_INPUT),
 * or not supported. */
int schema_graph(struct graph *g, const json_t *schema, int next);

#endif
