#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""flood_keys.py FOLDER ROUNDS BYTES: the table of flood_keys.sh. A share that a flood takes is that
of one round, against aside of the same round; the figure is the median of the rounds. Fails if
forgeries were dropped for another reason than they should be."""

import json
import pathlib
import statistics
import sys

MODES = ("off", "authenticate", "encrypt")
POINTS = 5  # percentage points more than from the group in clear
# What a group under a flood drops by itself, or what comes once it is gone.
OTHERS = ("duplicate", "foreign", "replay", "unknown_group")

TEXT = ("{:>13} {:>6} {:>8} {:>8} {:>8} {:>20} {:>9} {:>6} {:>11} {:>11} {:>7}")


def main():
    folder, rounds, size = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])

    def gbit(number, mode, how):
        text = (folder / f"{number}.{mode}.{how}" / "0.json").read_text()
        result = json.loads(text)["results"][0]
        if result["wrong"]:
            sys.exit(f"round {number}, {mode}, {how}: {result['wrong']} elements are wrong")
        return size * 8 / result["time_mean_us"] / 1e3

    def flood(number, mode, how):
        """Frames a second that were sent, and that the lane dropped."""
        at = folder / f"{number}.{mode}.{how}"
        _, sent, seconds, reason = (at / "sent").read_text().split()
        before, after = (json.loads((at / name).read_text()) for name in ("before", "after"))
        dropped = {name: after[name] - before.get(name, 0) for name in after}
        if reason != ("token" if mode == "off" else "tag"):
            sys.exit(f"round {number}: the group of mode {mode} was taken for another: {reason}")
        wrong = any(dropped[name] for name in dropped if name not in (reason, *OTHERS))
        if wrong or not dropped[reason]:
            sys.exit(f"round {number}, {mode}, {how}: forgeries should be dropped for their "
                     f"{reason}, and the lane dropped "
                     f"{ {name: count for name, count in dropped.items() if count} }")
        return float(sent) / float(seconds), dropped[reason] / float(seconds)

    every = range(1, rounds + 1)
    print(f"all-reduces of {size} bytes, medians of {rounds} rounds; goodput in Gbit/s, of the "
          "mean time of an op.\n"
          "lost: of the goodput against aside, in per cent (quartiles); more: points beyond the "
          "group in clear\n")
    print(TEXT.format("mode", "flood", "quiet", "aside", "flooded", "lost", "of quiet",
                      "more", "sent/s", "dropped/s", "bar"))
    in_clear = {}
    for mode in MODES:
        for how in ("data", "hello"):
            lost = [100 * (1 - gbit(i, mode, how) / gbit(i, mode, "aside")) for i in every]
            of_quiet = [100 * (1 - gbit(i, mode, how) / gbit(i, mode, "quiet")) for i in every]
            floods = [flood(i, mode, how) for i in every]
            in_clear.setdefault(how, lost)
            middle = statistics.median(lost)
            low, high = (statistics.quantiles(lost, n=4)[::2] if rounds > 1 else (middle, middle))
            more = middle - statistics.median(in_clear[how])
            verdict = "-" if mode == "off" else "reached" if more <= POINTS else "MISSED"
            print(TEXT.format(
                mode, how,
                *(f"{statistics.median(gbit(i, mode, h) for i in every):.2f}"
                  for h in ("quiet", "aside", how)),
                f"{middle:.1f} ({low:.1f} to {high:.1f})", f"{statistics.median(of_quiet):.1f}",
                "-" if mode == "off" else f"{more:+.1f}",
                f"{statistics.median(f[0] for f in floods):,.0f}",
                f"{statistics.median(f[1] for f in floods):,.0f}", verdict))


if __name__ == "__main__":
    main()
