/* rank/observe/observer.c - see observer.h. */
#include "rank/observe/observer.h"

#include <stddef.h>

void observers_add(struct observers *list, struct observer *o)
{
    struct observer **at = &list->first;
    while (*at != NULL)
        at = &(*at)->next;
    o->next = NULL;
    *at = o;
}

void observers_remove(struct observers *list, const struct observer *o)
{
    for (struct observer **at = &list->first; *at != NULL; at = &(*at)->next)
        if (*at == o) {
            *at = o->next;
            return;
        }
}
