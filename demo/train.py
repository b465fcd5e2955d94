# SPDX-License-Identifier: Apache-2.0
"""Makes the demo model, lockstep-stories, from scratch: text, tokenizer and weights.

    python3 demo/train.py --out demo/lockstep-stories           about five minutes on one GPU
    python3 demo/train.py --out /tmp/m --device cpu --seconds 20 --stories 3000 --batch 8

1. The story grammar beside this file (stories.py) writes a few hundred thousand stories.
2. A byte-level BPE tokenizer with 2048 tokens is trained on them.
3. A Llama-shaped model of 2.8 million parameters is trained for --seconds seconds.  Its sizes
   are chosen to divide badly (6 heads, 3 key-value heads, 6 layers): Lockstep runs it on any
   number of ranks nevertheless.
4. It is rounded to BF16 and saved as a Hugging Face checkpoint folder; then it is read back, by
   also by transformers if that is installed, compared, and made to tell a few stories.

It needs Python 3.10 or later with torch, tokenizers and safetensors; transformers is optional.
"""
import argparse
import json
import math
import multiprocessing
import os
import re
import time
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn

import stories

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
CONFIG = {  # as transformers writes it for LlamaForCausalLM; bos and eos are set later
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": None, "eos_token_id": None, "head_dim": 32, "hidden_act": "silu",
    "hidden_size": 192, "initializer_range": 0.02, "intermediate_size": 512,
    "max_position_embeddings": 1024, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 6, "num_hidden_layers": 6, "num_key_value_heads": 3,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
    "vocab_size": 2048,
}
SAMPLING = {"do_sample": True, "temperature": 0.8, "top_p": 0.95}
WINDOW = 320  # tokens in a row of a training batch; a row begins at the beginning of a story
PROMPT = "Once upon a time"
NEW_TOKENS = 120  # limit of the demo command
# Llama 3's way of splitting text into words before BPE
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


# ---- the model: module names are chosen so that state_dict() has Hugging Face's names ----

class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        f = x.float()
        f = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + CONFIG["rms_norm_eps"])
        return (f * self.weight.float()).to(x.dtype)


def rope_table(length, device):
    """cos and sin, [length, head_dim]; the two halves are equal (Hugging Face's layout)."""
    d = CONFIG["head_dim"]
    inv = CONFIG["rope_theta"] ** (-torch.arange(0, d, 2, device=device).float() / d)
    angle = torch.arange(length, device=device).float()[:, None] * inv
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return (x.float() * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        h, d = CONFIG["hidden_size"], CONFIG["head_dim"]
        self.heads, self.kv_heads = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
        self.q_proj = nn.Linear(h, self.heads * d, bias=False)
        self.k_proj = nn.Linear(h, self.kv_heads * d, bias=False)
        self.v_proj = nn.Linear(h, self.kv_heads * d, bias=False)
        self.o_proj = nn.Linear(self.heads * d, h, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.heads, -1).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.kv_heads, -1).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.heads // self.kv_heads  # query head i reads key-value head i / group
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        h, m = CONFIG["hidden_size"], CONFIG["intermediate_size"]
        self.gate_proj = nn.Linear(h, m, bias=False)
        self.up_proj = nn.Linear(h, m, bias=False)
        self.down_proj = nn.Linear(m, h, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = Attention(), MLP()
        self.input_layernorm = RMSNorm(CONFIG["hidden_size"])
        self.post_attention_layernorm = RMSNorm(CONFIG["hidden_size"])

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(CONFIG["vocab_size"], CONFIG["hidden_size"])
        self.model.layers = nn.ModuleList(Block() for _ in range(CONFIG["num_hidden_layers"]))
        self.model.norm = RMSNorm(CONFIG["hidden_size"])
        for name, p in self.named_parameters():
            if p.dim() == 2:  # the two matrices that add to the residual stream have smaller initial values
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(12) if last else 1))

    def forward(self, ids):
        cos, sin = rope_table(ids.shape[1], ids.device)
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        return F.linear(self.model.norm(x), self.model.embed_tokens.weight)


# ---- text and tokens ----

def chunk(seed):
    return stories.stories(seed, 1000)


