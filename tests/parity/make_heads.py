#!/usr/bin/env python3
"""Build tests/parity/heads: tiny random EAGLE-3 heads for models of tests/parity/fixtures, with their answers.

    python3 tests/parity/make_heads.py

makes NAME/ with config.json and model.safetensors (what the runtime loads) and expected.safetensors:
prompt I32 [p], logits F32 [p - 1, draft vocabulary] of the head at each token of the prompt but the last, and of a
chain of drafts after it: drafts I32 [k], draft_logits F32 [k, draft vocabulary].

The oracle is the forward of this file: plain Python in 64-bit floats, of the model as well as of the head. No run of
another program is compared. Weights are random; their seeds are fixed, so that a rerun gives the same files.
"""
import json
import math
import random
import struct
from pathlib import Path

HERE = Path(__file__).parent
N_DRAFTS = 4


# ---- files ----

def load(path):
    data = path.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        raw = data[8 + n + begin:8 + n + end]
        kind = {"F32": "f", "F16": "e", "I32": "i"}[t["dtype"]]
        out[name] = (t["shape"], list(struct.unpack("<%d%s" % (len(raw) // struct.calcsize(kind), kind), raw)))
    return out


def save(path, tensors):
    """tensors: {name: (dtype, shape, flat values)}"""
    head, body = {}, b""
    for name in sorted(tensors):
        dtype, shape, values = tensors[name]
        kind = {"F32": "f", "F16": "e", "I32": "i", "I64": "q", "BOOL": "?"}[dtype]
        raw = struct.pack("<%d%s" % (len(values), kind), *values)
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


# ---- numbers ----

def product(weight, x):
    (rows, cols), w = weight
    assert cols == len(x), (rows, cols, len(x))
    return [sum(w[r * cols + c] * x[c] for c in range(cols)) for r in range(rows)]


def norm(x, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight[1])]


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def row(weight, i):
    cols = weight[0][1]
    return weight[1][i * cols:(i + 1) * cols]


def rotate(x, pos, theta):
    half = len(x) // 2
    out = list(x)
    for j in range(half):
        angle = pos * theta ** (-2 * j / len(x))
        c, s = math.cos(angle), math.sin(angle)
        out[j], out[j + half] = x[j] * c - x[j + half] * s, x[j + half] * c + x[j] * s
    return out


class Layer:
    """A Llama or Qwen3 layer: `at` is the prefix of its names. Keys and values are kept by position."""

    def __init__(self, weights, at, config):
        self.w = {name[len(at):]: value for name, value in weights.items() if name.startswith(at)}
        self.c = config
        self.keys, self.values = [], []

    def heads(self, name, x, pos):
        d, c = self.c["head_dim"], self.c
        y = product(self.w["self_attn.%s_proj.weight" % name], x)
        if name + "_proj.bias" in self.w:
            y = add(y, self.w["self_attn.%s_proj.bias" % name][1])
        y = [y[i:i + d] for i in range(0, len(y), d)]
        gain = self.w.get("self_attn.%s_norm.weight" % name)
        if gain is not None:
            y = [norm(h, gain, c["rms_norm_eps"]) for h in y]
        return y if name == "v" else [rotate(h, pos, c["rope_theta"]) for h in y]

    def attend(self, x, pos):
        """Position pos overwrites what was kept there, and what was behind it is forgotten."""
        d, group = self.c["head_dim"], self.c["num_attention_heads"] // self.c["num_key_value_heads"]
        del self.keys[pos:], self.values[pos:]
        self.keys.append(self.heads("k", x, pos))
        self.values.append(self.heads("v", x, pos))
        out = []
        for h, q in enumerate(self.heads("q", x, pos)):
            score = [sum(a * b for a, b in zip(q, k[h // group])) / math.sqrt(d) for k in self.keys]
            most = max(score)
            weight = [math.exp(s - most) for s in score]
            total = sum(weight)
            out += [sum(w * v[h // group][j] for w, v in zip(weight, self.values)) / total for j in range(d)]
        return product(self.w["self_attn.o_proj.weight"], out)

    def mlp(self, x):
        gate, up = product(self.w["mlp.gate_proj.weight"], x), product(self.w["mlp.up_proj.weight"], x)
        return product(self.w["mlp.down_proj.weight"], [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])

    def forward(self, x, inputs, pos):
        """The stream behind the layer: x is the one before it, inputs what attention takes."""
        x = add(x, self.attend(inputs, pos))
        return add(x, self.mlp(norm(x, self.w["post_attention_layernorm.weight"], self.c["rms_norm_eps"])))


def read_config(path):
    c = json.loads((path / "config.json").read_text())
    c["rope_theta"] = c.get("rope_theta") or c["rope_parameters"]["rope_theta"]
    return c


def taps_of(model, tokens, taps):
    """What enters the layers `taps` of the model, one after the other, at every token."""
    c = read_config(model)
    weights = load(model / "model.safetensors")
    layers = [Layer(weights, "model.layers.%d." % i, c) for i in range(c["num_hidden_layers"])]
    out = []
    for pos, token in enumerate(tokens):
        x = row(weights["model.embed_tokens.weight"], token)
        streams = [x]
        for layer in layers:
            x = layer.forward(x, norm(x, layer.w["input_layernorm.weight"], c["rms_norm_eps"]), pos)
            streams.append(x)
        out.append([v for tap in taps for v in streams[tap]])
    return out, weights["model.embed_tokens.weight"]


class Head:
    def __init__(self, case, weights, embed):
        self.w, self.c, self.case = weights, case["layer"], case
        self.embed = weights.get("embed_tokens.weight", embed)
        self.layer = Layer(weights, case["at"], self.c)

    def forward(self, state, token, pos):
        """The stream behind the layer, and the logits."""
        eps = self.c["rms_norm_eps"]
        normed = norm(state, self.layer.w["hidden_norm.weight"], eps)
        embedded = norm(row(self.embed, token), self.layer.w["input_layernorm.weight"], eps)
        stream = self.layer.forward(normed if self.case["normed_stream"] else state, embedded + normed, pos)
        return stream, product(self.w["lm_head.weight"], norm(stream, self.w["norm.weight"], eps))


# ---- cases ----

EAGLE_LAYER = {"hidden_size": 30, "intermediate_size": 44, "num_attention_heads": 5, "num_key_value_heads": 1,
               "head_dim": 6, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 109,
               "max_position_embeddings": 2048, "num_hidden_layers": 1, "hidden_act": "silu"}
QWEN_LAYER = {"hidden_size": 28, "intermediate_size": 53, "num_attention_heads": 7, "num_key_value_heads": 7,
              "head_dim": 6, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": 107, "model_type": "qwen3",
              "max_position_embeddings": 2048, "num_hidden_layers": 1, "hidden_act": "silu"}
CASES = [
    # As EAGLE and SpecForge write it: fewer tokens than the model has, whose embedding it uses; ids of layers whose
    # output is read.
    {"name": "eagle3-llama", "model": "llama-f16", "at": "midlayer.", "normed_stream": False, "taps": [1, 1, 2],
     "draft_vocab": 40, "embeds": False, "layer": EAGLE_LAYER,
     "config": {**EAGLE_LAYER, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
                "draft_vocab_size": 40, "torch_dtype": "float16", "tie_word_embeddings": False,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 0, 1]}}},
    # As Speculators writes it: all tokens, an embedding of its own, norms of heads; ids of layers whose input is read.
    {"name": "eagle3-speculators-qwen3", "model": "qwen3-f16", "at": "layers.0.", "normed_stream": True,
     "taps": [0, 1, 2], "draft_vocab": 107, "embeds": True, "layer": QWEN_LAYER,
     "config": {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
                "speculators_version": "0.5.0", "draft_vocab_size": 107, "norm_before_residual": True,
                "norm_before_fc": False, "target_hidden_size": None, "torch_dtype": "float16",
                "eagle_aux_hidden_state_layer_ids": [0, 1, 2], "transformer_layer_config": QWEN_LAYER}},
]


def make_weights(case, hidden):
    random.seed(case["name"])
    c, at, hidden_in = case["layer"], case["at"], 3 * hidden
    d, h = c["head_dim"], c["hidden_size"]
    q, kv, f = c["num_attention_heads"] * d, c["num_key_value_heads"] * d, c["intermediate_size"]
    shapes = {"fc.weight": [h, hidden_in], "norm.weight": [h], "lm_head.weight": [case["draft_vocab"], h],
              at + "hidden_norm.weight": [h], at + "input_layernorm.weight": [h],
              at + "post_attention_layernorm.weight": [h], at + "self_attn.q_proj.weight": [q, 2 * h],
              at + "self_attn.k_proj.weight": [kv, 2 * h], at + "self_attn.v_proj.weight": [kv, 2 * h],
              at + "self_attn.o_proj.weight": [h, q], at + "mlp.gate_proj.weight": [f, h],
              at + "mlp.up_proj.weight": [f, h], at + "mlp.down_proj.weight": [h, f]}
    if c.get("model_type") == "qwen3":
        shapes[at + "self_attn.q_norm.weight"] = shapes[at + "self_attn.k_norm.weight"] = [d]
    if case["embeds"]:
        shapes["embed_tokens.weight"] = [c["vocab_size"], h]
    tensors = {}
    for name, shape in shapes.items():
        n = math.prod(shape)
        if len(shape) == 1:
            values = [1 + random.uniform(-0.3, 0.3) for _ in range(n)]
        else:
            values = [random.gauss(0, 1.3 / math.sqrt(shape[1])) for _ in range(n)]
        values = list(struct.unpack("<%de" % n, struct.pack("<%de" % n, *values)))
        tensors[name] = ("F16", shape, values)
    return tensors


def make(case):
    folder, model = HERE / "heads" / case["name"], HERE / "fixtures" / case["model"]
    prompt = load(model / "expected.safetensors")["prompt"][1]
    taps, embed = taps_of(model, prompt, case["taps"])
    tensors = make_weights(case, embed[0][1])
    tokens = sorted(random.sample(range(case["layer"]["vocab_size"]), case["draft_vocab"]))
    if case["draft_vocab"] < case["layer"]["vocab_size"]:
        tensors["d2t"] = ("I64", [len(tokens)], [token - i for i, token in enumerate(tokens)])
        tensors["t2d"] = ("BOOL", [case["layer"]["vocab_size"]],
                          [i in tokens for i in range(case["layer"]["vocab_size"])])
    weights = {name: (t[1], t[2]) for name, t in tensors.items()}
    head = Head(case, weights, embed)
    logits = []
    for pos in range(len(prompt) - 1):
        stream, row_logits = head.forward(product(weights["fc.weight"], taps[pos]), prompt[pos + 1], pos)
        logits.append(row_logits)
    drafts, draft_logits = [], [logits[-1]]
    for pos in range(len(prompt) - 1, len(prompt) - 1 + N_DRAFTS):
        best = sorted(draft_logits[-1])
        assert best[-1] - best[-2] > 1e-3, "a draft is too close to call"
        drafts.append(tokens[draft_logits[-1].index(best[-1])])
        stream, row_logits = head.forward(stream, drafts[-1], pos)
        draft_logits.append(row_logits)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case["config"], indent=2, sort_keys=True) + "\n")
    save(folder / "model.safetensors", tensors)
    flat = lambda rows: [v for r in rows for v in r]
    save(folder / "expected.safetensors",
         {"prompt": ("I32", [len(prompt)], prompt),
          "logits": ("F32", [len(logits), case["draft_vocab"]], flat(logits)),
          "drafts": ("I32", [N_DRAFTS], drafts),
          "draft_logits": ("F32", [N_DRAFTS, case["draft_vocab"]], flat(draft_logits[1:]))})
    print(case["name"], "drafts", drafts, "largest logit", max(map(abs, flat(logits))))


for one in CASES:
    make(one)
