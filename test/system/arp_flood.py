#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""arp_flood.py INTERFACE ADDRESS: asks for the address again and again, some 5,000 times a second,
on behalf of a host that is not there, until it is ended."""

import socket
import sys
import time


def main():
    interface, address = sys.argv[1:3]
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.bind((interface, 0))
    stranger = bytes([2, 9, 9, 9, 9, 9])
    target = socket.inet_aton(address)
    frame = (b"\xff" * 6 + stranger + bytes.fromhex("0806 0001 0800 0604 0001") + stranger
             + target[:3] + bytes([66]) + bytes(6) + target).ljust(60, b"\0")
    while True:
        for _ in range(50):
            try:
                packets.send(frame)
            except OSError:
                pass
        time.sleep(0.01)


if __name__ == "__main__":
    main()
