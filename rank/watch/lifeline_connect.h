/* rank/watch/lifeline_connect.h - sets up the connections of lifeline.h: rank 0 listens and distributes its addresses
 * (over MPI), the others try all of them at once. A random token keeps strangers out. No MPI here. */
#ifndef WATCH_LIFELINE_CONNECT_H
#define WATCH_LIFELINE_CONNECT_H

#include "rank/watch/lifeline.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIFELINE_MAX_ADDRESSES 16

enum lifeline_kind { LIFELINE_HELLO = 1, LIFELINE_WELCOME, LIFELINE_BEAT, LIFELINE_LEAVING };

/* The only kind of message. */
struct lifeline_message {
    uint64_t token[2];
    int32_t kind, rank; /* enum lifeline_kind, of the sender */
    struct lifeline_state state;
};

/* The invitation of rank 0: flat, broadcast. */
struct lifeline_invitation {
    uint64_t token[2], name; /* name: of the Unix socket, 0: there is none */
    int32_t n_addresses;
    uint16_t port; /* network order, as the addresses */
    uint32_t address[LIFELINE_MAX_ADDRESSES];
};

struct lifeline_listener {
    int unix_fd, tcp_fd; /* -1: none */
};

/* Rank 0: listen; a listener that could not be opened is not in the invitation. */
void lifeline_listen(struct lifeline_listener *l, struct lifeline_invitation *i, bool other_hosts);

/* Rank 0: fd[1 .. n_ranks) of the ranks that connect within a few seconds, -1 for others. Ends listening. */
void lifeline_accept(struct lifeline_listener *l, const struct lifeline_invitation *i, int *fd, int n_ranks);

/* The others: a connection, or -1 after some seconds. */
int lifeline_connect(const struct lifeline_invitation *i, int rank, bool same_host);

/* "10.1.0.1 10.2.0.1 port 40001", for a message. */
void lifeline_addresses(char *text, size_t bytes, const struct lifeline_invitation *i);

#endif
