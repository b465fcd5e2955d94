/* client/chat.h - a conversation in the terminal: lines are the user's turns, answers stream, everything said goes
 * along with the next turn. */
#ifndef CLIENT_CHAT_H
#define CLIENT_CHAT_H

#include "client/ask_options.h"

/* Until /quit or the end of standard input. ^C ends an answer, or clears the line, and not the program. ERR_COMM: the
 * server is gone; ERR_REQUEST: a turn was refused and nobody sits at the terminal to read it. */
int client_chat(struct connection *c, const struct ask_options *o, struct err *e);

#endif
