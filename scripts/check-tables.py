#!/usr/bin/env python3
"""The GPU's tables of operations are complete: each one in kernels/cuda/ops_cuda.c sets every function of its struct. A gap is
a call of address 0, which a machine without GPUs never makes.

    scripts/check-tables.py"""
import pathlib
import re
import sys

import findings

TABLES = ("kernels/cuda/ops_cuda.c",)
TYPES = ("kernels/ops.h", "kernels/peer.h", "kernels/persistent.h")
OPTIONAL = ("input_ops",)  # optional for a backend, see kernels/inputs.h
STRUCT = re.compile(r"^struct (\w+_ops) \{$(.*?)^\};$", re.M | re.S)
TABLE = re.compile(r"^(?:static )?const struct (\w+_ops) \w+ = \{$(.*?)^\};$", re.M | re.S)


def members():
    text = "".join(pathlib.Path(name).read_text(encoding="utf-8") for name in TYPES)
    return {m[1]: re.findall(r"\(\*(\w+)\)\(", m[2]) for m in STRUCT.finditer(text)}


def holes(name):
    text = pathlib.Path(name).read_text(encoding="utf-8")
    wanted = members()
    for table in TABLE.finditer(text):
        if table[1] in OPTIONAL:
            continue
        line = text.count("\n", 0, table.start()) + 1
        given = set(re.findall(r"\.(\w+) = ", table[2]))
        if not wanted.get(table[1]):
            yield f"{line}: no struct {table[1]} in {', '.join(TYPES)}"
        for member in wanted.get(table[1], ()):
            if member not in given:
                yield f"{line}: struct {table[1]} has {member}, which this table does not set"


sys.exit(findings.report(TABLES, holes))
