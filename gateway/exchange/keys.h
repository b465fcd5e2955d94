/* gateway/exchange/keys.h - the API keys of clients. */
#ifndef EXCHANGE_KEYS_H
#define EXCHANGE_KEYS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define KEY_BYTES 256 /* bytes of a key, at most 255 */
#define MAX_KEYS  4096

struct keys {
    char (*key)[KEY_BYTES]; /* [n], the rest of each is zero; NULL: no key is needed */
    size_t n;
};

/* A file of mode 0600 or stricter, one key per line; empty lines and those that begin with # are skipped. */
int keys_read(struct keys *k, const char *path, struct err *e);
void keys_free(struct keys *k);

/* Is the text one of the keys? Constant time. */
bool keys_have(const struct keys *k, const char *text);

#endif
