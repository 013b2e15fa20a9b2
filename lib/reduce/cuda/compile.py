#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compiles the kernels, and writes beside the object what each of them needs of a multiprocessor.

usage: compile.py TABLE COMMAND...   the command is nvcc with --resource-usage
       compile.py --check TABLE      fails if a kernel needs more than it should
       compile.py --self-test

The table has a line for each kernel and architecture: name, architecture, registers, bytes of
spills (stores and loads), bytes of stack."""
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
# Registers and spilled bytes at most. With 64 registers a multiprocessor holds 1,024 threads, which
# keeps enough loads on their way; the others are not for large sums. What they keep over a call of
# a function apart (GRADWIRE_APART) counts as spilled.
MOST = {"sum_kernel": (64, 16), "batch_kernel": (128, 320), "persistent_kernel": (128, 128),
        "format_kernel": (64, 64)}
OF = {"f": "float32", "d": "float64", "ScalarHalf": "float16", "ScalarBfloat": "bfloat16"}


def short(mangled):
    """@return sum_kernel<float32>, and so on."""
    name = re.search(r"(sum_kernel|batch_kernel|persistent_kernel|format_kernel)", mangled)[0]
    of = re.search(r"ScalarFloatI([fd])E|(ScalarHalf|ScalarBfloat)", mangled)
    return f"{name}<{OF[of[1] or of[2]]}>" if of else name


def table(said):
    """@return a row (name, architecture, registers, spilled, stack) for each kernel."""
    rows, entry, needs = [], None, (0, 0)
    for line in said.splitlines():
        if found := ENTRY.search(line):
            entry = (short(found[1]), found[2])
        elif found := SPILLS.search(line):
            needs = (int(found[2]) + int(found[3]), int(found[1]))
        elif (found := USED.search(line)) and entry:
            rows.append((*entry, int(found[1]), *needs))
            entry = None
    return sorted(rows)


def text(rows):
    lines = [f"{'kernel':24} {'architecture':12} {'registers':>9} {'spilled':>8} {'stack':>6}"]
    return "\n".join(lines + [f"{n:24} {a:12} {r:9} {s:8} {f:6}" for n, a, r, s, f in rows]) + "\n"


def check(path):
    with open(path, encoding="utf-8") as f:
        made = f.read()
    print(made, end="")
    rows = [line.split() for line in made.splitlines()[1:]]
    wrong = [row for row in rows
             if any(int(is_) > most for is_, most in zip(row[2:4], MOST[row[0].split("<")[0]]))]
    for name, architecture, *_ in wrong:
        print(f"{name} for {architecture}: more than {MOST[name.split('<')[0]]} registers, bytes")
    return 1 if wrong or not rows else 0


def self_test():
    said = """ptxas info    : Compiling entry function '_Zsum_kernelI11ScalarFloatIfEEv' for 'sm_90'
ptxas info    : Function properties for _Z10sum_kernelI11ScalarFloatIfEEv
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 4000 bytes cmem[0]
ptxas info    : Compiling entry function '_Z12batch_kernel5Batch' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 90 registers
"""
    assert table(said) == [("batch_kernel", "sm_80", 90, 0, 0),
                           ("sum_kernel<float32>", "sm_90", 64, 16, 8)], table(said)
    assert short("sum_kernelINS0_12ScalarBfloatE") == "sum_kernel<bfloat16>"
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if sys.argv[1:2] == ["--check"] and len(sys.argv) == 3:
        return check(sys.argv[2])
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    made = subprocess.run(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        print(made.stdout)
        return made.returncode
    rows = table(made.stdout)
    if not rows:
        print(f"{made.stdout}\nptxas named no kernel's registers")
        return 1
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write(text(rows))
    print(text(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
