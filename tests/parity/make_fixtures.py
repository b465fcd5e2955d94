#!/usr/bin/env python3
"""Build the parity fixtures: tiny random checkpoints with the answers of Hugging Face transformers.

    python3 tests/parity/make_fixtures.py [--out DIR] [--tar FILE] [--only REGEX]

makes DIR/NAME/ with config.json and model.safetensors (what the runtime loads) and expected.safetensors:
prompt I32 [p], tokens I32 [32] (greedy), logits F32 [p+31, V]; row t is the prediction after seq[0..t], where
seq = prompt + tokens[:31]. The folder is written first (renames, buffers and older config spellings included), then
loaded back by transformers' from_pretrained, on the CPU, float32 (16-bit files too), eager attention. One forward
takes the whole prompt, then one token at a time goes through the KV cache: that run is the reference. Dynamic NTK and
longrope rotate cached and new keys differently, so for them a forward without a cache computes another function.

A case is accepted only if (else the next seed is tried, or the case fails)
  - the best two logits are GAP (or the case's own `gap`) apart at each of the 32 positions, and KINDS different tokens come out;
  - no tensor is missing on load, and model.generate() gives the same tokens;
  - a forward without cache agrees to 1e-4, or for cases with `cachediff` differs by SENS or more;
  - zeroing any tensor (norm weights: setting it to 1) moves some logit by SENS or more, so that all are needed;
  - so does each config change in `alt` (likely mistakes): wrong activation, ignored window, other rope ...;
  - for every token in every mixture of experts the last chosen and the first one left out are ROUTER apart, so that another
    order of summation does not choose another expert, whose answer would be equally correct but different;
  - transformers' own run in the file's 16-bit type is well inside the tolerance of the test (OWN16).
Cases with `others` have heads and sizes that the GPU backend's persistent step supports, and two more tensors in
expected.safetensors: others I32 [k, p+31], further sequences of random tokens, and others_logits F32 [k (p+31), V], their
logits, row by row as above: several sequences that share nothing can be decoded together. No token of these has a near-tie,
either. Mixtures need a large hidden size for that step. To keep their files small when compressed, `coarse` rounds matrices
to few different values. Random routers would have near-ties among that many tokens, so routers are fitted (fit_routers).
Needs torch, transformers 5.x, safetensors. Seeds are fixed: a rerun gives the same weights and tokens.
"""
import argparse, copy, json, re, shutil, sys, tarfile, time, traceback, warnings, zlib
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

NEW = 32       # generated tokens
KINDS = 8      # least number of different tokens generated
GAP = {"f32": 1e-2, "f16": 5e-2, "bf16": 6e-2}  # least distance between the best two logits at a generated position
ROUTER = {"f32": 2e-3, "f16": 2e-2, "bf16": 3e-2}  # least distance in the router's logits
FITTED = 0.2   # the same for routers that are fitted
SENS = 1e-2    # least effect that a tensor or a config key must have on some logit
SENS_ACT = 3e-3  # the same for the activation: the two gelus differ by at most 5e-4
OWN16 = 1.2e-2   # largest relative error of transformers' own 16-bit run (the test allows 2e-2)
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PREFIX = {"gpt2": "transformer.", "gpt_neo": "transformer.", "gptj": "transformer.", "bloom": "transformer.", "gpt_neox": "gpt_neox.", "opt": "model."}

# ---------------------------------------------------------------------------------------------- cases
LLM = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings rms_norm_eps hidden_act"
GPT = "vocab_size n_embd n_layer n_head n_inner n_positions layer_norm_epsilon activation_function"
NAMES = {  # the config keys of the short names below, by family
    "gpt2": GPT, "gptj": GPT, "gpt_neox": LLM.replace("rms_norm_eps", "layer_norm_eps"),
    "opt": LLM.replace("intermediate_size", "ffn_dim").replace("hidden_act", "activation_function"),
    "gpt_neo": "vocab_size hidden_size num_layers num_heads intermediate_size max_position_embeddings layer_norm_epsilon activation_function",
    "bloom": "vocab_size hidden_size n_layer n_head - - layer_norm_epsilon -"}
CASES = []

def full(family, c):
    """V vocabulary, H hidden, L layers (2), A heads, K kv heads, D head size, F ffn, P positions, eps, act, tie."""
    keys = dict(zip("V H L A F P eps act".split(), NAMES.get(family, LLM).split()),
                K="num_key_value_heads", D="head_dim", tie="tie_word_embeddings")
    return {keys.get(k, k): v for k, v in c.items()}

def case(name, family, prompt, cfg, dtype="f32", **opt):
    """opt: v4 = write the 4.x config spelling ("type" or "rope_type" names the key of rope_scaling; True: no
    scaling); noprefix = names without the base model prefix; buffers = add mask buffers as in old files;
    rename/drop/extra = config.json keys; drop_rope = keys left out of rope_scaling; others = number of further sequences; top_original = the original
    length beside rope_scaling, not in it; together = all experts of a layer as one tensor, as in transformers 5's
    memory; coarse = few different values in matrices, and fitted routers; head = also write the tied head; loud = gain of gpt-oss' experts,
    so that they clamp; sharp = gain of the final norm;
    wrap = (model_type, prefix, ...): also written as the language model of a multimodal folder;
    alt = config changes that must change the logits; cachediff = the cached run computes another function."""
    CASES.append((name, family, prompt, full(family, dict(dict(L=2), **cfg)), dtype, opt))

def rope(kind="default", theta=10000.0, **kw):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **kw))

def part(pct, theta=10000.0, kind="default", **kw):
    return rope(kind, theta, partial_rotary_factor=pct, **kw)

LONGNAMES = dict(zip(GPT.split()[1:4] + ["n_positions"], LLM.split()[1:4] + ["max_position_embeddings"]))
# gpt2: Conv1D, fused Q|K|V blocks, learned positions (5 heads: head size 5, and prompt + 32 fill the table)
case("gpt2-3h", "gpt2", 17, dict(V=97, H=24, A=3, P=64, eps=1e-2), sharp=3, alt=[dict(eps=1e-5), dict(act="gelu")])
case("gpt2-5h-noprefix-buffers", "gpt2", 23, dict(V=101, H=25, A=5, P=55, F=53, scale_attn_by_inverse_layer_idx=True),
     noprefix=True, buffers=True, v4=True, alt=[dict(scale_attn_by_inverse_layer_idx=False)])
case("gpt2-7h-untied-unscaled", "gpt2", 12, dict(V=103, H=28, A=7, P=64, F=52, act="gelu", tie=False, scale_attn_weights=False),
     sharp=3, rename=LONGNAMES, alt=[dict(scale_attn_weights=True), dict(act="gelu_new")])
case("gpt2-f16", "gpt2", 27, dict(V=107, H=30, A=5, P=64, F=61, reorder_and_upcast_attn=True), "f16")

# gptj: interleaved partial rotary, parallel residual with one norm, head with bias
case("gptj-3h", "gptj", 17, dict(V=97, H=24, A=3, P=64, rotary_dim=4), sharp=4, rename=LONGNAMES,
     alt=[dict(rotary_dim=8), dict(rotary_dim=2), dict(act="gelu")])
case("gptj-5h-tied-noprefix-buffers", "gptj", 21, dict(V=103, H=30, A=5, P=56, F=53, rotary_dim=4, eps=1e-2, tie=True), v4=True,
     noprefix=True, buffers=True, extra=dict(rotary=True, scale_attn_weights=True, n_ctx=56), alt=[dict(eps=1e-5)])
case("gptj-bf16", "gptj", 31, dict(V=99, H=30, A=5, P=80, F=53, rotary_dim=6), "bf16")

# gpt_neox: per-head q,k,v; half-split partial rotary; two norms
case("neox-parallel", "gpt_neox", 17, dict(V=97, H=40, A=5, F=29, P=60, eps=1e-2, act="gelu", **part(0.25)), sharp=5,
     alt=[dict(use_parallel_residual=False), dict(act="gelu_fast"), part(0.5), dict(eps=1e-5)])
case("neox-sequential", "gpt_neox", 11, dict(V=101, H=24, A=3, F=77, P=60, act="gelu_fast", use_parallel_residual=False,
     **part(1.0, 500.0)), sharp=3, alt=[dict(use_parallel_residual=True), dict(act="gelu"), part(0.25, 500.0), part(1.0)])
case("neox-tied-linear", "gpt_neox", 20, dict(V=113, H=24, A=3, F=52, P=60, tie=True, **part(0.5, 1000.0, "linear", factor=4.0)),
     v4="type", alt=[part(0.5, 1000.0)])
case("neox-f16-noprefix-buffers", "gpt_neox", 26, dict(V=103, H=28, A=7, F=52, P=60, attention_bias=False, **part(0.7, 5000.0)),
     "f16", v4=True, noprefix=True, buffers=True, drop=["use_parallel_residual"])

# opt: positions offset by two, pre- or post-norm, projections
case("opt-pre", "opt", 17, dict(V=97, H=24, A=3, F=52, P=64), head=True, alt=[dict(act="gelu")])
case("opt-350m-noprefix", "opt", 19, dict(V=101, H=28, A=7, F=53, P=51, do_layer_norm_before=False, word_embed_proj_dim=20),
     noprefix=True, v4=True)
case("opt-nobias-gelu", "opt", 14, dict(V=107, H=25, A=5, F=53, P=64, act="gelu", tie=False, enable_bias=False), sharp=3,
     alt=[dict(act="gelu_new")])
case("opt-noaffine-proj", "opt", 24, dict(V=103, H=24, A=4, F=41, P=64, layer_norm_elementwise_affine=False, word_embed_proj_dim=26))
case("opt-bf16", "opt", 33, dict(V=109, H=25, A=5, F=77, P=72), "bf16")

# bloom: ALiBi (slopes of the global head), norm on the embedding, per-head q,k,v, F = 4H (8 heads: head size 3)
case("bloom-8h", "bloom", 17, dict(V=97, H=24, A=8, eps=1e-2),
     alt=[dict(eps=1e-5), dict(apply_residual_connection_post_layernorm=True)])
case("bloom-5h-postln-noprefix", "bloom", 22, dict(V=101, H=25, A=5, apply_residual_connection_post_layernorm=True), noprefix=True,
     v4=True, rename=dict(hidden_size="n_embed", n_head="num_attention_heads"), extra=dict(pretraining_tp=4, slow_but_exact=False,
     masked_softmax_fusion=True, seq_length=64), alt=[dict(apply_residual_connection_post_layernorm=False)])
