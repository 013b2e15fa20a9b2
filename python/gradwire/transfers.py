# SPDX-License-Identifier: BSD-3-Clause
"""What moves between pairs of processes: send, recv, all-to-all, gather and scatter. A part of
gradwire.client.Group, in a file of its own."""

import ctypes
import math

from ._cuda import is_torch
from ._native import ALL_TO_ALL, GATHER, RECV, SCATTER, SEND, integer


def _counts(values, processes, name):
    """Counts of each process as the C interface takes them; None stays None."""
    if values is None:
        return None
    values = list(values)
    if len(values) != processes:
        raise ValueError(
            "%s has %d counts: the group has %d processes" % (name, len(values), processes)
        )
    most = 2**64 - 1
    return (ctypes.c_uint64 * processes)(*[integer(v, name, 0, most) for v in values])


def _elements(value):
    if is_torch(value):
        return value.numel()
    if hasattr(value, "size"):
        return value.size
    return math.prod(value.__cuda_array_interface__["shape"])


class Transfers:
    """The functions below are Group's. Each ordered pair of processes has an order of its own: the
    n-th call that sends there meets the n-th call there that receives from here, and both must be
    the same function with the same size and tag. A recv that waits holds back nothing else."""

    def send(self, value, destination, tag=0, pair_stream=0):
        """Posts a send of ``value`` to a process and returns its Work at once. Elements of any
        type: they are moved as they are. Until the work is done, which it is when all has come
        there, do not write ``value``. Sends of a ``pair_stream``, 0 to 63, meet recvs of the same
        one and wait for none of another."""
        source = self._single(value, None, "send", True)
        return self._move(SEND, value, None, source, None, source.count,
                          self._process(destination, "destination"), tag,
                          pair_stream=pair_stream)

    def recv(self, out, source, tag=0, up_to=False, pair_stream=0):
        """Posts a receive of what a process sends and returns its Work at once: ``out`` gets it. It
        must have the size that is sent. With ``up_to`` less may be sent: ``out`` gets that at its
        beginning and stays as it is behind it, and the Work's ``nbytes`` tells how much came.
        ``pair_stream``: as of send()."""
        target = self._writable(out, "recv")
        return self._move(RECV, None, out, None, target, target.count,
                          self._process(source, "source"), tag, up_to=up_to,
                          pair_stream=pair_stream)

    def all_to_all(self, value, out, input_counts=None, output_counts=None, tag=0):
        """Posts an all-to-all and returns its Work at once: block p of ``value`` goes to process p,
        and block q of ``out`` comes from process q. Blocks lie one after the other. They are
        equally large, or ``input_counts[p]`` and ``output_counts[q]`` are their elements."""
        source = self._single(value, None, "all-to-all", True)
        target = self._writable(out, "all-to-all")
        self._same_type(source, target, "all-to-all")
        block = 0
        for side, counts, name in ((value, input_counts, "input"), (out, output_counts, "output")):
            have = _elements(side)
            if counts is None and have % self.processes != 0:
                raise ValueError("the %s of %d elements has no equal blocks for %d processes: pass "
                                 "%s_counts" % (name, have, self.processes, name))
            if counts is not None and sum(counts) != have:
                raise ValueError("%s_counts are %d elements in all, and the %s has %d"
                                 % (name, sum(counts), name, have))
        if input_counts is None or output_counts is None:
            whole = value if input_counts is None else out
            block = _elements(whole) // self.processes
        if input_counts is None and output_counts is None and source.count != target.count:
            raise ValueError("an all-to-all of %d elements into %d: without counts both have the "
                             "same size" % (source.count, target.count))
        return self._move(ALL_TO_ALL, value, out, source, target, block, 0, tag,
                          input_counts, output_counts)

    def gather(self, value, root=0, out=None, output_counts=None, tag=0):
        """Posts a gather and returns its Work at once: on process ``root`` ``out`` gets the
        ``value`` of every process, block p from process p, each as large as the root's, or of
        ``output_counts[p]`` elements. Elsewhere ``out`` is not used, and wait() returns None."""
        root = self._process(root, "root")
        source = self._single(value, None, "gather", True)
        if self.process != root:
            return self._move(GATHER, value, None, source, None, source.count, root, tag)
        target = self._writable(out, "gather")
        self._same_type(source, target, "gather")
        self._fits(_elements(out), _elements(value), output_counts, "output of a gather")
        return self._move(GATHER, value, out, source, target, source.count, root, tag, None,
                          output_counts)

    def scatter(self, value, out, root=0, input_counts=None, tag=0):
        """Posts a scatter and returns its Work at once: every process's ``out`` gets its block of
        the root's ``value``. Blocks are as large as the root's ``out``, or ``input_counts[p]`` are
        their elements. Elsewhere ``value`` is not read and may be None."""
        root = self._process(root, "root")
        target = self._writable(out, "scatter")
        if self.process != root:
            return self._move(SCATTER, None, out, None, target, target.count, root, tag)
        source = self._single(value, None, "scatter", True)
        self._same_type(source, target, "scatter")
        self._fits(_elements(value), _elements(out), input_counts, "input of a scatter")
        return self._move(SCATTER, value, out, source, target, target.count, root, tag,
                          input_counts)

    def _process(self, process, name):
        return integer(process, name, 0, self.processes - 1)

    def _writable(self, out, what):
        target = self._single(out, None, what, True)
        if not target.writable:
            raise ValueError("the output array is read-only: pass a writable one")
        return target

    @staticmethod
    def _same_type(source, target, what):
        if source.kind != target.kind or source.on_gpu != target.on_gpu:
            raise ValueError("%s of %s into %s: both must have the same type, and be on the same "
                             "side" % (what, source.kind, target.kind))

    def _fits(self, whole, own, counts, what):
        if counts is None:
            if whole != own * self.processes:
                raise ValueError("the %s has %d elements: %d for each of %d processes are wanted"
                                 % (what, whole, own, self.processes))
        elif sum(counts) != whole or counts[self.process] != own:
            raise ValueError("the %s has %d elements, this process's block %d, and the counts are "
                             "%d and %d" % (what, whole, own, sum(counts), counts[self.process]))

    def _move(self, collective, value, out, source, target, count, root, tag,
              input_counts=None, output_counts=None, up_to=False, pair_stream=0):
        given = source if source is not None else target
        # What has no type of the C interface's goes as bytes.
        each = given.itemsize if given.name == "uint8" else 1
        scaled = [
            None if counts is None
            else _counts([c * each for c in counts], self.processes, name)
            for counts, name in ((input_counts, "input_counts"), (output_counts, "output_counts"))
        ]
        if collective == ALL_TO_ALL:
            count *= each

        return self._post(collective, value, out, source, target, count, tag, root=root,
                          counts=scaled, up_to=up_to, pair_stream=pair_stream)
