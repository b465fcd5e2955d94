#!/usr/bin/env python3
"""Parts of scripts/bench-peers.sh: does the same work with Lockstep and with vLLM.

    peers.py ours CONFIG "WORK .." -- COMMAND THAT STARTS lockstep     lines of JSON: the program, then a line for each work
    peers.py vllm FOLDER WORK ..                                       the same with vLLM's LLM class, on $PEER_RANKS GPUs (1)
    peers.py join OURS PEER FILE                                       joins both in one file, and prints a table

Kinds of work, with random weights and tokens, temperature 1, ignoring the end of text:
    l:IN:OUT:BATCH            a whole batch                            milliseconds
    p:IN                      a prompt up to its first token           milliseconds
    d:DEPTH:OUT:BATCH         tokens one by one after contexts        tokens/s
    t:IN:OUT:REQUESTS         requests queued at once                  output tokens/s
    s:IN:OUT:REQUESTS:SHARED  the same with common first tokens   output tokens/s, with prefix caches
Of requests queued at once also the median time to the first token, in milliseconds since they were queued.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

UNITS = {"l": "ms", "p": "ms", "d": "tokens/s", "t": "tokens/s", "s": "tokens/s"}


def parse(word):
    kind, *numbers = word.split(":")
    if kind not in UNITS or len(numbers) != {"l": 3, "p": 1, "d": 3, "t": 3, "s": 4}[kind] or not all(n.isdigit() for n in numbers):
        sys.exit(f"peers: found work \"{word}\", expected one as in: {__doc__}")
    return kind, list(map(int, numbers))


def say(**members):
    print(json.dumps(members), flush=True)


def options(kind, n):
    alone = ["--n-prompt", "0", "--n-gen", "0", "--repetitions", "5", "--warmup", "2"]
    many = ["--n-prompt", "0", "--n-gen", "0", "--repetitions", "2", "--warmup", "1", "--num-prompts"]
    return {"l": lambda: alone + ["--latency", f"{n[0]}:{n[1]}", "--batch", str(n[2])],
            "p": lambda: alone + ["--n-prompt", str(n[0])],
            "d": lambda: alone + ["--n-gen", str(n[1]), "--n-depth", str(n[0]), "--batch", str(n[2]), "--repetitions", "3"],
            "t": lambda: many + [str(n[2]), "--throughput", f"{n[0]}:{n[1]}"],
            "s": lambda: many + [str(n[2]), "--throughput", f"{n[0]}:{n[1]}", "--shared-prefix", str(n[3])]}[kind]()


def figure_of(kind, o):
    """Returns the figure, and its share of the machine's read limit if that is meaningful."""
    if kind == "l":
        return o["latency"]["milliseconds"], o["latency"].get("decode_share_of_read_limit")
    if kind == "p":
        return o["prefill_milliseconds"], None
    if kind == "d":
        return o["decode_tokens_per_second"], o["decode_share_of_read_limit"]
    return o["throughput"]["output_tokens_per_second"], None


def first_token_of(o):
    times = o.get("throughput", {}).get("time_to_first_token_milliseconds")
    return times["median"] if times else None


def machine():
    try:
        gpus = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
        if gpus.returncode == 0:
            return gpus.stdout.strip().replace("\n", "; ")
    except OSError:
        pass
    with open("/proc/cpuinfo") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else "unknown"


def commit():
    git = subprocess.run(["git", "-C", os.path.dirname(os.path.abspath(__file__)), "describe", "--always", "--dirty"],
                         capture_output=True, text=True, check=False)
    return git.stdout.strip() or None


