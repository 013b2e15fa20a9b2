# SPDX-License-Identifier: BSD-3-Clause
"""CPU time of a small call of torch.distributed in Python, from the call to its return, with C
functions that return at once in the place of gradwire's: what the backend itself costs. Beside it a
backend that does nothing, which is what torch costs. By hand, from the repository's root:

    GRADWIRE_LIBRARY=... GRADWIRE_FAKE_DAEMON=... PYTHONPATH=python:test/unit/python \\
        $GRADWIRE_TORCH_VENV/bin/python test/perf/torch_overhead.py"""
import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

import gradwire.torch
import gradwire.torch.channel
from gradwire import _native
from support import FakeDaemons

CALLS_EACH, ROUNDS = 100, 40


class AtOnce:
    """gradwire's functions; those that a call needs do nothing and say OK."""

    def __init__(self):
        for name, (_, arguments) in _native._FUNCTIONS.items():
            function = getattr(_native.lib, name)
            if name in ("gw_post", "gw_post_more", "gw_flush", "gw_wait", "gw_work_free"):
                # Of NULL it says 0, which is OK.
                function = ctypes.CDLL(_native.library_path()).gw_work_is_done
                function.restype, function.argtypes = ctypes.c_int, arguments
            setattr(self, name, function)


class Nothing(Work):
    def __init__(self):
        super().__init__()

    def wait(self, timeout=None):
        return True


def least_us(call):
    times = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(CALLS_EACH):
            call()
        times.append((time.thread_time() - began) / CALLS_EACH)
    return min(times) * 1e6


def send_recv(sent, received):
    ops = [dist.P2POp(dist.isend, sent, 1), dist.P2POp(dist.irecv, received, 1)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def main():
    torch.set_num_threads(1)
    with FakeDaemons(1) as daemons:
        os.environ["GRADWIRE_SOCKET"] = daemons.paths[0]
        dist.init_process_group("gradwire", store=dist.HashStore(), rank=0, world_size=1)
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        gradwire.torch.channel.lib = AtOnce()
        backend._size = 2  # one of two, whose ops are done at once
        for channel in (backend.channel, backend._transfers):
            channel.handle = ctypes.c_void_p(None)
        two, other, one = torch.ones(2), torch.zeros(2), torch.zeros(1)
        calls = {
            "all_reduce": lambda: dist.all_reduce(two),
            "all_gather": lambda: dist.all_gather_into_tensor(two, one),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(one, two),
            "all_to_all": lambda: dist.all_to_all_single(other, two),
            "barrier": dist.barrier,
            "send_recv": lambda: send_recv(two, other),
        }
        for name, call in calls.items():
            print("%-16s %5.1f us" % (name, least_us(call)))
        type(backend).allreduce = lambda self, tensors, opts: Nothing()
        print("%-16s %5.1f us" % ("nothing", least_us(calls["all_reduce"])))
        nothing = Nothing()
        for name in ("send", "recv"):
            setattr(type(backend), name, lambda self, tensors, peer, tag: nothing)
        type(backend).end_coalescing = lambda self: nothing
        print("%-16s %5.1f us" % ("nothing moved", least_us(calls["send_recv"])))
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