case("bloom-6h-bf16", "bloom", 35, dict(V=113, H=24, A=6), "bf16")

# llama: every rope scaling
L3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(factor=4.0, original_max_position_embeddings=32)
YARN2 = dict(YARN, beta_fast=8, beta_slow=2)
LONG = dict(short_factor=[1.0, 1.1, 1.4, 2.0], long_factor=[1.5, 3.0, 6.0, 9.0], original_max_position_embeddings=24)
case("llama-mha", "llama", 17, dict(V=97, H=24, A=3, F=52, eps=1e-2), v4=True, alt=[dict(eps=1e-6)],
     drop=["num_key_value_heads", "head_dim", "rope_theta"])
case("llama-7-1-tied", "llama", 19, dict(V=101, H=28, A=7, K=1, F=41, tie=True, **rope(theta=500000.0)), head=True, alt=[rope()])
case("llama-tied-own-head", "llama", 14, dict(V=97, H=24, A=3, F=41), extra=dict(tie_word_embeddings=True))  # transformers 5 uses the head
case("llama-6-2-bias", "llama", 13, dict(V=103, H=24, A=6, K=2, D=10, F=41, attention_bias=True, mlp_bias=True))
case("llama-14-2-gelu", "llama", 15, dict(V=107, H=28, A=14, K=2, D=4, F=44, act="gelu"), sharp=3,
     alt=[dict(act="silu"), dict(act="gelu_new")])
case("llama-linear", "llama", 21, dict(V=97, H=20, A=5, K=1, D=8, F=52, **rope("linear", factor=4.0)), v4="type", alt=[rope()])
case("llama-dynamic-cross", "llama", 13, dict(V=99, H=24, A=3, K=1, D=8, F=52, P=24, **rope("dynamic", factor=3.0)), v4="type",
     cachediff=True, alt=[rope(), rope("dynamic", factor=2.0)])
case("llama-dynamic-long", "llama", 29, dict(V=99, H=24, A=6, K=3, D=8, F=41, P=16, **rope("dynamic", factor=3.0)),
     cachediff=True, alt=[rope(), rope("dynamic", factor=2.0)])
case("llama-llama3", "llama", 25, dict(V=101, H=24, A=3, K=1, D=16, F=41, **rope("llama3", original_max_position_embeddings=64, **L3)),
     v4="rope_type", alt=[rope(), rope("linear", factor=8.0), rope("llama3", original_max_position_embeddings=32, **L3)])
case("llama-yarn", "llama", 29, dict(V=97, H=24, A=3, K=1, D=16, F=41, **rope("yarn", **YARN)),
     alt=[rope(), rope("linear", factor=4.0), rope("yarn", attention_factor=1.0, **YARN)])
case("llama-yarn-notruncate", "llama", 18, dict(V=99, H=24, A=4, K=2, D=16, F=41,
     **rope("yarn", 1000.0, truncate=False, attention_factor=1.25, **YARN2)), v4="type",
     alt=[rope("yarn", 1000.0, attention_factor=1.25, **YARN2), rope("yarn", 1000.0, truncate=False, **YARN2),
          rope("yarn", 1000.0, truncate=False, attention_factor=1.25, **YARN)])
case("llama-yarn-mscale", "llama", 16, dict(V=97, H=24, A=3, D=8, F=52, P=96, **rope("yarn", 100.0, factor=8.0, mscale=1.0,
     mscale_all_dim=0.3)), v4="rope_type", drop_rope=["original_max_position_embeddings"],  # then P replaces it
     alt=[rope("yarn", 100.0, factor=8.0), rope(theta=100.0)])
case("llama-longrope-cross", "llama", 13, dict(V=101, H=24, A=3, K=1, D=8, F=52, P=96, **rope("longrope", **LONG)), v4="rope_type",
     top_original=True, cachediff=True, alt=[rope(), rope("longrope", **dict(LONG, attention_factor=1.0)),
     rope("longrope", **dict(LONG, long_factor=LONG["short_factor"])), rope("longrope", **dict(LONG, short_factor=[1.0] * 4))])
case("llama-longrope-long", "llama", 31, dict(V=103, H=24, A=4, D=8, F=41, P=96,
     **rope("longrope", factor=2.0, attention_factor=1.3, **LONG)), alt=[rope("longrope", factor=2.0, **LONG),
     rope("longrope", **dict(LONG, long_factor=LONG["short_factor"], attention_factor=1.3))])
case("llama-longrope-factor", "llama", 31, dict(V=101, H=24, A=4, D=8, F=41, P=96, **rope("longrope", factor=2.0, **LONG)),
     alt=[rope("longrope", **LONG)])  # the factor is not P / 24
case("llama-f16", "llama", 22, dict(V=109, H=30, A=5, K=1, F=77), "f16", v4=True)
case("llama-bf16", "llama", 40, dict(V=113, H=36, A=6, K=2, D=8, F=53, **rope("llama3", original_max_position_embeddings=32, **L3)),
     "bf16")

# mistral, qwen2, qwen3
case("mistral-window", "mistral", 23, dict(V=97, H=24, A=6, K=2, D=10, F=41, sliding_window=9),
     alt=[dict(sliding_window=None), dict(sliding_window=10), dict(sliding_window=8)])
case("mistral-nowindow", "mistral", 17, dict(V=101, H=20, A=5, K=1, F=52, sliding_window=None, **rope(theta=1e6)), v4=True,
     alt=[dict(sliding_window=9)])
case("mistral-defaults-tied", "mistral", 12, dict(V=99, H=32, A=8, F=44, tie=True), v4=True,
     drop=["num_key_value_heads", "head_dim", "sliding_window", "rope_theta"])
case("mistral-window-bf16", "mistral", 30, dict(V=103, H=28, A=7, K=1, D=6, F=53, sliding_window=7), "bf16", v4=True)
WINDOW = dict(use_sliding_window=True, sliding_window=7)
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
case("qwen2-tied", "qwen2", 17, dict(V=101, H=28, A=7, K=1, F=52, tie=True, **rope(theta=1e6)), v4=True)
case("qwen2-window", "qwen2", 20, dict(V=97, H=24, A=3, K=1, F=41, L=3, max_window_layers=1, **WINDOW), v4=True,
     alt=[dict(use_sliding_window=False), dict(max_window_layers=0), dict(max_window_layers=2)])
case("qwen2-layertypes-bf16", "qwen2", 28, dict(V=109, H=20, A=5, K=5, F=53, L=3, layer_types=TYPES, **WINDOW), "bf16",
     alt=[dict(layer_types=None)])
case("qwen2-yarn-nowindow", "qwen2", 34, dict(V=103, H=24, A=6, K=2, F=52, sliding_window=9, **rope("yarn", 100.0, **YARN)), v4="type",
     alt=[rope(theta=100.0), dict(use_sliding_window=True, max_window_layers=0)])
case("qwen3-tied", "qwen3", 17, dict(V=97, H=26, A=6, K=2, D=8, F=52, tie=True, **rope(theta=1e6)), v4=True)
case("qwen3-untied-bias", "qwen3", 14, dict(V=103, H=24, A=5, K=1, D=10, F=53, attention_bias=True, eps=1e-2), alt=[dict(eps=1e-6)])
case("qwen3-f16", "qwen3", 24, dict(V=107, H=28, A=7, K=7, D=6, F=52), "f16")

# mixtures of experts: each expert's columns are distributed over the ranks, so that of 13 some ranks get two and some
# one
def experts(n, k, ffn, **kw):
    return dict(num_experts=n, num_experts_per_tok=k, moe_intermediate_size=ffn, **kw)

case("qwen3moe-5", "qwen3_moe", 17, dict(V=97, H=26, A=6, K=2, D=8, F=41, L=3, mlp_only_layers=[1], **experts(5, 2, 13, norm_topk_prob=True)),
     v4=True, alt=[dict(norm_topk_prob=False), dict(num_experts_per_tok=3)])
case("qwen3moe-7-together-window", "qwen3_moe", 14, dict(V=103, H=24, A=5, K=1, D=10, F=37, attention_bias=True, eps=1e-2,
     decoder_sparse_step=2, use_sliding_window=True, sliding_window=9, **experts(7, 3, 11)), together=True,
     alt=[dict(eps=1e-6), dict(norm_topk_prob=True), dict(num_experts_per_tok=2), dict(sliding_window=8), dict(use_sliding_window=False)])
case("qwen3moe-bf16", "qwen3_moe", 15, dict(V=101, H=28, A=7, K=7, D=6, F=53, decoder_sparse_step=2, tie=True,
     **experts(6, 2, 20, norm_topk_prob=True)), "bf16")
case("mixtral-5", "mixtral", 17, dict(V=97, H=26, A=6, K=2, D=8, F=13, num_local_experts=5, num_experts_per_tok=2), v4=True,
     drop=["rope_theta", "sliding_window"], alt=[dict(num_experts_per_tok=1), dict(eps=1e-2)])
case("mixtral-3-together-window-tied", "mixtral", 14, dict(V=101, H=24, A=5, K=1, D=6, F=17, num_local_experts=3, num_experts_per_tok=1, tie=True,
     sliding_window=7, **rope(theta=500.0)), together=True, alt=[dict(num_experts_per_tok=2), dict(sliding_window=8), rope(theta=1e4)])
case("mixtral-f16", "mixtral", 13, dict(V=103, H=28, A=7, K=7, L=1, F=24, num_local_experts=6, num_experts_per_tok=3), "f16")
case("qwen2moe-6", "qwen2_moe", 16, dict(V=97, H=24, A=6, K=2, F=37, L=3, mlp_only_layers=[2], use_sliding_window=True, sliding_window=9,
     max_window_layers=2, shared_expert_intermediate_size=19, **experts(6, 2, 13)), v4=True, alt=[dict(norm_topk_prob=True),
     dict(num_experts_per_tok=3), dict(max_window_layers=3), dict(use_sliding_window=False)])
case("qwen2moe-3-together-nobias", "qwen2_moe", 15, dict(V=101, H=28, A=7, K=1, F=41, qkv_bias=False, shared_expert_intermediate_size=5,
     **experts(3, 3, 11, norm_topk_prob=True)), together=True, alt=[dict(num_experts_per_tok=2)])
case("qwen2moe-bf16", "qwen2_moe", 14, dict(V=103, H=28, A=7, K=7, F=41, L=1, shared_expert_intermediate_size=26, tie=True,
     **experts(5, 2, 16)), "bf16")
