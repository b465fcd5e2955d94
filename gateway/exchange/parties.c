/* gateway/exchange/parties.c - see parties.h. */
#include "gateway/exchange/parties.h"

#include <arpa/inet.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(KEY_NAME_BYTES <= POOL_PARTY_BYTES, "the name of a key is the name of a party");

struct party {
    char name[POOL_PARTY_BYTES]; /* must be first: parties are found by it */
    int n;
};

/* The names of keys have no blanks, so no key is named like this. */
static void name_key(const struct key *key, char *name)
{
    if (key->name[0] != '\0')
        (void)snprintf(name, POOL_PARTY_BYTES, "%s", key->name);
    else
        (void)snprintf(name, POOL_PARTY_BYTES, "key %llu", (unsigned long long)key->number);
}

void party_name(const struct key *key, const char *peer, char *name)
{
    struct in6_addr address;
    char text[INET6_ADDRSTRLEN];
    (void)snprintf(text, sizeof text, "%.*s", (int)strcspn(peer, "%"), peer); /* without the interface */
    name[0] = '\0';
    if (key != NULL) {
        name_key(key, name);
    } else if (inet_pton(AF_INET6, text, &address) == 1) {
        memset(&address.s6_addr[8], 0, 8);
        (void)snprintf(name, POOL_PARTY_BYTES, "%s/64", inet_ntop(AF_INET6, &address, text, sizeof text));
    } else if (strcmp(peer, "unix") != 0) {
        (void)snprintf(name, POOL_PARTY_BYTES, "%s", peer);
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct party *)a)->name, ((const struct party *)b)->name);
}

static struct party *find_party(const struct parties *p, const char *name)
{
    struct party key = {.n = 0};
    (void)snprintf(key.name, sizeof key.name, "%s", name);
    void *found = tfind(&key, &p->tree, compare);
    return found != NULL ? *(struct party **)found : NULL;
}

static struct party *add_party(struct parties *p, const char *name)
{
    struct party *one = calloc(1, sizeof *one);
    if (one == NULL)
        return NULL;
    (void)snprintf(one->name, sizeof one->name, "%s", name);
    if (tsearch(one, &p->tree, compare) != NULL)
        return one;
    free(one);
    return NULL;
}

bool parties_full(const struct parties *p, const char *name)
{
    const struct party *one = p->most > 0 ? find_party(p, name) : NULL;
    return one != NULL && one->n >= p->most;
}

bool parties_enter(struct parties *p, const char *name)
{
    struct party *one = find_party(p, name);
    if (one == NULL)
        one = add_party(p, name);
    if (one != NULL)
        one->n++;
    return one != NULL;
}

void parties_leave(struct parties *p, const char *name)
{
    struct party *one = find_party(p, name);
    if (one == NULL || --one->n > 0)
        return;
    (void)tdelete(one, &p->tree, compare);
    free(one);
}
