#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Gradient memory on a CUDA device, with the tests' own library in the place of libcuda.so.1: its
memory is the host's, its streams are held back and let go here. What only a GPU can show (that
torch's streams and tensors are what this takes them for) test/gpu/cuda_gradients.py shows there."""
import contextlib
import ctypes
import os
import tempfile
import threading
import time
import unittest
import weakref

import numpy

import gradwire
from gradwire import Status
from support import FakeDaemons, form, open_clients

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None


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


class FakeStream:
    cuda_stream = 0  # the fake library's default stream

    def __init__(self, name, log):
        self.name = name
        self.log = log

    def wait_event(self, event):
        self.log.append((self.name, "waits for", event))

    def record_event(self):
        self.log.append((self.name, "marks"))
        return "mark of " + self.name


class FakeCuda:
    """In the place of gradwire._cuda.TorchCuda: CPU tensors pass for CUDA's, and what is asked of
    streams is written down."""

    def __init__(self):
        self.log = []
        self.entered = []
        self.current = threading.local()

    def holds(self, tensor):
        return True

    def index_of(self, tensor):
        return 0

    def view(self, view, device, dtype, count, offset):
        buffer = (ctypes.c_char * (view.__cuda_array_interface__["shape"][0])).from_address(
            view.__cuda_array_interface__["data"][0]
        )
        buffer.owner = view
        return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset)

    def current_stream(self, device):
        return FakeStream("caller", self.log)

    def new_stream(self, device):
        return FakeStream("side", self.log)

    @contextlib.contextmanager
    def using(self, stream):
        self.current.name = stream.name
        yield
        self.current.name = None

    def device_of(self, tensor):
        return "fake"

    def keep(self, tensor, stream):
        self.log.append(("memory kept for", stream.name))

    def enter(self, device):
        self.entered.append((threading.current_thread().name, device))

    def future(self, device):
        assert device == "fake"
        future = torch.futures.Future()
        set_result = future.set_result

        def noting(value):
            self.log.append(("result set on", getattr(self.current, "name", None)))
            set_result(value)

        future.set_result = noting
        return future


class HookCase(unittest.TestCase):
    make_daemons = None

    def setUp(self):
        import gradwire.client
        import gradwire.torch
        import gradwire.torch.hook

        self.cuda = FakeCuda()
        for module in (gradwire.client, gradwire.torch.hook):
            before = module.cuda
            module.cuda = self.cuda
            self.addCleanup(setattr, module, "cuda", before)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        dist.init_process_group(
            "gloo", init_method="file://" + folder.name + "/store", rank=0, world_size=1
        )
        self.addCleanup(dist.destroy_process_group)
        context = self.make_daemons()
        self.daemons = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        self.addCleanup(hold_streams, False)
        self.state = gradwire.torch.GradwireState(
            socket=self.daemons.paths[0], members=1, timeout=10.0
        )
        self.addCleanup(self.state.close)


@unittest.skipIf(torch is None, "torch is not installed")
class HookOnHostMemory(HookCase):
    make_daemons = FakeDaemons

    def test_a_bucket_is_handed_over_before_it_is_computed_and_copied_by_the_library(self):
        bucket = torch.arange(1000, dtype=torch.float32)
        hold_streams(True)
        future = self.state._reduce(0, bucket)
        time.sleep(0.1)
        self.assertFalse(future.done())
        bucket[5] = 55  # what the stream was still to write
        hold_streams(False)
        self.assertIs(future.wait(), bucket)
        self.assertEqual((float(bucket[5]), float(bucket[6])), (55, 6))
        self.state._reduce(0, bucket).wait()
        stats = self.state.stats()
        self.assertEqual((stats["ops"], stats["copies"], stats["library_copies"]), (2, 0, 4))


@unittest.skipIf(torch is None, "torch is not installed")
class Hook(HookCase):
    make_daemons = staticmethod(gpu_daemons)

    def test_a_bucket_is_handed_over_before_it_is_computed(self):
        bucket = torch.arange(1000, dtype=torch.float32)
        hold_streams(True)
        future = self.state._reduce(0, bucket)
        time.sleep(0.1)
        self.assertFalse(future.done())
        shared = self.state._buckets[0].memory.tensor(torch.float32, 1000)
        shared[5] = 55  # what the stream was still to write
        hold_streams(False)
        self.assertIs(future.wait(), bucket)
        self.assertEqual(float(bucket[5]), 55)
        self.assertEqual(float(bucket[6]), 6)
        self.assertEqual(
            self.cuda.log,
            [("memory kept for", "side"), ("side", "marks"), ("result set on", "side")],
        )

    def test_the_next_step_waits_until_the_last_sum_has_been_taken_away(self):
        bucket = torch.ones(1000)
        self.state._reduce(0, bucket).wait()
        del self.cuda.log[:]
        self.state._reduce(0, bucket).wait()
        self.assertEqual(self.cuda.log[0], ("caller", "waits for", "mark of side"))
        # The hook's thread is one for the device from its first copy on.
        self.assertEqual(self.cuda.entered, [("gradwire", "fake")])
        stats = self.state.stats()
        self.assertEqual((stats["ops"], stats["copies"], stats["library_copies"]), (2, 4, 0))

    def test_an_error_comes_through_the_future(self):
        self.state.group.abort("loss is NaN")
        with self.assertRaisesRegex(RuntimeError, "loss is NaN"):
            self.state._reduce(0, torch.ones(10)).wait()


if __name__ == "__main__":
    unittest.main()
