#!/usr/bin/env python3
"""Functions have at most 65 lines between their braces. A static function that is called take, run, put or choose alone
has a second word: so many had these names that none of them said anything.

    scripts/check-functions.py [SOURCE...]       without one: every .c, .h, .cu and .cuh file of the sources, outside tests/,
                                                 shared/ and build/"""
import pathlib
import re
import sys

import findings

LINES = 65
WORN = re.compile(r"^static .*?[ *](take|run|put|choose)\(")
SUFFIXES = (".c", ".h", ".cu", ".cuh")


def sources():
    return [s for s in sorted(pathlib.Path(".").rglob("*.*"))
            if s.suffix in SUFFIXES and s.parts[0] not in ("build", "shared", "tests")]


def findings_of(name):
    begun = None
    for number, line in enumerate(pathlib.Path(name).read_text(encoding="utf-8").splitlines(), 1):
        worn = WORN.match(line)
        if worn:
            yield f"{number}: a function called {worn[1]} says what it does with a second word"
        if line == "{":
            begun = number
        elif line == "}" and begun is not None:
            if number - begun - 1 > LINES:
                yield f"{begun}: a function of {number - begun - 1} lines; at most {LINES} are allowed"
            begun = None


sys.exit(findings.report(sys.argv[1:] or sources(), findings_of))
