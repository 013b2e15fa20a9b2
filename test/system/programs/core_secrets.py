#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""core_secrets.py --pid PID --text TEXT [options]: what a core dump of a process would have. The
kernel leaves out mappings whose VmFlags in /proc/PID/smaps have `dd`. No other one may have a key
of the files, or what follows from one; nor 16 bytes of what lies in those mappings and looks drawn.
TEXT, which is no secret, must be found: so the search works."""

import argparse
import re
import sys
import time

import numpy as np

from peer import security

HEADER = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)$")
PAGE = 4096
WORD = 8  # copies of what a program works with lie at multiples of it


def mappings(pid):
    """@return of each readable mapping its start, end, name and whether a dump leaves it out."""
    found = []
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as smaps:
        for line in smaps:
            header = HEADER.match(line)
            if header:
                reads = header[3][0] == "r" and header[4] not in ("[vvar]", "[vsyscall]")
                found.append([int(header[1], 16), int(header[2], 16), header[4], False, reads])
            elif line.startswith("VmFlags:"):
                flags = line.split()[1:]
                found[-1][3] = "dd" in flags
                found[-1][4] &= "io" not in flags  # of a device
    return [m[:4] for m in found if m[4]]


def contents(pid):
    """@return (address, name, bytes) of what is not zeros: in mappings that a dump leaves out, and
    in those that it has."""
    hidden, shown = [], []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start, end, name, left_out in mappings(pid):
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, ValueError):
                continue
            pages = np.frombuffer(data, np.uint64, len(data) // PAGE * PAGE // WORD)
            used = pages.reshape(-1, PAGE // WORD).any(axis=1)
            # Pages that follow each other stay together: a secret may lie across their border.
            edges = np.flatnonzero(np.diff(np.concatenate(([0], used.view(np.int8), [0]))))
            for first, last in edges.reshape(-1, 2) * PAGE:
                (hidden if left_out else shown).append(
                    (start + int(first), name or "(anonymous)", data[first:last]))
    return hidden, shown


def places(what, maps):
    return [f"{address + data.index(what):x} {name}"
            for address, name, data in maps if what in data]


def drawn_pieces(hidden):
    """16 bytes each, at every word, that look drawn: pointers and counts have zeros."""
    pieces = set()
    for _, _, data in hidden:
        for at in range(0, len(data) - 15, WORD):
            piece = data[at:at + 16]
            if piece.count(0) <= 2 and len(set(piece)) >= 10:
                pieces.add(piece)
    return pieces


def copies(pieces, shown):
    """Places of pieces in mappings that a dump has."""
    starts = np.array(sorted({int.from_bytes(p[:8], "little") for p in pieces}), np.uint64)
    found = []
    for address, name, data in shown:
        words = np.frombuffer(data, np.uint64, len(data) // WORD)
        index = np.minimum(np.searchsorted(starts, words), len(starts) - 1)
        for at in np.flatnonzero(starts[index] == words):
            if data[WORD * at:WORD * at + 16] in pieces:
                found.append(f"{address + WORD * int(at):x} {name}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--cluster", action="append", default=[], help="its key file")
    parser.add_argument("--job", action="append", default=[], help="a job's key file")
    parser.add_argument("--keeps", action="store_true", help="what follows from the files is there")
    parser.add_argument("--drawn", action="store_true", help="and so is what was drawn")
    parser.add_argument("--forgot", help="a job's key file, of which nothing is there any more")
    arguments = parser.parse_args()

    hidden, shown = contents(arguments.pid)
    faults = []
    if not places(arguments.text.encode(), shown):
        faults.append(f"'{arguments.text}' was not found: the search does not work")
    for role, files in (("cluster", arguments.cluster), ("job", arguments.job)):
        for file in files:
            with open(file, "rb") as source:
                key = source.read()
            keys = security.FileKeys(key)
            master = security.extract(b"gradwire key file v1", key)
            kept = {"cluster": ("entry", "cluster"), "job": ("job",)}[role]
            secrets = {"key": key, "extract": master, "entry": keys.entry, "cluster": keys.cluster,
                       "job": keys.job}
            for name, secret in secrets.items():
                # Half of one gives away as much as a search can miss.
                for half in (secret[:16], secret[16:]):
                    for place in places(half, shown):
                        faults.append(f"{file}: half of its {name} lies in {place}")
                if arguments.keeps and name in kept and not places(secret, hidden):
                    faults.append(f"{file}: its {name} is in no mapping that a dump leaves out")
    if arguments.forgot:
        with open(arguments.forgot, "rb") as source:
            gone = security.FileKeys(source.read()).job
        faults += [f"{arguments.forgot}: what follows from it lies in {place}"
                   for place in places(gone, hidden + shown)]
    pieces = drawn_pieces(hidden)
    if arguments.drawn:
        if len(pieces) < 20:
            faults.append(f"only {len(pieces)} pieces look drawn: there must be keys of packets")
        # What a lane works with at this moment may lie on its stack.
        stay = set(copies(pieces, shown))
        for _ in range(4):
            time.sleep(0.2)
            stay = stay and stay.intersection(copies(pieces, contents(arguments.pid)[1]))
        faults += [f"16 bytes of a secret mapping lie in {place}" for place in stay]
    print(f"process {arguments.pid}: a dump leaves out {sum(len(m[2]) for m in hidden) >> 10} "
          f"KiB that are in use, with {len(pieces)} pieces that look drawn; it has "
          f"{sum(len(m[2]) for m in shown) >> 20} MiB")
    print("\n".join(sorted(set(faults))) or "no secret lies in what a core dump has")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
