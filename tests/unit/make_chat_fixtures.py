#!/usr/bin/env python3
"""Fixtures of tests/unit/test_chat.c: texts and token ids of chats (pip: jinja2==3.1.6, tokenizers 0.23).

    make_chat_fixtures.py     -> fixtures/chat/cases.json

Own templates, in the formats of ChatML, Llama 3, Mistral and DeepSeek, are rendered as make_template_fixtures.py does; token ids are those
of the reference library for the rendered text, with the vocabularies of fixtures/tokenizer."""
import json
import os

from make_template_fixtures import HERE, render
from tokenizers import Tokenizer

BOS, EOS = "<s>", "</s>"
TEMPLATES = {
    "chatml": ("qwen2", "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
                        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"),
    "thinking": ("qwen2", "{% for m in messages %}<|im_{{ 'start' }}|>{{ m.role }}\n{{ m.content.split('</think>')[-1].lstrip('\\n') }}<|im_end|>\n"
                          "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}"),
    "header": ("llama3", "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
                         "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"),
    "bars": ("deepseek", "{% set ns = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
                         "{% set ns.system = ns.system + ('\\n\\n' if ns.system else '') + m['content'] %}{% endif %}{% endfor %}{{ bos_token }}{{ ns.system }}"
                         "{% for m in messages %}{% if m['role'] == 'user' %}{{ '<\uff5cUser\uff5c>' + m['content'] }}{% elif m['role'] == 'assistant' %}"
                         "{% set content = m['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
                         "{{ '<\uff5cAssistant\uff5c>' + content + '<\uff5cend\u2581of\u2581sentence\uff5c>' }}{% endif %}{% endfor %}"
                         "{% if add_generation_prompt %}{{ '<\uff5cAssistant\uff5c>' }}{% endif %}"),
    "inst": ("llama2", "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('take turns') }}"
                       "{% endif %}{{ '[INST] ' ~ m.content ~ ' [/INST]' if m.role == 'user' else m.content ~ eos_token }}{% endfor %}"),
}
USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
CHATS = [
    [(USER, "Hello, world")], [(SYSTEM, "Be brief."), (USER, "Hello")], [(USER, "Hello"), (ASSISTANT, "Hi there"), (USER, "And now?")],
    [(USER, "\n\n  spaced\u00a0\u2003 text \x1c\n"), (ASSISTANT, " \tanswer\u2028 "), (USER, " x ")], [(USER, "")], [(USER, "Gr\u00fc\u00dfe \u4f60\u597d \U0001f600\u200b e\u0301")],
    [(USER, "\nfirst\n\nsecond\n")], [(USER, "q"), (ASSISTANT, "<think>\nold\n</think>\n\nanswer"), (USER, "r")], [(USER, "a"), (USER, "b")],
]


def main():
    out = {"bos": BOS, "eos": EOS, "templates": []}
    for name, (vocabulary, template) in TEMPLATES.items():
        library = Tokenizer.from_file(os.path.join(HERE, "fixtures", "tokenizer", vocabulary + ".json"))
        cases = []
        for chat in CHATS:
            for generation in (True, False):
                messages = [{"role": r, "content": c} for r, c in chat]
                text = render(template, {"messages": messages, "add_generation_prompt": generation, "bos_token": BOS, "eos_token": EOS})
                ids = library.encode(text, add_special_tokens=False).ids if text is not None else None
                cases.append({"messages": messages, "add_generation_prompt": generation, "rendered": text, "ids": ids})
        out["templates"].append({"name": name, "vocabulary": vocabulary, "template": template, "cases": cases})
    with open(os.path.join(HERE, "fixtures", "chat", "cases.json"), "w", encoding="utf-8") as f:
        json.dump(out, f, separators=(",", ":"), ensure_ascii=True)
        f.write("\n")


if __name__ == "__main__":
    main()
