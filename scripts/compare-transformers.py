#!/usr/bin/env python3
"""Compare a checkpoint's greedy tokens with those of Hugging Face transformers, both in float32 on the CPU.

Usage: scripts/compare-transformers.py MODEL_DIR [RANKS ...]      (default: 1 2)
       LOCKSTEP=build/cpu/lockstep  MPIRUN="mpirun -q --oversubscribe"  TOKENS=40

Prompts are completed by `lockstep generate`, whose prompt and output tokens are compared; messages are answered by
`lockstep batch`, whose texts and numbers of prompt tokens are compared: so the tokenizer and the chat template are
checked, too. Needs torch and transformers. Ends with status 1 if anything differs. Where two tokens are equally likely
but for rounding, a difference is no error: look at the probabilities (`--logprobs 2`)."""
import json
import os
import subprocess
import sys
import tempfile

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in 1837,",
    "def fibonacci(n):",
    "Die Sonne scheint, und",
    "数学と物理は",
    "I'd like 25% off: $1,299.99!",
]
MESSAGES = ["What is the capital of Portugal?", "Name three colours.", "Write a haiku about rain."]
TOKENS = int(os.environ.get("TOKENS", "40"))
LOCKSTEP = os.environ.get("LOCKSTEP", "build/cpu/lockstep")
MPIRUN = os.environ.get("MPIRUN", "mpirun -q --oversubscribe").split()


def reference(folder):
    """The tokens of transformers for the prompts, and its answers if the checkpoint has a chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def greedy(ids, **options):
        with torch.no_grad():
            every = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False,
                                   **options)
        return every[0, ids.shape[1]:].tolist()

    prompts, answers = [], []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        prompts.append((ids[0].tolist(), greedy(ids, eos_token_id=None)))
    for message in MESSAGES if tokenizer.chat_template else []:
        text = tokenizer.apply_chat_template([{"role": "user", "content": message}], add_generation_prompt=True,
                                             tokenize=False)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        answers.append((ids.shape[1], tokenizer.decode(greedy(ids), skip_special_tokens=True)))
    return prompts, answers


def start(ranks, *arguments):
    done = subprocess.run([*MPIRUN, "-n", ranks, LOCKSTEP, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{LOCKSTEP} {arguments[0]} on {ranks} ranks: status {done.returncode}\n{done.stderr}")
    return done.stdout


def complete(folder, ranks, work):
    path = os.path.join(work, "prompts.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(PROMPTS) + "\n")
    lines = start(ranks, "generate", "--model", folder, "--prompts", path, "--max-tokens", str(TOKENS),
                  "--temperature", "0", "--ignore-eos", "--json").splitlines()
    made = sorted((json.loads(line) for line in lines), key=lambda result: result["index"])
    return [(result["prompt_ids"], result["token_ids"]) for result in made]


def answer(folder, ranks, work):
    given, made = os.path.join(work, "requests.jsonl"), os.path.join(work, f"results-{ranks}.jsonl")
    with open(given, "w", encoding="utf-8") as file:
        for i, message in enumerate(MESSAGES):
            body = {"messages": [{"role": "user", "content": message}], "max_tokens": TOKENS, "temperature": 0}
            file.write(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/chat/completions",
                                   "body": body}) + "\n")
    start(ranks, "batch", "--model", folder, "--input", given, "--output", made)
    with open(made, encoding="utf-8") as file:
        results = sorted((json.loads(line) for line in file), key=lambda result: int(result["custom_id"]))
    bodies = [result["response"]["body"] for result in results]
    return [(body["usage"]["prompt_tokens"], body["choices"][0]["message"]["content"]) for body in bodies]


def report(ranks, names, expected, made):
    """Prints the comparison; returns the number of differences."""
    wrong = [i for i in range(len(expected)) if expected[i] != made[i]]
    print(f"{ranks} rank(s): {len(expected) - len(wrong)} of {len(expected)} equal")
    for i in wrong:
        print(f"  {names[i]!r}\n    transformers: {expected[i]}\n    lockstep:     {made[i]}")
    return len(wrong)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, ranks = sys.argv[1], sys.argv[2:] or ["1", "2"]
    prompts, answers = reference(folder)
    differences = 0
    with tempfile.TemporaryDirectory() as work:
        for n in ranks:
            differences += report(n, PROMPTS, prompts, complete(folder, n, work))
            if answers:
                differences += report(n, MESSAGES, answers, answer(folder, n, work))
    sys.exit(differences > 0)


if __name__ == "__main__":
    main()
