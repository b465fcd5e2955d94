#!/usr/bin/env python3
"""Lines of documents have at most 120 columns. Rows of tables, fenced blocks and lines that a link alone makes too long are
excepted, since Markdown cannot break them.

    scripts/check-lines.py [DOCUMENT...]        without one: every .md file of the repository outside shared/ and build/"""
import pathlib
import re
import sys

COLUMNS = 120


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
    return 1 if bad else 0


sys.exit(main())
