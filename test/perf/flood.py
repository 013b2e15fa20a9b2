#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sends foreign frames out of a device as fast as it goes, until it is ended:
flood.py DEVICE MAC IP PORT, the daemon's. In turns garbage to its UDP port, packets that are the
protocol's but nobody's, another port, ARP requests, pings and no protocol at all. Says at the end
how many it sent."""

import os
import signal
import socket
import struct
import sys
import time


def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source, target, protocol, payload):
    header = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0, source, target
    )
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def udp(port, payload):
    return struct.pack("!HHHH", 40000, port, 8 + len(payload), 0) + payload


def frames(mac, ip, port):
    stranger = bytes([2, 9, 9, 9, 9, 9])
    source = ip[:3] + bytes([66])
    ethernet = mac + stranger + b"\x08\x00"
    echo = struct.pack("!BBHHH", 8, 0, 0, 7, 1) + b"flood..."
    echo = echo[:2] + struct.pack("!H", checksum(echo)) + echo[4:]
    arp = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + stranger + source + bytes(6) + ip
    garbage = os.urandom(256)
    return [
        ethernet + ipv4(source, ip, 17, udp(port, garbage)),
        ethernet + ipv4(source, ip, 17, udp(port, b"\x01" + garbage)),
        ethernet + ipv4(source, ip, 17, udp(53, garbage)),
        b"\xff" * 6 + stranger + b"\x08\x06" + arp + bytes(18),
        ethernet + ipv4(source, ip, 1, echo),
        mac + stranger + b"\x88\xb5" + garbage,
    ]


def main():
    device, mac, ip, port = sys.argv[1:]
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.bind((device, 0))
    flood = frames(bytes.fromhex(mac.replace(":", "")), socket.inet_aton(ip), int(port))
    sent = 0
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    began = time.monotonic()
    while not ended:
        for frame in flood:
            try:
                out.send(frame)
                sent += 1
            except OSError:  # the device's queue is full
                pass
    seconds = time.monotonic() - began
    print("%d frames in %.2f s, %.0f a second" % (sent, seconds, sent / seconds), flush=True)


if __name__ == "__main__":
    main()
