/* gateway/api/state.h - health and load of the gateway: /health, /ping, /version, /metrics. */
#ifndef API_STATE_H
#define API_STATE_H

#include "gateway/exchange/exchange.h"

void state_health(struct exchange *x);
void state_ping(struct exchange *x);
void state_version(struct exchange *x);
void state_metrics(struct exchange *x);

#endif
