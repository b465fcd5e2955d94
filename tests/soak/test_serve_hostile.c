/* tests/soak/test_serve_hostile.c - messages that no regular client would send: `lockstep serve` answers each as
 * docs/protocol.md says, and goes on serving. Every message of one frame gets exactly one reply (a stream also its
 * events before); any other number of frames gets none and is counted; exceeding --max-message-bytes costs only the
 * connection. SERVE_MESSAGES in the environment: their number, 100000 by default. HOSTILE_SEED: 1. HOSTILE_WINDOW:
 * messages sent before their replies are taken, 128; with 1 a message without an answer is printed. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/serving.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define LIMIT_BYTES    65536
#define ANSWER_SECONDS 20.0
#define MAX_BYTES      (LIMIT_BYTES * 2)
#define MAX_FRAMES     4
#define HOST_SLACK     ((double)(24 << 20))

static struct {
    struct serving server;
    void *context, *socket;
    uint64_t random;
    char text[MAX_BYTES + 1]; /* the message being made */
    size_t bytes;
    long n_sent, n_answered, n_ok, n_refused, n_ignored, n_strange, n_oversized;
    long by_code[600];
} h;

static int below(int n)
{
    uint64_t x = h.random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (int)((x ^ x >> 31) % (uint64_t)n);
}

/* Valid messages to begin with: each kind of field once, cheap to serve. */
static const char *const good[] = {
    "{\"prompt\": \"Once upon a time\", \"max_tokens\": 3, \"temperature\": 0, \"request_id\": \"a\"}",
    "{\"prompt\": [\"One\", \"Two\"], \"max_tokens\": 2, \"n\": 2, \"seed\": 7, \"stop\": [\"x\", \"\\n\"], "
    "\"stream\": true}",
    "{\"prompt\": [5, 6, 7], \"max_tokens\": 1, \"logit_bias\": {\"5\": -100, \"6\": 1.5}, \"logprobs\": 2, \"echo\": "
    "true}",
    "{\"prompt\": [[1, 2], [3]], \"max_tokens\": 1, \"num_beams\": 2, \"length_penalty\": 0.5, \"early_stopping\": "
    "\"never\"}",
    "{\"inputs\": \"Hi\", \"parameters\": {\"max_new_tokens\": 2, \"do_sample\": true, \"top_k\": 5, \"top_p\": 0.9}}",
    "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"}], "
    "\"max_tokens\": 1}",
    "{\"op\": \"tokenize\", \"prompt\": \"Once upon a time\", \"add_special_tokens\": false, \"request_id\": \"t\"}",
    "{\"op\": \"detokenize\", \"token_ids\": [1, 2, 3, 4], \"skip_special_tokens\": true}",
    "{\"op\": \"cancel\", \"request_id\": \"nobody\"}",
    "{\"op\": \"health\"}",
    "{\"op\": \"models\", \"protocol\": 1}",
    "{\"op\": \"shutdown\"}",
    "{\"prompt\": \"x\", \"max_tokens\": 1, \"min_p\": 0.1, \"repetition_penalty\": 1.2, \"presence_penalty\": -1, "
    "\"frequency_penalty\": 1, \"priority\": 5, \"timeout_ms\": 60000, \"stop_token_ids\": [3], \"ignore_eos\": true}",
};

/* Replacements for a value. */
static const char *const values[] = {
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1",
    "1",
    "4096",
    "1e308",
    "-1e308",
    "1e-400",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "18446744073709551616",
    "1e400",
    "99999999999999999999999999999",
    "0.1",
    "NaN",
    "Infinity",
    "\"\"",
    "\"-1\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\udc00\\ud800\"",
    "[]",
    "{}",
    "[[]]",
    "[null]",
    "[1,\"a\"]",
    "{\"a\":{}}",
    "[[[[[[[[1]]]]]]]]",
    "\"\xff\"",
    "\"\xc0\x80\"",
    "\"\xed\xa0\x80\"",
    "\"\xf4\x90\x80\x80\"",
    "'a'",
    "01",
    "+1",
    ".5",
    "1.",
    "0x10",
    "tru",
    "\"unended",
    "[1,",
    "{\"a\"",
    "/* */",
    "\"<|endoftext|>\"",
    "\"generate\"",
    "\"metrics\"",
};

