#!/usr/bin/env python3
"""Second opinions on the fixtures of quantised checkpoints: what other libraries read in tests/parity/fixtures/q-*.

    python3 tests/parity/check_quantised.py [--only REGEX] [--library NAME]... [--run]

Every library dequantises the stored tensors with its own code, on the CPU. Each weight is compared with the one that
make_quantised.py's reader makes of the same bytes, rounded to the library's type. Prints the number of tensors, their
type and the largest relative difference. Exits with 1 at one above ROUNDING, or if a library (all, or those of
--library) has compared nothing. Some read whole groups or blocks only: a short last one is filled up for them, and what
they make of the filling is ignored. auto-gptq cannot be imported with today's transformers, so one module of it is
loaded alone. compressed-tensors above 0.18 refuses reordered inputs, and up to 0.18 it guesses the sizes of blocks: take
both, the old one with `--only order`.

--run: instead, transformers loads each checkpoint that it hands to compressed-tensors or gptqmodel (with optimum) and
runs it by their products, activations quantised if the checkpoint says so. Prints the largest difference of the
prompt's logits from ours; exits with 1 at one above RUN, or if none could be run.
"""
import argparse, importlib.metadata, importlib.util, json, re, sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import make_quantised as quantised

FIXTURES = Path(__file__).resolve().parent / "fixtures"
ROUNDING = 3e-7  # relative, of float32: two roundings
RUN = 2e-2  # of logits: gptqmodel's products have inputs and weights of 16 bits
SCALES = re.compile(r"(.*?)(weight_scale(_inv)?|(?<=\.)scales|_scales)")

def filled(x, size, axis):
    """Appends copies of the last element along an axis until there are `size`."""
    return torch.cat([x, x.narrow(axis, -1, 1).repeat_interleave(size - x.shape[axis], axis)], axis)

def matrices(read):
    """Makes of read, (config, tensors of a matrix) -> [out, in, perhaps more columns], or None if the format is not the
    library's, a function that yields (theirs, ours) of a checkpoint."""
    def pairs(folder, config, case):
        tensors, o = load_file(folder / "model.safetensors"), case[8]
        stems = [m[1] for m in map(SCALES.fullmatch, tensors) if m]
        names = {stem: stem if o.get("experts") else stem + "weight" for stem in stems}
        ours = quantised.dequantise(folder, names.values(), case[6], o)
        for stem, name in names.items():
            theirs = read(config, {k[len(stem):]: v for k, v in tensors.items() if k.startswith(stem)})
            if theirs is not None:
                yield theirs[:len(ours[name]), :ours[name].shape[1]], ours[name]
    return pairs

