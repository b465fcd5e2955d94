/* text/grammar/form.c - see form.h. */
#include "text/grammar/form.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

static int make_grammar(struct form *f, const json_t *value, struct err *e)
{
    switch (f->kind) {
    case FORM_SCHEMA:
        return grammar_of_schema(&f->grammar, value, e);
    case FORM_CHOICE:
        return grammar_of_choice(&f->grammar, value, e);
    case FORM_OBJECT:
        return grammar_of_object(&f->grammar, e);
    case FORM_CALLS:
        return grammar_of_calls(&f->grammar, value, e);
    default:
        break;
    }
    if (!json_is_string(value))
        return ERR(e, ERR_INPUT, "regular expression: found %s, expected a string", json_type_name(value));
    return grammar_of_regex(&f->grammar, json_string_value(value), json_string_length(value), e);
}

int form_open(struct form **f, enum form_kind kind, const json_t *value, struct err *e)
{
    *f = err_calloc(e, 1, sizeof **f, "form of an answer");
    if (*f == NULL)
        return -1;
    (*f)->kind = kind;
    (*f)->source = json_text(kind == FORM_OBJECT ? json_null() : value, JSON_ENCODE_ANY | JSON_COMPACT);
    (*f)->bytes = (*f)->source != NULL ? strlen((*f)->source) : 0;
    if ((*f)->source == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: form of an answer");
    else if ((*f)->bytes > FORM_MAX_BYTES)
        ERR(e, ERR_INPUT, "%zu bytes, expected at most %zu", (*f)->bytes, FORM_MAX_BYTES);
    if (e->code == ERR_NONE && make_grammar(*f, value, e) == 0)
        return 0;
    form_close(*f);
    *f = NULL;
    return -1;
}

int form_open_text(struct form **f, enum form_kind kind, const char *source, size_t bytes, struct err *e)
{
    json_error_t where;
    json_t *value = json_loadb(source, bytes, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &where);
    *f = NULL;
    if (value == NULL)
        return ERR(e, ERR_INPUT, "the form of an answer is not JSON: %s", where.text);
    int rc = form_open(f, kind, value, e);
    json_decref(value);
    return rc;
}

void form_close(struct form *f)
{
    if (f == NULL)
        return;
    grammar_close(&f->grammar);
    free(f->source);
    free(f);
}
