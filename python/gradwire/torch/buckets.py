# SPDX-License-Identifier: BSD-3-Clause
"""DDP's buckets in gradient memory, by the C++ extension: an all-reduce of them copies nothing.

DDP allocates its buckets in C++ as any tensor is allocated: when it is made, and once more after
the first step. Meanwhile, in that thread, torch's allocator for tensors on the CPU asks us.
"""
import contextlib
import functools
import os
import threading
import weakref

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .._native import GradwireError
from .engine import Engine
from .extension import extension

# Smaller tensors are copied faster than they are asked for; DDP has a few besides its buckets.
LEAST_BYTES = 64 << 10

_here = threading.local()
# Reducers of DDP whose buckets lie there.
_reducers = weakref.WeakSet()


@contextlib.contextmanager
def gradient_buckets():
    """Within it, what this thread allocates for tensors on the CPU, from 64 KiB on, is gradient
    memory: ops on such tensors copy nothing. If the daemon has none left it is torch's memory, as
    it is without the C++ extension and without a process group. DDP's buckets are made so by
    themselves. The memory goes back with its last tensor, which may outlive the group."""
    engine, module = Engine.current(), extension()
    if (module is None or engine is None or engine.pid != os.getpid() or engine.pool is None
            or getattr(_here, "lends", False)):
        yield
        return
    spare = _unless_ended(engine.pool.spare)
    module.begin(functools.partial(_lend, engine, spare is not None), LEAST_BYTES)
    _here.lends = True
    try:
        yield
    finally:
        _here.lends = False
        module.end()
        del spare


def _unless_ended(function, *arguments):
    try:
        return function(*arguments)
    except GradwireError:
        return None  # the client has ended meanwhile


def _lend(engine, has_more, nbytes):
    """For the extension: an address of so many bytes, None if there are none. ``has_more``: some
    are left for others."""
    address = _unless_ended(engine.pool.lend, nbytes) if has_more else None
    if address is None:
        engine.slower_way("the daemon has no gradient memory left for a bucket of DDP: it lies in "
                          "torch's memory, and is copied")
    return address


def _is_ours(group, device):
    """Whether buckets on this device are all-reduced by gradwire, on the CPU."""
    try:
        return device.type == "cpu" and group._get_backend(device).name() == "gradwire"
    except RuntimeError:
        return False  # the group has no backend for tensors there


def mend_ddp():
    """From now on DDP makes its buckets so, on groups of gradwire's."""
    plain_init = DistributedDataParallel._ddp_init_helper
    if getattr(plain_init, "by_gradwire", False):
        return
    plain_rebuild = dist.Reducer._rebuild_buckets

    @functools.wraps(plain_init)
    def _ddp_init_helper(self, *arguments, **named):
        if not _is_ours(self.process_group, self.device):
            return plain_init(self, *arguments, **named)
        with gradient_buckets():
            result = plain_init(self, *arguments, **named)
        _reducers.add(self.reducer)
        return result

    @functools.wraps(plain_rebuild)
    def _rebuild_buckets(self):
        if self not in _reducers:
            return plain_rebuild(self)
        with gradient_buckets():
            return plain_rebuild(self)

    _ddp_init_helper.by_gradwire = True
    DistributedDataParallel._ddp_init_helper = _ddp_init_helper
    dist.Reducer._rebuild_buckets = _rebuild_buckets
