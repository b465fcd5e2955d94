#!/usr/bin/env python3
"""A client of `lockstep serve` in Python with pyzmq: streams a text.

    scripts/client-example.py tcp://127.0.0.1:5555 "Once upon a time" [max_tokens=60] [temperature=0.8] ...

NAME=JSON sets any field of docs/protocol.md. ^C cancels the request."""
import json
import sys
import uuid

import zmq

endpoint, prompt, fields = sys.argv[1], sys.argv[2], dict(a.split("=", 1) for a in sys.argv[3:])
request = {"prompt": prompt, "stream": True, "request_id": str(uuid.uuid4())}
request.update((name, json.loads(value)) for name, value in fields.items())

socket = zmq.Context().socket(zmq.DEALER)
socket.setsockopt(zmq.LINGER, 1000)  # closing ends within a second, even without a server
socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)  # detects a dead server
socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3000)
socket.setsockopt(zmq.HEARTBEAT_TTL, 3000)  # lets the server detect a dead client
socket.setsockopt(zmq.RCVHWM, 0)
socket.setsockopt(zmq.RCVTIMEO, 60000)
socket.connect(endpoint)
socket.send_json(request)
try:
    while True:
        message = socket.recv_json()
        for choice in message.get("choices", []):
            print(choice.get("text", ""), end="", flush=True)
        if message["status"] != "ok":
            sys.exit(f"\nerror {message['code']}: {message['error']['field']}: {message['error']['message']}")
        if message.get("event") != "tokens":
            break  # the final event
    print()
except KeyboardInterrupt:
    socket.send_json({"op": "cancel", "request_id": request["request_id"]})
except zmq.Again:
    sys.exit(f"{endpoint}: no message for a minute")
