# SPDX-License-Identifier: BSD-3-Clause
"""What torch_backend.py uses of the device that its tensors are on: streams, one that is late, and
a bound for each step. On the CPU, where the program itself is tried, streams do nothing."""
import contextlib
import ctypes
import faulthandler
import threading
import time

import torch

import gradwire.torch

# No gate stays shut longer: what hangs because of it then ends, and the test fails.
GATE_S = 20
STREAM_WAIT_VALUE_EQ = 1
# Where CUDA cannot wait for a word: a kernel that spins, for about a second.
SPIN_CYCLES = 2_000_000_000


class CpuDevice:
    """Streams that are never late."""

    is_gpu = False

    def __init__(self):
        self.device = torch.device("cpu")

    def name(self):
        return "CPU"

    def synchronize(self):
        pass

    def stream(self):
        return None

    def using(self, stream):
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def not_held(self, stream):
        yield lambda: None

    held = not_held


class GpuDevice(CpuDevice):
    """A GPU that all processes share. A stream is held by CUDA, which waits for a word in pinned
    memory: it takes no part of the GPU meanwhile, and the test says when it goes on. What is held
    beside it must have run before: CUDA loads a kernel at its first launch, and may wait for
    streams then. CUDA_DEVICE_MAX_CONNECTIONS has to be more than the streams of the process, or
    those that share a queue of the GPU hold each other."""

    is_gpu = True

    def __init__(self):
        torch.cuda.set_device(0)
        self.device = torch.device("cuda:0")
        torch.zeros(1, device=self.device)  # the context
        self._wait_value = ctypes.CDLL("libcuda.so.1").cuStreamWaitValue32_v2
        self._wait_value.argtypes = (
            ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint
        )

    def name(self):
        return torch.cuda.get_device_name(0)

    def synchronize(self):
        torch.cuda.synchronize()

    def stream(self):
        return torch.cuda.Stream()

    def using(self, stream):
        return torch.cuda.stream(stream)

    @contextlib.contextmanager
    def held(self, stream):
        """``stream`` does nothing of what it is given until the function that this gives, or the
        block, lets it go on."""
        word = torch.zeros(1, dtype=torch.int32, device="cpu", pin_memory=True)
        timely = []

        def release():
            timely.append(True)
            word[0] = 1

        def late():
            word[0] = 1

        guard = threading.Timer(GATE_S, late)
        guard.daemon = True
        status = self._wait_value(stream.cuda_stream, word.data_ptr(), 1, STREAM_WAIT_VALUE_EQ)
        if status:
            print("cuStreamWaitValue32 returned %d: a kernel spins instead" % status, flush=True)
            with self.using(stream):
                torch.cuda._sleep(SPIN_CYCLES)
        guard.start()
        try:
            assert not stream.query(), "the stream is not held"
            yield release
        finally:
            shut = word[0].item() == 0 or timely
            release()
            guard.cancel()
            stream.synchronize()
        assert shut, "a call did not return while a stream was held for %d s" % GATE_S


def make(name):
    return GpuDevice() if name == "cuda" else CpuDevice()


class Steps:
    """Runs parts of a test: says which and how long it took, and ends the process with the stacks
    of its threads if one takes too long. ``took``: seconds of each."""

    def __init__(self, rank, bound_s):
        self.rank = rank
        self.bound_s = bound_s
        self.took = {}

    def run(self, name, part, *arguments):
        faulthandler.dump_traceback_later(self.bound_s, exit=True)
        self.say("%s ..." % name)
        began = time.monotonic()
        result = part(*arguments)
        self.took[name] = round(time.monotonic() - began, 3)
        self.say("%s: %.2f s" % (name, self.took[name]))
        faulthandler.cancel_dump_traceback_later()
        return result

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def counts(self):
        stats = gradwire.torch.stats()
        return {key: stats[key] for key in stats if key != "slower"}
