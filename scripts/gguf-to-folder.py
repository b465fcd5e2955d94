#!/usr/bin/env python3
"""Make a Hugging Face folder, which lockstep reads, from a GGUF file: weights, config, tokenizer and chat template.

Usage: scripts/gguf-to-folder.py FILE.gguf FOLDER [float32|float16|bfloat16]      (default: float32)

transformers reads the file and widens its quantised weights. Needs torch, transformers, accelerate and gguf."""
import copy
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    source, name = os.path.split(os.path.abspath(sys.argv[1]))
    dtype = getattr(torch, sys.argv[3] if len(sys.argv) == 4 else "float32")
    read = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=dtype)
    config = copy.deepcopy(read.config)
    if hasattr(config, "quantization_config"):  # with it the model counts as quantised, and is not saved
        del config.quantization_config
    model = type(read)(config).to(dtype)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(sys.argv[2])
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(sys.argv[2])


if __name__ == "__main__":
    main()
