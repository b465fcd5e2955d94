#!/usr/bin/env python3
"""Comments of the sources begin with their subject, and their lines have at most 120 columns. NOLINTNEXTLINE, which speaks of
the line that follows, has one.

A comment that opens with "What ..", "Of a ..", "Where .." or the like names neither what it is about nor who acts. Say "The bytes of ..",
"The place of ..", "If ..", or begin with the verb.

    scripts/check-comments.py [SOURCE...]        without one: every .c, .h, .cu and .cuh file of the sources,
                                                outside shared/ and build/"""
import pathlib
import re
import sys

HEADLESS = re.compile(r"(What|Who|Whom|Whose|Whoever|Whatever|Whichever|Which|Of|Where|Wherever|Those|That of|Nothing but"
                      r"|(So|As|How) (many|much|long))\b")
COMMENT = re.compile(r"/\*+\s+(?:\S+\.(?:c|h|cu|cuh) - )?(.*?)\*/", re.S)
COLUMNS = 120
SUFFIXES = (".c", ".h", ".cu", ".cuh")


def sources():
    return [s for s in sorted(pathlib.Path(".").rglob("*.*")) if s.suffix in SUFFIXES and s.parts[0] not in ("build", "shared")]


def findings(name):
    text = pathlib.Path(name).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and re.search(r"^\s*(/?\*|//)|/\*|//", line):
            yield f"{number}: {len(line)} columns; at most {COLUMNS} are allowed, and `make format` wraps comments"
    for comment in COMMENT.finditer(text):
        words = " ".join(re.sub(r"\n\s*\*", " ", comment[1]).split())
        if words.startswith("NOLINTNEXTLINE") and "\n" in comment[0]:
            yield f"{text.count(chr(10), 0, comment.start()) + 1}: NOLINTNEXTLINE of several lines speaks of its own second one"
        if HEADLESS.match(words):
            yield f"{text.count(chr(10), 0, comment.start()) + 1}: a comment opens with its subject, found \"{words[:60]}\""


def main():
    bad = 0
    for name in sys.argv[1:] or sources():
        for finding in findings(name):
            print(f"{name}:{finding}")
            bad += 1
    return 1 if bad else 0


sys.exit(main())
