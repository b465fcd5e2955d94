#!/usr/bin/env python3
"""Formats sources by clang-format and scripts/wrap-comments.py, or, with --check, prints those that are not formatted.

    scripts/format.py [--check] SOURCE...

build/formatted records files that were found formatted, by digests of their bytes, .clang-format and the version
of clang-format, and they are skipped, except those with wide lines, which may be comments to wrap. Other versions
than 14 (Debian 12) break some lines differently, so --check does nothing with them.
"""
import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import sys

KNOWN = pathlib.Path("build/formatted")
BATCH = 24
COLUMNS = 120


def version():
    try:
        return subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def marks_of(files, rules):
    """{file: digest of its bytes and of the rules}"""
    return {f: hashlib.sha256(rules + pathlib.Path(f).read_bytes()).hexdigest() for f in files}


def is_wide(name):
    return any(len(line) > COLUMNS for line in pathlib.Path(name).read_text(encoding="utf-8").splitlines())


def check(batch):
    return subprocess.run(["clang-format", "--dry-run", "-Werror", *batch], check=False).returncode == 0


def mend(batch):
    return (subprocess.run(["clang-format", "-i", *batch], check=False).returncode == 0 and
            subprocess.run(["scripts/wrap-comments.py", *batch], check=False).returncode == 0)


def main():
    checks, files = sys.argv[1:2] == ["--check"], [f for f in sys.argv[1:] if f != "--check"]
    tool = version()
    if "version 14" not in tool and checks:
        print("check-format: sources skipped, clang-format 14 is not installed")
        return 0
    if not tool:
        sys.exit("format: clang-format is not installed")
    rules = (tool + pathlib.Path(".clang-format").read_text() + pathlib.Path("scripts/wrap-comments.py").read_text()).encode()
    known = set(KNOWN.read_text().split()) if KNOWN.exists() else set()
    wanted = [f for f, mark in marks_of(files, rules).items() if mark not in known]
    batches = [wanted[k:k + BATCH] for k in range(0, len(wanted), BATCH)]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = list(pool.map(check if checks else mend, batches))
    bad = {f for batch, good in zip(batches, done) if not good for f in batch}
    KNOWN.parent.mkdir(exist_ok=True)
    KNOWN.write_text("\n".join(sorted(mark for f, mark in marks_of(files, rules).items()
                                       if f not in bad and not is_wide(f))) + "\n")
    if checks and not bad:
        print("check-format: ok")
    return 1 if bad else 0


sys.exit(main())
