/* text/tokenizer/unicode.c - see unicode.h. */
#include "text/tokenizer/unicode.h"

#include "text/tokenizer/unicode_tables.h"

#include <string.h>
#include <utf8proc.h>

#define N_RANGES(table) (sizeof(table) / sizeof((table)[0]))

int unicode_get(const char *s, size_t n, int32_t *cp, int *bad)
{
    unsigned char c = (unsigned char)s[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    *bad = 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    int length = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    /* The second byte's range excludes overlong forms, surrogates and what lies beyond U+10FFFF. */
    unsigned low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    int32_t value = c & (0x7f >> length);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= n) {
            *bad = -1;
            return 0;
        }
        unsigned char d = (unsigned char)s[i];
        if (d < low || d > high) {
            *bad = i;
            return 0;
        }
        low = 0x80;
        high = 0xbf;
        value = value << 6 | (d & 0x3f);
    }
    *cp = value;
    return length;
}

int unicode_next(const char *s, int32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *cp = u[0];
        return 1;
    }
    if (u[0] < 0xe0) {
        *cp = (u[0] & 0x1f) << 6 | (u[1] & 0x3f);
        return 2;
    }
    if (u[0] < 0xf0) {
        *cp = (u[0] & 0xf) << 12 | (u[1] & 0x3f) << 6 | (u[2] & 0x3f);
        return 3;
    }
    *cp = (u[0] & 7) << 18 | (u[1] & 0x3f) << 12 | (u[2] & 0x3f) << 6 | (u[3] & 0x3f);
    return 4;
}

size_t unicode_put(char *out, int32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

size_t unicode_invalid_at(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        int32_t cp;
        int bad, length = unicode_get(s + i, n - i, &cp, &bad);
        if (length == 0)
            return i;
        i += (size_t)length;
    }
    return n;
}

size_t unicode_repair(char *out, size_t room, const char *s, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        char character[4];
        int32_t cp;
        int bad, length = unicode_get(s + i, n - i, &cp, &bad);
        size_t bytes = unicode_put(character, length > 0 ? cp : 0xfffd);
        if (bytes > room - used)
            break;
        memcpy(out + used, character, bytes);
        used += bytes;
        i += length > 0 ? (size_t)length : 1;
    }
    return used;
}

/* The range of a sorted table that holds cp, or NULL. */
static const struct unicode_range *find_range(const struct unicode_range *table, size_t n, int32_t cp)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (cp > table[middle].last)
            low = middle + 1;
        else if (cp < table[middle].first)
            high = middle;
        else
            return &table[middle];
    }
    return NULL;
}

/* The general category as the library's regex engine has it: two letters, NUL-terminated. */
static const char *category(int32_t cp)
{
    const struct unicode_range *changed = find_range(category_change, N_RANGES(category_change), cp);
    return changed != NULL ? changed->category : utf8proc_category_string(cp);
}

bool unicode_is_space(int32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == ' ' || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
           cp == 0x3000;
}

bool unicode_is_word(int32_t cp)
{
    const char *c = category(cp);
    return c[0] == 'L' || c[0] == 'M' || strcmp(c, "Nd") == 0 || strcmp(c, "Pc") == 0 ||
           find_range(word_extra, N_RANGES(word_extra), cp) != NULL;
}

bool unicode_is_numeric(int32_t cp)
{
    return category(cp)[0] == 'N' || find_range(numeric_extra, N_RANGES(numeric_extra), cp) != NULL;
}

bool unicode_is_punctuation(int32_t cp)
{
    return find_range(punctuation, N_RANGES(punctuation), cp) != NULL;
}

bool unicode_is_inert(int32_t cp)
{
    return cp > 0x7f0 && find_range(nfc_inert, N_RANGES(nfc_inert), cp) != NULL;
}

const struct unicode_range *unicode_category_changes(size_t *n)
{
    *n = N_RANGES(category_change);
    return category_change;
}

const struct unicode_range *unicode_script(const char *name, size_t *n)
{
    static const struct {
        const char *name;
        const struct unicode_range *table;
        size_t n;
    } script[] = {{"Han", script_han, N_RANGES(script_han)},
                  {"Hangul", script_hangul, N_RANGES(script_hangul)},
                  {"Hiragana", script_hiragana, N_RANGES(script_hiragana)},
                  {"Katakana", script_katakana, N_RANGES(script_katakana)}};
    for (size_t i = 0; i < N_RANGES(script); i++) {
        if (strcmp(script[i].name, name) == 0) {
            *n = script[i].n;
            return script[i].table;
        }
    }
    return NULL;
}

int32_t unicode_byte_to_char(int byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)
        return byte;
    /* The other 68 in ascending order: 0..32, 127..160, 173. */
    return 0x100 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

int unicode_char_to_byte(int32_t cp)
{
    if (cp >= 0x100 && cp < 0x100 + 68)
        return cp < 0x121 ? cp - 0x100 : cp < 0x143 ? cp - 0x121 + 127 : 173;
    return cp >= 0 && cp < 0x100 && unicode_byte_to_char(cp) == cp ? cp : -1;
}
