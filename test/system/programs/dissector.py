#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""dissector.py FILE: checks what tshark made of a capture of an all-reduce between two ranks: a
line a packet, fields separated by commas, as dissector_test.sh asks for them."""

import collections
import sys

FIELDS = ("type lane number group_tag op_seq chunk hop datatype redop from_rank to_rank nranks "
          "last completed expert length".split())


def main():
    packets = []
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            packets.append(dict(zip(FIELDS, line.rstrip("\n").split(","), strict=True)))
    types = collections.Counter(int(p["type"]) for p in packets)
    print(f"{len(packets)} packets by type: {dict(types)}")
    for wanted in (1, 2, 3, 5, 7, 8):
        assert types[wanted] > 0, f"no packet of type {wanted}"
    numbers = {"0": [], "1": []}
    tags = {p["group_tag"] for p in packets}
    assert len(tags) == 1, f"one group has one tag: {tags}"
    for p in packets:
        assert not p["expert"], f"tshark complains: {p}"
        kind = int(p["type"])
        assert p["lane"] == "0", p
        sender = p["from_rank"]
        numbers[sender].append(int(p["number"]))
        if kind in (1, 2):
            assert p["nranks"] == "2" and {sender, p["to_rank"]} == {"0", "1"}, p
        if kind == 3:
            assert int(p["op_seq"]) >= 1 and p["datatype"] == "0" and p["redop"] == "0", p
            assert int(p["length"]) > 8 + 64 and int(p["length"]) % 4 == 0, p
        if kind == 5 and p["last"]:
            assert int(p["last"]) >= 1, p
    hops = {int(p["hop"]) for p in packets if p["type"] == "3"}
    assert hops == {0, 1}, f"hops of two ranks: {hops}"
    # A tap may see one direction alone.
    seen = {sender: used for sender, used in numbers.items() if used}
    assert seen, "nobody sent a packet"
    for sender, used in seen.items():
        assert len(set(used)) == len(used), f"rank {sender} used a number twice"
        assert min(used) == 1 and len(used) >= 10, (sender, sorted(used)[:20])


if __name__ == "__main__":
    sys.exit(main())
