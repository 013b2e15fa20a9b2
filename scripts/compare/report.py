#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/compare.sh measured, as one table, as bars reached or not, as JSON and as a report.

usage: report.py FOLDER --out FOLDER [--save FOLDER]
FOLDER has ROW.VARIANT.REPETITION.json of each run, ROW.VARIANT.unavailable with a reason, and
meta.json. A figure is the median over the repetitions of the run's own p50 or p99."""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys

from bars import judge, size_text
from distance import at, cores_text, distances_of, set_aside
from wording import LABELS, SHORT, VARIANT_TITLES, WORTH


def time_text(us):
    if us >= 99_950:
        return f"{us / 1e3:,.0f} ms"
    if us >= 999.5:
        return f"{us / 1e3:.2f} ms"
    return f"{us:.2f} us" if us < 99.95 else f"{us:.0f} us"


def read_runs(folder, aside):
    """{variant: {row: {size: {...}}}}, {variant: {row: reason}} and {variant: {row: note}}, without
    the runs `aside`."""
    samples, reasons, notes = {}, {}, {}
    for path in sorted(folder.glob("*.json")):
        if path.name == "meta.json" or path.stem in aside:
            continue
        row, variant, _ = path.name.split(".", 2)
        data = json.loads(path.read_text())
        if data.get("note"):
            notes.setdefault(variant, {})[row] = data["note"]
        for result in data["results"]:
            at = samples.setdefault(variant, {}).setdefault(row, {})
            at.setdefault(result["size_bytes"], []).append(result)
    for path in sorted(folder.glob("*.unavailable")):
        row, variant = path.name.split(".")[:2]
        reasons.setdefault(variant, {})[row] = path.read_text().strip()
    return samples, reasons, notes


def median_of(results, key):
    values = [r[key] for r in results if r.get(key) is not None]
    return statistics.median(values) if values else None


def bus_factor(collective, nranks):
    """Of algbw, as in nccl-tests."""
    if collective == "all-reduce":
        return 2 * (nranks - 1) / nranks
    if collective in ("reduce-scatter", "all-gather", "all-to-all"):
        return (nranks - 1) / nranks
    return 1


def summarize(results, size, factor):
    p50 = median_of(results, "time_p50_us")
    every = [r["time_p50_us"] for r in results]
    wrong = [r["wrong"] for r in results if r.get("wrong") is not None]
    return {
        "time_p50_us": p50,
        "time_p99_us": median_of(results, "time_p99_us"),
        "time_p50_us_least": min(every),
        "time_p99_us_least": min((r["time_p99_us"] for r in results
                                  if r.get("time_p99_us") is not None), default=None),
        "time_p50_us_most": max(every),
        "busbw_bytes_per_s": size / (p50 / 1e6) * factor,
        "cpu_s_per_gb": median_of(results, "cpu_s_per_gb"),
        "cycles_per_byte": median_of(results, "cycles_per_byte"),
        "cycles_per_packet": median_of(results, "cycles_per_packet"),
        "packets_per_s": median_of(results, "packets_per_s"),
        "retransmissions": median_of(results, "retransmissions"),
        "wrong": sum(wrong) if wrong else None,
        "runs": len(results),
    }


# Rows that are two ways of one thing. The better counts, size by size.
WAYS = (
    ("mpi-tcp", "its own choice", "mpi-tcp-ring", "its ring"),
    ("tcp", "system calls", "tcp-uring", "io_uring"),
)


def merge_ways(rows):
    for row, way, other_row, other_way in WAYS:
        other = rows.pop(other_row, {})
        own = rows.setdefault(row, {}) if other else rows.get(row, {})
        for figures in own.values():
            figures["way"] = way
        for size, figures in other.items():
            figures["way"] = other_way
            if size not in own:
                own[size] = figures
                continue
            least = min(figures["time_p50_us_least"], own[size]["time_p50_us_least"])
            if figures["time_p50_us"] < own[size]["time_p50_us"]:
                own[size] = figures
            own[size]["time_p50_us_least"] = least


def collective_of(meta):
    return meta.get("collective", "all-reduce")


