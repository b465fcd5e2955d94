#!/usr/bin/env python3
"""Runs clang-tidy over the files that changed since the branch left origin/main, or, on main itself, since the previous commit.

usage: scripts/tidy-changed.py SECONDS -- COMPILER OPTIONS
SECONDS: no file is begun after this time; the skipped files are counted, and `make tidy` checks all files.
Headers count through the .c file of the same name. Exit status 1: clang-tidy found something.
"""
import concurrent.futures
import os
import subprocess
import sys
import time

ROOMS = ("main.c", "tools/", "base/", "partition/", "kernels/", "plan/", "rank/", "text/", "protocol/", "coordinator/", "commands/",
         "client/", "gateway/")


def git(*words):
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def changed():
    """Returns the changed .c files of the programs, those with the most changed lines first."""
    base = git("merge-base", "HEAD", "origin/main")
    if base in ("", git("rev-parse", "HEAD")):
        base = git("rev-parse", "HEAD^")
    lines = {}
    for row in git("diff", "--numstat", base).splitlines() if base else []:
        added, _, path = row.split("\t")
        path = path[:-2] + ".c" if path.endswith(".h") else path
        if path.endswith(".c") and path.startswith(ROOMS) and not path.startswith("kernels/cuda/") and os.path.exists(path):
            lines[path] = lines.get(path, 0) + int(added if added != "-" else 0)
    return sorted(lines, key=lambda path: -lines[path])


def look_at(path, options, end):
    """Returns None if no time was left."""
    if time.monotonic() > end:
        return None
    return subprocess.run(["clang-tidy", "--quiet", path, "--", *options], capture_output=True, text=True, check=False)


def main():
    if len(sys.argv) < 3 or sys.argv[2] != "--":
        sys.exit(__doc__)
    files, end = changed(), time.monotonic() + float(sys.argv[1])
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        looks = list(pool.map(lambda path: look_at(path, sys.argv[3:], end), files))
    bad = [look for look in looks if look is not None and look.returncode != 0]
    for look in bad:
        print(look.stdout + look.stderr, end="")
    n = sum(look is not None for look in looks)
    print(f"tidy-changed: {n} of {len(files)} changed files, {len(bad)} with findings" +
          (f"; no time for {len(files) - n}" if n < len(files) else ""))
    return 1 if bad else 0


sys.exit(main())
