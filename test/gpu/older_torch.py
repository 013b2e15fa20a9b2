# SPDX-License-Identifier: BSD-3-Clause
"""The backend on a torch before 2.14, for tests alone: GPU hosts may have no other. The Backend of
such a torch cannot be derived from in Python. Its ProcessGroup can, so that takes the Backend's
place: torch.distributed's functions, DDP and FSDP2 then call the same methods of the backend, some
by older names. What this leaves out are torch's own ways around a Backend: groups with a backend
for each device, batch_isend_irecv() as one call, and shrinking."""
import importlib

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

OLDEST = (2, 8)


class Base(dist.ProcessGroup):
    """In the place of a Backend."""

    Options = c10d.Backend.Options
    group_name = ""  # torch's has no setter

    def __init__(self, rank, size):
        super().__init__(rank, size)

    def _get_backend(self, device):
        return self

    @property
    def _device_types(self):
        return [torch.device("cpu"), torch.device("cuda")]

    @property
    def bound_device_id(self):
        return None

    def _start_coalescing(self, device):
        self.start_coalescing()

    def _end_coalescing(self, device):
        return self.end_coalescing()

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts):
        return self.all_gather_single_coalesced(outputs, inputs, opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        return self.reduce_scatter_single_coalesced(outputs, inputs, opts)


def adapt():
    """Registers the backend. Returns whether it had to be adapted."""
    register = importlib.import_module("gradwire.torch.register")
    if register.supported():
        return False
    if register.version() < OLDEST:
        raise ImportError("torch %s: this needs %d.%d or later" % (torch.__version__, *OLDEST))
    if not hasattr(dist.ReduceOp, "factor"):
        # Of a premul_sum; older ones show it only to who pickles them.
        dist.ReduceOp.factor = property(lambda op: op.__getstate__()[1])
    real, register.OLDEST = c10d.Backend, OLDEST
    c10d.Backend = Base
    try:
        register.register()
    finally:
        c10d.Backend = real
    return True
