#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""sealed.py FOLDER TURNS: the table of sealed.sh. Of each turn, what a row carries over 0.9 of
1 / (1 / clear + 1 / seal + 1 / open), all of the same turn; then the median of the turns."""

import pathlib
import re
import statistics
import sys

BAR = 0.9
MODES = ("authenticate", "encrypt")
TEXT = "{:>16} {:>9} {:>13} {:>12} {:>12} {:>12} {:>8} {:>8} {:>20} {:>10} {:>9}"


def lanes_of(text):
    """{(payload in clear, integrity, mode): (median, best)} in Gbit/s."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) < 6 or not cells[0].isdigit():
            continue
        payload, integrity, mode = int(cells[0]), cells[1], cells[2]
        payload += 0 if mode == "off" else 64
        rows[payload, integrity, mode] = float(cells[4]), float(cells[5])
    return rows


def ciphers_of(text):
    """{(mode, payload, seal or open): GB/s in place, in L2, of the first cipher}."""
    rates, at = {}, None
    for line in text.splitlines():
        head = re.match(r"(authenticate|encrypt), (\d+) bytes, (.*)", line)
        if head:
            at = (head[1], int(head[2])) if head[3] == "in L2" else None
        row = re.match(r"(seal|open) in place +([0-9.]+) ", line)
        if at and row:
            rates[(*at, row[1])] = float(row[2])
    return rates


def main():
    folder, turns = pathlib.Path(sys.argv[1]), range(int(sys.argv[2]))
    lanes = [lanes_of((folder / f"{turn}.lane").read_text()) for turn in turns]
    ciphers = []
    for turn in turns:
        found = [ciphers_of((folder / f"{turn}.cipher.{i}").read_text()) for i in (0, 1)]
        ciphers.append({key: statistics.mean(one[key] for one in found) for key in found[0]})
    print((folder / "0.lane").read_text().splitlines()[0].split(";")[0])
    print(f"medians of {len(turns)} turns; lanes in Gbit/s, the median of an op; cipher in Gbit/s "
          "in place, in L2\n"
          "over bar: of each turn, over 0.9 of 1 / (1 / clear + 1 / seal + 1 / open) (quartiles); "
          "best: the same of the best op of each turn\n")
    print(TEXT.format("payload", "integrity", "mode", "clear", "seal", "open", "sealed", "of clear",
                      "over bar", "best", "verdict"))
    for payload, integrity, mode in lanes[0]:
        if mode == "off":
            continue

        def over(turn, which):
            seal, opened = (8 * ciphers[turn][mode, payload, work] for work in ("seal", "open"))
            clear = lanes[turn][payload, integrity, "off"][which]
            if not clear:
                sys.exit(f"turn {turn}: a lane carried less than 0.05 Gbit/s: this machine is not "
                         "quiet, or ops are too small")
            bar = BAR / (1 / clear + 1 / seal + 1 / opened)
            return lanes[turn][payload, integrity, mode][which] / bar

        def middle(values):
            return statistics.median(list(values))

        ratios = [over(turn, 0) for turn in turns]
        low, high = (statistics.quantiles(ratios, n=4)[::2] if len(ratios) > 1 else ratios * 2)
        clear = middle(lanes[turn][payload, integrity, "off"][0] for turn in turns)
        sealed = middle(lanes[turn][payload, integrity, mode][0] for turn in turns)
        print(TEXT.format(
            f"{payload:,} and {payload - 64:,}", integrity, mode, f"{clear:.1f}",
            *(f"{middle(8 * c[mode, payload, work] for c in ciphers):.1f}"
              for work in ("seal", "open")),
            f"{sealed:.1f}", f"{sealed / clear:.2f}",
            f"{middle(ratios):.2f} ({low:.2f} to {high:.2f})",
            f"{middle(over(turn, 1) for turn in turns):.2f}",
            "reached" if middle(ratios) >= 1 else "MISSED"))


if __name__ == "__main__":
    main()
