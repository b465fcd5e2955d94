/* coordinator/net/channel.h - one connection of the transport, from accept to its end, and the transport's lists that
 * it is in; for transport.c only. */
#ifndef NET_CHANNEL_H
#define NET_CHANNEL_H

#include "coordinator/net/parcels.h"
#include "coordinator/net/transport.h"

struct channel {
    int fd; /* -1: it has ended */
    int n_lists;
    uint64_t number;
    struct zmtp zmtp;
    size_t pending; /* its part of transport.pending */
    double born, heard;
    struct parcels out;
    bool ready, dirty, awaits_room;
    bool was_open, was_probe; /* when it ended: after its handshake; by the client, which had sent nothing */
    struct channel *next_ready, *next_dirty, *next_gone;
};

/* Takes over a descriptor that was accepted. On failure it is closed. */
void channel_open(struct transport *t, int fd);

/* Ends the connection: *c goes to transport.gone, for its end to be reported, and is freed when it leaves the last
 * list. Does nothing if it has ended. */
void channel_end(struct transport *t, struct channel *c);

/* NULL: it has ended. */
struct channel *channel_find(const struct transport *t, const struct channel_name *channel);

/* Appends it to the channels with complete messages, or adds it to those with bytes to write, unless it is in the
 * list. */
void channel_add_ready(struct transport *t, struct channel *c);
void channel_add_dirty(struct transport *t, struct channel *c);
/* To be called when it was removed from a list; frees an ended channel that is in no list. */
void channel_leave_list(struct channel *c);

/* Makes the poll report room to write, or not any more. */
int channel_watch_room(const struct transport *t, struct channel *c, bool for_room);

/* Queues greeting, handshake and heartbeat answers among the parcels in order of creation, since encrypted frames are
 * numbered. -1: out of memory. */
int channel_take_protocol_bytes(struct transport *t, struct channel *c);

#endif
