#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""forged.py --to NETNS/DEVICE --by NETNS/DEVICE --packets N SOCKET SOCKET: sums on two daemons, the
first at one end of an Ethernet, the second at the other. Then packets of every type go to the first
as if the second had sent them, N in all: right in every field and both CRCs, but not with the
link's token. Each has to be counted, and the group must not notice: the next sum is right."""

import argparse
import ctypes
import itertools
import socket
import struct
import sys
import time

import numpy as np

import gradwire
from crc32c import crc32c
from reference import reference
from ring import Ring, check

ETHERNET, UDP_PAYLOAD, HEADER, TOKEN = 14, 42, 64, 56
VERSION = 2
HELLO, HELLO_ACK, DATA, PING, ACK, ABORT, BYE, BYE_ACK, CHECK = range(1, 10)
COUNT = 1003
LIMIT_S = 60
CLONE_NEWNET = 0x40000000


def internet_checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame_like(sample, packet):
    """@return `packet` behind the Ethernet, IPv4 and UDP headers of `sample`."""
    ip = bytearray(sample[ETHERNET:ETHERNET + 20])
    struct.pack_into(">H", ip, 2, 28 + len(packet))
    struct.pack_into(">H", ip, 10, 0)
    struct.pack_into(">H", ip, 10, internet_checksum(ip))
    udp = bytearray(sample[ETHERNET + 20:UDP_PAYLOAD])
    struct.pack_into(">HH", udp, 4, 8 + len(packet), 0)
    return bytes(sample[:ETHERNET] + ip + udp + packet)


def sealed(packet):
    """@return the packet with both CRCs right."""
    packet = bytearray(packet)
    struct.pack_into(">I", packet, 52, crc32c(packet[HEADER:]))
    struct.pack_into(">I", packet, 48, crc32c(packet[:48] + packet[52:HEADER]))
    return packet


def open_device(place):
    """@return a packet socket on "NETNS/DEVICE"."""
    netns, device = place.split("/")
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net", "rb") as here, open(f"/run/netns/{netns}", "rb") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {netns}")
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        opened.bind((device, 0))
        libc.setns(here.fileno(), CLONE_NEWNET)
    opened.settimeout(0.2)
    return opened


class Network:
    """What the first daemon gets from the second, and more in the second's name. The driver's
    frames are seen where they come in: they leave past the taps."""

    def __init__(self, to, by):
        self.incoming = open_device(to)
        self.incoming.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.outgoing = open_device(by)
        self.samples = {}

    def listen(self, kinds):
        """Until a packet of each of these types was sent."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end and not all(kind in self.samples for kind in kinds):
            try:
                frame, address = self.incoming.recvfrom(65536)
            except socket.timeout:
                continue
            sent_here = address[2] == socket.PACKET_OUTGOING
            if not sent_here and len(frame) >= UDP_PAYLOAD + HEADER and frame[12:14] == b"\x08\x00":
                self.samples.setdefault(frame[UDP_PAYLOAD + 1], frame)
        missing = [kind for kind in kinds if kind not in self.samples]
        if missing:
            raise SystemExit(f"no packet of the types {missing} was seen on the network")

    def templates(self):
        """@return a frame and a packet of every type."""
        for kind in HELLO, HELLO_ACK, DATA, PING, ACK:
            yield self.samples[kind], self.samples[kind][UDP_PAYLOAD:]
        sample = self.samples[PING]
        ping = sample[UDP_PAYLOAD:]
        lane_and_tag, from_rank = ping[3:8], ping[46:48]
        for kind, body in ((ABORT, struct.pack(">BxHHxxQQ160s", 4, 1, 1, 0, 0, b"forged")),
                           (BYE, bytes(8)), (BYE_ACK, bytes(8)),
                           (CHECK, struct.pack(">QQQ", 1, 1 << 60, 0))):
            header = bytes([VERSION, kind, 0]) + lane_and_tag + struct.pack(">Q", 1 << 40)
            yield sample, header + bytes(30) + from_rank + bytes(16) + body


def drops(path):
    """What daemon 0 dropped, by reason."""
    total = {}
    for lane in gradwire.daemon_status(path)["lanes"]:
        for name, count in lane["transport"]["drops"].items():
            total[name] = total.get(name, 0) + count
    return total


def sum_once(ring, generator):
    inputs = ring.make_inputs(generator, COUNT, "fp32")
    expected = reference.all_reduce(inputs, "fp32", "sum")
    check(ring.all_reduce(inputs, "fp32", "sum"), expected, "sum")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("sockets", nargs=2)
    parser.add_argument("--to", required=True)
    parser.add_argument("--by", required=True)
    parser.add_argument("--packets", type=int, required=True)
    arguments = parser.parse_args()
    network = Network(arguments.to, arguments.by)
    generator = np.random.default_rng(11)
    with Ring(arguments.sockets) as ring:
        sum_once(ring, generator)
        network.listen([HELLO, HELLO_ACK, DATA, PING, ACK])
        before = drops(arguments.sockets[0])
        templates = itertools.cycle(network.templates())
        for sent in range(1, arguments.packets + 1):
            frame, packet = next(templates)
            # Zeros, as a daemon of an older release would send, and guesses.
            token = bytes(8) if sent <= 12 else generator.bytes(8)
            packet = packet[:TOKEN] + token + packet[HEADER:]
            network.outgoing.send(frame_like(frame, sealed(packet)))
            end = time.monotonic() + LIMIT_S
            while sent % 8 == 0 or sent == arguments.packets:  # no more than the port can hold
                counted = drops(arguments.sockets[0])["token"] - before["token"]
                if counted == sent:
                    break
                time.sleep(0.01)
                if time.monotonic() > end:
                    raise SystemExit(f"{sent} packets were forged, {counted} are counted: {before} "
                                     f"before, {drops(arguments.sockets[0])} now")
        sum_once(ring, generator)
        print(f"{arguments.packets} forged packets, each was dropped, and the sums are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
