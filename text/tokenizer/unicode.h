/* text/tokenizer/unicode.h - UTF-8, and the character classes exactly as the reference library has them.
 *
 * The library (tokenizers 0.23) carries tables of four different Unicode versions; Debian's PCRE2 and utf8proc have yet
 * others. unicode_tables.h holds the differences, so that no text ends in other ids for that reason. */
#ifndef TOKENIZER_UNICODE_H
#define TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unicode_range {
    int32_t first, last;
    char category[3]; /* general category, or "" where the table is about something else */
};

/* Number of bytes of the character at s (n > 0 bytes left), its code point in *cp; 0 if s does not start a character.
 * On 0, *bad is the length of the maximal subpart that one U+FFFD stands for, or -1 if s merely ends too early. */
int unicode_get(const char *s, size_t n, int32_t *cp, int *bad);
/* The same for text known to be valid. */
int unicode_next(const char *s, int32_t *cp);
/* Writes 1 to 4 bytes, returns how many. */
size_t unicode_put(char *out, int32_t cp);
/* Offset of the first byte that is not valid UTF-8, or n. */
size_t unicode_invalid_at(const char *s, size_t n);
/* The text with U+FFFD for every byte that is not part of a character, as far as whole characters of it fit into so much room.
 * Returns bytes written, no NUL behind them. Three times the text's bytes are always enough. */
size_t unicode_repair(char *out, size_t room, const char *s, size_t n);

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
