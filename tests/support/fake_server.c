/* tests/support/fake_server.c - see fake_server.h. */
#include "tests/support/fake_server.h"
#include "base/clock.h"
#include "protocol/reply_said.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define FAKE_VOCAB 1000
#define METRICS                                                                      \
    "# TYPE lockstep_num_requests_running gauge\n"                                   \
    "lockstep_num_requests_running{model_name=\"fake\"} 3\n"                         \
    "lockstep_num_requests_waiting{model_name=\"fake\"} 2\n"                         \
    "lockstep_kv_cache_usage_perc{model_name=\"fake\"} 0.25\n"                       \
    "lockstep_rank_steps_total{model_name=\"fake\",rank=\"0\",host=\"h\"} %d\n"      \
    "lockstep_rank_timed_steps_total{model_name=\"fake\",rank=\"0\",host=\"h\"} 4\n" \
    "lockstep_generation_tokens_total{model_name=\"fake\"} %d\n"

static _Noreturn void die(const char *what)
{
    (void)fprintf(stderr, "fake server: %s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(99);
}

struct peer {
    unsigned char id[256];
    int bytes;
    bool delimiter;
};

/* Takes ownership of the message. */
static void answer(struct fake_server *s, const struct peer *p, json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);
    (void)zmq_send(s->router, p->id, (size_t)p->bytes, ZMQ_SNDMORE);
    if (p->delimiter)
        (void)zmq_send(s->router, "", 0, ZMQ_SNDMORE);
    (void)zmq_send(s->router, text, strlen(text), 0);
    free(text);
    json_decref(message);
}

static void answer_error(struct fake_server *s, const struct peer *p, const char *id, int code, const char *field,
                         const char *message)
{
    answer(s, p,
           json_pack("{s:s, s:s?, s:i, s:{s:s, s:s}}", "status", "error", "request_id", id, "code", code, "error",
                     "field", field, "message", message));
}

/* Makes a choice with the words [from, to): "w0 w1 ..". */
static json_t *choice(int from, int to, const char *finish)
{
    size_t room = 16 * (size_t)(to - from) + 16;
    char *text = calloc(1, room);
    json_t *ids = json_array();
    size_t used = 0;
    for (int i = from; i < to; i++) {
        used += (size_t)snprintf(text + used, room - used, "%sw%d", i > 0 ? " " : "", i);
        (void)json_array_append_new(ids, json_integer(i));
    }
    json_t *made =
        json_pack("{s:i, s:s, s:o, s:s?}", "index", 0, "text", text, "token_ids", ids, "finish_reason", finish);
    free(text);
    return made;
}

/* Adds the tokens' log-probabilities if they are wanted. */
static void add_logprobs(const json_t *m, json_t *choice)
{
    if (json_object_get(m, "logprobs") == NULL)
        return;
    json_t *content = json_array();
    const json_t *id;
    size_t i;
    json_array_foreach(json_object_get(choice, "token_ids"), i, id)
    {
        json_int_t n = json_integer_value(id);
        json_t *token = json_sprintf("%sw%lld", n > 0 ? " " : "", (long long)n);
        (void)json_array_append_new(content, json_pack("{s:I, s:o, s:f, s:[]}", "token_id", n, "token", token,
                                                       "logprob", -0.5, "top_logprobs"));
    }
    (void)json_object_set_new(choice, "logprobs", json_pack("{s:o}", "content", content));
}

/* Ends the choice by a text or an id instead of its length. */
static void stop_early(const char *prompt, json_t *choice)
{
    bool text = strcmp(prompt, "stop text") == 0;
    if (!text && strcmp(prompt, "stop id") != 0)
        return;
    (void)json_object_set_new(choice, "finish_reason", json_string("stop"));
    (void)json_object_set_new(choice, "stop_reason", text ? json_string("q") : json_integer(1));
}

static void event(struct fake_server *s, const struct peer *p, const char *id, int k, const char *finish,
                  const json_t *m)
{
    json_t *c = choice(k, k + 1, finish);
    add_logprobs(m, c);
    json_t *tokens = json_pack("{s:s, s:s, s:i, s:s, s:[o]}", "status", "ok", "event", "tokens", "seq", k, "request_id",
                               id, "choices", c);
    if (k == 0)
        (void)json_object_set_new(tokens, "prompt_tokens", json_integer(9));
    answer(s, p, tokens);
}

