# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that torchrun starts: elastic.py FOLDER. In the first attempt the last rank
kills itself; the others write the error that they get to FOLDER/told-RANK and fail. The second
attempt goes on from the step that FOLDER/step names, and writes FOLDER/ended-RANK."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import gradwire.torch
from gradwire import GradwireError


def main():
    folder = sys.argv[1]
    # torchrun ends the others as soon as it sees one fail: they get to see why.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("gradwire")
    rank, world = dist.get_rank(), dist.get_world_size()
    where = os.path.join(folder, "step")
    begin = int(open(where).read()) if os.path.exists(where) else 0
    # TORCHELASTIC_RESTART_COUNT does not say it: an agent that starts its processes again because
    # the other agent does need not count that.
    first = begin == 0
    total = torch.zeros(50_000)
    for step in range(begin, 40):
        if first and step == 20:
            if rank == world - 1:
                time.sleep(0.5)
                os.kill(os.getpid(), signal.SIGKILL)
            if rank == 0:
                with open(where, "w") as file:
                    file.write(str(step))
        part = torch.full((50_000,), float(step + rank))
        try:
            dist.all_reduce(part)
        except GradwireError as error:
            with open(os.path.join(folder, "told-%d" % rank), "w") as file:
                file.write(str(error))
            raise
        total += part
    right = sum(world * step + world * (world - 1) // 2 for step in range(begin, 40))
    assert bool((total == right).all())
    with open(os.path.join(folder, "ended-%d" % rank), "w") as file:
        file.write("%d processes from step %d" % (world, begin))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
