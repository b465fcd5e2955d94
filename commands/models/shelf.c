/* commands/models/shelf.c - see shelf.h. */
#include "commands/models/shelf.h"

#include <stdlib.h>
#include <string.h>

void shelf_open(struct shelf *s)
{
    *s = (struct shelf){0};
    (void)pthread_mutex_init(&s->lock, NULL);
}

void shelf_close(struct shelf *s)
{
    for (int i = 0; i < s->n; i++)
        shelved_close(s->kept[i]);
    s->n = 0;
    (void)pthread_mutex_destroy(&s->lock);
}

void shelved_close(struct shelved *one)
{
    if (one == NULL)
        return;
    texts_close(&one->texts);
    free(one);
}

/* Number i, which leaves its place. */
static struct shelved *lift(struct shelf *s, int i)
{
    struct shelved *one = s->kept[i];
    s->n--;
    memmove(s->kept + i, s->kept + i + 1, (size_t)(s->n - i) * sizeof *s->kept);
    return one;
}

struct shelved *shelf_take(struct shelf *s, const char *name, uint64_t identity)
{
    struct shelved *found = NULL;
    (void)pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n && found == NULL && identity != 0; i++)
        if (s->kept[i]->identity == identity && strcmp(s->kept[i]->texts.name, name) == 0)
            found = lift(s, i);
    (void)pthread_mutex_unlock(&s->lock);
    return found;
}

void shelf_put(struct shelf *s, struct shelved *one)
{
    struct shelved *gone = one;
    (void)pthread_mutex_lock(&s->lock);
    if (one != NULL && one->identity != 0) {
        gone = s->n == SHELF_TEXTS ? lift(s, 0) : NULL;
        s->kept[s->n++] = one;
    }
    (void)pthread_mutex_unlock(&s->lock);
    shelved_close(gone);
}
