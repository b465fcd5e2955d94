/* base/utf8.h - characters in UTF-8: reading, writing, finding invalid bytes. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Number of bytes of the character at s (n > 0 bytes left), its code point in *cp; 0 if s does not start a character.
 * On 0, *bad is the length of the maximal subpart that one U+FFFD stands for, or -1 if s merely ends too early. */
int utf8_get(const char *s, size_t n, int32_t *cp, int *bad);
/* The same for text known to be valid. */
int utf8_next(const char *s, int32_t *cp);
/* Writes 1 to 4 bytes, returns how many. */
size_t utf8_put(char *out, int32_t cp);
/* Offset of the first byte that is not valid UTF-8, or n. */
size_t utf8_invalid_at(const char *s, size_t n);
/* Copies the text with U+FFFD in place of every byte that is not part of a character, as many whole characters as fit.
 * Returns the number of bytes written, without a NUL. Three times the text's length is always enough. */
size_t utf8_repair(char *out, size_t room, const char *s, size_t n);

#endif
