#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What wire formats do to the loss: trains the demo's models with gradients that travel in each
format, by DDP's hook and by FSDP2, and beside them by DDP's own hooks.

    training_formats.py run FOLDER     one process of the job (torchrun's environment); what FOLDER
                                       has is not done again
    training_formats.py page FOLDER    the table, of what FOLDER has; --plot FILE the curves

Runs of one seed begin with the same weights and see the same text in the same order. So what their
losses differ by comes from the gradients. training_formats.sh starts the daemons and the job."""

import argparse
import collections
import json
import os
import pathlib
import sys
import time

LAST = 100  # steps of the end whose mean loss counts
EVALUATED = 128  # windows of text, the same for all, for the loss after the last step
# DDP's buckets, so small that a model of more has several. PowerSGD has one: its hook makes calls
# in callbacks, and with several buckets, whose callbacks come in any order, it was seen to wait for
# ever on Gloo.
BUCKET_MB = 1
POWERSGD_BUCKET_MB = 100

# Name: (what the page calls it, the greatest departure from fp32's loss that is allowed, or None).
WAYS = collections.OrderedDict([
    ("fp32", ("the hook, fp32", None)),
    ("bf16", ("the hook, `bf16`, error feedback", 0.002)),
    ("int8", ("the hook, `int8`, error feedback", 0.005)),
    ("int8-without", ("the hook, `int8`, without", None)),
    ("fsdp-int8", ("FSDP2, reduce-scatters in `int8`", 0.01)),
    ("ddp-bf16", ("DDP's `bf16_compress_hook`, Gloo", None)),
    ("powersgd", ("DDP's `powerSGD_hook`, rank 2, from step 10 on, Gloo", None)),
])


def by_hook(module, way, name):
    """@return (the model, what ends it and tells what was done)."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    from gradwire.torch import GradwireState, allreduce_hook

    bucket_mb = POWERSGD_BUCKET_MB if way == "powersgd" else BUCKET_MB
    model = DistributedDataParallel(module, bucket_cap_mb=bucket_mb)
    if way == "ddp-bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
        return model, lambda: {}
    if way == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return model, lambda: {}
    wire = way.split("-")[0]
    state = GradwireState(members=1, name=name, format=None if wire == "fp32" else wire,
                          error_feedback=not way.endswith("without"))
    model.register_comm_hook(state, allreduce_hook)

    def end():
        stats = state.stats()
        state.close()
        return stats

    return model, end


def by_fsdp(module):
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    import gradwire.torch

    os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT"] = "int8"
    os.environ["GRADWIRE_REDUCE_SCATTER_FORMAT_FROM"] = "0"
    group = dist.new_group(backend="gradwire")
    mesh = DeviceMesh.from_group(group, "cpu")
    # As one: a step has one reduce-scatter, of all gradients.
    model = fully_shard(module, mesh=mesh)
    model.set_allocate_memory_from_process_group_for_comm(True)

    def end():
        stats = gradwire.torch.stats()
        dist.destroy_process_group(group)
        return stats

    return model, end


def train(arguments, models, text, characters, model_name, way, seed):
    import torch
    import torch.distributed as dist

    torch.manual_seed(seed)
    make_model, make_optimizer, rate = models.MODELS[model_name]
    module = make_model(characters)
    parameters = sum(p.numel() for p in module.parameters())
    name = "%s-%s-%d" % (model_name, way, seed)
    model, end = by_fsdp(module) if way.startswith("fsdp") else by_hook(module, way, name)
    optimizer = make_optimizer(model.parameters(), lr=rate)
    order = torch.Generator().manual_seed(seed * 1_000_003 + dist.get_rank())
    losses = torch.zeros(arguments.steps)
    began_s = time.monotonic()
    for step in range(arguments.steps):
        if step % 100 == 50 and dist.get_rank() == 0:
            print("%s: step %d, %.0f s" % (name, step, time.monotonic() - began_s), flush=True)
        starts = torch.randint(len(text) - models.CONTEXT, (arguments.batch,), generator=order)
        optimizer.zero_grad(set_to_none=True)
        loss = models.next_character_loss(model, text, starts.tolist())
        loss.backward()
        optimizer.step()
        losses[step] = loss.item()
    trained_s = time.monotonic() - began_s
    starts = torch.randint(len(text) - models.CONTEXT, (EVALUATED,),
                           generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        parts = [models.next_character_loss(model, text, part.tolist()).item()
                 for part in starts.split(16)]
    final = sum(parts) / len(parts)
    dist.all_reduce(losses)
    losses /= dist.get_world_size()
    stats = end()
    kept = {key: stats[key] for key in ("format_ops", "format_bytes", "wire_bytes",
                                        "wire_bytes_without", "residual_resets", "fell_back",
                                        "encoding_error") if key in stats}
    return {"model": model_name, "way": way, "seed": seed, "steps": arguments.steps,
            "batch": arguments.batch, "parameters": parameters, "world": dist.get_world_size(),
            "final": final, "last": losses[-LAST:].mean().item(), "seconds": trained_s,
            "losses": [round(x, 5) for x in losses.tolist()], "stats": kept}


def run(arguments):
    import torch
    import torch.distributed as dist

    import model as models

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    models.ROWS, models.WIDTH, models.LAYERS = arguments.rows, arguments.width, arguments.layers
    text, characters = models.load_text("/usr/share/common-licenses")
    for seed in range(1, arguments.seeds + 1):
        for model_name in arguments.models.split(","):
            for way in arguments.ways.split(","):
                path = pathlib.Path(arguments.folder, "%s-%s-%d.json" % (model_name, way, seed))
                there = torch.tensor([path.exists()], dtype=torch.int32)
                dist.broadcast(there, 0)
                if there.item():
                    continue
                result = train(arguments, models, text, characters, model_name, way, seed)
                if dist.get_rank() == 0:
                    path.with_suffix(".new").write_text(json.dumps(result))
                    path.with_suffix(".new").rename(path)
                    print("%s, %s, seed %d: %.4f, %.4f, %.0f s" % (
                        model_name, way, seed, result["final"], result["last"],
                        result["seconds"]), flush=True)
                dist.barrier()
    dist.destroy_process_group()


def load(folder):
    """By model and way: the results, by seed."""
    found = collections.defaultdict(dict)
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        result = json.loads(path.read_text())
        found[result["model"], result["way"]][result["seed"]] = result
    return found


def mean(results, key):
    return sum(r[key] for r in results) / len(results)


def bytes_share(result):
    """What went over the wire, of what fp32 would have sent, by the stats' formula."""
    stats = result["stats"]
    sent, plain = (sum(stats.get(key, {}).values()) for key in ("wire_bytes", "wire_bytes_without"))
    return "%.3f" % (sent / plain) if plain else "-"


def page(arguments):
    found = load(arguments.folder)
    missed = 0
    for model in sorted({model for model, _ in found}):
        plain = found[model, "fp32"]
        one = next(iter(plain.values()))
        print("\n## %s\n\n%s parameters, %d processes at %d daemons, %d windows of text each in a "
              "step, %d steps.\n" % (model.capitalize(), "{:,}".format(one["parameters"]),
                                     one["world"], one["world"], one["batch"], one["steps"]))
        print("| gradients | seeds | loss after the last step | of fp32's | mean of the last %d "
              "steps | of fp32's | bar | bytes |" % LAST)
        print("|---|---|---|---|---|---|---|---|")
        for way, (said, bar) in WAYS.items():
            seeds = sorted(set(found[model, way]) & set(plain))
            if not seeds:
                print("| %s | none | not run |  |  |  |  |  |" % said)
                continue
            mine, theirs = ([by_seed[seed] for seed in seeds]
                            for by_seed in (found[model, way], plain))
            ratios = [mean(mine, key) / mean(theirs, key) for key in ("final", "last")]
            judged = ""
            if bar is not None:
                held = all(ratio <= 1 + bar for ratio in ratios)
                missed += not held
                judged = "%.1f %%: %s" % (100 * bar, "held" if held else "**missed**")
            print("| %s | %d | %.4f | %.4f | %.4f | %.4f | %s | %s |" % (
                said, len(seeds), mean(mine, "final"), ratios[0], mean(mine, "last"), ratios[1],
                judged, bytes_share(mine[0])))
        spread = [r["final"] for r in plain.values()]
        print("\nBetween seeds fp32's loss after the last step is %.4f to %.4f." % (
            min(spread), max(spread)))
    if arguments.plot:
        plot(arguments.plot, found)
    return 1 if missed else 0


def plot(path, found):
    """Curves, each the mean of its seeds and of so many steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    over = 25
    models = sorted({model for model, _ in found})
    figure, axes = plt.subplots(1, len(models), figsize=(6.5 * len(models), 5), squeeze=False)
    for axis, model in zip(axes[0], models):
        for way in WAYS:
            runs = [r["losses"] for r in found[model, way].values()]
            if not runs:
                continue
            steps = [sum(step) / len(step) for step in zip(*runs)]
            means = [sum(steps[at:at + over]) / over for at in range(0, len(steps), over)]
            axis.plot([at * over for at in range(len(means))], means, label=way, linewidth=1)
        axis.set(title=model, xlabel="step", ylabel="loss")
        axis.grid(True, alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=["run", "page"])
    parser.add_argument("folder")
    parser.add_argument("--models", default="transformer,wide")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=4, help="windows of text of a process")
    parser.add_argument("--rows", type=int, default=2048, help="of the wide model's tables")
    parser.add_argument("--width", type=int, default=128, help="of the transformer")
    parser.add_argument("--layers", type=int, default=4, help="of the transformer")
    parser.add_argument("--plot", help="PNG to write, with page")
    arguments = parser.parse_args()
    return run(arguments) if arguments.what == "run" else page(arguments)


if __name__ == "__main__":
    sys.exit(main())
