#!/usr/bin/env python3
"""Wraps comments with lines of more than 120 columns: from such a line to the end of its paragraph. Comments after code on the same line are left alone.

    scripts/wrap-comments.py SOURCE..."""
import pathlib
import re
import sys

COLUMNS = 120
EDGE = len(" * ") # as wide as "/* " and " */"


def texts_of(block):
    """Returns the lines of a comment without its delimiters."""
    lines = [re.sub(r"^\s*(/\*|\*(?!/)) ?", "", line) for line in block]
    lines[-1] = lines[-1].rstrip()[:-2].rstrip()
    return lines


def fill(words, lead, room):
    lines = [lead]
    for word in words:
        longer = f"{lines[-1]} {word}" if lines[-1].strip() else lead + word
        if len(longer) > room and lines[-1].strip():
            lines.append(lead + word)
        else:
            lines[-1] = longer
    return lines


def paragraph(texts, first):
    """Returns the number of lines from `first` on that form its paragraph: the same indent, no list."""
    lead = re.match(r" *", texts[first])[0]
    n = 1
    while first + n < len(texts) and re.match(f"{lead}[^ -]", texts[first + n]):
        n += 1
    return n


def wrap(block):
    indent = re.match(r"\s*", block[0])[0]
    texts, done = texts_of(block), []
    room = COLUMNS - len(indent) - EDGE
    while texts:
        if len(texts[0]) + (EDGE if len(texts) == 1 else 0) <= room:
            done.append(texts.pop(0))
            continue
        n = paragraph(texts, 0)
        lead = re.match(r" *", texts[0])[0]
        lines = fill(" ".join(texts[:n]).split(), lead, room)
        if n == len(texts) and len(lines[-1]) + EDGE > room:
            lines[-1:] = [lead + line for line in lines[-1].strip().rsplit(" ", 1)]
        done += lines
        del texts[:n]
    marked = [(f"{indent}/* " if k == 0 else f"{indent} * ") + text for k, text in enumerate(done)]
    marked[-1] += " */"
    return [line.rstrip() for line in marked]


def wrapped(lines):
    lines, done = list(lines), []
    while lines:
        n = 1
        if re.match(r"\s*/\*( |$)", lines[0]):
            n = next((k + 1 for k, line in enumerate(lines) if "*/" in line), 1)
        block = lines[:n]
        is_wide = any(len(line) > COLUMNS for line in block)
        is_alone = re.match(r"\s*/\*", block[0]) and block[-1].endswith("*/")
        done += wrap(block) if is_wide and is_alone else block
        del lines[:n]
    return done


def main():
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        before = path.read_text(encoding="utf-8")
        after = "\n".join(wrapped(before.split("\n")))
        if after != before:
            path.write_text(after, encoding="utf-8")


main()
