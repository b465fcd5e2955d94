/* coordinator/tokenizer/internal.h - what a struct tokenizer is made of; for this folder only. */
#ifndef TOKENIZER_INTERNAL_H
#define TOKENIZER_INTERNAL_H

#include "coordinator/tokenizer/added.h"
#include "coordinator/tokenizer/bpe.h"
#include "coordinator/tokenizer/detokenize.h"
#include "coordinator/tokenizer/normalize.h"
#include "coordinator/tokenizer/pretokenize.h"
#include "coordinator/tokenizer/template.h"
#include "coordinator/tokenizer/tokenizer.h"

struct tokenizer { /* zeroed = closed */
    struct added added;
    struct normalizer normalizer;
    struct pretokenizer pretokenizer;
    struct bpe bpe;
    struct template template;
    struct decoder decoder;
    bool clean_up;
};

struct detokenizer {
    const struct tokenizer *t; /* borrowed, outlived by it */
    bool skip_special;
    struct decoder_run run;
};

#endif
