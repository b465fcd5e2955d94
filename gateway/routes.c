/* gateway/routes.c - see routes.h. An API is a file of gateway/api/ and its lines here. */
#include "gateway/routes.h"
#include "gateway/api/djl.h"
#include "gateway/api/messages.h"
#include "gateway/api/models.h"
#include "gateway/api/openai.h"
#include "gateway/api/responses.h"
#include "gateway/api/sagemaker.h"
#include "gateway/api/state.h"
#include "gateway/api/tgi.h"
#include "gateway/api/tokens.h"
#include "gateway/api/triton.h"
#include "gateway/page/page.h"

#define ROUTE(method, path, start, dialect, access)   \
    {                                                 \
        method, path, start, &(dialect), access, NULL \
    }
#define KEYED(method, path, start, dialect) ROUTE(method, path, start, dialect, ROUTE_NEEDS_KEY)
#define OPENAI(method, path, start)         KEYED(method, path, start, openai_dialect)
#define OPEN(method, path, start)           ROUTE(method, path, start, openai_dialect, ROUTE_OPEN)

/* OpenAI's paths, if the request has this header of Anthropic's clients. */
#define ANTHROPIC(method, path, start)                                               \
    {                                                                                \
        method, path, start, &messages_dialect, ROUTE_NEEDS_KEY, "anthropic-version" \
    }

/* Routes of a model, or of its only version. */
#define TRITON(method, what, start)                                          \
    KEYED(method, "/v2/models/{}/versions/{}/" what, start, triton_dialect), \
        KEYED(method, "/v2/models/{}/" what, start, triton_dialect)

const struct route gateway_routes[] = {
    ANTHROPIC("GET", "/v1/models", messages_models),
    ANTHROPIC("GET", "/v1/models/{}", messages_model),
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
    KEYED("POST", "/invocations", sagemaker_invocations, djl_dialect),
    KEYED("POST", "/endpoints/{}/invocations", sagemaker_endpoint, sagemaker_dialect),
    KEYED("POST", "/endpoints/{}/invocations-response-stream", sagemaker_endpoint_stream, sagemaker_dialect),
    KEYED("GET", "/models", models_list, models_dialect),
    KEYED("POST", "/models", models_load, models_dialect),
    KEYED("POST", "/models/{}/invoke", sagemaker_invoke, models_dialect),
    KEYED("GET", "/models/{}", models_show, models_dialect),
    KEYED("PUT", "/models/{}", models_scale, models_dialect),
    KEYED("DELETE", "/models/{}", models_unload, models_dialect),
    KEYED("POST", "/generate", tgi_generate, tgi_dialect),
    KEYED("POST", "/generate_stream", tgi_generate_stream, tgi_dialect),
    KEYED("POST", "/", tgi_root, tgi_dialect),
    KEYED("GET", "/info", tgi_info, tgi_dialect),
    KEYED("GET", "/v2", triton_server, triton_dialect),
    ROUTE("GET", "/v2/health/live", triton_live, triton_dialect, ROUTE_OPEN),
    ROUTE("GET", "/v2/health/ready", triton_ready, triton_dialect, ROUTE_OPEN),
    KEYED("GET", "/v2/models/stats", triton_stats, triton_dialect),
    TRITON("POST", "generate", triton_generate),
    TRITON("POST", "generate_stream", triton_generate_stream),
    TRITON("POST", "infer", triton_infer),
    TRITON("GET", "ready", triton_model_ready),
    TRITON("GET", "stats", triton_stats),
    TRITON("GET", "config", triton_config),
    KEYED("GET", "/v2/models/{}/versions/{}", triton_model, triton_dialect),
    KEYED("GET", "/v2/models/{}", triton_model, triton_dialect),
    KEYED("POST", "/v2/repository/index", triton_index, triton_dialect),
    KEYED("POST", "/v2/repository/models/{}/load", triton_load, triton_dialect),
    KEYED("POST", "/v2/repository/models/{}/unload", triton_unload, triton_dialect),
    OPENAI("POST", "/tokenize", tokens_tokenize),
    OPENAI("POST", "/detokenize", tokens_detokenize),
    OPEN("GET", "/health", state_health),
    OPEN("GET", "/ping", state_ping),
    OPEN("POST", "/ping", state_ping),
    OPEN("GET", "/version", state_version),
    ROUTE("GET", "/metrics", state_metrics, openai_dialect, ROUTE_METRICS),
    ROUTE("GET", "/", page_start, openai_dialect, ROUTE_PAGE),
    ROUTE("GET", "/page/{}", page_file, openai_dialect, ROUTE_PAGE),
};

const size_t gateway_n_routes = sizeof gateway_routes / sizeof gateway_routes[0];

const struct area gateway_areas[] = {
    {"/v1/messages", NULL, &messages_dialect},
    {"/v1", "anthropic-version", &messages_dialect},
    {"/v2", NULL, &triton_dialect},
    {"/endpoints", NULL, &sagemaker_dialect},
    {"/generate", NULL, &tgi_dialect},
    {"/generate_stream", NULL, &tgi_dialect},
    {"/info", NULL, &tgi_dialect},
    {"/predictions", NULL, &djl_dialect},
    {"/invocations", NULL, &djl_dialect},
    {"/models", NULL, &models_dialect},
};

const size_t gateway_n_areas = sizeof gateway_areas / sizeof gateway_areas[0];

_Static_assert(sizeof gateway_routes / sizeof gateway_routes[0] < COUNTER_ROUTES, "more routes than counters");
