#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Gradient memory on a CUDA device, with the tests' own library in the place of libcuda.so.1: its
memory is the host's, its streams are held back and let go here. The hook for DDP is in
cuda_hook_test.py."""
import contextlib
import ctypes
import os
import time
import unittest
import weakref

import numpy

import gradwire
from gradwire import Status
from support import FakeDaemons, form, open_clients


# The fake library takes all memory for the GPU's: torch's tensors on the CPU pass for CUDA's.
os.environ["GRADWIRE_FAKE_CUDA_EVERYWHERE"] = "1"


def hold_streams(hold):
    ctypes.CDLL("libcuda.so.1").fake_cuda_hold_streams(int(hold))


class GpuArray:
    """What cupy's arrays look like, in memory of the fake GPU or anywhere."""

    def __init__(self, address, values, keep=None):
        self.keep = keep
        self.values = numpy.frombuffer(
            (ctypes.c_char * values.nbytes).from_address(address), dtype=values.dtype
        )
        self.values[:] = values
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": (address, False),
            "strides": None,
            "stream": None,
        }

    @classmethod
    def inside(cls, memory, values):
        return cls(memory.address, values, memory)

    @classmethod
    def outside(cls, values):
        copy = values.copy()
        return cls(copy.ctypes.data, values, copy)


@contextlib.contextmanager
def gpu_daemons(count=1):
    with FakeDaemons(count) as daemons:
        daemons.tell("gpu")
        try:
            yield daemons
        finally:
            hold_streams(False)


class Memory(unittest.TestCase):
    def test_it_says_where_it_is_and_has_no_numpy_arrays(self):
        with gpu_daemons() as daemons, gradwire.Client(daemons.paths[0]) as client:
            memory = client.allocate(1000)
            self.assertEqual(memory.device, 0)
            self.assertEqual(client.memory_device(), 0)
            with self.assertRaises(gradwire.GradwireError) as caught:
                memory.array("float32")
            self.assertEqual(caught.exception.code, Status.UNSUPPORTED)
            view = memory.cuda_array()
            face = view.__cuda_array_interface__
            self.assertEqual(face["data"], (memory.address, False))
            self.assertEqual(face["shape"], (2 << 20,))
            with self.assertRaises(gradwire.GradwireError) as caught:
                memory.free()
            self.assertEqual(caught.exception.code, Status.BUSY)
            del view
            memory.free()

    def test_memory_of_the_host_is_none_of_a_gpus(self):
        with FakeDaemons() as daemons, gradwire.Client(daemons.paths[0]) as client:
            memory = client.allocate(1000)
            self.assertIsNone(memory.device)
            self.assertIsNone(client.memory_device())
            with self.assertRaises(gradwire.GradwireError):
                memory.cuda_array()


class Arrays(unittest.TestCase):
    def setUp(self):
        context = gpu_daemons(2)
        self.daemons = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.clients = open_clients(self.daemons)
        self.groups = form(self.clients)
        self.addCleanup(lambda: [client.close() for client in self.clients])

    def test_arrays_in_the_groups_memory_are_not_copied_and_wait_for_their_stream(self):
        values = numpy.arange(1000, dtype="float32")
        memories = [client.allocate(4000) for client in self.clients]
        arrays = [GpuArray.inside(memory, values) for memory in memories]
        hold_streams(True)
        works = [group.all_reduce(array) for group, array in zip(self.groups, arrays)]
        time.sleep(0.1)
        self.assertFalse(any(work.is_done() for work in works))
        arrays[0].values[7] = 100  # what the stream was still to write
        hold_streams(False)
        for work, array in zip(works, arrays):
            self.assertIs(work.wait(5), array)
            self.assertEqual(array.values[8], 16)
            self.assertEqual(array.values[7], 107)
        self.assertEqual(self.clients[0].counters()["copies"], 0)

    def test_arrays_elsewhere_are_copied_each_way(self):
        values = numpy.arange(100_000, dtype="int32")
        arrays = [GpuArray.outside(values) for _ in self.clients]
        works = [group.all_reduce(array) for group, array in zip(self.groups, arrays)]
        for work, array in zip(works, arrays):
            work.wait(5)
            numpy.testing.assert_array_equal(array.values, 2 * values)
        self.assertEqual(self.clients[0].counters()["copies"], 2)

    def test_numpy_arrays_go_through_the_gpus_memory(self):
        arrays = [numpy.full(5000, 3.0) for _ in self.clients]
        works = [group.all_reduce(array) for group, array in zip(self.groups, arrays)]
        for work, array in zip(works, arrays):
            work.wait(5)
            self.assertEqual(set(array), {6.0})

    def test_what_cannot_be_is_refused(self):
        array = GpuArray.outside(numpy.zeros(10, "float32"))
        with self.assertRaisesRegex(ValueError, "put both on the same side"):
            self.groups[0].all_reduce(array, out=numpy.zeros(10, "float32"))
        array.__cuda_array_interface__["strides"] = (8,)
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            self.groups[0].all_reduce(array)
        array.__cuda_array_interface__.update(strides=None, data=(1234, True))
        with self.assertRaisesRegex(ValueError, "read-only"):
            self.groups[0].all_reduce(array)


