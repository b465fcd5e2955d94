"""tests/door/openai_client.py - the official OpenAI client against lockstep-gateway with the demo model: what it gets has the shapes
that it expects (it validates strictly where OpenAI's own answers pass), and errors become its exceptions.

usage: openai_client.py URL      prints TAP
"""
import sys

import openai

url = sys.argv[1] + "/v1"
strict = openai.OpenAI(base_url=url, api_key="x", max_retries=0, _strict_response_validation=True)
loose = openai.OpenAI(base_url=url, api_key="x", max_retries=0) # streamed texts, echo: stricter than OpenAI itself
model = "lockstep-stories"
chat = [{"role": "user", "content": "Tell me a story."}]
n_cases = n_failed = 0


def check(name, good, found=""):
    global n_cases, n_failed
    n_cases += 1
    n_failed += not good
    print(f"# {found}" if not good else "", end="\n" if not good else "")
    print(f"{'ok' if good else 'not ok'} {n_cases} - {name}")


def fails(name, exception, code, param, call):
    try:
        found = call()
    except openai.APIStatusError as e:
        check(name, isinstance(e, exception) and e.code == code and e.param == param and e.request_id, repr((e, e.code, e.param)))
    else:
        check(name, False, found)


def main():
    check("models", [m.id for m in strict.models.list()] == [model] and strict.models.retrieve(model).id == model)
    r = strict.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=2, n=2, best_of=2,
                                  stop=["zz"], logit_bias={"5": -1}, presence_penalty=0, seed=1, user="u")
    check("a completion", r.choices[1].text == ", there was a little boy named Tom" and r.usage.total_tokens == 21 and
          len(r.choices[0].logprobs.tokens) == 8 and r._request_id, r)
    r = strict.chat.completions.create(model=model, messages=chat, max_completion_tokens=6, temperature=0, logprobs=True,
                                       top_logprobs=2, extra_body={"top_k": 5})
    check("a chat", r.choices[0].message.content == "Once upon a time," and r.choices[0].finish_reason == "length" and
          len(r.choices[0].logprobs.content[1].top_logprobs) == 2, r)
    events = list(strict.chat.completions.create(model=model, messages=chat, max_tokens=6, temperature=0, stream=True, n=2,
                                                 stream_options={"include_usage": True}))
    texts = ["".join(e.choices[0].delta.content or "" for e in events if e.choices and e.choices[0].index == i) for i in (0, 1)]
    check("a chat's stream", texts == ["Once upon a time,"] * 2 and events[-1].usage.completion_tokens == 12, texts)
    events = list(loose.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True))
    text = "".join(e.choices[0].text for e in events)
    check("a completion's stream", text == ", there was a little boy named Tom" and events[-1].choices[0].finish_reason == "length", text)
    r = loose.completions.create(model=model, prompt=["The cat", "The dog"], max_tokens=1, temperature=0, echo=True, logprobs=1)
    l = r.choices[1].logprobs
    check("scores of prompts", len(l.tokens) == 5 and l.token_logprobs[0] is None and l.text_offset[0] == 0 and
          l.tokens[0] == "<|begin_of_text|>" and l.tokens[1] == "The", l)
    fails("another model", openai.NotFoundError, "model_not_found", "model", lambda: strict.completions.create(model="no", prompt="x"))
    fails("too long", openai.BadRequestError, "context_length_exceeded", "max_tokens",
          lambda: strict.completions.create(model=model, prompt="x", max_tokens=9000))
    fails("out of range", openai.BadRequestError, None, "temperature",
          lambda: strict.completions.create(model=model, prompt="x", temperature=-1))
    fails("an unknown field", openai.BadRequestError, None, "zzz",
          lambda: strict.completions.create(model=model, prompt="x", extra_body={"zzz": 1}))
    fails("a suffix", openai.BadRequestError, None, "suffix", lambda: strict.completions.create(model=model, prompt="x", suffix="y"))
    fails("an image", openai.BadRequestError, None, "messages[0].content",
          lambda: strict.chat.completions.create(model=model, messages=[{"role": "user", "content": [
              {"type": "image_url", "image_url": {"url": "x"}}]}]))
    print(f"1..{n_cases}")
    sys.exit(n_failed > 0)


main()
