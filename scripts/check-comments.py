#!/usr/bin/env python3
"""Comments of sources and scripts begin with their subject. Those of sources have lines of at most 120 columns;
NOLINTNEXTLINE, which applies to the next line, has one.

A comment that opens with "What ..", "Of a ..", "Where .." or the like names neither its subject nor the actor. Say
"The bytes of ..", "The place of ..", "If ..", or begin with the verb.

    scripts/check-comments.py [SOURCE...]        without one: every source, script and makefile outside shared/ and
                                                build/"""
import pathlib
import re
import sys

import findings

HEADLESS = re.compile(r"(What|Who|Whom|Whose|Whoever|Whatever|Whichever|Which|Of|Where|Wherever|Those|That of|Nothing but"
                      r"|(So|As|How) (many|much|long))\b")
COMMENT = re.compile(r"/\*+\s+(?:\S+\.(?:c|h|cu|cuh) - )?(.*?)\*/", re.S)
COLUMNS = 120
SOURCES = (".c", ".h", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".sbatch", ".pbs", ".flux", ".def")
OPENING = re.compile(r'\s*(?:# |(?:[rf]?""")(?! *$))(.*)')


def files():
    return [f for f in sorted(pathlib.Path(".").rglob("*"))
            if (f.suffix in SOURCES + SCRIPTS or f.name == "Makefile") and f.parts[0] not in ("build", "shared")]


def script_findings(text):
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        opening = OPENING.match(line)
        if opening and not inside and HEADLESS.match(opening[1]):
            yield f"{number}: a comment opens with its subject, found \"{opening[1][:60]}\""
        inside = line.lstrip().startswith("# ")


def findings_of(name):
    text = pathlib.Path(name).read_text(encoding="utf-8")
    if pathlib.Path(name).suffix not in SOURCES:
        yield from script_findings(text)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and re.search(r"^\s*(/?\*|//)|/\*|//", line):
            yield f"{number}: {len(line)} columns; at most {COLUMNS} are allowed, and `make format` wraps comments"
    for comment in COMMENT.finditer(text):
        words = " ".join(re.sub(r"\n\s*\*", " ", comment[1]).split())
        if words.startswith("NOLINTNEXTLINE") and "\n" in comment[0]:
            yield f"{text.count(chr(10), 0, comment.start()) + 1}: NOLINTNEXTLINE of several lines applies to its own second one"
        if HEADLESS.match(words):
            yield f"{text.count(chr(10), 0, comment.start()) + 1}: a comment opens with its subject, found \"{words[:60]}\""


sys.exit(findings.report(sys.argv[1:] or files(), findings_of))
