#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tile_packets.py TO.pcap: a capture of one packet of each type of tiles, a result and a call of
what has not entered besides, as the peer of test/peer makes them: no daemon sends them yet."""

import struct
import sys

from peer import wire, wrong
from peer.net import udp_frame

COMMON = {"lane": 1, "tag": 0xA1B2C3D4, "number": 5, "from_rank": 3, "token": 7}
ETHERNET, NANOSECONDS = 1, 0xA1B23C4D


def packets():
    yield from (wrong.right_tile(kind, COMMON) for kind in wire.TILES)
    yield wire.encode(wire.TILE_PIECE, COMMON, {
        "op_seq": 2, "count": 1 << 40, "chunk": 6, "collective_datatype": 0x43, "format_bits": 2},
        bytes(8))
    yield wire.encode(wire.TILE_CALL, {**COMMON, "flags": wire.AGAIN},
                      {"op_seq": 3, "echo": 9, "format_bits": 4})
    yield wire.encode(wire.TILE_PULL, COMMON, {"op_seq": 4, "bits": 0b1010})


def main():
    with open(sys.argv[1], "wb") as file:
        file.write(struct.pack("<IHHiIII", NANOSECONDS, 2, 4, 0, 0, 65535, ETHERNET))
        for i, packet in enumerate(packets()):
            frame = udp_frame(bytes(6), "10.0.0.1", "10.0.0.2", 18516, 18516, bytes(packet))
            file.write(struct.pack("<IIII", 0, i, len(frame), len(frame)) + frame)


if __name__ == "__main__":
    main()
