#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plots of what scripts/compare.sh measured: busbw by size, and p50 and p99 by size, as PNG.

usage: plot_compare.py compare-LINK.json --out PREFIX   makes PREFIX-busbw.png, PREFIX-times.png"""

import argparse
import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

# One colour and mark for a row wherever it appears.
STYLES = {
    "gradwire": ("gradwire, embedded", "tab:blue", "o"),
    "gradwire-1408": ("gradwire, 1,408 B payloads", "tab:cyan", "v"),
    "daemon": ("gradwire, daemon", "tab:purple", "s"),
    "gradwire-authenticate": ("gradwire, authenticated", "tab:blue", "<"),
    "gradwire-encrypt": ("gradwire, encrypted", "tab:blue", ">"),
    "daemon-authenticate": ("daemon, authenticated", "tab:purple", "<"),
    "daemon-encrypt": ("daemon, encrypted", "tab:purple", ">"),
    "tcp": ("TCP ring", "tab:orange", "^"),
    "tls": ("TCP ring by TLS", "tab:olive", "d"),
    "rdma": ("RDMA ring", "tab:brown", "*"),
    "gloo": ("Gloo", "tab:green", "D"),
    "mpi-tcp": ("Open MPI, TCP", "tab:red", "P"),
    "mpi-shm": ("Open MPI, shared memory", "tab:gray", "X"),
}
TITLES = {"off": "segmentation offloads off", "on": "segmentation offloads on"}


def size_name(size):
    for unit, bits in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << bits:
            return f"{size / (1 << bits):g}{unit}"
    return f"{size:g}"


def points(sizes, key):
    ordered = sorted((int(size), figures) for size, figures in sizes.items())
    return [s for s, _ in ordered], [f[key] for _, f in ordered]


def panels(report):
    variants = report["variants"]
    figure, axes = plt.subplots(1, len(variants), figsize=(8 * len(variants), 5.5), squeeze=False)
    for axis, (variant, measured) in zip(axes[0], variants.items()):
        sizes = sorted({int(s) for row in measured["rows"].values() for s in row})
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [size_name(s) for s in sizes])
        axis.minorticks_off()
        axis.set_xlabel("bytes of an op")
        axis.grid(True, alpha=0.3)
        link = report["meta"]["link"]
        what = report["meta"].get("collective", "all-reduce")
        axis.set_title(f"{what} over {link}, MTU {report['meta']['mtu']}, "
                       f"{report['meta']['nranks']} ranks, fp32"
                       + (f"\n{TITLES[variant]}" if variant in TITLES else ""))
        yield axis, measured["rows"]
    figure.text(0.99, 0.01, f"commit {report['meta']['commit']}", ha="right", fontsize=7)
    figure.tight_layout()


def plot_busbw(report, path):
    for axis, rows in panels(report):
        for row, (label, colour, mark) in STYLES.items():
            if rows.get(row):
                sizes, values = points(rows[row], "busbw_bytes_per_s")
                axis.plot(sizes, [v * 8 / 1e9 for v in values], color=colour, marker=mark,
                          label=label)
        axis.set_ylabel("busbw, Gbit/s")
        axis.set_ylim(bottom=0)
        axis.legend()
    plt.savefig(path, dpi=110)
    plt.close()


def plot_times(report, path):
    for axis, rows in panels(report):
        for row, (label, colour, mark) in STYLES.items():
            if rows.get(row):
                sizes, middle = points(rows[row], "time_p50_us")
                axis.plot(sizes, middle, color=colour, marker=mark, label=f"{label}, p50")
                sizes, late = points(rows[row], "time_p99_us")
                axis.plot(sizes, late, color=colour, linestyle=":", linewidth=1)
        axis.set_yscale("log")
        axis.set_ylabel("time of an op, µs (dotted: p99)")
        axis.legend()
    plt.savefig(path, dpi=110)
    plt.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("report")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    with open(arguments.report, encoding="utf-8") as file:
        report = json.load(file)
    for kind, plot in (("busbw", plot_busbw), ("times", plot_times)):
        path = f"{arguments.out}-{kind}.png"
        plot(report, path)
        print(f"plot: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
