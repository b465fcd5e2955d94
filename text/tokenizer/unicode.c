/* text/tokenizer/unicode.c - see unicode.h. */
#include "text/tokenizer/unicode.h"

#include "text/tokenizer/unicode_tables.h"

#include <string.h>
#include <utf8proc.h>

#define N_RANGES(table) (sizeof(table) / sizeof((table)[0]))

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