case("olmoe-5", "olmoe", 15, dict(V=97, H=30, A=5, K=5, F=13, eps=1e-2, num_experts=5, num_experts_per_tok=2, **rope(theta=500.0)), v4=True,
     extra=dict(clip_qkv=None), alt=[dict(norm_topk_prob=True), dict(num_experts_per_tok=3), dict(eps=1e-5), rope()])
case("olmoe-6-2-together-bias-bf16", "olmoe", 14, dict(V=101, H=36, A=6, K=2, F=16, tie=True, attention_bias=True, num_experts=3,
     num_experts_per_tok=2, norm_topk_prob=True), "bf16", together=True, alt=[dict(norm_topk_prob=False)])
OSS = dict(factor=4.0, beta_fast=8.0, beta_slow=2.0, truncate=False, original_max_position_embeddings=32)
case("gptoss-5", "gpt_oss", 17, dict(V=97, H=26, A=6, K=2, D=16, F=13, L=3, sliding_window=7, num_local_experts=5, num_experts_per_tok=2,
     **rope("yarn", 1000.0, **OSS)), loud=4, alt=[dict(swiglu_limit=1e9), dict(swiglu_alpha=1.0), dict(sliding_window=8),
     dict(num_experts_per_tok=3), rope("yarn", 1000.0, **dict(OSS, truncate=True)), rope(theta=1000.0)])
case("gptoss-3-types-nobias", "gpt_oss", 15, dict(V=101, H=24, A=5, K=1, D=10, F=19, attention_bias=False, sliding_window=9, tie=True,
     layer_types=["full_attention", "sliding_attention"], num_local_experts=3, num_experts_per_tok=1, **rope("yarn", 1000.0, **OSS)),
     alt=[dict(layer_types=None), dict(num_experts_per_tok=2)])
case("gptoss-bf16", "gpt_oss", 16, dict(V=103, H=28, A=7, K=7, D=6, F=16, L=1, num_local_experts=4, num_experts_per_tok=2), "bf16",
     drop=["rope_parameters"])
GLM = dict(hidden_act="silu", n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=13)
case("glm4moe-groups", "glm4_moe", 14, dict(GLM, V=97, H=26, A=6, K=2, D=8, F=41, n_routed_experts=8, n_group=4, topk_group=2, use_qk_norm=True,
     routed_scaling_factor=1.5, norm_topk_prob=False), alt=[dict(n_group=1, topk_group=1), dict(topk_group=3), dict(norm_topk_prob=True),
     dict(routed_scaling_factor=1.0)])
case("glm4moe-bias-two-shared-together", "glm4_moe", 15, dict(GLM, V=101, H=24, A=5, K=1, D=10, F=37, L=3, attention_bias=True, n_shared_experts=2,
     first_k_dense_replace=2, **part(0.4)), together=True, alt=[dict(num_experts_per_tok=1), dict(norm_topk_prob=False), part(1.0)])
case("glm4moe-bf16", "glm4_moe", 14, dict(GLM, V=103, H=28, A=7, K=7, D=8, F=53, tie=True), "bf16")
ERNIE = dict(hidden_act="silu", moe_num_experts=6, moe_k=2, moe_intermediate_size=13)
case("ernie45moe-5", "ernie4_5_moe", 15, dict(ERNIE, V=97, H=24, A=5, K=1, D=8, F=41, L=5, eps=1e-2, moe_num_shared_experts=1,
     moe_layer_end_index=3, moe_layer_interval=2, **rope(theta=500.0)), v4=True, alt=[dict(eps=1e-6), dict(moe_k=3), dict(moe_norm_min=0.9), rope()])
case("ernie45moe-together-bf16", "ernie4_5_moe", 14, dict(ERNIE, V=101, H=28, A=7, K=7, F=37, moe_num_experts=5, moe_k=1, moe_num_shared_experts=0,
     moe_norm_min=0.7, tie=False), "bf16", together=True, alt=[dict(moe_norm_min=1e-12)])
DOTS = dict(GLM, n_shared_experts=1, first_k_dense_replace=1)
case("dots1-5-groups", "dots1", 15, dict(DOTS, V=97, H=24, A=5, K=1, D=8, F=41, L=3, eps=1e-2, n_routed_experts=8, n_group=4, topk_group=2,
     routed_scaling_factor=1.5, sliding_window=7, max_window_layers=1), v4=True, extra=dict(scoring_func="noaux_tc", topk_method="noaux_tc"),
     alt=[dict(eps=1e-6), dict(n_group=1, topk_group=1), dict(norm_topk_prob=True), dict(routed_scaling_factor=1.0), dict(max_window_layers=0),
     dict(max_window_layers=2), dict(sliding_window=8)])
case("dots1-types-two-shared-together-f16", "dots1", 14, dict(DOTS, V=101, H=28, A=7, K=7, F=37, attention_bias=True, n_shared_experts=2,
     first_k_dense_replace=0, norm_topk_prob=True, sliding_window=9, layer_types=TYPES[:2], tie=True), "f16", together=True,
     alt=[dict(layer_types=TYPES[1:]), dict(norm_topk_prob=False), dict(num_experts_per_tok=1)])
case("solaropen-5-groups", "solar_open", 14, dict(GLM, V=97, H=24, A=5, K=1, D=8, eps=1e-2, n_routed_experts=8, n_group=4, topk_group=2,
     attention_bias=True, routed_scaling_factor=1.5, **rope("yarn", 1000.0, **YARN)), v4="type", extra=dict(first_k_dense_replace=0,
     use_qk_norm=False, partial_rotary_factor=1.0), alt=[dict(eps=1e-5), dict(n_group=1, topk_group=1), dict(routed_scaling_factor=1.0),
     dict(norm_topk_prob=False), rope(theta=1000.0)])
case("solaropen-together-bf16", "solar_open", 13, dict(GLM, V=101, H=28, A=7, K=7, D=6, n_shared_experts=2, norm_topk_prob=False,
     tie=True, **rope(theta=500.0)), "bf16", together=True, alt=[dict(norm_topk_prob=True), rope()])
EXAONE = dict(hidden_act="silu", moe_intermediate_size=13, num_experts=6, num_experts_per_tok=2)
case("exaonemoe-5-groups", "exaone_moe", 15, dict(EXAONE, V=97, H=24, A=5, K=1, D=8, F=41, L=4, eps=1e-2, num_experts=8, n_group=4, topk_group=2,
     sliding_window=7, sliding_window_pattern=4, first_k_dense_replace=2, **rope(theta=500.0)), v4=True, drop=["mlp_layer_types"],
     alt=[dict(eps=1e-5), dict(n_group=1, topk_group=1), dict(sliding_window=8), dict(sliding_window_pattern=2),
     dict(routed_scaling_factor=1.0), rope()])
case("exaonemoe-types-together-bf16", "exaone_moe", 13, dict(EXAONE, V=101, H=28, A=7, K=7, D=6, F=37, num_shared_experts=2, norm_topk_prob=False,
     sliding_window=9, layer_types=TYPES[:2], mlp_layer_types=["sparse", "dense"]), "bf16", together=True,
     extra=dict(sliding_window_pattern="LG"), alt=[dict(norm_topk_prob=True), dict(layer_types=TYPES[1:])])

# latent attention: one latent and one rotated key for all heads; a router of softmax with groups by their best, or of sigmoids
MLA = dict(hidden_act="silu", n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=13, kv_lora_rank=9, qk_nope_head_dim=6,
           qk_rope_head_dim=4, v_head_dim=5, first_k_dense_replace=1)
MLA2 = dict(MLA, kv_lora_rank=10)  # transformers' rotation requires the key to come after an even rank
STRETCH = dict(factor=8.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=0.9)
case("deepseek2-3-yarn", "deepseek_v2", 15, dict(MLA2, V=97, H=24, A=3, F=41, eps=1e-2, q_lora_rank=None, routed_scaling_factor=1.5,
     **rope("yarn", 1000.0, **STRETCH)), v4="type", drop=["num_key_value_heads", "head_dim"], alt=[dict(eps=1e-6), dict(routed_scaling_factor=1.0),
     rope("yarn", 1000.0, **dict(STRETCH, mscale_all_dim=0.4)), rope("yarn", 1000.0, **dict(STRETCH, mscale=0.0)), rope()])
case("deepseek2-groups-bias", "deepseek_v2", 14, dict(MLA2, V=101, H=28, A=7, F=37, q_lora_rank=10, attention_bias=True, n_routed_experts=8,
     num_experts_per_tok=3, topk_method="group_limited_greedy", n_group=4, topk_group=2, n_shared_experts=1), alt=[dict(topk_method="greedy"), dict(topk_group=3)])
case("deepseek2-tied-bf16", "deepseek_v2", 13, dict(MLA, V=103, H=30, A=5, F=53, q_lora_rank=11, kv_lora_rank=12, n_shared_experts=1, tie=True), "bf16")
case("deepseek3-5-groups", "deepseek_v3", 15, dict(MLA, V=97, H=26, A=5, K=5, F=41, eps=1e-2, q_lora_rank=10, n_routed_experts=8, n_group=4,
     topk_group=2, routed_scaling_factor=1.5, **rope("yarn", 1000.0, **STRETCH)), v4="type", alt=[dict(eps=1e-6), dict(n_group=1, topk_group=1),
     dict(topk_group=3), dict(norm_topk_prob=False), dict(rope_interleave=False), rope("yarn", 1000.0, **dict(STRETCH, mscale_all_dim=0.4))])
case("deepseek3-6-half-together", "deepseek_v3", 14, dict(MLA, V=101, H=25, A=6, K=6, F=37, q_lora_rank=None, attention_bias=True, n_group=1,
     topk_group=1, rope_interleave=False, n_shared_experts=2, norm_topk_prob=False), together=True, alt=[dict(rope_interleave=True),
     dict(norm_topk_prob=True), dict(num_experts_per_tok=1)])
case("deepseek3-f16", "deepseek_v3", 13, dict(MLA, V=103, H=28, A=4, K=4, F=53, q_lora_rank=8, kv_lora_rank=12, v_head_dim=8, n_group=1, topk_group=1,
     tie=True), "f16")
case("glm4lite-7", "glm4_moe_lite", 15, {**MLA, **dict(V=97, H=26, A=7, K=7, F=41, L=3, eps=1e-2, q_lora_rank=10, v_head_dim=9,
     mlp_layer_types=["dense", "sparse", "dense"])}, drop=["first_k_dense_replace"], alt=[dict(eps=1e-6), dict(routed_scaling_factor=1.0)])
