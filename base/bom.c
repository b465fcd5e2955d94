/* base/bom.c - see bom.h. */
#include "base/bom.h"

#include <string.h>

/* Formats whose files users give by mistake, by their first bytes. */
static int refuse_packed(const char *text, size_t bytes, const char *what, struct err *e)
{
    static const struct {
        const char *name, *begin, *remedy;
    } packed[] = {
        {"gzip", "\x1f\x8b", "unpack it first (gunzip)"}, {"Zstandard", "\x28\xb5\x2f\xfd", "unpack it first (unzstd)"},
        {"XZ", "\xfd\x37zXZ", "unpack it first (unxz)"},  {"bzip2", "BZh91AY&SY", "unpack it first (bunzip2)"},
        {"ZIP", "PK\x03\x04", "unpack it first (unzip)"}, {"Parquet", "PAR1\x15", "convert it first"}};
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        size_t n = strlen(packed[i].begin);
        if (bytes >= n && memcmp(text, packed[i].begin, n) == 0)
            return ERR(e, ERR_INPUT, "%s: a file of the format %s, expected text: %s", what, packed[i].name,
                       packed[i].remedy);
    }
    return 0;
}

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
    if (refuse_packed(text, bytes, what, e) != 0)
        return -1;
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}
