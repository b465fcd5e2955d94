/* coordinator/batch/ids.c - see ids.h. */
#include "coordinator/batch/ids.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 1024

int ids_open(struct ids *t, struct err *e)
{
    memset(t, 0, sizeof *t);
    if (sodium_init() < 0)
        return ERR(e, ERR_INTERNAL, "libsodium cannot be initialised");
    randombytes_buf(t->secret, sizeof t->secret);
    t->entry = err_calloc(e, FIRST_CAPACITY, sizeof *t->entry, "ids");
    t->capacity = t->entry != NULL ? FIRST_CAPACITY : 0;
    return t->entry != NULL ? 0 : -1;
}

void ids_close(struct ids *t)
{
    free(t->entry);
    memset(t, 0, sizeof *t);
}

/* The slot of the key, or the free slot where it belongs. */
static struct id_entry *find_place(struct id_entry *entry, size_t capacity, const uint64_t key[2])
{
    size_t i = key[0] & (capacity - 1);
    while ((entry[i].key[0] != 0 || entry[i].key[1] != 0) && (entry[i].key[0] != key[0] || entry[i].key[1] != key[1]))
        i = (i + 1) & (capacity - 1);
    return &entry[i];
}

static int grow_table(struct ids *t, struct err *e)
{
    size_t capacity = 2 * t->capacity;
    struct id_entry *grown = err_calloc(e, capacity, sizeof *grown, "ids");
    if (grown == NULL)
        return -1;
    for (size_t i = 0; i < t->capacity; i++)
        if (t->entry[i].key[0] != 0 || t->entry[i].key[1] != 0)
            *find_place(grown, capacity, t->entry[i].key) = t->entry[i];
    free(t->entry);
    t->entry = grown;
    t->capacity = capacity;
    return 0;
}

struct id_entry *ids_get(struct ids *t, const char *id, struct err *e)
{
    uint64_t key[2];
    if (4 * t->n >= 3 * t->capacity && grow_table(t, e) != 0)
        return NULL;
    (void)crypto_shorthash_siphashx24((unsigned char *)key, (const unsigned char *)id, strlen(id), t->secret);
    key[1] |= 1; /* {0, 0} is free */
    struct id_entry *entry = find_place(t->entry, t->capacity, key);
    if (entry->key[1] == 0) {
        *entry = (struct id_entry){.key = {key[0], key[1]}, .offset = -1};
        t->n++;
    }
    return entry;
}

void ids_forget_results(struct ids *t)
{
    for (size_t i = 0; i < t->capacity; i++)
        t->entry[i].offset = -1;
}
