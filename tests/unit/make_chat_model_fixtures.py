#!/usr/bin/env python3
"""Fixtures of tests/unit/test_chat_families.c and tests/e2e/test_chat_families.c (pip: transformers==5.17.0, torch).

    make_chat_model_fixtures.py     -> fixtures/chat/{families.json,gptoss,qwen3,gemma3}

Own templates in the formats of harmony (gpt-oss), Qwen3 and Gemma 3 are rendered and encoded by transformers'
apply_chat_template, with the vocabularies of fixtures/tokenizer and the special tokens of the format. For each format a
tiny model of its family is trained until it knows an answer or two by heart; Lockstep must answer as transformers
then generates and decodes."""
import copy
import json
import os
import re

import torch
from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast
from transformers import Qwen3Config, Qwen3ForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "fixtures", "chat")

HARMONY = """\
<|start|>system<|message|>{{ model_identity | default('You are a small model.') }}
{% if date is defined %}{{ 'Current date: ' + date + '\\n' }}{% endif %}

Reasoning: {{ reasoning_effort | default('medium') }}

# Valid channels: analysis, commentary, final.
{%- if tools %}

Calls go to the channel 'commentary'.{% endif %}<|end|>
{%- set ns = namespace(first=0, call='') %}
{%- if messages[0].role in ['system', 'developer'] %}{% set ns.first = 1 %}{% endif %}
{%- if ns.first or tools %}
{{- '<|start|>developer<|message|>' }}
{%- if ns.first %}{{ '# Instructions\\n\\n' + messages[0].content }}{% endif %}
{%- if tools %}{{ '\\n\\n' if ns.first else '' }}{{ '# Tools\\n\\nnamespace functions {\\n' }}
{%- for tool in tools %}
    {%- set f = tool.function %}
    {{- '\\n// ' + f.description + '\\ntype ' + f.name + ' = (' }}
    {%- if f.parameters and f.parameters.properties %}{{ '_: {\\n' }}
    {%- for key, what in f.parameters.properties.items() %}
        {{- key + ('' if key in f.parameters.required | default([]) else '?') + ': ' }}
        {%- if what.enum %}{{ what.enum | map('tojson') | join(' | ') }}{% else %}{{ what.type }}{% endif %}{{ ',\\n' }}
    {%- endfor %}{{ '}' }}{% endif %}{{ ') => any;\\n' }}
{%- endfor %}{{ '\\n} // namespace functions' }}{% endif %}
{{- '<|end|>' }}
{%- endif %}
{%- for m in messages[ns.first:] %}
{%- if m.role == 'assistant' %}
    {%- if m.tool_calls %}
        {%- set call = m.tool_calls[0].function %}{% set ns.call = call.name %}
        {%- if m.reasoning_content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.reasoning_content + '<|end|>' }}{% endif %}
        {{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary <|constrain|>json<|message|>' }}
        {{- call.arguments if call.arguments is string else call.arguments | tojson }}{{ '<|call|>' }}
    {%- else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}{% endif %}
{%- elif m.role == 'tool' %}{{ '<|start|>functions.' + ns.call + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson + '<|end|>' }}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

QWEN3 = """\
{%- if tools %}
{{- '<|im_start|>system\\n' + (messages[0].content + '\\n\\n' if messages[0].role == 'system' else '') }}
{{- '# Tools\\n\\nThe functions, as JSON within <tools></tools>:\\n<tools>' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{% endfor %}
{{- '\\n</tools>\\n\\nCall one as <tool_call>\\n{\"name\": NAME, \"arguments\": OBJECT}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{ '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages[::-1] %}
    {%- if ns.last < 0 and m.role == 'user' %}{% set ns.last = messages | length - 1 - loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
    {%- set content = m.content if m.content is string else '' %}
    {%- set thought = m.reasoning_content if m.reasoning_content is string else '' %}
    {%- if not thought and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if thought and loop.index0 > ns.last %}{{ '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}{% endif %}
    {{- content }}
    {%- for call in m.tool_calls or [] %}
        {{- '\\n' if content or not loop.first else '' }}
        {{- '<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}
        {{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
        {{- '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
    {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""

GEMMA3 = """\
{{ bos_token }}
{%- set ns = namespace(before='', first=0) %}
{%- if messages[0].role == 'system' %}{% set ns.before = messages[0].content + '\\n\\n' %}{% set ns.first = 1 %}{% endif %}
{%- for m in messages[ns.first:] %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('user and assistant take turns') }}{% endif %}
    {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + (ns.before if loop.first else '') }}
    {%- if m.content is string %}{{ m.content | trim }}
    {%- else %}{% for part in m.content %}{% if part.type == 'text' %}{{ part.text | trim }}{% endif %}{% endfor %}
    {%- endif %}
    {{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def called(name, arguments, **more):
    return message("assistant", "", tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}], **more)


TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells the weather, in \u00b0C.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "The time."}}]
USER = message("user", "Hello, world")
TURNS = [message("system", "Be brief."), USER, message("assistant", "Hi \u4e16\u754c"), message("user", " don't\n 3.14? ")]
THOUGHT = [USER, message("assistant", "<think>\nOld.\n</think>\n\nHi"), message("user", "And \U0001f600 e\u0301?")]
ASKED = [message("user", "Rain?"), called("weather", {"city": "K\u00f6ln", "unit": "C"}, reasoning_content="Let me look."),
         message("tool", "{\"rain\": true}")]
SYSTEM_ASKED = [message("system", "You know it all."), *ASKED, message("assistant", "Yes, it rains.")]
TWO_CALLS = [message("user", "When?"), called("now", {}), message("tool", "12:00"), message("tool", "noon"), message("assistant", "Noon.", reasoning_content="At 12.\n")]

# Messages, tools, variables of the template.
CHATS = [([USER], None, {}), (TURNS, None, {}), (THOUGHT, None, {}), ([message("user", "")], None, {}),
         ([USER, USER], None, {}), ([message("system", "Only this.")], None, {})]
TOOL_CHATS = [(TURNS, TOOLS, {}), (ASKED, TOOLS, {}), (SYSTEM_ASKED, TOOLS, {}), (TWO_CALLS, TOOLS[1:], {})]
CHANNELS = {"analysis": "reasoning", "final": "content"}
FAMILIES = {
    "gptoss": {
        "vocabulary": "o200k", "template": HARMONY, "bos": "<|startoftext|>", "eos": "<|return|>",
        "added": ["<|startoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>"],
        "chats": CHATS + TOOL_CHATS + [([USER], None, {"reasoning_effort": "high", "date": "2026-01-02"}),
                                       ([USER], None, {"model_identity": "You are another."})],
        "answers": [(0, "<|channel|>analysis<|message|>The user says hello, so I say it too.<|end|><|start|>assistant"
                        "<|channel|>final<|message|>Hello! It's \u4e16\u754c.<|return|>"),
                    (1, "<|channel|>final<|message|> don't: 3.14\n<|return|>")],
        "parts": r"<\|channel\|>(?P<name>analysis|final)<\|message\|>(?P<text>.*?)<\|(?:end|return)\|>",
    },
    "qwen3": {
        "vocabulary": "qwen2", "template": QWEN3, "bos": None, "eos": "<|im_end|>", "special": False,
        "added": ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"],
        "chats": CHATS + TOOL_CHATS + [([USER], None, {"enable_thinking": False}), (TURNS, None, {"enable_thinking": False}),
                                       ([USER], None, {"enable_thinking": True})],
        "answers": [(0, "<think>\nHm, they say hello.\n</think>\n\nHello! It's \u4e16\u754c.<|im_end|>"), (10, "Hi, 3.14 \u00fc<|im_end|>")],
        "parts": r"(?s)(?:<think>\n(?P<reasoning>.*)\n</think>\n\n)?(?P<content>.*)<\|im_end\|>",
    },
    "gemma3": {
        "vocabulary": "gemma", "template": GEMMA3, "bos": "<s>", "eos": "<end_of_turn>", "added": ["<end_of_turn>"],
        "chats": CHATS + [([message("user", [{"type": "text", "text": " a b "}])], None, {})],
        "answers": [(0, "Hello \u4e16\u754c, it's\n\n  \u00fc!<end_of_turn>"), (1, "don't 3.14<end_of_turn>")],
        "parts": r"(?s)(?P<content>.*)<end_of_turn>",
    },
}


def full_vocabulary(family):
    """Returns the vocabulary followed by the format's own tokens, as the text of a tokenizer.json; and those tokens."""
    with open(os.path.join(HERE, "fixtures", "tokenizer", family["vocabulary"] + ".json"), encoding="utf-8") as f:
        whole = json.load(f)
    first = 1 + max([*whole["model"]["vocab"].values(), *(a["id"] for a in whole["added_tokens"])])
    added = [{"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": family.get("special", True)} for i, content in enumerate(family["added"])]
    whole["added_tokens"] += added
    return json.dumps(whole), added


def render(tokenizer, messages, tools, generation, variables):
    """Returns None, None if transformers refuses."""
    more = {"tools": tools, "add_generation_prompt": generation, **variables}
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, **more)
    except TemplateError:
        return None, None
    return text, tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **more)


def make_model(name, vocab_size, eos):
    common = {"vocab_size": vocab_size, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
              "head_dim": 8, "max_position_embeddings": 1024, "tie_word_embeddings": True, "sliding_window": 24,
              "layer_types": ["sliding_attention", "full_attention"], "bos_token_id": None, "eos_token_id": eos, "pad_token_id": None, "initializer_range": 0.2}
    if name == "gptoss":
        return GptOssForCausalLM(GptOssConfig(**common, intermediate_size=16, num_local_experts=3, num_experts_per_tok=2, rope_parameters={
            "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False,
            "original_max_position_embeddings": 256}))
    if name == "qwen3":
        common |= {"sliding_window": None, "layer_types": None}
        return Qwen3ForCausalLM(Qwen3Config(**common, intermediate_size=24, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}))
    return Gemma3ForCausalLM(Gemma3TextConfig(**common, intermediate_size=24, query_pre_attn_scalar=8, rope_parameters={
        "full_attention": {"rope_type": "default", "rope_theta": 1000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}))


def margin(model, prompt, answer):
    """Returns the margin of the answer's least certain token over any other, in logits."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer[:-1]])).logits[0, len(prompt) - 1:].float()
    right = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    others = logits.scatter(1, torch.tensor(answer)[:, None], -torch.inf).amax(1)
    return (right - others).min().item()


def teach(model, lessons):
    """Trains until every (prompt, answer) is known by heart, even with weights rounded to bfloat16."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0.0)
    for step in range(2000):
        loss = 0
        for prompt, answer in lessons:
            logits = model(torch.tensor([prompt + answer[:-1]])).logits[0, len(prompt) - 1:]
            loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor(answer))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 24:
            rounded = copy.deepcopy(model).to(torch.bfloat16)
            sure = min(margin(rounded, *lesson) for lesson in lessons)
            print(f"step {step + 1}: loss {loss.item():.4f}, margin {sure:.2f}", flush=True)
            if sure > 2:
                return rounded.eval()
    raise SystemExit("the model does not learn")


def answer_of(tokenizer, model, family, prompt):
    """Returns the tokens that transformers generates greedily, and their text."""
    with torch.no_grad():
        ids = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=100)[0, len(prompt):].tolist()
    parts = {}
    for found in re.finditer(family["parts"], tokenizer.decode(ids, skip_special_tokens=False), re.S):
        name = found.groupdict().get("name")
        found = {CHANNELS[name]: found["text"]} if name else found.groupdict()
        parts |= {key: text for key, text in found.items() if text}
    return {"ids": ids, **parts}


def make_family(name, family):
    torch.manual_seed(11)
    text, added = full_vocabulary(family)
    library = Tokenizer.from_str(text)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=library, bos_token=family["bos"], eos_token=family["eos"],
                                        chat_template=family["template"])
    cases = []
    for chat in [*family["chats"], ([USER], None, {"add_generation_prompt": False})]:
        messages, tools, variables = chat[0], chat[1], dict(chat[2])
        generation = variables.pop("add_generation_prompt", messages[-1]["role"] != "assistant")
        rendered, ids = render(tokenizer, messages, tools, generation, variables)
        case = {"messages": messages, "add_generation_prompt": generation, "rendered": rendered, "ids": ids}
        cases.append(case | ({"tools": tools} if tools else {}) | ({"variables": variables} if variables else {}))
    model = make_model(name, library.get_vocab_size(), library.token_to_id(family["eos"]))
    lessons = [(cases[i]["ids"], tokenizer.encode(answer, add_special_tokens=False)) for i, answer in family["answers"]]
    model = teach(model, lessons)
    for (i, _), (prompt, answer) in zip(family["answers"], lessons):
        cases[i]["answer"] = answer_of(tokenizer, model, family, prompt)
        assert cases[i]["answer"]["ids"] == answer, (tokenizer.decode(cases[i]["answer"]["ids"]), answer)
    model.save_pretrained(os.path.join(OUT, name))
    os.chmod(os.path.join(OUT, name, "model.safetensors"), 0o644)
    os.remove(os.path.join(OUT, name, "generation_config.json"))
    return {"name": name, "vocabulary": family["vocabulary"], "added": added, "bos": family["bos"], "eos": family["eos"],
            "template": family["template"], "cases": cases}


def main():
    torch.set_num_threads(1)
    families = [make_family(name, family) for name, family in FAMILIES.items()]
    with open(os.path.join(OUT, "families.json"), "w", encoding="utf-8") as f:
        json.dump(families, f, separators=(",", ":"), ensure_ascii=True)
        f.write("\n")


if __name__ == "__main__":
    main()
