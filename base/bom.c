/* base/bom.c - see bom.h. */
#include "base/bom.h"

#include <string.h>

int bom_bytes(const char *text, size_t bytes, const char *what, struct err *e)
{
    static const struct {
        const char *name, *mark;
        size_t bytes;
    } other[] = {{"UTF-32", "\xff\xfe\0\0", 4},
                 {"UTF-32", "\0\0\xfe\xff", 4},
                 {"UTF-16", "\xff\xfe", 2},
                 {"UTF-16", "\xfe\xff", 2}}; /* UTF-32 first: its mark may begin with that of UTF-16 */
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (bytes >= other[i].bytes && memcmp(text, other[i].mark, other[i].bytes) == 0)
            return ERR(e, ERR_INPUT, "%s: a byte order mark of %s, expected UTF-8", what, other[i].name);
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}
