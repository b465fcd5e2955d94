/* gateway/exchange/request.c - an incoming request: its name, its route, its authorisation. See gateway.h. */
#include "base/clock.h"
#include "gateway/exchange/exchange.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define RETRY_MS 1000 /* of a client that has as many requests as it may have */

#define SIGNED "AWS4-HMAC-SHA256 Credential=" /* a request of an AWS client; the signature is not verified */

/* Does the path match the pattern? tail: the match of each "{}". */
static bool fits_pattern(const char *pattern, const char *path, char tail[][EXCHANGE_TAIL_BYTES])
{
    size_t plain = strcspn(pattern, "{");
    if (strncmp(pattern, path, plain) != 0)
        return false;
    if (pattern[plain] == '\0')
        return path[plain] == '\0';
    const char *rest = pattern + plain + 2, *from = path + plain;
    for (size_t n = strnlen(from, EXCHANGE_TAIL_BYTES - 1); n > 0; n--)
        if (fits_pattern(rest, from + n, tail + 1)) {
            memcpy(tail[0], from, n);
            tail[0][n] = '\0';
            return true;
        }
    return false;
}

/* A name that is safe in headers, log lines and messages. */
static bool is_good_id(const char *id)
{
    size_t n = 0;
    for (; id[n] != '\0'; n++)
        if (!isgraph((unsigned char)id[n]))
            return false;
    return n > 0 && n <= POOL_NAME_BYTES;
}

static void name_request(struct exchange *x)
{
    const char *id = exchange_header(x, "x-request-id");
    if (id != NULL && is_good_id(id))
        (void)snprintf(x->id, sizeof x->id, "%s", id);
    else
        (void)snprintf(x->id, sizeof x->id, "req-%llx-%llx", (unsigned long long)x->created,
                       (unsigned long long)++x->gateway->serial);
}

