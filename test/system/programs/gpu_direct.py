#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""gpu_direct.py --backends NAME,NAME,... SOCKET...: all-reduces of a group off the ring, small ones
in one hop (or, by --shape, gathered) and larger ones in two steps, through daemons of which each
rank's reduces on the backend of that name; every bit is compared with the reference's. Then the
daemons' own counters have to say that the ops took those shapes, and that nothing but the backend
reduced a chunk at its rank."""

import argparse
import sys
import time

import numpy as np

import gradwire
from reference import reference
from ring import Ring, check


def group_of(ring, socket):
    for group in gradwire.daemon_status(socket)["groups"]:
        if int(group["group_id"], 16) == ring.group_id:
            return group
    raise SystemExit(f"{socket} knows no group {ring.group_id:x}")


def ops_of(ring, socket, shape):
    return sum(shard["counters"][f"ops_{shape}"] for shard in group_of(ring, socket)["shards"])


def reduced_by(socket):
    totals = {}
    for entry in gradwire.daemon_status(socket)["reduce"]:
        totals[entry["backend"]] = totals.get(entry["backend"], 0) + entry["chunks_reduced"]
    return totals


def run(ring, arguments, shape, counts, datatypes):
    """@return ops done, each of which has to have that shape."""
    generator = np.random.default_rng([arguments.seed, ring.members])
    before = [ops_of(ring, socket, shape) for socket in arguments.sockets]
    ops = 0
    for datatype in datatypes:
        for redop in reference.redops_of(datatype):
            for i, count in enumerate(counts):
                inputs = ring.make_inputs(generator, count, datatype)
                outputs = ring.all_reduce(inputs, datatype, redop, in_place=i % 2 == 1)
                check(outputs, reference.all_reduce(inputs, datatype, redop),
                      f"{shape}, {ring.members} members, {redop} of {count} {datatype}")
                ops += 1
    for rank, socket in enumerate(arguments.sockets):
        # Lanes publish their counters now and then.
        for _ in range(100):
            took = ops_of(ring, socket, shape) - before[rank]
            if took >= ops:
                break
            time.sleep(0.05)
        else:
            raise SystemExit(f"rank {rank} did {took} of {ops} ops as {shape}")
    print(f"{ops} ops of {ring.members} members, {shape}: the reference's bits", flush=True)
    return ops


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs="+")
    parser.add_argument("--backends", required=True, help="of each rank: cpu, emu or cuda")
    parser.add_argument("--datatypes", default=",".join(reference.NUMPY_TYPES))
    parser.add_argument("--shape", default="direct", help="that small ops have")
    parser.add_argument("--copied", action="store_true", help="memory that numpy has no arrays in")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    datatypes = arguments.datatypes.split(",")
    backends = [name if name != "cpu" else None for name in arguments.backends.split(",")]
    before = [reduced_by(socket) for socket in arguments.sockets]
    for members in (1, 2):
        with Ring(arguments.sockets, members, shared=not arguments.copied) as ring:
            group = group_of(ring, arguments.sockets[0])
            if group["direct_kib"] == 0:
                raise SystemExit(f"no op is direct: {group['why_not_direct']}")
            run(ring, arguments, arguments.shape, (1, 17, 100, 333), datatypes)
            if len(arguments.sockets) > 2 and arguments.shape == "direct":
                for datatype in datatypes:
                    # More than 64 KiB of three ranks, and less than 16 KiB of each.
                    wide = members > 1 and datatype in ("fp16", "bf16")
                    width = 4 if wide else reference.NUMPY_TYPES[datatype].itemsize
                    run(ring, arguments, "two_step", (22_400 // width,), [datatype])
    for rank, (socket, backend) in enumerate(zip(arguments.sockets, backends)):
        # The last of a group's counters are published when its lanes have let go of it.
        for _ in range(100):
            now = reduced_by(socket)
            new = {name: n - before[rank].get(name, 0) for name, n in now.items()}
            new = {name: n for name, n in new.items() if n}
            wanted = all(name == backend if backend else name.startswith("cpu") for name in new)
            if new and wanted:
                break
            time.sleep(0.05)
        else:
            raise SystemExit(f"rank {rank}: {new} reduced chunks, {backend or 'cpu'} alone should")
        print(f"rank {rank}: chunks reduced by {new}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
