# SPDX-License-Identifier: BSD-3-Clause
"""What the stories' Python programs share: a client's part in a group, and a whole ring of clients
in one process (posting does not wait, so one thread can serve all ranks)."""

import os
import secrets
import threading
import time

import numpy as np

import gradwire
from reference import reference

WAIT_S = 120
EPOCH = 1

_FLOAT_LIMITS = {"fp32": (23, 8), "fp64": (52, 11), "fp16": (10, 5), "bf16": (7, 8)}


def new_group_id():
    return secrets.randbits(64)


def special_values(datatype):
    """What tends to go wrong: NaNs of several payloads and both signs, infinities, zeros,
    denormals, extremes."""
    kind = reference.NUMPY_TYPES[datatype]
    if datatype not in _FLOAT_LIMITS:
        limits = np.iinfo(kind)
        return np.array([0, 1, limits.min, limits.max, limits.max - 1], kind)
    mantissa, exponent = _FLOAT_LIMITS[datatype]
    infinity = ((1 << exponent) - 1) << mantissa
    one = ((1 << (exponent - 1)) - 1) << mantissa
    quiet = 1 << (mantissa - 1)
    positive = [0, 1, (1 << mantissa) - 1, 1 << mantissa, one, one + 1, infinity - 1, infinity,
                infinity + 1, infinity | quiet, infinity | quiet | 1]
    sign = 1 << (mantissa + exponent)
    bits = np.array(positive + [p | sign for p in positive], f"u{kind.itemsize}")
    return bits.view(kind)


def random_values(generator, count, datatype):
    """Plausible values, every seventh from special_values()."""
    kind = reference.NUMPY_TYPES[datatype]
    if datatype == "bf16":
        # The upper halves of fp32: cut off, not rounded, which is as good for an input.
        values = (generator.standard_normal(count, np.float32).view(np.uint32) >> 16).astype(kind)
    elif datatype in _FLOAT_LIMITS:
        values = generator.standard_normal(count).astype(kind)
    else:
        limits = np.iinfo(kind)
        values = generator.integers(limits.min, limits.max, count, kind, endpoint=True)
    at = np.arange(int(generator.integers(7)), count, 7)
    values[at] = generator.choice(special_values(datatype), len(at))
    return values


def check(outputs, expected, what):
    """Every member's output has the expected bits, or the program ends with the first that does
    not."""
    width = expected.dtype.itemsize
    for rank, members in enumerate(outputs):
        for member, output in enumerate(members):
            got, want = output.view(f"u{width}"), expected.view(f"u{width}")
            wrong = np.nonzero(got != want)[0]
            if len(wrong):
                i = wrong[0]
                raise SystemExit(
                    f"{what}: rank {rank} member {member} differs from the reference in "
                    f"{len(wrong)} of {len(want)} elements, first element {i}: "
                    f"{got[i]:#x}, not {want[i]:#x}")


def meet_in_folder(folder, rank, nranks, infos, group_id):
    """Processes of a group exchange addresses through files; rank 0 says the group's id.
    @return (group id, infos by rank)."""
    for name, data in [(f"info{rank}", infos[rank])] + (
            [("group", group_id.to_bytes(8, "big"))] if rank == 0 else []):
        with open(os.path.join(folder, name + ".new"), "wb") as out:
            out.write(data)
        os.rename(os.path.join(folder, name + ".new"), os.path.join(folder, name))

    def read(name):
        for _ in range(600):
            try:
                with open(os.path.join(folder, name), "rb") as f:
                    return f.read()
            except FileNotFoundError:
                time.sleep(0.1)
        raise SystemExit(f"{folder}/{name} does not appear: another process is missing")

    return int.from_bytes(read("group"), "big"), {r: read(f"info{r}") for r in range(nranks)}


class Ring:
    """A client for each member of each rank, all in this process, joined in one group."""

    def __init__(self, sockets, members=1, shared=True, join_timeout=30.0):
        self.nranks = len(sockets)
        self.members = members
        self.shared = shared
        self.join_timeout = join_timeout
        self.clients = [[gradwire.Client(socket) for _ in range(members)] for socket in sockets]
        infos = [members_[0].describe() for members_ in self.clients]
        self.payload_bytes = min(m[0].info()["max_payload_bytes"] for m in self.clients)
        self.group_id = new_group_id()
        self.groups = self.join_all(self.group_id, infos)
        self.capacity_bytes = 0
        self.inputs = self.outputs = None

    def join_all(self, group_id, infos):
        """Joining waits for the others, so each needs a thread."""
        groups = [[None] * self.members for _ in range(self.nranks)]
        errors = []

        def join(rank, member):
            try:
                groups[rank][member] = self.clients[rank][member].join(
                    group_id, EPOCH, rank, infos, member, self.members, self.join_timeout)
            except gradwire.GradwireError as error:
                errors.append(f"rank {rank} member {member}: {error}")

        threads = [threading.Thread(target=join, args=(rank, member))
                   for rank in range(self.nranks) for member in range(self.members)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise SystemExit("the group was not formed: " + "; ".join(errors))
        return groups

    def make_inputs(self, generator, count, datatype):
        """@return inputs[rank][member]."""
        return [[random_values(generator, count, datatype) for _ in range(self.members)]
                for _ in range(self.nranks)]

    def buffers(self, count, datatype):
        """@return (inputs, outputs), each [rank][member], views of shared memory or of the heap."""
        size = count * reference.NUMPY_TYPES[datatype].itemsize
        if size > self.capacity_bytes or self.inputs is None:
            self.capacity_bytes = max(size, 2 << 20)
            self.inputs, self.outputs = ([[self.make_buffer(client) for client in members]
                                          for members in self.clients] for _ in range(2))
        kind = reference.NUMPY_TYPES[datatype]
        return tuple([[m[:size].view(kind) for m in members] for members in side]
                     for side in (self.inputs, self.outputs))

    def make_buffer(self, client):
        if self.shared:
            return client.allocate(self.capacity_bytes).array("uint8")
        return np.zeros(self.capacity_bytes, np.uint8)

    def all_reduce(self, inputs, datatype, redop, in_place=False, tag=0):
        """@return outputs[rank][member], valid until the next call."""
        sources, targets = self.buffers(len(inputs[0][0]), datatype)
        targets = sources if in_place else targets
        works = []
        for rank in range(self.nranks):
            for member in range(self.members):
                source, target = sources[rank][member], targets[rank][member]
                if not in_place:
                    # What is not overwritten must not pass for a result of the op before.
                    target.view(np.uint8)[:] = 0xA5
                source[:] = inputs[rank][member]
                works.append(self.groups[rank][member].all_reduce(
                    source, redop, out=target, dtype=datatype, tag=tag))
        for work in works:
            work.wait(WAIT_S)
        return targets

    def processes(self):
        """(rank, member, process) of each, in order of processes."""
        return [(r, m, r * self.members + m)
                for r in range(self.nranks) for m in range(self.members)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for members in self.groups:
            for group in members:
                group.close()
        for members in self.clients:
            for client in members:
                client.close()
