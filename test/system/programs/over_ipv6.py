#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""over_ipv6.py FROM.pcap TO.pcap: the chunk packets of a capture over IPv4, as they would be over
IPv6 by doc/protocol: the header's CRC is XORed with that of the addresses. The last one's is
not, so that it is wrong. The UDP checksums are made up: nobody looks at them but for 0."""

import ipaddress
import struct
import sys

from crc32c import crc32c

SOURCE = ipaddress.ip_address("fd79::1").packed
DESTINATION = ipaddress.ip_address("fd79::2").packed


def over_ipv6(frame, mask):
    udp = bytearray(frame[34:])
    crc = struct.unpack_from(">I", udp, 8 + 48)[0]
    struct.pack_into(">I", udp, 8 + 48, crc ^ mask)
    struct.pack_into(">H", udp, 6, 0x4242)
    header = struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + SOURCE + DESTINATION
    return frame[:12] + b"\x86\xdd" + header + udp


def main():
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    packets = []
    at = 24
    while at < len(data):
        size = struct.unpack_from(order + "I", data, at + 8)[0]
        packets.append(data[at + 16:at + 16 + size])
        at += 16 + size
    mask = crc32c(SOURCE + DESTINATION)
    with open(sys.argv[2], "wb") as file:
        file.write(data[:24])
        for i, packet in enumerate(packets):
            frame = over_ipv6(packet, mask if i < len(packets) - 1 else 0)
            file.write(struct.pack(order + "IIII", 0, i, len(frame), len(frame)) + frame)


if __name__ == "__main__":
    main()
