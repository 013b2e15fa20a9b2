# SPDX-License-Identifier: BSD-3-Clause
"""Do all processes have the same sum? Each takes a digest of its result, and all get to know all
digests by a small all-reduce in a group of their own: process p's are its own numbers at place p,
and zeros elsewhere, so the sum is the list. Where they differ the group is aborted, with the odd
one out by name.

Every rank of a group stores the same bytes, so a digest that differs is a fault: of memory, of a
processor, of a driver, or a bug. It costs a pass over each result (1.7 GB/s on a core with SHA
instructions) and a small all-reduce's time. That goes through the same lanes: a fault in it is told
as a difference, too.
"""
import collections
import hashlib

import numpy

from . import rendezvous
from ._native import GradwireError, Status


def digest(values):
    """64 bits of a numpy array's or tensor's bytes, as two numbers of 32."""
    if not isinstance(values, numpy.ndarray):
        # A view of the same bytes: numpy has no bf16.
        import torch

        values = values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    # Nobody is to be kept from forging it: SHA-1 is the fastest here that spreads every bit.
    raw = hashlib.sha1(memoryview(values).cast("B"), usedforsecurity=False).digest()
    return numpy.frombuffer(raw[:8], dtype="<u4").astype(numpy.int64)


def odd_ones(digests):
    """The places whose digest is not the one that most have; all of them where no digest is that
    of more than half."""
    counts = collections.Counter(digests)
    most, votes = counts.most_common(1)[0]
    if votes * 2 <= len(digests):
        return list(range(len(digests)))
    return [place for place, value in enumerate(digests) if value != most]


def verdict(digests, members, op_seq):
    """What is wrong, None where nothing is. The same text at every process."""
    odd = odd_ones(digests) if len(set(digests)) > 1 else []
    if not odd:
        return None
    names = []
    for place in odd:
        rank, member = divmod(place, members)
        names.append("rank %d" % rank if members == 1 else "member %d of rank %d" % (member, rank))
    names = ", ".join(names)
    if len(odd) == len(digests):
        return "results of op %d differ: %s have none that most agree on" % (op_seq, names)
    return "the result of op %d differs at %s" % (op_seq, names)


class Digests:
    """The comparisons of one group. Constructing it is collective; so is compare(), in the order of
    the ops. One thread uses it."""

    def __init__(self, client, group, store, epoch, prefix):
        self._group = group
        self._place = group.rank * group.members + group.member
        self._memory = client.allocate(16 * group.processes)
        self._exchange = rendezvous.form_group(
            client,
            store,
            group.rank,
            group.processes // group.members,  # those that have members
            group.member,
            group.members,
            epoch=epoch,
            prefix=prefix + "/digest",
        )

    def compare(self, values, op_seq, timeout):
        """Raises ABORTED where the digests differ, after the group was aborted for that."""
        places = self._group.processes
        if self._memory.device is None:
            table = self._memory.array("int64", 2 * places)
            table[:] = 0
        else:
            table = numpy.zeros(2 * places, "int64")
        table[2 * self._place : 2 * self._place + 2] = digest(values)
        self._exchange.all_reduce(table, op="sum").wait(timeout)
        wrong = verdict(
            [tuple(pair) for pair in table.reshape(places, 2).tolist()],
            self._group.members,
            op_seq,
        )
        if wrong is not None:
            self._group.abort(wrong)
            raise GradwireError(Status.ABORTED, wrong)

    def close(self):
        try:
            self._exchange.leave()
        except GradwireError as error:
            if error.code not in (Status.ABORTED, Status.UNAVAILABLE, Status.NOT_FOUND):
                raise
        finally:
            self._exchange.close()