#define N(list) ((int)(sizeof(list) / sizeof(list)[0]))

static void put_bytes(const char *text, size_t bytes)
{
    bytes = bytes < MAX_BYTES - h.bytes ? bytes : MAX_BYTES - h.bytes;
    memcpy(h.text + h.bytes, text, bytes);
    h.bytes += bytes;
    h.text[h.bytes] = '\0';
}

static void puts_text(const char *text)
{
    put_bytes(text, strlen(text));
}

/* Replaces bytes [at, at + length) by others. */
static void splice(size_t at, size_t length, const char *by, size_t bytes)
{
    static char rest[MAX_BYTES + 1];
    size_t n = h.bytes - at - length;
    memcpy(rest, h.text + at + length, n);
    h.bytes = at;
    put_bytes(by, bytes);
    put_bytes(rest, n);
}

/* Replaces a value somewhere in the text (after a colon or comma). */
static void change_value(void)
{
    size_t start = h.bytes > 1 ? (size_t)below((int)h.bytes - 1) : 0;
    const char *at = strpbrk(h.text + start, ":,[");
    const char *by = values[below(N(values))];
    if (at == NULL)
        return;
    size_t from = (size_t)(at - h.text) + 1, length = strcspn(h.text + from, ",]}");
    splice(from, length, by, strlen(by));
}

static void flip_bytes(void)
{
    for (int i = 1 + below(4); i > 0 && h.bytes > 0; i--)
        h.text[below((int)h.bytes)] = (char)below(256);
}

static void cut(void)
{
    h.bytes = h.bytes > 0 ? (size_t)below((int)h.bytes) : 0;
    h.text[h.bytes] = '\0';
}

/* Doubles a piece: repeated keys, unbalanced braces. */
static void repeat(void)
{
    char piece[64];
    size_t length = 1 + (size_t)below(60), at = h.bytes > length ? (size_t)below((int)(h.bytes - length)) : 0;
    length = length < h.bytes ? length : h.bytes;
    memcpy(piece, h.text + at, length);
    splice(at, 0, piece, length);
}

static void nest(void)
{
    int depth = 1 + below(below(8) == 0 ? 20000 : 200);
    const char *open = below(2) ? "[" : "{\"a\":";
    h.bytes = 0;
    puts_text("{\"prompt\": ");
    for (int i = 0; i < depth; i++)
        puts_text(open);
    if (below(2)) {
        puts_text("1");
        for (int i = 0; i < depth; i++)
            puts_text(*open == '[' ? "]" : "}");
        puts_text("}");
    }
}

static void random_bytes(void)
{
    h.bytes = (size_t)below(200);
    for (size_t i = 0; i < h.bytes; i++)
        h.text[i] = (char)below(256);
    h.text[h.bytes] = '\0';
}

/* Makes a list or text as large as the socket accepts. */
static void make_large(void)
{
    h.bytes = 0;
    puts_text(below(2) ? "{\"prompt\": [" : "{\"op\": \"tokenize\", \"prompt\": [");
    size_t until = (size_t)below(LIMIT_BYTES - 100);
    const char *item = below(3) == 0 ? "\"a\"," : below(2) ? "7," : "[],";
    while (h.bytes < until)
        puts_text(item);
    puts_text("1], \"max_tokens\": 1}");
}

/* Makes any message, in h.text. */
static void make_any(void)
{
    h.bytes = 0;
    puts_text(good[below(N(good))]);
    switch (below(40)) {
    case 0:
        nest();
        return;
    case 1:
        random_bytes();
        return;
    case 2:
        make_large();
        return;
    case 3:
        h.bytes = 0; /* an empty frame */
        return;
    case 4:
        return; /* unmodified and valid */
    default:
        break;
    }
    for (int i = 1 + below(3); i > 0; i--)
        switch (below(6)) {
        case 0:
            flip_bytes();
            break;
        case 1:
            cut();
            break;
        case 2:
            repeat();
            break;
        default:
            change_value();
        }
}

/* Makes the next message, of a size that the socket accepts. */
static void make_message(void)
{
    make_any();
    if (h.bytes > LIMIT_BYTES)
        h.bytes = LIMIT_BYTES;
}

/* Sends frames that are not a message, together within the limit of one. A first empty frame is REQ's delimiter, so
 * that two frames are one message then. */
