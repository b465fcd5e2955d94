#!/usr/bin/env python3
"""Latency against load: a table and a plot from results of `lockstep-client bench --json`.

    for rate in 1 2 4 8 16; do
        lockstep-client bench --endpoint E --request-rate $rate --num-prompts 200 --json
    done > poisson.jsonl
    scripts/plot-latency.py poisson.jsonl [--output poisson.svg] [--title TEXT]

Each line is a point, at its request rate, or, if that is inf, at its concurrency. The plot needs matplotlib; without
it, or without --output, only the table is printed."""
import argparse
import json
import sys

LATENCIES = (("ttft", "time to first token"), ("tpot", "time per output token"), ("e2el", "end to end"))


def read(paths):
    points = []
    for path in paths:
        with open(path) as lines:
            points += [json.loads(line) for line in lines if line.strip()]
    rated = [p for p in points if p["request_rate"] != "inf"]
    if rated:
        return "requests/s (Poisson)", sorted((p["request_rate"], p) for p in rated)
    return "requests at once", sorted((p["max_concurrency"] or p["num_prompts"], p) for p in points)


def print_table(axis, points):
    print(f"| {axis} | output tokens/s | " + " | ".join(f"{n.upper()} p50, p99 (ms)" for n, _ in LATENCIES) + " |")
    print("|" + "---|" * (2 + len(LATENCIES)))
    for x, p in points:
        cells = " | ".join(f"{p[f'p50_{n}_ms']:.1f}, {p[f'p99_{n}_ms']:.1f}" for n, _ in LATENCIES)
        print(f"| {x:g} | {p['output_throughput']:.1f} | {cells} |")


def plot(axis, points, title, output):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(LATENCIES), figsize=(4 * len(LATENCIES), 3.5))
    x = [x for x, _ in points]
    for panel, (name, label) in zip(panels, LATENCIES):
        for p in ("p50", "p90", "p99"):
            panel.plot(x, [point[f"{p}_{name}_ms"] for _, point in points], marker="o", label=p)
        panel.set(title=label, xlabel=axis, ylabel="ms", ylim=(0, None))
        panel.grid(True)
        panel.legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(output)
    print(f"plot: {output}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", help="files of JSON lines")
    parser.add_argument("--output", help="the plot: .svg, .png, .pdf")
    parser.add_argument("--title", help="above the plot (default: the model's name)")
    options = parser.parse_args()
    axis, points = read(options.results)
    if not points:
        sys.exit("no results")
    print_table(axis, points)
    if options.output:
        try:
            plot(axis, points, options.title or points[0][1]["model_id"], options.output)
        except ImportError:
            sys.exit("no plot: matplotlib is not installed")


if __name__ == "__main__":
    main()
