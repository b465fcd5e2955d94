/* coordinator/server/rendezvous.h - a file by which clients find the server, without a fixed port or host name in
 * scripts. */
#ifndef SERVER_RENDEZVOUS_H
#define SERVER_RENDEZVOUS_H

struct server;

/* When the model is ready: write --rendezvous FILE and report on standard error. With --curve the keys for clients are
 * in FILE.client, mode 0600. A file that cannot be written ends the server, since no client would find it. */
void rendezvous_ready(struct server *s);

/* Remove what rendezvous_ready wrote, unless a newer server has written its own there. */
void rendezvous_remove(struct server *s);

#endif
