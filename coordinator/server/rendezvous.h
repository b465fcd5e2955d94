/* coordinator/server/rendezvous.h - a file by which clients find the server: no fixed port, no host name in a
 * script. */
#ifndef SERVER_RENDEZVOUS_H
#define SERVER_RENDEZVOUS_H

struct server;

/* The model is there: write --rendezvous FILE and say so on standard error. With --curve the keys for clients are in
 * FILE.client, mode 0600. A file that cannot be written ends the server: nobody would find it. */
void rendezvous_ready(struct server *s);

/* Remove what rendezvous_ready wrote, unless a newer server has written its own there. */
void rendezvous_remove(struct server *s);

#endif
