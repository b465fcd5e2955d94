#!/usr/bin/env python3
"""Fixtures of tests/unit/test_chat.c: what transformers' apply_chat_template makes of chats (pip: jinja2 3.1, tokenizers 0.23).

    make_chat_fixtures.py TEMPLATES.json     -> fixtures/chat/cases.json

TEMPLATES.json maps the names of text/chat_format.c to lists of Jinja templates as checkpoints have them; their texts stay
out of the repository, only their digests go in. They are rendered as transformers 4.57 does: immutable sandbox, trim_blocks,
lstrip_blocks, loop controls. All templates of one name must render alike. A text is an original where its SHA-256 is one that others have published for
the checkpoint's template: true of qwen-2 (793202280c09), qwen-2.5 (cd8e9439f057), its base models (44d5f08f3f72), qwen-3 (a55ee1b16601),
qwen-3-instruct (64f85b198065), smollm (872be49dbb63), llama-3.2 (5816fce10444), mistral (26a59556925c), mistral-0.3 (e16746b40344),
mistral-nemo (e4676cb56dff), zephyr (66291cf0045c), deepseek-llm (8aeba567270f) and deepseek-r1 (56a1447ad319). Token ids are those of the reference library for the
rendered text, with the vocabularies of fixtures/tokenizer."""
import datetime
import json
import os
import sys

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
BOS, EOS = "<s>", "</s>"
DATE = "@DATE@"  # stands for today's
VOCABULARIES = {"qwen2": ["chatml", "qwen-2.5", "qwen-3"], "llama2": ["llama-2", "mistral", "zephyr"], "llama3": ["llama-3"]}

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
CHATS = {
    "one": [(USER, "Hello, world")],
    "system": [(SYSTEM, "Be brief."), (USER, "Hello")],
    "turns": [(USER, "Hello"), (ASSISTANT, "Hi there"), (USER, "And now?")],
    "system-turns": [(SYSTEM, "Be brief."), (USER, "a"), (ASSISTANT, "b"), (USER, "c"), (ASSISTANT, "d"), (USER, "e")],
    "blanks": [(SYSTEM, "  sys \n"), (USER, "\n\n  spaced\u00a0\u2003 text \x1c\n"), (ASSISTANT, " \tanswer\u2028 "), (USER, " x ")],
    "empty": [(USER, "")],
    "empty-system": [(SYSTEM, ""), (USER, "Hello")],
    "blank-user": [(SYSTEM, "s "), (USER, "  \n ")],
    "unicode": [(USER, "Grüße 你好 😀\u200b e\u0301")],
    "newlines": [(USER, "\nfirst\n\nsecond\n")],
    "answered": [(USER, "Hello"), (ASSISTANT, "Hi")],
    "late-system": [(USER, "Hello"), (SYSTEM, "Be brief."), (USER, "again")],
    "two-users": [(USER, "a"), (USER, "b")],
    "assistant-first": [(ASSISTANT, "a"), (USER, "b")],
    "system-alone": [(SYSTEM, "s")],
    "critic": [("critic", "hm"), (USER, "b")],
    "thoughts": [(USER, "q"), (ASSISTANT, "<think>\nold\n</think>\n\nanswer"), (USER, "r")],
    "thoughts-last": [(USER, "q"), (ASSISTANT, "<think>\n\nnew\n\n</think>\n\n\nanswer</think>\n more\n")],
    "thoughts-twice": [(USER, "q"), (ASSISTANT, "<think>a</think>x"), (ASSISTANT, "\n\nplain")],
    "system-answered": [(SYSTEM, "s"), (USER, "a"), (ASSISTANT, "b")],
    "tool-response": [(USER, "q"), (ASSISTANT, "<think>a</think>x"), (USER, "<tool_response>1</tool_response>"), (ASSISTANT, "y")],
}
# Chats that a template renders although it drops turns that it does not know, or has no words for: we refuse them instead.
REFUSED = {("qwen-2.5", "critic"), ("qwen-3", "critic"), ("llama-3.1", "critic"), ("llama-3.2", "critic"), ("zephyr", "critic"),
           ("deepseek-llm", "critic"), ("openchat", "critic"), ("llama-2", "system-alone"),
           ("llama-2", "late-system"), ("mistral-nemo", "system-alone"), ("mistral-nemo", "system-answered"),
           ("mistral-0.3", "system-alone"), ("mistral-0.3", "system-answered"), ("qwen-2.5-base", "critic"), ("qwen-3-instruct", "critic"),
           ("deepseek-r1", "critic"), ("deepseek-r1", "late-system")}


def digest(text):
    data = text.encode()
    data = data[:-1] if data.endswith(b"\n") else data
    h = 0xcbf29ce484222325
    for byte in data:
        h = ((h ^ byte) * 0x100000001b3) & (1 << 64) - 1
    return h


def render(template, chat, add_generation_prompt):
    def raise_exception(message):
        raise TemplateError(message)
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: DATE if form == "%d %b %Y" else datetime.datetime.now().strftime(form)
    try:
        return env.from_string(template).render(
            messages=[{"role": role, "content": content} for role, content in chat], bos_token=BOS, eos_token=EOS,
            add_generation_prompt=add_generation_prompt)
    except TemplateError:
        return None


def main():
    templates = json.load(open(sys.argv[1]))
    vocabulary = {name: Tokenizer.from_file(os.path.join(HERE, "fixtures", "tokenizer", name + ".json")) for name in VOCABULARIES}
    out = {"bos": BOS, "eos": EOS, "date": DATE, "formats": []}
    for name, texts in sorted(templates.items()):
        cases = []
        for chat_name, chat in CHATS.items():
            for generation in (True, False):
                made = {render(text, chat, generation) for text in texts}
                assert len(made) == 1, (name, chat_name, made)
                text = made.pop()
                refused = (name, chat_name) in REFUSED
                case = {"name": chat_name, "messages": [{"role": r, "content": c} for r, c in chat],
                        "add_generation_prompt": generation, "rendered": None if refused else text}
                for v, formats in VOCABULARIES.items():
                    if name in formats and case["rendered"] is not None:
                        case.setdefault("ids", {})[v] = vocabulary[v].encode(text, add_special_tokens=False).ids
                cases.append(case)
        out["formats"].append({"name": name, "digests": ["%016x" % digest(t) for t in texts], "cases": cases})
    with open(os.path.join(HERE, "fixtures", "chat", "cases.json"), "w") as f:
        json.dump(out, f, separators=(",", ":"), ensure_ascii=True)
        f.write("\n")


if __name__ == "__main__":
    main()
