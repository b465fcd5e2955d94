/* text/tokenizer/internal.h - the parts of struct tokenizer; for this folder only. */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "text/tokenizer/added.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/detokenize.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/template.h"
#include "text/tokenizer/tokenizer.h"

struct tokenizer { /* zeroed = closed */
    struct added added;
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct bpe bpe;
    struct template template;
    struct decoder decoder;
};

struct detokenizer {
    const struct tokenizer *t; /* borrowed, outlived by it */
    bool skip_special;
    const char *const *kept; /* special tokens that are not skipped all the same, NULL at the end; NULL: none */
    struct decoder_run run;
};

#endif
