/* gateway/api/eventstream.h - application/vnd.amazon.eventstream: a stream's pieces as messages of SageMaker. */
#ifndef API_EVENTSTREAM_H
#define API_EVENTSTREAM_H

#include "gateway/exchange/gateway.h"

/* Each piece is the payload of an event PayloadPart; a fault is an exception ModelStreamError. */
extern const struct framing eventstream_framing;

#endif