case("glm4lite-bias-bf16", "glm4_moe_lite", 14, dict(MLA, V=101, H=28, A=4, K=4, F=53, q_lora_rank=12, kv_lora_rank=12, attention_bias=True),
     "bf16", drop=["mlp_layer_types"])

# layers that rotate and attend in chunks beside layers that do neither; an expert's input is multiplied by its share
L4 = dict(num_local_experts=4, floor_scale=8, attn_scale=0.7, attention_chunk_size=11)
case("llama4-5-interleaved", "llama4_text", 19, dict(L4, V=97, H=24, A=5, K=1, D=10, F=13, L=4, eps=1e-2, intermediate_size_mlp=37,
     interleave_moe_layer_step=2, no_rope_layer_interval=2), alt=[dict(eps=1e-5), dict(attention_chunk_size=16), dict(attn_scale=0.1),
     dict(floor_scale=9), dict(attn_temperature_tuning=False), dict(use_qk_norm=False), dict(no_rope_layer_interval=3)])
case("llama4-6-2-plain", "llama4_text", 17, dict(L4, V=101, H=26, A=6, K=2, D=8, F=16, intermediate_size_mlp=19, no_rope_layers=[0, 1], moe_layers=[0],
     use_qk_norm=False, attn_temperature_tuning=False, attention_bias=True, attention_chunk_size=15, num_local_experts=3,
     **rope("llama3", original_max_position_embeddings=64, **L3)), alt=[dict(use_qk_norm=True), dict(attention_chunk_size=32), rope()])
case("llama4-bf16", "llama4_text", 14, dict(L4, V=103, H=28, A=7, K=7, D=6, F=16, intermediate_size_mlp=19, tie=True), "bf16", gap=0.12)  # logits reach 10, where bf16 steps by 0.06
case("llama4-pictures", "llama4_text", 15, dict(L4, V=97, H=24, A=4, K=2, D=6, F=14, intermediate_size_mlp=23),
     wrap=("llama4", "language_model.model."))

YOUTU = dict(q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5)
case("youtu-5", "youtu", 17, dict(YOUTU, V=97, H=26, A=5, F=41, K=5, eps=1e-2, tie=False, attention_bias=True,
     **rope("yarn", 1000.0, mscale=1.0, mscale_all_dim=0.8, **YARN)), alt=[rope(theta=1000.0), dict(eps=1e-6), dict(rope_interleave=False)])
case("youtu-noquery-bf16", "youtu", 14, dict(YOUTU, V=103, H=28, A=7, F=53, K=7, q_lora_rank=None, tie=False, rope_interleave=False), "bf16", v4=True,
     alt=[dict(rope_interleave=True)])

# Llama-like models: fused tensors, LayerNorm, partial and interleaved rotations, layers without rotation
LONG3 = dict(short_factor=[1.0, 1.1, 1.4], long_factor=[1.5, 3.0, 6.0], original_max_position_embeddings=24, partial_rotary_factor=0.75)
case("phi3-longrope", "phi3", 31, dict(V=101, H=24, A=3, K=1, F=41, P=96, original_max_position_embeddings=24, **rope("longrope", **LONG3)),
     alt=[rope("longrope", **dict(LONG3, long_factor=LONG3["short_factor"])), rope()])
case("phi3-window-tied-bf16", "phi3", 17, dict(V=103, H=28, A=7, F=53, sliding_window=9, tie=True), "bf16", v4=True,
     drop=["num_key_value_heads", "rope_theta"], alt=[dict(sliding_window=None)])
case("glm-5", "glm", 17, dict(V=97, H=26, A=5, K=1, D=8, F=41, eps=1e-2, **part(0.5)), alt=[part(1.0), dict(eps=1e-6)])
case("glm-nobias-f16", "glm", 14, dict(V=101, H=28, A=7, K=7, D=12, F=53, attention_bias=False, tie=True), "f16", v4=True)
case("starcoder2-window", "starcoder2", 19, dict(V=97, H=24, A=6, K=2, F=41, sliding_window=8, norm_epsilon=1e-2), v4=True,
     alt=[dict(sliding_window=None), dict(norm_epsilon=1e-5)])
case("starcoder2-nobias-bf16", "starcoder2", 15, dict(V=103, H=28, A=7, K=1, F=53, use_bias=False, tie=False, act="gelu"), "bf16")
case("stablelm-bias", "stablelm", 17, dict(V=97, H=40, A=5, K=1, F=29, use_qkv_bias=True, layer_norm_eps=1e-2, **part(0.25)), v4=True,
     alt=[part(0.5), dict(layer_norm_eps=1e-5), dict(use_parallel_residual=True)])
case("stablelm-parallel-f16", "stablelm", 14, dict(V=101, H=28, A=7, K=7, F=53, use_parallel_residual=True, tie=True, **part(1.0)), "f16")
case("stablelm-norms-6-2", "stablelm", 15, dict(V=97, H=36, A=6, K=2, F=41, qk_layernorm=True, use_parallel_residual=True, layer_norm_eps=1e-2, **part(0.4)),
     alt=[dict(layer_norm_eps=1e-5)])
case("smollm3-4", "smollm3", 16, dict(V=97, H=24, A=6, K=2, F=41, L=4), v4=True, drop=["rope_theta", "no_rope_layers", "head_dim"],
     alt=[dict(no_rope_layers=[1, 1, 1, 1]), dict(no_rope_layers=[0, 1, 1, 0])])
case("smollm3-listed-window-bf16", "smollm3", 18, dict(V=103, H=28, A=7, K=1, F=53, no_rope_layers=[0, 1], tie=False, **WINDOW), "bf16",
     alt=[dict(no_rope_layers=[1, 0]), dict(use_sliding_window=False)])
case("seed-oss-5", "seed_oss", 17, dict(V=97, H=26, A=5, K=1, D=8, F=41, eps=1e-2, **rope(theta=500.0)), v4=True,
     alt=[rope(), dict(eps=1e-6), dict(attention_bias=False)])
case("seed-oss-biases-bf16", "seed_oss", 14, dict(V=103, H=28, A=7, K=7, D=6, F=53, attention_bias=False, attention_out_bias=True,
     mlp_bias=True, tie=True), "bf16", alt=[dict(attention_out_bias=False), dict(mlp_bias=False)])
case("ernie45-5", "ernie4_5", 17, dict(V=97, H=26, A=5, K=1, D=8, F=41, eps=1e-2, use_bias=True, tie=False, **rope(theta=500.0)),
     alt=[rope(), dict(eps=1e-5), dict(use_bias=False)])
case("ernie45-nobias-f16", "ernie4_5", 15, dict(V=103, H=28, A=7, K=7, D=6, F=53, tie=True, **rope(theta=500000.0)), "f16", v4=True,
     drop=["rope_theta", "use_bias", "tie_word_embeddings"], alt=[rope()])
case("internlm3-5", "internlm3", 17, dict(V=97, H=40, A=5, K=1, D=10, F=41, eps=1e-2, attention_bias=True, mlp_bias=True, **rope(theta=500.0)),
     v4=True, rename=dict(attention_bias="qkv_bias", mlp_bias="bias"), alt=[rope(), dict(eps=1e-5), dict(attention_bias=False, mlp_bias=False)])
case("internlm3-dynamic-f16", "internlm3", 13, dict(V=103, H=28, A=7, K=7, D=6, F=53, P=24, **rope("dynamic", 5e4, factor=6.0)), "f16",
     v4="rope_type", cachediff=True, alt=[rope(theta=5e4)])
case("iquestcoder-5", "iquestcoder", 16, dict(V=97, H=40, A=5, K=1, D=10, F=41, eps=1e-2, attention_bias=True, mlp_bias=True, **rope(theta=5e5)),
     v4=True, extra=dict(clip_qkv=None, use_sliding_window=False, sliding_window=None), alt=[rope(), dict(eps=1e-5)])
case("iquestcoder-bf16", "iquestcoder", 14, dict(V=103, H=28, A=7, K=7, D=6, F=53), "bf16")
case("helium-5", "helium", 17, dict(V=97, H=40, A=5, K=1, D=8, F=41, eps=1e-2, attention_bias=True, mlp_bias=True, **rope(theta=500.0)),
     alt=[rope(), dict(eps=1e-8), dict(attention_bias=False)])
case("helium-bf16", "helium", 14, dict(V=103, H=42, A=7, K=7, D=6, F=53, **rope(theta=1e5)), "bf16", v4=True, drop=["rope_theta"])
CWM = dict(bos_token_id=0)  # its class requires a number
case("cwm-5", "cwm", 18, dict(CWM, V=97, H=40, A=5, K=1, D=10, F=41, L=5, eps=1e-2, sliding_window=7, **rope("llama3", original_max_position_embeddings=32, **L3)),
     v4="rope_type", alt=[dict(sliding_window=8), dict(layer_types=TYPES + TYPES[:2]), rope(), dict(eps=1e-5)])
case("cwm-listed-bf16", "cwm", 14, dict(CWM, V=103, H=28, A=7, K=7, D=6, F=53, sliding_window=9, layer_types=TYPES[:2], mlp_bias=True), "bf16",
     drop=["rope_parameters"], alt=[dict(layer_types=TYPES[1:]), dict(mlp_bias=False), rope()])
case("ministral-types", "ministral", 19, dict(V=97, H=24, A=6, K=2, D=10, F=41, sliding_window=9, layer_types=TYPES[:2]),
     alt=[dict(layer_types=TYPES[1:])])
case("ministral-f16", "ministral", 15, dict(V=101, H=28, A=7, K=1, D=6, F=53, sliding_window=8, tie=True), "f16", v4=True)

# norms of what is added, one-row norms of q and k, factors, caps, two rotations
ROTATIONS = dict(full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=4.0), sliding_attention=dict(rope_type="default", rope_theta=100.0))
def rotations(**kw):
    return dict(rope_parameters={k: dict(v, **kw.get(k, {})) for k, v in ROTATIONS.items()})

