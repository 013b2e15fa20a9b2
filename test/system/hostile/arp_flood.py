#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""arp_flood.py INTERFACE ADDRESS: asks for the address again and again, some 5,000 times a second,
on behalf of a host that is not there, until it is ended."""

import socket
import sys

from arp import arp_frame, send_until_ended


def main():
    interface, address = sys.argv[1:3]
    stranger = bytes([2, 9, 9, 9, 9, 9])
    target = socket.inet_aton(address)
    frame = arp_frame(b"\xff" * 6, 1, stranger, target[:3] + bytes([66]), bytes(6), target)
    send_until_ended(interface, 50 * [frame])


if __name__ == "__main__":
    main()
