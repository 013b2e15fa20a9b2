#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""How pages are written, as far as a program can tell: relative links lead to a file and a heading,
lines have at most 120 characters (but for tables, code, and what scripts/compare.sh writes), no
sentence begins with "Of", "Likewise" or "The same", and none has more than 45 words (but for
doc/results, which says what was measured). `pages.py --self-test` shows that each rule fails on a
text that breaks it."""

import os
import pathlib
import re
import sys

from sources import ROOT, own_files

COLUMNS_MAX = 120
WORDS_MAX = 45
OPENING = re.compile(r"[-*\d. ]*(Of|Likewise|The same)\b")
CODE = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
TABLE = re.compile(r"^(\||#|<!--).*$", re.M)
GENERATED = re.compile(r"doc/results/compare-")


def blank(found):
    """As many lines, so that numbers stay."""
    return "\n" * found.group(0).count("\n")


def sentences(text):
    """(number of the first line of its paragraph, sentence)"""
    number = 1
    for paragraph in re.split(r"(\n\s*\n|\n(?=\s*[-*] |\s*\d+\. ))", TABLE.sub("", text)):
        words = " ".join(paragraph.split())
        for sentence in re.split(r"(?<=[.!?:;])\s+(?=[-A-Z`*\[(\d])", words):
            if sentence:
                yield number, sentence
        number += paragraph.count("\n")


def headings(text):
    """Anchors of a page, as GitHub makes them."""
    for heading in re.findall(r"^#+ (.*)$", CODE.sub(blank, text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        yield re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def link_mistakes(path, text, read):
    """read(path): text of a page, True of another file, None of what is not there."""
    for number, line in enumerate(CODE.sub(blank, text).split("\n"), 1):
        for link in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"\w+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = os.path.normpath(path.parent / name) if name else path.as_posix()
            found = read(target)
            if found is None:
                yield number, f"no file {link}"
            elif anchor and found is not True and anchor not in set(headings(found)):
                yield number, f"no heading {link}"


def check(path, text, read):
    """Yields (line number, what is wrong)."""
    prose = CODE.sub(blank, text)
    for number, line in enumerate(prose.split("\n"), 1):
        if len(line) > COLUMNS_MAX and not line.startswith("|"):
            if not GENERATED.match(path.as_posix()):
                yield number, f"{len(line)} columns, {COLUMNS_MAX} allowed"
    for number, sentence in sentences(prose):
        found = OPENING.match(sentence)
        if found:
            yield number, f"a sentence begins with {found.group(1)}: {sentence[:60]}"
        words = len(sentence.split())
        if words > WORDS_MAX and not path.as_posix().startswith("doc/results/"):
            yield number, f"a sentence of {words} words, {WORDS_MAX} allowed: {sentence[:60]}"
    yield from link_mistakes(path, text, read)


def read_file(name):
    path = ROOT / name
    if not path.exists():
        return None
    return path.read_text(encoding="utf-8") if path.suffix == ".md" else True


def check_tree():
    pages = [p for p in own_files() if p.suffix == ".md" and (len(p.parts) == 1 or
                                                              p.parts[0] == "doc")]
    failures = 0
    for path in pages:
        for number, wrong in check(path, (ROOT / path).read_text(encoding="utf-8"), read_file):
            print(f"{path}:{number}: {wrong}")
            failures += 1
    print(f"{len(pages)} pages, {failures} breaches")
    return failures == 0 and len(pages) > 0


def self_test():
    page = pathlib.PurePosixPath("doc/x.md")
    tree = {"doc/x.md": "# A page\n", "doc/y.md": "# Two words, here\n", "lib": True}
    many = " ".join(["w"] * WORDS_MAX)
    cases = [
        ("A sentence. Another.\n", True),
        ("A sentence. Of this one not.\n", False),
        ("A sentence.\n\nLikewise another.\n", False),
        ("- The same in a list.\n", False),
        ("Nearly the same. Often so.\n", True),
        (f"Then {many}.\n", False),
        (f"{many}.\n", True),
        (f"| {many} {many} |\n", True),
        (f"```\nOf {many} {many}\n```\n", True),
        ("x" * (COLUMNS_MAX + 1) + "\n", False),
        ("[a](y.md) [b](y.md#two-words-here) [c](#a-page) [d](../lib) [e](https://e)\n", True),
        ("[a](z.md)\n", False),
        ("[a](y.md#three)\n", False),
        ("[a](#three)\n", False),
    ]
    wrong = 0
    for text, fine in cases:
        found = list(check(page, text, lambda name: text + tree[name] if name == "doc/x.md"
                           else tree.get(name)))
        if (not found) != fine:
            print(f"{text[:60]!r} should {'pass' if fine else 'fail'}, found {found}")
            wrong += 1
    print(f"{len(cases)} cases, {wrong} wrong")
    return wrong == 0


if __name__ == "__main__":
    sys.exit(0 if (self_test() if "--self-test" in sys.argv[1:] else check_tree()) else 1)
