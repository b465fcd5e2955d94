#!/usr/bin/env python3
"""Logits of quantised fixtures whose activations are quantised, too: tests/parity/fixtures/q-*/inputs.safetensors.

    python3 tests/parity/make_inputs.py [--only REGEX]

transformers runs on weights that make_quantised.py dequantises from the file's bytes; before every linear layer with
codes its inputs are replaced by their nearest codes' values, in float32, by compressed-tensors' rules. The output is the
logits of the prompt, "logits" [n_prompt, vocab].
"""
import torch
from safetensors.torch import load_file, save_file

import make_quantised as quantised

def scales(x, top, group, most):
    """Returns the scale of every element of x [.., K]."""
    K, g = x.shape[-1], group or x.shape[-1]
    size = torch.nn.functional.pad(x.abs(), (0, -K % g)).unflatten(-1, (-1, g)).amax(-1)
    size = (size.clamp(max=most) if most else size) / top
    return torch.where(size > 0, size, torch.ones_like(size)).repeat_interleave(g, -1)[..., :K]

def coded(x, s, floats):
    q = x / s
    if floats:
        return q.clamp(-448, 448).to(torch.float8_e4m3fn).float() * s
    return q.round().clamp(-128, 127) * s

def declared(config):
    """Returns (floats, group, most, static) of a quantization_config."""
    if config["quant_method"] == "compressed-tensors":
        inputs = config["config_groups"]["group_0"]["input_activations"]
        return inputs["type"] == "float", 0, None, not inputs["dynamic"]
    group = config.get("weight_block_size", [0, 0])[1]
    return True, group, config.get("activation_scale_ub"), config.get("activation_scheme") == "static"

def build(case, out):
    name, family, plen, cfg, config, write, read, dtype, o = case
    folder = out / name
    raw = quantised.raw_tensors(folder / "model.safetensors")
    weights = [k for k in raw if k.endswith((".weight", ".bias"))]
    model = quantised.straight(folder, quantised.dequantise(folder, weights, read, o))
    floats, group, most, static = declared(config)
    share = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gu", "up_proj": "gu"}
    given = {}
    for k in raw:
        if static and k.endswith(".input_scale"):  # parts that share their inputs use the largest
            stem, part = k.removesuffix(".input_scale").rsplit(".", 1)
            key = (stem, share.get(part, part))
            given[key] = max(given.get(key, 0), float(quantised.number(raw[k]).reshape(-1)[0]))
    for module_name, module in model.named_modules():
        if raw.get(module_name + ".weight", ("BF16",))[0] not in ("F8_E4M3", "I8"):
            continue
        stem, part = module_name.rsplit(".", 1)
        def before(_, args, key=(stem, share.get(part, part))):
            x = args[0]
            s = torch.full_like(x, given[key]) if static else scales(x, 448 if floats else 127.5, group, most)
            return (coded(x, s, floats),)
        module.register_forward_pre_hook(before)
    prompt = load_file(folder / "expected.safetensors")["prompt"].long()
    with torch.no_grad():
        logits = model(prompt[None]).logits[0].float()
    save_file({"logits": logits.contiguous()}, folder / "inputs.safetensors")
    wide = load_file(folder / "expected.safetensors")["logits"][:len(prompt)]
    print(f"{name}: moved by {float((logits - wide).pow(2).mean().sqrt()):.3f} of {float(wide.std()):.2f}", flush=True)

NAMES = "q-fp8-block64-32-ue8m0 q-fp8-autofp8-static q-fp8-fbgemm q-fp8-channel q-int8".split()

if __name__ == "__main__":
    quantised.for_cases(lambda case, out: build(case, out) if case[0] in NAMES else None)