GEMMA = dict(hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10)
case("gemma-5", "gemma", 17, dict(V=97, H=25, A=5, K=1, D=8, F=41, eps=1e-2, **rope(theta=500.0)), alt=[dict(eps=1e-6), rope()])
case("gemma-bf16", "gemma", 14, dict(V=103, H=28, A=7, K=7, D=6, F=53, attention_bias=True), "bf16", v4=True, drop=["hidden_act"])
case("gemma2-6", "gemma2", 19, dict(GEMMA, V=97, H=24, A=6, K=2, D=10, F=41, L=3, sliding_window=7, attn_logit_softcapping=2.0,
     final_logit_softcapping=12.0), v4=True, drop=["rope_theta"], alt=[dict(attn_logit_softcapping=None),
     dict(final_logit_softcapping=None), dict(sliding_window=8), dict(query_pre_attn_scalar=12)])
case("gemma2-types-nocap-bf16", "gemma2", 15, dict(GEMMA, V=103, H=28, A=7, K=1, D=6, F=53, sliding_window=9, attn_logit_softcapping=None,
     final_logit_softcapping=None, layer_types=TYPES[1:]), "bf16", alt=[dict(layer_types=TYPES[:2]), dict(attn_logit_softcapping=1.0)])
case("vaultgemma-6", "vaultgemma", 19, dict(GEMMA, V=97, H=24, A=6, K=2, D=10, F=41, L=3, sliding_window=7, attn_logit_softcapping=2.0,
     final_logit_softcapping=12.0), v4=True, drop=["rope_theta"], alt=[dict(attn_logit_softcapping=None),
     dict(final_logit_softcapping=None), dict(sliding_window=8), dict(query_pre_attn_scalar=12)])
case("vaultgemma-types-bf16", "vaultgemma", 15, dict(GEMMA, V=103, H=28, A=7, K=1, D=6, F=53, sliding_window=9, layer_types=TYPES[1:]), "bf16",
     alt=[dict(layer_types=TYPES[:2])])
case("gemma3-6", "gemma3_text", 18, dict(GEMMA, V=97, H=24, A=6, K=2, D=8, F=41, L=3, sliding_window=7, layer_types=TYPES, eps=1e-2,
     **rotations()), alt=[rotations(full_attention=dict(factor=1.0)), rotations(sliding_attention=dict(rope_theta=1000.0)),
     dict(sliding_window=8), dict(eps=1e-6), dict(final_logit_softcapping=3.0)])
case("gemma3-pattern-bf16", "gemma3_text", 15, dict(GEMMA, V=103, H=28, A=7, K=1, D=6, F=53, sliding_window=9, layer_types=TYPES[:2]),
     "bf16", v4=True, drop=["layer_types"], extra=dict(sliding_window_pattern=2, rope_theta=1e6, rope_local_base_freq=1e4))
case("gemma3-pictures", "gemma3_text", 14, dict(GEMMA, V=101, H=24, A=6, K=2, D=8, F=41, sliding_window=7, layer_types=TYPES[:2]),
     wrap=("gemma3", "language_model.model."))
case("glm4-5", "glm4", 17, dict(V=97, H=26, A=5, K=1, D=8, F=41, eps=1e-2, **part(0.5)), alt=[part(1.0), dict(eps=1e-6)])
case("glm4-nobias-f16", "glm4", 14, dict(V=101, H=28, A=7, K=7, D=12, F=53, attention_bias=False, tie=True), "f16", v4=True)
case("olmo-5", "olmo", 17, dict(V=97, H=40, A=5, K=1, F=41, **rope(theta=500.0)), alt=[rope()])
case("olmo-bias-bf16", "olmo", 14, dict(V=103, H=42, A=7, F=53, attention_bias=True), "bf16", v4=True,
     drop=["num_key_value_heads", "rope_theta"], alt=[dict(attention_bias=False), rope(theta=500.0)])
case("olmo2-5", "olmo2", 17, dict(V=97, H=40, A=5, K=1, F=41, eps=1e-2, **rope(theta=500.0)), alt=[rope(), dict(eps=1e-6)])
case("olmo2-bias-tied-bf16", "olmo2", 14, dict(V=103, H=42, A=7, F=53, attention_bias=True, tie=True), "bf16", v4=True,
     drop=["num_key_value_heads"])
case("exaone4-5", "exaone4", 18, dict(V=97, H=26, A=5, K=1, D=8, F=41, L=4, eps=1e-2, sliding_window=7), v4=True,
     alt=[dict(sliding_window=8), dict(eps=1e-5), dict(layer_types=["sliding_attention"] * 4), rope(theta=500.0),
          dict(sliding_window=None, layer_types=["full_attention"] * 4)])
case("exaone4-listed-tied-f16", "exaone4", 15, dict(V=103, H=28, A=7, K=7, D=6, F=53, sliding_window=9, layer_types=TYPES[:2], tie=True,
     **rope("llama3", original_max_position_embeddings=32, **L3)), "f16", extra=dict(sliding_window_pattern="LLLG"),
     alt=[dict(layer_types=TYPES[1:]), rope()])
case("exaone4-global-bf16", "exaone4", 14, dict(V=101, H=24, A=6, K=2, F=43, sliding_window=None, layer_types=["full_attention"] * 2), "bf16",
     alt=[rope(theta=500.0), dict(sliding_window=9)])
OLMO3 = dict(full_attention=dict(rope_type="yarn", rope_theta=1000.0, **YARN), sliding_attention=dict(rope_type="default", rope_theta=1000.0))
case("olmo3-yarn", "olmo3", 18, dict(V=97, H=48, A=6, K=2, F=41, L=4, sliding_window=7, rope_parameters=OLMO3),
     alt=[dict(sliding_window=8), dict(rope_parameters=dict(OLMO3, full_attention=OLMO3["sliding_attention"])),
          dict(rope_parameters=dict(OLMO3, sliding_attention=OLMO3["full_attention"]))])
case("olmo3-types-f16", "olmo3", 15, dict(V=101, H=28, A=7, K=7, F=53, sliding_window=9, layer_types=TYPES[1:]), "f16")
GRANITE = dict(embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=0.5)
case("granite-5", "granite", 17, dict(GRANITE, V=97, H=40, A=5, K=1, F=41, tie=True), v4=True,
     alt=[{k: 1.0} for k in GRANITE])
case("granite-bias-bf16", "granite", 14, dict(GRANITE, V=103, H=42, A=7, K=7, F=53, attention_bias=True, mlp_bias=True), "bf16")
CLOVA = dict(embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.0)
case("hyperclovax-5", "hyperclovax", 17, dict(CLOVA, V=97, H=40, A=5, K=1, D=10, F=41, eps=1e-2, attention_multiplier=0.2), v4=True,
     drop=["use_post_norm"], alt=[{k: 1.0} for k in CLOVA] + [dict(attention_multiplier=None), dict(use_post_norm=False), dict(eps=1e-6), rope(theta=500.0)])
case("hyperclovax-bias-bf16", "hyperclovax", 14, dict(V=103, H=42, A=7, F=53, use_post_norm=False, attention_bias=True, mlp_bias=True, tie=True),
     "bf16", drop=["attention_multiplier"], alt=[dict(attention_multiplier=1.0), dict(mlp_bias=False)])
MOE = dict(num_local_experts=5, num_experts_per_tok=2)
case("granitemoe-5", "granitemoe", 14, dict(GRANITE, **MOE, V=97, H=24, A=6, K=2, F=13), alt=[{k: 1.0} for k in GRANITE] + [dict(num_experts_per_tok=1)])
case("granitemoe-together-bf16", "granitemoe", 13, dict(GRANITE, V=103, H=28, A=7, K=7, F=16, L=1, num_local_experts=4, num_experts_per_tok=2),
     "bf16", together=True)
case("graniteshared-5", "granitemoeshared", 14, dict(GRANITE, **MOE, V=97, H=24, A=6, K=2, F=13, shared_intermediate_size=19),
     alt=[{k: 1.0} for k in GRANITE] + [dict(num_experts_per_tok=1)])
case("graniteshared-together-bias-f16", "granitemoeshared", 13, dict(GRANITE, V=103, H=28, A=7, K=7, F=16, L=1, num_local_experts=4,
     num_experts_per_tok=2, shared_intermediate_size=11, attention_bias=True), "f16", together=True)
ATTENTION = ["attention"] * 2
HYBRID = dict(GRANITE, num_local_experts=0, num_experts_per_tok=0, layer_types=ATTENTION, shared_intermediate_size=41, mamba_n_heads=2)
case("granitehybrid-5-rope", "granitemoehybrid", 16, dict(HYBRID, V=97, H=40, A=5, K=1, F=13, position_embedding_type="rope", tie=True,
     **rope(theta=500.0)), v4=True, extra=dict(layer_types=ATTENTION, normalization_function="rmsnorm"),
     alt=[{k: 1.0} for k in GRANITE] + [rope(), dict(position_embedding_type=None)])
case("granitehybrid-nope-bias-bf16", "granitemoehybrid", 14, dict(HYBRID, V=103, H=42, A=7, K=7, F=53, attention_bias=True), "bf16",
     extra=dict(position_embedding_type="nope"), alt=[dict(position_embedding_type="rope")])
case("granitehybrid-mixture-nope", "granitemoehybrid", 13, dict(HYBRID, V=101, H=24, A=6, K=2, F=13, num_local_experts=5, num_experts_per_tok=2),
     alt=[dict(num_experts_per_tok=1)])
case("cohere-norms", "cohere", 17, dict(V=97, H=40, A=5, K=1, F=41, use_qk_norm=True, layer_norm_eps=1e-2, logit_scale=1.5),
     alt=[dict(use_qk_norm=False), dict(layer_norm_eps=1e-5), dict(logit_scale=1.0), rope()])
case("cohere-norms-6-2-bf16", "cohere", 14, dict(V=103, H=36, A=6, K=2, F=53, use_qk_norm=True, attention_bias=True, logit_scale=0.5, tie=False), "bf16", v4=True)
case("cohere2-pattern", "cohere2", 18, dict(V=97, H=40, A=5, K=1, F=41, L=4, sliding_window=7, logit_scale=1.5), v4=True,
     extra=dict(sliding_window_pattern=4), alt=[dict(sliding_window=8), dict(layer_types=["sliding_attention"] * 4)])
