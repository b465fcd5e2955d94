/* text/template/json.h - values from JSON. */
#ifndef TEXT_TEMPLATE_JSON_H
#define TEXT_TEMPLATE_JSON_H

#include "text/template/value.h"

#include <jansson.h>

/* Strings are borrowed. foreign: they came with the request. */
struct value value_from_json(struct renderer *m, const json_t *json, bool foreign);

#endif
