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

static bool is_of(const struct shelved *one, const char *name, uint64_t identity)
{
    return one->identity == identity && strcmp(one->texts.name, name) == 0;
}

static struct shelved *use(struct shelf *s, struct shelved *one)
{
    one->next = s->used;
    s->used = one;
    return one;
}

struct shelved *shelf_take(struct shelf *s, const char *name, uint64_t identity)
{
    struct shelved *found = NULL;
    if (identity == 0)
        return NULL;
    (void)pthread_mutex_lock(&s->lock);
    for (struct shelved *one = s->used; one != NULL && found == NULL; one = one->next)
        if (is_of(one, name, identity))
            found = one;
    for (int i = 0; i < s->n && found == NULL; i++)
        if (is_of(s->kept[i], name, identity))
            found = use(s, lift(s, i));
    if (found != NULL)
        found->n_users++;
    (void)pthread_mutex_unlock(&s->lock);
    return found;
}

void shelf_add(struct shelf *s, struct shelved *one)
{
    (void)pthread_mutex_lock(&s->lock);
    use(s, one)->n_users++;
    (void)pthread_mutex_unlock(&s->lock);
}

/* The item is no longer in use. Returns the one that the shelf has no room for. */
static struct shelved *keep_shelved(struct shelf *s, struct shelved *one)
{
    struct shelved **at = &s->used, *gone = one;
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    if (one->identity != 0) {
        gone = s->n == SHELF_TEXTS ? lift(s, 0) : NULL;
        s->kept[s->n++] = one;
    }
    return gone;
}

void shelf_put(struct shelf *s, struct shelved *one)
{
    struct shelved *gone = NULL;
    (void)pthread_mutex_lock(&s->lock);
    if (one != NULL && --one->n_users == 0)
        gone = keep_shelved(s, one);
    (void)pthread_mutex_unlock(&s->lock);
    shelved_close(gone);
}
