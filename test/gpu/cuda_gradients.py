#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""cuda_gradients.py --rank R --meet FOLDER --json FILE SOCKET SOCKET: one of two ranks that
all-reduce tensors on a CUDA device, which both may share: through gradwire in the group's GPU
memory, through gradwire with a copy each way, and through torch's Gloo, the same tensors in the
same run. With --host the daemons' gradient memory is the host's, so there is no first way. Then DDP
with the hook beside DDP without it. Rank 0 writes what came of it. With --device cpu, which implies
--host, the program itself is tried without a GPU."""

import argparse
import json
import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_pattern import count_wrong, fill

import gradwire
from gradwire import rendezvous
from gradwire.torch import GradwireState, allreduce_hook

WAIT_S = 60


def idle(tensor):
    """Waits until the tensor's device has nothing to do."""
    if tensor.is_cuda:
        torch.cuda.synchronize()


def measure(reduce, tensor, rank, nranks, iterations):
    """Times of ``reduce(tensor)``, each from an idle GPU to an idle GPU."""
    fill(tensor, rank)
    reduce(tensor)
    wrong = count_wrong(tensor, range(nranks))
    times = []
    for i in range(iterations + 2):
        # What is summed again and again would leave the exact integers.
        tensor.zero_()
        idle(tensor)
        dist.barrier()
        begin = time.perf_counter()
        reduce(tensor)
        idle(tensor)
        if i >= 2:
            times.append(time.perf_counter() - begin)
    return {"p50_s": statistics.median(times), "min_s": min(times), "wrong": wrong}


def check_readiness(group, tensor, rank, nranks):
    """An op is posted while its stream is still busy, and sums what the stream computes later.
    @return (wrong elements, seconds of the post, seconds that the stream was busy)."""
    side = torch.cuda.Stream()
    source = torch.empty_like(tensor)
    fill(source, rank)
    a = torch.ones(4096, 4096, device=tensor.device)
    with torch.cuda.stream(side):
        a = a @ a * 1e-4  # the first one on a stream sets its libraries up
    tensor.zero_()
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.perf_counter()
    with torch.cuda.stream(side):
        for _ in range(60):
            a = a @ a * 1e-4
        tensor.copy_(source)
        work = group.all_reduce(tensor)
    posted = time.perf_counter() - begin
    side.synchronize()
    busy = time.perf_counter() - begin
    work.wait(WAIT_S)
    return count_wrong(tensor, range(nranks)), posted, busy


def train(model, hooked, rank, device, steps=4):
    """Parameters after a few steps."""
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
    if hooked is not None:
        model.register_comm_hook(hooked, allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator(device).manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        batch = torch.randn(64, 512, device=device, generator=generator)
        model(batch).square().mean().backward()
        optimizer.step()
    idle(batch)
    return [p.detach().clone() for p in model.parameters()]


def make_model(device):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)]
    return torch.nn.Sequential(*layers).to(device)


def compare_ddp(socket, rank, device):
    """The largest difference of a parameter between DDP with the hook and without, and whether
    every parameter has moved."""
    alone = train(make_model(device), None, rank, device)
    with GradwireState(socket=socket, members=1, timeout=WAIT_S, name="ddp") as state:
        hooked = train(make_model(device), state, rank, device)
        stats = state.stats()
    most = max(float((a - b).abs().max()) for a, b in zip(alone, hooked))
    moved = all(not torch.equal(a, b) for a, b in zip(hooked, make_model(device).parameters()))
    return {"largest_difference": most, "moved": moved, "ops": stats["ops"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs=2)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--meet", required=True, help="folder of torch's rendezvous")
    parser.add_argument("--json", required=True)
    parser.add_argument("--host", action="store_true", help="gradient memory is the host's")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--mib", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--iterations", type=int, default=7)
    arguments = parser.parse_args()
    rank, nranks = arguments.rank, len(arguments.sockets)
    arguments.host = arguments.host or arguments.device == "cpu"
    if arguments.device == "cuda":
        torch.cuda.set_device(0)
    store = dist.FileStore(arguments.meet + "/store", nranks)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=nranks, timeout=timedelta(seconds=WAIT_S)
    )
    rows = []
    with gradwire.Client(arguments.sockets[rank]) as client:
        group = rendezvous.form_group(
            client, rendezvous.TorchStore(store), rank, nranks, timeout=WAIT_S, prefix="bench"
        )
        for mib in arguments.mib:
            count = (mib << 20) // 4
            outside = torch.empty(count, device=arguments.device)
            memory = None if arguments.host else client.allocate(mib << 20)
            if memory is not None and memory.device is None:
                raise SystemExit("the daemon's gradient memory is not on the GPU")
            inside = outside if memory is None else memory.tensor(torch.float32, count)

            def through_gradwire(tensor):
                group.all_reduce(tensor).wait(WAIT_S)

            ways = [("gradwire, copied", through_gradwire, outside),
                    ("gloo", dist.all_reduce, outside)]
            if memory is not None:
                ways.insert(0, ("gradwire", through_gradwire, inside))
            row = {"mib": mib, "ways": [name for name, _, _ in ways]}
            for name, reduce, tensor in ways:
                row[name] = measure(reduce, tensor, rank, nranks, arguments.iterations)
            if inside.is_cuda:
                wrong, posted, busy = check_readiness(group, inside, rank, nranks)
                row["posted_early"] = {"wrong": wrong, "post_s": posted, "stream_busy_s": busy}
            rows.append(row)
            del inside, memory
        group.leave()
        group.close()
    ddp = compare_ddp(arguments.sockets[rank], rank, arguments.device)
    dist.barrier()

    problems = []
    for row in rows:
        wrong = sum(row[way]["wrong"] for way in row["ways"])
        early = row.get("posted_early", {"wrong": 0, "post_s": 0, "stream_busy_s": 0})
        if wrong or early["wrong"]:
            problems.append("%d MiB: wrong elements: %r" % (row["mib"], row))
        if early["post_s"] > early["stream_busy_s"] / 2:
            problems.append("%d MiB: the post waited for the stream: %r" % (row["mib"], early))
    if ddp["largest_difference"] > 1e-5 or not ddp["moved"] or ddp["ops"] == 0:
        problems.append("DDP with the hook is not DDP: %r" % ddp)
    if rank == 0:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "host": arguments.host, "all_reduce": rows,
                       "ddp": ddp}, file, indent=1)
        for row in rows:
            gloo_s = row["gloo"]["p50_s"]
            times = ", ".join("%s %.2f ms (Gloo takes %.1f times that)"
                              % (way, row[way]["p50_s"] * 1e3, gloo_s / row[way]["p50_s"])
                              for way in row["ways"] if way != "gloo")
            posted = "; posted in %.2f ms while the stream was busy for %.2f ms" % (
                row["posted_early"]["post_s"] * 1e3, row["posted_early"]["stream_busy_s"] * 1e3
            ) if "posted_early" in row else ""
            print("%4d MiB: %s%s" % (row["mib"], times, posted))
        print("DDP, %d ops: largest difference %g" % (ddp["ops"], ddp["largest_difference"]))
    for problem in problems:
        print("rank %d: %s" % (rank, problem))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