case("cohere2-types-f16", "cohere2", 14, dict(V=101, H=28, A=7, K=7, F=53, sliding_window=9, layer_types=TYPES[1:], attention_bias=True, logit_scale=0.5), "f16")
case("phi-3", "phi", 17, dict(V=97, H=36, A=3, F=41, layer_norm_eps=1e-2, **part(0.4)), sharp=3, v4=True, alt=[part(0.5), dict(layer_norm_eps=1e-5)])
case("phi-7-1-bf16", "phi", 14, dict(V=103, H=56, A=7, K=1, F=53, act="gelu"), "bf16")
FALCON = dict(max_position_embeddings=64)
case("falcon-multiquery", "falcon", 17, dict(FALCON, V=97, H=40, A=5, layer_norm_epsilon=1e-2), alt=[dict(layer_norm_epsilon=1e-5), rope(theta=100.0)])
case("falcon-new-6-2", "falcon", 15, dict(FALCON, V=101, H=36, A=6, num_kv_heads=2, new_decoder_architecture=True, bias=True, tie=False,
     ffn_hidden_size=41), v4=True)
case("falcon-new-one-norm-bf16", "falcon", 14, dict(FALCON, V=103, H=42, A=7, num_kv_heads=1, new_decoder_architecture=True, num_ln_in_parallel_attn=1), "bf16")
case("falcon-sequential-f16", "falcon", 13, dict(FALCON, V=101, H=28, A=7, multi_query=False, parallel_attn=False, bias=True, activation="relu"), "f16")
case("gptneo-5", "gpt_neo", 17, dict(V=97, H=40, A=5, F=41, P=64, L=4, window_size=7, attention_types=[[["global", "local"], 2]]),
     alt=[dict(window_size=8), dict(attention_types=[[["global"], 4]])])
case("gptneo-7-bf16", "gpt_neo", 14, dict(V=103, H=42, A=7, F=53, P=64, L=3, window_size=5, tie=False,
     attention_types=[[["local"], 1], [["global"], 2]]), "bf16", noprefix=True)
GROWS = dict(llama_4_scaling_beta=0.5, mscale=1.0, mscale_all_dim=1.0, factor=4.0, original_max_position_embeddings=8)
case("ministral3-5", "ministral3", 21, dict(V=97, H=24, A=5, K=1, D=10, F=41, **rope("yarn", 1000.0, **GROWS)),
     alt=[rope("yarn", 1000.0, **dict(GROWS, llama_4_scaling_beta=0.0)), rope("yarn", 1000.0, **dict(GROWS, mscale_all_dim=0.5))])
case("ministral3-window-bf16", "ministral3", 15, dict(V=103, H=28, A=7, K=7, D=6, F=53, sliding_window=9, tie=True,
     **rope("yarn", 1000.0, **GROWS)), "bf16")
case("mistral3-pictures-ministral3", "ministral3", 15, dict(V=97, H=24, A=5, K=1, D=10, F=41, **rope("yarn", 1000.0, **GROWS)),
     wrap=("mistral3", "language_model.model."))
case("mistral3-pictures-mistral-bf16", "mistral", 14, dict(V=103, H=28, A=7, K=1, D=6, F=53, sliding_window=None), "bf16",
     wrap=("mistral3", "model.language_model."))
case("minimax-5", "minimax_m2", 14, dict(MOE, V=97, H=26, A=6, K=2, D=8, F=13, eps=1e-2, **part(0.5)), alt=[dict(num_experts_per_tok=3), part(1.0), dict(eps=1e-6)])
case("minimax-together-f16", "minimax_m2", 13, dict(V=101, H=28, A=7, K=1, D=8, F=16, L=1, num_local_experts=4, num_experts_per_tok=2, tie=True), "f16", together=True)

# 16-bit models that the GPU backend's persistent step supports: heads of 64 or 128 elements; otherwise as small as
# possible
BIG, WIDE = dict(V=203, H=64, F=192), dict(V=131, H=128, A=2, F=128, P=64)
case("llama-heads64-bf16", "llama", 21, dict(BIG, A=4, K=2, D=64, **rope(theta=500000.0)), "bf16", others=3)
case("llama-heads128-f16", "llama", 18, dict(BIG, A=4, K=1, D=128), "f16", others=3)
case("mistral-heads64-window-bf16", "mistral", 22, dict(BIG, A=4, K=2, D=64, sliding_window=19), "bf16", others=3,
     gap=0.15)  # with 0.06 two GPUs chose the second best
case("qwen3-heads64-f16", "qwen3", 19, dict(BIG, A=4, K=2, D=64, tie=True), "f16", others=3)
case("gptj-heads64-f16", "gptj", 23, dict(WIDE, rotary_dim=32), "f16", others=3)
case("neox-heads64-bf16", "gpt_neox", 20, dict(WIDE, act="gelu", **part(0.25)), "bf16", others=3)
case("opt-heads64-bf16", "opt", 24, WIDE, "bf16", others=3)
case("gpt2-heads64-f16", "gpt2", 17, WIDE, "f16", others=3)
FEW = dict(V=67, H=64, A=4, F=128, D=64)
case("phi3-heads64-window-bf16", "phi3", 19, dict(FEW, K=2, sliding_window=13), "bf16", others=3)
case("ministral-heads64-types-bf16", "ministral", 21, dict(FEW, K=1, sliding_window=11, layer_types=TYPES[:2]), "bf16", others=3)
case("starcoder2-heads64-window-bf16", "starcoder2", 18, dict(WIDE, V=67, K=1, sliding_window=9), "bf16", others=3)
case("gemma3-heads256-bf16", "gemma3_text", 22, dict(GEMMA, V=67, H=64, A=2, K=1, D=256, F=128, sliding_window=11, layer_types=TYPES[:2],
     query_pre_attn_scalar=256, **rotations()), "bf16", others=3)
case("glm4-heads128-f16", "glm4", 18, dict(V=67, H=64, A=2, K=1, D=128, F=128, **part(0.5)), "f16", others=3)

# apertus, arcee: no gate; xIELU with constants of each layer in the checkpoint, or the square of relu
APERTUS = rope("llama3", 1000.0, original_max_position_embeddings=24, **L3)
case("apertus-6-2", "apertus", 17, dict(V=97, H=24, A=6, K=2, F=53, eps=1e-2, **APERTUS), v4="rope_type",
     alt=[dict(eps=1e-6), dict(act="silu"), dict(act="relu2"), rope(theta=1000.0)])
case("apertus-bias-tied-bf16", "apertus", 14, dict(V=103, H=28, A=7, K=1, F=41, attention_bias=True, tie=True, **APERTUS), "bf16")
case("arcee-5", "arcee", 16, dict(V=97, H=40, A=5, K=1, F=53, eps=1e-2), v4=True, drop=["rope_theta"],
     alt=[dict(eps=1e-6), dict(act="relu"), dict(act="silu")])
case("arcee-yarn-bias-f16", "arcee", 19, dict(V=101, H=28, A=7, K=7, F=44, attention_bias=True, mlp_bias=True, **rope("yarn", **YARN)), "f16")

# hunyuan: norms of q and k after the rotation; "dynamic" with alpha is a larger base
ALPHA = dict(alpha=50.0, factor=1.0)
case("hunyuan-6-2", "hunyuan_v1_dense", 17, dict(V=97, H=24, A=6, K=2, D=8, F=53, eps=1e-2, **rope("dynamic", 500.0, **ALPHA)), v4="type",
     extra=dict(use_qk_norm=True, attention_head_dim=8), alt=[dict(eps=1e-6), rope(theta=500.0), rope("dynamic", 500.0, alpha=9.0, factor=1.0)])
case("hunyuan-yarn-bias-tied-bf16", "hunyuan_v1_dense", 14, dict(V=103, H=28, A=7, K=1, D=8, F=41, attention_bias=True, tie=True,
     **rope("yarn", **YARN)), "bf16")
case("hunyuan-moe-5", "hunyuan_v1_moe", 15, dict(V=97, H=40, A=5, K=5, D=8, F=29, num_experts=6, moe_topk=[3, 3], **rope("dynamic", 500.0, **ALPHA)),
     alt=[dict(moe_topk=2)])
case("hunyuan-moe-together-f16", "hunyuan_v1_moe", 16, dict(V=101, H=28, A=7, K=1, D=8, F=23, num_experts=4, moe_topk=1, tie=True), "f16",
     together=True)

# The language models of Qwen2.5-VL and Qwen3-VL are Qwen2 and Qwen3: three equal positions per token of a text
MROPE = dict(type="mrope", mrope_section=[2, 1, 1])
case("qwen25vl-flat", "qwen2", 15, dict(V=97, H=24, A=3, K=1, F=41, eps=1e-2, **rope(theta=1000.0)), v4="type", wrap=("qwen2_5_vl", "model."),
     extra=dict(rope_scaling=MROPE), alt=[dict(eps=1e-6), rope()])
case("qwen25vl-nested-tied-bf16", "qwen2", 14, dict(V=103, H=28, A=7, K=1, F=41, tie=True, **rope(theta=1e6, mrope_section=[1, 1, 0])), "bf16",
     wrap=("qwen2_5_vl", "model.language_model."))
case("qwen3vl-5", "qwen3", 16, dict(V=97, H=40, A=5, K=1, D=8, F=53, **rope(theta=5e5, mrope_section=[2, 1, 1], mrope_interleaved=True)),
     wrap=("qwen3_vl", "model.language_model."))
case("qwen3vl-moe-f16", "qwen3_moe", 15, dict(V=101, H=28, A=7, K=7, D=8, F=41, norm_topk_prob=True, num_experts=4, num_experts_per_tok=2,
     moe_intermediate_size=19, tie=True, **rope(theta=5e5, mrope_section=[2, 1, 1], mrope_interleaved=True)), "f16", together=True,
     wrap=("qwen3_vl_moe", "model.language_model."))

case("qwen3vl-moe-saved-bf16", "qwen3_moe", 13, dict(V=97, H=24, A=5, K=1, D=8, F=41, L=1, norm_topk_prob=True, num_experts=3, num_experts_per_tok=2,
     moe_intermediate_size=13, **rope(theta=5e5, mrope_section=[2, 1, 1], mrope_interleaved=True)), "bf16", together=True,
     wrap=("qwen3_vl_moe", "model.language_model.", False))

# Mixtures have two rows of the hidden size for each of an H200's 132 multiprocessors, and 64 columns of an expert for each
# rank: all run on one rank, those with 128 columns on two.
MANY, FITS = dict(V=67, H=320, A=2, K=1, D=64, F=64), dict(coarse=True, others=3, gap=0.08)
case("qwen3moe-heads64-bf16", "qwen3_moe", 19, dict(MANY, L=1, **experts(3, 2, 128, norm_topk_prob=True)), "bf16", **FITS)
case("mixtral-heads128-f16", "mixtral", 16, dict(MANY, D=128, L=1, num_local_experts=3, num_experts_per_tok=2, sliding_window=None),
     "f16", **FITS)
