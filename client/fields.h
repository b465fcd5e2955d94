/* client/fields.h - options of lockstep-client that are fields of a request: each puts its value into the record's
 * `request` under the option's own name, with _ for -. The server alone knows the ranges. For rows of the option table
 * (base/opt_table.h) whose record begins with a struct call_options. Each returns -1 and *e if the text is not a valid
 * value. */
#ifndef CLIENT_FIELDS_H
#define CLIENT_FIELDS_H

#include "base/err.h"
#include "base/opt_table.h"

#define FIELD(name, argument, call, help)                        \
    {                                                            \
        name, argument, OPT_CALL, 0, 0, 0, 0, NULL, help, (call) \
    }

int field_integer(void *record, const struct opt *o, const char *text, struct err *e);
int field_number(void *record, const struct opt *o, const char *text, struct err *e);
int field_text(void *record, const struct opt *o, const char *text, struct err *e);
int field_true(void *record, const struct opt *o, const char *text, struct err *e);
int field_boolean(void *record, const struct opt *o, const char *text, struct err *e);
/* true, false, or a word. */
int field_choice(void *record, const struct opt *o, const char *text, struct err *e);
/* One more text in a list. */
int field_add_text(void *record, const struct opt *o, const char *text, struct err *e);
/* "1,2,3" -> [1, 2, 3], as the prompt. */
int field_ids(void *record, const struct opt *o, const char *text, struct err *e);
int field_prompt_ids(void *record, const struct opt *o, const char *text, struct err *e);
/* "ID:BIAS,ID:BIAS" -> {"ID": BIAS} */
int field_bias(void *record, const struct opt *o, const char *text, struct err *e);
/* "name=JSON": any field of the protocol. */
int field_any(void *record, const struct opt *o, const char *text, struct err *e);

#endif
