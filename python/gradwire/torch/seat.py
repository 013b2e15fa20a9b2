# SPDX-License-Identifier: BSD-3-Clause
"""A backend's rank and size, as torch keeps them in C++: a process group tells these, and lets no
Python code change them. Torch's own backends write them when their members change; this does the
same. Where they lie is found by a backend that is made with two numbers of our own. If they are not
found there, nothing is written.
"""
import ctypes

import torch
from torch._C._distributed_c10d import Backend, HashStore, ProcessGroup

# Numbers that stand in no object by chance, and how far from its begin they are looked for: an
# object has a string and more behind them.
_RANK, _SIZE = 0x2B1D5EED, 0x51A7C0DE
_LOOK_BYTES = 64
_TYPE = ProcessGroup.BackendType.CUSTOM


class _Pair(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_int), ("size", ctypes.c_int)]


def _address(backend):
    """Where the C++ half of a backend lies. A process group tells it of the backends that it has,
    and is bound to a device, or to none, as they are."""
    bound = backend.bound_device_id
    holder = ProcessGroup(HashStore(), 0, 1)
    holder._register_backend(torch.device("cpu"), _TYPE, backend)
    address = holder._backend_id(_TYPE)
    backend.bound_device_id = bound
    return address


def _find():
    probe = type("Probe", (Backend,), {})(_RANK, _SIZE)
    address = _address(probe)
    for offset in range(0, _LOOK_BYTES, ctypes.sizeof(ctypes.c_int)):
        pair = _Pair.from_address(address + offset)
        if (pair.rank, pair.size) == (_RANK, _SIZE):
            pair.rank, pair.size = 1, 2
            if (Backend.rank(probe), Backend.size(probe)) == (1, 2):
                return offset
            pair.rank, pair.size = _RANK, _SIZE
    return None


_found = []


def _offset():
    """None: it is not known."""
    if not _found:
        try:
            _found.append(_find())
        except (AttributeError, TypeError):  # a torch that does not tell where a backend lies
            _found.append(None)
    return _found[0]


def can_move():
    """Whether this torch's backends can be given another rank and size."""
    return _offset() is not None


def move(backend, rank, size):
    """From now on process groups say that ``backend`` is ``rank`` of ``size``."""
    pair = _Pair.from_address(_address(backend) + _offset())
    if (pair.rank, pair.size) != (Backend.rank(backend), Backend.size(backend)):
        raise RuntimeError("torch keeps this backend's rank and size elsewhere than others'")
    pair.rank, pair.size = rank, size
