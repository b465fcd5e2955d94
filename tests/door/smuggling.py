"""tests/door/smuggling.py - requests that two programs in a row could parse differently, sent to lockstep-gateway alone, or to a
proxy in front of it. A single request for the proxy is a single one for the gateway: no request arrives without the proxy's knowledge
(it would lack the proxy's request id), and every answer belongs to its own request. Prints TAP.

usage: smuggling.py NAME PORT LOG PREFIX
  LOG     the gateway's access log
  PREFIX  the proxy gives every request an id with this prefix; "": there is no proxy
"""
import json
import socket
import sys
import time

name, port, log, prefix = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
HIDDEN = b"GET /v1/models/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
N = len(HIDDEN)
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def post(fields, body, head=POST):
    return head + fields + b"\r\n" + body


def length(value):
    return b"Content-Length: %s\r\n" % value


def chunk(body, size=None):
    return (size or b"%x" % len(body)) + b"\r\n" + body + b"\r\n"


LAST = b"0\r\n\r\n"
n = b"%d" % N

# Name: bytes. Each hides HIDDEN in a part that one of two readers may take for a body, or for the next request.
PAIRS = {
    "a length and chunks": post(length(n) + CHUNKED, LAST + HIDDEN),
    "chunks and a length": post(CHUNKED + length(b"%d" % (N + 5)), LAST + HIDDEN),
    "chunks and a short length": post(CHUNKED + length(b"4"), chunk(HIDDEN) + LAST),
    "two lengths, the first is 0": post(length(b"0") + length(n), HIDDEN),
    "two lengths, the second is 0": post(length(n) + length(b"0"), HIDDEN),
    "two lengths in a list": post(length(b"0, " + n), HIDDEN),
    "the same length twice in a list": post(length(n + b", " + n), HIDDEN),
    "a signed length": post(length(b"+" + n), HIDDEN),
    "a negative length": post(length(b"-1"), HIDDEN),
    "a hexadecimal length": post(length(b"0x%x" % N), HIDDEN),
    "a length with a blank within": post(length(b"0 " + n), HIDDEN),
    "a length with a letter": post(length(n + b"a"), HIDDEN),
    "a length with a fraction": post(length(n + b".0"), HIDDEN),
    "a length of more than 64 bits": post(length(b"%d" % (2**64 + N)), HIDDEN),
    "a length of more than 32 bits": post(length(b"%d" % (2**32 + N)), HIDDEN),
    "a length with zeros": post(length(b"00000" + n), HIDDEN),
    "a length in Arabic digits": post(length("٤٥".encode()), HIDDEN),
    "a blank before the colon of a length": post(b"Content-Length : " + n + b"\r\n", HIDDEN),
    "a tab before the colon of a length": post(b"Content-Length\t: " + n + b"\r\n", HIDDEN),
    "a blank before a length": post(b" Content-Length: " + n + b"\r\n", HIDDEN),
    "a length with an underscore": post(b"Content_Length: " + n + b"\r\n", HIDDEN),
    "a folded length": post(b"Content-Length:\r\n " + n + b"\r\n", HIDDEN),
    "a NUL behind a length": post(length(n + b"\0"), HIDDEN),
    "a vertical tab behind a length": post(length(n + b"\x0b"), HIDDEN),
    "CR alone before a length": post(b"X: y\rContent-Length: " + n + b"\r\n", HIDDEN),
    "LF alone before a length": post(b"X: y\nContent-Length: " + n + b"\r\n", HIDDEN),
    "LF CR before a length": post(b"X: y\n\rContent-Length: " + n + b"\r\n", HIDDEN),
    "a blank before the colon of chunks": post(length(n) + b"Transfer-Encoding : chunked\r\n", LAST + HIDDEN),
    "a tab before chunks": post(length(n) + b"Transfer-Encoding:\tchunked\r\n", LAST + HIDDEN),
    "a vertical tab before chunks": post(length(n) + b"Transfer-Encoding:\x0bchunked\r\n", LAST + HIDDEN),
    "a NUL behind chunks": post(length(n) + b"Transfer-Encoding: chunked\0\r\n", LAST + HIDDEN),
    "xchunked": post(length(n) + b"Transfer-Encoding: xchunked\r\n", LAST + HIDDEN),
    "chunked in quotes": post(length(n) + b'Transfer-Encoding: "chunked"\r\n', LAST + HIDDEN),
    "chunked and a comma": post(length(n) + b"Transfer-Encoding: chunked,\r\n", LAST + HIDDEN),
    "chunked, identity": post(b"Transfer-Encoding: chunked, identity\r\n", LAST + HIDDEN),
    "identity, chunked": post(b"Transfer-Encoding: identity, chunked\r\n", LAST + HIDDEN),
    "gzip, chunked": post(b"Transfer-Encoding: gzip, chunked\r\n", LAST + HIDDEN),
    "chunked twice": post(CHUNKED + CHUNKED, LAST + HIDDEN),
    "chunked and identity in two fields": post(CHUNKED + b"Transfer-Encoding: identity\r\n", LAST + HIDDEN),
    "chunked with a semicolon": post(length(n) + b"Transfer-Encoding: chunked;q=1\r\n", LAST + HIDDEN),
    "folded chunks": post(length(n) + b"Transfer-Encoding:\r\n chunked\r\n", LAST + HIDDEN),
    "LF alone before chunks": post(length(n) + b"X: y\nTransfer-Encoding: chunked\r\n", LAST + HIDDEN),
    "chunks in HTTP/1.0": post(length(n) + CHUNKED, LAST + HIDDEN, POST.replace(b"1.1", b"1.0")),
    "chunks of HTTP/1.2": post(CHUNKED, LAST + HIDDEN, POST.replace(b"1.1", b"1.2")),
    "a size that begins with 0x": post(CHUNKED, chunk(HIDDEN, b"0x%x" % N) + LAST),
    "a signed size": post(CHUNKED, chunk(HIDDEN, b"+%x" % N) + LAST),
    "a size of more than 64 bits": post(CHUNKED, chunk(HIDDEN, b"1%016x" % N) + LAST),
    "a size of more than 32 bits": post(CHUNKED, chunk(HIDDEN, b"1%08x" % N) + LAST),
    "a size with a blank": post(CHUNKED, chunk(HIDDEN, b"%x " % N) + LAST),
    "a size with zeros": post(CHUNKED, chunk(HIDDEN, b"000000000000%x" % N) + LAST),
    "a size that is not a number": post(CHUNKED, chunk(HIDDEN, b"z") + LAST),
    "no size": post(CHUNKED, b"\r\n" + HIDDEN + LAST),
    "a negative size": post(CHUNKED, b"-1\r\n" + HIDDEN),
    "LF alone behind a size": post(CHUNKED, b"0\n\n" + HIDDEN),
    "LF alone behind a chunk": post(CHUNKED, b"1\r\na\n0\r\n\r\n" + HIDDEN),
    "CR alone behind a size": post(CHUNKED, b"0\r\r" + HIDDEN),
    "two bytes other than CRLF after a chunk": post(CHUNKED, b"1\r\naXX0\r\n\r\n" + HIDDEN),
    "an extension with LF": post(CHUNKED, b"1;a\n%x\r\na\r\n0\r\n\r\n" % N + HIDDEN),
    "an extension with a quoted CRLF": post(CHUNKED, b'1;a="\r\n%x\r\n' % N + HIDDEN + LAST),
    "a trailer that is a length": post(CHUNKED, b"0\r\nContent-Length: " + n + b"\r\n\r\n" + HIDDEN),
    "a trailer that is not a field": post(CHUNKED, b"0\r\nX\r\n\r\n" + HIDDEN),
    "a body of GET": b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + length(n) + b"\r\n" + HIDDEN,
    "chunks of GET": b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n" + chunk(HIDDEN) + LAST,
    "a body of HEAD": b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\n" + length(n) + b"\r\n" + HIDDEN,
    "a body of OPTIONS": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n" + length(n) + b"\r\n" + HIDDEN,
    "a length that belongs to the connection": post(b"Connection: Content-Length\r\n" + length(n), HIDDEN),
    "chunks that belong to the connection": post(b"Connection: Transfer-Encoding\r\n" + CHUNKED, chunk(HIDDEN) + LAST),
    "an upgrade to h2c": post(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n" + length(n), HIDDEN),
    "an upgrade to WebSocket": post(b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + length(n), HIDDEN),
    "CONNECT": b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "an expectation": post(b"Expect: 100-continue\r\n" + length(n), HIDDEN),
    "another expectation": post(b"Expect: 100-continuex\r\n" + length(n), HIDDEN),
    "two hosts": post(b"Host: y\r\n" + length(n), HIDDEN),
    "two requests in a line": b"POST /v1/completions HTTP/1.1 HTTP/1.1\r\nHost: x\r\n" + length(n) + b"\r\n" + HIDDEN,
    "HTTP/0.9": b"GET /v1/models\r\n" + HIDDEN,
    "a target over two lines": b"GET /v1/models HTTP/1.1\r\nX: y HTTP/1.1\r\n\r\n".replace(b" HTTP/1.1\r\nX", b"\nX", 1) + HIDDEN,
    "a line end within the target": b"POST /v1/completions%0d%0aContent-Length:%20" + n + b" HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    "a body longer than its length": post(length(b"0"), b"X" + HIDDEN),
    "two line ends before a request": b"\r\n\r\n" + post(length(n), HIDDEN),
    "LF before a request": b"\n" + post(length(n), HIDDEN),
}

# Cases in which HIDDEN is the next request for every reader.
NEXT = ("a length with an underscore", "a trailer that is a length", "a line end within the target", "a body longer than its length")

n_cases = n_failed = 0


def check(what, good, found=""):
    global n_cases, n_failed
    n_cases += 1
    n_failed += not good
    if not good:
        print(f"# {found}"[:1500])
    print(f"{'ok' if good else 'not ok'} {n_cases} - {name}: {what}", flush=True)


def read(s, bound):
    """Returns the bytes received until the other side ends, or until none come for a while (which means nothing)."""
    text = b""
    s.settimeout(bound)
    try:
        while piece := s.recv(65536):
            text += piece
    except OSError:
        pass
    return text


def exchange(data, bound):
    with socket.create_connection(("127.0.0.1", port)) as s:
        try:
            s.sendall(data)
        except OSError:
            pass
        return read(s, bound)


def ask(model):
    """Makes an honest request; its answer names the requested model."""
    return exchange(b"GET /v1/models/%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % model, 30)


def statuses(text):
    """Returns the status of every answer in it that begins a line."""
    return [line.split()[1].decode() for line in text.replace(b"}HTTP/", b"}\r\nHTTP/").split(b"\r\n")
            if line.startswith(b"HTTP/1.") and len(line.split()) > 1]


def log_lines(n):
    """Returns the access log, which a thread writes: once it has n honest requests, or after 10 s."""
    until = time.monotonic() + 10
    while True:
        with open(log, encoding="utf-8") as f:
            whole = [line for line in f if line.endswith("\n")]
        lines = [json.loads(line) for line in whole]
        if sum(is_honest(line) for line in lines) >= n or time.monotonic() > until:
            return lines
        time.sleep(0.02)


def is_honest(line):
    return line["path"].startswith("/v1/models/honest-")


def main():
    found = {}
    for i, (what, data) in enumerate(PAIRS.items()):
        found[what] = " ".join(statuses(exchange(data, 0.25))) or "-"
        bad = []
        for k in range(3):
            model = b"honest-%d-%d" % (i, k)
            answer = ask(model)
            if statuses(answer) != ["404"] or b'\\"%s\\"' % model not in answer or answer.count(b"honest") != 1:
                bad.append(answer)
        check(what, bad == [], (found[what], bad))
    print("# answers to each: " + json.dumps(found))
    lines = log_lines(3 * len(PAIRS))
    if prefix != "":
        # Without a method: refused before anything was read of it.
        unknown = [line for line in lines if line["method"] != "" and not line["request_id"].startswith(prefix)]
        check("the proxy knows every request that arrived", unknown == [], unknown[:3])
    else:
        shown = sum(line["path"] == "/v1/models/smuggled" for line in lines)
        check("hidden requests are not served", shown == len(NEXT) and all(found[what].count(" ") == 1 for what in NEXT), shown)
    honest = sum(is_honest(line) for line in lines)
    check("every honest request arrived exactly once", honest == 3 * len(PAIRS), honest)
    print(f"1..{n_cases}")
    return n_failed != 0


sys.exit(main())
