#!/usr/bin/env python3
"""The messages that documents quote stand in the source: the first columns of the tables whose head begins with "what you see" or "the
line", each text in backticks. Prints those that do not; of texts with numbers or "..." in them the words between.

    quotes.py DOCUMENT...        in the root of the sources"""
import pathlib
import re
import sys

ROOMS = "base partition kernels plan rank text protocol coordinator commands client".split()
# What launchers and the dynamic linker say.
FOREIGN = ("mpirun ", "There are not enough slots", "libnccl.so.2: cannot open", "OMPI was not built", "srun", "slurmstepd", "PMIX", "MPI_ABORT")


def source():
    files = [pathlib.Path("main.c")] + [f for room in ROOMS for f in pathlib.Path(room).rglob("*") if f.suffix in (".c", ".h", ".cu", ".cuh")]
    text = "\n".join(f.read_text() for f in files)
    return re.sub(r'"\s*\n?\s*"', "", text).replace('\\"', '"')


def fragments(quote):
    """The words between numbers, names and punctuation, which are of the case at hand; a word or two alone say nothing."""
    parts = [p.strip() for p in re.split(r"\d[\w.:]*|\.\.\.|[:;,?()/]|\bn\d\b", quote)]
    return [p for p in parts if len(p) >= 10]


def quotes(document):
    inside = False
    for line in pathlib.Path(document).read_text().splitlines():
        if not line.startswith("|"):
            inside = False
        elif re.match(r"\| *(what you see|line|message|what it says)", line):
            inside = True
        elif inside and not line.startswith("|---"):
            yield from re.findall(r"`([^`]+)`", line.split("|")[1])


def main():
    text, n, bad = source(), 0, 0
    for document in sys.argv[1:]:
        for quote in quotes(document):
            if quote.startswith(FOREIGN):
                continue
            for words in fragments(quote):
                n += 1
                if words not in text and words.rsplit(" ", 1)[0] + " %s" not in text: # the last word may be put in
                    print(f"{document} quotes \"{quote}\", but the source does not say \"{words}\"")
                    bad += 1
    print(f"{n} quoted texts")
    return 1 if bad or n == 0 else 0


sys.exit(main())
