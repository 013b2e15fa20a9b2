#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""One process of the demo's training job: DDP with the gradients summed by gradwire or by Gloo.

The environment is torchrun's: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. With --backend gradwire
also GRADWIRE_SOCKET, the daemon of this process's host. The model's first weights, the data and
their order depend on --seed and RANK alone, so that runs of two backends can be compared."""

import argparse
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from model import CONTEXT, CharacterModel, load_text, next_character_loss

SAY_S = 10  # a progress line at least so often


class TimedHook:
    """Wraps a DDP communication hook and keeps, for each step, for how long at least one of its
    all-reduces was under way. Waiting for a slower process is part of it."""

    def __init__(self, hook):
        self.hook = hook
        self.lock = threading.Lock()  # futures are completed by threads of the backend
        self.under_way = 0
        self.since_s = 0.0
        self.step_s = 0.0
        self.steps_s = []

    def start(self, state, bucket):
        with self.lock:
            if self.under_way == 0:
                self.since_s = time.perf_counter()
            self.under_way += 1
        return self.hook(state, bucket).then(self.done)

    def done(self, future):
        with self.lock:
            self.under_way -= 1
            if self.under_way == 0:
                self.step_s += time.perf_counter() - self.since_s
        return future.value()

    def end_step(self):
        self.steps_s.append(self.step_s)
        self.step_s = 0.0


def gradient_hook(backend, members):
    """@return (hook, its state, what to call at the end)."""
    if backend == "gloo":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        return allreduce_hook, None, lambda: None
    import gradwire.torch
    state = gradwire.torch.GradwireState(members=members)
    return gradwire.torch.allreduce_hook, state, state.close


def train(arguments):
    rank = int(os.environ["RANK"])
    world = int(os.environ["WORLD_SIZE"])
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    text, characters = load_text(arguments.text)
    model = DistributedDataParallel(CharacterModel(characters), broadcast_buffers=False)
    hook, state, close = gradient_hook(arguments.backend, arguments.members)
    timed = TimedHook(hook)
    model.register_comm_hook(state, timed.start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, weight_decay=0.0)
    order = torch.Generator().manual_seed(arguments.seed * 1_000_003 + rank)
    parameters = sum(p.numel() for p in model.parameters())
    if rank == 0:
        print(f"{arguments.backend}: {world} processes, {parameters:,} parameters "
              f"({parameters * 4 / 1e6:.1f} MB of gradients a step), {len(text):,} characters",
              flush=True)

    losses = []
    said_s = 0.0
    for step in range(arguments.steps):
        starts = torch.randint(len(text) - CONTEXT, (arguments.batch,), generator=order)
        optimizer.zero_grad(set_to_none=True)
        loss = next_character_loss(model, text, starts.tolist())
        loss.backward()
        timed.end_step()
        optimizer.step()
        losses.append(loss.item())
        due = (step % arguments.say_every == 0 or step == arguments.steps - 1 or
               time.monotonic() - said_s > SAY_S)
        if rank == 0 and due:
            said_s = time.monotonic()
            print(f"{arguments.backend}: step {step + 1:3d} of {arguments.steps}, "
                  f"loss {losses[-1]:.4f}, all-reduce {timed.steps_s[-1] * 1e3:.1f} ms", flush=True)

    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    torch.save({"losses": losses, "allreduce_s": timed.steps_s, "weights": weights},
               os.path.join(arguments.out, f"{arguments.backend}-{rank}.pt"))
    dist.barrier()
    close()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", choices=["gradwire", "gloo"], required=True)
    parser.add_argument("--out", required=True, help="folder for the results")
    parser.add_argument("--text", default="/usr/share/common-licenses")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--members", type=int, default=1, help="processes on each daemon")
    parser.add_argument("--batch", type=int, default=8, help="windows of text in a step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--say-every", type=int, default=10, help="steps between progress lines")
    train(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
