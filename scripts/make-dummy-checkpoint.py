#!/usr/bin/env python3
"""Quickly writes a checkpoint folder of arbitrary finite weights for a config.json, to measure loading without a real model.

    scripts/make-dummy-checkpoint.py scripts/configs/llama-3-8b.json DIR [--fp8] [--shard-bytes 5000000000] [--jobs 16]

DIR gets config.json, model-0000i-of-0000n.safetensors and the index, names and shapes as in Hugging Face transformers (Llama,
GPT-J, OPT, Qwen3-MoE, Mixtral, gpt-oss, Phi-3, Gemma 2 and 3, GLM-4-0414, OLMo 2, Granite, Command R7B, Phi-2, Falcon,
GPT-Neo, Ministral 3, MiniMax-M2, DeepSeek-V2 and -V3, GLM-4.7-Flash, Llama 4). The bytes are one block of 64 MiB,
repeated: every 16-bit number has a random sign and mantissa and an exponent around 2**-6. With --fp8 the matrices named
..._proj.weight are FP8 with a scale for each block of 128 x 128, as in DeepSeek and Qwen3. With --tokenizer it also gets a tokenizer.json, so that `serve` and `batch` run on it: byte-level, BPE of
the config's vocabulary, whose merges make words of up to four letters. Needs only Python's standard library. Put DIR
on /dev/shm for files in memory.
"""
import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import string
import struct
import sys

BLOCK = 64 << 20
NAME = {"bfloat16": "BF16", "float16": "F16"}
BYTES = {"BF16": 2, "F16": 2, "F8_E4M3": 1, "F32": 4}
# The last bytes of a number in a file, which contain its exponent: bits that stay random, and those of numbers between 2**-7
# and 2**-5; of FP8 around 1, whose scales are as the others' numbers, but positive.
EXPONENT = {"BF16": [(0x80, 0x3C)], "F16": [(0x80, 0x24)], "F8_E4M3": [(0x87, 0x38)], "F32": [(0x7F, 0x00), (0x00, 0x3C)]}
FP8_BLOCK = 128


def llama(c):
    h, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = h // c["num_attention_heads"] * c.get("num_key_value_heads", c["num_attention_heads"])
    yield "model.embed_tokens.weight", [v, h]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [h]
        for name, rows, cols in (("self_attn.q", h, h), ("self_attn.k", kv, h), ("self_attn.v", kv, h), ("self_attn.o", h, h),
                                 ("mlp.gate", f, h), ("mlp.up", f, h), ("mlp.down", h, f)):
            yield f"{p}{name}_proj.weight", [rows, cols]
        yield p + "post_attention_layernorm.weight", [h]
    yield "model.norm.weight", [h]
    if not c.get("tie_word_embeddings", False):
        yield "lm_head.weight", [v, h]


def gptj(c):
    h, v = c["n_embd"], c["vocab_size"]
    f = c.get("n_inner") or 4 * h
    yield "transformer.wte.weight", [v, h]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        yield from ((p + "ln_1.weight", [h]), (p + "ln_1.bias", [h]))
        for name in "qkv":
            yield f"{p}attn.{name}_proj.weight", [h, h]
        yield p + "attn.out_proj.weight", [h, h]
        yield from ((p + "mlp.fc_in.weight", [f, h]), (p + "mlp.fc_in.bias", [f]))
        yield from ((p + "mlp.fc_out.weight", [h, f]), (p + "mlp.fc_out.bias", [h]))
    yield from (("transformer.ln_f.weight", [h]), ("transformer.ln_f.bias", [h]))
    yield from (("lm_head.weight", [v, h]), ("lm_head.bias", [v]))


