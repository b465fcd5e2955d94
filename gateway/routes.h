/* gateway/routes.h - the table of all paths that are served. */
#ifndef GATEWAY_ROUTES_H
#define GATEWAY_ROUTES_H

#include "gateway/exchange/gateway.h"

extern const struct route gateway_routes[];
extern const size_t gateway_n_routes;
extern const struct area gateway_areas[];
extern const size_t gateway_n_areas;

#endif
