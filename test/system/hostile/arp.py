# SPDX-License-Identifier: BSD-3-Clause
"""Frames of ARP, and an endless stream of them: what arp_flood.py and arp_spoof.py share."""

import socket
import time


def arp_frame(destination, operation, sender_mac, sender_ip, target_mac, target_ip):
    """RFC 826 over Ethernet, from `sender_mac`, of 60 bytes; operation 1 asks, 2 answers."""
    return (destination + sender_mac + bytes.fromhex("0806 0001 0800 0604") + bytes([0, operation])
            + sender_mac + sender_ip + target_mac + target_ip).ljust(60, b"\0")


def send_until_ended(interface, frames):
    """Sends all of `frames` some 100 times a second."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.bind((interface, 0))
    while True:
        for frame in frames:
            try:
                packets.send(frame)
            except OSError:
                pass
        time.sleep(0.01)