def opt(c):
    h, f, v = c["hidden_size"], c["ffn_dim"], c["vocab_size"]
    p = "model.decoder."
    yield p + "embed_tokens.weight", [v, h]
    yield p + "embed_positions.weight", [c["max_position_embeddings"] + 2, h]
    for i in range(c["num_hidden_layers"]):
        q = f"{p}layers.{i}."
        for name, rows, cols in (("self_attn.q_proj", h, h), ("self_attn.k_proj", h, h), ("self_attn.v_proj", h, h),
                                 ("self_attn.out_proj", h, h), ("fc1", f, h), ("fc2", h, f)):
            yield from ((f"{q}{name}.weight", [rows, cols]), (f"{q}{name}.bias", [rows]))
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            yield from ((f"{q}{name}.weight", [h]), (f"{q}{name}.bias", [h]))
    yield from ((p + "final_layer_norm.weight", [h]), (p + "final_layer_norm.bias", [h]))


INPUT, MLP_INPUT = "input_layernorm", "post_attention_layernorm"


def kin(c, fused=False, q_norms=None, biases="", norms=(INPUT, MLP_INPUT), mlp=None):
    """Llama-like models: q_norms: "head" or "row"; biases: of these projections; norms: all of a layer; mlp(prefix, h, f) yields
    the MLP."""
    h, f, v, heads = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["num_attention_heads"]
    dim = c.get("head_dim") or h // heads
    q, kv = heads * dim, c.get("num_key_value_heads", heads) * dim
    yield "model.embed_tokens.weight", [v, h]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name in norms:
            yield f"{p}{name}.weight", [h]
        parts = [("qkv", q + 2 * kv, h)] if fused else [("q", q, h), ("k", kv, h), ("v", kv, h)]
        for name, rows, cols in parts + [("o", h, q)]:
            yield f"{p}self_attn.{name}_proj.weight", [rows, cols]
            if name in biases:
                yield f"{p}self_attn.{name}_proj.bias", [rows]
        if q_norms:
            sizes = (q, kv) if q_norms == "row" else (dim, dim)
            yield from ((f"{p}self_attn.{name}_norm.weight", [n]) for name, n in zip("qk", sizes))
        yield from mlp(p, h, f)
    yield "model.norm.weight", [h]
    if not c.get("tie_word_embeddings", False):
        yield "lm_head.weight", [v, h]


def gated(p, h, f):
    for name, rows, cols in (("gate", f, h), ("up", f, h), ("down", h, f)):
        yield f"{p}mlp.{name}_proj.weight", [rows, cols]


def qwen3_moe(c):
    def mlp(p, h, _):
        f = c["moe_intermediate_size"]
        yield p + "mlp.gate.weight", [c["num_experts"], h]
        for e in range(c["num_experts"]):
            for name, rows, cols in (("gate", f, h), ("up", f, h), ("down", h, f)):
                yield f"{p}mlp.experts.{e}.{name}_proj.weight", [rows, cols]

    return kin(c, q_norms="head", mlp=mlp)


def mixtral_mlp(c, p, h, f):
    yield p + "block_sparse_moe.gate.weight", [c["num_local_experts"], h]
    for e in range(c["num_local_experts"]):
        for name, rows, cols in (("w1", f, h), ("w3", f, h), ("w2", h, f)):
            yield f"{p}block_sparse_moe.experts.{e}.{name}.weight", [rows, cols]


def mixtral(c):
    return kin(c, mlp=lambda p, h, f: mixtral_mlp(c, p, h, f))


def gpt_oss(c):
    n = c["num_local_experts"]

    def mlp(p, h, f):
        yield p + "self_attn.sinks", [c["num_attention_heads"]]
        yield from ((p + "mlp.router.weight", [n, h]), (p + "mlp.router.bias", [n]))
        for name, rows, cols in (("gate_up", h, 2 * f), ("down", f, h)):
            yield f"{p}mlp.experts.{name}_proj", [n, rows, cols]
            yield f"{p}mlp.experts.{name}_proj_bias", [n, cols]

    return kin(c, biases="qkvo", mlp=mlp)


def gate_up(p, h, f):
    yield from ((p + "mlp.gate_up_proj.weight", [2 * f, h]), (p + "mlp.down_proj.weight", [h, f]))


