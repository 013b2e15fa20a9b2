#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the results of the demo's two runs: loss by step, time of a step and in all-reduce,
characters a second, final weights; plots the first two. Exit 1 where gradwire's processes differ in
a bit, or its weights from Gloo's by more than the tolerance. With --formats also the runs whose
gradients travelled in these, with error feedback: their weights are bit-equal in all processes, and
what became of the loss is shown."""

import argparse
import os
import sys

import torch


def load(folder, backend, world):
    return [torch.load(os.path.join(folder, f"{backend}-{rank}.pt")) for rank in range(world)]


def mean_losses(results):
    """By step, over the processes: each sees other text."""
    return [sum(step) / len(step) for step in zip(*(r["losses"] for r in results))]


def by_step_ms(results, skip, which):
    """By step, `which` (min or max) of the processes' times in all-reduce; without the first steps,
    in which connections and memory are made."""
    return [1e3 * which(step) for step in zip(*(r["allreduce_s"] for r in results))][skip:]


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def print_losses(runs, rows_max):
    """@param runs  (name, losses by step)"""
    print("\n  loss in step" + "".join(f"   {name:>13s}" for name, _ in runs))
    steps = len(runs[0][1])
    every = max(1, -(-steps // rows_max))
    for step in range(steps):
        if step % every == 0 or step == steps - 1:
            print(f"  {step + 1:12d}" + "".join(f"   {losses[step]:13.6f}" for _, losses in runs))


def step_ms(results):
    """By step: processes wait for each other in all-reduce, so a step is as long as its longest."""
    return [1e3 * max(step) for step in zip(*(r["steps_s"] for r in results))]


def print_times(name, results, skip):
    steps = step_ms(results)[skip:]
    least = by_step_ms(results, skip, min)
    most = by_step_ms(results, skip, max)
    tokens = sum(r["tokens"] for r in results)
    print(f"  {name:9s} {quantile(steps, 0.5):8.1f} {quantile(steps, 0.99):8.1f} "
          f"{1e3 * tokens * len(steps) / sum(steps):10,.0f} "
          f"{quantile(least, 0.5):12.1f} {quantile(least, 0.99):8.1f} "
          f"{quantile(most, 0.5):12.1f} {quantile(most, 0.99):8.1f}")


def same_weights(results):
    first = results[0]["weights"]
    # As integers: bits, not values, so that NaN and -0 count as what they are.
    return all(torch.equal(first.view(torch.int32), r["weights"].view(torch.int32))
               for r in results[1:])


def print_formats(runs, gloo, skip):
    """Time of a step and last loss of runs in formats, beside Gloo's."""
    print()
    time, loss = quantile(step_ms(gloo)[skip:], 0.5), mean_losses(gloo)[-1]
    for name, results in runs:
        print(f"  {name}: a step takes {quantile(step_ms(results)[skip:], 0.5) / time:.2f}x of "
              f"Gloo's, the last loss is {mean_losses(results)[-1] / loss:.4f}x of it; weights of "
              f"all processes: {'bit-equal' if same_weights(results) else 'NOT bit-equal'}")


def plot(path, runs, skip):
    """Loss and time of a step of each run, as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (losses, times) = plt.subplots(1, 2, figsize=(13, 5))
    for name, results, colour, style in runs:
        loss = mean_losses(results)
        losses.plot(range(1, len(loss) + 1), loss, color=colour, linestyle=style, label=name)
        steps = step_ms(results)[skip:]
        reduced = by_step_ms(results, skip, min)
        numbers = range(skip + 1, skip + 1 + len(steps))
        times.plot(numbers, steps, color=colour, label=f"{name}, whole step")
        times.plot(numbers, reduced, color=colour, alpha=0.4, label=f"{name}, in all-reduce")
    losses.set(xlabel="step", ylabel="loss", title="mean loss of the processes")
    times.set(xlabel="step", ylabel="ms", ylim=(0, None),
              title=f"{runs[0][1][0]['gradient_bytes'] / 1e6:.0f} MB of gradients a step")
    losses.legend()
    times.set_ylim(top=(1.2 + 0.1 * (len(runs) - 2)) * times.get_ylim()[1])
    times.legend(ncol=2, loc="upper center")
    for axis in (losses, times):
        axis.grid(True, alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder")
    parser.add_argument("--world", type=int, required=True, help="processes of each run")
    parser.add_argument("--tolerance", type=float, required=True,
                        help="greatest difference of a weight between gradwire and Gloo")
    parser.add_argument("--formats", default="", help="comma-separated")
    parser.add_argument("--plot", help="PNG to write: loss and time by step")
    parser.add_argument("--rows", type=int, default=10, help="of the loss table, at most")
    parser.add_argument("--skip", type=int, default=2, help="steps that the times leave out")
    arguments = parser.parse_args()
    gradwire = load(arguments.folder, "gradwire", arguments.world)
    gloo = load(arguments.folder, "gloo", arguments.world)

    formats = [("as " + wire, load(arguments.folder, f"gradwire-{wire}", arguments.world))
               for wire in filter(None, arguments.formats.split(","))]
    runs = [("gradwire", gradwire), *formats, ("Gloo", gloo)]

    print_losses([(name, mean_losses(results)) for name, results in runs], arguments.rows)
    print(f"\n  {gradwire[0]['gradient_bytes'] / 1e6:.1f} MB of gradients a step; steps "
          f"{arguments.skip + 1} to {len(gloo[0]['losses'])}"
          "\n            time of a step, ms             in all-reduce, ms: while one is under way"
          "\n                              characters  last to come          first to come, waits"
          "\n              median      p99   a second       median      p99       median      p99")
    for name, results in runs:
        print_times(name, results, arguments.skip)
    if formats:
        print_formats(formats, gloo, arguments.skip)

    if arguments.plot:
        looks = {"gradwire": ("tab:purple", "-"), "Gloo": ("tab:green", "--"),
                 "as bf16": ("tab:blue", "-"), "as int8": ("tab:orange", "-")}
        plot(arguments.plot, [(name, results, *looks[name]) for name, results in runs],
             arguments.skip)

    equal = all(same_weights(results) for name, results in runs if name != "Gloo")
    difference = (gradwire[0]["weights"] - gloo[0]["weights"]).abs().max().item()
    near = difference <= arguments.tolerance  # false for NaN too
    print(f"\n  final weights, gradwire's {arguments.world} processes: "
          f"{'bit-equal' if equal else 'NOT bit-equal'}")
    print(f"  final weights, gradwire against Gloo: greatest difference {difference:.3g}, "
          f"tolerance {arguments.tolerance:g}: {'within' if near else 'NOT within'}")
    return 0 if equal and near else 1


if __name__ == "__main__":
    sys.exit(main())
