/* gateway/exchange/keys.c - see keys.h. */
#include "gateway/exchange/keys.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES ((size_t)1 << 20)

static int check_mode(const char *path, struct err *e)
{
    struct stat s;
    if (stat(path, &s) == 0 && (s.st_mode & 077) != 0)
        return ERR(e, ERR_USAGE, "--api-keys %.200s: found mode %04o, expected 0600: it contains secrets", path,
                   (unsigned)s.st_mode & 07777);
    return 0;
}

static int add_key(struct keys *k, const char *path, size_t line, const char *text, struct err *e)
{
    size_t n = strlen(text);
    if (n == 0 || text[0] == '#')
        return 0;
    if (n >= KEY_BYTES || k->n == MAX_KEYS || strpbrk(text, " \t") != NULL)
        return ERR(e, ERR_INPUT,
                   "--api-keys %.200s: line %zu: expected a key of 1 to %d characters without blanks, at most %d keys",
                   path, line, KEY_BYTES - 1, MAX_KEYS);
    memcpy(k->key[k->n++], text, n);
    return 0;
}

int keys_read(struct keys *k, const char *path, struct err *e)
{
    size_t bytes = 0, line = 0;
    char *text = check_mode(path, e) == 0 ? file_read(path, FILE_BYTES, &bytes, e) : NULL, *rest = text;
    k->key = text != NULL ? err_calloc(e, MAX_KEYS, KEY_BYTES, "API keys") : NULL;
    while (k->key != NULL && rest != NULL && e->code == ERR_NONE) {
        char *one = strsep(&rest, "\n");
        one[strcspn(one, "\r")] = '\0';
        (void)add_key(k, path, ++line, one, e);
    }
    if (text != NULL)
        memset(text, 0, bytes);
    free(text);
    if (e->code == ERR_NONE && k->n == 0)
        return ERR(e, ERR_INPUT, "--api-keys %.200s: found no key, expected at least one", path);
    return e->code == ERR_NONE ? 0 : -1;
}

void keys_free(struct keys *k)
{
    if (k->key != NULL)
        memset(k->key, 0, MAX_KEYS * KEY_BYTES);
    free(k->key);
    *k = (struct keys){0};
}

bool keys_have(const struct keys *k, const char *text)
{
    char asked[KEY_BYTES] = {0};
    size_t n = strlen(text);
    unsigned found = 0;
    if (n == 0 || n >= KEY_BYTES)
        return false;
    memcpy(asked, text, n + 1);
    for (size_t i = 0; i < k->n; i++) {
        unsigned char differ = 0;
        for (size_t b = 0; b < KEY_BYTES; b++)
            differ |= (unsigned char)(asked[b] ^ k->key[i][b]);
        found |= differ == 0;
    }
    return found != 0;
}
