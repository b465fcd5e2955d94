/* commands/models/warmups.h - model_warmup of Triton's config.pbtxt. */
#ifndef MODELS_WARMUPS_H
#define MODELS_WARMUPS_H

#include "commands/models/pbtxt.h"
#include "commands/models/wishes.h"

/* The value of a field model_warmup, a message or a list of them, added to w->warmup. Only the shape of an input
 * counts: that of an integer input gives the number of tokens of a prompt. */
int warmups_read(struct wishes *w, struct pbtxt *p, struct err *e);

#endif