/* Finds a member under either name, in "parameters" or not. */
static const json_t *member(const json_t *m, const char *name, const char *other)
{
    const json_t *in[] = {m, json_object_get(m, "parameters")};
    for (int i = 0; i < 4; i++) {
        const json_t *found = json_object_get(in[i / 2], i % 2 == 0 ? name : other);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static const json_t *first_text(const json_t *m)
{
    const json_t *prompt = member(m, "prompt", "inputs"), *text = member(m, "text_input", "text");
    return json_is_array(prompt) ? json_array_get(prompt, 0) : prompt != NULL ? prompt : text;
}

/* Returns the text that selects the answer. */
static const char *prompt_of(const json_t *m)
{
    const json_t *turns = json_object_get(m, "messages");
    const json_t *last_turn = json_array_get(turns, json_array_size(turns) - 1);
    const json_t *prompt = turns != NULL ? json_object_get(last_turn, "content") : first_text(m);
    return json_is_string(prompt) ? json_string_value(prompt) : "";
}

/* Sends the final event of a stream, or the whole answer. */
static void finish(struct fake_server *s, const struct peer *p, const json_t *m, const char *id, int n)
{
    int n_prompt = (int)json_array_size(json_object_get(m, "prompt"));
    bool stream = json_is_true(json_object_get(m, "stream"));
    json_t *last = json_pack("{s:s, s:s, s:{s:i, s:i}}", "status", "ok", "request_id", id, "usage", "prompt_tokens",
                             n_prompt, "completion_tokens", n);
    if (stream)
        (void)json_object_set_new(last, "event", json_string("final"));
    json_t *c = stream ? json_pack("{s:i, s:s}", "index", 0, "finish_reason", "length") : choice(0, n, "length");
    if (!stream)
        add_logprobs(m, c);
    stop_early(prompt_of(m), c);
    (void)json_object_set_new(last, "choices", json_pack("[o]", c));
    answer(s, p, last);
}

struct paced {
    struct paced *next;
    struct peer peer;
    char id[200];
    json_t *message;
    int k, n;
};

static void pace(struct fake_server *s, const struct peer *p, json_t *m, const char *id, int n)
{
    struct paced *one = calloc(1, sizeof *one);
    if (one == NULL)
        die("memory");
    if (s->paced == NULL)
        s->next_step = seconds_now() + s->step_seconds;
    *one = (struct paced){.next = s->paced, .peer = *p, .message = json_incref(m), .n = n};
    (void)snprintf(one->id, sizeof one->id, "%s", id);
    s->paced = one;
}

/* Sends one token to each stream. */
static void step(struct fake_server *s)
{
    for (struct paced **at = &s->paced; *at != NULL;) {
        struct paced *one = *at;
        if (one->k < one->n)
            event(s, &one->peer, one->id, one->k, one->k + 1 == one->n ? "length" : NULL, one->message);
        if (++one->k < one->n) {
            at = &one->next;
            continue;
        }
        finish(s, &one->peer, one->message, one->id, one->n);
        *at = one->next;
        json_decref(one->message);
        free(one);
    }
    s->next_step += s->step_seconds;
    s->next_step = s->next_step < seconds_now() ? seconds_now() : s->next_step;
}

/* Sends an answer with reasoning, content and two calls, as a stream in pieces of a few bytes. */
static void call(struct fake_server *s, const struct peer *p, const char *id, bool stream)
{
    static const struct calls_way harmony = {.format = CALLS_HARMONY};
    static const char text[] =
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{\"a\": \"b c\"}<|call|><|start|>assistant<|"
        "channel|>commentary to=functions.g<|message|>{}<|call|>";
    enum { PIECE = 11, N = sizeof text - 1 };
    struct calls_reader *r = calls_open(harmony);
    int n_calls, seq = 0;
    for (int i = 0; stream && i < N; i += PIECE, seq++)
        answer(
            s, p,
            json_pack("{s:s, s:s, s:i, s:s, s:[{s:i, s:s%, s:[], s:o, s:n}]}", "status", "ok", "event", "tokens", "seq",
                      seq, "request_id", id, "choices", "index", 0, "text", text + i,
                      (size_t)(N - i < PIECE ? N - i : PIECE), "token_ids", "delta",
                      reply_saying(r, harmony, 1, 0, text + i, (size_t)(N - i < PIECE ? N - i : PIECE), i + PIECE >= N),
                      "finish_reason"));
    calls_close(r);
    json_t *last = json_pack("{s:s, s:s, s:{s:i, s:i}, s:[{s:i, s:s, s:s}]}", "status", "ok", "request_id", id, "usage",
                             "prompt_tokens", 3, "completion_tokens", 4, "choices", "index", 0, "text", text,
                             "finish_reason", "tool_calls");
    json_t *choice = json_array_get(json_object_get(last, "choices"), 0);
    if (stream) {
        (void)json_object_set_new(last, "event", json_string("final"));
        (void)json_object_del(choice, "text");
    } else {
        (void)json_object_set_new(choice, "message", reply_said(harmony, 1, 0, text, N, &n_calls));
    }
    answer(s, p, last);
}

/* Sends two choices, the second of which fails. */
static void fail_partly(struct fake_server *s, const struct peer *p, const char *id, bool stream)
{
    json_t *good = choice(0, 1, "length"), *bad = choice(1, 2, "error");
    (void)json_object_set_new(bad, "index", json_integer(1));
    (void)json_object_set_new(bad, "error", json_pack("{s:i, s:s}", "code", 500, "message", "out of \"room\""));
    json_t *last = json_pack("{s:s, s:s, s:{s:i, s:i}, s:[o, o]}", "status", "ok", "request_id", id, "usage",
                             "prompt_tokens", 1, "completion_tokens", 2, "choices", good, bad);
    if (stream)
        (void)json_object_set_new(last, "event", json_string("final"));
    answer(s, p, last);
}

static void generate(struct fake_server *s, const struct peer *p, json_t *m, const char *id)
{
    const json_t *limit = member(m, "max_tokens", "max_new_tokens");
    const char *prompt = prompt_of(m);
    int n = limit != NULL && json_integer_value(limit) >= 0 ? (int)json_integer_value(limit) : 16;
    bool stream = json_is_true(json_object_get(m, "stream"));
    if (strncmp(prompt, "refuse ", 7) == 0) {
        answer_error(s, p, id, 400, prompt + 7, "refused");
    } else if (strcmp(prompt, "refuse") == 0) {
        answer_error(s, p, id, 400, "prompt", "a text that is refused");
    } else if (strcmp(prompt, "late") == 0) {
        answer_error(s, p, id, 503, "", "the server is ending");
    } else if (strcmp(prompt, "wait") == 0) {
        (void)snprintf(s->waiting, sizeof s->waiting, "%s", id);
        memcpy(s->waiting_peer, p->id, sizeof s->waiting_peer);
        s->waiting_peer_bytes = p->bytes;
    } else if (strcmp(prompt, "call") == 0) {
        call(s, p, id, stream);
    } else if (strcmp(prompt, "partly") == 0) {
        fail_partly(s, p, id, stream);
    } else if (strcmp(prompt, "vanish") == 0 && !s->stays) {
        s->gone = true;
    } else if (strcmp(prompt, "part") == 0) {
        event(s, p, id, 0, NULL, m);
        event(s, p, id, 1, NULL, m);
        answer(s, p,
               json_pack("{s:s, s:s, s:i, s:s, s:i, s:{s:s, s:s}}", "status", "error", "event", "final", "seq", 2,
                         "request_id", id, "code", 503, "error", "field", "", "message", "shutting down"));
    } else if (stream && s->step_seconds > 0) {
        pace(s, p, m, id, n);
    } else if (strcmp(prompt, "silence") != 0) {
        for (int k = 0; stream && k < n; k++)
            event(s, p, id, k, k + 1 == n ? "length" : NULL, m);
        finish(s, p, m, id, n);
    }
}

static void cancel(struct fake_server *s, const struct peer *p, const char *id)
{
    struct peer waiting = {.bytes = s->waiting_peer_bytes};
    if (strcmp(id, s->waiting) != 0) {
        answer_error(s, p, id, 404, "request_id", "no such request");
        return;
    }
    memcpy(waiting.id, s->waiting_peer, sizeof waiting.id);
    answer(s, p, json_pack("{s:s, s:s}", "status", "ok", "request_id", id));
    answer(s, &waiting,
           json_pack("{s:s, s:s, s:i, s:{s:s, s:s}, s:[o]}", "status", "error", "request_id", id, "code", 499, "error",
                     "field", "", "message", "cancelled", "choices", choice(0, 2, "cancelled")));
}

static void operate(struct fake_server *s, const struct peer *p, json_t *m)
{
    const char *op = json_string_value(json_object_get(m, "op"));
    const char *id = json_string_value(json_object_get(m, "request_id"));
    char text[2000];
    if (op == NULL || strcmp(op, "generate") == 0) {
        generate(s, p, m, id != NULL ? id : "made");
    } else if (strcmp(op, "cancel") == 0) {
        cancel(s, p, id);
    } else if (strcmp(op, "metrics") == 0) {
        (void)snprintf(text, sizeof text, METRICS, 7 * s->n_received, 100 * s->n_received);
        answer(s, p,
               json_pack("{s:s, s:s?, s:o}", "status", "ok", "request_id", id, "text",
                         json_sprintf("%s%s", text, s->metrics != NULL ? s->metrics : "")));
    } else if (strcmp(op, "models") == 0 && s->models != NULL) {
        answer(s, p, json_pack("{s:s, s:s?, s:O}", "status", "ok", "request_id", id, "models", s->models));
    } else if (strcmp(op, "models") == 0) {
        answer(s, p,
               json_pack("{s:s, s:s?, s:b, s:[{s:s, s:i}]}", "status", "ok", "request_id", id, "on_behalf_of",
                         s->knows_parties, "models", "id", s->model != NULL ? s->model : "fake", "vocab_size",
                         FAKE_VOCAB));
    } else if (strcmp(op, "tokenize") == 0) {
        answer(s, p,
               json_pack("{s:s, s:s?, s:[i,i], s:i}", "status", "ok", "request_id", id, "token_ids", 7, 8, "count", 2));
    } else if (strcmp(op, "detokenize") == 0) {
        answer(s, p, json_pack("{s:s, s:s?, s:s}", "status", "ok", "request_id", id, "text", "seven eight"));
    } else {
        const char *state = strcmp(op, "health") == 0 && s->state != NULL ? s->state : op;
        answer(s, p, json_pack("{s:s, s:s?, s:s}", "status", "ok", "request_id", id, "state", state));
    }
}

static void take_message(struct fake_server *s)
{
    struct peer p = {0};
    json_t *m = NULL;
    zmq_msg_t frame;
    bool more = true;
    p.bytes = zmq_recv(s->router, p.id, sizeof p.id, 0);
    (void)zmq_msg_init(&frame);
    while (more && zmq_msg_recv(&frame, s->router, 0) >= 0) {
        more = zmq_msg_more(&frame) != 0;
        p.delimiter = p.delimiter || (more && zmq_msg_size(&frame) == 0);
        if (!more)
            m = json_loadb(zmq_msg_data(&frame), zmq_msg_size(&frame), JSON_ALLOW_NUL, NULL);
    }
    (void)zmq_msg_close(&frame);
    if (m == NULL) {
        answer_error(s, &p, NULL, 400, "", "not valid JSON");
        return;
    }
    operate(s, &p, m);
    if (s->n_received < FAKE_MAX_RECEIVED) {
        s->received[s->n_received] = json_incref(m);
        s->n_received++; /* publishes the message */
    }
    json_decref(m);
}

/* ZAP: version, request id, domain, address, identity, mechanism, key. */
static void answer_zap(struct fake_server *s)
{
    unsigned char frame[7][256], want[32];
    int bytes[7] = {0};
    for (int i = 0; i < 7; i++)
        bytes[i] = zmq_recv(s->zap, frame[i], sizeof frame[i], 0);
    (void)zmq_z85_decode(want, s->client_public);
    bool good = bytes[6] == 32 && memcmp(frame[6], want, 32) == 0;
    (void)zmq_send(s->zap, "1.0", 3, ZMQ_SNDMORE);
    (void)zmq_send(s->zap, frame[1], (size_t)bytes[1], ZMQ_SNDMORE);
    (void)zmq_send(s->zap, good ? "200" : "400", 3, ZMQ_SNDMORE);
    (void)zmq_send(s->zap, "", 0, ZMQ_SNDMORE);
    (void)zmq_send(s->zap, "", 0, ZMQ_SNDMORE);
    (void)zmq_send(s->zap, "", 0, 0);
}

static void *serve(void *context)
{
    struct fake_server *s = context;
    zmq_pollitem_t item[3] = {{.socket = s->router, .events = ZMQ_POLLIN},
                              {.socket = s->control[1], .events = ZMQ_POLLIN},
                              {.socket = s->zap, .events = ZMQ_POLLIN}};
    while (!s->gone) {
        double left = s->paced != NULL ? s->next_step - seconds_now() : -1;
        long wait = s->paced == NULL ? -1 : left > 0 ? (long)(1000 * left) : 0;
        if (zmq_poll(item, s->zap != NULL ? 3 : 2, wait) < 0 || (item[1].revents & ZMQ_POLLIN) != 0)
            break;
        if (s->paced != NULL && seconds_now() >= s->next_step)
            step(s);
        if ((item[0].revents & ZMQ_POLLIN) != 0)
            take_message(s);
        if ((item[2].revents & ZMQ_POLLIN) != 0)
            answer_zap(s);
    }
    (void)zmq_close(s->router);
    return NULL;
}

static void use_curve(struct fake_server *s)
{
    const int yes = 1;
    (void)zmq_curve_keypair(s->public_key, s->secret_key);
    (void)zmq_curve_keypair(s->client_public, s->client_secret);
    s->zap = zmq_socket(s->context, ZMQ_REP);
    if (zmq_bind(s->zap, "inproc://zeromq.zap.01") != 0 ||
        zmq_setsockopt(s->router, ZMQ_CURVE_SERVER, &yes, sizeof yes) != 0 ||
        zmq_setsockopt(s->router, ZMQ_CURVE_SECRETKEY, s->secret_key, 41) != 0 ||
        zmq_setsockopt(s->router, ZMQ_ZAP_DOMAIN, "fake", 4) != 0)
        die("CURVE");
}

void fake_server_start(struct fake_server *s, const char *endpoint)
{
    const int none = 0, linger = 1000;
    size_t bytes = sizeof s->endpoint;
    s->context = zmq_ctx_new();
    s->router = zmq_socket(s->context, ZMQ_ROUTER);
    (void)zmq_setsockopt(s->router, ZMQ_SNDHWM, &none, sizeof none);
    (void)zmq_setsockopt(s->router, ZMQ_RCVHWM, &none, sizeof none);
    (void)zmq_setsockopt(s->router, ZMQ_LINGER, &linger, sizeof linger);
    if (s->curve)
        use_curve(s);
    for (int i = 0; i < 2; i++)
        s->control[i] = zmq_socket(s->context, ZMQ_PAIR);
    if (zmq_bind(s->control[0], "inproc://control") != 0 || zmq_connect(s->control[1], "inproc://control") != 0 ||
        zmq_bind(s->router, endpoint) != 0 || zmq_getsockopt(s->router, ZMQ_LAST_ENDPOINT, s->endpoint, &bytes) != 0 ||
        pthread_create(&s->thread, NULL, serve, s) != 0)
        die(endpoint);
}

void fake_server_stop(struct fake_server *s)
{
    (void)zmq_send(s->control[0], "", 0, ZMQ_DONTWAIT);
    (void)pthread_join(s->thread, NULL);
    for (int i = 0; i < 2; i++)
        (void)zmq_close(s->control[i]);
    if (s->zap != NULL)
        (void)zmq_close(s->zap);
    (void)zmq_ctx_term(s->context);
}

void fake_server_free(struct fake_server *s)
{
    for (int i = 0; i < s->n_received; i++)
        json_decref(s->received[i]);
    memset(s, 0, sizeof *s);
}
