#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The hook for DDP with tensors that pass for CUDA's, on the tests' own libcuda.so.1. What only a
GPU can show (that torch's streams and tensors are what this takes them for)
test/gpu/cuda_gradients.py shows there."""
import contextlib
import ctypes
import tempfile
import threading
import time
import unittest

import gradwire
from cuda_test import gpu_daemons, hold_streams
from gradwire import Status
from support import FakeDaemons

try:
    import torch
    import torch.distributed as dist
except ImportError:
    torch = None


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
        self.captures = False

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

    def is_capturing(self, device):
        return self.captures

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
        import gradwire.torch.capture
        import gradwire.torch.hook

        self.cuda = FakeCuda()
        for module in (gradwire.client, gradwire.torch.capture, gradwire.torch.hook):
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

    def check_capture(self):
        """A bucket on a stream that is captured is refused, and the next is the first."""
        bucket = torch.ones(1000)
        self.cuda.captures = True
        with self.assertRaisesRegex(gradwire.GradwireError, "bucket 0.*CUDA graph") as caught:
            self.state._reduce(0, bucket)
        self.assertEqual(caught.exception.code, Status.UNSUPPORTED)
        self.assertEqual(self.cuda.log, [])
        self.cuda.captures = False
        self.state._reduce(0, bucket).wait()
        self.assertEqual(self.state.stats()["ops"], 1)


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

    def test_residuals_make_room_for_what_the_library_copies(self):
        from gradwire.torch.feedback import Feedback

        self.state._feedback = feedback = Feedback(self.state.client, "int8", True)
        feedback.join(self.state.group)
        feedback._why_not = None  # one rank is enough to ask for memory
        self.daemons.tell("memory 64")
        buckets = [torch.ones(2 << 20) for _ in range(4)]  # 8 MiB each, 16 of residuals
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in buckets]
        for _ in range(2):
            hold_streams(True)
            futures = [self.state._reduce(index, bucket, [parameters[index]])
                       for index, bucket in enumerate(buckets)]
            hold_streams(False)
            for future in futures:
                future.wait()
        self.assertEqual(self.state.stats()["ops"], 8)
        # The third op found no memory to be copied through, and gave up its own residuals. There
        # was none left for the fourth's.
        self.assertEqual([(known.memory is not None, known.given_up) for known in feedback._all()],
                         [(True, False), (True, False), (False, True), (False, False)])

    def test_a_bucket_on_a_stream_that_is_captured_is_refused(self):
        self.check_capture()


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
        # The hook's thread is one for the device from its first copy on, a callbacks' thread from
        # its future on.
        hooks = [entry for entry in self.cuda.entered if entry[0] == "gradwire"]
        self.assertEqual(hooks, [("gradwire", "fake")])
        self.assertLessEqual(set(self.cuda.entered) - set(hooks), {("gradwire callbacks", "fake")})
        stats = self.state.stats()
        self.assertEqual((stats["ops"], stats["copies"], stats["library_copies"]), (2, 4, 0))

    def test_an_error_comes_through_the_future(self):
        self.state.group.abort("loss is NaN")
        with self.assertRaisesRegex(RuntimeError, "loss is NaN"):
            self.state._reduce(0, torch.ones(10)).wait()

    def test_a_bucket_on_a_stream_that_is_captured_is_refused(self):
        self.check_capture()


if __name__ == "__main__":
    unittest.main()
