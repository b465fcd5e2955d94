"""scripts/echo-server.py - an ASGI application that streams completions without a model: the cost of a Python server compared with
lockstep-gateway, without a backend. For tests/soak/test_gateway_load (GATEWAY_BESIDE):

    python3 -m venv v && v/bin/pip install uvicorn uvloop httptools
    v/bin/uvicorn --app-dir scripts echo-server:application --port 8100 --log-level critical &

and nginx in front of it, with `proxy_http_version 1.1; proxy_buffering off;`."""
import asyncio
import json


async def read_body(receive):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return json.loads(body)


def event(choice):
    data = {"id": "cmpl-1", "object": "text_completion", "created": 1700000000, "model": "echo", "choices": [choice], "usage": None}
    return b"data: " + json.dumps(data).encode() + b"\n\n"


async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    request = await read_body(receive)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream; charset=utf-8")]})
    for i in range(request["max_tokens"]):
        data = event({"index": 0, "text": f" w{i}", "logprobs": None, "finish_reason": None})
        await send({"type": "http.response.body", "body": data, "more_body": True})
        await asyncio.sleep(0) # lets other streams run, as between the steps of a model
    data = event({"index": 0, "text": "", "logprobs": None, "finish_reason": "length"})
    await send({"type": "http.response.body", "body": data + b"data: [DONE]\n\n", "more_body": False})
