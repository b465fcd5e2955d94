#!/usr/bin/env python3
"""Compares the table in docs/rooms.md, which says which room may include which, with the includes of every source file.

usage: scripts/rooms.py [check | table]
  check   fails on an include that the table does not allow, on a folder that is not a room, on rooms that include each other,
          directly or through others, and on a table line that is not used
  table   prints which room includes which, with the number of includes
"""
import collections
import graphlib
import os
import re
import sys

PAGE = "docs/rooms.md"
SOURCE = re.compile(r"\.(c|h|cu|cuh)$")
LIBRARY = {"mpi.h": "MPI", "zmq.h": "ZeroMQ"}
# Folders that contain no part of the programs, or only build products.
NO_ROOMS = {"build", "demo", "docs", "hostfiles", "packaging", "scripts", "tests", "tools"}


def read_table():
    """Returns {room: set of rooms and libraries that it may include}, from the lines `| \\`room/\\` | what | may include |`."""
    table = {}
    for line in open(PAGE, encoding="utf-8"):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        room = re.fullmatch(r"`([\w/.]+?)/?`", cells[0])
        if line.startswith("|") and room and len(cells) == 3:
            table[room[1]] = set(re.findall(r"[\w/.]+", cells[2].replace("`", "").replace("/ ", " ").replace("/,", ",")))
            table[room[1]] = {name.rstrip("/") for name in table[room[1]]} - {"nothing"}
    return table


def room_of(path):
    return os.path.dirname(path) or path


def sources():
    """Yields every source file that is part of the programs, in any folder."""
    for where, folders, names in os.walk("."):
        folders[:] = sorted(f for f in folders if where != "." or (f not in NO_ROOMS and not f.startswith(".")))
        yield from (os.path.normpath(os.path.join(where, name)) for name in sorted(names) if SOURCE.search(name))


def library_of(header):
    if header in LIBRARY:
        return LIBRARY[header]
    return "CUDA" if re.match(r"(cuda|cublas|nccl|nvtx|mma)", header) else None


def includes(path):
    """Yields rooms and libraries that a file includes, with the line."""
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        found = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
        if not found:
            continue
        name = found[1]
        if library_of(name):
            yield number, name, library_of(name)
        elif "/" in name and os.path.exists(name):
            yield number, name, room_of(name)


def find_ring(pairs):
    """Returns rooms each of which includes the one before it, ending with the first again; empty: there are none."""
    includes_of = collections.defaultdict(set)
    for room, other in pairs:
        includes_of[room].add(other)
    try:
        graphlib.TopologicalSorter(includes_of).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def main():
    how = sys.argv[1] if len(sys.argv) > 1 else "check"
    if how not in ("check", "table"):
        sys.exit(__doc__)
    table, used, wrong = read_table(), collections.Counter(), []
    for path in sources():
        room = room_of(path)
        if room not in table:
            wrong.append(f"{path}: {room}/ is no room of {PAGE}")
            continue
        for number, name, other in includes(path):
            if other == room:
                continue
            used[room, other] += 1
            if other not in table[room]:
                wrong.append(f"{path}:{number}: {room}/ may not include {name} ({other}): see {PAGE}")
    ring = find_ring(used)
    wrong += [f"{PAGE}: these include each other: {' <- '.join(ring)}"] if ring else []
    wrong += [f"{PAGE}: {a}/ does not include {b}" for a in table for b in sorted(table[a]) if (a, b) not in used]
    if how == "table":
        for (a, b), n in sorted(used.items()):
            print(f"{a:24} {b:24} {n:4}")
    for line in wrong:
        print(f"rooms: {line}")
    sys.exit(1 if wrong else 0)


main()
