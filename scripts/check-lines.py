#!/usr/bin/env python3
"""Lines of documents have at most 120 columns. Rows of tables, fenced blocks and lines that only a link makes too long are excepted, since Markdown cannot break them. docs/design.md stays an overview of at most 200 lines: reasons and details have
pages of their own in docs/decisions/.

    scripts/check-lines.py [DOCUMENT...]        without one: every .md file of the repository outside shared/ and build/"""
import pathlib
import re
import sys

import findings

COLUMNS = 120
LINES = {pathlib.Path("docs/design.md"): 200}


def documents():
    return [d for d in sorted(pathlib.Path(".").rglob("*.md")) if d.parts[0] not in ("build", "shared")]


def findings_of(document):
    """Yields the document's lines that are too long, and whether it has too many lines."""
    fenced = False
    lines = pathlib.Path(document).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        fence = line.lstrip().startswith("```")
        fenced ^= fence
        if fence or fenced or line.startswith("|"):
            continue
        if len(re.sub(r"\]\([^)]*\)", "]", line)) > COLUMNS:
            yield f"{number}: {len(line)} columns; at most {COLUMNS} are allowed"
    most = LINES.get(pathlib.Path(document), len(lines))
    if len(lines) > most:
        yield f"{len(lines)}: {len(lines)} lines; at most {most} are allowed, reasons and details belong in docs/decisions/"


sys.exit(findings.report(sys.argv[1:] or documents(), findings_of))
