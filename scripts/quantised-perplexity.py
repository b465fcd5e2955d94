#!/usr/bin/env python3
"""The cost of quantised formats in accuracy: the perplexity of the demo model in each, on stories that it was not trained on.

    scripts/quantised-perplexity.py [--stories 200] [--lockstep build/cpu/lockstep] [--only REGEX]

Writes the demo's matrices in every format with numpy alone, by rounding to nearest (no calibration), and lets
`lockstep generate --prompt-logprobs` score the same new stories of demo/stories.py. Prints a Markdown table: bytes of all
weights, perplexity, its growth over the checkpoint's own, and the mean change of a token's log-probability.
"""
import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "demo"))
import stories  # noqa: E402

MODEL = ROOT / "demo" / "lockstep-stories"
SEED = 424242  # seed of the stories; training used small seeds
E4M3 = np.array([(c & 7) / 8 * 2.0**-6 if not c & 0x78 else (1 + (c & 7) / 8) * 2.0 ** ((c >> 3) - 7) for c in range(0x7F)])
TYPES = {"BF16": 2, "F32": 4}


def read_weights():
    """Returns {name: (dtype, shape, bytes)} of the demo."""
    data = (MODEL / "model.safetensors").read_bytes()
    n = int.from_bytes(data[:8], "little")
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}


def write_weights(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(t[2] for t in tensors.values()))


