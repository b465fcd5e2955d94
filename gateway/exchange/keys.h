/* gateway/exchange/keys.h - the API keys of clients, and the names of those who hold them. */
#ifndef EXCHANGE_KEYS_H
#define EXCHANGE_KEYS_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define KEY_BYTES      256 /* bytes of a key, at most 255 */
#define KEY_NAME_BYTES 64
#define MAX_KEYS       4096

struct key {
    char text[KEY_BYTES];      /* the rest is zero */
    char name[KEY_NAME_BYTES]; /* "": it has none */
    uint64_t number;           /* given by key_file.h, the same for as long as the file has the key */
};

struct keys {
    struct key *one; /* [n]; NULL: no key is needed */
    size_t n;
};

/* A file of mode 0600 or stricter, one key per line, which may be followed by a blank and a name; empty lines and those
 * that begin with # are skipped. After a failure k is empty. */
int keys_read(struct keys *k, const char *path, struct err *e);
void keys_free(struct keys *k);

/* The key with this text; NULL: there is none. Constant time. */
const struct key *keys_find(const struct keys *k, const char *text);

#endif
