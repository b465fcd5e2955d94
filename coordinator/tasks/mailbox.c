/* coordinator/tasks/mailbox.c - see mailbox.h. */
#include "coordinator/tasks/mailbox.h"

#include <errno.h>
#include <stdio.h>
#include <zmq.h>

int mailbox_open(void *zmq_context, const char *name, void *end[2], struct err *e)
{
    const int none = 0;
    char address[64];
    (void)snprintf(address, sizeof address, "inproc://%s", name);
    end[0] = end[1] = NULL;
    for (int i = 0; i < 2; i++) {
        end[i] = zmq_socket(zmq_context, ZMQ_PAIR);
        if (end[i] == NULL || zmq_setsockopt(end[i], ZMQ_SNDHWM, &none, sizeof none) != 0 ||
            zmq_setsockopt(end[i], ZMQ_RCVHWM, &none, sizeof none) != 0 ||
            zmq_setsockopt(end[i], ZMQ_LINGER, &none, sizeof none) != 0 ||
            (i == 0 ? zmq_bind(end[i], address) : zmq_connect(end[i], address)) != 0)
            return ERR(e, ERR_IO, "mailbox %s: %s", name, zmq_strerror(errno));
    }
    return 0;
}

void mailbox_close(void **end)
{
    if (*end != NULL)
        (void)zmq_close(*end);
    *end = NULL;
}

bool mailbox_post(void *end, void *message)
{
    int sent;
    do
        sent = zmq_send(end, &message, sizeof message, ZMQ_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

void *mailbox_take(void *end)
{
    void *message = NULL;
    int got;
    do
        got = zmq_recv(end, &message, sizeof message, ZMQ_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got == (int)sizeof message ? message : NULL;
}

bool mailbox_wait(void *end, long milliseconds)
{
    zmq_pollitem_t item = {.socket = end, .events = ZMQ_POLLIN};
    return zmq_poll(&item, 1, milliseconds) > 0;
}

void *mailbox_next(void *end, const void *last)
{
    for (;;) {
        (void)mailbox_wait(end, -1);
        void *message = mailbox_take(end);
        if (message != NULL)
            return message == last ? NULL : message;
    }
}
