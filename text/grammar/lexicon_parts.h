/* text/grammar/lexicon_parts.h - declarations shared by the files of the lexicon. */
#ifndef GRAMMAR_LEXICON_PARTS_H
#define GRAMMAR_LEXICON_PARTS_H

#include "text/grammar/lexicon.h"

static inline void lexicon_set_bit(uint32_t *mask, int32_t token)
{
    mask[token / 32] |= 1u << token % 32;
}

static inline void lexicon_clear_bit(uint32_t *mask, int32_t token)
{
    mask[token / 32] &= ~(1u << token % 32);
}

/* The bytes of a token. */
static inline size_t lexicon_length(const struct lexicon *l, int32_t token)
{
    return l->first[token + 1] - l->first[token];
}

#endif