def build(folder):
    meta = json.loads((folder / "meta.json").read_text())
    distances = distances_of(folder)
    aside, band = set_aside(distances)
    samples, reasons, notes = read_runs(folder, aside)
    factor = bus_factor(collective_of(meta), meta["nranks"])
    variants = {}
    for variant in sorted(set(samples) | set(reasons)):
        rows = {
            row: {size: summarize(r, size, factor) for size, r in sizes.items()}
            for row, sizes in samples.get(variant, {}).items()
        }
        merge_ways(rows)
        unavailable = {r: why for r, why in reasons.get(variant, {}).items()
                       if r in LABELS and not rows.get(r)}
        failed = {r: why for r, why in reasons.get(variant, {}).items() if r not in unavailable}
        variants[variant] = {"rows": rows, "unavailable": unavailable, "failed": failed,
                             "notes": notes.get(variant, {})}
    wakes = read_numbers(folder / "wakes.txt")
    wake_us = statistics.median(wakes) if wakes else None
    # Bars are of all-reduce alone, and of a link that is as fast as the cores.
    judged = collective_of(meta) == "all-reduce" and not meta.get("shaped_gbit")
    bars = judge(meta, variants, wake_us) if judged else []
    received = {}
    for path in folder.glob("*.received"):
        row, variant, _ = path.name.split(".", 2)
        received.setdefault(variant, {}).setdefault(row, []).extend(read_numbers(path))
    return {"meta": meta, "variants": variants, "bars": bars, "runs": len(distances),
            "received_gbit": received, "wake_us": wake_us, "runs_set_aside": sorted(aside),
            "core_round_trips_counted_ns": band,
            "core_round_trips_ns": read_numbers(folder / "cores.txt"),
            "others_share": read_numbers(folder / "others.txt"),
            "stolen_share": read_numbers(folder / "stolen.txt")}


def table(head, lines):
    widths = [max(len(str(line[i])) for line in [head, *lines]) for i in range(len(head))]
    def row(cells):
        return "| " + " | ".join(str(c).rjust(w) for c, w in zip(cells, widths)) + " |"
    rule = "|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|"
    return "\n".join([row(head), rule, *(row(line) for line in lines)])


def cell(rows, row, size, make):
    figures = rows.get(row, {}).get(size)
    return make(figures) if figures else "-"


def tables_of(report, variant):
    meta, rows = report["meta"], report["variants"][variant]["rows"]
    unavailable = report["variants"][variant]["unavailable"]
    names = [r for r in LABELS if r in rows or r in unavailable]
    sizes = sorted({size for sizes in rows.values() for size in sizes})
    out = []

    def add(title, make):
        lines = [[size_text(s), *(cell(rows, r, s, lambda f: make(s, f)) for r in names)]
                 for s in sizes]
        out.append(f"{title}\n\n" + table(["size", *(SHORT[r] for r in names)], lines))

    own_row = next((row for row in ("gradwire", "daemon") if rows.get(row)), None)

    def ratio(size, figures):
        own = rows[own_row].get(size)
        return f"{figures['time_p50_us'] / own['time_p50_us']:.2f}" if own else "-"

    add("Time of an op, median (p50):", lambda s, f: time_text(f["time_p50_us"]))
    add("Time of an op, p99:", lambda s, f: time_text(f["time_p99_us"]))
    if meta["reps"] > 1:
        add("Time of an op, median of the best repetition:",
            lambda s, f: time_text(f["time_p50_us_least"]))
    add("busbw, Gbit/s:", lambda s, f: f"{f['busbw_bytes_per_s'] * 8 / 1e9:.2f}")
    if own_row:
        add(f"Its time over that of {LABELS[own_row]} (above 1: gradwire is faster):", ratio)
    add("CPU seconds per GB, of one rank (and its daemon):",
        lambda s, f: f"{f['cpu_s_per_gb']:.3f}" if f["cpu_s_per_gb"] is not None else "-")
    if meta["rate_gbit"]:
        rate = meta["rate_gbit"] * 1e9 / 8
        factor = bus_factor(collective_of(meta), meta["nranks"])
        head = ["size", "minimum", *(SHORT[r] for r in names)]
        lines = [[size_text(s), time_text(s * factor / rate * 1e6),
                  *(cell(rows, r, s, lambda f: f"{s * factor / rate * 1e8 / f['time_p50_us']:.0f}%")
                    for r in names)] for s in sizes]
        out.append(f"Theoretical minimum at {meta['rate_gbit']:g} Gbit/s, {factor:g} x size / "
                   "rate, and the fraction of that rate that is reached:\n\n" + table(head, lines))
    received = report["received_gbit"].get(variant, {})
    if received:
        head = ["", "UDP blast", *(SHORT.get(r, r) for r in received)]
        line = ["Gbit/s", f"{meta['blast_gbit']:.2f}",
                *(f"{max(every):.2f}" for every in received.values())]
        out.append("What rank 1's device received in its best second, frames as the kernel counts "
                   "them:\n\n" + table(head, [line]))
    spread = [(f["time_p50_us_most"] / f["time_p50_us_least"], row, size)
              for row, sizes_ in rows.items() for size, f in sizes_.items()]
    if spread:
        worst, row, size = max(spread)
        out.append(f"Between repetitions a median differed by at most {worst:.2f}x "
                   f"({SHORT[row]}, {size_text(size)}).")
    wrong = {SHORT[r]: sum(f["wrong"] or 0 for f in rows[r].values()) for r in rows}
    if any(wrong.values()):
        out.append("WRONG RESULTS: " + ", ".join(f"{r}: {n}" for r, n in wrong.items() if n))
    else:
        out.append("Every result was checked; no element was wrong.")
    for row, note in report["variants"][variant]["notes"].items():
        out.append(f"{LABELS[row]}: {note}.")
    for row, why in unavailable.items():
        out.append(f"Unavailable: {LABELS[row]}: {why}")
    for row, why in report["variants"][variant]["failed"].items():
        out.append(f"Failed in one repetition, so it has fewer runs: {row}: {why}")
    for row, way, _, other_way in WAYS:
        better = [size_text(s) for s, f in sorted(rows.get(row, {}).items())
                  if f.get("way") == other_way]
        if better:
            out.append(f"{LABELS[row]} was better with {other_way} at {', '.join(better)}; "
                       f"elsewhere with {way}.")
    return out


