#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the results of the demo's two runs: loss by step, time in all-reduce, final weights.
Exit 1 where gradwire's processes differ in a bit, or its weights from Gloo's by more than the
tolerance."""

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


def print_losses(gradwire, gloo, rows_max):
    print("\n  step   loss, gradwire   loss, Gloo")
    steps = len(gradwire)
    every = max(1, -(-steps // rows_max))
    for step in range(steps):
        if step % every == 0 or step == steps - 1:
            print(f"  {step + 1:4d}   {gradwire[step]:14.6f}   {gloo[step]:10.6f}")


def print_times(name, results, skip):
    least = by_step_ms(results, skip, min)
    most = by_step_ms(results, skip, max)
    print(f"  {name:9s} {quantile(least, 0.5):8.2f} {quantile(least, 0.99):8.2f}     "
          f"{quantile(most, 0.5):8.2f} {quantile(most, 0.99):8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder")
    parser.add_argument("--world", type=int, required=True, help="processes of each run")
    parser.add_argument("--tolerance", type=float, required=True,
                        help="greatest difference of a weight between gradwire and Gloo")
    parser.add_argument("--rows", type=int, default=20, help="of the loss table, at most")
    parser.add_argument("--skip", type=int, default=2, help="steps that the times leave out")
    arguments = parser.parse_args()
    gradwire = load(arguments.folder, "gradwire", arguments.world)
    gloo = load(arguments.folder, "gloo", arguments.world)

    print_losses(mean_losses(gradwire), mean_losses(gloo), arguments.rows)
    print(f"\n  time in all-reduce per step, ms: while at least one was under way (steps "
          f"{arguments.skip + 1} to {len(gloo[0]['losses'])})"
          "\n            last to come         first to come, waiting for the others"
          "\n              median      p99       median      p99")
    print_times("gradwire", gradwire, arguments.skip)
    print_times("Gloo", gloo, arguments.skip)

    first = gradwire[0]["weights"]
    # As integers: bits, not values, so that NaN and -0 count as what they are.
    equal = all(torch.equal(first.view(torch.int32), r["weights"].view(torch.int32))
                for r in gradwire[1:])
    difference = (first - gloo[0]["weights"]).abs().max().item()
    near = difference <= arguments.tolerance  # false for NaN too
    print(f"\n  final weights, gradwire's {arguments.world} processes: "
          f"{'bit-equal' if equal else 'NOT bit-equal'}")
    print(f"  final weights, gradwire against Gloo: greatest difference {difference:.3g}, "
          f"tolerance {arguments.tolerance:g}: {'within' if near else 'NOT within'}")
    return 0 if equal and near else 1


if __name__ == "__main__":
    sys.exit(main())
