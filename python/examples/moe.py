#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts whose tokens travel by uneven all-to-alls, forward and back.

    torchrun --nproc-per-node 2 python/examples/moe.py                     # on gradwire
    torchrun --nproc-per-node 2 python/examples/moe.py --backend gloo      # beside it

Each process has experts of its own and a copy of the router, which DDP keeps equal. The router
sends each token to one expert, wherever that is; an expert may get none. The loss of each tenth
step is printed; it is the same, to the last digit, on both backends with two processes.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Exchange(torch.autograd.Function):
    """Sends rows [sum(sends), width] to the processes, `sends[r]` to rank r, and takes `takes[r]`
    from it: [sum(takes), width]. Gradients go the other way."""

    @staticmethod
    def forward(ctx, rows, sends, takes):
        ctx.splits = sends, takes
        out = rows.new_empty(sum(takes), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), takes, sends)
        return out

    @staticmethod
    def backward(ctx, gradient):
        sends, takes = ctx.splits
        out = gradient.new_empty(sum(sends), gradient.shape[1])
        dist.all_to_all_single(out, gradient.contiguous(), sends, takes)
        return out, None, None


class Experts(nn.Module):
    """`local` experts here, `local` times the processes in all; rows come sorted by expert."""

    def __init__(self, width, local):
        super().__init__()
        self.local = local
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(local))

    def forward(self, rows, by_expert):
        """@param rows       [n, width], sorted by the expert that they are for
        @param by_expert  [experts], int64: how many rows here are for each expert of all"""
        world = dist.get_world_size()
        # How many rows each of this process's experts gets from each process.
        coming = torch.empty_like(by_expert)
        dist.all_to_all_single(coming, by_expert)
        sends = by_expert.view(world, self.local).sum(1).tolist()
        takes = coming.view(world, self.local).sum(1).tolist()
        arrived = Exchange.apply(rows, sends, takes)
        # Rows lie by process and then by expert; an expert's own are taken from all processes.
        pieces = arrived.split(coming.tolist())
        done = [expert(torch.cat(pieces[e::self.local])) for e, expert in enumerate(self.experts)]
        lengths = [coming[e::self.local].tolist() for e in range(self.local)]
        parts = [whole.split(length) for whole, length in zip(done, lengths)]
        back = torch.cat([parts[e][r] for r in range(world) for e in range(self.local)])
        return Exchange.apply(back, takes, sends)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--backend", default="gradwire")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=512, help="of each process, in a step")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--experts", type=int, default=4, help="of each process")
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)  # the router and the function to be learnt are the same everywhere
    router = DistributedDataParallel(nn.Linear(options.width, options.experts * world))
    truth = torch.randn(options.width, options.width)
    torch.manual_seed(1000 + rank)
    experts = Experts(options.width, options.experts)
    optimizer = torch.optim.Adam([*router.parameters(), *experts.parameters()], lr=1e-3)

    for step in range(1, options.steps + 1):
        tokens = torch.randn(options.tokens, options.width)
        scores = F.softmax(router(tokens), dim=1)
        weight, chosen = scores.max(dim=1)
        order = chosen.argsort(stable=True)
        by_expert = chosen.bincount(minlength=options.experts * world)
        sums = experts(tokens[order], by_expert)
        outputs = torch.empty_like(sums).index_copy(0, order, sums) * weight[:, None]
        loss = F.mse_loss(outputs, torch.tanh(tokens @ truth))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            unused = int((by_expert == 0).sum())
            if rank == 0:
                print(f"step {step:4}: loss {shown.item() / world:.6f}, "
                      f"{unused} experts without a token of rank 0's", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
