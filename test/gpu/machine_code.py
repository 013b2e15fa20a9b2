#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What ptxas made of the kernels, which no interpreter of PTX can show.

usage: machine_code.py [--check] FILE    an object or cubin of lib/reduce/cuda/kernels.cu

For each kernel: instructions; how many vectors of 16 bytes are asked for before the first is used
(each use waits for the bus); fences of the system; vectors copied to shared memory, as the
persistent kernel copies a batch. With --check it fails if a kernel is not within BOUNDS. Needs
cuobjdump, of CUDA's toolkit."""
import re
import subprocess
import sys

# Vectors at once at least, fences at most, vectors to shared memory at least and at most: two
# results in each function for arrays that are not aligned, and in the persistent kernel the first
# read of a descriptor, and the loop for the rest.
BOUNDS = {"sum_kernel": (4, 0, 2, 2), "batch_kernel": (8, 0, 18, 18),
          "persistent_kernel": (8, 3, 20, 20)}
LOAD = re.compile(r"(?:@!?U?P\w+ )?LDG?\.E\S*\.128\S* R(\d+),")


def functions(listing):
    """@return {name: [instruction]}."""
    found, code = {}, None
    for line in listing.splitlines():
        if name := re.search(r"Function : (\S+)", line):
            code = found.setdefault(name[1], [])
        elif (each := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?) ;", line)) and code is not None:
            code.append(each[1])
    return found


def loads_at_once(code):
    """@return the most vector loads between which no instruction reads what one of them brings."""
    most, waiting, count = 0, set(), 0
    for each in code:
        load = LOAD.match(each)
        operands = each.split(",", 1)[1] if "," in each else each
        read = {int(number) for number in re.findall(r"\bR(\d+)", operands)}
        if waiting & read or re.search(r"\b(BRA|EXIT|RET|CALL|BAR)\b", each):
            waiting, count = set(), 0
        if load:
            first = int(load[1])
            waiting |= set(range(first, first + 4))
            count += 1
            most = max(most, count)
    return most


def copied(code):
    """@return vectors that instructions store to shared memory."""
    return sum("STS.128" in each for each in code)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    if len(arguments) != 1:
        print(__doc__)
        return 2
    try:
        made = subprocess.run(["cuobjdump", "-sass", arguments[0]], check=True,
                              capture_output=True, text=True)
    except FileNotFoundError:
        print("there is no cuobjdump: it comes with CUDA's toolkit")
        return 77
    wrong = []
    print(f"{'kernel':30} {'instructions':>12} {'at once':>8} {'fences':>7} {'to shared':>10}")
    for name, code in sorted(functions(made.stdout).items()):
        kernel = next((each for each in BOUNDS if each in name), None)
        if kernel is None:
            continue
        of = re.search(r"Scalar[A-Z][a-z]+(?:I[fd]E)?", name)
        label = f"{kernel} {of[0]}" if of else kernel
        at_once = loads_at_once(code)
        fences = sum("MEMBAR" in each and "SYS" in each for each in code)
        print(f"{label:30} {len(code):12} {at_once:8} {fences:7} {copied(code):10}")
        least, most_fences, least_copied, most_copied = BOUNDS[kernel]
        if at_once < least:
            wrong.append(f"{label} asks for {at_once} vectors before it waits; {least} wanted")
        if fences > most_fences:
            wrong.append(f"{label} has {fences} fences of the system; {most_fences} at most")
        if not least_copied <= copied(code) <= most_copied:
            wrong.append(f"{label} copies {copied(code)} vectors to shared memory one after the "
                         f"other; {least_copied} to {most_copied} wanted")
    if "--check" not in sys.argv:
        return 0
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
