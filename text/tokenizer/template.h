/* text/tokenizer/template.h - the "post_processor" part: ids put around a text (bos, eos, cls, sep). */
#ifndef TOKENIZER_TEMPLATE_H
#define TOKENIZER_TEMPLATE_H

#include "text/tokenizer/source.h"

#define TEMPLATE_TEXT (-1) /* stands for the ids of the text */

struct template
{
    int32_t *item; /* [n] ids and TEMPLATE_TEXT; NULL: the text alone */
    size_t n;
};

/* n_ids: ids must be below it. */
int template_load(struct template *t, const struct source *l, const json_t *part, int32_t n_ids);
/* bos + text + eos, each left out if negative. */
int template_set(struct template *t, int32_t bos, int32_t eos, struct err *e);
void template_close(struct template *t);

#endif