def wanted(bar):
    if not bar["bar"]:
        return "printed"
    return f"{'at most ' if bar.get('most') else ''}{bar['bar']}x"


def bars_text(report):
    if not report["bars"]:
        return "None: nothing that was run has one."
    lines = [[b["what"], b["value"] if isinstance(b["value"], str) else f"{b['value']:.2f}x",
              b["best"] if isinstance(b["best"], str) else f"{b['best']:.2f}x",
              wanted(b), f"{b['aim']}x" if b["aim"] else "-",
              b["verdict"]] for b in report["bars"]]
    return table(["bar", "measured", "best repetitions", "wanted", "to aim for", "verdict"], lines)


def read_numbers(path):
    """In order; may be empty."""
    return sorted(float(word) for word in path.read_text().split()) if path.exists() else []


def disturbances(report):
    """What took the two cores from the rows, or moved them; a sentence each."""
    found = []
    others = report["others_share"]
    # The scripts themselves take some hundredths.
    taken = [share for share in others if share > 0.05]
    if len(taken) > 0.1 * len(others):
        found.append(f"before {len(taken)} of {len(others)} rows other processes used the two "
                     f"cores, up to {100 * others[-1]:.0f} % of their time")
    stolen = report["stolen_share"]
    if stolen and stolen[-1] > 0.02:
        found.append(f"the host took the cores away for up to {100 * stolen[-1]:.0f} % of a row's "
                     "time (steal)")
    trips = report["core_round_trips_ns"]
    band = report["core_round_trips_counted_ns"]
    if report["runs_set_aside"]:
        found.append(f"the cores moved: a cache line took from {at(0.05, trips):.0f} to "
                     f"{at(0.95, trips):.0f} ns from one to the other and back. Only runs with "
                     f"{band[0]:.0f} to {band[1]:.0f} ns before and after them count; "
                     f"{len(report['runs_set_aside'])} of {report['runs']} are left out")
    elif trips and at(0.95, trips) > 1.5 * at(0.05, trips):
        found.append(f"the cores moved: a cache line took from {at(0.05, trips):.0f} to "
                     f"{at(0.95, trips):.0f} ns from one to the other and back, so a median of few "
                     "repetitions says where they were; the best repetitions compare better")
    return found


