/* base/token_list.h - token ids in a row. */
#ifndef BASE_TOKEN_LIST_H
#define BASE_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

struct token_list { /* zeroed = empty */
    int32_t *id;    /* [n] */
    size_t n, capacity;
};

void token_list_free(struct token_list *list);

#endif