def write_stories(first_seed, count):
    with multiprocessing.get_context("fork").Pool() as pool:
        chunks = pool.map(chunk, range(first_seed, first_seed + -(-count // 1000)), chunksize=1)
    return [text for c in chunks for text in c][:count]


def train_tokenizer(texts):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=CONFIG["vocab_size"], special_tokens=[BOS, EOS], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert t.get_vocab_size() == CONFIG["vocab_size"], "too little text for the vocabulary"
    t.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B",
        special_tokens=[(BOS, t.token_to_id(BOS))])
    CONFIG["bos_token_id"], CONFIG["eos_token_id"] = t.token_to_id(BOS), t.token_to_id(EOS)
    return t


def encode(tokenizer, texts, device):
    """Returns all stories in one row, each as bos + text + eos; and the beginning of each."""
    flat, starts = [], []
    for i in range(0, len(texts), 10000):
        for e in tokenizer.encode_batch(texts[i:i + 10000]):
            starts.append(len(flat))
            flat += e.ids
            flat.append(CONFIG["eos_token_id"])
    starts = [s for s in starts if s + WINDOW + 1 <= len(flat)]
    return (torch.tensor(flat, dtype=torch.int32, device=device),
            torch.tensor(starts, dtype=torch.int64, device=device))


def batch_of(data, starts, rows):
    index = starts[rows][:, None] + torch.arange(WINDOW + 1, device=data.device)
    ids = data[index].long()
    return ids[:, :-1], ids[:, 1:]


# ---- training ----

def train(model, data, starts, args):
    decay = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.98), fused=args.device == "cuda")
    generator = torch.Generator(device=args.device).manual_seed(args.seed)

    def loss_of(forward):
        rows = torch.randint(len(starts), (args.batch,), generator=generator, device=args.device)
        x, y = batch_of(data, starts, rows)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.device == "cuda"):
            logits = forward(x)
        return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())

    forward = model
    if args.compile and args.device == "cuda":
        begin = time.time()
        try:  # a first pass, so that compiling is not counted as training time
            forward = torch.compile(model)
            loss_of(forward).backward()
            torch.cuda.synchronize()
            print(f"compiled in {time.time() - begin:.0f} s", flush=True)
        except Exception as e:
            print(f"not compiled ({type(e).__name__}: {str(e)[:200]}), running eagerly", flush=True)
            forward = model
        optimizer.zero_grad(set_to_none=True)

    begin = shown = time.time()
    step, elapsed = 0, 0.0
    while elapsed < args.seconds:
        # warm-up over the first 200 steps; a cosine over the remaining time
        lr = args.lr * min(1, (step + 1) / 200) * (
            0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * elapsed / args.seconds)))
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = loss_of(forward)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 10 == 0 or args.device == "cpu":
            value = loss.item()  # waits for the device, so that the clock below is right
            assert math.isfinite(value), "the loss is not finite"
            if step == 10 or time.time() - shown >= 5:
                shown = time.time()
                print(f"step {step:6d}  loss {value:.4f}  lr {lr:.2e}  "
                      f"{step * args.batch * WINDOW / 1e6:8.1f} M tokens  "
                      f"{shown - begin:5.1f} s", flush=True)
        elapsed = time.time() - begin
    print(f"trained {step} steps, {step * args.batch * WINDOW / len(data):.1f} times the text")


@torch.no_grad()
def evaluate(model, data, starts):
    losses = []
    for i in range(0, min(len(starts), 512), 64):
        x, y = batch_of(data, starts, torch.arange(i, min(i + 64, len(starts)), device=data.device))
        losses.append(F.cross_entropy(model(x).float().flatten(0, 1), y.flatten()).item())
    return sum(losses) / len(losses)


@torch.no_grad()
def generate(model, tokenizer, prompt, count, limit, temperature=0.0, top_p=1.0, seed=0):
    """Returns `count` continuations as (text, number of new tokens or None if it did not end)."""
    device = model.model.embed_tokens.weight.device
    generator = torch.Generator(device=device).manual_seed(seed)
    prompt_ids = tokenizer.encode(prompt).ids
    ids = torch.tensor([prompt_ids] * count, device=device)
    done = torch.zeros(count, dtype=torch.bool, device=device)
    for _ in range(limit):
        logits = model(ids)[:, -1].float()
        if temperature == 0:
            new = logits.argmax(-1)
        else:
            p, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
            p = p.masked_fill(p.cumsum(-1) - p > top_p, 0)
            new = order.gather(1, torch.multinomial(p, 1, generator=generator))[:, 0]
        new = new.masked_fill(done, CONFIG["eos_token_id"])
        ids = torch.cat((ids, new[:, None]), 1)
        done |= new == CONFIG["eos_token_id"]
        if done.all():
            break
    result = []
    for row in ids.tolist():
        body = row[len(prompt_ids):]
        ended = CONFIG["eos_token_id"] in body
        body = body[:body.index(CONFIG["eos_token_id"])] if ended else body
        result.append((prompt + tokenizer.decode(body), len(body) + 1 if ended else None))
    return result


# ---- the folder ----

