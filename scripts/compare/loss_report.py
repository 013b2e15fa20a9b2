#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""loss_report.py RUNS: what scripts/compare/loss.sh measured, as Markdown. Of each run rank 0's
mean time counts; a loss costs 1 - (time without loss)/(time with it) of the goodput, round by
round, and the median of the rounds is shown with the least and the most."""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys

BARS = {0.001: 0.05, 0.01: 0.20}  # of goodput, for gradwire
NOISE_MOST = 1.3  # rounds without loss that differ by more say nothing of what loss costs
ROWS = {
    "daemon": "gradwire, daemons over memif",
    "embedded": "gradwire, embedded over memif",
    "tcp": "kernel TCP on veth, offloads off",
    "tcp-offload": "kernel TCP on veth, TSO and GRO",
}


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def load(folder, row, loss, round_):
    """@return (mean seconds of an op, bytes, packets sent again, CPU seconds per GB)."""
    result = json.loads((folder / f"{row}-{loss}-{round_}-0.json").read_text())["results"][0]
    return result["time_mean_us"] / 1e6, result["size_bytes"], result["retransmissions"], \
        result["cpu_s_per_gb"]


def cost_text(costs):
    middle = statistics.median(costs)
    return f"{100 * middle:.1f} % ({100 * min(costs):.1f} ... {100 * max(costs):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("--rows", required=True)
    parser.add_argument("--losses", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--command", required=True)
    arguments = parser.parse_args()
    losses = arguments.losses.split()
    base = losses[0]
    lines = []
    verdicts = []
    for row in arguments.rows.split():
        for loss in losses:
            runs = [load(arguments.runs, row, loss, r) for r in range(arguments.rounds)]
            without = [load(arguments.runs, row, base, r)[0] for r in range(arguments.rounds)]
            goodput = statistics.median(8 * size / time / 1e9 for time, size, _, _ in runs)
            costs = [1 - before / time for (time, _, _, _), before in zip(runs, without)]
            again = [r for _, _, r, _ in runs if r is not None]
            cpu = [c for _, _, _, c in runs if c is not None]
            cpu_text = f"{statistics.median(cpu):.3f}" if cpu else "not known"
            again_text = f"{statistics.median(again):.0f}" if again else "not known"
            cost = "-" if loss == base else cost_text(costs)
            lines.append(f"| {ROWS[row]} | {100 * float(loss):g} % | {goodput:.2f} | {cost} | "
                         f"{again_text} | {cpu_text} |")
            bar = BARS.get(float(loss))
            if bar is not None and not row.startswith("tcp"):
                met = "met" if statistics.median(costs) < bar else "MISSED"
                if max(without) > NOISE_MOST * min(without):
                    met = (f"not judged, since without loss the rounds themselves took "
                           f"{1e3 * min(without):.0f} to {1e3 * max(without):.0f} ms")
                verdicts.append(f"- {ROWS[row]}: {100 * float(loss):g} % loss costs "
                                f"{100 * statistics.median(costs):.1f} %, under "
                                f"{100 * bar:.0f} % wanted: {met}")
    print(f"""<!-- SPDX-License-Identifier: BSD-3-Clause -->
# What loss costs

Two ranks on one machine, fp32 sums of {size_text(arguments)}; commit {arguments.commit},
{datetime.date.today()}, {cpu_model()}, {len(os.sched_getaffinity(0))} CPUs, load average
{os.getloadavg()[1]:.1f} while it ran. Each received packet is lost by chance, both ways,
acknowledgements too; all rows and losses in turns, {arguments.rounds} rounds:

    {arguments.command}

Goodput is the op's bytes over the mean time of an op, median of the rounds. Cost is what of it is
gone, against no loss in the same round: median (least ... most). Packets sent again are rank 0's in
a run; CPU time is rank 0's and its daemon's, a figure that other load on the machine changes
little.

| what | loss | goodput Gbit/s | cost | sent again | CPU s per GB |
|---|---|---|---|---|---|""")
    print("\n".join(lines))
    print("\n" + "\n".join(verdicts))
    return 0


def size_text(arguments):
    path = next(arguments.runs.glob("*-0.json"))
    return f"{json.loads(path.read_text())['results'][0]['size_bytes']} bytes"


if __name__ == "__main__":
    sys.exit(main())
