#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch_backend.py NAME [--device cpu|cuda] [--memory host|gpu] [--calls CALL...] [--json FILE]: a
process of a job on the backend "gradwire" whose tensors are on a GPU that all of them share. Every
collective beside Gloo's on copies on the CPU, the order of streams, training beside DDP over Gloo,
and then times of --calls. With --memory gpu the daemons' gradient memory is the GPU's, where sends
are refused. Rank 0 adds what came of it to FILE, under NAME. RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT and GRADWIRE_SOCKET are the environment's. Needs test/torch in PYTHONPATH."""
import argparse
import datetime
import inspect
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist

import older_torch

adapted = older_torch.adapt()

import backend
import torch_device
import torch_streams
import torch_times
import torch_training

# A step that takes longer hangs. The longest here take some seconds.
STEP_BOUND_S = 40
SIZES = (1, 3, 1001, 70_000, 4 << 20)
DATATYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64)
REDOPS = (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX)


class HostCopies:
    """torch.distributed, but calls of the group ``gloo`` are made with copies on the CPU, which are
    brought back."""

    def __init__(self, gloo):
        self.gloo = gloo

    def __getattr__(self, name):
        function = getattr(dist, name)
        if not inspect.isfunction(function) or name in ("isend", "irecv"):  # P2POp compares them
            return function

        def call(*arguments, **options):
            if options.get("group") is not self.gloo:
                return function(*arguments, **options)
            copies = []

            def on_host(value):
                if isinstance(value, (list, tuple)):
                    return [on_host(each) for each in value]
                if not isinstance(value, torch.Tensor) or value.is_cpu:
                    return value
                copies.append((value, value.cpu()))
                return copies[-1][1]

            options = {key: on_host(value) for key, value in options.items()}
            result = function(*[on_host(each) for each in arguments], **options)
            for there, here in copies:
                there.copy_(here)
            return result

        return call


class Job(backend.Job):
    def __init__(self, device):
        self.gpu = torch_device.make(device)
        self.device = self.gpu.device
        super().__init__()
        self.others = dist.new_group(timeout=datetime.timedelta(seconds=60))
        self.steps = torch_device.Steps(self.rank, STEP_BOUND_S)
        backend.dist = HostCopies(self.gloo)


def reduced_sizes(job):
    """All-reduces of awkward sizes, where they lie and in memory that has to be put in order."""
    for dtype in DATATYPES:
        for count in SIZES:
            tensor = job.inputs(dtype, count, count)
            for op in REDOPS if count < SIZES[-1] else REDOPS[:1]:
                job.same(lambda g, t, op=op: backend.dist.all_reduce(t, op, group=g), tensor)
            if dtype.is_floating_point:
                # Whole again after the division.
                average = tensor * job.world
                right = average.clone()
                backend.dist.all_reduce(right, group=job.gloo)
                dist.all_reduce(average, dist.ReduceOp.AVG)
                assert torch.equal(average, right / job.world), (dtype, count)
        for name, place in layouts(dtype).items():
            tensor = place(job.inputs(dtype, 6006))
            right = tensor.clone()
            backend.dist.all_reduce(right, group=job.gloo)
            whole = tensor._base if tensor._base is not None else tensor
            before = whole.clone(memory_format=torch.preserve_format)
            dist.all_reduce(tensor)
            assert torch.equal(tensor, right), (name, dtype)
            # What lies beside its elements is as it was.
            tensor.copy_(place_of(before, tensor))
            assert torch.equal(whole, before), (name, dtype)
            job.checks += 1


def place_of(whole, tensor):
    """The same part of ``whole``."""
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def layouts(dtype):
    """Functions that put [6006] elements into tensors of other layouts."""
    def offset(values):
        return torch.cat([values[:3], values, values[:5]])[3:-5]

    def strided(values):
        return torch.stack([values, values], 1)[:, 1]

    def transposed(values):
        return values.view(77, 78).t()

    def inner(values):
        room = torch.zeros(80, 80, dtype=dtype)
        room[1:78, 2:80] = values.view(77, 78)
        return room[1:78, 2:80]

    return {"offset": offset, "strided": strided, "transposed": transposed, "inner": inner}