def gemma2(c, q_norms=None):
    return kin(c, q_norms=q_norms, norms=(INPUT, MLP_INPUT, "pre_feedforward_layernorm", "post_feedforward_layernorm"), mlp=gated)


def glm4(c):
    return kin(c, biases="qkv", norms=(INPUT, MLP_INPUT, "post_self_attn_layernorm", "post_mlp_layernorm"), mlp=gate_up)


def minimax_m2(c):
    def mlp(p, h, f):
        yield p + "block_sparse_moe.e_score_correction_bias", [c["num_local_experts"]]
        yield from mixtral_mlp(c, p, h, f)

    return kin(c, q_norms="row", mlp=mlp)


def latent(c):
    """The tensors of DeepSeek-V2, -V3 and GLM-4.7-Flash."""
    h, v, heads, rank, q_rank = (c[k] for k in ("hidden_size", "vocab_size", "num_attention_heads", "kv_lora_rank", "q_lora_rank"))
    key, turned, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    width, n, shared = c["moe_intermediate_size"], c["n_routed_experts"], c["n_shared_experts"] * c["moe_intermediate_size"]
    yield "model.embed_tokens.weight", [v, h]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        a = p + "self_attn."
        yield from ((p + INPUT + ".weight", [h]), (p + MLP_INPUT + ".weight", [h]))
        if q_rank:
            yield from ((a + "q_a_proj.weight", [q_rank, h]), (a + "q_a_layernorm.weight", [q_rank]))
        yield a + ("q_b_proj" if q_rank else "q_proj") + ".weight", [heads * (key + turned), q_rank or h]
        yield from ((a + "kv_a_proj_with_mqa.weight", [rank + turned, h]), (a + "kv_a_layernorm.weight", [rank]))
        yield from ((a + "kv_b_proj.weight", [heads * (key + value), rank]), (a + "o_proj.weight", [h, heads * value]))
        if i < c["first_k_dense_replace"]:
            yield from gated(p, h, c["intermediate_size"])
            continue
        yield p + "mlp.gate.weight", [n, h]
        if c["model_type"] != "deepseek_v2":
            yield p + "mlp.gate.e_score_correction_bias", [n]
        for at, f in [("shared_experts", shared)] + [(f"experts.{e}", width) for e in range(n)]:
            for name, rows, cols in (("gate", f, h), ("up", f, h), ("down", h, f)):
                yield f"{p}mlp.{at}.{name}_proj.weight", [rows, cols]
    yield "model.norm.weight", [h]
    if not c.get("tie_word_embeddings", False):
        yield "lm_head.weight", [v, h]


def llama4(c):
    layers = iter(range(c["num_hidden_layers"]))

    def mlp(p, h, f):
        if (next(layers) + 1) % c["interleave_moe_layer_step"]:
            for name, rows, cols in (("gate", c["intermediate_size_mlp"], h), ("up", c["intermediate_size_mlp"], h),
                                     ("down", h, c["intermediate_size_mlp"])):
                yield f"{p}feed_forward.{name}_proj.weight", [rows, cols]
            return
        n = c["num_local_experts"]
        yield p + "feed_forward.router.weight", [n, h]
        yield p + "feed_forward.experts.gate_up_proj", [n, h, 2 * f]
        yield p + "feed_forward.experts.down_proj", [n, f, h]
        for name, rows, cols in (("gate", f, h), ("up", f, h), ("down", h, f)):
            yield f"{p}feed_forward.shared_expert.{name}_proj.weight", [rows, cols]

    return kin(c, mlp=mlp)


def plain(p, names, h, f):
    """Yields two linear layers of these names, with biases."""
    for name, rows, cols in zip(names, (f, h), (h, f)):
        yield from ((f"{p}{name}.weight", [rows, cols]), (f"{p}{name}.bias", [rows]))


def with_bias(name, n):
    return (name + ".weight", [n]), (name + ".bias", [n])


