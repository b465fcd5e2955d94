#!/usr/bin/env python3
"""Lines of documents have at most 120 columns. Rows of tables, fenced blocks and lines that a link alone makes too long are
excepted, since Markdown cannot break them. docs/design.md stays an overview of at most 200 lines: reasons and details have
pages of their own in docs/decisions/.

    scripts/check-lines.py [DOCUMENT...]        without one: every .md file of the repository outside shared/ and build/"""
import pathlib
import re
import sys

COLUMNS = 120
LINES = {pathlib.Path("docs/design.md"): 200}


def documents():
    return [d for d in sorted(pathlib.Path(".").rglob("*.md")) if d.parts[0] not in ("build", "shared")]


def long_lines(document):
    """(number, columns) of each line that is too long."""
    fenced = False
    for number, line in enumerate(pathlib.Path(document).read_text(encoding="utf-8").splitlines(), 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if fence or fenced or line.startswith("|"):
            continue
        if len(re.sub(r"\]\([^)]*\)", "]", line)) > COLUMNS:
            yield number, len(line)


def main():
    bad = 0
    for document in sys.argv[1:] or documents():
        for number, columns in long_lines(document):
            print(f"{document}:{number}: {columns} columns; at most {COLUMNS} are allowed")
            bad += 1
    for document, most in LINES.items():
        lines = len(document.read_text(encoding="utf-8").splitlines())
        if lines > most:
            print(f"{document}: {lines} lines; at most {most} are allowed, reasons and details belong in docs/decisions/")
            bad += 1
    return 1 if bad else 0


sys.exit(main())
