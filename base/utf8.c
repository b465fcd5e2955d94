/* base/utf8.c - see utf8.h. */
#include "base/utf8.h"

#include <string.h>

int utf8_get(const char *s, size_t n, int32_t *cp, int *bad)
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

int utf8_next(const char *s, int32_t *cp)
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

size_t utf8_put(char *out, int32_t cp)
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

size_t utf8_invalid_at(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        int32_t cp;
        int bad, length = utf8_get(s + i, n - i, &cp, &bad);
        if (length == 0)
            return i;
        i += (size_t)length;
    }
    return n;
}

size_t utf8_repair(char *out, size_t room, const char *s, size_t n)
{
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        char character[4];
        int32_t cp;
        int bad, length = utf8_get(s + i, n - i, &cp, &bad);
        size_t bytes = utf8_put(character, length > 0 ? cp : 0xfffd);
        if (bytes > room - used)
            break;
        memcpy(out + used, character, bytes);
        used += bytes;
        i += length > 0 ? (size_t)length : 1;
    }
    return used;
}
