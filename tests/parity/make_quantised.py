#!/usr/bin/env python3
"""Build the fixtures of quantised checkpoints, tests/parity/fixtures/q-*: see make_fixtures.py for the content of a folder.

    python3 tests/parity/make_quantised.py [--out DIR] [--only REGEX]

The writers quantise random weights and insert extreme codes (-0, subnormals, the largest, zeros 0 and 15); they use
only numpy and the layouts. others, coarse: as there, for the fixtures that the persistent step supports. The readers start
from the file's bytes, with formulas of their own, and compute the weights in float32; transformers runs on those,
without any quantization_config. torch's float8_e4m3fn and transformers' MXFP4 check them as they run, check_quantised.py
asks more libraries, which are not needed here. Sizes are odd: blocks are ragged, and ranks cut groups.
"""
import argparse, json, re, shutil, zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file as load_numpy
from safetensors.torch import load_file, save_file

import make_fixtures as plain

F8 = torch.float8_e4m3fn

# ------------------------------------------------------------------------------------------ number formats, for writing
E4M3 = np.array([(-1 if c & 128 else 1) * ((c & 7) / 8 * 2.0**-6 if not c & 0x78 else (1 + (c & 7) / 8) * 2.0 ** ((c >> 3 & 15) - 7))
                 for c in range(256)], np.float32)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)

def nearest(x, table, allowed):
    order = allowed[np.argsort(table[allowed], kind="stable")]
    values = table[order]
    at = np.clip(np.searchsorted(values, x), 1, len(values) - 1)
    return order[np.where(x - values[at - 1] <= values[at] - x, at - 1, at)].astype(np.uint8)

FINITE = np.array([c for c in range(256) if c & 127 != 127])

def scatter(codes, special, rng):
    """Inserts some of the special codes at random places."""
    flat = codes.reshape(-1)
    flat[rng.choice(flat.size, len(special), replace=False)] = special
    return codes

def grid(w, rows, cols, f):
    """Returns f of every block of `rows` x `cols`."""
    N, K = w.shape
    return np.array([[f(w[i:i + rows, j:j + cols]) for j in range(0, K, cols)] for i in range(0, N, rows)], np.float32)

def spread(scale, rows, cols, N, K):
    return np.repeat(np.repeat(scale, rows, 0), cols, 1)[:N, :K]

def pack(fields, bits):
    """Packs fields of the last axis into int32, the first in the lowest bits, zeros at the end."""
    per = 32 // bits
    pad = -fields.shape[-1] % per
    u = np.pad(fields.astype(np.uint32), [(0, 0)] * (fields.ndim - 1) + [(0, pad)]).reshape(*fields.shape[:-1], -1, per)
    return (u << (np.arange(per, dtype=np.uint32) * bits)).sum(-1, dtype=np.uint32).view(np.int32)

# ------------------------------------------------------------------------------------------------------------- writers
def write_fp8(w, rng, o):
    N, K = w.shape
    rows, cols = o.get("block") or ((1, K) if o.get("row") else (N, K))
    scale = grid(w, rows, cols, lambda b: max(np.abs(b).max(), 1e-6) / 448)
    if o["scale"] == "ue8m0":
        scale = np.exp2(np.ceil(np.log2(scale))).astype(np.float32)
    kind = {"bf16": torch.bfloat16, "f32": torch.float32, "ue8m0": torch.float32}[o["scale"]]
    stored = torch.from_numpy(scale).to(kind)
    codes = nearest(w / spread(stored.float().numpy(), rows, cols, N, K), E4M3, FINITE)
    codes = scatter(codes, [0x00, 0x80, 0x01, 0x81, 0x07, 0x08, 0x7E, 0xFE], rng)
    if o["scale"] == "ue8m0":
        stored = torch.from_numpy((np.log2(scale) + 127).astype(np.uint8))
    shape = o.get("shape", list(stored.shape))
    out = {"weight": torch.from_numpy(codes).view(F8), o["scale_name"]: stored.reshape([N] if shape == "vector" else shape)}
    if o.get("input_scale"):
        out["input_scale"] = torch.tensor([0.02])
    return out

def write_int8(w, rng, o):
    scale = (np.abs(w).max(1, keepdims=True) / 127.5).astype(np.float32)
    q = scatter(np.clip(np.rint(w / scale), -128, 127).astype(np.int8), [-128, 127, 0, -1], rng)
    return {"weight": torch.from_numpy(q), "weight_scale": torch.from_numpy(scale)}

