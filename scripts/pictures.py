#!/usr/bin/env python3
"""The README's pictures, as SVG, without any library.

    scripts/pictures.py decode > docs/pictures/decode.svg             from the table in docs/performance.md
    scripts/pictures.py peers peers.json > peers.svg                  from the results of scripts/bench-peers.sh
    lockstep-client top --once ... | scripts/pictures.py terminal "lockstep-client top" > docs/pictures/top.svg
"""
import json
import os
import re
import sys
from html import escape

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "performance.md")
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


def recorded():
    """Returns tokens/s of Llama-3-8B in bf16 on one H200, of Lockstep and its peers: the first row of the page's table."""
    with open(PAGE) as f:
        text = f.read()
    row = re.search(r"\| Llama-3-8B bf16, tg128, tokens/s \| ([\d.]+) \|[^\n]*"
                    r"\| gpt-fast (\d+)[^,|]*, llama\.cpp (\d+), compiled transformers (\d+) \|", text)
    if not row:
        sys.exit("pictures: docs/performance.md has no row \"Llama-3-8B bf16, tg128, tokens/s\" with the figures of all peers")
    return list(zip(("Lockstep", "gpt-fast", "llama.cpp", "transformers, compiled"), map(float, row.groups())))


def begin(width, height, title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>"]


def decode():
    bars = recorded()
    title = "Llama-3-8B in bf16, one sequence on one H200: tokens/s"
    out = begin(640, 60 + 36 * len(bars), title)
    out.append(f'<rect width="100%" height="100%" rx="8" fill="#fff"/>')
    out.append(f'<text x="16" y="30" font-family="sans-serif" font-size="15" font-weight="bold" fill="#222">{title}</text>')
    for i, (name, value) in enumerate(bars):
        y, width = 48 + 36 * i, 380 * value / bars[0][1]
        out.append(f'<text x="176" y="{y + 18}" text-anchor="end" font-family="sans-serif" font-size="14" fill="#222">{name}</text>')
        out.append(f'<rect x="184" y="{y}" width="{width:.0f}" height="26" fill="{"#2563a8" if i == 0 else "#b9c4d0"}"/>')
        out.append(f'<text x="{192 + width:.0f}" y="{y + 18}" font-family="sans-serif" font-size="14" fill="#222">{value:.0f}</text>')
    return out + ["</svg>"]


def text_at(x, y, text, anchor="start", weight="normal"):
    return (f'<text x="{x:.0f}" y="{y}" text-anchor="{anchor}" font-family="sans-serif" font-size="14" font-weight="{weight}" '
            f'fill="#222">{escape(text)}</text>')


def name_of(work):
    kind, *n = work.split(":")
    return {"l": lambda: f"latency {n[0]}:{n[1]}, batch {n[2]}", "p": lambda: f"prompt of {n[0]}",
            "d": lambda: f"decode of {n[2]} after {n[0]}", "t": lambda: f"{n[2]} requests {n[0]}:{n[1]}",
            "s": lambda: f"{n[2]} requests {n[0]}:{n[1]}, {n[3]} shared"}[kind]()


def peers(found):
    """Draws pairs of bars: the longer bar of each pair is the faster program's."""
    rows, peer = found["rows"], found.get("peer")
    title = f"{found['model']} on {found['machine']}"
    out = begin(760, 62 + 52 * len(rows), title)
    out.append('<rect width="100%" height="100%" rx="8" fill="#fff"/>')
    out.append(text_at(16, 30, title + (f": Lockstep (blue) beside {peer} {found['peer_version']}" if peer else ""), weight="bold"))
    for i, row in enumerate(rows):
        y = 48 + 52 * i
        speeds = [1 / f[0] if row["unit"] == "ms" else f[0] for f in (row["ours"], row.get("peer")) if f]
        out.append(text_at(256, y + 26, name_of(row["work"]), "end"))
        for k, speed in enumerate(speeds):
            width, figure = 360 * speed / max(speeds), (row["ours"], row.get("peer"))[k]
            out.append(f'<rect x="264" y="{y + 22 * k}" width="{width:.0f}" height="20" fill="{("#2563a8", "#b9c4d0")[k]}"/>')
            out.append(text_at(272 + width, y + 15 + 22 * k, f"{figure[0]:{',.0f' if figure[0] >= 1000 else '.4g'}} {row['unit']}"))
    return out + ["</svg>"]


def terminal(title, lines):
    width, height = 32 + 8.43 * max(map(len, lines)), 58 + 19 * len(lines)
    out = begin(round(width), round(height), title)
    out.append('<rect width="100%" height="100%" rx="8" fill="#16181d"/>')
    out += [f'<circle cx="{20 + 18 * i}" cy="18" r="6" fill="{c}"/>' for i, c in enumerate(("#e0605a", "#dfb04a", "#62b457"))]
    for i, line in enumerate(lines):
        out.append(f'<text x="16" y="{52 + 19 * i}" font-family="{FONT}" font-size="14" fill="#d6dae0" xml:space="preserve">'
                   f"{escape(line)}</text>")
    return out + ["</svg>"]


if sys.argv[1:] == ["decode"]:
    print("\n".join(decode()))
elif len(sys.argv) == 3 and sys.argv[1] == "peers":
    with open(sys.argv[2]) as measured:
        print("\n".join(peers(json.load(measured))))
elif len(sys.argv) == 3 and sys.argv[1] == "terminal":
    print("\n".join(terminal(sys.argv[2], [line.rstrip("\n") for line in sys.stdin])))
else:
    sys.exit(__doc__)
