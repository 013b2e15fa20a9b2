#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""One process of the demo's training job: DDP with the gradients summed by gradwire or by Gloo.

The environment is torchrun's: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. With --backend gradwire
also GRADWIRE_SOCKET, the daemon of this process's host. The model's first weights, the data and
their order depend on --seed and RANK alone, so that runs of two backends can be compared.

With --layout ddp the process group is gradwire's or Gloo's, and DDP takes it as it is; with
--layout fsdp FSDP2 cuts the model over all processes. Both need torch 2.14 or later for gradwire.

With --shrink, and a --store that no process of the job serves, the job goes on when a rank is lost:
the processes that are left form a smaller group, go back to the parameters that they kept, and
repeat the step."""

import argparse
import copy
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from model import CONTEXT, MODELS, load_text, next_character_loss

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

    def forget_from(self, step):
        """The job goes back to `step` after a failure."""
        with self.lock:
            self.under_way = 0
            self.step_s = 0.0
            del self.steps_s[step:]

    def end_step(self):
        self.steps_s.append(self.step_s)
        self.step_s = 0.0


def gradient_hook(backend, layout, members, wire):
    """@return (hook, its state, what to call at the end)."""
    if backend == "gloo" or layout != "hook":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        return allreduce_hook, None, lambda: None
    import gradwire.torch
    state = gradwire.torch.GradwireState(members=members, format=wire)
    return gradwire.torch.allreduce_hook, state, state.close


def sharded(module, backend):
    """The model cut over all processes, layer by layer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for child in module.children():
        for part in child if isinstance(child, torch.nn.ModuleList) else [child]:
            fully_shard(part, mesh=mesh)
    model = fully_shard(module, mesh=mesh)
    if backend == "gradwire":
        for part in model.modules():
            if isinstance(part, FSDPModule):
                # In gradient memory, so that nothing is copied there.
                part.set_allocate_memory_from_process_group_for_comm(True)
    return model


