#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""collectives.py [options] SOCKET...: clients on each daemon, in rank order, run every collective
and compare every bit with the reference: awkward counts, each process as the root, memory that is
shared and that is not, apart and in place as FSDP2 does it. Exit 1 at the first difference."""

import argparse
import sys

import numpy as np

from reference import reference
from ring import WAIT_S, Ring, check, random_values

GUARD = 64  # bytes on each side of an output that must stay as they were


class Case:
    """The memory of one op: an array with room around it for each process."""

    def __init__(self, ring, datatype):
        self.ring = ring
        self.datatype = datatype
        self.kind = reference.NUMPY_TYPES[datatype]
        self.outputs = []

    def place(self, process, side, count):
        """An array of `count` elements with guards, on its own side of the process's memory."""
        rank, member = divmod(process, self.ring.members)
        memory = (self.ring.inputs if side == "input" else self.ring.outputs)[rank][member]
        size = count * self.kind.itemsize
        memory[:size + 2 * GUARD] = 0xA5
        return memory[GUARD:GUARD + size].view(self.kind)

    def guarded(self, array, what):
        """The bytes around an array are as place() left them."""
        base = array.base
        while base.base is not None and isinstance(base.base, np.ndarray):
            base = base.base
        whole = base.view(np.uint8)
        start = array.ctypes.data - whole.ctypes.data
        around = np.concatenate([whole[start - GUARD:start],
                                 whole[start + array.nbytes:start + array.nbytes + GUARD]])
        if (around != 0xA5).any():
            raise SystemExit(f"{what}: bytes beside its memory were written")


def wait(works):
    return [work.wait(WAIT_S) for work in works]


def nested(ring, flat):
    return [flat[r * ring.members:(r + 1) * ring.members] for r in range(ring.nranks)]


def compare(ring, outputs, expected, what):
    """outputs[process], against one array or one for each process."""
    for process, output in enumerate(outputs):
        want = expected[process] if isinstance(expected, list) else expected
        check([[output]], want, f"{what}, process {process}")


def all_gather(ring, case, generator, count, in_place, what):
    total = ring.nranks * ring.members
    values = [random_values(generator, count, case.datatype) for _ in range(total)]
    outs = [case.place(p, "output", total * count) for p in range(total)]
    inputs = [outs[p][p * count:(p + 1) * count] if in_place else case.place(p, "input", count)
              for p in range(total)]
    for array, value in zip(inputs, values):
        array[:] = value
    wait([ring.groups[r][m].all_gather(inputs[p], outs[p], dtype=case.datatype)
          for r, m, p in ring.processes()])
    compare(ring, outs, reference.all_gather(nested(ring, values)), what)
    for array in outs:
        case.guarded(array, what)


def reduce_scatter(ring, case, generator, count, redop, in_place, what):
    total = ring.nranks * ring.members
    values = [random_values(generator, total * count, case.datatype) for _ in range(total)]
    inputs = [case.place(p, "input", total * count) for p in range(total)]
    for array, value in zip(inputs, values):
        array[:] = value
    outs = [inputs[p][p * count:(p + 1) * count] if in_place else case.place(p, "output", count)
            for p in range(total)]
    wait([ring.groups[r][m].reduce_scatter(inputs[p], outs[p], op=redop, dtype=case.datatype)
          for r, m, p in ring.processes()])
    expected = reference.reduce_scatter(nested(ring, values), case.datatype, redop)
    compare(ring, outs, [block for blocks in expected for block in blocks], what)
    for p, array in enumerate(inputs):
        case.guarded(array, what)
        if not in_place:
            case.guarded(outs[p], what)
            compare(ring, [array], values[p], what + ", input")


def broadcast(ring, case, generator, count, root, what):
    total = ring.nranks * ring.members
    arrays = [case.place(p, "output", count) for p in range(total)]
    value = random_values(generator, count, case.datatype)
    arrays[root][:] = value
    wait([ring.groups[r][m].broadcast(arrays[p], root, dtype=case.datatype)
          for r, m, p in ring.processes()])
    compare(ring, arrays, value, what)
    for array in arrays:
        case.guarded(array, what)


def reduce(ring, case, generator, count, redop, root, in_place, what):
    total = ring.nranks * ring.members
    values = [random_values(generator, count, case.datatype) for _ in range(total)]
    inputs = [case.place(p, "input", count) for p in range(total)]
    for array, value in zip(inputs, values):
        array[:] = value
    out = inputs[root] if in_place else case.place(root, "output", count)
    wait([ring.groups[r][m].reduce(inputs[p], root, redop, out=out if p == root else None,
                                   dtype=case.datatype)
          for r, m, p in ring.processes()])
    expected = reference.reduce(nested(ring, values), case.datatype, redop, root)
    compare(ring, [out], expected, what)
    case.guarded(out, what)
    for p in range(total):
        case.guarded(inputs[p], what)
        if p != root or not in_place:
            compare(ring, [inputs[p]], values[p], what + ", input")


def barrier(ring, what):
    """Nobody is let through before the last has come."""
    places = ring.processes()
    works = [ring.groups[r][m].barrier() for r, m, _ in places[:-1]]
    sums = [np.ones(1, "int32") for _ in places]
    if any(work.is_done() for work in works):
        raise SystemExit(f"{what}: a barrier was done before the last process called it")
    rank, member, _ = places[-1]
    works.append(ring.groups[rank][member].barrier())
    wait(works)
    wait([ring.groups[r][m].all_reduce(sums[p]) for r, m, p in places])
    if any(total[0] != len(places) for total in sums):
        raise SystemExit(f"{what}: the all-reduce after it is wrong")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--datatypes", default="fp32,bf16,int8")
    parser.add_argument("--copied", action="store_true", help="memory that is not shared")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    generator = np.random.default_rng(arguments.seed)
    ops = 0
    with Ring(arguments.sockets, arguments.members, shared=not arguments.copied) as ring:
        total = ring.nranks * ring.members
        for datatype in arguments.datatypes.split(","):
            case = Case(ring, datatype)
            element = case.kind.itemsize
            payload = ring.payload_bytes // element
            # One, odd, a payload and around it, several windows.
            counts = [0, 1, 7, payload - 1, payload, payload + 1, 200_003 // element]
            ring.buffers(total * max(counts) + 2 * GUARD, datatype)
            for number, count in enumerate(counts):
                redops = reference.redops_of(datatype)
                redop = redops[(number + total) % len(redops)]
                for in_place in (False, True):
                    at = (f"{ring.nranks} ranks x {ring.members} members, {count} {datatype}"
                          f"{', in place' if in_place else ''}")
                    all_gather(ring, case, generator, count, in_place, f"all-gather, {at}")
                    reduce_scatter(ring, case, generator, count, redop, in_place,
                                   f"reduce-scatter {redop}, {at}")
                    for root in {0, number % total, total - 1}:
                        reduce(ring, case, generator, count, redop, root, in_place,
                               f"reduce {redop} to {root}, {at}")
                        broadcast(ring, case, generator, count, root, f"broadcast of {root}, {at}")
                        ops += 2
                    barrier(ring, f"barrier, {at}")
                    ops += 4
    print(f"{ring.nranks} ranks x {ring.members} members, {arguments.datatypes}"
          f"{', copied' if arguments.copied else ''}: {ops} ops, the reference's bits", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