def as_floats(tensor):
    return (np.frombuffer(tensor[2], np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(tensor[1])


def f32(x):
    return "F32", x.shape, x.astype("<f4").tobytes()


def blocks(w, rows, cols, f):
    return np.array([[f(w[r:r + rows, c:c + cols]) for c in range(0, w.shape[1], cols)] for r in range(0, w.shape[0], rows)])


def spread(scale, rows, cols, shape):
    return np.repeat(np.repeat(scale, rows, 0), cols, 1)[:shape[0], :shape[1]]


def fp8(w, rows, cols, name):
    scale = blocks(w, rows, cols, lambda b: np.abs(b).max() / 448).astype(np.float32)
    x = np.abs(w) / spread(scale, rows, cols, w.shape)
    middles = (E4M3[1:] + E4M3[:-1]) / 2
    codes = np.searchsorted(middles, x).astype(np.uint8) | np.signbit(w).astype(np.uint8) << 7
    return {".weight": ("F8_E4M3", w.shape, codes.tobytes()), name: f32(scale)}


def int8(w):
    scale = (np.abs(w).max(1, keepdims=True) / 127).astype(np.float32)
    return {".weight": ("I8", w.shape, np.rint(w / scale).astype(np.int8).tobytes()), ".weight_scale": f32(scale)}


def pack(fields):
    pad = -fields.shape[-1] % 8
    u = np.pad(fields.astype(np.uint32), [(0, 0), (0, pad)]).reshape(fields.shape[0], -1, 8)
    words = (u << (np.arange(8, dtype=np.uint32) * 4)).sum(-1, dtype=np.uint32)
    return "I32", words.shape, words.astype("<u4").tobytes()


def int4(w, group, symmetric):
    low, high = blocks(w, 1, group, np.min), blocks(w, 1, group, np.max)
    if symmetric:
        scale, zero = np.maximum(np.abs(low), np.abs(high)) / 7.5, np.full(low.shape, 8)
    else:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        scale = (high - low) / 15
        zero = np.rint(-low / scale)
    scale = scale.astype(np.float32)
    codes = np.clip(np.rint(w / spread(scale, 1, group, w.shape) + spread(zero, 1, group, w.shape)), 0, 15)
    out = {".weight_packed": pack(codes), ".weight_scale": f32(scale),
           ".weight_shape": ("I64", [2], np.array(w.shape, "<i8").tobytes())}
    if not symmetric:
        words = pack(zero.T)
        turned = np.frombuffer(words[2], "<u4").reshape(words[1]).T
        out[".weight_zero_point"] = ("I32", turned.shape, turned.tobytes())
    return out


def scheme(format, inputs=None, **weights):
    group = {"targets": ["Linear"], "weights": weights, **({"input_activations": inputs} if inputs else {})}
    return {"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"], "config_groups": {"all": group}}


def packed(group, symmetric):
    return lambda w: int4(w, group, symmetric), scheme("pack-quantized", num_bits=4, type="int", strategy="group",
                                                       group_size=group, symmetric=symmetric)


WIDE = (None, None)
A_TOKEN = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
QUANTISED_INPUTS = ["--quantized-activations", "on"]
# name, (writer of a matrix, "quantization_config"), options of the command
FORMATS = [
    ("BF16, the checkpoint", WIDE, []),
    ("keys and values FP8, scales of 1 (`--kv-cache-dtype fp8`)", WIDE, ["--kv-cache-dtype", "fp8"]),
    ("FP8, a scale a row, at load (`--quantization fp8`)", WIDE, ["--quantization", "fp8"]),
    ("the same and the head (`--head-dtype fp8`)", WIDE, ["--quantization", "fp8", "--head-dtype", "fp8"]),
    ("the same, keys and values FP8", WIDE, ["--quantization", "fp8", "--head-dtype", "fp8", "--kv-cache-dtype", "fp8"]),
    ("FP8, one scale", (lambda w: fp8(w, *w.shape, ".weight_scale"), {"quant_method": "fp8"}), []),
    ("the same, activations FP8, a scale a token",
     (lambda w: fp8(w, *w.shape, ".weight_scale"), {"quant_method": "fp8", "activation_scheme": "dynamic"}),
     QUANTISED_INPUTS),
    ("FP8, blocks of 128 x 128", (lambda w: fp8(w, 128, 128, ".weight_scale_inv"),
                                  {"quant_method": "fp8", "weight_block_size": [128, 128]}), []),
    ("the same, activations FP8, a scale for 128 of a token",
     (lambda w: fp8(w, 128, 128, ".weight_scale_inv"),
      {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}), QUANTISED_INPUTS),
    ("INT8, a scale a row", (int8, scheme("int-quantized", num_bits=8, type="int", strategy="channel")), []),
    ("the same, activations INT8, a scale a token",
     (int8, scheme("int-quantized", A_TOKEN, num_bits=8, type="int", strategy="channel")), QUANTISED_INPUTS),
    ("INT4, groups of 32, symmetric", packed(32, True), []),
    ("INT4, groups of 32, zeros", packed(32, False), []),
    ("INT4, groups of 64, symmetric", packed(64, True), []),
    ("INT4, groups of 64, zeros", packed(64, False), []),
]


def make_folder(to, writer, config):
    """Writes the demo in a format; returns the bytes of its weights."""
    shutil.copytree(MODEL, to)
    tensors = read_weights()
    if writer is not None:
        for name in [n for n in tensors if n.endswith("_proj.weight")]:
            for end, tensor in writer(as_floats(tensors.pop(name)).astype(np.float64)).items():
                tensors[name[:-len(".weight")] + end] = tensor
        settings = json.loads((to / "config.json").read_text())
        settings["quantization_config"] = config
        (to / "config.json").write_text(json.dumps(settings))
    write_weights(to / "model.safetensors", tensors)
    return sum(len(t[2]) for t in tensors.values())


def score(lockstep, folder, prompts, options):
    """Returns the log-probabilities of all tokens except the first of each story."""
    run = subprocess.run([lockstep, "generate", "--model", folder, "--prompts", prompts, "--max-tokens", "1", "--json",
                          "--prompt-logprobs", "0", *options], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return np.array([t["logprob"] for line in run.stdout.splitlines() for t in json.loads(line)["prompt_logprobs"][1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stories", default=200, type=int)
    parser.add_argument("--lockstep", default=str(ROOT / "build/cpu/lockstep"))
    parser.add_argument("--only", default="", help="formats whose name matches this regular expression, beside the first")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        prompts, reference = Path(made) / "stories.jsonl", None
        texts = list(stories.stories(SEED, args.stories))
        prompts.write_text("".join(json.dumps({"prompt": t}) + "\n" for t in texts))
        print("| format | weights, MB | perplexity | growth | mean change of log p |\n|---|---|---|---|---|")
        for i, (name, (writer, config), options) in enumerate(FORMATS):
            if i > 0 and not re.search(args.only, name):
                continue
            folder = Path(made) / str(i)
            size = make_folder(folder, writer, config)
            found = score(args.lockstep, str(folder), str(prompts), options)
            reference = found if reference is None else reference
            wide = 100 * math.expm1(reference.mean() - found.mean())
            print(f"| {name} | {size / 1e6:.2f} | {math.exp(-found.mean()):.4f} | {wide:+.2f} % | "
                  f"{np.abs(found - reference).mean():.4f} |", flush=True)
        print(f"\n{len(texts)} stories, {len(reference)} tokens scored")


if __name__ == "__main__":
    main()