def whole(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


class Saved:
    """Parameters, optimizer and place in the data as they were before a step; of the last two
    steps, since processes differ by one at most in how far they are when a rank is lost."""

    def __init__(self, module, optimizer, order):
        self.parts = (module, optimizer)
        self.order = order
        self.steps = {}

    def keep(self, step):
        self.steps[step] = ([copy.deepcopy(part.state_dict()) for part in self.parts],
                            self.order.get_state())
        self.steps.pop(step - 2, None)

    def restore(self, step):
        states, order = self.steps[step]
        for part, state in zip(self.parts, states):
            part.load_state_dict(state)
        self.order.set_state(order)


def train(arguments):
    rank = int(os.environ["RANK"])
    world = int(os.environ["WORLD_SIZE"])
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    group = "gloo"
    if arguments.backend == "gradwire" and arguments.layout != "hook":
        import gradwire.torch  # registers it, if the package is not installed
        group = "gradwire"
    if arguments.store:
        store = dist.FileStore(arguments.store, world)
        dist.init_process_group(group, store=store, rank=rank, world_size=world)
    else:
        dist.init_process_group(group)
        store = dist.distributed_c10d._get_default_store()
    text, characters = load_text(arguments.text)
    make_model, make_optimizer, rate = MODELS[arguments.model]
    module = make_model(characters)
    hook, state, close = gradient_hook(arguments.backend, arguments.layout, arguments.members,
                                       arguments.format)
    name = arguments.backend + (f"-{arguments.format}" if arguments.format else "")
    timed = TimedHook(hook)

    def distributed():
        if arguments.layout == "fsdp":
            return sharded(module, arguments.backend)
        model = DistributedDataParallel(module, broadcast_buffers=False)
        model.register_comm_hook(state, timed.start)
        return model

    parameters = sum(p.numel() for p in module.parameters())
    model = distributed()
    optimizer = make_optimizer(module.parameters(), lr=arguments.lr or rate)
    order = torch.Generator().manual_seed(arguments.seed * 1_000_003 + rank)
    saved = Saved(module, optimizer, order)
    if rank == 0:
        print(f"{name}: {world} processes, {parameters:,} parameters "
              f"({parameters * 4 / 1e6:.1f} MB of gradients a step), {len(text):,} characters",
              flush=True)

    losses = []
    steps_s = []
    said_s = 0.0
    speaks = rank == 0
    step = 0
    while step < arguments.steps:
        if arguments.shrink:
            saved.keep(step)
        step_began_s = time.perf_counter()
        starts = torch.randint(len(text) - CONTEXT, (arguments.batch,), generator=order)
        optimizer.zero_grad(set_to_none=True)
        loss = next_character_loss(model, text, starts.tolist())
        try:
            loss.backward()
        except RuntimeError as error:
            if not arguments.shrink:
                raise
            began_s = time.monotonic()
            left = state.shrink(progress=step)
            dist.destroy_process_group()
            dist.init_process_group("gloo", store=dist.PrefixStore(left.name, store),
                                    rank=left.process, world_size=left.world)
            saved.restore(left.progress)
            model = distributed()
            step = left.progress
            del losses[step:], steps_s[step:]
            timed.forget_from(step)
            speaks = left.process == 0
            if speaks:
                print(f"{arguments.backend}: lost in step {step + 1}: {str(error).splitlines()[0]}")
                print(f"{arguments.backend}: {left.world} of {world} go on from step {step + 1} "
                      f"after {time.monotonic() - began_s:.1f} s; they had completed ops "
                      f"{left.completed_ops}", flush=True)
            continue
        timed.end_step()
        optimizer.step()
        losses.append(loss.item())
        steps_s.append(time.perf_counter() - step_began_s)
        due = (step % arguments.say_every == 0 or step == arguments.steps - 1 or
               time.monotonic() - said_s > SAY_S)
        if speaks and due:
            said_s = time.monotonic()
            print(f"{name}: step {step + 1:3d} of {arguments.steps}, "
                  f"loss {losses[-1]:.4f}, {steps_s[-1] * 1e3:.0f} ms, of them "
                  f"{timed.steps_s[-1] * 1e3:.0f} in all-reduce", flush=True)
        step += 1

    weights = torch.cat([whole(p).detach().flatten() for p in module.parameters()])
    torch.save({"losses": losses, "allreduce_s": timed.steps_s, "steps_s": steps_s,
                "weights": weights, "world": dist.get_world_size(),
                "tokens": arguments.batch * CONTEXT, "gradient_bytes": parameters * 4},
               os.path.join(arguments.out, f"{name}-{rank}.pt"))
    for why, times in (state.stats()["fell_back"] if arguments.format else {}).items():
        print(f"{name}: process {rank}, {times} times {why}", flush=True)
    dist.barrier()
    close()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--backend", choices=["gradwire", "gloo"], required=True)
    parser.add_argument("--layout", choices=["hook", "ddp", "fsdp"], default="hook",
                        help="hook: DDP's gradients by gradwire's hook, or Gloo's")
    parser.add_argument("--format", choices=["bf16", "int8"],
                        help="in which gradients travel, with error feedback")
    parser.add_argument("--out", required=True, help="folder for the results")
    parser.add_argument("--text", default="/usr/share/common-licenses")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--members", type=int, default=1, help="processes on each daemon")
    parser.add_argument("--batch", type=int, default=8, help="windows of text in a step")
    parser.add_argument("--model", choices=list(MODELS), default="transformer")
    parser.add_argument("--lr", type=float, help="learning rate, in place of the model's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", help="file for the rendezvous, in place of MASTER_ADDR's")
    parser.add_argument("--shrink", action="store_true",
                        help="go on with the processes that are left when a rank is lost")
    parser.add_argument("--say-every", type=int, default=10, help="steps between progress lines")
    train(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
