/* gateway/api/eventstream.h - application/vnd.amazon.eventstream: the pieces of a stream as SageMaker's messages. */
#ifndef API_EVENTSTREAM_H
#define API_EVENTSTREAM_H

#include "gateway/exchange/gateway.h"

/* Each piece is the payload of an event PayloadPart; a fault is an exception ModelStreamError. */
extern const struct framing eventstream_framing;

#endif