def machine():
    facts = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            facts.setdefault(name.strip(), value.strip())
    model = (f"{facts.get('model name', 'CPU not known')} (family {facts.get('cpu family', '?')}, "
             f"model {facts.get('model', '?')})")
    cores = os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[2]
    return (f"{model}, {cores} cores, {memory:.0f} GB; load average of the last 15 minutes "
            f"{load:.1f} (two ranks on two cores make 2)")


def text_of(report, stamp):
    meta = report["meta"]
    link = meta["link"]
    if meta.get("shaped_gbit"):
        link += f" of {meta['shaped_gbit']:g} Gbit/s"
    title = f"{collective_of(meta).capitalize()} over {link}, compared ({stamp})"
    parts = [f"# {title}", "\n".join([
        *(f"- DISTURBED: {text}" for text in disturbances(report)),
        f"- Machine: {machine()}",
        f"- Commit {meta['commit']}" + (", with changes" if meta["changed"] else "") + "; "
        + ", ".join(f"{k} {v}" for k, v in meta["versions"].items() if v),
        f"- {meta['nranks']} ranks, cores {meta['cores']}, fp32 sum, MTU {meta['mtu']}, "
        f"{meta['reps']} repetitions in turns; medians of each repetition's median",
        f"- Daemons' cores: {meta['daemon_cores']}, polling {meta['daemon_polling']}"
        + (": lane, control thread and client of a rank share one core"
           if meta["daemon_shares"] else ": a core of their own"),
        *(["- SHARED CORES: there are more ranks than cores. Embedded ranks and lanes are "
           "adaptive, the TCP ring sleeps while it waits, Open MPI yields"]
          if meta.get("shared") else []),
        "- gradwire, the TCP ring and Open MPI work out of place; Gloo, through Python, in place "
        "if torch has nothing else: all-reduce, reduce and broadcast",
    ] + (["- Each row alone and beside busy processes, in turns; embedded ranks and lanes are "
           "adaptive and the TCP ring sleeps while it waits, in both"]
          if meta.get("beside") else [])
      + ([f"- The two cores: {cores_text(report['core_round_trips_ns'])}"]
         if report["core_round_trips_ns"] else [])
      + ([f"- Two threads of a core wake each other in {report['wake_us']:.1f} us, both ways"]
         if report["wake_us"] else [])
      + (["- A quick run of few ops: its figures mean nothing"] if meta["quick"] else []))]
    for variant in report["variants"]:
        title = VARIANT_TITLES.get(variant) or ("Alone" if meta.get("beside") else "")
        if title:
            parts.append(f"## {title}")
        parts += tables_of(report, variant)
    parts.append("## Bars")
    parts.append(bars_text(report))
    parts.append("## What each comparison is worth")
    worth = WORTH["shaped" if meta.get("shaped_gbit") else meta["link"]]
    parts.append("\n".join(f"- {text}" for text in worth + [
        "Through the daemon there are more threads than ranks: on two cores they share, and the "
        "figure says more about the scheduler than about the daemon.",
        *([] if meta.get("shared") else
          ["All that spins (embedded, the TCP ring, Open MPI) is at its best with a core of its "
           "own, and is given one."]),
    ]))
    return "\n\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--save", type=pathlib.Path)
    arguments = parser.parse_args()
    report = build(arguments.folder)
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    text = text_of(report, stamp)
    print(text)
    name = f"compare-{report['meta']['link']}" + (
        "-beside" if report["meta"].get("beside") else "") + (
            "-shaped" if report["meta"].get("shaped_gbit") else "")
    collective = collective_of(report["meta"])
    if collective != "all-reduce":
        name += f"-{collective}"
    if report["meta"]["nranks"] > 2:
        name += f"-{report['meta']['nranks']}-ranks"
    (arguments.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    whole = "<!-- SPDX-License-Identifier: BSD-3-Clause -->\n" + text
    (arguments.out / f"{name}.md").write_text(whole)
    if arguments.save:
        plots = f"\n![busbw by size]({name}-busbw.png)\n\n![p50 and p99 by size]" \
                f"({name}-times.png)\n"
        (arguments.save / f"{name}.md").write_text(whole + plots)
    return 0


if __name__ == "__main__":
    sys.exit(main())