def ours(config, words, command):
    version = subprocess.run(command + ["version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    for i, word in enumerate(words):
        kind, n = parse(word)
        run = subprocess.run(command + ["bench", "--config", config, "--load-format", "dummy", "--json"] + options(kind, n),
                             stdout=subprocess.PIPE, text=True)
        if run.returncode != 0:
            sys.exit(f"peers: {word}: lockstep ended with status {run.returncode}")
        found = json.loads(run.stdout)
        if i == 0:
            say(version=version, commit=commit(), machine=machine(), model=os.path.basename(config).removesuffix(".json"),
                ranks=found["ranks"], date=time.strftime("%Y-%m-%d", time.gmtime()))
        figure, share = figure_of(kind, found)
        say(work=word, figure=figure, share=share, first_token=first_token_of(found))


def longest(words):
    return max(n[0] + (n[1] if len(n) > 1 else 1) for _, n in map(parse, words)) + 1


def config_for(folder, words, to):
    """Writes the folder's config to `to`, allowing as many positions as the longest work: random weights know none. Returns it."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    config["max_position_embeddings"] = max(config.get("max_position_embeddings", 0), longest(words))
    with open(os.path.join(to, "config.json"), "w") as f:
        json.dump(config, f)
    return config


def vllm(folder, words):
    os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING")
    import vllm as peer
    model = tempfile.TemporaryDirectory()
    vocab = config_for(folder, words, model.name)["vocab_size"]
    llm = peer.LLM(model=model.name, load_format="dummy", skip_tokenizer_init=True, max_model_len=longest(words),
                   tensor_parallel_size=int(os.environ.get("PEER_RANKS", "1")),
                   disable_log_stats=False)  # as in its server; without, it does not know when first tokens came
    rng = random.Random(7)
    first_tokens = []

    def tokens(n):
        return [rng.randrange(vocab // 2, vocab) for _ in range(n)]

    def seconds(requests, n_in, n_out, shared=0):
        first = tokens(shared)
        prompts = [{"prompt_token_ids": first + tokens(n_in - shared)} for _ in range(requests)]
        how = peer.SamplingParams(max_tokens=n_out, ignore_eos=True, detokenize=False, temperature=1.0)
        began = time.perf_counter()
        outputs = llm.generate(prompts, how, use_tqdm=False)
        took = time.perf_counter() - began
        first_tokens.extend(1e3 * o.metrics.first_token_latency for o in outputs if o.metrics is not None)
        found = sum(len(o.outputs[0].token_ids) for o in outputs)
        if found != requests * n_out:
            sys.exit(f"peers: vLLM made {found} tokens, expected {requests * n_out}")
        return took

    def repeat(n, warmups, *what):
        for _ in range(warmups):
            seconds(*what)
        first_tokens.clear()
        return [seconds(*what) for _ in range(n)]

    def measure(kind, n):
        if kind == "l":
            return [1e3 * t for t in repeat(5, 2, n[2], n[0], n[1])]
        if kind == "p":
            return [1e3 * t for t in repeat(5, 2, 1, n[0], 1)]
        if kind == "d":  # without the prompts and the first tokens
            prompts = statistics.median(repeat(3, 2, n[2], n[0], 1))
            return [n[2] * n[1] / (t - prompts) for t in repeat(3, 2, n[2], n[0], n[1] + 1)]
        return [n[2] * n[1] / t for t in repeat(2, 1, n[2], n[0], n[1], *n[3:])]

    say(peer="vLLM", version=peer.__version__)
    for word in words:
        kind, n = parse(word)
        found = measure(kind, n)
        say(work=word, figure=[statistics.median(found), min(found), max(found)],
            first_token=statistics.median(first_tokens) if kind in "ts" and first_tokens else None)


def read(path):
    """Returns the lines of JSON; a peer's library may print other lines between them."""
    with open(path) as f:
        lines = [json.loads(line) for line in f if line.startswith("{")]
    head = lines[0] if lines else {}
    return head, {line["work"]: line for line in lines[1:]}


def join(path_ours, path_peer, path):
    (head, mine), (peer_head, theirs) = read(path_ours), read(path_peer)
    rows = []
    for word, line in mine.items():
        unit = UNITS[word[0]]
        row = {"work": word, "unit": unit, "ours": line["figure"], "share_of_read_limit": line.get("share"),
               "first_token_ms": {"ours": line.get("first_token")}}
        if word in theirs:
            row["peer"] = theirs[word]["figure"]
            row["first_token_ms"]["peer"] = theirs[word].get("first_token")
            a, b = row["ours"][0], row["peer"][0]
            row["times_as_fast"] = b / a if unit == "ms" else a / b
        rows.append(row)
    with open(path, "w") as f:
        json.dump(head | {"peer": peer_head.get("peer"), "peer_version": peer_head.get("version"), "rows": rows}, f, indent=1)
        f.write("\n")
    print(f"{head['model']} on {head.get('ranks', '?')} rank(s), {head['machine']}, Lockstep {head['version']} ({head['commit']})")
    name = peer_head.get("peer") or "-"
    print(f"{'work':26} {'unit':9} {'ours':>10} {name:>10} {'times as fast':>14} {'first token, ms':>16} {name:>10}")
    for row in rows:
        peer = f"{row['peer'][0]:10.1f} {row['times_as_fast']:14.2f}" if "peer" in row else f"{'-':>10} {'-':>14}"
        mine, others = (f"{ms:.0f}" if ms else "-" for ms in map(row["first_token_ms"].get, ("ours", "peer")))
        print(f"{row['work']:26} {row['unit']:9} {row['ours'][0]:10.1f} {peer} {mine:>16} {others:>10}")


if __name__ == "__main__":
    how, *rest = sys.argv[1:] or ["help"]
    if how == "ours" and len(rest) > 3 and rest[2] == "--":
        ours(rest[0], rest[1].split(), rest[3:])
    elif how == "vllm" and len(rest) > 1:
        vllm(rest[0], rest[1:])
    elif how == "join" and len(rest) == 3:
        join(*rest)
    else:
        sys.exit(__doc__)
