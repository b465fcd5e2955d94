/* text/tokenizer/unicode.h - the character classes exactly as in the reference library. The library (tokenizers 0.23)
 * uses tables of four different Unicode versions; Debian's PCRE2 and utf8proc have still others. unicode_tables.h holds
 * the differences, so that ids never differ for that reason. */
#ifndef TOKENIZER_UNICODE_H
#define TOKENIZER_UNICODE_H

#include "base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unicode_range {
    int32_t first, last;
    char category[3]; /* general category, or "" where the table is about something else */
};

bool unicode_is_space(int32_t cp);       /* White_Space, 25 code points */
bool unicode_is_word(int32_t cp);        /* \w of single_word: Alphabetic, M, Nd, Pc, Join_Control */
bool unicode_is_numeric(int32_t cp);     /* pre-tokenizer Digits: Nd, Nl, No */
bool unicode_is_punctuation(int32_t cp); /* pre-tokenizer Punctuation */
bool unicode_is_inert(int32_t cp);       /* a mark that the library's NFC does not know: never moved or composed */

/* Ranges whose general category differs from Unicode 14 (PCRE2's), in ascending order. */
const struct unicode_range *unicode_category_changes(size_t *n);
/* All ranges of a script as \p{...} of the library sees it; NULL if the script is not supported. */
const struct unicode_range *unicode_script(const char *name, size_t *n);

/* GPT-2's printable alphabet: the code point (< 0x180) that stands for a byte, and back (-1: stands for none). */
int32_t unicode_byte_to_char(int byte);
int unicode_char_to_byte(int32_t cp);

#endif
