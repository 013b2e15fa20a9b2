# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that sums in a loop until something ends it: killed.py [STEP]. The last rank
kills itself at that step. Prints the error, and for how long the call that got it took."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import gradwire.torch
from gradwire import GradwireError


def main():
    dist.init_process_group("gradwire")
    rank, world = dist.get_rank(), dist.get_world_size()
    tensor = torch.ones(100_000)
    if rank == 0:
        print("begun", flush=True)
    for step in range(1_000_000):
        if len(sys.argv) > 1 and step == int(sys.argv[1]) and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        try:
            work = dist.all_reduce(tensor, async_op=True)
            work.get_future()
            work.wait()
        except GradwireError as error:
            print("rank %d after %.1f s: %s" % (rank, time.monotonic() - began, error), flush=True)
            break
    try:
        dist.all_reduce(tensor)
    except GradwireError as error:
        print("then: %s" % error, flush=True)
    else:
        raise AssertionError("a group that was lost went on")
    dist.destroy_process_group()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