static void send_frames(void)
{
    int n = 2 + below(MAX_FRAMES - 1), empty = below(2);
    n += empty && n == 2;
    for (int i = 0; i < n; i++) {
        bool none = i == 0 && empty;
        int more = i + 1 < n ? ZMQ_SNDMORE : 0;
        if (!none && i == 0 && h.bytes == 0) /* it would be a delimiter */
            puts_text("x");
        size_t bytes = h.bytes < LIMIT_BYTES / (2 * MAX_FRAMES) ? h.bytes : LIMIT_BYTES / (2 * MAX_FRAMES);
        (void)zmq_send(h.socket, h.text, none ? 0 : bytes, more);
    }
    h.n_ignored++;
}

static void open_socket(void)
{
    const int linger = 0, unlimited = 0;
    h.socket = zmq_socket(h.context, ZMQ_DEALER);
    (void)zmq_setsockopt(h.socket, ZMQ_LINGER, &linger, sizeof linger);
    (void)zmq_setsockopt(h.socket, ZMQ_SNDHWM, &unlimited, sizeof unlimited);
    (void)zmq_setsockopt(h.socket, ZMQ_RCVHWM, &unlimited, sizeof unlimited);
    if (zmq_connect(h.socket, h.server.endpoint) != 0)
        h.n_strange++;
}

/* Takes a reply, which must be valid by itself. An event does not count. */
static void take_reply(const char *text, size_t bytes)
{
    json_t *m = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
    const char *status = json_string_value(json_object_get(m, "status"));
    const char *event = json_string_value(json_object_get(m, "event"));
    json_int_t code = json_integer_value(json_object_get(m, "code"));
    const json_t *error = json_object_get(m, "error");
    if (status == NULL || (strcmp(status, "ok") != 0 && (code < 400 || code >= 600 || !json_is_object(error) ||
                                                         !json_is_string(json_object_get(error, "message"))))) {
        h.n_strange++;
        printf("# strange: %.*s\n", (int)(bytes < 300 ? bytes : 300), text);
    } else if (event == NULL || strcmp(event, "tokens") != 0) {
        h.n_answered++;
        h.n_ok += strcmp(status, "ok") == 0;
        h.n_refused += strcmp(status, "ok") != 0;
        h.by_code[code]++;
    }
    json_decref(m);
}

/* Waits until `n` messages are answered; false: not in time. */
static bool await_answers(long n)
{
    zmq_pollitem_t item = {.socket = h.socket, .events = ZMQ_POLLIN};
    double until = seconds_now() + ANSWER_SECONDS;
    while (h.n_answered < n && seconds_now() < until && !h.server.p.ended) {
        zmq_msg_t frame;
        if (zmq_poll(&item, 1, 200) == 0) {
            process_watch(&h.server.p, 0.001, (size_t)-1);
            continue;
        }
        (void)zmq_msg_init(&frame);
        while (zmq_msg_recv(&frame, h.socket, ZMQ_DONTWAIT) >= 0) {
            if (!zmq_msg_more(&frame) && (zmq_msg_size(&frame) > 0))
                take_reply(zmq_msg_data(&frame), zmq_msg_size(&frame));
        }
        (void)zmq_msg_close(&frame);
    }
    return h.n_answered >= n;
}

/* Sends a message that is too large: the connection ends; one sent after reconnecting is answered. */
static void send_oversized(void)
{
    void *monitor = zmq_socket(h.context, ZMQ_PAIR), *kept = h.socket;
    char name[64];
    open_socket();
    (void)snprintf(name, sizeof name, "inproc://oversized-%ld", h.n_oversized++);
    bool cut_off = zmq_socket_monitor(h.socket, name, ZMQ_EVENT_DISCONNECTED) == 0 && zmq_connect(monitor, name) == 0;
    memset(h.text, ' ', MAX_BYTES);
    (void)zmq_send(h.socket, h.text, LIMIT_BYTES + 1 + (size_t)below(LIMIT_BYTES - 1), 0);
    zmq_pollitem_t item = {.socket = monitor, .events = ZMQ_POLLIN};
    cut_off = cut_off && zmq_poll(&item, 1, (long)(1000 * ANSWER_SECONDS)) == 1;
    const char *health = "{\"op\": \"health\"}";
    long before = h.n_answered;
    (void)zmq_send(h.socket, health, strlen(health), 0); /* queued until it reconnects */
    if (!cut_off || !await_answers(before + 1)) {
        h.n_strange++;
        printf("# too large: %s\n", cut_off ? "no answer afterwards" : "the connection is still open");
    }
    h.n_answered = before;
    (void)zmq_close(monitor);
    (void)zmq_close(h.socket);
    h.socket = kept;
}

