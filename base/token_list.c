/* base/token_list.c - see token_list.h. */
#include "base/token_list.h"

#include <stdlib.h>

void token_list_free(struct token_list *list)
{
    free(list->id);
    *list = (struct token_list){0};
}