/* "GET" also serves HEAD. */
static bool method_fits(const struct route *r, const char *method)
{
    return strcmp(r->method, method) == 0 || (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

/* The route of a request. allow: [bytes] the methods of the path's routes if none has the request's method. */
static const struct route *find_route(struct exchange *x, char *allow, size_t bytes)
{
    const struct http_head *h = x->conn->head;
    size_t used = 0;
    for (size_t i = 0; i < x->gateway->n_routes; i++) {
        const struct route *r = &x->gateway->routes[i];
        if (!fits_pattern(r->path, h->path, x->tail) || (r->access == ROUTE_PAGE && x->gateway->no_page) ||
            (r->header != NULL && exchange_header(x, r->header) == NULL))
            continue;
        if (method_fits(r, h->method))
            return r;
        if (strstr(allow, r->method) == NULL && used + 16 < bytes)
            used += (size_t)snprintf(allow + used, bytes - used, "%s%s", used > 0 ? ", " : "", r->method);
    }
    return NULL;
}

/* The form of errors where no route fits; NULL: OpenAI's. */
static const struct dialect *area_dialect(const struct exchange *x)
{
    const char *path = x->conn->head->path;
    for (const struct area *a = x->gateway->areas; a < x->gateway->areas + x->gateway->n_areas; a++) {
        size_t n = strlen(a->prefix);
        if (strncmp(path, a->prefix, n) == 0 && (path[n] == '\0' || path[n] == '/') &&
            (a->header == NULL || exchange_header(x, a->header) != NULL))
            return a->dialect;
    }
    return NULL;
}

/* "KEY/20261124/us-east-1/sagemaker/aws4_request, ...": the key is in plain text, as every sent key is. */
static const struct key *access_key(const struct exchange *x, const char *credential)
{
    char key[KEY_BYTES] = "";
    size_t n = strcspn(credential, "/");
    if (n >= sizeof key)
        return NULL;
    memcpy(key, credential, n);
    return keys_find(&x->gateway->keys.keys, key);
}

/* The request's key; NULL: it has none, or a wrong one. */
static const struct key *find_key(const struct exchange *x)
{
    const char *value = exchange_header(x, "authorization"), *other = exchange_header(x, "x-api-key");
    if (value != NULL && strncasecmp(value, "Bearer ", 7) == 0)
        return keys_find(&x->gateway->keys.keys, value + 7 + strspn(value + 7, " "));
    if (value != NULL && strncmp(value, SIGNED, strlen(SIGNED)) == 0)
        return access_key(x, value + strlen(SIGNED));
    return other != NULL ? keys_find(&x->gateway->keys.keys, other) : NULL;
}

/* Why the request has no key, with the header that was looked at. */
static struct fault key_fault(const struct exchange *x)
{
    bool bearer = exchange_header(x, "authorization") != NULL, other = exchange_header(x, "x-api-key") != NULL;
    struct fault f = fault_make(401, "", "no key: expected \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
    if (bearer || other)
        f = fault_make(401, "", "%s: not one of the gateway's keys, expected \"%s\"",
                       bearer ? "Authorization" : "x-api-key", bearer ? "Authorization: Bearer KEY" : "x-api-key: KEY");
    f.code = "invalid_api_key";
    return f;
}

/* May the request be served? Notes the name of its key, and its party. */
static bool may(struct exchange *x)
{
    bool open = x->route != NULL && (x->route->access == ROUTE_OPEN || x->route->access == ROUTE_PAGE);
    if (open)
        return true;
    if (x->gateway->keys.keys.one == NULL) {
        party_name(NULL, x->conn->peer, x->party);
        return true;
    }
    if (x->route != NULL && x->route->access == ROUTE_METRICS && x->gateway->open_metrics)
        return true;
    const struct key *k = find_key(x);
    if (k == NULL)
        return false;
    memcpy(x->tally.key, k->name, sizeof k->name);
    party_name(k, x->conn->peer, x->party);
    return true;
}

/* Counts the request among its party's, unless it watches. -1 and the fault: these are too many, or out of memory. */
static int enter_party(struct exchange *x, struct fault *f)
{
    struct parties *p = &x->gateway->parties;
    if (x->party[0] == '\0' || x->route->access == ROUTE_METRICS)
        return 0;
    x->tally.over_limit = parties_full(p, x->party);
    x->entered = !x->tally.over_limit && parties_enter(p, x->party);
    if (x->entered)
        return 0;
    *f = !x->tally.over_limit ? fault_make(503, "", "out of memory")
                              : fault_make(429, "",
                                           "%d requests of \"%s\" are being answered, expected at most that many at "
                                           "once (--max-requests-per-party)",
                                           p->most, x->party);
    f->retry_ms = RETRY_MS;
    return -1;
}

/* A browser's preflight for another origin: the answer is in the headers of every response. */
static void answer_preflight(struct exchange *x)
{
    struct bytes fields = {0};
    const char *asked = exchange_header(x, "access-control-request-headers");
    const char *allowed = x->gateway->allow_origin;
    if (exchange_origin_fits(x, exchange_header(x, "origin")))
        bytes_format(&fields,
                     "Access-Control-Allow-Origin: %s\r\nAccess-Control-Allow-Methods: GET, POST, PUT, DELETE\r\n"
                     "Access-Control-Allow-Headers: %s\r\nAccess-Control-Max-Age: 86400\r\nVary: Origin\r\n",
                     allowed, asked != NULL ? asked : "*");
    bytes_append(&fields, "", 1);
    http_answer(x->conn, 204, fields.failed ? "" : bytes_start(&fields), NULL, "", 0);
    bytes_free(&fields);
}

/* Does this name always mean this machine? A DNS name means whatever its owner wants, even while its page is open (DNS
 * rebinding): Host and Origin are then its own, but the address is ours. */
static bool is_own_name(const char *host)
{
    char name[256], own[256] = "";
    struct in_addr address;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(host, host[0] == '[' ? "" : ":"), host);
    (void)gethostname(own, sizeof own - 1);
    return name[0] == '[' || inet_pton(AF_INET, name, &address) == 1 || strcasecmp(name, "localhost") == 0 ||
           strcasecmp(name, own) == 0;
}

/* Does the page come from the host that the request names? */
static bool is_of_host(const char *origin, const char *host)
{
    const char *authority = origin != NULL ? strstr(origin, "://") : NULL;
    return authority != NULL && host != NULL && strcasecmp(authority + 3, host) == 0;
}

/* Does a browser ask on behalf of a page that is neither ours nor of --allow-origin? Such a page may not even cause
 * work whose answer it cannot read. */
static bool is_foreign(const struct exchange *x)
{
    const char *origin = exchange_header(x, "origin"), *host = exchange_header(x, "host");
    bool own = is_of_host(origin, host);
    if (x->gateway->keys.keys.one == NULL && strcmp(x->conn->peer, "unix") != 0)
        own = own && is_own_name(host);
    return origin != NULL && !own && !exchange_origin_fits(x, origin);
}

static struct fault foreign_fault(const struct exchange *x)
{
    const char *origin = exchange_header(x, "origin"), *host = exchange_header(x, "host");
    if (host == NULL || is_of_host(origin, host))
        return fault_make(403, "", "pages of %.200s are not served (--allow-origin)", origin);
    return fault_make(
        403, "",
        "pages of %.200s are not served, found the Host \"%.200s\" (a proxy has to pass Host on; for other "
        "pages: --allow-origin)",
        origin, host);
}

static bool is_packed(const struct exchange *x)
{
    const char *how = exchange_header(x, "content-encoding");
    return how != NULL && how[0] != '\0' && strcasecmp(how, "identity") != 0;
}

static void serve_request(struct exchange *x)
{
    char allow[64] = "";
    struct fault f = {0};
    x->route = find_route(x, allow, sizeof allow);
    x->dialect = x->route != NULL ? x->route->dialect : area_dialect(x);
    if (strcmp(x->conn->head->method, "OPTIONS") == 0 && x->gateway->allow_origin != NULL) {
        answer_preflight(x);
        return;
    }
    if (is_foreign(x)) {
        f = foreign_fault(x);
    } else if (!may(x)) {
        f = key_fault(x);
    } else if (x->route == NULL && allow[0] != '\0') {
        f = fault_make(405, "", "%.40s is not served here, expected %s", x->conn->head->method, allow);
        f.allow = allow;
    } else if (x->route == NULL) {
        f = fault_make(404, "", "no such path: %.40s %.200s", x->conn->head->method, x->conn->head->path);
    }
    if (f.status == 0 && is_packed(x))
        f = fault_make(415, "", "Content-Encoding: found \"%.40s\", expected none: bodies are read as they are",
                       exchange_header(x, "content-encoding"));
    if (f.status != 0 || enter_party(x, &f) != 0)
        exchange_fail(x, &f);
    else
        x->route->start(x); /* NOLINT(clang-analyzer-core.NullDereference): without a route f is a fault */
}

void gateway_request(void *context, struct http_conn *c)
{
    struct gateway *g = context;
    struct exchange *x = calloc(1, sizeof *x);
    if (x == NULL) {
        http_drop(c);
        return;
    }
    *x = (struct exchange){.gateway = g, .conn = c, .created = (int64_t)time(NULL), .begun = seconds_now()};
    x->tally = (struct tally){.first_token = -1, .queue = -1, .compute = -1, .upstream = -1};
    c->user = x;
    g->counters.running++;
    name_request(x);
    serve_request(x);
}

/* A line of what was read of the request. */
static void log_refused(struct gateway *g, const struct http_conn *c, const struct tally *t)
{
    static const struct http_head nothing = {0};
    const struct http_head *h = c->head != NULL ? c->head : &nothing;
    const char *id = http_head_get(h, "x-request-id");
    if (h->path != NULL)
        fault_make_utf8(h->path);
    const struct request_line line = {.client = c->peer,
                                      .method = h->path != NULL ? h->method : "",
                                      .path = h->path != NULL ? h->path : "",
                                      .id = id != NULL && is_good_id(id) ? id : "",
                                      .forwarded_for = http_head_get(h, "x-forwarded-for"),
                                      .tally = t};
    request_log_put(&g->log, &line);
}

void gateway_refused(void *context, const struct http_conn *c, const struct http_refusal *r, struct bytes *to)
{
    struct gateway *g = context;
    struct fault f = fault_make(r->status, "", "%s", r->message);
    if (r->status == 413)
        f = fault_make(413, "", "%s: expected at most %zu bytes (--max-body)", r->message, g->server.setup.max_body);
    fault_write_openai(&f, to);
    log_refused(
        g, c,
        &(struct tally){
            .status = r->status, .bytes_in = bytes_count(&c->content), .bytes_out = bytes_count(to), .total = -1});
}
