# SPDX-License-Identifier: BSD-3-Clause
"""How long calls of torch.distributed take, and training steps, on gradwire and on Gloo.

    torch_figures.py measure BACKEND PARTS SECONDS SIZE...  one process of a job; rank 0 prints JSON
    torch_figures.py page ROUND...                          a page of such outputs, in Markdown

PARTS are of calls, many, steps, with commas. A SIZE is in bytes, of the larger buffer of the call,
as in nccl-tests. Of each call the median of its rank's times is taken; SECONDS bounds how long one
is repeated."""
import json
import os
import platform
import statistics
import sys
import time

CALLS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
# Calls of MANY_BYTES, which are all posted before the first is waited for.
MANY, MANY_BYTES, MANY_CALLS = 2000, 16, ("gather", "scatter", "send")
LAYERS, WIDTH = 16, 1024  # 64 MB of fp32
NAMES = {8: "8 B", 65536: "64 KB", 1 << 20: "1 MB", 64 << 20: "64 MB"}


def call_of(dist, name, larger, smaller):
    if name == "all_reduce":
        return lambda: dist.all_reduce(larger)
    if name == "all_gather":
        return lambda: dist.all_gather_into_tensor(larger, smaller)
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(smaller, larger)
    if name == "all_to_all":
        return lambda: dist.all_to_all_single(smaller, larger)
    return lambda: send_recv(dist, larger, smaller)