case("qwen2moe-heads64-bf16", "qwen2_moe", 18, dict(MANY, L=1, shared_expert_intermediate_size=64, **experts(4, 2, 64)), "bf16", **FITS)
case("gptoss-heads64-bf16", "gpt_oss", 21, dict(MANY, sliding_window=11, num_local_experts=3, num_experts_per_tok=2, **rope("yarn", 1000.0, **OSS)),
     "bf16", **FITS)
case("glm4moe-heads64-bf16", "glm4_moe", 17, dict(MANY, hidden_act="silu", n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
     routed_scaling_factor=1.5, use_qk_norm=True), "bf16", **FITS)
case("deepseek2-heads192-bf16", "deepseek_v2", 18, dict(V=67, H=320, A=2, F=64, L=1, hidden_act="silu", q_lora_rank=None, kv_lora_rank=512,
     qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=3, num_experts_per_tok=2,
     moe_intermediate_size=64, n_shared_experts=1, routed_scaling_factor=1.5), "bf16", **FITS)

# ------------------------------------------------------------------------------------------- building
def new_model(family, cfg):  # transformers changes rope dictionaries in place: never share them
    config = AutoConfig.for_model(family, **dict(dict(bos_token_id=None, eos_token_id=None, pad_token_id=None), **copy.deepcopy(cfg)))
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager", **EXPERTS).eval()

EXPERTS = dict(experts_implementation="eager")  # its grouped products require rows that are multiples of 16 bytes

def random_sequences(vocab, n, length, seed):
    return torch.randint(0, vocab, (n, length), generator=torch.Generator().manual_seed(seed))

def routers_of(model):
    return [m for m in model.modules() if hasattr(m, "top_k") and (hasattr(m, "weight") or hasattr(m, "wg"))]

@torch.no_grad()
def fit_routers(model, seed, dtype):
    """Gives every token experts of its own, whose logits are far from the others': each router is the linear map from its
    inputs in random text, by least squares, to random logits about 1 for a token's experts and about -1 for the others."""
    gen = torch.Generator().manual_seed(seed)
    text = random_sequences(model.config.vocab_size, 32, 48, seed)
    for router in routers_of(model):
        seen, n = [], router.weight.shape[0]
        hook = router.register_forward_pre_hook(lambda module, args: seen.append(args[0].reshape(-1, args[0].shape[-1])))
        model(input_ids=text, use_cache=False)
        hook.remove()
        wish = torch.randn(model.config.vocab_size, n, generator=gen)
        chosen = torch.zeros_like(wish).scatter(1, wish.topk(router.top_k).indices, 1.0)
        wish = wish * 0.2 + 2 * chosen - 1 - (0 if getattr(router, "bias", None) is None else router.bias)
        router.weight.copy_(torch.linalg.lstsq(seen[0], wish[text.reshape(-1)]).solution.T.to(dtype).float())

def randomise(model, seed, dtype, sharp, loud=1.0, coarse=False):
    """Gives every parameter significant values: no zero bias, no norm of ones; then rounds to the file's dtype.
    A tied model gets random signs in its final norm, or it would mostly repeat the token just read."""
    gen, tied = torch.Generator().manual_seed(seed), model.config.tie_word_embeddings
    gain = 1.3 if dtype == torch.float32 else 0.9  # smaller, so that 16-bit rounding stays small
    with torch.no_grad():
        for path, mod in model.named_modules():
            last = re.fullmatch(r"\w+\.(ln_f|norm|final_layer_norm|decoder\.final_layer_norm)", path)
            for leaf, p in mod.named_parameters(recurse=False):
                x = torch.randn(p.shape, generator=gen)
                if coarse and p.dim() > 1:
                    x = (x * 2).round() / 2
                if p.dim() == 1:  # norm weights around 1, biases around 0
                    x = (x * 0.3 + (leaf == "weight")) * (sharp if last else 1.0)
                    if last and tied and leaf == "weight":
                        x = x * (torch.randint(0, 2, p.shape, generator=gen) * 2 - 1)
                    if re.match("(Vault)?Gemma", type(mod).__name__):  # stored minus one
                        x = x - 1
                elif isinstance(mod, torch.nn.Embedding):
                    x = x * (1.0 if coarse else 0.5)
                elif mod is model.get_output_embeddings():
                    x = x * (2.5 / p.shape[1] ** 0.5)
                else:
                    x = x * (gain / p.shape[0 if type(mod).__name__ == "Conv1D" else -1] ** 0.5)
                p.copy_((x * (loud if leaf == "gate_up_proj" else 1.0)).to(dtype).float())
            for leaf, p in mod.named_buffers(recurse=False):
                if leaf == "e_score_correction_bias":
                    p.copy_((torch.randn(p.shape, generator=gen) * (0.1 if coarse else 0.3)).to(dtype).float())
        model.tie_weights()
    if coarse:
        fit_routers(model, seed, dtype)
    return model

@torch.no_grad()
def run(model, prompt, forced=None):
    """Runs the prompt in one forward, then token by token through the cache. Returns (tokens [32], logits [p+31, V])."""
    out = model(input_ids=prompt[None], use_cache=True)
    rows, tokens = [out.logits[0].float()], []
    for i in range(NEW):
        tokens.append(int(forced[i]) if forced is not None else int(rows[-1][-1].argmax()))
        if i < NEW - 1:
            out = model(input_ids=torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)
            rows.append(out.logits[0].float())
    return torch.tensor(tokens), torch.cat(rows)

@torch.no_grad()
def uncached(model, prompt, tokens):
    return model(input_ids=torch.cat([prompt, tokens[:-1]])[None], use_cache=False).logits[0].float()

def logits_of(router, x):
    weight = router.wg.weight if hasattr(router, "wg") else router.weight  # Hunyuan's is a module of the router
    return torch.nn.functional.linear(x, weight, getattr(router, "bias", None))

