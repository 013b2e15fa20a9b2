# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job whose group gets other members by torch's own reconfigure API, of whichever
backend: reconfigured.py BACKEND. What it prints is the same for each backend that has the API."""
import datetime
import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

if sys.argv[1] == "gradwire":
    import gradwire.torch


def refused(call):
    try:
        call()
    except RuntimeError as error:
        print("refused: %s" % error, file=sys.stderr)
        return "refused"
    return "taken"


class Job:
    def __init__(self):
        dist.init_process_group(sys.argv[1], enable_reconfigure=True,
                                timeout=datetime.timedelta(seconds=60))
        self.me = dist.get_rank()  # for good
        self.world = dist.get_world_size()
        self.store = c10d._get_default_store()
        self.round = 0

    def say(self, text):
        print("process %d: %s" % (self.me, text), flush=True)

    def handles(self, members):
        """Of these processes, told through the store."""
        self.round += 1
        if self.me in members:
            self.store.set("%d/%d" % (self.round, self.me), dist._get_reconfigure_handle())
        return [self.store.get("%d/%d" % (self.round, other)).decode() for other in members]

    def together(self):
        """What they compute, and who they say that they are."""
        rank, size = dist.get_rank(), dist.get_world_size()
        total = torch.full((5000,), float(1 << self.me))
        dist.all_reduce(total)
        assert bool((total == total[0]).all())
        blocks = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
        dist.all_gather(blocks, torch.tensor([self.me]))
        names = [None] * size
        dist.all_gather_object(names, "process %d" % self.me)
        assert names == ["process %d" % block.item() for block in blocks]
        got = torch.tensor([-1])
        if size > 1:
            reached = dist.isend(torch.tensor([self.me]), (rank + 1) % size)
            dist.recv(got, (rank - 1) % size)
            reached.wait()
        self.say("rank %d of %d, sum %d, members %s, from %d, ranks %s" % (
            rank, size, total[0].item(), [block.item() for block in blocks], got.item(),
            dist.get_process_group_ranks(dist.group.WORLD) if sys.argv[1] == "gradwire" else
            list(range(size))))


def main():
    torch.set_num_threads(1)
    job = Job()
    job.say("supported: %s" % dist.group.WORLD.supports_reconfigure)
    job.say("before: %s" % refused(lambda: dist.all_reduce(torch.ones(1))))
    handles = job.handles(range(job.world))
    dist._reconfigure(1, handles[::-1]).wait()
    job.together()
    job.say("an old handle: %s" % refused(lambda: dist._reconfigure(2, handles)))
    if job.me < job.world - 1:
        job.say("without this process: %s" % refused(lambda: dist._reconfigure(3, ["x"])))
    # The last process leaves, and comes back: the others keep the new order.
    stay = list(range(job.world - 1))
    handles = job.handles(stay)
    if job.me in stay:
        work = dist._reconfigure(4, handles)
        assert work.is_completed()
        work.wait()
        job.together()
    handles = job.handles(range(job.world))
    dist._reconfigure(5, handles).wait()
    job.together()
    if sys.argv[1] == "gradwire":
        # Groups of such a group, though its processes have made different numbers of them.
        if job.me == 0:
            c10d._world.group_count += 3
        dist._reconfigure(6, set(job.handles(range(job.world)))).wait()
        job.together()
        part = dist.new_group([0, job.world - 1])
        if dist.get_rank() in (0, job.world - 1):
            total = torch.full((3,), float(dist.get_rank()))
            dist.all_reduce(total, group=part)
            assert total.tolist() == [job.world - 1.0] * 3
    dist.barrier()
    job.say("ended")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
