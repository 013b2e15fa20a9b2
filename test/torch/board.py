# SPDX-License-Identifier: BSD-3-Clause
"""What the processes of one host tell each other about every call, for differ.py: much cheaper than
a collective, and it still works where those are what fails."""
import mmap
import os
import tempfile
import time

import torch.distributed as dist

_TURN_S = 0.00002


class Board:
    """A page of shared memory with a place for each process: how often it was here, and a byte of
    flags for each of two visits in turn, since who is late still reads the last one's."""

    def __init__(self, limit_s):
        self.me, self.world, self.limit_s = dist.get_rank(), dist.get_world_size(), limit_s
        name = [None]
        if self.me == 0:
            handle, name[0] = tempfile.mkstemp(prefix="differ-")
            os.write(handle, bytes(mmap.PAGESIZE))
            os.close(handle)
        dist.broadcast_object_list(name)
        with open(name[0], "r+b") as file:
            self.page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        dist.barrier()
        if self.me == 0:
            os.unlink(name[0])
        self.visit = 0

    def agree(self, *flags):
        """Which of up to eight flags are set at any process. Each waits for all."""
        self.visit = self.visit % 100 + 1
        odd = self.visit % 2
        self.page[4 * self.me + 1 + odd] = sum(bool(f) << n for n, f in enumerate(flags))
        self.page[4 * self.me] = self.visit
        until = time.monotonic() + self.limit_s
        found = 0
        for other in range(self.world):
            # One that is ahead has been here, and cannot get ahead by two.
            while self.page[4 * other] not in (self.visit, self.visit % 100 + 1):
                if time.monotonic() > until:
                    raise RuntimeError("process %d does not come" % other)
                time.sleep(_TURN_S)
            found |= self.page[4 * other + 1 + odd]
        return [bool(found >> n & 1) for n in range(len(flags))]