static bool run_messages(long n, int window)
{
    while (h.n_sent < n) {
        for (int i = 0; i < window && h.n_sent < n; i++) {
            make_message();
            if (below(50) == 0) {
                send_frames();
                continue;
            }
            (void)zmq_send(h.socket, h.text, h.bytes, 0);
            h.n_sent++;
        }
        bool answered = await_answers(h.n_sent);
        if (!answered && window == 1)
            printf("# no answer to %.*s\n", (int)(h.bytes < 1000 ? h.bytes : 1000), h.text);
        if (!answered)
            return false;
        if (below(20) == 0)
            send_oversized();
    }
    return true;
}

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL && atoi(text) > 0 ? atoi(text) : otherwise;
}

static void check_outcome(long n, const char *story, double resident, bool answered, double seconds)
{
    printf("# %ld messages in %.0f s: %ld done, %ld refused; %ld with other frames, %ld too large;", h.n_sent, seconds,
           h.n_ok, h.n_refused, h.n_ignored, h.n_oversized);
    for (int code = 400; code < 600; code++)
        if (h.by_code[code] > 0)
            printf(" %d: %ld", code, h.by_code[code]);
    printf("\n");
    case_begin("each of %ld messages is answered once", n);
    case_check(answered && h.n_answered == n && h.n_strange == 0, "%ld answered, %ld unexpected", h.n_answered,
               h.n_strange);
    case_check(h.n_ok > n / 100 && h.n_refused > n / 2, "%ld done, %ld refused", h.n_ok, h.n_refused);
    case_check(h.by_code[500] == 0, "%ld internal errors", h.by_code[500]);
    case_end();
    case_begin("messages with other frames are ignored and counted");
    double counted = serving_metric(&h.server, "bad_messages_total");
    case_check(counted == (double)h.n_ignored, "%g counted, %ld sent", counted, h.n_ignored);
    case_end();
    case_begin("the server still works, and holds nothing");
    char *now = serving_story(&h.server, "Once upon a time", 20);
    case_check(now != NULL && strcmp(now, story) == 0, "the text differs from before");
    case_check(serving_await(&h.server, "open_requests", 1, 30), "requests are still open");
    case_check(serving_await(&h.server, "kv_blocks_used", 0, 30), "KV blocks are still in use");
    double grown = serving_resident(&h.server, 0) - resident;
    printf("# rank 0 grew by %.1f MiB to %.1f MiB\n", grown / (1 << 20), (grown + resident) / (1 << 20));
    case_check(grown < HOST_SLACK || process_sanitized(), "rank 0 grew by %.1f MiB", grown / (1 << 20));
    case_end();
    free(now);
}

int main(void)
{
    long n = setting("SERVE_MESSAGES", 100000);
    h.random = (uint64_t)setting("HOSTILE_SEED", 1);
    h.context = zmq_ctx_new();
    const char *const more[] = {
        "--max-message-bytes", "65536", "--max-model-len", "64", "--max-client-backlog", "16M", NULL};
    case_begin("serve");
    bool started = serving_start(&h.server, 1, NULL, more);
    char *story = started ? serving_story(&h.server, "Once upon a time", 20) : NULL;
    case_check(story != NULL, "no server");
    case_end();
    if (story == NULL)
        return cases_done();
    open_socket();
    double begun = seconds_now();
    int window = setting("HOSTILE_WINDOW", 128);
    bool answered = run_messages(n / 10, window); /* every operation has been used once */
    double resident = serving_resident(&h.server, 0);
    answered = answered && run_messages(n, window);
    check_outcome(n, story, resident, answered, seconds_now() - begun);
    (void)zmq_close(h.socket);
    (void)zmq_ctx_term(h.context);
    case_begin("SIGUSR1 ends it");
    int status = serving_stop(&h.server);
    case_check(status == 0, "status %d", status);
    case_end();
    free(story);
    return cases_done();
}
