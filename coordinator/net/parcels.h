/* coordinator/net/parcels.h - bytes to be written to a connection, in order. For one thread. */
#ifndef NET_PARCELS_H
#define NET_PARCELS_H

#include "coordinator/net/zmtp.h"

#include <sys/uio.h>

struct parcel { /* the head of a frame and its body */
    struct parcel *next;
    unsigned char *body; /* malloc'ed */
    size_t n_body, done; /* done: bytes of head and body that are written */
    unsigned char n_head;
    unsigned char head[ZMTP_REPLY_HEAD];
};

struct parcels {
    struct parcel *first, *last;
    size_t bytes; /* of their bodies */
};

/* Appends one without a head; takes over body unless out of memory (NULL). */
struct parcel *parcels_add(struct parcels *p, unsigned char *body, size_t bytes);

/* The pieces to be written next, at most `most`. Returns their number. */
int parcels_list(const struct parcels *p, struct iovec *piece, int most);

/* This number of bytes was written. */
void parcels_pass(struct parcels *p, size_t n);

void parcels_free(struct parcels *p);

#endif