def phi(c):
    h, v = c["hidden_size"], c["vocab_size"]
    yield "model.embed_tokens.weight", [v, h]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield from with_bias(p + INPUT, h)
        for name in ("q_proj", "k_proj", "v_proj", "dense"):
            yield from ((f"{p}self_attn.{name}.weight", [h, h]), (f"{p}self_attn.{name}.bias", [h]))
        yield from plain(p, ("mlp.fc1", "mlp.fc2"), h, c["intermediate_size"])
    yield from with_bias("model.final_layernorm", h)
    yield from (("lm_head.weight", [v, h]), ("lm_head.bias", [v]))


def falcon(c):
    h, dim = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"]
    yield "transformer.word_embeddings.weight", [c["vocab_size"], h]
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}."
        yield from with_bias(p + INPUT, h)
        for name, rows, cols in (("self_attention.query_key_value", h + 2 * dim, h), ("self_attention.dense", h, h),
                                 ("mlp.dense_h_to_4h", 4 * h, h), ("mlp.dense_4h_to_h", h, 4 * h)):
            yield f"{p}{name}.weight", [rows, cols]
    yield from with_bias("transformer.ln_f", h)


def gpt_neo(c):
    h = c["hidden_size"]
    yield from (("transformer.wte.weight", [c["vocab_size"], h]), ("transformer.wpe.weight", [c["max_position_embeddings"], h]))
    for i in range(c["num_layers"]):
        p = f"transformer.h.{i}."
        yield from with_bias(p + "ln_1", h)
        yield from with_bias(p + "ln_2", h)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield f"{p}attn.attention.{name}.weight", [h, h]
        yield p + "attn.attention.out_proj.bias", [h]
        yield from plain(p, ("mlp.c_fc", "mlp.c_proj"), h, c.get("intermediate_size") or 4 * h)
    yield from with_bias("transformer.ln_f", h)


FAMILY = {"llama": llama, "gptj": gptj, "opt": opt, "qwen3_moe": qwen3_moe, "mixtral": mixtral, "gpt_oss": gpt_oss,
          "phi3": lambda c: kin(c, fused=True, mlp=gate_up), "gemma2": gemma2,
          "gemma3_text": lambda c: gemma2(c, q_norms="head"), "glm4": glm4, "phi": phi, "falcon": falcon, "gpt_neo": gpt_neo,
          "olmo2": lambda c: kin(c, q_norms="row", norms=(MLP_INPUT, "post_feedforward_layernorm"), mlp=gated),
          "granite": lambda c: kin(c, mlp=gated), "cohere2": lambda c: kin(c, norms=(INPUT,), mlp=gated),
          "ministral3": lambda c: kin(c, mlp=gated), "minimax_m2": minimax_m2,
          "deepseek_v2": latent, "deepseek_v3": latent, "glm4_moe_lite": latent, "llama4_text": llama4}