def save(model, tokenizer, out):
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"))
    written = {
        "config.json": CONFIG,
        "generation_config.json": {"bos_token_id": CONFIG["bos_token_id"],
                                   "eos_token_id": CONFIG["eos_token_id"], **SAMPLING},
        "tokenizer_config.json": {"bos_token": BOS,
                                  "chat_template": "{% for message in messages %}{{ message.content }}{{ eos_token }}"
                                                   "{% endfor %}",
                                  "clean_up_tokenization_spaces": False,
                                  "eos_token": EOS,
                                  "model_input_names": ["input_ids", "attention_mask"],
                                  "model_max_length": CONFIG["max_position_embeddings"],
                                  "tokenizer_class": "PreTrainedTokenizerFast"},
    }
    for name, content in written.items():
        (out / name).write_text(json.dumps(content, indent=2) + "\n")
    tensors = {k: v.detach().to("cpu", torch.bfloat16).contiguous()
               for k, v in model.state_dict().items()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    total = 0
    for path in sorted(out.iterdir()):
        total += path.stat().st_size
        assert path.stat().st_size <= 7_000_000, f"{path.name} is larger than 7 MB"
        print(f"  {path.stat().st_size:9d}  {path.name}")
    assert total <= 7_500_000, "the folder is too large"


def check_with_transformers(model, tokenizer, out):
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError:
        return print("transformers is not installed: no comparison")
    theirs = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    their_tokenizer = AutoTokenizer.from_pretrained(out)
    text = stories.stories("check", 1)[0]
    ids = tokenizer.encode(text).ids
    assert their_tokenizer(text)["input_ids"] == ids, "the tokenizers differ"
    assert their_tokenizer.decode(ids, skip_special_tokens=True) == text, "decoding differs"
    with torch.no_grad():
        a, b = model(torch.tensor([ids])), theirs(torch.tensor([ids])).logits
    worst = (a - b).abs().max().item()
    print(f"transformers: same token ids; logits differ by {worst:.2e} at most")
    assert worst < 1e-3, "transformers computes other logits"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="demo/lockstep-stories", type=Path)
    parser.add_argument("--seconds", default=240.0, type=float, help="training time")
    parser.add_argument("--stories", default=300_000, type=int, help="number of stories to train on")
    parser.add_argument("--batch", default=256, type=int, help=f"rows of {WINDOW} tokens")
    parser.add_argument("--lr", default=2e-3, type=float, help="the highest learning rate")
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)  # fails now rather than after the training

    begin = time.time()
    texts = write_stories(0, args.stories)  # forks, so it comes before any use of the GPU
    held_out = write_stories(1_000_000, 1000)
    print(f"{len(texts)} stories, {len(set(texts))} different  "
          f"{time.time() - begin:.1f} s", flush=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = train_tokenizer(texts[:50_000])
    data, starts = encode(tokenizer, texts, args.device)
    held, held_starts = encode(tokenizer, held_out, args.device)
    words = {w for t in texts for w in re.findall(r"\w+", t)}
    print(f"{len(data)} tokens, {len(data) / len(texts):.0f} a story, {len(words)} different "
          f"words  {time.time() - begin:.1f} s", flush=True)

    model = Llama().to(args.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters on {args.device}", flush=True)
    train(model, data, starts, args)

    torch.set_float32_matmul_precision("highest")
    model.eval()
    print(f"held-out loss {evaluate(model, held, held_starts):.4f}, on the stories trained on "
          f"{evaluate(model, data, starts):.4f}")
    print(f"saved in {args.out}:")
    save(model, tokenizer, args.out)
    rounded = {k: v.float() for k, v in load_file(args.out / "model.safetensors").items()}
    model.load_state_dict(rounded)
    print(f"held-out loss with the weights rounded to BF16 "
          f"{evaluate(model, held, held_starts):.4f}")

    count = 256 if args.device == "cuda" else 8
    many = generate(model, tokenizer, PROMPT, count, NEW_TOKENS, SAMPLING["temperature"],
                    SAMPLING["top_p"], args.seed)
    strange = sorted({w for t, _ in many for w in re.findall(r"\b[a-z]+\b", t)} - words)
    print(f"of {len(many)} sampled stories {sum(n is not None for _, n in many)} end within "
          f"{NEW_TOKENS} tokens; {len(set(t for t, _ in many) & set(texts))} are copies of a story "
          f"trained on; strange words: {' '.join(strange[:20]) or 'none'}")
    shown = [("greedy", *generate(model, tokenizer, PROMPT, 1, NEW_TOKENS)[0])]
    shown += [("sampled", *pair) for pair in many[:8]]
    for prompt in ("Long ago", "The little dragon", PROMPT + ", there was a fox named Lockstep"):
        shown.append(("greedy", *generate(model, tokenizer, prompt, 1, 300)[0]))
    for how, text, new in shown:
        print(f"\n---- {how}, {new} new tokens\n{text}", flush=True)
    print()
    check_with_transformers(model.to("cpu"), tokenizer, args.out)
    print(f"done in {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
