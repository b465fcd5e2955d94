/* gateway/routes.c - see routes.h. An API is a file of gateway/api/ and its lines here. */
#include "gateway/routes.h"
#include "gateway/api/djl.h"
#include "gateway/api/messages.h"
#include "gateway/api/openai.h"
#include "gateway/api/responses.h"
#include "gateway/api/state.h"
#include "gateway/api/tokens.h"
#include "gateway/page/page.h"

#define KEYED(method, path, start, dialect)              \
    {                                                    \
        method, path, start, &(dialect), ROUTE_NEEDS_KEY \
    }
#define OPENAI(method, path, start) KEYED(method, path, start, openai_dialect)
#define OPEN(method, path, start)                        \
    {                                                    \
        method, path, start, &openai_dialect, ROUTE_OPEN \
    }

const struct route gateway_routes[] = {
    OPENAI("GET", "/v1/models", openai_models),
    OPENAI("GET", "/v1/models/{}", openai_model),
    OPENAI("POST", "/v1/completions", openai_completions),
    OPENAI("POST", "/completions", openai_completions),
    OPENAI("POST", "/v1/chat/completions", openai_chat),
    OPENAI("POST", "/chat/completions", openai_chat),
    OPENAI("POST", "/v1/responses", responses_create),
    OPENAI("POST", "/responses", responses_create),
    KEYED("POST", "/v1/messages", messages_create, messages_dialect),
    KEYED("POST", "/v1/messages/count_tokens", messages_count, messages_dialect),
    KEYED("POST", "/predictions/{}", djl_predict, djl_dialect),
    OPENAI("POST", "/tokenize", tokens_tokenize),
    OPENAI("POST", "/detokenize", tokens_detokenize),
    OPEN("GET", "/health", state_health),
    OPEN("GET", "/ping", state_health),
    OPEN("POST", "/ping", state_health),
    OPEN("GET", "/version", state_version),
    {"GET", "/metrics", state_metrics, &openai_dialect, ROUTE_METRICS},
    {"GET", "/", page_start, &openai_dialect, ROUTE_PAGE},
    {"GET", "/page/{}", page_file, &openai_dialect, ROUTE_PAGE},
};

const size_t gateway_n_routes = sizeof gateway_routes / sizeof gateway_routes[0];

_Static_assert(sizeof gateway_routes / sizeof gateway_routes[0] < COUNTER_ROUTES, "more routes than counters");
