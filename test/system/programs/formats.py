#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""formats.py [--members M] SOCKET...: clients on each daemon, in rank order, sum values that travel
as bf16 and int8, NaNs, infinities, denormals and odd counts among them, and compare every bit with
the numpy reference; ops without a format between them stay exact. Then one rank calls another
format, and everybody's error names both. With --refused TEXT: no op may have a format in that
group, which TEXT says, and an op without one is done."""

import argparse
import sys

import numpy as np

import gradwire
from reference import formats, reference
from ring import WAIT_S, Ring, check

COUNTS = (0, 1, 255, 256, 257, 703, 1281, 20011, 300001)


def run(ring, calls):
    """calls[rank][member]: what posts an op. @return the errors of those that fail."""
    errors = []
    works = []
    for members in calls:
        for call in members:
            try:
                works.append(call())
            except gradwire.GradwireError as error:
                errors.append(error)
    for work in works:
        try:
            work.wait(WAIT_S)
        except gradwire.GradwireError as error:
            errors.append(error)
    return errors


def everywhere(ring, call):
    """@return call(group, rank, member) as run() takes it."""
    return [[lambda r=r, m=m: call(ring.groups[r][m], r, m) for m in range(ring.members)]
            for r in range(ring.nranks)]


def folded(members):
    """What a rank's members come to, in member order."""
    total = members[0].astype(np.float32)
    with np.errstate(all="ignore"):
        for values in members[1:]:
            total = (total + values).astype(np.float32)
    return total


def all_reduces(ring, generator, count):
    inputs = ring.make_inputs(generator, count, "fp32")
    for wire in ("bf16", "int8", "same"):
        for op in ("sum", "avg"):
            sources, outputs = ring.buffers(count, "fp32")
            for rank in range(ring.nranks):
                for member in range(ring.members):
                    sources[rank][member][:] = inputs[rank][member]
                    outputs[rank][member].view(np.uint8)[:] = 0xA5
            failed = run(ring, everywhere(ring, lambda group, r, m: group.all_reduce(
                sources[r][m], op, out=outputs[r][m], wire=wire)))
            if failed:
                raise SystemExit(f"{count} fp32 as {wire}: {failed[0]}")
            if wire == "same" or ring.nranks == 1:
                expected = reference.all_reduce(inputs, "fp32", op)
            else:
                divisor = ring.nranks * ring.members if op == "avg" else 1
                expected = formats.all_reduce([folded(m) for m in inputs], wire, divisor)
            check(outputs, expected, f"all-reduce {op} of {count} fp32 as {wire}")


def feeds_back(ring, generator, count):
    """Three steps with what the step before lost, in two buffers that take turns. In a group of one
    rank nothing is lost."""
    residuals = [[ring.clients[r][0].allocate(max(4 * count, 4)).array("float32", count)
                  for _ in range(2)] for r in range(ring.nranks)]
    for wire in ("int8", "bf16"):
        lost = [np.zeros(count, np.float32) for _ in range(ring.nranks)]
        for step in range(3):
            inputs = ring.make_inputs(generator, count, "fp32")
            before = [pair[step % 2] for pair in residuals]
            after = [pair[1 - step % 2] for pair in residuals]
            for array in after:
                array[:] = -1
            sources, outputs = ring.buffers(count, "fp32")
            for rank in range(ring.nranks):
                for member in range(ring.members):
                    sources[rank][member][:] = inputs[rank][member]

            def call(group, r, m):
                pair = (before[r] if step > 0 else None, after[r]) if m == 0 else (None, None)
                return group.all_reduce(sources[r][m], out=outputs[r][m], wire=wire, residuals=pair)

            failed = run(ring, everywhere(ring, call))
            if failed:
                raise SystemExit(f"{count} fp32 as {wire} with residuals: {failed[0]}")
            with np.errstate(all="ignore"):
                given = [(folded(members) + old).astype(np.float32)
                         for members, old in zip(inputs, lost)]
            if ring.nranks == 1:
                expected = reference.all_reduce(inputs, "fp32", "sum")
            else:
                expected = formats.all_reduce(given, wire)
                lost = [formats.residual(values, wire) for values in given]
            check(outputs, expected, f"step {step} of {count} fp32 as {wire} with residuals")
            for rank, (array, wanted) in enumerate(zip(after, lost)):
                check([[array]], wanted, f"what rank {rank} lost in step {step} as {wire}")


def differ(ring):
    values = np.ones(1000, np.float32)
    wires = ["int8" if rank == 1 else "bf16" for rank in range(ring.nranks)]
    failed = run(ring, everywhere(ring, lambda group, r, m: group.all_reduce(
        values.copy(), wire=wires[r], tag=3)))
    if len(failed) != ring.nranks * ring.members:
        raise SystemExit(f"{len(failed)} ops failed, of {ring.nranks * ring.members} that differ")
    for error in failed:
        for wire in ("bf16", "int8"):
            if f"all-reduce sum of 1000 fp32 as {wire} with tag 3" not in str(error):
                raise SystemExit(f"it does not name {wire}: {error}")


def refused(ring, text):
    values = np.ones(1000, np.float32)
    failed = run(ring, everywhere(ring, lambda group, r, m: group.all_reduce(values.copy(),
                                                                            wire="int8")))
    if len(failed) != ring.nranks * ring.members:
        raise SystemExit("an op with a format was done in a group that has none")
    for error in failed:
        if error.code != gradwire.Status.UNSUPPORTED or text not in str(error):
            raise SystemExit(f"it is not UNSUPPORTED, or does not say {text!r}: {error}")
    if run(ring, everywhere(ring, lambda group, r, m: group.all_reduce(values.copy()))):
        raise SystemExit("an op without a format failed after one that was refused")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--refused")
    parser.add_argument("sockets", nargs="+")
    options = parser.parse_args()
    generator = np.random.default_rng(20261128)
    with Ring(options.sockets, options.members) as ring:
        if options.refused:
            refused(ring, options.refused)
            return 0
        for count in COUNTS:
            all_reduces(ring, generator, count)
        for count in (1, 257, 20011):
            feeds_back(ring, generator, count)
        status = gradwire.daemon_status(options.sockets[0])["groups"][0]
        counts = [sum(shard["counters"][name] for shard in status["shards"])
                  for name in ("ops_bf16", "ops_int8")]
        if ring.nranks > 1 and (not status["formats"] or min(counts) == 0):
            raise SystemExit(f"the status tells of {counts} ops as bf16 and int8: {status}")
        if ring.nranks > 1:
            differ(ring)
    return 0


if __name__ == "__main__":
    sys.exit(main())
