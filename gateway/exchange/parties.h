/* gateway/exchange/parties.h - on whose behalf the gateway asks its backends: the holder of an API key, or without keys
 * an address; and how many requests of each are being answered. */
#ifndef EXCHANGE_PARTIES_H
#define EXCHANGE_PARTIES_H

#include "gateway/backend/pool.h"
#include "gateway/exchange/keys.h"

struct parties {
    void *tree; /* of tsearch(3): those with requests */
    int most;   /* requests of each at once; 0: any number */
};

/* Writes the party [POOL_PARTY_BYTES] of a client with this key (NULL: none), at this address: the key's name, or its
 * number, never the key itself; of an IPv6 address its network, all of whose addresses one host may have; "": nobody
 * knows who comes over a Unix socket. */
void party_name(const struct key *key, const char *peer, char *name);

/* Has this party as many requests as it may have? */
bool parties_full(const struct parties *p, const char *name);

/* One more request of this party, which is not "" and not full; false: out of memory. */
bool parties_enter(struct parties *p, const char *name);

/* It is over. The last one's end frees all memory of the party. */
void parties_leave(struct parties *p, const char *name);

#endif
