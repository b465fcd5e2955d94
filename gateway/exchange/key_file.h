/* gateway/exchange/key_file.h - the file of API keys, which is read again when it has changed: nobody has to wait for
 * the gateway's next start to be let in or kept out. */
#ifndef EXCHANGE_KEY_FILE_H
#define EXCHANGE_KEY_FILE_H

#include "gateway/exchange/keys.h"
#include "gateway/loop/loop.h"

#include <sys/stat.h>

struct key_file {
    struct keys keys;
    uint64_t last_number; /* of a key */
    const char *path;     /* borrowed */
    struct stat seen;     /* of the file that was read last, well or not */
    struct loop *loop;
    struct due_list looks;
    struct due look;
};

/* path: NULL: no key is needed. A changed file that is not valid leaves the keys as they are, with a warning. */
int key_file_open(struct key_file *f, const char *path, struct loop *l, struct err *e);
void key_file_close(struct key_file *f);

#endif