def moved_sizes(job):
    """What moves, at awkward sizes and from and to memory that has to be put in order."""
    right, left = (job.rank + 1) % job.world, (job.rank - 1) % job.world
    for count in SIZES:
        mine = job.inputs(torch.float32, count, count)
        others = [job.inputs(torch.float32, count, count, rank) for rank in range(job.world)]
        got, whole = torch.zeros(count), torch.zeros(count * job.world)
        works = [dist.irecv(got, left), dist.isend(mine, right)]
        for work in works:
            work.wait()
        assert torch.equal(got, others[left]), count
        dist.all_gather_into_tensor(whole, mine)
        assert torch.equal(whole, torch.cat(others)), count
        exchanged = torch.zeros(count * job.world)
        dist.all_to_all_single(exchanged, whole + job.rank)
        assert torch.equal(exchanged, torch.cat([others[job.rank] + r for r in range(job.world)]))
        part = torch.zeros(count)
        dist.reduce_scatter_tensor(part, whole)
        assert torch.equal(part, mine * job.world), count
        got.copy_(mine)
        dist.broadcast(got, 1)
        assert torch.equal(got, others[1]), count
        job.checks += 5
    for dtype in DATATYPES:
        for name, place in layouts(dtype).items():
            given = [job.inputs(dtype, 6006, 5, rank) for rank in range(job.world)]
            mine, got = place(given[job.rank]), place(torch.zeros(6006, dtype=dtype))
            work = dist.irecv(got, left)
            dist.isend(mine, right).wait()
            work.wait()
            assert torch.equal(got, place(given[left])), (name, dtype)
            got = [place(torch.zeros(6006, dtype=dtype)) for _ in range(job.world)]
            dist.all_gather(got, mine)
            assert all(torch.equal(a, place(b)) for a, b in zip(got, given)), (name, dtype)
            dist.broadcast(mine, 1)
            assert torch.equal(mine, place(given[1])), (name, dtype)
            job.checks += 3


def refused(job):
    """What gradient memory of a GPU does not have is refused by name, and the group goes on."""
    tensor, other = torch.ones(5), (job.rank + 1) % job.world
    many = torch.ones(5 * job.world)
    parts = [torch.ones(5) for _ in range(job.world)]
    for words, call in (
        (["send", "GPU"], lambda: dist.send(tensor, other)),
        (["recv", "GPU"], lambda: dist.recv(tensor, other)),
        (["all_to_all", "GPU"], lambda: dist.all_to_all_single(many.clone(), many)),
        (["gather", "GPU"], lambda: dist.gather(tensor, parts if job.rank == 0 else None)),
        (["scatter", "GPU"], lambda: dist.scatter(tensor, parts if job.rank == 0 else None)),
    ):
        job.fails("UNSUPPORTED", words, call)
    dist.all_reduce(tensor)
    assert bool((tensor == job.world).all())


def correctness(memory):
    parts = [reduced_sizes, backend.reductions, backend.scatters, *torch_streams.PARTS]
    if memory == "gpu":
        return parts + [refused]
    return parts + [
        moved_sizes, backend.moves, backend.one_and_all, backend.all_to_all, backend.to_one,
        torch_streams.sends, backend.many, backend.groups, backend.not_waited_for,
        backend.others_go_on, backend.destroyed_with_a_queue,
    ]


def on_device(job, part):
    # What is made without a device is the GPU's.
    with job.device:
        part(job)


def run_all(job, arguments, result):
    """Adds to ``result`` as it goes, so that what was found before a failure is there."""
    plan = [(part.__name__, on_device, (part,)) for part in correctness(arguments.memory)]
    plan.append(("ddp", torch_training.ddp, ()))
    if arguments.calls:
        plan.append(("calls", torch_times.calls, (arguments.calls,)))
        plan.append(("ddp_step", torch_times.ddp_step, ()))
    plan.append(("fsdp2", torch_training.fsdp2, ()))
    for name, part, more in plan:
        result["failed"] = name
        found = job.steps.run(name, part, job, *more)
        if found is not None:
            result[name] = found
        result.update(comparisons=job.checks, counts=job.steps.counts(), seconds=job.steps.took)
    result["failed"] = None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[0])
    parser.add_argument("name")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--memory", choices=("host", "gpu"), default="host")
    parser.add_argument("--calls", nargs="+", choices=torch_times.CALLS, help="those to time")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    job = Job(arguments.device)
    job.steps.say("torch %s%s, Python %s, %s" % (
        torch.__version__, ", adapted" if adapted else "", sys.version.split()[0], job.gpu.name()))
    result = {"torch": torch.__version__, "adapted": adapted, "device": job.gpu.name(),
              "processes": job.world}
    failed = False
    try:
        run_all(job, arguments, result)
    except Exception:
        failed = True
        traceback.print_exc()
    if job.rank == 0 and arguments.json:
        add_to(arguments.json, arguments.name, result)
    if failed:
        # The others see its end; to leave the group might take as long as they do.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    job.steps.say("%d processes, %d comparisons; %s" % (job.world, job.checks, result["counts"]))
    dist.barrier(group=job.gloo)
    dist.destroy_process_group()


def add_to(path, name, result):
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    found[name] = result
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
