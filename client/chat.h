/* client/chat.h - a conversation in the terminal: lines are the user's turns, answers stream, and each turn sends the
 * whole conversation. */
#ifndef CLIENT_CHAT_H
#define CLIENT_CHAT_H

#include "client/ask_options.h"

/* Runs until /quit or the end of standard input. ^C ends an answer or clears the line, but does not end the program.
 * ERR_COMM: the server is gone; ERR_REQUEST: a turn was refused, and input is not a terminal. */
int client_chat(struct connection *c, const struct ask_options *o, struct err *e);

#endif
