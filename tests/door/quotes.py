#!/usr/bin/env python3
"""Checks that the source contains the messages that documents quote: in tables whose head begins with "what you see" or "line" the texts in
backticks of the first column; texts in backticks with three words in a row; `"message": "..."` of JSON; lines that begin with a
program's name and a colon. Prints those that do not; of texts that contain numbers, names or "..." it compares the words between.

    quotes.py DOCUMENT...        in the root of the sources"""
import pathlib
import re
import sys

ROOMS = "base partition kernels plan rank text protocol coordinator commands client gateway".split()
# Quotes of other programs, and commands.
FOREIGN = ("mpirun ", "There are not enough slots", "libnccl.so.2: cannot open", "OMPI was not built", "OPAL ERROR", "srun", "slurmstepd", "PMIX",
           "MPI_ABORT", "Unable to find reachable pairing", "module load", "dnf ", "sum without ")
# JSON that is not valid is described by jansson.
LIBRARY = re.compile(r"(not valid JSON: ).*")


def source():
    files = [pathlib.Path("main.c")] + [f for room in ROOMS for f in pathlib.Path(room).rglob("*") if f.suffix in (".c", ".h", ".cu", ".cuh")]
    text = "\n".join(f.read_text() for f in files)
    return re.sub(r'"\s*\n?\s*"', "", text).replace('\\"', '"').replace("%%", "%")


def fragments(quote):
    """The words between numbers, names and punctuation, which vary; one or two words alone do not count."""
    parts = [p.strip() for p in re.split(r"\d[\w.:]*|\.\.\.|[:;,?()/\"]|\bn\d\b|\bnode\d\b", LIBRARY.sub(r"\1", quote))]
    return [p for p in parts if len(p) >= 10 and re.fullmatch(r"\w+|.* .*", p)]


def stands_in(text, words):
    """Verbatim, or except for an inserted word: the last one, or the first one before several others."""
    start, rest = words.rpartition(" ")[0], words.partition(" ")[2]
    return words in text or (start != "" and start + " %s" in text) or (len(rest) >= 10 and "%s " + rest in text)


def of_tables(lines):
    inside = False
    for line in lines:
        if not line.startswith("|"):
            inside = False
        elif re.match(r"\| *(what you see|line|message|what it says)", line):
            inside = True
        elif inside and not line.startswith("|---"):
            yield from re.findall(r"`([^`]+)`", line.split("|")[1])


def of_prose(text):
    for quote in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S)):
        quote = " ".join(quote.split())
        if re.search(r"\b[a-z]+ [a-z]+ [a-z]+\b", quote) and not re.search(r"(^| )--?\w|=", quote):
            yield quote


def quotes(document):
    text = pathlib.Path(document).read_text(encoding="utf-8")
    yield from of_tables(text.splitlines())
    yield from of_prose(text)
    yield from (q.replace('\\"', '"') for q in re.findall(r'"message": "((?:[^"\\]|\\.)+)"', text))
    yield from re.findall(r"^lockstep(?:-client|-gateway)?: (.*)", text, flags=re.M)


def main():
    text, n, bad = source(), 0, 0
    for document in sys.argv[1:]:
        for quote in dict.fromkeys(quotes(document)):
            if quote.startswith(FOREIGN):
                continue
            for words in fragments(quote):
                n += 1
                if not stands_in(text, words):
                    print(f"{document} quotes \"{quote}\", but the source does not say \"{words}\"")
                    bad += 1
    print(f"{n} quoted texts")
    return 1 if bad or n == 0 else 0


sys.exit(main())