class HostMemory(unittest.TestCase):
    """Arrays on a GPU, gradient memory of the host: copied both ways, in their streams' order."""

    def setUp(self):
        context = FakeDaemons(2)
        self.daemons = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.addCleanup(hold_streams, False)
        self.clients = open_clients(self.daemons)
        self.groups = form(self.clients)
        self.addCleanup(lambda: [client.close() for client in self.clients])

    def all_end(self, works):
        """Each client moves on its own ops alone."""
        deadline = time.monotonic() + 10
        while not all([work.is_done() for work in works]):
            self.assertLess(time.monotonic(), deadline)

    def test_an_all_reduce_follows_its_stream(self):
        arrays = [GpuArray.outside(numpy.full(1000, 2.0, "float32")) for _ in self.groups]
        hold_streams(True)
        works = [group.all_reduce(array) for group, array in zip(self.groups, arrays)]
        time.sleep(0.05)
        self.assertFalse(any([work.is_done() for work in works]))
        arrays[1].values[5] = 9  # what the stream was still to write
        hold_streams(False)
        self.all_end(works)
        self.assertEqual((arrays[0].values[5], arrays[0].values[6]), (11, 4))
        self.assertEqual(self.clients[0].counters()["copies"], 2)

    def test_an_array_that_nobody_holds_stays_until_it_was_read(self):
        array, other = [GpuArray.outside(numpy.full(1000, 2.0, "float32")) for _ in self.groups]
        gone = weakref.ref(array)
        hold_streams(True)
        self.groups[0].all_reduce(array)
        del array
        self.assertIsNotNone(gone())
        hold_streams(False)
        works = [self.groups[1].all_reduce(other)]
        for group in self.groups:
            works.append(group.barrier())
        self.all_end(works)
        self.assertEqual(other.values[5], 4)
        self.all_end([group.barrier() for group in self.groups])
        self.assertIsNone(gone())

    def test_every_collective(self):
        def pair(*values):
            return [GpuArray.outside(numpy.array(v, "float32")) for v in values]

        def run(post):
            hold_streams(True)
            works = [post(group, place) for place, group in enumerate(self.groups)]
            hold_streams(False)
            self.all_end(works)

        given, out = pair([1, 2], [3, 4]), pair([0] * 4, [0] * 4)
        run(lambda group, at: group.all_gather(given[at], out[at]))
        self.assertEqual(out[1].values.tolist(), [1, 2, 3, 4])
        given, out = pair([1, 2], [3, 4]), pair([0], [0])
        run(lambda group, at: group.reduce_scatter(given[at], out[at]))
        self.assertEqual([o.values.tolist() for o in out], [[4], [6]])
        given = pair([1, 2], [3, 4])
        run(lambda group, at: group.broadcast(given[at], 1))
        self.assertEqual(given[0].values.tolist(), [3, 4])
        given = pair([1, 2], [3, 4])
        run(lambda group, at: group.reduce(given[at], 0, "max"))
        self.assertEqual(given[0].values.tolist(), [3, 4])
        given, out = pair([1, 2], [3, 4]), pair([0, 0])[0]
        run(lambda group, at: group.send(given[0], 1) if at == 0 else group.recv(out, 0))
        self.assertEqual(out.values.tolist(), [1, 2])
        given = pair([1, 2], [3, 4])
        run(lambda group, at: group.all_reduce(given[at], "premul_sum", factor=2.0 + at))
        self.assertEqual(given[1].values.tolist(), [11, 16])


if __name__ == "__main__":
    unittest.main()
