# SPDX-License-Identifier: BSD-3-Clause
"""Whoever holds the cable between two hosts: sees every frame, and may hold it back, change it, or
send others. Frames come to host 0 and 1 by this alone."""

import collections
import select
import socket
import threading
import time

from crc32c import crc32c
from forged import ETHERNET, HEADER, TOKEN, UDP_PAYLOAD, frame_like

PORT = 18515
NUMBER, FROM_RANK, HEADER_CRC, PAYLOAD_CRC = 8, 46, 48, 52
LIMIT_S, STORY_S = 60, 240


def is_packet(frame):
    """Whether it is of gradwire's lanes."""
    port = int.from_bytes(frame[36:38], "big")
    return (len(frame) >= UDP_PAYLOAD + HEADER and frame[12:14] == b"\x08\x00" and
            frame[23] == 17 and PORT <= port < PORT + 16)


def packet_of(frame):
    """The UDP payload, without Ethernet's padding."""
    return bytes(frame[UDP_PAYLOAD:UDP_PAYLOAD + int.from_bytes(frame[38:40], "big") - 8])


def number_of(packet):
    return int.from_bytes(packet[NUMBER:NUMBER + 8], "big")


def put(packet, at, value):
    """A copy with these bytes at a place, and the header's CRC right."""
    return with_crc(packet[:at] + value + packet[at + len(value):])


def with_crc(packet):
    packet = bytearray(packet)
    crc = crc32c(bytes(packet[:HEADER_CRC] + packet[PAYLOAD_CRC:HEADER]))
    packet[HEADER_CRC:PAYLOAD_CRC] = crc.to_bytes(4, "big")
    return bytes(packet)


def flipped(packet, at, bit=0x10, repaired=True):
    packet = bytearray(packet)
    packet[at] ^= bit
    return with_crc(packet) if repaired else bytes(packet)


def framed(sample, packet):
    """The packet in a frame like another one."""
    return frame_like(sample, packet)



class Path(threading.Thread):
    """@param devices the ends that lead to host 0 and to host 1. What host d sends has direction d.
    change(direction, frame): what goes on in a frame's place, a list; None: the frame."""

    def __init__(self, devices):
        super().__init__(daemon=True)
        self.ends = []
        for device in devices:
            end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            end.bind((device, 0))
            end.setblocking(False)
            self.ends.append(end)
        self.seen = [[], []]  # frames of packets by direction, in their order
        self.change = None
        self.changed = threading.Lock()
        self.error = None
        self.ends_at = time.monotonic() + STORY_S
        self.start()

    def run(self):
        try:
            while True:
                ready, _, _ = select.select(self.ends, [], [])
                for end in ready:
                    self._take(end)
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
            raise

    def _take(self, end):
        direction = self.ends.index(end)
        for _ in range(64):
            try:
                frame, where = end.recvfrom(65536)
            except BlockingIOError:
                return
            if where[2] == socket.PACKET_OUTGOING:
                continue
            with self.changed:
                change = self.change
                if is_packet(frame):
                    self.seen[direction].append(frame)
                    frames = change(direction, frame) if change else [frame]
                else:
                    frames = [frame]
                for going in frames:
                    self.send(direction, going)

    def send(self, direction, frame):
        """As if host `direction` had sent it."""
        end = self.ends[1 - direction]
        while True:
            try:
                end.send(bytes(frame))
                return
            except BlockingIOError:
                select.select([], [end], [], 1)
            except OSError as error:
                if error.errno != 105:  # ENOBUFS: the device's queue is full
                    raise
                time.sleep(0.0002)

    def change_by(self, change):
        with self.changed:
            self.change = change

    def require_well(self):
        """The story has not gone on for too long, and frames go by."""
        if self.error is not None or time.monotonic() > self.ends_at:
            raise SystemExit(f"FAILED: not within {STORY_S} s ({self.error})")

    def until(self, done, what):
        end = time.monotonic() + LIMIT_S
        while not done():
            if self.error is not None or time.monotonic() > end:
                raise SystemExit(f"FAILED: {what}: not within {LIMIT_S} s ({self.error})")
            time.sleep(0.002)

    def newest(self, direction, kind=None):
        """The newest frame of this kind that was seen that way."""
        with self.changed:
            found = [f for f in self.seen[direction] if kind in (None, f[UDP_PAYLOAD + 1])]
        return found[-1] if found else None

    def hold(self, direction, kind):
        """@return the next frame of this kind that way, which does not go on."""
        held = []

        def change(way, frame):
            if way == direction and frame[UDP_PAYLOAD + 1] == kind and not held:
                held.append(frame)
                return []
            return [frame]

        self.change_by(change)
        return held

    def kinds(self):
        with self.changed:
            return [collections.Counter(f[UDP_PAYLOAD + 1] for f in seen) for seen in self.seen]


assert (ETHERNET, TOKEN) == (14, 56)
