#!/usr/bin/env python3
"""Build tests/parity/heads: tiny random EAGLE-3 draft heads, and layers that predict further tokens (MTP), for models of
tests/parity/fixtures, with their answers.

    python3 tests/parity/make_heads.py

makes NAME/ with config.json (heads only) and model.safetensors (what the runtime loads) and expected.safetensors:
prompt I32 [p], logits F32 [p - 1, draft vocabulary] of the head at each token of the prompt except the last, and of a
chain of drafts after it: drafts I32 [k], draft_logits F32 [k, draft vocabulary].

The oracle is the forward of this file: plain Python in 64-bit floats, of the model as well as of the head. The model's
logits are compared with those of transformers, which are in its fixture; heads are not compared with
another program. Weights are random; their seeds are fixed, so that a rerun gives the same files.
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


def rotate(x, pos, theta, dims):
    half = dims // 2
    out = list(x)
    for j in range(half):
        angle = pos * theta ** (-2 * j / dims)
        c, s = math.cos(angle), math.sin(angle)
        out[j], out[j + half] = x[j] * c - x[j + half] * s, x[j + half] * c + x[j] * s
    return out


class Layer:
    """A layer of Llama, Qwen3 or GLM-4.5: `at` is the prefix of its names. Keys and values are stored by position."""

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
        return y if name == "v" else [rotate(h, pos, c["rope_theta"], int(d * c.get("partial_rotary_factor", 1))) for h in y]

    def attend(self, x, pos):
        """Position pos overwrites its former entry, and drops the entries after it."""
        d, heads_per_kv = self.c["head_dim"], self.c["num_attention_heads"] // self.c["num_key_value_heads"]
        del self.keys[pos:], self.values[pos:]
        self.keys.append(self.heads("k", x, pos))
        self.values.append(self.heads("v", x, pos))
        out = []
        for h, q in enumerate(self.heads("q", x, pos)):
            score = [sum(a * b for a, b in zip(q, k[h // heads_per_kv])) / math.sqrt(d) for k in self.keys]
            most = max(score)
            weight = [math.exp(s - most) for s in score]
            total = sum(weight)
            out += [sum(w * v[h // heads_per_kv][j] for w, v in zip(weight, self.values)) / total for j in range(d)]
        return product(self.w["self_attn.o_proj.weight"], out)

    def gated(self, at, x):
        gate, up = product(self.w[at + "gate_proj.weight"], x), product(self.w[at + "up_proj.weight"], x)
        return product(self.w[at + "down_proj.weight"], [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])

    def chosen(self, score):
        """Returns a token's experts: those with the best corrected scores, in the best groups."""
        c, bias = self.c, self.w["mlp.gate.e_score_correction_bias"][1]
        corrected = [s + b for s, b in zip(score, bias)]
        size = len(score) // c["n_group"]
        group = [sum(sorted(corrected[g * size:(g + 1) * size])[-2:]) for g in range(c["n_group"])]
        kept = sorted(range(c["n_group"]), key=lambda g: -group[g])[:c["topk_group"]]
        best = sorted((e for e in range(len(score)) if e // size in kept), key=lambda e: -corrected[e])
        return best[:c["num_experts_per_tok"]]

    def mlp(self, x):
        if "mlp.gate.weight" not in self.w:
            return self.gated("mlp.", x)
        score = [1 / (1 + math.exp(-v)) for v in product(self.w["mlp.gate.weight"], x)]
        chosen = self.chosen(score)
        total = sum(score[e] for e in chosen) + 1e-20 if self.c["norm_topk_prob"] else 1
        out = self.gated("mlp.shared_experts.", x)
        for e in chosen:
            share = score[e] / total * self.c["routed_scaling_factor"]
            out = add(out, [share * v for v in self.gated("mlp.experts.%d." % e, x)])
        return out

    def forward(self, x, inputs, pos):
        """Returns the residual stream after the layer: x is the one before it, inputs is attention's input."""
        x = add(x, self.attend(inputs, pos))
        return add(x, self.mlp(norm(x, self.w["post_attention_layernorm.weight"], self.c["rms_norm_eps"])))


class LatentLayer(Layer):
    """A layer of DeepSeek-V3: keys and values of all heads are computed from one latent per token."""

    def turned(self, x, pos):
        out = list(x)
        for j in range(0, len(x), 2):
            angle = pos * self.c["rope_theta"] ** (-j / len(x))
            c, s = math.cos(angle), math.sin(angle)
            out[j], out[j + 1] = x[j] * c - x[j + 1] * s, x[j + 1] * c + x[j] * s
        return out

    def attend(self, x, pos):
        c, w = self.c, self.w
        key, turned, value, rank = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["kv_lora_rank"]
        del self.keys[pos:], self.values[pos:]
        latent = product(w["self_attn.kv_a_proj_with_mqa.weight"], x)
        shared = self.turned(latent[rank:], pos)
        up = product(w["self_attn.kv_b_proj.weight"], norm(latent[:rank], w["self_attn.kv_a_layernorm.weight"], 1e-6))
        up = [up[i:i + key + value] for i in range(0, len(up), key + value)]
        self.keys.append([h[:key] + shared for h in up])
        self.values.append([h[key:] for h in up])
        query = norm(product(w["self_attn.q_a_proj.weight"], x), w["self_attn.q_a_layernorm.weight"], 1e-6)
        query = product(w["self_attn.q_b_proj.weight"], query)
        out = []
        for h in range(c["num_attention_heads"]):
            q = query[h * (key + turned):(h + 1) * (key + turned)]
            q = q[:key] + self.turned(q[key:], pos)
            score = [sum(a * b for a, b in zip(q, k[h])) / math.sqrt(key + turned) for k in self.keys]
            weight = [math.exp(s - max(score)) for s in score]
            total = sum(weight)
            out += [sum(u * v[h][j] for u, v in zip(weight, self.values)) / total for j in range(value)]
        return product(w["self_attn.o_proj.weight"], out)


def make_layer(weights, at, config):
    return (LatentLayer if "kv_lora_rank" in config else Layer)(weights, at, config)


def read_config(path):
    c = json.loads((path / "config.json").read_text())
    for key, value in c.get("rope_parameters", {}).items():
        c.setdefault(key, value)
    return c


def taps_of(model, tokens, taps):
    """Returns the concatenated inputs of the model's layers `taps` at every token; None: the output of the last norm."""
    c = read_config(model)
    weights = load(model / "model.safetensors")
    layers = [make_layer(weights, "model.layers.%d." % i, c) for i in range(c["num_hidden_layers"])]
    out, expected = [], load(model / "expected.safetensors")["logits"]
    for pos, token in enumerate(tokens):
        x = row(weights["model.embed_tokens.weight"], token)
        streams = [x]
        for layer in layers:
            x = layer.forward(x, norm(x, layer.w["input_layernorm.weight"], c["rms_norm_eps"]), pos)
            streams.append(x)
        last = norm(x, weights["model.norm.weight"], c["rms_norm_eps"])
        found = product(weights.get("lm_head.weight", weights["model.embed_tokens.weight"]), last)
        assert max(abs(a - b) for a, b in zip(found, row(expected, pos))) < 2e-3, "not the logits of transformers"
        out.append(last if taps is None else [v for tap in taps for v in streams[tap]])
    return out, weights


class Head:
    def __init__(self, case, weights, embed):
        self.w, self.c, self.case = weights, case["layer"], case
        self.embed = weights.get("embed_tokens.weight", embed)
        self.layer = Layer(weights, case["at"], self.c)

    def state(self, taps):
        return product(self.w["fc.weight"], taps)

    def forward(self, state, token, pos):
        """Returns the residual stream after the layer, and the logits."""
        eps = self.c["rms_norm_eps"]
        normed = norm(state, self.layer.w["hidden_norm.weight"], eps)
        embedded = norm(row(self.embed, token), self.layer.w["input_layernorm.weight"], eps)
        stream = self.layer.forward(normed if self.case["normed_stream"] else state, embedded + normed, pos)
        return stream, product(self.w["lm_head.weight"], norm(stream, self.w["norm.weight"], eps))


class Predicting:
    """A layer that predicts further tokens; embedding and head are the model's."""

    def __init__(self, case, weights, model, config):
        self.layer, self.model, self.eps = make_layer(weights, case["at"], config), model, config["rms_norm_eps"]

    def state(self, taps):
        return taps

    def forward(self, state, token, pos):
        """Returns the output of the norm after the layer, and the logits."""
        w, embed = self.layer.w, self.model["model.embed_tokens.weight"]
        both = norm(row(embed, token), w["enorm.weight"], self.eps) + norm(state, w["hnorm.weight"], self.eps)
        x = product(w["eh_proj.weight"], both)
        x = self.layer.forward(x, norm(x, w["input_layernorm.weight"], self.eps), pos)
        said = norm(x, w["shared_head.norm.weight"], self.eps)
        return said, product(self.model.get("lm_head.weight", embed), said)


# ---- cases ----

EAGLE_LAYER = {"hidden_size": 30, "intermediate_size": 44, "num_attention_heads": 5, "num_key_value_heads": 1,
               "head_dim": 6, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 109,
               "max_position_embeddings": 2048, "num_hidden_layers": 1, "hidden_act": "silu"}
QWEN_LAYER = {"hidden_size": 28, "intermediate_size": 53, "num_attention_heads": 7, "num_key_value_heads": 7,
              "head_dim": 6, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "vocab_size": 107, "model_type": "qwen3",
              "max_position_embeddings": 2048, "num_hidden_layers": 1, "hidden_act": "silu"}
CASES = [
    # As written by EAGLE and SpecForge: fewer tokens than the model, whose embedding it uses; ids of layers whose
    # output is read.
    {"name": "eagle3-llama", "model": "llama-f16", "at": "midlayer.", "normed_stream": False, "taps": [1, 1, 2],
     "draft_vocab": 40, "embeds": False, "layer": EAGLE_LAYER,
     "config": {**EAGLE_LAYER, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
                "draft_vocab_size": 40, "torch_dtype": "float16", "tie_word_embeddings": False,
                "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 0, 1]}}},
    # As written by Speculators: all tokens, an embedding of its own, norms of heads; ids of layers whose input is read.
    {"name": "eagle3-speculators-qwen3", "model": "qwen3-f16", "at": "layers.0.", "normed_stream": True,
     "taps": [0, 1, 2], "draft_vocab": 107, "embeds": True, "layer": QWEN_LAYER,
     "config": {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
                "speculators_version": "0.5.0", "draft_vocab_size": 107, "norm_before_residual": True,
                "norm_before_fc": False, "target_hidden_size": None, "torch_dtype": "float16",
                "eagle_aux_hidden_state_layer_ids": [0, 1, 2], "transformer_layer_config": QWEN_LAYER}},
]


PREDICTING = [
    {"name": "mtp-glm4moe-groups", "model": "glm4moe-groups", "at": "model.layers.2."},
    {"name": "mtp-deepseek3", "model": "deepseek3-f16", "at": "model.layers.2."},
]


def random_tensor(shape):
    n = math.prod(shape)
    if len(shape) == 1:
        values = [1 + random.uniform(-0.3, 0.3) for _ in range(n)]
    else:
        values = [random.gauss(0, 1.3 / math.sqrt(shape[1])) for _ in range(n)]
    return "F16", shape, list(struct.unpack("<%de" % n, struct.pack("<%de" % n, *values)))


def latent_shapes(c, h):
    n, rank, queries = c["num_attention_heads"], c["kv_lora_rank"], c["q_lora_rank"]
    key, turned, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    return {"self_attn.q_a_proj.weight": [queries, h], "self_attn.q_a_layernorm.weight": [queries],
            "self_attn.q_b_proj.weight": [n * (key + turned), queries],
            "self_attn.kv_a_proj_with_mqa.weight": [rank + turned, h], "self_attn.kv_a_layernorm.weight": [rank],
            "self_attn.kv_b_proj.weight": [n * (key + value), rank], "self_attn.o_proj.weight": [h, n * value]}


def predicting_weights(case, c):
    random.seed(case["name"])
    h, d, f = c["hidden_size"], c["head_dim"], c["moe_intermediate_size"]
    q, kv, experts = c["num_attention_heads"] * d, c["num_key_value_heads"] * d, c["n_routed_experts"]
    plain = {"self_attn.q_proj.weight": [q, h], "self_attn.k_proj.weight": [kv, h],
             "self_attn.v_proj.weight": [kv, h], "self_attn.o_proj.weight": [h, q],
             "self_attn.q_norm.weight": [d], "self_attn.k_norm.weight": [d]}
    shapes = {"enorm.weight": [h], "hnorm.weight": [h], "eh_proj.weight": [h, 2 * h], "shared_head.norm.weight": [h],
              "input_layernorm.weight": [h], "post_attention_layernorm.weight": [h],
              "mlp.gate.weight": [experts, h], "mlp.gate.e_score_correction_bias": [experts]}
    shapes.update(latent_shapes(c, h) if "kv_lora_rank" in c else plain)
    for at in ["mlp.shared_experts."] + ["mlp.experts.%d." % e for e in range(experts)]:
        width = f * c["n_shared_experts"] if "shared" in at else f
        shapes.update({at + "gate_proj.weight": [width, h], at + "up_proj.weight": [width, h],
                       at + "down_proj.weight": [h, width]})
    return {case["at"] + name: random_tensor(shape) for name, shape in shapes.items()}


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
    return {name: random_tensor(shape) for name, shape in shapes.items()}


def answer(case, head, tokens, prompt, taps, tensors):
    """Runs the head after the prompt and a chain of drafts, and writes the results; tokens: those that it can draft."""
    folder = HERE / "heads" / case["name"]
    logits = []
    for pos in range(len(prompt) - 1):
        stream, row_logits = head.forward(head.state(taps[pos]), prompt[pos + 1], pos)
        logits.append(row_logits)
    drafts, draft_logits = [], [logits[-1]]
    for pos in range(len(prompt) - 1, len(prompt) - 1 + N_DRAFTS):
        best = sorted(draft_logits[-1])
        assert best[-1] - best[-2] > 1e-3, "a draft is too close to call"
        drafts.append(tokens[draft_logits[-1].index(best[-1])])
        stream, row_logits = head.forward(stream, drafts[-1], pos)
        draft_logits.append(row_logits)
    folder.mkdir(exist_ok=True)
    save(folder / "model.safetensors", tensors)
    flat = lambda rows: [v for r in rows for v in r]
    save(folder / "expected.safetensors",
         {"prompt": ("I32", [len(prompt)], prompt),
          "logits": ("F32", [len(logits), len(tokens)], flat(logits)),
          "drafts": ("I32", [N_DRAFTS], drafts),
          "draft_logits": ("F32", [N_DRAFTS, len(tokens)], flat(draft_logits[1:]))})
    print(case["name"], "drafts", drafts, "largest logit", max(map(abs, flat(logits))))


def make_predicting(case):
    model = HERE / "fixtures" / case["model"]
    c = read_config(model)
    prompt = load(model / "expected.safetensors")["prompt"][1]
    states, weights = taps_of(model, prompt, None)
    tensors = predicting_weights(case, c)
    head = Predicting(case, {name: (t[1], t[2]) for name, t in tensors.items()}, weights, c)
    answer(case, head, list(range(c["vocab_size"])), prompt, states, tensors)


def make(case):
    folder, model = HERE / "heads" / case["name"], HERE / "fixtures" / case["model"]
    prompt = load(model / "expected.safetensors")["prompt"][1]
    taps, model_weights = taps_of(model, prompt, case["taps"])
    embed = model_weights["model.embed_tokens.weight"]
    tensors = make_weights(case, embed[0][1])
    tokens = sorted(random.sample(range(case["layer"]["vocab_size"]), case["draft_vocab"]))
    if case["draft_vocab"] < case["layer"]["vocab_size"]:
        tensors["d2t"] = ("I64", [len(tokens)], [token - i for i, token in enumerate(tokens)])
        tensors["t2d"] = ("BOOL", [case["layer"]["vocab_size"]],
                          [i in tokens for i in range(case["layer"]["vocab_size"])])
    weights = {name: (t[1], t[2]) for name, t in tensors.items()}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(case["config"], indent=2, sort_keys=True) + "\n")
    answer(case, Head(case, weights, embed), tokens, prompt, taps, tensors)


for one in CASES:
    make(one)
for one in PREDICTING:
    make_predicting(one)
