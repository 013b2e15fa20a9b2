# SPDX-License-Identifier: BSD-3-Clause
"""One process of a job that trains, loses a process and takes one in: regrouped.py KILLED ALONE.
The process that begins as rank KILLED kills itself at a step. The others go on without it for ALONE
steps at least, until somebody comes. Each prints how it went, and a digest of its model."""
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch

KILL_AT, AFTER = 20, 20  # steps


def digest_of(model):
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


class Training:
    """DDP, and beside it what it must have come to: integers, whose sums are exact in any order."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(),
                                         torch.nn.Linear(64, 8))
        self.sums = torch.zeros(1000, dtype=torch.float64)
        self.step = 0
        self.sizes = []  # of the group, step by step

    def regrouped(self):
        """With new members: all have rank 0's state, and go on from its step."""
        state = [(self.step, self.sizes)]
        dist.broadcast_object_list(state, 0)
        self.step, self.sizes = state[0]
        dist.broadcast(self.sums, 0)
        # It gives all members rank 0's parameters.
        self.parallel = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def train(self):
        """One step; all of it, or none."""
        rank, size = dist.get_rank(), dist.get_world_size()
        generator = torch.Generator().manual_seed(1000 * self.step + rank)
        loss = (self.parallel(torch.randn(16, 32, generator=generator)) - 1).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        part = torch.full((1000,), float(self.step * 10 + rank), dtype=torch.float64)
        dist.all_reduce(part)
        self.optimizer.step()
        self.sums += part
        self.sizes.append(size)
        self.step += 1

    def check(self):
        right = sum(size * 10 * step + size * (size - 1) // 2
                    for step, size in enumerate(self.sizes))
        assert bool((self.sums == right).all()), (self.sums[0].item(), right)


def regroup(training, what, **how):
    began = time.monotonic()
    members = gradwire.torch.regroup(**how)
    took = time.monotonic() - began
    training.regrouped()
    print("%s: rank %d of %d, newcomers %s, after %.0f ms" % (
        what, members.rank, members.size, members.newcomers, took * 1000), flush=True)


def main():
    torch.set_num_threads(1)
    killed, alone = int(sys.argv[1]), int(sys.argv[2])
    newcomer = len(sys.argv) > 3
    dist.init_process_group("gradwire", enable_reconfigure=newcomer)
    me = dist.get_rank()
    training = Training(99 if newcomer else 1)
    if newcomer:
        regroup(training, "taken in")
    else:
        training.regrouped()
    alone_until, end = None, training.step + AFTER if newcomer else None
    while end is None or training.step < end:
        try:
            if alone_until is None and training.step == KILL_AT and me == killed and not newcomer:
                os.kill(os.getpid(), signal.SIGKILL)
            training.train()
            # All hear at the same step that somebody waits.
            waits = alone_until is not None and training.step >= alone_until and end is None
            some = torch.tensor([waits and gradwire.torch.waiting() > 0])
            dist.broadcast(some, 0)
            if some:
                regroup(training, "took in")
                end = training.step + AFTER
        except RuntimeError:  # DDP's has the text of ours alone
            error = gradwire.torch.group_error()
            if error is None:
                raise
            print("told: %s" % error, flush=True)
            regroup(training, "went on")
            alone_until = training.step + alone
    training.check()
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest_of(training.model))
    assert len(set(digests)) == 1, digests
    print("sizes %s" % sorted(set(training.sizes)), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    print("ended with %d" % len(digests), flush=True)


if __name__ == "__main__":
    main()
