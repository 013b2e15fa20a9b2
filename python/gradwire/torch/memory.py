# SPDX-License-Identifier: BSD-3-Clause
"""Tensors in gradient memory, which the daemon reads and writes where they lie.

Memory that a tensor gives back, with its last view, is kept for the next of about its size: asking
the daemon takes a round trip, and it clears and maps hugepages.
"""
import collections
import ctypes
import os
import threading
import weakref

import torch

from .._native import GradwireError, Status
from .extension import extension

_SMALLEST = 64 << 10
_SLAB = 2 << 20
# What is lent to DDP's buckets stays with them, and ops on other tensors need some to be copied
# through: so much is left.
_SPARE_BYTES = 32 << 20

# For every so many places of a size that are lent, the next region has one place more.
_LENT_FOR_ONE_MORE = 4

# What tensors made by torch itself have, by its address: (pool, bytes, memory, offset). Of all
# pools: such a tensor may outlive its pool.
_lent = {}


def size_class(nbytes):
    """The next of eight sizes between two powers of two; from a slab on, whole hugepages."""
    nbytes = max(nbytes, _SMALLEST)
    step = max(1 << (nbytes.bit_length() - 1), _SMALLEST) // 8
    rounded = -(-nbytes // step) * step
    return rounded if rounded < _SLAB else -(-rounded // _SLAB) * _SLAB


class Pool:
    """Any thread. ``tensor()`` is None if the daemon has no memory left for it."""

    def __init__(self, client):
        self._client = client
        self._pid = os.getpid()
        self.extension = extension()  # what is there of it is said here, with the first group
        self._free = collections.defaultdict(list)  # by size: (memory, offset)
        self._used = collections.Counter()  # by the memory's address: its places that tensors have
        self._lock = threading.RLock()  # a tensor may be freed within a call here

    def tensor(self, dtype, count):
        """[count] of ``dtype``, not cleared; aligned to 64 bytes and more."""
        itemsize = torch.empty(0, dtype=dtype, device="cpu").element_size()
        nbytes = size_class(count * itemsize)
        place = self._place(nbytes)
        if place is None:
            return None
        memory, offset = place
        # The buffer is what the tensor's storage keeps; its end gives the place back.
        buffer = (ctypes.c_char * nbytes).from_address(memory.address + offset)
        weakref.finalize(buffer, self._give_back, nbytes, memory, offset).atexit = False
        if count == 0:
            return torch.empty(0, dtype=dtype, device="cpu")
        return torch.frombuffer(buffer, dtype=dtype, count=count)

    def lend(self, nbytes):
        """The address of so many bytes, for a tensor that torch allocates; None if there are none
        left. They come back by collect()."""
        nbytes = size_class(nbytes)
        lent = sum(pool is self and size == nbytes for pool, size, _, _ in list(_lent.values()))
        # A daemon gives a client some dozens of regions, and a large model has hundreds of buckets.
        place = self._place(nbytes, 1 + lent // _LENT_FOR_ONE_MORE)
        if place is None:
            return None
        memory, offset = place
        address = memory.address + offset
        _lent[address] = (self, nbytes, memory, offset)
        return address

    def spare(self):
        """Memory that is not to be lent: whoever lends keeps it meanwhile. None: there is none."""
        with self._lock:
            memory = self._allocate(_SPARE_BYTES)
            return self._allocate(_SPARE_BYTES) if memory is None and self.shrink() else memory

    def lent(self):
        """(tensors, bytes) that have what was lent."""
        self.collect()
        sizes = [nbytes for pool, nbytes, _, _ in list(_lent.values()) if pool is self]
        return len(sizes), sum(sizes)

    def collect(self):
        """Takes in what torch's tensors, of whichever pool, have given back."""
        if self.extension is None:
            return
        for address in self.extension.returned() or ():
            pool, *place = _lent.pop(address)
            if pool._pid == os.getpid():  # after a fork others may hold its lock for ever
                pool._give_back(*place)

    def _place(self, nbytes, many=1):
        """(memory, offset) of a size class, in use from now on; None if there is none left.
        ``many``: how many are asked for at once if there are none."""
        self.collect()
        with self._lock:
            if (not self._free[nbytes] and not (many > 1 and self._more(nbytes, many))
                    and not self._more(nbytes)):
                return None
            memory, offset = self._free[nbytes].pop()
            self._used[memory.address] += 1
            return memory, offset

    def shrink(self):
        """Gives the daemon all memory that no tensor has: what the client copies other tensors
        through is of the same. @return whether there was any."""
        self.collect()
        with self._lock:
            unused = []
            for places in self._free.values():
                for place in list(places):
                    if not self._used[place[0].address]:
                        places.remove(place)
                        unused.append(place)
            for memory, _ in unused:
                self._used.pop(memory.address, None)
            return bool(unused)

    def _more(self, nbytes, many=1):
        memory = self._allocate(nbytes * many)
        if memory is None and self.shrink():
            memory = self._allocate(nbytes * many)
        if memory is None or memory.device is not None:
            return False  # a GPU's: these tensors are the host's
        for offset in range(0, memory.nbytes - nbytes + 1, nbytes):
            self._free[nbytes].append((memory, offset))
        return True

    def _allocate(self, nbytes):
        try:
            return self._client.allocate(max(nbytes, _SLAB))
        except GradwireError as error:
            if error.code != Status.RESOURCE_EXHAUSTED:
                raise
            return None

    def _give_back(self, nbytes, memory, offset):
        with self._lock:
            self._used[memory.address] -= 1
            self._free[nbytes].append((memory, offset))