def typed(tensors, dtype, fp8):
    """Yields the tensors of a checkpoint, (name, shape, type), from (name, shape)."""
    for name, shape in tensors:
        if not fp8 or not name.endswith("_proj.weight"):
            yield name, shape, dtype
            continue
        yield name, shape, "F8_E4M3"
        yield name + "_scale_inv", [-(-n // FP8_BLOCK) for n in shape], "F32"


def size(tensor):
    _, shape, dtype = tensor
    n = BYTES[dtype]
    for d in shape:
        n *= d
    return n


def shards(tensors, limit):
    """Puts tensors into shards in order, as many in each as the limit allows, at least one. Numbers of 4 bytes come first: a tensor of
    single bytes may end anywhere."""
    found, used = [[]], 0
    for t in tensors:
        if found[-1] and used + size(t) > limit:
            found.append([])
            used = 0
        found[-1].append(t)
        used += size(t)
    return [sorted(part, key=lambda t: -BYTES[t[2]]) for part in found]


def make_block(dtype):
    block = bytearray(os.urandom(BLOCK))
    for i, (random, fixed) in enumerate(reversed(EXPONENT[dtype])):
        at = BYTES[dtype] - 1 - i
        block[at :: BYTES[dtype]] = block[at :: BYTES[dtype]].translate(bytes(b & random | fixed for b in range(256)))
    return memoryview(block)


def make_blocks(dtypes):
    """Initialises every writing process."""
    global blocks
    blocks = {dtype: make_block(dtype) for dtype in dtypes}


def write_shard(job):
    path, tensors = job
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for t in tensors:
        header[t[0]] = {"dtype": t[2], "shape": t[1], "data_offsets": [at, at + size(t)]}
        at += size(t)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for dtype, part in itertools.groupby(tensors, key=lambda t: t[2]):
            left = sum(size(t) for t in part)
            while left > 0:
                left -= f.write(blocks[dtype][: min(left, BLOCK)])
    return path


def byte_letters():
    """Returns the character that stands for each byte in a byte-level vocabulary, as in GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def merges():
    """Yields every pair of letters and every letter after a space first, then three and four letters made of these."""
    letters, space = string.ascii_lowercase, byte_letters()[32]
    pairs = [a + b for a, b in itertools.product(letters, repeat=2)]
    yield from itertools.product(letters, letters)
    yield from ((space, a) for a in letters)
    yield from itertools.product(pairs, letters)
    yield from ((space + a, pair) for a, pair in itertools.product(letters, pairs))
    yield from itertools.product(pairs, pairs)


def tokenizer(n):
    """Returns a vocabulary of n tokens: bytes, then the results of the merges."""
    chosen = list(itertools.islice(merges(), n - 256))
    tokens = byte_letters() + [a + b for a, b in chosen]
    if len(tokens) != n:
        sys.exit(f"--tokenizer: a vocabulary of {n}, expected 256 to {len(tokens)}")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [f"{a} {b}" for a, b in chosen]}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("dir")
    parser.add_argument("--fp8", action="store_true", help="matrices in FP8 with a scale for each block")
    parser.add_argument("--shard-bytes", type=int, default=5_000_000_000)
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1), help="processes that write")
    parser.add_argument("--tokenizer", action="store_true", help="write a tokenizer.json, too")
    o = parser.parse_args()
    with open(o.config) as f:
        config = json.load(f)
    family, dtype = config.get("model_type"), config.get("torch_dtype")
    if family not in FAMILY or dtype not in NAME:
        sys.exit(f"{o.config}: model_type {family!r}, torch_dtype {dtype!r}: expected one of {', '.join(FAMILY)} and one of "
                 f"{', '.join(NAME)}")
    tensors = list(typed(FAMILY[family](config), NAME[dtype], o.fp8))
    total = sum(size(t) for t in tensors)
    os.makedirs(o.dir, exist_ok=True)
    free = shutil.disk_usage(o.dir).free
    if free < total:
        sys.exit(f"{o.dir}: {total} bytes are needed, {free} are free")
    parts = shards(tensors, o.shard_bytes)
    names = [f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors" for i in range(len(parts))]
    jobs = [(os.path.join(o.dir, n), p) for n, p in zip(names, parts)]
    with multiprocessing.Pool(max(1, min(o.jobs, len(jobs))), make_blocks, ({t[2] for t in tensors},)) as pool:
        for _ in pool.imap_unordered(write_shard, jobs):
            pass
    weight_map = {t[0]: file for file, part in zip(names, parts) for t in part}
    with open(os.path.join(o.dir, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f)
    if o.fp8:
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                         "weight_block_size": [FP8_BLOCK, FP8_BLOCK]}
    with open(os.path.join(o.dir, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    if o.tokenizer:
        with open(os.path.join(o.dir, "tokenizer.json"), "w") as f:
            json.dump(tokenizer(config["vocab_size"]), f)
    print(f"{o.dir}: {total / 1e9:.2f} GB in {len(parts)} files")


if __name__ == "__main__":
    main()
