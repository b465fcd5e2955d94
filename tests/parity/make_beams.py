#!/usr/bin/env python3
"""Build tests/parity/beams.json: results of Hugging Face transformers' beam search on checkpoints of the parity fixtures.

    python3 tests/parity/make_beams.py

For each case: the checkpoint, the prompt's ids (the fixture's own), the search, and its hypotheses, best first: generated
ids (the end-of-text id included) and sequences_scores. A case is kept only if the same search in float64 finds the same
ids, so that none depends on rounding. Needs torch, transformers 5.x, safetensors.
"""
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
MODELS = ["llama-14-2-gelu", "gptj-3h", "opt-pre"]


def searches(eos):
    """num_beams, length_penalty, early_stopping, max_new_tokens, min_new_tokens, eos ids, hypotheses wanted"""
    yield 2, 1.0, False, 12, 0, [], 2
    yield 4, 1.0, False, 20, 0, eos[:1], 4
    yield 4, 1.0, True, 20, 0, eos[:1], 4
    yield 4, 1.0, "never", 20, 0, eos[:1], 2
    yield 3, 0.0, False, 16, 0, eos, 3
    yield 3, 0.0, "never", 16, 0, eos, 3
    yield 5, 2.0, False, 24, 0, eos[:2], 3
    yield 5, 2.0, "never", 24, 0, eos[:2], 5
    yield 5, -1.0, True, 24, 0, eos[:2], 5
    yield 6, -1.0, "never", 24, 0, eos, 1
    yield 10, 0.6, False, 20, 0, eos, 10
    yield 10, 1.0, True, 20, 6, eos, 10
    yield 4, 1.0, False, 12, 12, eos, 4
    yield 7, 1.0, False, 1, 0, eos, 7


def run(model, prompt, search):
    beams, penalty, early, new, least, eos, n = search
    out = model.generate(prompt[None], attention_mask=torch.ones_like(prompt)[None], do_sample=False, num_beams=beams,
                         length_penalty=penalty, early_stopping=early, max_new_tokens=new, min_new_tokens=least or None,
                         eos_token_id=eos or None, pad_token_id=0, num_return_sequences=n, output_scores=True,
                         return_dict_in_generate=True)
    found = []
    for row, score in zip(out.sequences[:, len(prompt):].tolist(), out.sequences_scores.tolist()):
        end = next((i + 1 for i, t in enumerate(row) if t in eos), len(row))
        found.append({"ids": row[:end], "score": score})
    return found


def main():
    cases, dropped = [], 0
    for name in MODELS:
        folder = HERE / "fixtures" / name
        expected = load_file(folder / "expected.safetensors")
        prompt = expected["prompt"].long()
        likely = torch.topk(expected["logits"][len(prompt) - 1:].mean(0), 8).indices.tolist()
        eos = sorted(likely[3:6])  # likely enough to end hypotheses, but not all at once
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        exact = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
        for search in searches(eos):
            found, check = run(model, prompt, search), run(exact, prompt, search)
            if [f["ids"] for f in found] != [f["ids"] for f in check]:
                dropped += 1
                continue
            keys = "num_beams length_penalty early_stopping max_tokens min_tokens eos n".split()
            cases.append({"model": name, "prompt": prompt.tolist(), **dict(zip(keys, search)), "found": found})
    lines = ",\n".join(json.dumps(c) for c in cases)
    (HERE / "beams.json").write_text("[\n" + lines + "\n]\n")
    print(f"{len(cases)} cases, {dropped} dropped")


main()
