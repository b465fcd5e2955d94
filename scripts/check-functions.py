#!/usr/bin/env python3
"""Functions have at most 65 lines between their braces. A static function of more than ten lines has a second word in its
name if another file has one of the same name: add, begin or finish alone are meaningless if many files have them; take, run, put,
choose, set, get, find, make, check, start and end always are, and only that rule applies to tests, too.

    scripts/check-functions.py [SOURCE...]       without one: every .c, .h, .cu and .cuh file of the sources, outside shared/
                                                 and build/"""
import functools
import pathlib
import re
import sys

import findings

LINES = 65
NAMED_LINES = 10
WORN = ("take", "run", "put", "choose", "set", "get", "find", "make", "check", "start", "end")
# Filters and methods of chat templates have Jinja's names; the `config` of families and formats stands in tables.
GIVEN = re.compile(r"text/template/|partition/(families|formats)/")
KERNELS = re.compile(r"kernels/cuda/")
FUNCTION = re.compile(r"^static (?!.*=).*?[ *]([a-z0-9]+)\(")
SUFFIXES = (".c", ".h", ".cu", ".cuh")


def sources():
    return [s for s in sorted(pathlib.Path(".").rglob("*.*"))
            if s.suffix in SUFFIXES and s.parts[0] not in ("build", "shared")]


def is_test(name):
    return pathlib.Path(name).parts[0] == "tests"


def bodies(name):
    """Yields (line of the opening brace, lines between the braces, line of the name, one-word name of a static or None)"""
    named, number_named, begun = None, 0, None
    for number, line in enumerate(pathlib.Path(name).read_text(encoding="utf-8").splitlines(), 1):
        function = FUNCTION.match(line)
        if function and not line.endswith(";"):
            named, number_named = function[1], number
        if line == "{":
            begun = number
        elif line == "}" and begun is not None:
            yield begun, number - begun - 1, number_named, named
            named = begun = None


@functools.cache
def places():
    """Returns the files that have a static function of each one-word name."""
    found = {}
    for name in sources():
        if not is_test(name) and not GIVEN.match(str(name)) and not KERNELS.match(str(name)):
            for *_, word in bodies(name):
                found.setdefault(word, set()).add(str(name))
    return found


def findings_of(name):
    for begun, lines, number, word in bodies(name):
        if word in WORN and not GIVEN.match(str(name)):
            yield f"{number}: a function called {word} says what it does with a second word"
        if is_test(name):
            continue
        if lines > LINES:
            yield f"{begun}: a function of {lines} lines; at most {LINES} are allowed"
        others = places().get(word, set()) - {str(name)} if lines > NAMED_LINES else ()
        if word and others and not GIVEN.match(str(name)) and not KERNELS.match(str(name)):
            yield f"{number}: a function called {word}, as in {sorted(others)[0]}, says what it does with a second word"


sys.exit(findings.report(sys.argv[1:] or sources(), findings_of))
