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
    bool ready, dirty, awaits_room, was_open;
    struct channel *next_ready, *next_dirty, *next_gone;
};

/* Takes over a descriptor that was accepted. On failure it is closed. */
void channel_open(struct transport *t, int fd);

/* The connection ends: *c is to be told of (transport.gone), and is freed when the last list leaves it. Nothing if it
 * has ended. */
void channel_end(struct transport *t, struct channel *c);

/* NULL: it has ended. */
struct channel *channel_find(const struct transport *t, const struct channel_name *channel);

/* Behind the others with whole messages; among those with bytes to write. Nothing if it is in the list. */
void channel_add_ready(struct transport *t, struct channel *c);
void channel_add_dirty(struct transport *t, struct channel *c);
/* It was taken out of one list; the last one frees a channel that has ended. */
void channel_leave_list(struct channel *c);

/* Have the poll tell of room to write, too, or no more. */
int channel_watch_room(const struct transport *t, struct channel *c, bool for_room);

/* Greeting, handshake, answers to heartbeats go among the parcels: in the order in which they were made, since sealed
 * frames are numbered. -1: out of memory. */
int channel_take_protocol_bytes(struct transport *t, struct channel *c);

#endif