# -------------------------------------------------------------------------------------------------------- libraries
def compressed_tensors():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme

    def scheme_of(config, t):
        if config["quant_method"] == "compressed-tensors":
            return QuantizationConfig.model_validate(config).config_groups["group_0"], config["format"]
        block = config.get("weight_block_size")  # other tools' FP8: the same tensors
        strategy = "block" if block else "channel" if t["weight_scale"].numel() > 1 else "tensor"
        args = QuantizationArgs(num_bits=8, type="float", strategy=strategy, block_structure=block)
        return QuantizationScheme(targets=["Linear"], weights=args), "float-quantized"

    def read(config, t):
        scale = t.get("weight_scale", t.get("weight_scale_inv"))
        if config["quant_method"] not in ("compressed-tensors", "fp8", "fbgemm_fp8") or scale.dtype == torch.uint8:
            return None
        scheme, form = scheme_of(config, t)
        t = dict(t, weight_scale=scale)
        if scheme.weights.group_size and "weight_packed" in t:
            K = scale.shape[1] * scheme.weights.group_size
            bits = 8 * t["weight_packed"].element_size()
            t["weight_packed"] = filled(t["weight_packed"], K * scheme.weights.num_bits // bits, 1)
            t["weight_shape"] = torch.tensor([len(scale), K])
            if "weight_g_idx" in t:
                short = K - len(t["weight_g_idx"])  # columns of the last group, wherever they stand
                t["weight_g_idx"] = torch.cat([t["weight_g_idx"], torch.full([short], scale.shape[1] - 1)])
        return BaseCompressor.get_value_from_registry(form).decompress(t, scheme)["weight"]
    return matrices(read)

def gptqmodel():
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
    from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module

    def read(config, t):
        if config["quant_method"] == "awq":
            return awq(dequantize_gemm, config, t)
        if config["quant_method"] != "gptq":
            return None
        K, N = len(t["g_idx"]), t["scales"].shape[1]
        m = TorchLinear(config["bits"], config["group_size"], config["sym"], config["desc_act"], K, N).eval()
        m.load_state_dict({k: t[k] for k in ("qweight", "qzeros", "scales", "g_idx")})
        if config.get("checkpoint_format", "gptq") == "gptq":
            convert_gptq_v1_to_v2_format_module(m, config["bits"], torch.int32)
        return m.dequantize_weight().T
    return matrices(read)

def awq(dequantize, config, t):
    rows = len(t["scales"]) * config["group_size"]
    return dequantize(filled(t["qweight"], rows, 0), t["qzeros"], t["scales"], config["bits"], config["group_size"]).T

def autoawq():
    from awq.utils.packing_utils import dequantize_gemm
    return matrices(lambda config, t: awq(dequantize_gemm, config, t) if config["quant_method"] == "awq" else None)

def auto_gptq():
    path = importlib.metadata.distribution("auto_gptq").locate_file("auto_gptq/nn_modules/qlinear/qlinear_cuda.py")
    spec = importlib.util.spec_from_file_location("qlinear_cuda", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def read(config, t):  # the product with the identity: it has no other way to ask for the weights
        if config["quant_method"] != "gptq" or config.get("checkpoint_format") == "gptq_v2":
            return None
        K, N = len(t["g_idx"]), t["scales"].shape[1]
        m = module.QuantLinear(config["bits"], config["group_size"], K, N, bias=False)
        for k in ("qweight", "qzeros", "scales", "g_idx"):
            setattr(m, k, t[k])
        return m(torch.eye(K, dtype=torch.float16)).T
    return matrices(read)

def modelopt():
    from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor

    def read(config, t):
        if config["quant_method"] == "modelopt":
            N, K = len(t["weight"]), t["weight_scale"].shape[1] * 16
            codes = NVFP4QTensor(torch.Size([N, K]), torch.float32, filled(t["weight"], K // 2, 1))
            return codes.dequantize(scale=t["weight_scale"], double_scale=t["weight_scale_2"], block_sizes={-1: 16})
        scale = t.get("weight_scale", t.get("weight_scale_inv"))
        if "weight" not in t or t["weight"].dtype != torch.float8_e4m3fn or scale.dtype == torch.uint8:
            return None
        block = config.get("weight_block_size")
        sizes = {"block_sizes": dict(enumerate(block))} if block else {}
        return FP8QTensor(t["weight"].shape, torch.float32, t["weight"]).dequantize(scale=scale, **sizes)
    return matrices(read)

def transformers():
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    def read(config, t):  # it divides a matrix by its number of scales, so without whole blocks it takes other blocks
        (rows, cols), scale = config["weight_block_size"], t["weight_scale_inv"]
        codes = filled(filled(t["weight"].view(torch.uint8), rows * len(scale), 0), cols * scale.shape[1], 1)
        return Fp8Dequantize(None)._dequantize_one(codes.view(torch.float8_e4m3fn), scale, torch.float32)

    def pairs(folder, config, case):
        if config["quant_method"] == "mxfp4":
            yield from models(folder, case)
        elif config.get("weight_block_size"):
            yield from matrices(read)(folder, config, case)
    return pairs

def models(folder, case):
    """The same for all parameters of a model that transformers dequantises as it loads it."""
    from transformers import AutoModelForCausalLM, Mxfp4Config
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, quantization_config=Mxfp4Config(dequantize=True))
    names = {re.sub("_(blocks|scales)$", "", k) for k in quantised.raw_tensors(folder / "model.safetensors")}
    ours = quantised.straight(folder, quantised.dequantise(folder, names, case[6], case[8])).state_dict()
    for name, value in theirs.state_dict().items():
        yield value, ours[name]

LIBRARIES = {"compressed-tensors": compressed_tensors, "gptqmodel": gptqmodel, "autoawq": autoawq, "auto-gptq": auto_gptq,
             "nvidia-modelopt": modelopt, "transformers": transformers}
REFUSALS = (ValueError, NotImplementedError, RuntimeError)

def largest(x):
    return float(x.abs().nan_to_num(nan=torch.inf).max())

def distance(pairs):
    """Returns (number of tensors, largest relative difference, their types)."""
    count, worst, kinds = 0, 0.0, set()
    for theirs, ours in pairs:
        assert theirs.shape == ours.shape, (theirs.shape, ours.shape)
        kinds.add(str(theirs.dtype).removeprefix("torch."))
        ours = ours.to(theirs.dtype).double()
        count, worst = count + 1, max(worst, largest((theirs.double() - ours) / ours.abs().clamp_min(1e-30)))
    return count, worst, "/".join(sorted(kinds))

def check(library, only):
    """Returns whether the library agrees with every fixture that it reads, at least one."""
    read, seen, good = LIBRARIES[library](), 0, True
    for case in quantised.CASES:
        folder = FIXTURES / case[0]
        config = json.loads((folder / "config.json").read_text())["quantization_config"]
        if not re.search(only, case[0]):
            continue
        line = f"{case[0]:25} {library} {importlib.metadata.version(library)}"
        try:
            count, worst, kinds = distance(read(folder, config, case))
        except REFUSALS as e:
            print(f"{line:52} refused: {str(e).strip().splitlines()[0]}", flush=True)
            continue
        if count:
            print(f"{line:52} {count:4} {kinds:9} {worst:.2g}", flush=True)
        seen, good = seen + count, good and worst <= ROUNDING
    return good and seen > 0

def run(only):
    """Returns whether the logits of every checkpoint that can be run, at least one, are near ours."""
    from transformers import AutoModelForCausalLM
    worst = []
    for name in (case[0] for case in quantised.CASES if re.search(only, case[0])):
        folder = FIXTURES / name
        if json.loads((folder / "config.json").read_text())["quantization_config"]["quant_method"] not in ("compressed-tensors", "gptq"):
            continue
        answer, inputs = load_file(folder / "expected.safetensors"), folder / "inputs.safetensors"
        prompt = answer["prompt"].long()
        ours = load_file(inputs)["logits"] if inputs.exists() else answer["logits"][:len(prompt)]
        try:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map="cpu")
            with torch.no_grad():
                worst.append(largest(model(prompt[None]).logits[0].float() - ours))
        except REFUSALS as e:
            print(f"{name:25} refused: {str(e).strip().splitlines()[0]}", flush=True)
            continue
        print(f"{name:25} {worst[-1]:.2g}", flush=True)
    return max(worst, default=RUN + 1) <= RUN

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--only", default="")
    ap.add_argument("--library", action="append", choices=LIBRARIES)
    ap.add_argument("--run", action="store_true")
    args = ap.parse_args()
    good = [run(args.only)] if args.run else [check(library, args.only) for library in args.library or LIBRARIES]
    return 0 if all(good) else 1

if __name__ == "__main__":
    sys.exit(main())
