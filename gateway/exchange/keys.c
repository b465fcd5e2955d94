/* gateway/exchange/keys.c - see keys.h. */
#include "gateway/exchange/keys.h"
#include "base/json.h"

#include <ctype.h>
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

/* Is it printable, and the same in a JSON text and as a label of a metric? */
static bool is_good_name(const char *name)
{
    size_t n = 0;
    for (; name[n] != '\0'; n++)
        if (!isgraph((unsigned char)name[n]) || name[n] == '"' || name[n] == '\\')
            return false;
    return n < KEY_NAME_BYTES;
}

/* text: "KEY" or "KEY NAME" */
static int add_key(struct keys *k, const char *path, size_t line, const char *text, struct err *e)
{
    size_t n = strcspn(text, " \t");
    const char *name = text + n + strspn(text + n, " \t");
    if (text[0] == '\0' || text[0] == '#')
        return 0;
    if (n == 0 || n >= KEY_BYTES || k->n == MAX_KEYS || !is_good_name(name))
        return ERR(e, ERR_INPUT,
                   "--api-keys %.200s: line %zu: expected a key of 1 to %d characters, after a blank a name of at most "
                   "%d without blanks and quotes, at most %d keys",
                   path, line, KEY_BYTES - 1, KEY_NAME_BYTES - 1, MAX_KEYS);
    memcpy(k->one[k->n].text, text, n);
    memcpy(k->one[k->n++].name, name, strlen(name));
    return 0;
}

int keys_read(struct keys *k, const char *path, struct err *e)
{
    size_t bytes = 0, line = 0;
    char *text = check_mode(path, e) == 0 ? file_read(path, FILE_BYTES, &bytes, e) : NULL, *rest = text;
    *k = (struct keys){.one = text != NULL ? err_calloc(e, MAX_KEYS, sizeof *k->one, "API keys") : NULL};
    while (k->one != NULL && rest != NULL && e->code == ERR_NONE) {
        char *one = strsep(&rest, "\n");
        one[strcspn(one, "\r")] = '\0';
        (void)add_key(k, path, ++line, one, e);
    }
    if (text != NULL)
        memset(text, 0, bytes);
    free(text);
    if (e->code == ERR_NONE && k->n == 0)
        (void)ERR(e, ERR_INPUT, "--api-keys %.200s: found no key, expected at least one", path);
    if (e->code == ERR_NONE)
        return 0;
    keys_free(k);
    return -1;
}

void keys_free(struct keys *k)
{
    if (k->one != NULL)
        memset(k->one, 0, MAX_KEYS * sizeof *k->one);
    free(k->one);
    *k = (struct keys){0};
}

const struct key *keys_find(const struct keys *k, const char *text)
{
    char asked[KEY_BYTES] = {0};
    size_t n = strlen(text), found = k->n;
    if (n == 0 || n >= KEY_BYTES)
        return NULL;
    memcpy(asked, text, n + 1);
    for (size_t i = 0; i < k->n; i++) {
        unsigned char differ = 0;
        for (size_t b = 0; b < KEY_BYTES; b++)
            differ |= (unsigned char)(asked[b] ^ k->one[i].text[b]);
        found = differ == 0 ? i : found;
    }
    return found < k->n ? &k->one[found] : NULL;
}
