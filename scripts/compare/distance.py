# SPDX-License-Identifier: BSD-3-Clause
"""How far the two cores were from each other while a row ran. The hypervisor of a virtual machine
moves virtual cores between threads of a core, cores of a cache and caches, within a minute."""

import collections

# Two distances are the same if none is more than so many times the middle of both.
BAND = 1.35


def distances_of(folder):
    """How far the two cores were from each other before and after each run, in ns, by the name of
    the run; none where it was not measured."""
    found = {}
    for path in folder.glob("*.cores"):
        if path.with_suffix(".json").exists():
            found[path.stem] = [float(word) for word in path.read_text().split()]
    return {name: ns for name, ns in found.items() if len(ns) == 2}


def set_aside(distances):
    """Runs that found the cores elsewhere than most did, so that no row is compared with another
    that ran on other cores.

    @return their names, and least and most ns of those that count; nothing and None if some row
            would keep less than a third of its runs, or a single one
    """
    def within(ns, middle):
        return all(middle / BAND <= each <= middle * BAND for each in ns)

    middles = sorted(each for ns in distances.values() for each in ns)
    if not middles:
        return set(), None
    middle = max(middles, key=lambda m: sum(within(ns, m) for ns in distances.values()))
    aside = {name for name, ns in distances.items() if not within(ns, middle)}
    runs, kept = collections.Counter(), collections.Counter()
    for name in distances:
        row = name.rsplit(".", 1)[0]
        runs[row] += 1
        kept[row] += name not in aside
    if any(kept[row] < max(2, count / 3) for row, count in runs.items()):
        return set(), None
    counted = [each for name, ns in distances.items() if name not in aside for each in ns]
    return aside, (min(counted), max(counted))


def at(share, ordered):
    return ordered[round(share * (len(ordered) - 1))]


def cores_text(round_trips_ns):
    """How long a cache line took from core to core and back, in order."""
    return (f"a cache line goes from core to core and back in {at(0.5, round_trips_ns):.0f} ns "
            f"(quartiles {at(0.25, round_trips_ns):.0f} and {at(0.75, round_trips_ns):.0f}, 20 ms "
            f"each, {len(round_trips_ns)} times between the rows)")