def integers(w, rng, o):
    """Returns (codes [N, K], scales [N, G] rounded to F16 or BF16, zeros [N, G]); asymmetric ones include every zero."""
    N, K = w.shape
    g, top = o["group"] if o["group"] > 0 else K, (1 << o["bits"]) - 1
    low, high = grid(w, 1, g, np.min), grid(w, 1, g, np.max)
    if o["sym"]:
        zero = np.full(low.shape, (top + 1) // 2)
        scale = np.maximum(np.maximum(np.abs(low), np.abs(high)) / (top // 2), 1e-4)
    else:
        zero = rng.integers(o.get("least_zero", 0), top + 1, low.shape)
        zero.flat[:2] = [o.get("least_zero", 0), top]
        scale = np.maximum(np.maximum(np.abs(low) / np.maximum(zero, 4), np.abs(high) / np.maximum(top - zero, 4)), 1e-4)
    kind = o.get("scales", torch.float16)
    scale = torch.from_numpy(scale.astype(np.float32)).to(kind)
    codes = np.rint(w / spread(scale.float().numpy(), 1, g, N, K) + spread(zero, 1, g, N, K))
    return scatter(np.clip(codes, 0, top).astype(np.int64), [0, top], rng), scale, zero

def ordered(w, rng, o):
    """The same for inputs whose groups are scattered, plus the group of every input; matrices of one input share the order."""
    K, g = w.shape[1], o["group"] if o["group"] > 0 else w.shape[1]
    order = np.random.default_rng(K).permutation(K) if o.get("reordered") else np.arange(K)
    codes, scale, zero = integers(w[:, order].copy(), rng, o)
    back, index = np.empty_like(codes), np.empty(K, np.int32)
    back[:, order], index[order] = codes, np.arange(K) // g
    return back, scale, zero, torch.from_numpy(index)

def write_packed(w, rng, o):
    codes, scale, zero, index = ordered(w, rng, o)
    out = {"weight_packed": torch.from_numpy(pack(codes, o["bits"])), "weight_scale": scale,
           "weight_shape": torch.tensor(w.shape)}
    if not o["sym"]:
        out["weight_zero_point"] = torch.from_numpy(pack(zero.T, o["bits"]).T.copy())
    if o.get("reordered"):
        out["weight_g_idx"] = index
    return out

AWQ = [0, 2, 4, 6, 1, 3, 5, 7]

def write_awq(w, rng, o):
    codes, scale, zero = integers(w, rng, o)
    def interleave(x):  # [.., N]: nibble i of a word holds output AWQ[i]
        return pack(x.reshape(*x.shape[:-1], -1, 8)[..., AWQ].reshape(x.shape), 4)
    return {"qweight": torch.from_numpy(interleave(codes.T.copy())), "qzeros": torch.from_numpy(interleave(zero.T.copy())),
            "scales": scale.T.contiguous()}

def write_gptq(w, rng, o):
    codes, scale, zero, index = ordered(w, rng, o)
    stored = zero - (0 if o["v2"] else 1)
    return {"qweight": torch.from_numpy(pack(codes, o["bits"]).T.copy()), "qzeros": torch.from_numpy(pack(stored.T.copy(), o["bits"])),
            "scales": scale.T.contiguous(), "g_idx": index}

def write_mxfp4(w, rng, o):
    """w: [experts, out, in]"""
    E, N, K = w.shape
    b = w.reshape(E, N, K // 32, 32)
    exponent = np.ceil(np.log2(np.maximum(np.abs(b).max(-1), 1e-9) / 6))
    codes = nearest(b / np.exp2(exponent)[..., None], E2M1, np.arange(16))
    codes = scatter(codes, [0, 8, 1, 9, 7, 15], rng).reshape(E, N, K // 32, 16, 2)
    return {"_blocks": torch.from_numpy(codes[..., 0] | codes[..., 1] << 4), "_scales": torch.from_numpy((exponent + 127).astype(np.uint8))}

def write_nvfp4(w, rng, o):
    """Groups of 16; the scales are codes themselves, they are divided or multiplied by a number for the whole matrix."""
    N, K = w.shape
    top = grid(w, 1, 16, lambda b: max(np.abs(b).max(), 1e-6) / 6)
    whole = np.float32(448 / top.max())
    scales = np.maximum(nearest(top * whole, E4M3, np.arange(127)), 1)
    codes = nearest(w / spread(E4M3[scales] / whole, 1, 16, N, K), E2M1, np.arange(16))
    codes = scatter(codes, [0, 8, 1, 9, 7, 15], rng)
    out = {"weight_packed" if o["divides"] else "weight": torch.from_numpy(codes[:, ::2] | codes[:, 1::2] << 4),
           "weight_scale": torch.from_numpy(scales).view(F8)}
    if o["divides"]:
        out.update(weight_global_scale=torch.tensor([whole]), input_global_scale=torch.tensor([3.0]))
    else:
        out.update(weight_scale_2=torch.tensor(1 / whole), input_scale=torch.tensor(0.5))
    return out

# ------------------------------------------------------------------------------- readers: from the file's bytes, in float32
def raw_tensors(path):
    """Returns {name: (dtype, shape, bytes)}, without any library."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in json.loads(data[8:8 + n]).items() if k != "__metadata__"}

def number(t):
    kind, shape, data = t
    if kind == "BF16":
        x = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif kind == "U8":
        x = np.ldexp(np.float32(1), np.frombuffer(data, "u1").astype(np.int32) - 127)
    else:
        x = np.frombuffer(data, {"F16": "<f2", "F32": "<f4", "I8": "i1"}[kind]).astype(np.float32)
    return x.reshape(shape).astype(np.float32)

def e4m3(t):
    """Decodes by the bits of a half: the same number except for 8 in the exponent."""
    c = np.frombuffer(t[2], "u1").astype(np.uint16)
    x = (((c & 0x80) << 8) | ((c & 0x7F) << 7)).view(np.float16).astype(np.float32) * 256
    assert torch.equal(torch.frombuffer(bytearray(t[2]), dtype=F8).float(), torch.from_numpy(x))
    return x.reshape(t[1])

def fields(t, bits, axis):
    """Returns the fields of int32 words along an axis."""
    words = np.frombuffer(t[2], "<u4").reshape(t[1])
    per = 32 // bits
    parts = [(words >> np.uint32(bits * i)) & np.uint32((1 << bits) - 1) for i in range(per)]
    shape = list(t[1])
    shape[axis] *= per
    return np.stack(parts, axis=axis + 1 if axis >= 0 else axis).reshape(shape).astype(np.int64)

def read_fp8(t, o):
    w = e4m3(t["weight"])
    s = number(t[o["scale_name"]])
    if o.get("block"):
        rows, cols = o["block"]
        i, j = np.indices(w.shape)
        return w * s[i // rows, j // cols]
    return w * s.reshape(-1, 1)

def read_int8(t, o):
    return number(t["weight"]) * number(t["weight_scale"])

def read_packed(t, o):
    N, K = np.frombuffer(t["weight_shape"][2], "<i8")
    u, s = fields(t["weight_packed"], o["bits"], 1)[:, :K], number(t["weight_scale"])
    gamma = np.frombuffer(t["weight_g_idx"][2], "<i4") if "weight_g_idx" in t else np.arange(K) // (o["group"] if o["group"] > 0 else K)
    z = np.full(s.shape, 1 << (o["bits"] - 1)) if o["sym"] else fields(t["weight_zero_point"], o["bits"], 0)[:N]
    return (u - z[:, gamma]).astype(np.float32) * s[:, gamma]

def read_awq(t, o):
    def straight(x):
        u = fields(x, 4, 1)
        out = np.empty_like(u)
        for n in range(u.shape[1]):
            out[:, n] = u[:, n // 8 * 8 + [0, 4, 1, 5, 2, 6, 3, 7][n % 8]]
        return out
    u, z, s = straight(t["qweight"]), straight(t["qzeros"]), number(t["scales"])
    gamma = np.arange(len(u)) // o["group"]
    return ((u - z[gamma]).astype(np.float32) * s[gamma]).T

def read_gptq(t, o):
    u, z, s = fields(t["qweight"], o["bits"], 0), fields(t["qzeros"], o["bits"], 1), number(t["scales"])
    gamma = np.frombuffer(t["g_idx"][2], "<i4")
    z = z[:, :s.shape[1]] + (0 if o["v2"] else 1)
    return ((u - z[gamma]).astype(np.float32) * s[gamma]).T

def read_mxfp4(t, o):
    blocks = np.frombuffer(t["_blocks"][2], "u1").reshape(t["_blocks"][1])
    def value(c):
        m, e = c & 1, c >> 1 & 3
        x = np.where(e == 0, m * 0.5, (1 + m * 0.5) * np.exp2(e - 1.0))
        return np.where(c & 8, -x, x).astype(np.float32)
    w = np.stack([value(blocks & 15), value(blocks >> 4)], -1).reshape(*blocks.shape[:3], 32) * number(t["_scales"])[..., None]
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    w = w.reshape(*blocks.shape[:2], -1).transpose(0, 2, 1)
    other = convert_moe_packed_tensors(torch.from_numpy(blocks.copy()), torch.from_numpy(np.frombuffer(t["_scales"][2], "u1").reshape(t["_scales"][1]).copy()),
                                       dtype=torch.float32)
    assert torch.equal(other, torch.from_numpy(w.copy())), "transformers reads different values"
    return w

def read_nvfp4(t, o):
    blocks = np.frombuffer((t.get("weight_packed") or t["weight"])[2], "u1").astype(np.int64)
    nibbles = np.stack([blocks & 15, blocks >> 4], -1).reshape(t["weight_scale"][1][0], -1)
    m, e = nibbles & 1, nibbles >> 1 & 3
    w = np.where(e == 0, m * 0.5, (1 + m * 0.5) * np.exp2(e - 1.0)) * np.where(nibbles & 8, -1.0, 1.0)
    s = e4m3(t["weight_scale"]).astype(np.float64)
    s = s / number(t["weight_global_scale"]) if o["divides"] else s * number(t["weight_scale_2"])
    return w * np.repeat(s, 16, 1)[:, :w.shape[1]]

# --------------------------------------------------------------------------------------------------------------- cases
CASES = []

def case(name, family, prompt, cfg, config, write, read, dtype="f32", **o):
    """config: the quantization_config; o: parameters of writer and reader; keep: a regular expression of matrices that are not quantised."""
    CASES.append((name, family, prompt, plain.full(family, dict(dict(L=2), **cfg)), config, write, read, dtype, o))

def compressed(form, weights, activations=None, ignore=("lm_head",)):
    group = {"targets": ["Linear"], "weights": dict(dict(dynamic=False, symmetric=True, group_size=None, actorder=None), **weights),
             "input_activations": activations, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": list(ignore),
            "kv_cache_scheme": None, "config_groups": {"group_0": group}, "global_compression_ratio": 1.5}

KEPT = ["lm_head", "model.embed_tokens"]
SMALL = dict(V=97, H=48, A=6, K=2, D=16, F=88)
MOE = dict(moe_intermediate_size=40, num_experts=5, num_experts_per_tok=2)
BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
case("q-fp8-block128-qwen3", "qwen3", 17, dict(V=97, H=136, A=6, K=2, D=48, F=152, L=1), dict(BLOCK, weight_block_size=[128, 128],
     modules_to_not_convert=["lm_head", "model.layers.0.input_layernorm", "model.norm"]), write_fp8, read_fp8,
     block=(128, 128), scale="bf16", scale_name="weight_scale_inv")
case("q-fp8-block64-32-ue8m0", "llama", 15, SMALL, dict(BLOCK, weight_block_size=[64, 32], scale_fmt="ue8m0"), write_fp8, read_fp8,
     block=(64, 32), scale="ue8m0", scale_name="weight_scale_inv")
case("q-fp8-block32-qwen3moe", "qwen3_moe", 14, dict(SMALL, **MOE), dict(BLOCK, weight_block_size=[32, 32],
     modules_to_not_convert=["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"]), write_fp8, read_fp8,
     block=(32, 32), scale="f32", scale_name="weight_scale_inv")
LATENT = dict(V=97, H=48, A=3, K=3, F=88, moe_intermediate_size=40, n_routed_experts=5, num_experts_per_tok=2, kv_lora_rank=40, qk_nope_head_dim=32,
              qk_rope_head_dim=8, v_head_dim=32, first_k_dense_replace=1, n_group=1, topk_group=1)
case("q-fp8-block32-deepseek3", "deepseek_v3", 14, dict(LATENT, q_lora_rank=44), dict(BLOCK, weight_block_size=[32, 32],
     modules_to_not_convert=["lm_head", "model.layers.1.mlp.gate"]), write_fp8, read_fp8, block=(32, 32), scale="f32", scale_name="weight_scale_inv")
case("q-fp8-autofp8-static", "mistral", 16, dict(SMALL, sliding_window=None), dict(quant_method="fp8", activation_scheme="static",
     ignored_layers=["lm_head"]), write_fp8, read_fp8, scale="f32", scale_name="weight_scale", shape=[], input_scale=True)
case("q-fp8-fbgemm", "llama", 18, dict(SMALL, A=3, K=1), dict(quant_method="fbgemm_fp8", activation_scale_ub=1200.0,
     modules_to_not_convert=["lm_head", "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.k_proj",
                             "model.layers.0.self_attn.v_proj", "model.layers.0.self_attn.o_proj"]), write_fp8, read_fp8, row=True,
     scale="f32", scale_name="weight_scale", keep=r"layers\.0\.self_attn")
case("q-fp8-channel", "qwen2", 15, dict(SMALL, tie=True), compressed("float-quantized", dict(num_bits=8, type="float", strategy="channel"),
     dict(num_bits=8, type="float", strategy="token", dynamic=True)), write_fp8, read_fp8, row=True, scale="bf16", scale_name="weight_scale")
case("q-int8", "llama", 17, SMALL, compressed("int-quantized", dict(num_bits=8, type="int", strategy="channel"),
     dict(num_bits=8, type="int", strategy="token", dynamic=True), ["re:.*lm_head", "re:.*layers.1.mlp.down_proj$"]), write_int8, read_int8,
     keep=r"layers\.1\.mlp\.down_proj")
W4 = dict(num_bits=4, type="int", strategy="group", group_size=16)
case("q-w4-sym", "llama", 16, SMALL, compressed("pack-quantized", W4), write_packed, read_packed, bits=4, group=16, sym=True)
case("q-w4-asym-g32", "qwen2", 17, dict(SMALL, H=56, A=7, K=1, D=14, F=72), compressed("pack-quantized", dict(W4, group_size=32, symmetric=False)), write_packed,
     read_packed, bits=4, group=32, sym=False, scales=torch.bfloat16)
case("q-w4-moe", "mixtral", 15, dict(SMALL, F=40, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
     compressed("pack-quantized", W4, ignore=["lm_head", "re:.*block_sparse_moe.gate$"]), write_packed, read_packed, bits=4, group=16, sym=True)
case("q-w8-channel", "llama", 14, SMALL, compressed("pack-quantized", dict(num_bits=8, type="int", strategy="channel")), write_packed,
     read_packed, bits=8, group=-1, sym=True)
case("q-awq", "llama", 18, SMALL, dict(quant_method="awq", bits=4, group_size=16, zero_point=True, version="gemm", modules_to_not_convert=None),
     write_awq, read_awq, bits=4, group=16, sym=False)
GPTQ = dict(quant_method="gptq", bits=4, group_size=16, sym=True, desc_act=False, static_groups=False, damp_percent=0.01)
case("q-gptq-v1", "qwen2", 16, SMALL, GPTQ, write_gptq, read_gptq, bits=4, group=16, sym=True, v2=False)
case("q-gptq-v1-asym", "llama", 15, SMALL, dict(GPTQ, sym=False, checkpoint_format="gptq"), write_gptq, read_gptq, bits=4, group=16, sym=False, v2=False,
     least_zero=1)
case("q-gptq-v2-asym", "llama", 15, SMALL, dict(GPTQ, sym=False, checkpoint_format="gptq_v2"), write_gptq, read_gptq, bits=4, group=16, sym=False, v2=True)
case("q-gptq-8", "llama", 17, SMALL, dict(GPTQ, bits=8, group_size=-1), write_gptq, read_gptq, bits=8, group=-1, sym=True, v2=False)
# inputs whose groups are scattered; sizes that are not multiples of a group
ODD = dict(V=97, H=56, A=7, K=1, D=16, F=72)
ORDER = dict(GPTQ, desc_act=True)
case("q-gptq-order-v1", "llama", 16, SMALL, ORDER, write_gptq, read_gptq, bits=4, group=16, sym=True, v2=False, reordered=True)
case("q-gptq-order-v2-asym", "qwen2", 17, ODD, dict(ORDER, sym=False, group_size=32, checkpoint_format="gptq_v2"), write_gptq, read_gptq, bits=4,
     group=32, sym=False, v2=True, reordered=True)
case("q-gptq-order-8-asym", "llama", 15, SMALL, dict(ORDER, bits=8, sym=False, group_size=32), write_gptq, read_gptq, bits=8, group=32, sym=False,
     v2=False, least_zero=1, reordered=True)
case("q-w4-order-asym", "qwen2", 18, ODD, compressed("pack-quantized", dict(W4, symmetric=False, actorder="group")), write_packed, read_packed, bits=4,
     group=16, sym=False, reordered=True)
OSS = dict(V=97, H=64, A=6, K=2, D=16, F=96, L=2, sliding_window=7, num_local_experts=4, num_experts_per_tok=2, **plain.rope("yarn", 1000.0, **plain.OSS))
MX = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"])
case("q-mxfp4", "gpt_oss", 17, OSS, MX, write_mxfp4, read_mxfp4, experts=True)
case("q-nvfp4", "llama", 16, dict(SMALL, F=72), compressed("nvfp4-pack-quantized", dict(num_bits=4, type="float", strategy="tensor_group", group_size=16),
     dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, dynamic="local")), write_nvfp4, read_nvfp4, divides=True)
case("q-nvfp4-modelopt", "qwen2", 17, SMALL, dict(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head"]), write_nvfp4, read_nvfp4,
     divides=False)
# 16-bit models with sizes that the GPUs' fast products support
BIG = dict(V=203, H=128, A=4, K=2, D=64, F=256, L=1)
case("q-fp8-block128-bf16", "llama", 19, BIG, dict(BLOCK, weight_block_size=[128, 128]), write_fp8, read_fp8, "bf16",
     block=(128, 128), scale="bf16", scale_name="weight_scale_inv")
case("q-fp8-channel-f16", "llama", 19, BIG, compressed("float-quantized", dict(num_bits=8, type="float", strategy="channel")), write_fp8, read_fp8, "f16",
     row=True, scale="f32", scale_name="weight_scale", others=3)
case("q-fp8-tensor-bf16", "qwen3", 20, dict(BIG, H=256, tie=True), dict(quant_method="fp8", activation_scheme="dynamic"), write_fp8, read_fp8, "bf16",
     scale="f32", scale_name="weight_scale", shape=[1], others=3)
case("q-w4-asym-g64-f16", "llama", 21, BIG, compressed("pack-quantized", dict(W4, group_size=64, symmetric=False)), write_packed, read_packed, "f16",
     bits=4, group=64, sym=False)
case("q-w4-g128-bf16", "qwen3", 18, BIG, dict(GPTQ, group_size=128), write_gptq, read_gptq, "bf16", bits=4, group=128, sym=True, v2=False)
case("q-gptq-order-f16", "llama", 17, BIG, dict(ORDER, group_size=64), write_gptq, read_gptq, "f16", bits=4, group=64, sym=True, v2=False,
     reordered=True)
case("q-mxfp4-heads64-bf16", "gpt_oss", 18, dict(OSS, V=67, H=320, A=2, K=1, D=64, F=64, sliding_window=11, num_local_experts=3), MX, write_mxfp4, read_mxfp4, "bf16",
     experts=True, coarse=True, others=3)
case("q-mxfp4-bf16", "gpt_oss", 16, dict(OSS, A=4, D=64, F=64, L=1), MX, write_mxfp4, read_mxfp4, "bf16", experts=True)

MATRIX = r"\.((q|k|v|o|q_a|q_b|kv_b|gate|up|down|w1|w2|w3)(_proj)?|kv_a_proj_with_mqa)\.weight$"

def is_quantised(name, t, o):
    if o.get("experts"):
        return bool(re.search(r"experts\.(gate_up|down)_proj$", name))
    router = re.search(r"mlp\.gate\.weight$|block_sparse_moe\.gate\.weight$", name)
    return bool(re.search(MATRIX, name)) and not router and t.dim() == 2 and not re.search(o.get("keep", "^$"), name)

def quantise(folder, config, write, o, rng):
    """Turns the folder of a plain checkpoint into a quantised one."""
    sd, cfg = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    out = {}
    for name, t in sorted(sd.items()):
        if not is_quantised(name, t, o):
            out[name] = t.bfloat16() if t.dtype == torch.float32 and t.dim() == 2 else t
            continue
        w = t.float().numpy()
        w = w.transpose(0, 2, 1) if o.get("experts") else w
        stem = name if o.get("experts") else name.removesuffix("weight")
        out.update({stem + end: v for end, v in write(w.copy(), rng, o).items()})
    save_file({k: out[k].contiguous() for k in sorted(out)}, folder / "model.safetensors", metadata={"format": "pt"})
    cfg["quantization_config"] = config
    (folder / "config.json").write_text(json.dumps(cfg, indent=2, sort_keys=True) + "\n")

def dequantise(folder, names, read, o):
    """Returns {name: float32} of the checkpoint, from its bytes."""
    t, out = raw_tensors(folder / "model.safetensors"), {}
    for name in names:
        if name in t and t[name][0] in ("F32", "F16", "BF16"):
            out[name] = torch.from_numpy(number(t[name]).copy())
            continue
        stem = name if o.get("experts") else name.removesuffix("weight")
        parts = {k[len(stem):]: v for k, v in t.items() if k.startswith(stem)}
        out[name] = torch.from_numpy(np.ascontiguousarray(read(parts, o), np.float32))
    return out

def straight(folder, weights):
    """Returns transformers' model of the folder's config with these weights, without any quantization_config."""
    beside = folder.with_name(folder.name + ".dequantised")  # from_pretrained knows where transformers keeps each tensor
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    save_file(weights, beside / "model.safetensors", metadata={"format": "pt"})
    bare = json.loads((folder / "config.json").read_text())
    del bare["quantization_config"]
    (beside / "config.json").write_text(json.dumps(dict(bare, dtype="float32")))
    model = plain.load(beside)
    shutil.rmtree(beside)
    return model

def build(name, family, plen, cfg, config, write, read, dtype, o, out):
    V, folder, least = cfg["vocab_size"], out / name, plain.FITTED if o.get("coarse") else plain.ROUTER[dtype]
    for attempt in range(400):
        seed = zlib.crc32(f"{name}:{attempt}".encode())
        model = plain.randomise(plain.new_model(family, cfg), seed, plain.DTYPES[dtype], 1.0, 1.0, o.get("coarse"))
        plain.write_folder(model, folder, family, dtype, {})
        names = list(load_numpy(folder / "model.safetensors")) if dtype != "bf16" else list(load_file(folder / "model.safetensors"))
        quantise(folder, config, write, o, np.random.default_rng(seed))
        reference = straight(folder, dequantise(folder, names, read, o))
        prompt = torch.randint(0, V, (plen,), generator=torch.Generator().manual_seed(seed + 1))
        prompt[1], prompt[2] = V - 1, 0
        tokens, logits = plain.run(reference, prompt)
        clear = plain.min_gap(logits) >= plain.GAP[dtype] and len(set(tokens.tolist())) >= plain.KINDS
        others = plain.random_sequences(V, o.get("others", 0), plen + plain.NEW - 1, seed + 2)
        if clear and all(plain.router_margin(reference, seq) >= least for seq in [torch.cat([prompt, tokens[:-1]]), *others]):
            break
    else:
        raise RuntimeError("no seed with clear greedy tokens")
    answer = {"prompt": prompt.to(torch.int32), "tokens": tokens.to(torch.int32), "logits": logits.contiguous()}
    if o.get("others"):
        answer["others"] = others.to(torch.int32)
        answer["others_logits"] = torch.cat([plain.run(reference, seq[:plen], seq[plen:].tolist() + [0])[1] for seq in others])
    save_file(answer, folder / "expected.safetensors")
    print(f"{name}: seed {attempt}, {sum(f.stat().st_size for f in folder.iterdir()) // 1024} KiB, logits' deviation {float(logits.std()):.2f}", flush=True)

def for_cases(make):
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "fixtures")
    ap.add_argument("--only", default="")
    args = ap.parse_args()
    plain.transformers.utils.logging.set_verbosity_error()
    getattr(plain.transformers.utils.logging, "disable_progress_bar", lambda: None)()
    torch.set_num_threads(1)
    for c in CASES:
        if re.search(args.only, c[0]):
            make(c, args.out)

if __name__ == "__main__":
    for_cases(lambda case, out: build(*case, out))
