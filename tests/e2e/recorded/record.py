"""tests/e2e/recorded/record.py - writes the files NAME.http beside it: requests of official clients, byte by byte, for
tests/e2e/test_gateway_recorded.c. The clients' versions are those of tests/door/clients.txt.

usage: record.py      with a Python that has the clients
"""
import json
import os
import re
import socket
import threading

import anthropic
import boto3
import huggingface_hub
import openai
import tritonclient.http

folder = os.path.dirname(os.path.abspath(__file__))
model = "lockstep-stories"
chat = [{"role": "user", "content": "Tell me a story."}]
listener = socket.create_server(("127.0.0.1", 8080))
received = []


def read_request(s):
    text = b""
    while b"\r\n\r\n" not in text:
        text += s.recv(65536)
    head, _, body = text.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    while len(body) < length:
        body += s.recv(65536)
    return head + b"\r\n\r\n" + body


def serve():
    while True:
        s, _ = listener.accept()
        with s:
            received.append(read_request(s))
            s.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")


def record(name, call):
    received.clear()
    try:
        call()
    except Exception as e:
        print(name, type(e).__name__)
    with open(f"{folder}/{name}.http", "wb") as f:
        f.write(re.sub(rb"os/linux#[^ ]*", b"os/linux", received[0]))


threading.Thread(target=serve, daemon=True).start()
url = "http://127.0.0.1:8080"
oai = openai.OpenAI(base_url=url + "/v1", api_key="x", max_retries=0)
ant = anthropic.Anthropic(base_url=url, api_key="x", max_retries=0)
aws = boto3.client("sagemaker-runtime", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
hub = huggingface_hub.InferenceClient(model=url)
triton = tritonclient.http.InferenceServerClient("127.0.0.1:8080")
inputs = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 2}})
texts = json.dumps({"seq_length": 9, "text": ["Once", "The cat"]})
aws_arguments = {"EndpointName": "any", "ContentType": "application/json"}
record("openai-models", oai.models.list)
record("openai-completion", lambda: oai.completions.create(model=model, prompt="Once", max_tokens=2, stop=["q"], seed=1, user="u"))
record("openai-completion-stream", lambda: oai.completions.create(model=model, prompt="Once", max_tokens=2, stream=True))
record("openai-chat", lambda: oai.chat.completions.create(model=model, messages=chat, max_completion_tokens=2, extra_body={"top_k": 5}))
record("openai-response", lambda: oai.responses.create(model=model, input="Tell me a story.", max_output_tokens=2))
record("anthropic-message", lambda: ant.messages.create(model=model, messages=chat, max_tokens=2))
record("anthropic-stream", lambda: ant.messages.create(model=model, messages=chat, max_tokens=2, stream=True))
record("anthropic-count", lambda: ant.messages.count_tokens(model=model, messages=chat))
record("boto3-inputs", lambda: aws.invoke_endpoint(Body=inputs, TargetModel=f"{model}.tar.gz", **aws_arguments))
record("boto3-texts", lambda: aws.invoke_endpoint(Body=texts, **aws_arguments))
record("boto3-stream", lambda: aws.invoke_endpoint_with_response_stream(Body=inputs, **aws_arguments))
record("hub-text", lambda: hub.text_generation("Once", max_new_tokens=2, details=True))
record("hub-stream", lambda: hub.text_generation("Once", max_new_tokens=2, stream=True).__next__())
record("triton-ready", lambda: triton.is_model_ready(model))
record("triton-index", triton.get_model_repository_index)