def send_recv(dist, sent, received):
    """To the next process, from the one before."""
    rank, world = dist.get_rank(), dist.get_world_size()
    ops = [dist.P2POp(dist.isend, sent, (rank + 1) % world),
           dist.P2POp(dist.irecv, received, (rank - 1) % world)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def median_us(call, seconds, dist):
    """The number of calls is the same on every rank: rank 0's, by how long the first ones take."""
    for _ in range(2):
        call()
    dist.barrier()
    began = time.perf_counter()
    for _ in range(3):
        call()
    each = (time.perf_counter() - began) / 3
    many = [max(5, min(2000, int(seconds / max(each, 1e-6))))]
    dist.broadcast_object_list(many, 0)
    times = []
    for _ in range(many[0]):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def calls(torch, dist, backend, seconds, sizes):
    world = dist.get_world_size()
    for name in CALLS:
        for size in sizes:
            count = max(size // 4 // world * world, world)
            for shared in (False, True) if backend == "gradwire" else (False,):
                def tensor(elements):
                    if not shared:
                        return torch.zeros(elements)
                    ours = dist.group.WORLD._get_backend(torch.device("cpu"))
                    made = ours.allocate_tensor(
                        elements, dtype=torch.float32, device=torch.device("cpu")
                    )
                    return made.zero_()

                larger = tensor(count)
                whole = name in ("all_to_all", "send_recv")
                smaller = tensor(count if whole else count // world)
                us = median_us(call_of(dist, name, larger, smaller), seconds, dist)
                yield "%s|%d|%s" % (name, size, "shared" if shared else "plain"), us


def many_of(torch, dist, name):
    """Posts MANY calls, from rank 0 or to it, and waits for all."""
    rank, world = dist.get_rank(), dist.get_world_size()
    each = torch.zeros(MANY_BYTES // 4)
    blocks = [torch.zeros(MANY_BYTES // 4) for _ in range(world)] if rank == 0 else None
    if name == "gather":
        def post():
            return dist.gather(each, blocks, 0, async_op=True)
    elif name == "scatter":
        def post():
            return dist.scatter(each, blocks, 0, async_op=True)
    else:
        def post():
            return dist.isend(each, 1) if rank == 0 else dist.irecv(each, 0)

    def call():
        if name == "send" and rank > 1:
            return
        for work in [post() for _ in range(MANY)]:
            work.wait()

    return call


def many(torch, dist):
    for name in MANY_CALLS:
        call, times = many_of(torch, dist, name), []
        for _ in range(5):
            dist.barrier()
            began = time.perf_counter()
            call()
            dist.barrier()
            times.append(time.perf_counter() - began)
        yield "many|%s|plain" % name, statistics.median(times) * 1e6


def steps(torch, dist, backend, seconds):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    for layout in ("ddp", "fsdp2"):
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            *(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        )
        if layout == "ddp":
            model = DistributedDataParallel(model)
        else:
            for layer in [*model, model]:
                fully_shard(layer)
                if backend == "gradwire":
                    layer.set_allocate_memory_from_process_group_for_comm(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        data = torch.randn(4, WIDTH)

        def step():
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()

        yield "step|%s|plain" % layout, median_us(step, 2 * seconds, dist)


def measure(backend, parts, seconds, sizes):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if backend == "gradwire":
        import gradwire.torch
    dist.init_process_group(backend)
    found = {}
    if "calls" in parts:
        found.update(calls(torch, dist, backend, seconds, sizes))
    if "many" in parts:
        found.update(many(torch, dist))
    if "steps" in parts:
        found.update(steps(torch, dist, backend, seconds))
    if dist.get_rank() == 0:
        made = {"backend": backend, "torch": torch.__version__, "world": dist.get_world_size(),
                "us": found}
        if backend == "gradwire":
            made["stats"] = gradwire.torch.stats()
        print(json.dumps(made))
    dist.barrier()
    dist.destroy_process_group()


def in_words(us):
    return "%.1f us" % us if us < 1000 else "%.2f ms" % (us / 1000)


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def page(paths):
    rounds = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rounds += [json.loads(line) for line in file if line.startswith('{"backend"')]
    times = {}
    for each in rounds:
        for key, us in each["us"].items():
            times.setdefault((each["backend"], key), []).append(us)

    def best(backend, key):
        found = times.get((backend, key))
        return None if not found else statistics.median(found)

    first = rounds[0]
    print("<!-- SPDX-License-Identifier: BSD-3-Clause -->")
    print("# torch.distributed on gradwire, beside Gloo\n")
    turns = sum(each["backend"] == "gloo" for each in rounds)
    print("`test/perf/torch_figures.sh`, %s: torch %s, %d processes at two daemons joined by "
          "memif, %d CPUs (%s). Gloo runs while no daemon does, and the other way round; turns of "
          "each: %d. A time is the median of the turns' medians; in brackets, times Gloo's.\n"
          % (time.strftime("%d %B %Y"), first["torch"], first["world"], os.cpu_count(),
             cpu_name(), turns))
    print("Load when it began: %s.\n" % os.environ.get("LOAD_BEFORE", "not known"))
    print("| call | size | Gloo | gradwire, tensors of torch's | gradwire, gradient memory |")
    print("|---|---|---|---|---|")
    def place(key):
        name, size = key.split("|")
        return name in ("many", "step"), name, int(size) if size.isdigit() else 0, size

    for key in sorted({key.rsplit("|", 1)[0] for _, key in times}, key=place):
        name, size = key.split("|")
        gloo = best("gloo", key + "|plain")
        cells = []
        for kind in ("plain", "shared"):
            us = best("gradwire", "%s|%s" % (key, kind))
            cells.append("" if us is None else "%s (%.2f)" % (in_words(us), us / gloo))
        if name == "step":
            what, shown = "step of %s" % size.upper(), "64 MB"
        elif name == "many":
            what, shown = "{:,} of {}, and then their ends".format(MANY, size), "%d B" % MANY_BYTES
        else:
            what, shown = name, NAMES.get(int(size), size + " B")
        print("| %s | %s | %s | %s |" % (what, shown, in_words(gloo), " | ".join(cells)))
    slower = {}
    for each in rounds:
        slower.update(each.get("stats", {}).get("slower", {}))
    used = {each["stats"]["extension"].split(":")[0] for each in rounds if "stats" in each}
    print("\nC++ extension: %s. Slower ways taken: %s." % (
        " and ".join(sorted(used)), "; ".join(sorted(slower)) or "none"))


if __name__ == "__main__":
    if sys.argv[1] == "page":
        page(sys.argv[2:])
    else:
        measure(sys.argv[2], sys.argv[3].split(","), float(sys.argv[4]),
                [int(size) for size in sys.argv[5:]])