@torch.no_grad()
def router_margin(model, sequence):
    """Returns the least distance between the logits of the last chosen expert and the first one left out, over tokens and layers."""
    margins = [float("inf")]
    def look(router, args):
        x = args[0].reshape(-1, args[0].shape[-1])
        logits = logits_of(router, x)
        correction = args[1] if len(args) > 1 else getattr(router, "e_score_correction_bias", None)
        judges = 2 if correction is not None else 1 if getattr(router, "topk_method", "") == "group_limited_greedy" else 0
        if correction is not None:  # sigmoids, a quarter as steep as logits, corrected
            logits = 4 * (logits.sigmoid() + correction)
        if hasattr(router, "moe_statics"):
            logits = 4 * router.moe_statics(logits.softmax(-1))
        if judges > 0 and getattr(router, "num_group", 1) > 1:  # a group counts as its best one or two
            groups = logits.view(len(logits), router.num_group, -1).topk(judges).values.sum(-1)
            best = groups.sort(-1, descending=True).values
            margins.append(float((best[:, router.topk_group - 1] - best[:, router.topk_group]).min()))
            left = (groups < best[:, router.topk_group - 1 : router.topk_group]).repeat_interleave(logits.shape[-1] // router.num_group, 1)
            logits = logits.masked_fill(left, float("-inf"))
        logits = logits.sort(-1, descending=True).values
        if router.top_k < logits.shape[-1]:
            margins.append(float((logits[:, router.top_k - 1] - logits[:, router.top_k]).min()))
    hooks = [m.register_forward_pre_hook(look) for m in routers_of(model)]
    model(input_ids=sequence[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    return min(margins)

def min_gap(logits):
    return float(-logits[-NEW:].topk(2).values.diff().max())

def dist(a, b):
    return float((a - b).abs().max())

VISION = dict(hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)

def wrapped_qwen(sd, cfg, kind, prefix, published=True):
    """prefix "model.": as Qwen2.5-VL was published, with everything in one dictionary and the encoder's names beside.
    published: Qwen3-VL's experts are transposed; transformers 5 saves them as other models' are."""
    sd[("model." if prefix != "model." else "") + "visual.merger." + ("ln_q" if kind == "qwen2_5_vl" else "norm") + ".weight"] = torch.ones(8)
    cfg["model_type"] = kind + "_text"
    whole = {k: cfg.pop(k) for k in ("dtype", "torch_dtype", "architectures") if k in cfg}
    whole.update(model_type=kind, tie_word_embeddings=cfg["tie_word_embeddings"], architectures=[
        {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL", "qwen3_vl_moe": "Qwen3VLMoe"}[kind] + "ForConditionalGeneration"],
        vision_config=dict(depth=1, hidden_size=8, out_hidden_size=8, num_heads=2, intermediate_size=16))
    if kind == "qwen3_vl_moe" and published:  # both matrices
        sd = {k: v.transpose(1, 2) if ".experts." in k else v for k, v in sd.items()}
    return sd, dict(cfg, **whole) if prefix == "model." else dict(whole, text_config=cfg)

def wrapped(sd, cfg, kind, prefix, *form):
    """The same as the language model of a multimodal folder, with one further tensor of the latter."""
    head = prefix.removesuffix("model.") if prefix.startswith("language") else ""
    sd = {(head + k if k.startswith("lm_head") else prefix + k.removeprefix("model.")): v for k, v in sd.items()}
    if kind.startswith("qwen"):
        return wrapped_qwen(sd, cfg, kind, prefix, *form)
    tower = {"gemma3": "vision_tower.vision_model.post_layernorm.weight", "mistral3": "vision_tower.ln_pre.weight",
             "llama4": "vision_model.layernorm_pre.weight"}[kind]
    sd[tower if head else "model." + tower] = torch.ones(8)
    vision = dict(VISION, model_type={"gemma3": "siglip_vision_model", "mistral3": "pixtral", "llama4": "llama4_vision_model"}[kind])
    whole = {k: cfg.pop(k) for k in ("dtype", "torch_dtype", "architectures") if k in cfg}
    name = {"gemma3": "Gemma3ForConditionalGeneration", "mistral3": "Mistral3ForConditionalGeneration",
            "llama4": "Llama4ForConditionalGeneration"}[kind]
    return sd, dict(whole, architectures=[name], model_type=kind, text_config=cfg, vision_config=vision,
                    tie_word_embeddings=cfg["tie_word_embeddings"])

def write_folder(model, folder, family, dtype, opt):
    """Calls save_pretrained, then edits the file and the config as the case demands."""
    shutil.rmtree(folder, ignore_errors=True)
    copy.deepcopy(model).to(DTYPES[dtype]).save_pretrained(folder, save_original_format=not opt.get("together"))
    for extra in folder.glob("generation_config*"):
        extra.unlink()
    sd, cfg = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    if opt.get("head"):  # the file also has the tied head
        sd["lm_head.weight"] = model.get_output_embeddings().weight.detach().to(DTYPES[dtype]).clone()
    if opt.get("buffers"):  # as in old checkpoints: causal masks under the name of a bias, rotary tables
        P = model.config.max_position_embeddings
        mask = torch.ones(P, P).tril().reshape(1, 1, P, P).bool()
        for i in range(model.config.num_hidden_layers):
            at = f"gpt_neox.layers.{i}.attention." if family == "gpt_neox" else f"transformer.h.{i}.attn."
            if family == "gpt_neox":
                sd[at + "rotary_emb.inv_freq"] = model.gpt_neox.rotary_emb.inv_freq.detach() * 3.0  # wrong on purpose
            sd[at + "bias"] = mask.clone() if i else mask.to(torch.uint8)
            sd[at + "masked_bias"] = torch.tensor(-1e9 if family != "gpt2" else -1e4)
    if opt.get("noprefix"):
        sd = {k.removeprefix(PREFIX[family]): v for k, v in sd.items()}
    if opt.get("v4"):
        cfg.update(torch_dtype=cfg.pop("dtype"), transformers_version="4.30.0")
        cfg.pop("layer_types", None)
        rp = cfg.pop("rope_parameters", None)
        if rp and "full_attention" in rp:  # a rotation for each kind of layer
            cfg.update(rope_theta=rp["full_attention"].pop("rope_theta"), rope_local_base_freq=rp["sliding_attention"]["rope_theta"])
            kind = rp["full_attention"].pop("rope_type")
            cfg["rope_scaling"] = {opt["v4"]: kind, **rp["full_attention"]} if kind != "default" else None
        elif rp:
            kind, theta, pct = rp.pop("rope_type"), rp.pop("rope_theta"), rp.pop("partial_rotary_factor", None)
            cfg["rotary_emb_base" if family == "gpt_neox" else "rope_theta"] = theta
            if pct is not None:
                cfg["rotary_pct" if family == "gpt_neox" else "partial_rotary_factor"] = pct
            for key in opt.get("drop_rope", []):
                rp.pop(key)
            if opt.get("top_original"):
                cfg["original_max_position_embeddings"] = rp.pop("original_max_position_embeddings")
            cfg["rope_scaling"] = {opt["v4"]: kind, **rp} if kind != "default" else None
    if opt.get("wrap"):
        sd, cfg = wrapped(sd, cfg, *opt["wrap"])
    for old, new in opt.get("rename", {}).items():
        cfg[new] = cfg.pop(old)
    for key in opt.get("drop", []):
        cfg.pop(key, None)
    cfg.update(opt.get("extra", {}))
    save_file({k: sd[k].contiguous() for k in sorted(sd)}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(cfg, indent=2, sort_keys=True) + "\n")

def load(folder, dtype=torch.float32):
    pictures = json.loads((folder / "config.json").read_text())["model_type"] in ("mistral3", "llama4", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")
    auto = AutoModelForImageTextToText if pictures else AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True, **EXPERTS)
    extra = [k for k in info["unexpected_keys"] if not re.search(r"\.(bias|masked_bias|inv_freq)$", k)]
    info["missing_keys"] = [k for k in info["missing_keys"] if not re.search("vision_tower|vision_model|visual|multi_modal_projector", k)]
    if info["missing_keys"] or info["mismatched_keys"] or extra:
        raise RuntimeError(f"from_pretrained: missing {info['missing_keys']} mismatched {info['mismatched_keys']} extra {extra}")
    return model.eval()

def weakest_tensor(model, prompt, tokens, truth, family):
    """Returns the tensor whose loss changes the logits least, and the change."""
    worst = ("-", 1e9)
    for name, p in model.named_parameters():
        if family in ("opt", "cohere2", "llama4_text", "granitemoehybrid") and name.endswith("k_proj.bias") or re.search("vision_tower|vision_model|visual|multi_modal_projector", name):
            continue  # adds the same number to every score of a query: no effect after softmax
        keep = p.detach().clone()
        with torch.no_grad():
            p.fill_(1.0 if p.dim() == 1 and name.endswith("weight") else 0.0)
            d = dist(uncached(model, prompt, tokens), truth)
            p.copy_(keep)
        worst = min(worst, (name, d), key=lambda w: w[1])
    return worst

def build(name, family, plen, cfg, dtype, opt, out):
    V, folder, least = cfg["vocab_size"], out / name, FITTED if opt.get("coarse") else ROUTER[dtype]
    for attempt in range(400):  # finds a seed whose greedy path is clear and not repetitive
        seed = zlib.crc32(f"{name}:{attempt}".encode())
        model = randomise(new_model(family, cfg), seed, DTYPES[dtype], opt.get("sharp", 1.0), opt.get("loud", 1.0), opt.get("coarse"))
        prompt = torch.randint(0, V, (plen,), generator=torch.Generator().manual_seed(seed + 1))
        prompt[1], prompt[2] = V - 1, 0  # both ends of a vocabulary split over ranks
        tokens, logits = run(model, prompt)
        clear = min_gap(logits) >= opt.get("gap", GAP[dtype]) and len(set(tokens.tolist())) >= KINDS
        others = random_sequences(V, opt.get("others", 0), plen + NEW - 1, seed + 2)
        if clear and all(router_margin(model, seq) >= least for seq in [torch.cat([prompt, tokens[:-1]]), *others]):
            break
    else:
        raise RuntimeError("no seed with clear greedy tokens")

    write_folder(model, folder, family, dtype, opt)
    tokens2, truth = run(load(folder), prompt)  # dynamic rope keeps state, so every run needs a fresh model
    if not torch.equal(tokens, tokens2) or dist(logits, truth) > 3e-5:
        raise RuntimeError(f"the loaded folder differs from the saved model: {dist(logits, truth):.2e}")
    got = load(folder).generate(prompt[None], attention_mask=torch.ones(1, plen, dtype=torch.long), max_new_tokens=NEW,
                                do_sample=False)[0, plen:]
    if not torch.equal(got, tokens):
        raise RuntimeError("generate() gives different tokens")
    plain = uncached(load(folder), prompt, tokens)
    d = dist(plain, truth)
    if (d < SENS) if opt.get("cachediff") else (d > 1e-4):
        raise RuntimeError(f"cached and uncached forwards differ by {d:.2e}")

    tensor, sens = weakest_tensor(load(folder), prompt, tokens, plain, family)
    notes = [f"cache {d:.0e}", f"weakest {tensor} {sens:.2f}"]
    low = [tensor] if sens < SENS else []
    for alt in opt.get("alt", []):
        other = new_model(family, {**cfg, **full(family, alt)})
        missing, _ = other.load_state_dict(model.state_dict(), strict=False)
        d = 0.0 if missing else dist(run(other, prompt, tokens)[1], truth)
        notes.append(f"{'/'.join(alt)} {d:.3f}")
        low += [str(alt)] if d < (SENS_ACT if set(alt) == {"act"} else SENS) else []
    if low:
        raise RuntimeError(f"no effect on the logits: {low} ({'; '.join(notes)})")
    if dtype != "f32":  # error of transformers itself in 16 bits: the tolerance of the test is 2e-2
        half = run(load(folder, DTYPES[dtype]), prompt, tokens)[1]
        err, same = float((half - truth).norm() / truth.norm()), int((half[-NEW:].argmax(-1) == tokens).sum())
        notes.append(f"own {dtype} error {err:.1e}, same tokens {same}/{NEW}")
        if err > OWN16:
            raise RuntimeError(notes[-1])

    answer = {"prompt": prompt.to(torch.int32), "tokens": tokens.to(torch.int32), "logits": truth.contiguous()}
    if opt.get("others"):
        answer["others"] = others.to(torch.int32)
        answer["others_logits"] = torch.cat([run(load(folder), seq[:plen], seq[plen:].tolist() + [0])[1] for seq in others])
    save_file(answer, folder / "expected.safetensors")
    n = sum(p.numel() for p in model.parameters())
    return n, min_gap(truth), float(truth.std()), len(set(tokens.tolist())), attempt, notes

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "fixtures")
    ap.add_argument("--tar", type=Path, help="pack the folders made into this .tar.gz")
    ap.add_argument("--only", default="", help="only the cases whose name matches this regular expression")
    args = ap.parse_args()
    transformers.utils.logging.set_verbosity_error()
    getattr(transformers.utils.logging, "disable_progress_bar", lambda: None)()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)  # tiny matrices; also keeps the order of sums fixed
    print(f"torch {torch.__version__} transformers {transformers.__version__}", flush=True)

    table, failed, made, start = [], 0, [], time.time()
    for name, family, plen, cfg, dtype, opt in CASES:
        if not re.search(args.only, name):
            continue
        t0 = time.time()
        try:
            n, gap, std, kinds, tries, notes = build(name, family, plen, cfg, dtype, opt, args.out)
            size = sum(f.stat().st_size for f in (args.out / name).iterdir()) // 1024
            row = f"{n:6d} {plen:3d} {gap:8.4f} {std:6.2f} {kinds:3d} {size:4d}K  ok"
            made.append(name)
            print(f"{name}: ok, {time.time() - t0:.1f}s, seed {tries}; {'; '.join(notes)}", flush=True)
        except Exception as e:
            failed += 1
            shutil.rmtree(args.out / name, ignore_errors=True)
            row = f"{'-':>6} {plen:3d} {'-':>8} {'-':>6} {'-':>3} {'-':>5}  SKIPPED {type(e).__name__}: {str(e)[:200]}"
            print(f"{name}: SKIPPED\n{traceback.format_exc()}", flush=True)
        table.append(f"{name:30s} {family:9s} {dtype:5s} {row}")
    print(f"\n{'case':30s} {'family':9s} dtype params  p  min gap    std ids   size  result")
    print("\n".join(table))
    total = sum(f.stat().st_size for m in made for f in (args.out / m).iterdir())
    print(f"{len(made)} cases, {failed} failed, {total / 1e6:.2f} MB, {time.time() - start:.0f}s")
    if args.tar:
        with tarfile.open(args.tar, "w:gz") as tar:
            for m in made:
                tar.add(args.out / m, arcname=m)
        print(f"{args.tar}: {args.tar.stat().st_size} bytes")
    sys.exit(1 if failed else 0)

if __name__ == "__main__":
    main()
