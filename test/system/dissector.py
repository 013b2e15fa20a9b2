#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""dissector.py FILE: checks what tshark made of a capture of an all-reduce between two ranks: a
line a packet, fields separated by commas, as dissector_test.sh asks for them."""

import collections
import sys

FIELDS = ("type down lane number op_seq chunk hop count datatype redop from_rank to_rank nranks "
          "last completed expert length".split())
DOWN_ONLY = {1, 3, 4}
UP_ONLY = {2, 5}


def main():
    packets = []
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            packets.append(dict(zip(FIELDS, line.rstrip("\n").split(","), strict=True)))
    types = collections.Counter(int(p["type"]) for p in packets)
    print(f"{len(packets)} packets by type: {dict(types)}")
    for wanted in (1, 2, 3, 5, 7, 8):
        assert types[wanted] > 0, f"no packet of type {wanted}"
    numbers = set()
    for p in packets:
        assert not p["expert"], f"tshark complains: {p}"
        kind = int(p["type"])
        # Booleans are "1"/"0" or "True"/"False", by tshark's version.
        down = p["down"] in ("1", "True")
        assert not (kind in DOWN_ONLY and not down) and not (kind in UP_ONLY and down), p
        assert p["lane"] == "0", p
        if kind in (1, 2):
            assert p["nranks"] == "2" and {p["from_rank"], p["to_rank"]} == {"0", "1"}, p
        if kind == 3:
            assert int(p["op_seq"]) >= 1 and p["datatype"] == "0" and p["redop"] == "0", p
            assert int(p["length"]) == 8 + 64 + 4 * int(p["count"]), p
            numbers.add(int(p["number"]))
        if kind == 5 and p["last"]:
            assert int(p["last"]) >= 1, p
    hops = {int(p["hop"]) for p in packets if p["type"] == "3"}
    assert hops == {0, 1}, f"hops of two ranks: {hops}"
    assert min(numbers) == 1 and len(numbers) >= 10, sorted(numbers)[:20]


if __name__ == "__main__":
    sys.exit(main())
